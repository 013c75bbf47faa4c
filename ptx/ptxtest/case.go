package ptxtest

import (
	"fmt"
	"math/rand/v2"

	"ampc/ptx"
)

// Case is one check of one kernel.
type Case struct {
	Name  string
	Build func(fl ptx.Flavour) (*ptx.Launch, error)
	// Fill makes the buffers in argument order. Buffers the kernel only writes hold garbage.
	Fill func(r *rand.Rand) []Tensor
	// Check compares the buffers after the launch with in, those before it.
	Check func(in, out []Tensor) error
	// Streams: the kernel reads and writes each buffer once, in 16-byte accesses.
	Streams bool
	// Partial: the kernel leaves part of its outputs as they were.
	Partial bool
	// Exact: the kernel has no choice of rounding; Check compares bits.
	Exact bool
}

// Rand is the generator for a case, the same in every run.
func (c Case) Rand() *rand.Rand {
	seed := uint64(14695981039346656037)
	for _, b := range []byte(c.Name) {
		seed = (seed ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, 1))
}

// sizes are the odd lengths every kernel must handle.
var sizes = []int{1, 31, 33, 1023, 4097}

// Cases lists every check.
func Cases() []Case {
	var all []Case
	for _, family := range []func() []Case{
		groupCases, updateCases, reduceCases, softmaxCases, normCases, lossCases, embedCases, moveCases, imageCases, indexCases, unfoldCases,
	} {
		all = append(all, family()...)
	}
	return all
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
