package kern

// PostOp is elementwise work on a result that runs while a block of the result is still in a cache, on the worker that has
// computed the block.
type PostOp interface {
	// Apply is called once for every element of the result. c is a contiguous part of it, which begins at element at. If C
	// is not stored, c is scratch memory of the worker, which the next block overwrites.
	Apply(worker, at int, c []float32)
}

// Post-ops run on blocks that are still in the second-level cache. A block of a matrix has at most postOpElems elements, in
// whole rows of its strip, but at least postOpPanels panels, because the other operands of the post-op stream. A block of a
// convolution, whose operand is costly to read again, has about postOpConvElems elements: pixels of all channels. Up to
// postOpElems, all that a task computes is one block.
const (
	postOpElems     = 1 << 17
	postOpConvElems = 1 << 15
	postOpPanels    = 2
)

// blockRows is the largest number of rows of a block of a matrix that has a post-op.
func (t *gemmTask) blockRows() int {
	most := t.m.Caches().inSecond(postOpElems)
	if t.mt*t.nt <= most {
		return t.mt
	}
	return max(postOpPanels*t.mr, most/t.nt/t.mr*t.mr)
}

// kept reports whether sums in a block's part remain there as its result.
func (t *gemmTask) kept() bool { return t.out.c.absent() && t.out.epi.plain() }

// startPostOp prepares a block for its post-op, which runs after the last slice of the depth.
func (x *block) startPostOp() {
	t := x.t
	x.first, x.chunk = x.j0, 0
	if t.out.epi.PostOp == nil || x.k0+x.kc < t.depth {
		return
	}
	x.applied, x.chunk = x.j0, x.j1-x.j0
	if rows, caches := x.i1-x.i0, t.m.Caches(); rows*x.chunk > caches.inSecond(postOpElems) {
		x.chunk = roundUp(max(1, caches.inSecond(postOpConvElems)/rows), t.p.nr)
	}
	if x.part == nil && t.out.c.absent() {
		x.ldp = roundUp(x.chunk, t.p.nr)
		x.part = x.w.c.get((x.i1 - x.i0) * x.ldp)
	}
}

// applyPostOp runs the post-op on the columns before end on which it has not run, if they are enough.
func (x *block) applyPostOp(end int) {
	if x.chunk == 0 || end-x.applied < x.chunk && end < x.j1 {
		return
	}
	o, n := &x.t.out, end-x.applied
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
		o.epi.PostOp.Apply(x.w.id, base+x.i0*n, c[at:at+(x.i1-x.i0)*n])
	} else {
		x.applyPostOpRows(base, end, c, ld)
	}
	if x.applied = end; x.part != nil && x.t.depth <= x.t.kc { // the next columns are computed in the same memory
		x.first = end
	}
}

// applyPostOpRows runs the post-op on parts of rows.
func (x *block) applyPostOpRows(base, end int, c []float32, ld int) {
	o := &x.t.out
	for i := x.i0; i < x.i1; i++ {
		for j := x.applied; j < end; {
			at, same, step := o.cols.at(j, end-j)
			at += i * o.c.LD
			from := at
			if o.c.absent() {
				from = (i-x.i0)*ld + j - x.first
			}
			o.epi.PostOp.Apply(x.w.id, base+at, c[from:from+same])
			j += step
		}
	}
}

// wholeResult is memory for a whole result of n elements, for kernels that do not compute in blocks: c's own, or new
// memory if c has none. It is nil if f, the post-op, is nil.
func (m *Machine) wholeResult(c *Buf, f PostOp, n int) []float32 {
	if f == nil || n == 0 {
		return nil
	}
	if c.absent() {
		*c = Floats(m.whole.get(n))
	}
	return floatsAt(c.at(0), n)
}

// postOpAll runs f, unless it is nil, on all of c.
func (m *Machine) postOpAll(f PostOp, c []float32) {
	if f == nil {
		return
	}
	m.postOpRun = postOpTask{f, c, m.Divide(8*len(c), ceilDiv(len(c), postOpUnit), postOpChunk/postOpUnit)}
	m.RunParts(&m.postOpRun.parts, &m.postOpRun)
	m.postOpRun = postOpTask{}
}

// postOpTask runs a post-op on a whole result, in chunks.
type postOpTask struct {
	postOp PostOp
	c      []float32
	parts  Parts
}

// postOpChunk is how many elements a post-op runs on at most, where there is a choice, and postOpUnit how many at least.
const (
	postOpChunk = 1 << 13
	postOpUnit  = 1 << 10
)

func (t *postOpTask) Run(worker, i int) {
	lo, hi := t.parts.Of(i)
	t.postOp.Apply(worker, lo*postOpUnit, t.c[lo*postOpUnit:min(hi*postOpUnit, len(t.c))])
}

// withoutPostOp is c without its post-op, for kernels that do not run post-ops on blocks.
func (m *Machine) withoutPostOp(c *Conv) *Conv {
	m.conv.withoutPostOp = *c
	m.conv.withoutPostOp.PostOp = nil
	return &m.conv.withoutPostOp
}
