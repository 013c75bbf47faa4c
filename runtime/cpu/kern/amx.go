package kern

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"
)

// amxKernels are the kernels of processors with tile registers (AMX_TILE, AMX_BF16), which multiply 16 x 32 by 32 x 16
// elements of bf16 at a time and add the products to f32. B is packed in the VNNI layout, with depths padded by zeros to
// whole steps of 32; A is packed in tiles of 16 rows of 32 depths, 1 KiB each. A step adds the products of even and of odd
// depths one by one, then both to the sum. It takes subnormal numbers for zero, as vnniKernels do.
type amxKernels struct {
	tiles [2][2]amxFunc // by the numbers of tiles down and across, less one
	// packRows packs up to 16 rows of 32*(steps-1)+last halves to tiles, and reports whether any
	// element is subnormal.
	packRows func(rows, steps, last int, dst *float32, src *byte, lds int) (subnormal uint64)
	// anySubnormal reports whether a half of n > 0 vectors is subnormal.
	anySubnormal func(n int, src *float32) (subnormal uint64)
	// anyInfinite is the same for infinities and NaN.
	anyInfinite func(n int, src *float32) (found uint64)
	// splitWords splits pairs > 0 of rows of 32 elements to rows of words, each part 2 KiB behind the one before; splitTiles
	// splits up to 16 rows of 32*(steps-1)+last to a tile of each part for a step.
	splitWords func(pairs int, dst, src *float32, lds int)
	splitTiles func(rows, steps, last int, dst, src *float32, lds int)
}

// amxBlocks is the factor by which a packed block of A may be larger if it then contains all rows of a task. Each panel of
// B is then packed right before it is used.
const amxBlocks = 2

// amxFunc computes panels of one or two tiles down and across: C = (C if acc != 0, else 0) + A*B over steps of 32 depths. Rows
// of A are arow bytes apart, its two tiles atile, steps astep, panels twice atile. Rows of words of B are brow bytes apart.
// Panels of C are 16 or 32 rows apart; shape is an amxShape.
type amxFunc func(panels, steps int, a *byte, arow, atile, astep int, b *byte, brow int, c *float32, ldc int, shape *byte, acc int)

const (
	amxDepth = 32 // depths of a step
	amxRows  = 32 // rows of a panel: two tiles
	amxTile  = 16 // rows, and columns of C, of a tile
	amxSize  = 256
	// amxPart is the depth of one call: as many packed depths of B as fit in the first-level cache.
	amxPart = 512
)

// amxShape is the configuration of the tile registers for h x n elements of C, up to 32 x 32: tiles 0 to 3 are of C, 4 and 5
// of A, 6 and 7 of B.
type amxShape [64]byte

func (s *amxShape) set(h, n int) {
	const size, rows = 16, 48 // places of the bytes a row and of the rows
	down, across := [2]int{min(h, amxTile), h - amxTile}, [2]int{min(n, amxTile), n - amxTile}
	clear(s[:])
	s[0] = 1
	put := func(tile, r, words int) {
		if r > 0 && words > 0 {
			binary.LittleEndian.PutUint16(s[size+2*tile:], uint16(4*words))
			s[rows+tile] = byte(r)
		}
	}
	for i := range 2 {
		for j := range 2 {
			put(2*i+j, down[i], across[j])
		}
		put(4+i, down[i], amxTile)
		put(6+i, amxTile, across[i])
	}
}

// product is c = a*b, or c += a*b: h x n elements, n at most 32, over steps of the depth.
func (k *amxKernels) product(w *worker, h, n, steps int, a *byte, arow, atile, astep int, b *byte, brow int, c *float32, ldc, acc int) {
	across := ceilDiv(n, amxTile) - 1
	if whole := h / amxRows; whole > 0 {
		w.shape.set(amxRows, n)
		k.tiles[1][across](whole, steps, a, arow, atile, astep, b, brow, c, ldc, &w.shape[0], acc)
		if h -= whole * amxRows; h > 0 {
			a, c = (*byte)(unsafe.Add(unsafe.Pointer(a), 2*whole*atile)), after(c, whole*amxRows*ldc)
		}
	}
	if h > 0 {
		w.shape.set(h, n)
		k.tiles[ceilDiv(h, amxTile)-1][across](1, steps, a, arow, atile, astep, b, brow, c, ldc, &w.shape[0], acc)
	}
}

// tilePanels are the packed rows of a block: tiles of 16 rows, stride floats apart, of all depths of the block.
type tilePanels struct {
	data   []float32
	stride int
}

// packTiles packs the rows of the block to tiles, unless they are packed ahead, and records which
// panels of 32 rows have subnormal elements.
func (x *block) packTiles() tilePanels {
	t := x.t
	panels := x.q1 - x.q0
	x.w.subnormalA = slices.Grow(x.w.subnormalA[:0], panels)[:panels]
	clear(x.w.subnormalA)
	if f := &t.ahead[0]; f.data != nil {
		for i := range panels {
			if t.aheadFlag(0, x.item, x.q0+i) {
				x.w.subnormalA[i] = 1
			}
		}
		return tilePanels{f.data[f.start(x.item)+t.aheadStart(0, x.q0)+x.k0/amxDepth*amxSize:], ceilDiv(t.depth, amxDepth) * amxSize}
	}
	a := tilePanels{stride: ceilDiv(x.kc, amxDepth) * amxSize}
	a.data = x.w.a.get(ceilDiv(x.i1-x.i0, amxTile) * a.stride)
	for i := x.i0; i < x.i1; i += amxTile {
		at := i - x.i0
		x.w.subnormalA[at/amxRows] |= t.packTile(x.w, a.data[at/amxTile*a.stride:], x.item, i, min(amxTile, x.i1-i), x.k0, x.kc)
	}
	return a
}

// packTile packs kc depths of h rows of A from i on to tiles, and reports which are subnormal.
func (t *gemmTask) packTile(w *worker, dst []float32, item, i, h, k0, kc int) (subnormal uint64) {
	p, steps := t.p, ceilDiv(kc, amxDepth)
	if s, ok := t.a.(*matSource); ok && !s.contig {
		from := s.m.at(s.m.item(item, s.inner) + i*s.m.LD + k0)
		return p.amx.packRows(h, steps, kc-(steps-1)*amxDepth, &dst[0], from, s.m.LD)
	}
	words := w.words.get(steps * amxSize)
	subnormal = t.pack(t.a, w, words, amxTile, item, i, h, k0, kc)
	w.offs = getInts(&w.offs, amxTile)
	for r := range w.offs {
		w.offs[r] = 4 * amxTile * r
	}
	for s := range steps {
		p.trans[F32](amxTile, amxTile, &dst[s*amxSize], amxTile, bytes(&words[s*amxSize]), &w.offs[0])
	}
	return subnormal
}

// runTiles runs the block with tile registers.
func (x *block) runTiles() {
	t, m := x.t, x.i1-x.i0
	a := x.packTiles()
	some := max(1, epilogueElems/(amxRows*t.p.nr)) * amxRows
	for j := x.j0; j < x.j1; j = x.next(j) {
		if t.once {
			x.b0 = j
		}
		if t.ahead[1].data != nil {
			x.noteSubnormal(j)
		} else if t.once || x.fresh {
			x.packB(j, 1)
		}
		n := min(t.p.nr, x.j1-j)
		if t.direct || x.part != nil && t.kept() {
			to, ld := x.place(0, j, n)
			x.multiplyTiles(a, 0, m, j, n, to, ld, x.adds())
		} else {
			for i := 0; i < m; i += some {
				x.someTiles(a, i, min(some, m-i), j, n)
			}
		}
		x.applyPostOp(min(j+t.p.nr, x.j1))
	}
}

// someTiles computes h rows from i on of n columns from j on and applies the epilogue to those that are complete.
func (x *block) someTiles(a tilePanels, i, h, j, n int) {
	t, p := x.t, x.t.p
	last := x.k0+x.kc == t.depth
	if last {
		t.out.touch(x.item, x.i0+i, h, j, n)
	}
	var part []float32
	if x.part != nil {
		part = x.part[i*x.ldp+j-x.first:]
	}
	if t.depth > t.kc { // part holds the sum so far
		x.multiplyTiles(a, i, h, j, n, &part[0], x.ldp, x.adds())
	}
	if !last {
		return
	}
	tile := x.w.tile.get(h * p.nr)
	if t.depth > t.kc {
		p.rows[F32](h, n, &tile[0], p.nr, bytes(&part[0]), x.ldp)
	} else {
		x.multiplyTiles(a, i, h, j, n, &tile[0], p.nr, 0)
	}
	t.out.applyEpilogue(x.w, tile, x.item, x.i0+i, h, j, n, part, x.ldp)
}

// multiplyTiles computes h rows from i on of n columns from j on into c. Rows and columns with subnormal elements are
// multiplied in f32.
func (x *block) multiplyTiles(a tilePanels, i, h, j, n int, c *float32, ldc, acc int) {
	t := x.t
	steps, width := ceilDiv(x.kc, amxDepth), t.p.width(n)
	b := x.panelB(j)
	cols, rows := x.w.subnormalB[(j-x.b0)/t.p.nr], uint64(0)
	for r := i; r < i+h; r += amxRows {
		rows |= x.w.subnormalA[r/amxRows]
	}
	var exact []float32
	if rows|cols != 0 {
		exact = x.exactTile(i, h, j, n, c, ldc, acc)
	}
	from := a.data[i/amxTile*a.stride:]
	for s := 0; s < steps; s += amxPart / amxDepth {
		t.p.amx.product(x.w, h, n, min(amxPart/amxDepth, steps-s), bytes(&from[s*amxSize]), 4*amxTile, 4*a.stride, 4*amxSize,
			bytes(&b[s*amxTile*width]), 4*width, c, ldc, acc)
		acc = 1
	}
	if exact != nil {
		x.putExact(exact, a, i, h, n, cols, c, ldc)
	}
}

// exactTile is the sum that multiplyTiles leaves in c, in f32, in rows of nr.
func (x *block) exactTile(i, h, j, n int, c *float32, ldc, acc int) []float32 {
	t, p := x.t, x.t.p
	deep, width := t.packedDepth(x.kc), p.width(n)
	exact := x.w.exact.get(h * p.nr)
	if acc != 0 {
		p.rows[F32](h, n, &exact[0], p.nr, bytes(c), ldc)
	}
	b := x.wideB(x.panelB(j), j, width)
	for r := 0; r < h; r += p.mr {
		rows := min(p.mr, h-r)
		words := x.w.words.get(deep * rows)
		t.pack(t.a, x.w, words, rows, x.item, x.i0+i+r, rows, x.k0, x.kc)
		a := x.w.wide[0].get(2 * deep * rows)
		p.vnni.toF32(deep, rows, &a[0], rows, &words[0], rows)
		for k, sum := 0, acc; k < 2*deep; k, sum = k+p.chain, 1 {
			p.tile[width/p.nr][rows-1](min(p.chain, 2*deep-k), &a[k*rows], &b[k*width], width, &exact[r*p.nr], p.nr, n, sum, still(&exact[r*p.nr]), 0)
		}
	}
	return exact
}

// putExact replaces the rows and columns that have subnormal operands by those of exact.
func (x *block) putExact(exact []float32, a tilePanels, i, h, n int, cols uint64, c *float32, ldc int) {
	steps := ceilDiv(x.kc, amxDepth)
	for r := range h {
		all := x.w.subnormalA[(i+r)/amxRows] != 0 && subnormalRow(a.data[(i+r)/amxTile*a.stride+(i+r)%amxTile*amxTile:], steps)
		to, from := unsafe.Slice(after(c, r*ldc), n), exact[r*x.t.p.nr:]
		for l := range to {
			if all || cols>>(2*l)&3 != 0 {
				to[l] = from[l]
			}
		}
	}
}

// subnormalRow reports whether a row of tiles has a subnormal element.
func subnormalRow(row []float32, steps int) bool {
	for s := range steps {
		for _, word := range row[s*amxSize:][:amxTile] {
			b := math.Float32bits(word)
			if subnormalHalf(b) || subnormalHalf(b>>16) {
				return true
			}
		}
	}
	return false
}
