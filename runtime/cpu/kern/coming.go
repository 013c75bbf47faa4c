package kern

import "unsafe"

// coming is memory that will be read soon: rows that tiles prefetch while they multiply, because the processor waits for
// nothing then. A cache line from memory takes some 20 cycles of a kernel that packs, even where many are on their way, and
// hardly any from the second cache. The zero value is no memory.
type coming struct {
	from        uintptr
	rows, units int // rows of some units each: what a tile prefetches at a time
	unit, step  int // bytes of a unit, and from row to row
	row, done   int // prefetched: all rows of the first done units, and so many of the next one
}

// comes describes so many rows of m, from element at on, of width elements each.
func comes(m *Mat, at, rows, width, unit int) coming {
	size := m.Type.Size()
	c := coming{from: uintptr(unsafe.Pointer(m.at(at))), rows: rows, units: ceilDiv(width*size, unit), unit: unit, step: m.LD * size}
	if m.LD == width { // one long row
		c.rows, c.units, c.step = ceilDiv(rows*width*size, unit), 1, unit
	}
	return c
}

// tiles is how many tiles prefetch it that prefetch n units each.
func (c *coming) tiles(n int) int { return c.units * ceilDiv(c.rows, n) }

// take returns the units that a tile prefetches which prefetches n of them, and the distance between them. It returns zero if
// all have been prefetched.
func (c *coming) take(n int) (next uintptr, step int) {
	if c.done == c.units {
		return 0, 0
	}
	next = c.from + uintptr(c.done*c.unit+c.row*c.step)
	if c.row += n; c.row >= c.rows {
		c.row, c.done = 0, c.done+1
	}
	return next, c.step
}

// operand describes rows [l0,l0+n) of A, or columns of B, at depths [k0,k0+kc), if blocks pack them from a matrix in f32 or as
// f32.
func (t *gemmTask) operand(side, item, l0, n, k0, kc int) coming {
	s := &t.mats[side]
	if [2]source{t.a, t.b}[side] != s || t.ahead[side].data != nil || t.vnni || n <= 0 || kc <= 0 {
		return coming{}
	}
	base, unit := s.m.item(item, s.inner), 4*t.p.nr
	if s.contig {
		return comes(&s.m, base+k0*s.m.LD+l0, kc, n, unit)
	}
	return comes(&s.m, base+l0*s.m.LD+k0, n, kc, unit)
}

// blockComes notes what the block after x packs of A: panels [q0,q1) at the depths from k0 on.
func (x *block) blockComes(q0, q1, k0 int) {
	t := x.t
	i0 := t.row(q0)
	x.coming[0] = t.operand(0, x.item, i0, t.row(q1)-i0, k0, min(t.kc, t.depth-k0))
	x.tilesLeft = (x.q1 - x.q0) * ceilDiv(x.j1-x.j0, t.p.nr) * ceilDiv(x.kc, t.p.chain)
}

// columnsCome notes what tiles over the columns from j on pack of B.
func (x *block) columnsCome(j int) {
	t := x.t
	if x.coming[1] = (coming{}); t.once || x.fresh {
		x.coming[1] = t.operand(1, x.item, j, min(t.p.nr, x.j1-j), x.k0, x.kc)
	}
}

// fetches returns what a tile prefetches, n units: columns of B, and towards its end what the next block packs of A, which
// would not stay in the second cache for long. Else it returns c, which the tile stores.
func (x *block) fetches(n int, c *float32) (next uintptr, step int) {
	x.tilesLeft--
	if n > 0 {
		if next, step = x.coming[1].take(n); next == 0 && x.tilesLeft <= 2*x.coming[0].tiles(n) {
			next, step = x.coming[0].take(n)
		}
	}
	if next == 0 {
		return still(c), 0
	}
	return next, step
}

// still is what a tile prefetches that prefetches nothing but the rows of C.
func still(c *float32) uintptr { return uintptr(unsafe.Pointer(c)) }

// numViews is the number of arrays whose rows attention reads or writes.
const numViews = 8

// What an attnHead prefetches at a time, in bytes, and how much there is of a head at most: it stays in the second cache until it
// is read.
const (
	cacheLine = 64
	mostAhead = 1 << 18
)

// headComes notes what head `head` of batch item b reads and writes, if there is one. Heads that share keys have them in the cache.
func (x *attnHead) headComes(b, head int) {
	a := &x.t.a
	if x.p.fetching[1] == nil || b == a.Batch || a.KVHeads < a.Heads {
		return
	}
	list := append(x.mem.coming[:0], a.rowsOfHead(&a.Q, b, head, a.S, a.D), a.rowsOfHead(&a.K, b, head, a.T, a.D), a.rowsOfHead(&a.V, b, head, a.T, a.DV), a.rowsOfHead(&a.Y, b, head, a.S, a.DV))
	if x.t.mode != attnForward {
		list = append(list, a.rowsOfHead(&a.DY, b, head, a.S, a.DV), a.rowsOfHead(&a.GradQ, b, head, a.S, a.D), a.rowsOfHead(&a.GradK, b, head, a.T, a.D), a.rowsOfHead(&a.GradV, b, head, a.T, a.DV))
	}
	lines := 0
	for i := range list {
		lines += list[i].rows * list[i].units
	}
	if lines*cacheLine <= mostAhead {
		x.coming = list
	}
}

// rowsOfHead describes the rows of a head, of so many elements.
func (a *Attention) rowsOfHead(v *View, b, head, rows, width int) coming {
	if v.absent() || rows*width == 0 {
		return coming{}
	}
	m := v.mat(b, head, 0)
	return comes(&m, 0, rows, width, cacheLine)
}

// fetches returns what n depths of a tile prefetch, from next on and so far apart up to last: c if there is nothing else.
func (x *attnHead) fetches(n int, c *float32) (next uintptr, ahead int, last uintptr) {
	for ; x.fetched < len(x.coming); x.fetched++ {
		of := &x.coming[x.fetched]
		end := of.from + uintptr(of.done*of.unit+(of.rows-1)*of.step)
		if next, ahead = of.take(n); next != 0 {
			return next, ahead, end
		}
	}
	return still(c), 0, still(c)
}
