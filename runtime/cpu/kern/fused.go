package kern

import "unsafe"

// maxOperands is the largest number of operands and results of a formula.
const maxOperands = 20

// MostRandom is the largest number of Random operands.
const MostRandom = 4

// Fused is a kernel for a whole elementwise formula: it reads every operand once, writes every result once, and stores
// no intermediate values. Its results equal those of the vector primitives, applied one after the other, bit for bit.
type Fused struct {
	loads      int
	types      []Type // of the operands, then of the results
	lanes      int
	sums       int // of a row
	generators int // of random words
	composed   *composed
}

// Close frees the memory of the kernel, which must not run any more.
func (f *Fused) Close() { f.composed.close() }

// Streams reports whether there is code with streaming (non-temporal) stores.
func (f *Fused) Streams() bool { return f.composed.streams() }

// Call is the scratch memory that one worker needs to run formulas, one after the other.
type Call struct {
	args [maxOperands]*byte
	rest [maxOperands][64]float32 // the last, partial vector of each

	spill floats                // the states of generators, and what a composed kernel has no registers for
	sums  rowSums               // of a call
	state *float32              // the spill memory in which draws are known
	draws [MostRandom]drawnFrom // of the Random operands
	rare  rare                  // what passes that complete a composed kernel need
}

// rowSums is what kernels of sums get of their rows.
type rowSums struct {
	chains *float32
	runs   int // of a row
	skip   int // elements from the end of a run to the next
	back   int // elements from behind the last run, and a skip, to the next row
	next   int // bytes from the chains of a row to those of the next
}

// StreamBlock is the number of elements that a kernel with streaming stores takes at a time. Tasks may have parts of one, whole
// StreamUnits. The code reads each operand at streamPlaces positions in turn, streamVisit elements at each, and a part has elements
// at each position. The processor prefetches there, so one core reads up to half as much again. Prefetch instructions were slower,
// and so were eight positions.
const (
	StreamBlock = 1 << 17
	StreamUnit  = StreamBlock / 8

	streamPlaces = 4
	streamVisit  = 128
)

// Run computes n elements from element at on. bufs are the operands, then the results, all dense and of the same
// length. A result must be an operand's memory or overlap no operand. With streaming set, a formula that has such a kernel writes
// results by streaming stores. These bypass the caches and need not read results
// before writing them, which is faster for results of many megabytes. Results must then be aligned to 64 bytes, and a
// Fence must follow. The elements are then whole StreamUnits, or reach the end of the last result, and those of whole StreamBlocks are
// counted in an order of their own.
func (f *Fused) Run(c *Call, bufs []Buf, scalars []float32, at, n int, streaming bool) {
	var u *float32
	if len(scalars) > 0 {
		u = &scalars[0]
	}
	if streaming && f.Streams() {
		at, n = f.stream(c, bufs, at, n, u)
	}
	if f.generators > 0 && n > 0 {
		at, n = f.draw(c, bufs, at, n, u)
	}
	if n == 0 { // no pointer may lie behind an operand, where the collector may find no memory of its own
		return
	}
	c.from(bufs, at)
	whole := n &^ (f.lanes - 1)
	if whole > 0 {
		f.composed.run(whole, c, f.types, u)
	}
	switch {
	case whole == n:
	case whole > 0 && f.apart(bufs):
		c.from(bufs, at+n-f.lanes)
		f.composed.run(f.lanes, c, f.types, u)
	default:
		f.last(c, bufs, at+whole, n-whole, 0, u)
	}
}

// apart reports whether no result is an operand's memory and nothing is drawn, so that elements may be computed twice.
func (f *Fused) apart(bufs []Buf) bool {
	for i := f.loads; i < len(f.types); i++ {
		for k := range f.loads {
			if unsafe.SliceData(bufs[i].Data) == unsafe.SliceData(bufs[k].Data) {
				return false
			}
		}
	}
	return f.generators == 0
}

// draw has the generators make the words from element at on, and computes the elements before one that begins a counter. It
// returns the rest.
func (f *Fused) draw(c *Call, bufs []Buf, at, n int, u *float32) (int, int) {
	skip := f.seek(c, at)
	if skip == 0 {
		return at, n
	}
	some := min(n, 4-skip)
	f.last(c, bufs, at, some, skip, u)
	f.seek(c, at+some)
	return at + some, n - some
}

// RowScalars is the number of scalars of a row.
const RowScalars = 8

// Rows computes consecutive rows of n elements, whole vectors, from element at on, with a kernel that processes rows.
// Each row has its own RowScalars scalars.
func (f *Fused) Rows(c *Call, bufs []Buf, scalars []float32, at, rows, n int) {
	c.from(bufs, at)
	f.composed.byRow(rows, n, c, f.types, unsafe.SliceData(scalars))
}

// SumRows adds rows to chains: for each row and each sum of the formula, in the formula's order, 64 of them. A row consists of runs, one
// every apart elements, of n elements, whole vectors. The first runs of the rows are contiguous from element at on. The first
// element is added to chain from, the next to the one behind, and so on in turn. Each row has its own RowScalars scalars.
func (f *Fused) SumRows(c *Call, bufs []Buf, scalars, chains []float32, from, at, rows, n, runs, apart int) {
	for runs > 0 {
		together := 1
		switch {
		case from == 0 && n%lanes == 0:
			together = runs
		case from == 0 && lanes%n == 0:
			together = min(runs, lanes/n)
		}
		f.sumRuns(c, bufs, scalars, chains, from, at, rows, n, together, apart)
		from, at, runs = (from+n*together)%lanes, at+together*apart, runs-together
	}
}

// sumRuns adds rows of runs, of which there are several only if all end with the last chain, or one is less than 64 elements.
func (f *Fused) sumRuns(c *Call, bufs []Buf, scalars, chains []float32, from, at, rows, n, runs, apart int) {
	for step := n; n > 0; {
		some := min(n, lanes-from)
		if from == 0 && n > lanes {
			some = n &^ (lanes - 1)
		}
		c.from(bufs[:f.loads], at)
		f.composed.sumRows(rows, some, runs, step, apart, c, f.types, unsafe.SliceData(scalars), chains[from:], lanes*f.sums)
		from, at, n = (from+some)%lanes, at+some, n-some
	}
}

// from points the kernel's arguments at element at.
func (c *Call) from(bufs []Buf, at int) {
	for i := range bufs {
		c.args[i] = bufs[i].at(at)
	}
}

// stream computes what lies in whole StreamBlocks of the last result. It returns the rest.
func (f *Fused) stream(c *Call, bufs []Buf, at, n int, u *float32) (int, int) {
	c.from(bufs, 0)
	end := min(at+n, bufs[len(bufs)-1].Len()&^(StreamBlock-1))
	for f.aligned(c) && at < end {
		first := at % StreamBlock
		some := min(StreamBlock-first, end-at)
		c.from(bufs, at-first+first/streamPlaces)
		f.composed.stream(some/(streamPlaces*streamVisit), c, f.types, u)
		at, n = at+some, n-some
		c.from(bufs, 0)
	}
	return at, n
}

// aligned reports whether the results are aligned for streaming stores.
func (f *Fused) aligned(c *Call) bool {
	for i := f.loads; i < len(f.types); i++ {
		if uintptr(ptr(c.args[i]))%64 != 0 {
			return false
		}
	}
	return true
}

// last computes n elements, less than a vector, in c's own memory, from element skip of it on.
func (f *Fused) last(c *Call, bufs []Buf, at, n, skip int, u *float32) {
	stage := func(i int) []byte {
		size := f.types[i].Size()
		return unsafe.Slice(bytes(&c.rest[i][0]), (skip+n)*size)[skip*size:]
	}
	for i := range f.types {
		c.args[i] = bytes(&c.rest[i][0])
		if i < f.loads {
			copy(stage(i), bufs[i].From(at).Data)
			f.composed.repeat(c.args[i], f.types[i].Size(), n, f.lanes)
		}
	}
	f.composed.run(f.lanes, c, f.types, u)
	for i := f.loads; i < len(f.types); i++ {
		copy(bufs[i].From(at).Data, stage(i))
	}
}

// Fence makes the streaming stores of this goroutine visible before anything that it does next.
func (p *Path) Fence() {
	if p.fence != nil {
		p.fence()
	}
}
