package kern

// Finisher goes on with a result while that lies in a cache: the worker that computed a block of it hands it over.
type Finisher interface {
	// Finish is called once for every element of the result: c is a stretch of it, from element at on. Unless C is
	// stored, c is memory of the worker that the next block is computed in.
	Finish(worker, at int, c []float32)
}

// What somebody goes on with comes in blocks that are still in the second-level cache: of a matrix in about finishRows
// elements, whole rows of their strip, of finishPanels panels at least, as what is read and stored beside them streams;
// of a convolution, whose operand is costly to read again, in about finishPixels, pixels of all channels. What a task
// computes stays one block up to finishWhole.
const (
	finishRows   = 1 << 16
	finishPixels = 1 << 15
	finishWhole  = 1 << 17
	finishPanels = 2
)

// blockRows is how many rows a block of a matrix has at most that somebody goes on with.
func (t *gemmTask) blockRows() int {
	if t.mt*t.nt <= finishWhole {
		return t.mt
	}
	return max(finishPanels*t.p.mr, finishRows/t.nt/t.p.mr*t.p.mr)
}

// kept reports whether sums that are computed in a block's part stay there.
func (t *gemmTask) kept() bool { return t.out.c.absent() && t.out.epi.plain() }

// follow prepares a block whose columns somebody goes on with: those of the last slice of the depth.
func (x *block) follow() {
	t := x.t
	x.first, x.chunk = x.j0, 0
	if t.out.epi.Then == nil || x.k0+x.kc < t.depth {
		return
	}
	x.told, x.chunk = x.j0, x.j1-x.j0
	if rows := x.i1 - x.i0; rows*x.chunk > finishWhole {
		x.chunk = roundUp(max(1, finishPixels/rows), t.p.nr)
	}
	if x.part == nil && t.out.c.absent() {
		x.ldp = roundUp(x.chunk, t.p.nr)
		x.part = x.w.c.get((x.i1 - x.i0) * x.ldp)
	}
}

// tell hands columns over, up to end, if they are enough.
func (x *block) tell(end int) {
	if x.chunk == 0 || end-x.told < x.chunk && end < x.j1 {
		return
	}
	o, n := &x.t.out, end-x.told
	base := o.c.item(x.item, o.inner)
	c, ld := x.part, x.ldp
	if !o.c.absent() {
		c, ld = floatsAt(o.c.at(base), o.c.Len()-base), o.c.LD
	}
	if o.cols.n == 0 && n == o.c.LD && n == ld {
		at := 0
		if !o.c.absent() {
			at = x.i0 * n
		}
		o.epi.Then.Finish(x.w.id, base+x.i0*n, c[at:at+(x.i1-x.i0)*n])
	} else {
		x.tellRows(base, end, c, ld)
	}
	if x.told = end; x.part != nil && x.t.depth <= x.t.kc { // the next columns are computed where these were
		x.first = end
	}
}

// tellRows hands over stretches of rows.
func (x *block) tellRows(base, end int, c []float32, ld int) {
	o := &x.t.out
	for i := x.i0; i < x.i1; i++ {
		for j := x.told; j < end; {
			at, same := o.cols.at(j, end-j)
			at += i * o.c.LD
			from := at
			if o.c.absent() {
				from = (i-x.i0)*ld + j - x.first
			}
			o.epi.Then.Finish(x.w.id, base+at, c[from:from+same])
			j += same
		}
	}
}

// wholeOf is memory for a result of n elements that a kernel other than a tiled product computes for f: c's, which gets
// some where it has none.
func (m *Machine) wholeOf(c *Buf, f Finisher, n int) []float32 {
	if f == nil || n == 0 {
		return nil
	}
	if c.absent() {
		*c = Floats(m.whole.get(n))
	}
	return floatsAt(c.at(0), n)
}

// finishAll hands c over to f, unless that is nil.
func (m *Machine) finishAll(f Finisher, c []float32) {
	if f == nil {
		return
	}
	m.ends = endTask{f, c}
	m.run(8*len(c), ceilDiv(len(c), endChunk), &m.ends)
	m.ends = endTask{}
}

// endTask hands a whole result over, chunk after chunk.
type endTask struct {
	then Finisher
	c    []float32
}

const endChunk = 1 << 13

func (t *endTask) Run(worker, i int) {
	t.then.Finish(worker, i*endChunk, t.c[i*endChunk:min((i+1)*endChunk, len(t.c))])
}

// bare is c without what follows, for kernels that do not hand over blocks.
func (m *Machine) bare(c *Conv) *Conv {
	m.conv.bare = *c
	m.conv.bare.Then = nil
	return &m.conv.bare
}
