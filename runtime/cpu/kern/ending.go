package kern

import (
	"math/bits"
	"slices"
	"unsafe"
)

// endingFunc is an indirectFunc of the last part of a sum: it adds the parts before, applies the epilogue as a finishFunc
// does, and stores the result at once.
type endingFunc func(task *byte)

// endingTask is what an endingFunc computes: words that it reads in this order.
type endingTask struct {
	depth          int
	a              *float32
	b0, b1         *byte // as of an indirectFunc
	offs           *int
	next0, next1   uintptr // rows of B to prefetch, one for every four depths: those at nextOffs, unless that is nil
	nextOffs       *int
	from           *float32 // the sums before; nil: none
	fromRow        int      // bytes between rows
	c              *float32
	row            int
	add            *float32
	addRow         int
	shift, limits  *float32
	whole          int      // 1 if all lanes are stored
	lanes, leading [2]int   // the lanes of each vector that are stored, and the same number of lanes from 0 on, which are contiguous in C
	second         int      // bytes in C from the first vector's to the second's
	touches        int      // rows of C to prefetch for every four depths: all of them, if the depth is small
	bias           *float32 // added to each row, instead of an element of shift to each; only if all lanes are stored
}

// packedRows are the offsets of the rows of a packed panel of endingWidth columns.
var packedRows = func() (offs [sumDepth]int) {
	for i := range offs {
		offs[i] = 4 * endingWidth * i
	}
	return offs
}()

// endingWidth is the number of columns of an endingFunc.
const endingWidth = 32

// endingTiles are the tiles that apply the epilogue themselves, nil if those of t do not.
func (t *gemmTask) endingTiles() []endingFunc {
	o, typ, tiles := &t.out, F32, t.p.ending
	if t.vnni {
		typ, tiles = BF16, t.p.vnni.ending
	}
	if !t.endings || t.tiles || t.direct || o.turned || t.depth == 0 || o.c.absent() || o.c.Type != typ || !o.onePass() ||
		!o.epi.Bias.absent() && !o.epi.RowBias.absent() || t.vnni && !o.epi.Residual.absent() {
		return nil
	}
	return tiles
}

// endTiles computes n columns from j on of all panels and applies the epilogue. It returns false if
// the sums continue after this block, or if the columns are few or not contiguous in C.
func (x *block) endTiles(a []float32, panels, j, n int) bool {
	t, p, e := x.t, x.t.p, &x.w.ending
	indirect := t.readsIndirect(j, n)
	if t.ends == nil || x.k0+x.kc < t.depth || !indirect && n <= p.vw || t.vnni && x.subnormal(j) {
		return false
	}
	at, ok := e.place(&t.out.cols, j, n, p.vw)
	if e.bias = x.bias(j, n); !ok || e.bias != nil && e.whole == 0 {
		return false
	}
	first := 0
	if x.packing != nil {
		x.packingTile(a, j, n)
		first = 1
	}
	last := (x.kc - 1) / p.chain * p.chain // where the last part of the sum begins
	e.depth = t.packedDepth(x.kc - last)
	if indirect {
		f, base := t.indirect, t.indirect.base(x.item)
		b0, b1 := f.ends(j, n)
		e.b0, e.b1, e.offs = f.buf.byteAt(base+b0), f.buf.byteAt(base+b1), &f.depth[t.packedDepth(x.k0+last)]
	} else {
		b := x.panelB(j)[t.packedDepth(last)*p.nr:]
		e.b0, e.b1, e.offs = bytes(&b[0]), bytes(&b[p.vw]), &packedRows[0]
	}
	o := &t.out
	e.limits = &limitsOf[o.epi.Act][o.epi.Last][0]
	e.second *= o.c.Type.Size()
	e.row, e.addRow = o.c.Type.Size()*o.c.LD, 4*o.epi.Residual.LD
	fetched, shifts := 0, x.shifts()
	for i := first; i < panels; i++ {
		r0, h := x.panel(i)
		rows, row := x.panelA(a, i, r0, h), x.i0+r0
		e.sumsBefore(x, rows, r0, h, j, n, last)
		e.a, e.shift = &rows[t.packedDepth(last)*h], &minusZeros[0]
		if shifts != nil {
			e.shift = after(shifts, r0)
		}
		e.c, e.add = (*float32)(ptr(o.c.at(o.c.item(x.item, o.inner)+row*o.c.LD+at))), nil
		if r := &o.epi.Residual; !r.absent() {
			from := r.at(r.item(x.item, o.inner) + row*r.LD + at)
			p.touch(h, from, e.addRow, r.Type.Size()*n)
			e.add = (*float32)(ptr(from))
		}
		e.touches = ceilDiv(h, max(1, e.depth/4))
		fetched = e.fetch(x, j+p.nr, fetched)
		if e.nextOffs == nil {
			e.fetchComing(x)
		}
		t.ends[h-1].run(e)
	}
	x.fetch(j+p.nr, fetched, t.packedDepth(x.kc))
	return true
}

// packingTile computes n columns from j on of the first panel, by the tile that packs them.
func (x *block) packingTile(a []float32, j, n int) {
	if x.part == nil {
		x.tilesToEpilogue(a, 1, j, n)
		return
	}
	_, h := x.panel(0)
	x.tile(x.panelA(a, 0, 0, h), 0, h, j, n)
}

// bias is what the epilogue adds to n columns from j on, in f32; nil: nothing.
func (x *block) bias(j, n int) *float32 {
	o := &x.t.out
	return x.inF32(&o.epi.Bias, x.item%o.inner*o.perGroup+j, n)
}

// inF32 returns n elements of b in f32, unless it is absent.
func (x *block) inF32(b *Buf, at, n int) *float32 {
	switch {
	case b.absent():
		return nil
	case b.Type == F32:
		return (*float32)(ptr(b.at(at)))
	}
	wide := x.w.row[0].get(n)
	x.t.p.Load(wide, b.From(at))
	return &wide[0]
}

// shifts are what the epilogue adds to the rows of the block, in f32; nil: nothing.
func (x *block) shifts() *float32 {
	o := &x.t.out
	return x.inF32(&o.epi.RowBias, x.item%o.inner*o.perGroup+x.i0, x.i1-x.i0)
}

// subnormal reports whether an element of the block's rows or of its columns from j on is subnormal.
func (x *block) subnormal(j int) bool {
	return x.w.subnormalB[(j-x.b0)/x.t.p.nr] != 0 || slices.ContainsFunc(x.w.subnormalA, func(rows uint64) bool { return rows != 0 })
}

// sumsBefore computes the parts of the sums before the last one, of h rows from row r0 of the block on.
func (e *endingTask) sumsBefore(x *block, a []float32, r0, h, j, n, last int) {
	e.from, e.fromRow = nil, 4*x.t.p.nr
	if x.part != nil {
		e.from, e.fromRow = &x.part[r0*x.ldp+j-x.first], 4*x.ldp
	} else if last > 0 {
		e.from = &x.w.tile.get(h * x.t.p.nr)[0]
	}
	acc := flag(x.part != nil && x.k0 > 0)
	for k := 0; k < last; k += x.t.p.chain {
		x.multiplyPart(a, h, j, n, k, x.t.p.chain, e.from, e.fromRow/4, acc)
		acc = 1
	}
}

// fetch makes the next tile prefetch rows of the columns from j on, after the rows already
// prefetched. It returns the number of rows prefetched then.
func (e *endingTask) fetch(x *block, j, fetched int) int {
	t, n := x.t, min(x.t.p.nr, x.j1-j)
	e.nextOffs = nil
	if rows := e.depth / 4; t.prefetch && n > 0 && rows > 0 && fetched+rows <= t.packedDepth(x.kc) && t.readsIndirect(j, n) {
		f, base := t.indirect, t.indirect.base(x.item)
		b0, b1 := f.ends(j, n)
		e.next0, e.next1 = uintptr(unsafe.Pointer(f.buf.byteAt(base+b0))), uintptr(unsafe.Pointer(f.buf.byteAt(base+b1)))
		e.nextOffs = &f.depth[t.packedDepth(x.k0)+fetched]
		return fetched + rows
	}
	return fetched
}

// fetchComing makes the next tile prefetch what its block packs next, if there is any.
func (e *endingTask) fetchComing(x *block) {
	next, step := x.fetches(e.depth/4, e.c)
	if step == 0 {
		return
	}
	offs := &x.w.fetched
	if offs[1] != step {
		for i := range offs {
			offs[i] = i * step
		}
	}
	e.next0, e.next1, e.nextOffs = next, next+uintptr(2*x.t.p.nr), &offs[0]
}

// place sets the positions in C of n columns of a row from j on, as vectors of vw, and returns the
// offset of the first. It reports whether the columns are contiguous there.
func (e *endingTask) place(r *colRun, j, n, vw int) (at int, ok bool) {
	e.whole, e.lanes = 0, [2]int{}
	next := -1
	for done := 0; done < n; {
		off, same, step := r.at(j+done, n-done)
		if next < 0 {
			at, next = off, off
		}
		if same > 0 && off != next {
			return 0, false
		}
		lanes := (1<<same - 1) << done
		e.lanes[0], e.lanes[1] = e.lanes[0]|lanes&(1<<vw-1), e.lanes[1]|lanes>>vw
		next, done = next+same, done+step
	}
	if next-at == 2*vw {
		e.whole = 1
	}
	for i, l := range e.lanes {
		e.leading[i] = 1<<bits.OnesCount(uint(l)) - 1
	}
	e.second = bits.OnesCount(uint(e.lanes[0]))
	return at, true
}

func (f endingFunc) run(e *endingTask) { f((*byte)(unsafe.Pointer(e))) }
