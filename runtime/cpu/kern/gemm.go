package kern

import "slices"

// Mat is a matrix, or a batch of matrices: rows are LD elements apart, items of the two batch levels Stride elements
// apart (0: all items share one matrix).
type Mat struct {
	Buf
	LD     int
	Stride [2]int
	T      bool // stored transposed: LD separates columns
	Fixed  Fixed
}

// Act is an activation applied to a product before it is stored.
type Act uint8

// The activations of an epilogue.
const (
	NoAct Act = iota
	ActRelu
	ActGeluErf
	ActGeluTanh
	ActSilu
	ActTanh
	ActSigmoid
)

var actOps = [...]Unary{ActRelu: Relu, ActGeluErf: GeluErf, ActGeluTanh: GeluTanh, ActSilu: Silu, ActTanh: Tanh, ActSigmoid: Sigmoid}

// Epilogue is what is applied to a product before it is stored: last(act(Scale*A*B + Bias + RowBias) + Residual), plus the
// old C if Accumulate is set, in f32, rounded once to the type of C. The zero value stores the product unchanged.
type Epilogue struct {
	Scale      float32 // 0 means 1
	Bias       Buf     // N elements, one a column
	RowBias    Buf     // M elements, one a row
	Act        Act
	Residual   Mat // as C; its T is ignored
	Last       Act // of the sum with Residual
	Accumulate bool
	PostOp     PostOp // runs on blocks of the result; C is contiguous f32, or its Data is nil and nothing is stored
}

func (e *Epilogue) plain() bool {
	return (e.Scale == 0 || e.Scale == 1) && e.Bias.absent() && e.RowBias.absent() && e.Act == NoAct &&
		e.Residual.absent() && !e.Accumulate
}

// Gemm describes C[M,N] = epilogue(A[M,K] * B[K,N]) for every item of the batch. C may not overlap an operand.
type Gemm struct {
	M, N, K int
	Batch   [2]int // outer and inner batch sizes; 0 means 1
	A, B    Mat
	C       Mat  // T is ignored: C is row-major
	TF32    bool // operands are rounded to a 10-bit mantissa before they are multiplied
	Epilogue
}

// sumDepth is the largest number of products that are added up one by one. A longer sum is split after every sumDepth
// products and the parts are added in order, because rounding errors grow with the length of the longest chain of
// additions. The split depends on nothing but the length of the sum.
const sumDepth = 512

// Gemm runs g. Every element is a chain of fused multiply-adds over ascending k, or the sum of
// several chains of sumDepth, then the epilogue.
func (m *Machine) Gemm(g *Gemm) {
	if g.C.Len() == 0 && g.PostOp == nil { // also for an empty batch
		return
	}
	t := &m.gemm
	inner := max(1, g.Batch[1])
	t.mats[0] = matSource{m.Path, g.A, inner, g.A.T, g.TF32}
	t.mats[1] = matSource{m.Path, g.B, inner, !g.B.T, g.TF32}
	t.a, t.b = &t.mats[0], &t.mats[1]
	t.rows, t.cols, t.depth, t.items = g.M, g.N, g.K, max(1, g.Batch[0])*inner
	t.indirect, t.endings, t.reading = nil, true, [2]int{}
	t.out = output{p: m.Path, c: g.C, inner: inner, epi: g.Epilogue}
	if how := t.choose(m, g); how != packed {
		g.A.Fixed.loadUnpacked()
		if how == turnedB && g.B.Type != F32 && t.readRows(m) {
			how = gemvRows
		} else {
			g.B.Fixed.loadUnpacked()
		}
		t.out.epi.PostOp = nil
		whole := m.wholeResult(&t.out.c.Buf, g.PostOp, g.M*g.N*t.items)
		m.smallM(t, how)
		m.postOpAll(g.PostOp, whole)
		return
	}
	t.fixed = [2]fixedOperand{g.A.fixed(g, g.A.T), g.B.fixed(g, !g.B.T)}
	m.multiply(t)
}

// source is one operand of a product. pack writes lanes [l0,l0+n) (rows of A, columns of B) of depths [k0,k0+kc) as
// dst[k*ld+lane]. Elements past the lanes of a row may be overwritten, later rows after earlier ones.
type source interface {
	pack(w *worker, dst []float32, ld, item, l0, n, k0, kc int)
	// packVNNI packs words of two depths; see vnniKernels.
	packVNNI(w *worker, dst []float32, ld, item, l0, n, k0, kc int) int
	typ() Type
}

// matSource packs a matrix in memory. If contig is set, lanes are contiguous, else depths.
type matSource struct {
	p      *Path
	m      Mat
	inner  int
	contig bool
	tf32   bool
}

func (m *Mat) item(i, inner int) int {
	if i == 0 { // the common case
		return 0
	}
	return i/inner*m.Stride[0] + i%inner*m.Stride[1]
}

func (s *matSource) pack(w *worker, dst []float32, ld, item, l0, n, k0, kc int) {
	base := s.m.item(item, s.inner)
	if s.contig {
		s.p.rows[s.m.Type](kc, n, &dst[0], ld, s.m.at(base+k0*s.m.LD+l0), s.m.LD)
	} else {
		s.transpose(w, s.m.Type, dst, ld, base, l0, n, k0, kc)
	}
	if s.tf32 {
		s.p.Unary(RoundTF32, dst[:(kc-1)*ld+n], dst[:(kc-1)*ld+n])
	}
}

func (s *matSource) typ() Type { return s.m.Type }

// transpose packs lanes that are not contiguous; kc counts elements of the type as.
func (s *matSource) transpose(w *worker, as Type, dst []float32, ld, base, l0, n, k0, kc int) {
	w.offs = getInts(&w.offs, s.p.tw)
	for g := 0; g < n; g += s.p.tw {
		h := min(s.p.tw, n-g)
		for r := range h {
			w.offs[r] = r * s.m.LD * s.m.Type.Size()
		}
		s.p.trans[as](kc, h, &dst[g], ld, s.m.at(base+(l0+g)*s.m.LD+k0), &w.offs[0])
	}
}

// gemmTask is a product in progress: a grid of independent blocks of C, each of which packs the operands that it reads.
type gemmTask struct {
	p                        *Path
	m                        *Machine
	rows, cols, depth, items int
	a, b                     source
	mats                     [2]matSource
	out                      output
	mt, nt                   int // block of C of one task, at most
	panels, columns          int // panels of rows, units along the columns
	unit                     int // columns of a unit: those of a tile, or half of them
	part                     Division
	shares                   [2]bool // whether A, and B, are packed once, for all blocks
	kc, nc, mc               int
	once                     bool          // all rows of a task are one block: a panel of B is packed right before it is used
	vnni                     bool          // operands are packed in words of two depths
	tiles                    bool          // and multiplied by tile registers, see amxKernels
	mr                       int           // rows of a panel of A
	direct                   bool          // tiles are computed directly in C
	into                     bool          // and added to its values
	indirect                 *tableSource  // b, if tiles may read it by offsets, without packing
	packing                  []packingFunc // tiles that pack b while they multiply; nil where none can
	prefetch                 bool          // and prefetching the next columns of b is worth its cost
	endings                  bool          // tiles can apply the epilogue
	reading                  [2]int        // what a block takes to read an element of A, and of B, where that is not part of packing
	ends                     []endingFunc  // those tiles, if they do
	fixed                    [2]fixedOperand
	ahead                    [2]ahead // A and B, if they are packed ahead
}

func (m *Machine) multiply(t *gemmTask) {
	if t.rows == 0 || t.cols == 0 || t.items == 0 {
		return
	}
	t.plan(m)
	t.packAhead(m)
	b := t.box(t.shares)
	m.runDivided(&b, t.part, t)
	t.fixed, t.ahead = [2]fixedOperand{}, [2]ahead{}
}

// plan chooses the grid and the sizes of packed blocks. They do not affect the result.
func (t *gemmTask) plan(m *Machine) {
	t.use(m)
	t.split(m.pool.share())
	t.blocks()
}

func (t *gemmTask) use(m *Machine) {
	t.p, t.m = m.Path, m
	t.vnni = m.usesVNNI(t.a.typ(), t.b.typ())
	t.tiles, t.mr = t.vnni && m.amx != nil && t.depth > 0, m.mr
	if t.tiles {
		t.mr = amxRows
	}
	if t.indirect != nil && (t.indirect.vnni != t.vnni || t.tiles) {
		t.indirect = nil
	}
	t.packing = nil
	if s := &t.mats[1]; t.b == s && s.contig && !s.tf32 && !t.vnni {
		t.packing = t.p.packing[s.m.Type]
	}
}

// serial is plan for a product inside a task of another kernel.
func (t *gemmTask) serial(m *Machine) {
	t.use(m)
	t.split(1)
	t.blocks()
}

// multiplyLocal is the product of rows x cols elements inside a task of another kernel: c = a*b.
func (t *gemmTask) multiplyLocal(m *Machine, worker int, a, b Mat, depth int, c []float32, ldc int) {
	t.mats[0], t.mats[1] = matSource{m.Path, a, 1, a.T, false}, matSource{m.Path, b, 1, !b.T, false}
	t.a, t.b = &t.mats[0], &t.mats[1]
	t.depth, t.items = depth, 1
	t.out = output{p: m.Path, c: Mat{Buf: Floats(c), LD: ldc}, inner: 1}
	t.serial(m)
	t.Run(worker, 0)
}

// readsIndirect reports whether tiles read columns [j,j+n) of B by offsets, without packing.
func (t *gemmTask) readsIndirect(j, n int) bool {
	return t.indirect != nil && t.indirect.contiguous(j, n)
}

// indirectDepth is the depth, in packed words, of a block whose B is read by offsets; only A is
// packed. The elements of B that tiles read should stay in the first-level cache.
const indirectDepth = sumDepth

func (t *gemmTask) blocks() {
	t.direct = !t.out.turned && t.out.c.Type == F32 && !t.out.c.absent() && t.out.epi.plain() && t.depth > 0 && t.out.cols.n%t.p.nr == 0 && t.out.cols.gap == 0
	t.ends = t.endingTiles()
	kc := t.p.kc
	switch {
	case t.indirect != nil:
		kc = indirectDepth
	case !t.direct:
		kc *= 2 // a deeper block spares the round trips of partial sums
	case t.a == &t.mats[0] && t.mats[0].contig && !t.vnni:
		kc = min(kc, t.p.chain) // the rows of a deep and narrow block of A share few sets of the cache
	}
	if t.vnni {
		kc *= 2
	}
	if t.depth > kc { // about equal slices, of whole parts of the sum
		unit := t.p.chain
		if t.tiles {
			unit = amxDepth
		}
		kc = roundUp(ceilDiv(t.depth, ceilDiv(t.depth, kc)), unit)
	}
	t.kc = min(kc, max(1, t.depth))
	t.mc = t.highest()
	if t.mt*4 <= t.mc*5 && t.indirect == nil { // a slightly larger block, of all rows, instead of two
		t.mc = max(t.mc, t.mt)
	}
	if t.out.epi.PostOp != nil && t.b == &t.mats[1] {
		t.mc = min(t.mc, t.blockRows())
	}
	t.once = t.mt <= t.mc
	t.nc = min(t.nt, max(t.p.nr, t.m.Caches().packedB()/t.packedDepth(t.kc)/t.p.nr*t.p.nr))
	if t.indirect != nil || t.once && t.depth <= t.kc { // hardly anything of B is packed, or kept
		t.nc = t.nt
	}
}

// highest is the largest number of rows of a packed block of A.
func (t *gemmTask) highest() int {
	most, deep := t.m.Caches().inSecond(t.p.mc), t.packedDepth(t.kc)
	if t.tiles && t.mt*deep > most {
		most /= amxBlocks
	}
	return max(t.mr, most/deep/t.mr*t.mr)
}

// split divides the product among so many workers. Rows are divided in panels, columns in tiles, or in halves of them.
func (t *gemmTask) split(workers int) {
	t.panels = max(1, ceilDiv(t.rows, t.mr))
	t.divide(workers)
	t.mt = ceilDiv(t.panels, t.part.rows) * t.mr
	t.nt = roundUp(ceilDiv(t.columns, t.part.cols)*t.unit, t.p.nr)
}

// row is the first row of panel q. Panels are about equally high, those of tile registers full except for the last. They are
// the same ones whatever the grid is.
func (t *gemmTask) row(q int) int {
	if t.tiles {
		return min(q*t.mr, t.rows)
	}
	return q * t.rows / t.panels
}

func (t *gemmTask) Run(worker, i int) {
	w, d := t.m.worker[worker], &t.part
	item, r, c := i/(d.rows*d.cols), i/d.cols%d.rows, i%d.cols
	if t.cols*t.reading[1] > t.rows*t.reading[0] { // a worker's tasks follow each other: they share columns, not rows
		r, c = i%d.rows, i/d.rows%d.cols
	}
	q0, q1 := bound(r, d.rows, t.panels), bound(r+1, d.rows, t.panels)
	j0, j1 := bound(c, d.cols, t.columns)*t.unit, min(bound(c+1, d.cols, t.columns)*t.unit, t.cols)
	for j := j0; j < j1; j = t.m.next(j, t.nc, j1) {
		t.strip(w, item, q0, q1, j, min(j+t.nc, j1))
	}
}

// strip computes columns [j0,j1) of panels [q0,q1), slice after slice of the depth.
func (t *gemmTask) strip(w *worker, item, q0, q1, j0, j1 int) {
	var part []float32
	i0, i1 := t.row(q0), t.row(q1)
	ldp := roundUp(j1-j0, t.p.nr) + 16 // rows a page apart would share a set of the cache
	if !t.direct && t.depth > t.kc {
		part = w.c.get((i1 - i0) * ldp)
	}
	per := ceilDiv(q1-q0, ceilDiv(q1-q0, t.mc/t.mr))
	kept := roundUp(j1-j0, t.p.nr)
	if t.once {
		kept = t.p.nr
	}
	w.subnormalB = slices.Grow(w.subnormalB[:0], kept/t.p.nr)[:kept/t.p.nr]
	for k0 := 0; k0 < max(1, t.depth); k0 = t.m.next(k0, t.kc, t.depth) {
		x := block{t: t, w: w, item: item, j0: j0, j1: j1, k0: k0, kc: min(t.kc, t.depth-k0), b0: j0, fresh: true}
		if t.ahead[1].data == nil {
			x.b = w.b.get(kept * t.packedDepth(x.kc))
		}
		for x.q0 = q0; x.q0 < q1; x.q0 = t.m.next(x.q0, per, q1) {
			x.q1 = min(x.q0+per, q1)
			x.i0, x.i1, x.wideAt = t.row(x.q0), t.row(x.q1), 0
			if x.part = nil; part != nil {
				x.part, x.ldp = part[(x.i0-i0)*ldp:], ldp
			}
			if x.q1 < q1 {
				x.blockComes(x.q1, min(x.q1+per, q1), k0)
			} else {
				x.blockComes(q0, min(q0+per, q1), k0+x.kc)
			}
			x.startPostOp()
			x.run()
			x.fresh = false
		}
	}
}

// width is the tile width for n columns.
func (p *Path) width(n int) int {
	if n <= p.vw {
		return p.vw
	}
	return p.nr
}

// block is a packed block of A against a packed strip of B.
type block struct {
	t              *gemmTask
	w              *worker
	item           int
	i0, i1, j0, j1 int
	q0, q1         int // panels of rows
	k0, kc         int
	b              []float32 // packed columns from b0 on
	b0             int
	fresh          bool        // they are not packed yet
	packing        packingFunc // packs the columns of the next tile while it multiplies
	part           []float32   // sums that are not stored: partial ones between slices of the depth, or those that only the post-op reads
	ldp            int
	first          int // first column of part
	applied        int // the post-op has run on the columns before this one, chunk columns at a time; chunk is 0 where there is none
	chunk          int

	coming    [2]coming // what the next block packs of A, and the next columns of B
	tilesLeft int       // of this block

	// In the VNNI layout: the index of the panel of A, its first row and its subnormal rows; one more than the column of the panel of B in f32.
	panelIndex, panelRow, wideAt int
	subnormalRows                uint64
}

func (x *block) run() {
	if x.t.tiles {
		x.runTiles()
		return
	}
	t, panels := x.t, x.q1-x.q0
	a := x.packA(panels)
	for j := x.j0; j < x.j1; j = x.next(j) {
		if t.once {
			x.b0 = j
		}
		switch {
		case t.ahead[1].data != nil:
			x.noteSubnormal(j)
		case t.once || x.fresh:
			_, h := x.panel(0)
			x.packB(j, h)
		}
		x.columnsCome(min(j+t.p.nr, x.j1))
		if n := min(t.p.nr, x.j1-j); (t.direct || x.part != nil && t.kept()) && t.indirect == nil && !t.vnni && x.kc > 0 {
			x.straight(a, panels, j, n)
		} else {
			x.tiles(a, panels, j, n)
		}
		x.applyPostOp(min(j+t.p.nr, x.j1))
	}
}

// panel is the first row of panel i of the block, counted from its own first row, and how many rows the panel has.
func (x *block) panel(i int) (r0, h int) {
	r0 = x.t.row(x.q0+i) - x.i0
	return r0, x.t.row(x.q0+i+1) - x.i0 - r0
}

// tiles computes n columns from j on of all panels.
func (x *block) tiles(a []float32, panels, j, n int) {
	t, deep := x.t, x.t.packedDepth(x.kc)
	if x.endTiles(a, panels, j, n) {
		return
	}
	if deep > 0 && t.depth <= t.kc && !t.direct && !(x.part != nil && t.kept()) {
		x.tilesToEpilogue(a, panels, j, n)
		return
	}
	for i := range panels {
		r0, h := x.panel(i)
		x.panelIndex, x.panelRow, x.subnormalRows = i, r0, x.w.subnormalA[i]
		x.fetch(j+t.p.nr, i*deep/panels, (i+1)*deep/panels)
		x.tile(x.panelA(a, i, r0, h), r0, h, j, n)
	}
}

// epilogueElems is the number of elements of a column of tiles that the epilogue processes at once; they stay in the
// first-level cache.
const epilogueElems = 1 << 12

// tilesToEpilogue computes n columns from j on of all panels, whose sums are complete after this block, and applies the
// epilogue to the tiles of several panels at once.
func (x *block) tilesToEpilogue(a []float32, panels, j, n int) {
	t, p, deep := x.t, x.t.p, x.t.packedDepth(x.kc)
	some := max(1, epilogueElems/(p.mr*p.nr))
	for i := 0; i < panels; {
		end := min(panels, i+some)
		from, _ := x.panel(i)
		rows := t.row(x.q0+end) - x.i0 - from
		tile := x.w.tile.get(rows * p.nr)
		for ; i < end; i++ {
			r0, h := x.panel(i)
			x.panelIndex, x.panelRow, x.subnormalRows = i, r0, x.w.subnormalA[i]
			x.fetch(j+p.nr, i*deep/panels, (i+1)*deep/panels)
			t.out.touch(x.item, x.i0+r0, h, j, n)
			x.multiply(x.panelA(a, i, r0, h), h, j, n, &tile[(r0-from)*p.nr], p.nr, 0)
		}
		var part []float32
		if x.part != nil {
			part = x.part[from*x.ldp+j-x.first:]
		}
		t.out.applyEpilogue(x.w, tile, x.item, x.i0+from, rows, j, n, part, x.ldp)
	}
}

// straight computes n columns from j on of all panels directly into C, with little work between the tiles, because the
// tiles of a weight's gradient are short.
func (x *block) straight(a []float32, panels, j, n int) {
	p, first := x.t.p, 0
	to, ld := x.place(0, j, n)
	acc := x.adds()
	if x.packing != nil {
		_, h := x.panel(0)
		x.multiply(x.panelA(a, 0, 0, h), h, j, n, to, ld, acc)
		first = 1
	}
	width := p.width(n)
	tiles, b := p.tile[width/p.nr], x.panelB(j)
	for i := first; i < panels; i++ {
		r0, h := x.panel(i)
		rows := x.panelA(a, i, r0, h)
		for k, sum := 0, acc; k < x.kc; k, sum = k+p.chain, 1 {
			kc, c := min(p.chain, x.kc-k), after(to, r0*ld)
			next, step := x.fetches(kc/4-h, c)
			tiles[h-1](kc, &rows[k*h], &b[k*width], width, c, ld, n, sum, next, step)
		}
	}
}

// adds is 1 if tiles add to the values of C, else 0.
func (x *block) adds() int {
	if x.k0 > 0 || x.t.into {
		return 1
	}
	return 0
}

// fetch prefetches packed words [k0,k1) of the columns from j on, if tiles read them by offsets.
func (x *block) fetch(j, k0, k1 int) {
	p, f := x.t.p, x.t.indirect
	if n := min(p.nr, x.j1-j); x.t.prefetch && n > 0 && k0 < k1 && x.t.readsIndirect(j, n) {
		at := f.base(x.item)
		p.indirectFetch(k1-k0, f.buf.byteAt(at+f.lane[j]), f.buf.byteAt(at+f.lane[j+p.vw]), &f.depth[x.t.packedDepth(x.k0)+k0])
	}
}

// multiply computes h x n elements of a tile, from column j on, into c, one part of the sum after the other.
func (x *block) multiply(a []float32, h, j, n int, c *float32, ldc, acc int) {
	for k := 0; k < x.kc; k += x.t.p.chain {
		x.multiplyPart(a, h, j, n, k, min(x.t.p.chain, x.kc-k), c, ldc, acc)
		acc = 1
	}
	x.packing = nil
}

// multiplyPart is multiply for kc depths of the block, from k on.
func (x *block) multiplyPart(a []float32, h, j, n, k, kc int, c *float32, ldc, acc int) {
	p, f, panel := x.t.p, x.t.indirect, &a[x.t.packedDepth(k)*h]
	if x.packing != nil {
		b := &x.t.mats[1].m
		from := b.at(b.item(x.item, x.t.mats[1].inner) + (x.k0+k)*b.LD + j)
		x.packing(kc, panel, from, b.LD, &x.b[(j-x.b0)*x.kc+k*p.nr], c, ldc, acc)
		return
	}
	if x.subnormalRows == 0 && x.t.readsIndirect(j, n) {
		tiles, at := p.indirect, f.base(x.item)
		if x.t.vnni {
			tiles = p.vnni.indirect
		}
		tiles[h-1](x.t.packedDepth(kc), panel, f.buf.byteAt(at+f.lane[j]), f.buf.byteAt(at+f.lane[j+p.vw]), &f.depth[x.t.packedDepth(x.k0+k)], c, ldc, acc)
		return
	}
	if x.t.vnni {
		x.multiplyVNNI(a, h, j, n, k, kc, c, ldc, acc)
		return
	}
	width := p.width(n)
	next, step := x.fetches(kc/4-h, c)
	p.tile[width/p.nr][h-1](kc, panel, &x.panelB(j)[k*width], width, c, ldc, n, acc, next, step)
}

// place returns the address of the sums of n columns, from j on, of row r0 of the block, and the distance between rows.
func (x *block) place(r0, j, n int) (to *float32, ld int) {
	if !x.t.direct {
		return &x.part[r0*x.ldp+j-x.first], x.ldp
	}
	c := &x.t.out.c
	at, _, _ := x.t.out.cols.at(j, n)
	return (*float32)(ptr(c.at(c.item(x.item, x.t.out.inner) + (x.i0+r0)*c.LD + at))), c.LD
}

// tile computes rows r0.. of the block and columns j.., h x n of them.
func (x *block) tile(a []float32, r0, h, j, n int) {
	t, p, acc := x.t, x.t.p, x.adds()
	var part []float32
	if x.part != nil {
		part = x.part[r0*x.ldp+j-x.first:]
	}
	switch {
	case t.direct:
		to, ld := x.place(r0, j, n)
		x.multiply(a, h, j, n, to, ld, acc)
		return
	case part != nil && x.kc > 0:
		if x.k0+x.kc == t.depth {
			t.out.touch(x.item, x.i0+r0, h, j, n)
		}
		x.multiply(a, h, j, n, &part[0], x.ldp, acc)
		if x.k0+x.kc == t.depth && !t.kept() {
			tile := x.w.tile.get(h * p.nr)
			p.rows[F32](h, n, &tile[0], p.nr, bytes(&part[0]), x.ldp)
			t.out.applyEpilogue(x.w, tile, x.item, x.i0+r0, h, j, n, part, x.ldp)
		}
		return
	}
	tile := x.w.tile.get(h * p.nr) // of no depth
	clear(tile)
	t.out.applyEpilogue(x.w, tile, x.item, x.i0+r0, h, j, n, part, x.ldp)
}
