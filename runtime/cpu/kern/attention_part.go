package kern

import (
	"math"
	"unsafe"
)

// The parts of attention: the layouts in which products read its operands, the products, and the
// masking of keys.

// mat is the matrix of v for this batch item and head, starting at row r.
func (v *View) mat(b, head, r int) Mat {
	return Mat{Buf: v.From(b*v.Stride[0] + head*v.Stride[1] + r*v.Stride[2]), LD: v.Stride[2]}
}

// from is m without its first r rows.
func (m Mat) from(r int) Mat {
	m.Buf = m.From(r * m.LD)
	return m
}

// turned is m transposed.
func (m Mat) turned() Mat {
	m.T = !m.T
	return m
}

// in32Bits views a matrix of 16-bit elements, with an even number in each row, as a matrix of 32-bit words.
func (m Mat) in32Bits() Mat { return Mat{Buf: Buf{F32, m.Data}, LD: m.LD / 2} }

// inWords reports whether rows of a and of b are multiplied in the VNNI layout, if they have no subnormal element.
func (x *attnHead) inWords(a, b *View, width int) bool {
	return x.p.multipliesWords(a.Type, b.Type, width) && a.Stride[2]%2+b.Stride[2]%2 == 0
}

// usesVNNI reports whether all of rows [i,i+n) of a and rows [j,j+m) of b, of another head, are multiplied in the VNNI layout.
// They are not if one of them has a subnormal element (see vnniKernels).
func (x *attnHead) usesVNNI(a *View, i, n int, b *View, head, j, m, width int) bool {
	return x.inWords(a, b, width) && x.clean(a.mat(x.b, x.head, i).in32Bits(), n, width/2, false) && x.clean(b.mat(x.b, head, j).in32Bits(), m, width/2, false)
}

// multipliesWords reports whether attention multiplies rows of so many elements of the given types in the VNNI layout.
func (p *Path) multipliesWords(a, b Type, width int) bool {
	return p.usesVNNI(a, b) && width%2 == 0 && (p.amx == nil || width%amxDepth == 0)
}

// clean reports whether n rows of words have no subnormal half and, if they must be finite, no
// infinity or NaN. It tests whole vectors.
func (x *attnHead) clean(m Mat, n, width int, finite bool) bool {
	p := x.p
	part := x.mem.mask.get(n * p.nr)
	for c := 0; c < width && n > 0; c += p.nr {
		lanes := min(p.nr, width-c)
		ld := roundUp(lanes, p.lanes)
		p.rows[F32](n, lanes, &part[0], ld, m.at(c), m.LD)
		if p.vnni.subnormal(n, lanes, &part[0], ld) != 0 || finite && p.amx.anyInfinite(n*ld/p.lanes, &part[0]) != 0 {
			return false
		}
	}
	return true
}

// inPlace reports whether products read n rows of m where they are: few rows of whole panels of f32, not a multiple of 4 kB apart, where
// they would displace each other in the caches. Tiles wait for rows that have not been prefetched longer than copying does.
func (x *attnHead) inPlace(m Mat, n, width int) bool {
	return m.Type == F32 && x.p.fetching[1] != nil && n <= attnKeys && width%x.p.nr == 0 && m.LD%1024 > 0
}

// contiguousRows returns n rows of keys or values from k, in place or copied: in f32, or in bf16 for products in the VNNI layout.
func (x *attnHead) contiguousRows(v *View, mem *floats, head, k, n, width int, vnni bool) Mat {
	m := v.mat(x.b, head, k)
	if !vnni && x.inPlace(m, n, width) {
		return m
	}
	if !vnni {
		return x.copyRows(m, mem, n, width)
	}
	m = x.copyRows(m.in32Bits(), mem, n, width/2)
	return Mat{Buf: Buf{BF16, m.Data}, LD: 2 * m.LD}
}

func (x *attnHead) copyRows(m Mat, mem *floats, n, width int) Mat {
	p := x.p
	ld := roundUp(width, p.lanes)
	dst := mem.get(n * ld)
	for c := 0; c < width && n > 0; c += p.nr {
		p.rows[m.Type](n, min(p.nr, width-c), &dst[c], ld, m.at(c), m.LD)
	}
	return Mat{Buf: Floats(dst), LD: ld}
}

// columns writes h rows of queries, from q on, as tiles of p.queries columns, p.queries*width elements apart: element i
// of query j is at i*p.queries + j. If vnni is set, elements are words.
func (x *attnHead) columns(v *View, mem *floats, q, h, width int, vnni bool) []float32 {
	wide, depth := x.p.queries, width
	dst := mem.get(roundUp(h, wide) * width)
	m := v.mat(x.b, x.head, q)
	if vnni {
		m, depth = m.in32Bits(), width/2
	}
	for at := 0; at < h; at += wide {
		x.transpose(depth, min(wide, h-at), dst[at*width:], wide, m.from(at))
	}
	return dst
}

// transpose writes depth elements of each of h rows of m as columns, ld apart. It may write up to one vector past the
// end.
func (x *attnHead) transpose(depth, h int, dst []float32, ld int, m Mat) {
	p := x.p
	x.w.offs = getInts(&x.w.offs, p.tw)
	for g := 0; g < h && depth > 0; g += p.tw {
		n := min(p.tw, h-g)
		for r := range n {
			x.w.offs[r] = r * m.LD * m.Type.Size()
		}
		p.trans[m.Type](depth, n, &dst[g], ld, m.at(g*m.LD), &x.w.offs[0])
	}
}

// rowPanels are rows in panels of nr columns: column c of row r is at r*row + c/nr*panel + c%nr.
type rowPanels struct {
	x          []float32
	row, panel int
}

// from is where the panel of column c, a multiple of nr, begins in row r.
func (p *rowPanels) from(r, c, nr int) []float32 { return p.x[r*p.row+c/nr*p.panel:] }

// apart is memory for h rows, one panel after the other.
func (p *Path) apart(mem *floats, h, width int) rowPanels {
	return rowPanels{mem.get(h * roundUp(width, p.nr)), p.nr, h * p.nr}
}

// inColumns returns h rows from q on in f32, in place or copied.
func (x *attnHead) inColumns(v *View, mem *floats, q, h, width int) rowPanels {
	p, m := x.p, v.mat(x.b, x.head, q)
	if x.inPlace(m, h, width) {
		return rowPanels{m.f32(), m.LD, p.nr}
	}
	rows := p.apart(mem, h, width)
	for c := 0; c < width; c += p.nr {
		p.rows[m.Type](h, min(p.nr, width-c), &rows.x[c*h], p.nr, m.at(c), m.LD)
	}
	return rows
}

// putColumns stores h rows from r on whose panels are one after the other.
func (x *attnHead) putColumns(v *View, head, r, h, width int, src []float32) {
	p, m := x.p, v.mat(x.b, head, r)
	for c := 0; c < width && h > 0; c += p.nr {
		p.put[m.Type](h, min(p.nr, width-c), m.at(c), m.LD, &src[c*h])
	}
}

// putAcross stores the columns of a tile as h rows from q on.
func (x *attnHead) putAcross(v *View, q, h, width int, src []float32) {
	p, m, wide := x.p, v.mat(x.b, x.head, q), x.p.queries
	if m.Type == F32 && width%p.tw == 0 {
		for c := 0; c < width; c += p.tw {
			x.transpose(h, p.tw, m.f32()[c:], m.LD, Mat{Buf: Floats(src[c*wide:]), LD: wide})
		}
		return
	}
	tile := x.w.tile.get(h * p.nr)
	for c := 0; c < width; c += p.nr {
		n := min(p.nr, width-c)
		x.transpose(h, n, tile, p.nr, Mat{Buf: Floats(src[c*wide:]), LD: wide})
		p.put[m.Type](h, n, m.at(c), m.LD, &tile[0])
	}
}

// byRows reports whether sums of rows of v, of so many elements, are computed as rows, by tiles that read probabilities as they are.
// Else they are computed transposed.
func (x *attnHead) byRows(v *View, width int) bool {
	ofTiles := x.p.amx != nil && v.Type == BF16 // see usesTiles
	return x.p.unpacked != nil && !ofTiles && width > 0 && width%x.p.nr == 0
}

// rowsFrom returns where rows of v from q on are computed, and their distance: in v if that is f32, else in mem.
func (x *attnHead) rowsFrom(v *View, q int, mem []float32, width int) ([]float32, int) {
	if m := v.mat(x.b, x.head, q); m.Type == F32 {
		return m.f32(), m.LD
	}
	return mem, width
}

// putRows stores h rows from q on that rowsFrom has put into mem.
func (x *attnHead) putRows(v *View, q, h, width int, mem []float32) {
	p, m := x.p, v.mat(x.b, x.head, q)
	if m.Type == F32 {
		return
	}
	for r := range h {
		p.narrow[m.Type](width, m.at(r*m.LD), &mem[r*width])
	}
}

// belowStairs computes rows of c, one for each of h queries from q on: the sum of rows of b, keys from k on, each times its element in
// the query's column of s. Keys that a query does not see are left out, for some queries at a time.
func (x *attnHead) belowStairs(q, h, k int, s []float32, ld int, b Mat, width int, c []float32, ldc, acc int) {
	next := func(r int) int { return min(r+x.p.stairRows, h) }
	for r := 0; r < h; {
		end := next(r)
		n := x.keys(q+end-1, k)
		for end < h && x.keys(q+next(end)-1, k) == n {
			end = next(end)
		}
		x.product(end-r, width, n, Mat{Buf: Floats(s[r:]), LD: ld, T: true}, b.f32(), b.LD, c[r*ldc:], ldc, acc)
		r = end
	}
}

// product computes c = a*b, or c += a*b if acc is not zero, for rows x cols elements, where cols is a multiple of a
// tile's columns. If a is bf16, the rows of b are words.
func (x *attnHead) product(rows, cols, depth int, a Mat, b []float32, ldb int, c []float32, ldc, acc int) {
	p := x.p
	if rows == 0 || depth == 0 {
		for r := 0; r < rows && acc == 0; r++ {
			clear(c[r*ldc:][:cols])
		}
		return
	}
	if a.Type == BF16 && p.amx != nil {
		for j := 0; j < cols; j += p.nr {
			p.amx.product(x.w, rows, p.nr, depth/amxDepth, a.at(0), 2*a.LD, 2*amxTile*a.LD, 2*amxDepth, bytes(&b[j]), 4*ldb, &c[j], ldc, acc)
		}
		return
	}
	tiles, row, step := p.unpacked, 4*a.LD, 4
	switch {
	case a.Type == BF16:
		tiles, depth, row = p.vnni.unpacked, depth/2, row/2
	case a.T:
		row, step = step, row
	}
	if p.fetching[1] != nil && a.Type != BF16 && rows%p.stairRows == 0 {
		for j := 0; j < cols; j += p.nr {
			x.panels(p.fetching[1], rows/p.stairRows, depth, a.byteAt(0), row, step, &b[j], ldb, &c[j], ldc, acc)
		}
		return
	}
	panels := ceilDiv(rows, p.mr)
	if tiles == nil {
		for i := range panels {
			r0, r1 := i*rows/panels, (i+1)*rows/panels
			x.packedPanel(r0, r1-r0, cols, depth, a, b, ldb, c[r0*ldc:], ldc, acc)
		}
		return
	}
	h, taller := rows/panels, rows%panels // the first taller panels have one row more
	at := taller * (h + 1)
	for j := 0; j < cols; j += p.nr {
		if taller > 0 {
			tiles[h](taller, depth, a.byteAt(0), row, step, &b[j], ldb, &c[j], ldc, acc)
		}
		tiles[h-1](panels-taller, depth, a.byteAt(at*row), row, step, &b[j], ldb, &c[at*ldc+j], ldc, acc)
	}
}

// panels computes panels by a tile, which prefetches what the next head needs.
func (x *attnHead) panels(tile fetchingFunc, panels, depth int, a *byte, row, step int, b *float32, ldb int, c *float32, ldc, acc int) {
	next, ahead, last := x.fetches(panels*depth, c)
	tile(panels, depth, a, row, step, b, ldb, c, ldc, acc, next, ahead, last)
}

// keysByQueries computes the product of n keys, from k on, with a tile of queries from q on, transposed. Where the first half of the
// queries sees none of the last keys, that part may be left as it is.
func (x *attnHead) keysByQueries(q, k, n, width int, keys Mat, queries, s []float32, ld int) {
	p, wide, both := x.p, x.p.queries, n
	half := p.fetching[0] != nil && keys.Type == F32 && width > 0
	if seen := x.keys(q+p.vw-1, k); half && seen < n && (n-seen)%p.stairRows == 0 {
		both = seen
		x.panels(p.fetching[0], (n-seen)/p.stairRows, width, keys.byteAt(seen*4*keys.LD), 4*keys.LD, 4, &queries[p.vw], wide, &s[seen*ld+p.vw], ld, 0)
	}
	x.product(both, wide, width, keys, queries, wide, s, ld, 0)
}

// packedPanel is product for h rows from r on, for tiles that read a packed A.
func (x *attnHead) packedPanel(r, h, cols, depth int, a Mat, b []float32, ldb int, c []float32, ldc, acc int) {
	p := x.p
	panel := x.w.a.get(h * depth)
	src := &x.w.local.mats[0]
	*src = matSource{p, a, 1, a.T, false}
	src.pack(x.w, panel, h, 0, r, h, 0, depth)
	for j := 0; j < cols; j += p.nr {
		p.tile[1][h-1](depth, &panel[0], &b[j], ldb, &c[j], ldc, p.nr, acc, still(&c[j]), 0)
	}
}

// scaled reports whether scores are multiplied by scale and masked before the softmax.
func (x *attnHead) scaled() bool { return !x.t.a.Mask.absent() || x.t.a.Scale <= 0 }

// scores computes the scores of a tile of queries, from q on, and n keys, from k on, as rows of s, ld apart. It returns
// the factor that they must still be multiplied by.
func (x *attnHead) scores(s []float32, ld, q, k, n int, keys Mat, queries []float32) (scale float32) {
	a, p, wide := &x.t.a, x.p, x.p.queries
	if x.keysByQueries(q, k, n, a.D, keys, queries, s, ld); x.subnormal {
		x.replaceSubnormal(s, ld, q, k, n)
	}
	if !x.scaled() {
		return a.Scale
	}
	var mask []float32
	if !a.Mask.absent() {
		mask = x.mem.mask.get(n * wide)
		m := a.Mask.mat(x.b, x.head, q)
		m.Buf = m.From(k)
		x.transpose(n, min(wide, a.S-q), mask, wide, m)
	}
	for r := range n {
		row := &s[r*ld]
		if mask == nil {
			p.axpb(wide, row, row, a.Scale, 0)
		} else {
			p.axpy(wide, row, row, &mask[r*wide], a.Scale)
		}
	}
	return 1
}

// replaceSubnormal replaces products of words by those in f32 where the query or the key has a subnormal element. What other rows have
// does not count, so that no result depends on its block.
func (x *attnHead) replaceSubnormal(s []float32, ld, q, k, n int) {
	a, mem, wide := &x.t.a, x.mem, x.p.queries
	h := min(wide, a.S-q)
	keys, queries := x.contiguousRows(&a.K, &mem.exact[0], x.kvHead(), k, n, a.D, false), x.columns(&a.Q, &mem.exact[1], q, h, a.D, false)
	exact := mem.exact[2].get(n * wide)
	x.keysByQueries(q, k, n, a.D, keys, queries, exact, wide)
	subnormal := func(m Mat) bool { return x.p.anySubnormal(floatsAt(m.at(0), a.D/2)) }
	var all [64]int
	columns := all[:0]
	for i := range h {
		if subnormal(a.Q.mat(x.b, x.head, q+i)) {
			columns = append(columns, i)
		}
	}
	for r := range n {
		to, from := s[r*ld:][:wide], exact[r*wide:][:wide]
		if subnormal(a.K.mat(x.b, x.kvHead(), k+r)) {
			copy(to, from)
			continue
		}
		for _, i := range columns {
			to[i] = from[i]
		}
	}
}

// stairs returns how many of n keys, from k on, all queries of the tile from q on see, and the mask for the first key
// after them (see softFunc).
func (x *attnHead) stairs(q, k, n int) (full int, stair *float32) {
	all, wide := x.t.stairs, x.p.queries
	if !x.t.a.Causal {
		return n, &all[0]
	}
	seen := q + x.t.a.Offset + 1 - k
	full = max(0, min(n, seen))
	return full, &all[wide-max(0, min(wide, full+1-seen))]
}

// stateRows is the number of rows of the state of a softFunc.
const stateRows = 5

// softRows is a softFunc made of other kernels of the path.
func (p *Path) softRows(n, full int, s *float32, ld int, state, stair *float32, scale float32) {
	w, factor := p.queries, scale*float32(math.Log2E)
	all := unsafe.Slice(state, stateRows*w)
	top, sum, old, less, part := all[:w], all[w:2*w], all[2*w:3*w], all[3*w:4*w], all[4*w:]
	copy(old, top)
	for r := range n {
		row := unsafe.Slice(after(s, r*ld), w)
		p.hide(row, r-full, stair, negInf)
		p.binary[Max](w, &top[0], &top[0], &row[0])
	}
	for i := range top {
		less[i] = softShift(top[i], factor)
		old[i] = float32(old[i]*factor) + less[i]
	}
	p.exp2Axpb(w, &old[0], &old[0], 1, 0)
	clear(part)
	for r := range n {
		row := after(s, r*ld)
		p.axpy(w, row, row, &less[0], factor)
		p.exp2Axpb(w, row, row, 1, 0)
		p.binary[Add](w, &part[0], &part[0], row)
	}
	p.ternary[FMA](w, &sum[0], &sum[0], &old[0], &part[0])
}

// softShift is what is added to scores times factor, the largest of which is top: 0 where that is -Inf.
func softShift(top, factor float32) float32 {
	if top == negInf {
		return 0
	}
	return -(top * factor)
}

// softRow is a softFunc for one query, whose scores are a row, up to the sum of their exponentials, which addSoft adds to the state.
func (p *Path) softRow(s, state []float32, scale float32) {
	top, old, factor := state[0], &state[2], scale*float32(math.Log2E)
	state[0] = max(top, p.max(len(s), &s[0]))
	shift := softShift(state[0], factor)
	switch top {
	case negInf:
		*old = 0
	case state[0]:
		*old = 1
	default:
		*old = float32(top*factor) + shift
		p.exp2Axpb(1, old, old, 1, 0)
	}
	p.exp2Axpb(len(s), &s[0], &s[0], factor, shift)
}

// addSoft adds the sum of exponentials, added one by one, to that of a softRow's state.
func (p *Path) addSoft(state []float32, sum float32) {
	if state[2] == 1 {
		state[1] += sum
		return
	}
	state[3] = sum
	p.axpy(1, &state[1], &state[1], &state[3], state[2])
}

// softGradRows is a softGradFunc made of other kernels of the path.
func (p *Path) softGradRows(n, full int, s, ds *float32, ld int, state, stair *float32, scale, gain float32) {
	w := p.queries
	for r := range n {
		row, g := unsafe.Slice(after(s, r*ld), w), unsafe.Slice(after(ds, r*ld), w)
		p.axpy(w, &row[0], &row[0], state, scale)
		p.hide(row, r-full, stair, negInf)
		p.expAxpb(w, &row[0], &row[0], 1, 0)
		p.binary[Add](w, &g[0], &g[0], after(state, w))
		p.softGrad(w, &g[0], &g[0], &row[0], gain, 0)
		p.hide(g, r-full, stair, 0)
	}
}

// dotRows is a rowDotsFunc made of other kernels of the path.
func (p *Path) dotRows(rows, n int, a *float32, lda int, b *float32, ldb int, dots *float32) {
	for r := range rows {
		*after(dots, r) = p.dot(n, after(a, r*lda), after(b, r*ldb))
	}
}

// scaleRows multiplies n rows of p.queries elements by a row.
func (p *Path) scaleRows(n int, s *float32, ld int, lanes *float32) {
	for r := range n {
		p.binary[Mul](p.queries, after(s, r*ld), after(s, r*ld), lanes)
	}
}

// hide sets to x the elements of a row that stair hides, down steps below the top of stair; above
// the top it hides nothing.
func (p *Path) hide(row []float32, down int, stair *float32, x float32) {
	if down < 0 {
		return
	}
	for i, seen := range unsafe.Slice(after(stair, -down), len(row)) {
		if seen == 0 {
			row[i] = x
		}
	}
}
