package ptxtest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"ampc/ptx"
)

// Case is one check of one kernel.
type Case struct {
	Name string
	// Kernel is the generator: type and method of package ptx.
	Kernel string
	// Size is the length that the kernel works along: columns, elements, ids, positions.
	Size  int
	Build func(fl ptx.Flavour) (*ptx.Launch, error)
	// Fill makes the buffers in argument order. Buffers the kernel only writes hold garbage.
	Fill func(r *rand.Rand) []Tensor
	// Link writes the addresses of other buffers into the first before the launch. Those that no
	// argument names follow the arguments' buffers.
	Link func(bufs []Tensor, at []uint64)
	// Trials is how many fills it takes until every instruction matters; 0 means 1.
	Trials int
	// Least is the bytes that must move, where that is not every buffer once.
	Least int
	// Check compares the buffers after the launch with in, those before it.
	Check func(in, out []Tensor) error
	// Streams: the shape lets the kernel move all it moves in 16-byte accesses.
	Streams bool
	// Partial: the kernel leaves part of its outputs as they were.
	Partial bool
	// Long: the kernel is long and its shape large; another case has the same code. It is not run again
	// for every instruction.
	Long bool
	// Exact: the kernel has no choice of rounding; Check compares bits.
	Exact bool
}

// Rand is the generator for the first fill of a case, the same in every run.
func (c Case) Rand() *rand.Rand { return c.Trial(0) }

// Trial is the generator for a fill.
func (c Case) Trial(n int) *rand.Rand {
	seed := uint64(14695981039346656037)
	for _, b := range []byte(c.Name) {
		seed = (seed ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, uint64(n+1)))
}

// sizes are the odd lengths every kernel must handle.
var sizes = []int{1, 31, 33, 1023, 4097}

// Cases lists every check.
func Cases() []Case {
	var all []Case
	for _, family := range []func() []Case{
		elementwiseCases, updateCases, batchCases, reduceCases, colSumsCases, orderCases, softmaxCases, normCases, lossCases, embedCases, imageCases, channelCases,
		indexCases, unfoldCases, resizeCases,
	} {
		all = append(all, family()...)
	}
	return all
}

// along is the odd size among dimensions, or the first of them.
func along(dims ...int) int {
	for _, d := range dims {
		if slices.Contains(sizes, d) {
			return d
		}
	}
	return dims[0]
}

func caseName(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func copyOf(t []Tensor) []Tensor {
	out := make([]Tensor, len(t))
	for i, x := range t {
		out[i] = Tensor{x.DType, append([]byte(nil), x.Bytes...)}
	}
	return out
}

// Snapshot copies buffers, to be kept as Check's in.
func Snapshot(t []Tensor) []Tensor { return copyOf(t) }
