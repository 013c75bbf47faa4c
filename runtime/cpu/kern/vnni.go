package kern

import (
	"math/bits"
	"unsafe"
)

// vnniKernels are the kernels of processors that multiply bf16 without widening it: two adjacent depths at a time,
// twice as many products per instruction as in f32. The packed layout is known as VNNI: a 32-bit word of a packed
// operand holds the elements of depths 2d (its low half) and 2d+1. Sums are f32; the processor chooses the order in
// which the two products of a word are added. The processor treats subnormal numbers as zero, so that infinity times a
// subnormal number would be NaN. Therefore rows and columns with subnormal elements are multiplied in f32.
type vnniKernels struct {
	tile           [2][]tileFunc  // kc counts words
	indirect       []indirectFunc // the same
	unpacked       []unpackedFunc // the same
	ending         []endingFunc   // the same; they store bf16 and add no residual
	turned         []turnedVNNIFunc
	gemv, gemvWord []gemvVNNIFunc // 1, 2, 4 and 8 rows; 8 rows of w, and 2
	rows           rowsFunc       // packs words; k is even
	pick           pickFunc       // the same
	fromF32        interleaveFunc // padsToVNNI pairs of widened rows; k is even
	toF32          interleaveFunc // the inverse, of k rows of words
	// subnormal has bits 2i and 2i+1 of lane i set if one of its low or high halves is subnormal.
	subnormal func(k, n int, src *float32, lds int) (lanes uint64)
}

type interleaveFunc func(k, n int, dst *float32, ldd int, src *float32, lds int)

// usesVNNI reports whether p multiplies the given types in the VNNI layout.
func (p *Path) usesVNNI(a, b Type) bool { return p.vnni != nil && a == BF16 && b == BF16 }

// words is the number of words in which a row of a packed operand holds k depths.
func (t *gemmTask) packedDepth(k int) int {
	switch {
	case t.tiles:
		return roundUp(k, amxDepth) / 2
	case t.vnni:
		return (k + 1) / 2
	}
	return k
}

// pack packs an operand for the tiles of t and says where it is subnormal, if that matters (see vnniKernels.subnormal); the
// arguments are those of source.pack.
func (t *gemmTask) pack(s source, w *worker, dst []float32, ld, item, l0, n, k0, kc int) (subnormal uint64) {
	if !t.vnni {
		s.pack(w, dst, ld, item, l0, n, k0, kc)
		return 0
	}
	done := s.packVNNI(w, dst, ld, item, l0, n, k0, kc&^1)
	for done < kc {
		h := min(vnniDepth, kc-done)
		wide := w.widened.get(vnniDepth * t.p.nr)
		s.pack(w, wide, t.p.nr, item, l0, n, k0+done, h)
		if h%2 > 0 {
			clear(wide[h*t.p.nr:][:t.p.nr])
		}
		t.p.vnni.fromF32(h+h%2, n, &dst[done/2*ld], ld, &wide[0], t.p.nr)
		done += h
	}
	deep := t.packedDepth(kc)
	clear(dst[(kc+1)/2*ld : deep*ld])
	if f, ok := s.(*tableSource); ok && f.clean {
		return 0
	}
	if t.tiles && ld%t.p.lanes == 0 && t.p.amx.anySubnormal(deep*ld/t.p.lanes, &dst[0]) == 0 {
		return 0
	}
	return t.p.vnni.subnormal(deep, n, &dst[0], ld)
}

// vnniDepth is the number of depths that are widened and then interleaved at a time; they stay in the first-level
// cache.
const vnniDepth = 64

// packVNNI packs an even number of depths, at most kc, and returns their number; pack packs the others.
func (s *matSource) packVNNI(w *worker, dst []float32, ld, item, l0, n, k0, kc int) int {
	if kc == 0 {
		return 0
	}
	base := s.m.item(item, s.inner)
	if s.contig {
		s.p.vnni.rows(kc, n, &dst[0], ld, s.m.at(base+k0*s.m.LD+l0), s.m.LD)
		return kc
	}
	s.transpose(w, F32, dst, ld, base, l0, n, k0, kc/2) // a word moves like an f32
	return kc
}

func (s *tableSource) packVNNI(w *worker, dst []float32, ld, item, l0, n, k0, kc int) int {
	base := s.base(item)
	switch {
	case kc == 0 || s.zip && !s.byLane:
		return 0
	case s.vnni && !s.byLane:
		s.packDepths(dst, ld, base, l0, n, k0/2, kc/2)
		return kc
	case s.vnni:
		s.packLanes(dst, ld, base, l0, n, k0/2, kc/2)
		return kc
	case !s.byLane:
		return s.packRuns(dst, ld, base, l0, n, k0, kc)
	}
	for l := 0; l < n; {
		r := run(s.lane[l0+l:], n-l, s.buf.Type.Size())
		s.p.vnni.pick(kc, r, &dst[l], ld, s.buf.byteAt(base+s.lane[l0+l]), &s.depth[k0])
		l += r
	}
	return kc
}

// packRuns packs runs of depths word by word, up to a run of odd length, and returns the number of
// depths packed.
func (s *tableSource) packRuns(dst []float32, ld, base, l0, n, k0, kc int) int {
	for k := 0; k < kc; {
		r := run(s.depth[k0+k:], kc-k, 2)
		if r%2 > 0 {
			return k
		}
		for g := 0; g < n; g += s.p.tw {
			s.p.trans[F32](r/2, min(s.p.tw, n-g), &dst[k/2*ld+g], ld, s.buf.byteAt(base+s.depth[k0+k]), &s.lane[l0+g])
		}
		k += r
	}
	return kc
}

// multiplyVNNI is multiplyPart for the VNNI layout: rows and columns with subnormal elements are multiplied in f32.
func (x *block) multiplyVNNI(a []float32, h, j, n, k, kc int, c *float32, ldc, acc int) {
	p, deep, width := x.t.p, x.t.packedDepth(kc), x.t.p.width(n)
	b, at := x.panelB(j), x.t.packedDepth(k)
	if k == 0 && x.t.readsIndirect(j, n) { // rows are subnormal and B is not packed yet
		x.t.pack(x.t.b, x.w, b, width, x.item, j, n, x.k0, x.kc)
	}
	rows, cols := x.subnormalRows, x.w.subnormalB[(j-x.b0)/p.nr]
	low, wide := p.vnni.tile[width/p.nr][h-1], p.tile[width/p.nr][h-1]
	wideSum := func(c *float32, ldc int) {
		wide(2*deep, &x.wideA(a, h)[k*h], &x.wideB(b, j, width)[k*width], width, c, ldc, n, acc, still(c), 0)
	}
	switch {
	case rows|cols == 0:
		low(deep, &a[at*h], &b[at*width], width, c, ldc, n, acc, still(c), 0)
	case subnormalLanes(rows) == h || subnormalLanes(cols) == n:
		wideSum(c, ldc)
	default:
		exact := x.w.exact.get(h * p.nr)
		if acc != 0 {
			p.rows[F32](h, n, &exact[0], p.nr, bytes(c), ldc)
		}
		low(deep, &a[at*h], &b[at*width], width, c, ldc, n, acc, still(c), 0)
		wideSum(&exact[0], p.nr)
		for r := range h {
			to := unsafe.Slice(after(c, r*ldc), n)
			for i := range to {
				if rows>>(2*r)&3|cols>>(2*i)&3 != 0 {
					to[i] = exact[r*p.nr+i]
				}
			}
		}
	}
}

// noteSubnormal finds the subnormal columns of the panel from j on, which is packed ahead.
func (x *block) noteSubnormal(j int) {
	t, n := x.t, min(x.t.p.nr, x.j1-j)
	found := &x.w.subnormalB[(j-x.b0)/t.p.nr]
	if *found = 0; t.vnni && t.aheadFlag(1, x.item, j/t.p.nr) {
		*found = t.p.vnni.subnormal(t.packedDepth(x.kc), n, &x.panelB(j)[0], t.p.width(n))
	}
}

// noteSubnormalRows finds the subnormal rows of the block's panels, which are packed ahead.
func (x *block) noteSubnormalRows(panels int) {
	for i := 0; x.t.vnni && i < panels; i++ {
		if x.t.aheadFlag(0, x.item, x.q0+i) {
			r0, h := x.panel(i)
			x.w.subnormalA[i] = x.t.p.vnni.subnormal(x.t.packedDepth(x.kc), h, &x.panelA(nil, i, r0, h)[0], h)
		}
	}
}

// subnormalLanes counts the lanes that are set in a mask of vnniKernels.subnormal.
func subnormalLanes(subnormal uint64) int {
	return bits.OnesCount64((subnormal | subnormal>>1) & 0x5555555555555555)
}

// wideA is the panel a of h rows in f32. Panels are kept for the next columns, with a vector
// between them.
func (x *block) wideA(a []float32, h int) []float32 {
	deep, w := x.t.packedDepth(x.kc), x.w
	all := w.wide[0].get((x.i1-x.i0)*2*deep + 16*len(w.subnormalA))
	panel := all[x.panelRow*2*deep+16*x.panelIndex:]
	if !w.split[x.panelIndex] {
		w.split[x.panelIndex] = true
		x.t.p.vnni.toF32(deep, h, &panel[0], h, &a[0], h)
	}
	return panel
}

// wideB is the panel b of the columns from j on in f32; it is kept for the next rows.
func (x *block) wideB(b []float32, j, width int) []float32 {
	deep := x.t.packedDepth(x.kc)
	wide := x.w.wide[1].get(2 * deep * width)
	if x.wideAt != j+1 {
		x.wideAt = j + 1
		x.t.p.vnni.toF32(deep, width, &wide[0], width, &b[0], width)
	}
	return wide
}
