package kern

import (
	"slices"
	"unsafe"
)

// How a block packs its operands.

// packA packs the panels of the block, unless they are packed ahead.
func (x *block) packA(panels int) []float32 {
	t, w := x.t, x.w
	w.subnormalA, w.split = slices.Grow(w.subnormalA[:0], panels)[:panels], slices.Grow(w.split[:0], panels)[:panels]
	clear(w.subnormalA)
	clear(w.split)
	if t.ahead[0].data != nil {
		x.noteSubnormalRows(panels)
		return nil
	}
	deep := t.packedDepth(x.kc)
	a := w.a.get((x.i1-x.i0)*deep + panels*aheadGap)
	if x.packPanels(a, panels) {
		return a
	}
	some := x.kc
	if s := &t.mats[0]; t.a == s && s.contig && s.m.LD*s.m.Type.Size() >= depthsApart {
		some = depthsAtOnce
	}
	for k := 0; k < x.kc; k += some {
		for i := range panels {
			r0, h := x.panel(i)
			w.subnormalA[i] |= t.pack(t.a, w, a[r0*deep+i*aheadGap+t.packedDepth(k)*h:], h, x.item, x.i0+r0, h, x.k0+k, min(some, x.kc-k))
		}
	}
	return a
}

// packPanels packs all panels of a block at once, which reads memory in its order. It returns false if only rowsFuncs pack A.
func (x *block) packPanels(a []float32, panels int) bool {
	t, s := x.t, &x.t.mats[0]
	if t.a != s || !s.contig || s.tf32 || t.vnni || x.kc == 0 || t.p.panels[s.m.Type] == nil {
		return false
	}
	places := slices.Grow(x.w.places[:0], panels)[:panels]
	lanes, last := 0, 0
	for i := range places {
		r0, h := x.panel(i)
		places[i] = panelPlace{r0 * s.m.Type.Size(), 4 * (r0*x.kc + i*aheadGap), 4 * h}
		lanes, last = max(lanes, h), h
	}
	x.w.places = places
	from := s.m.at(s.m.item(x.item, s.inner) + x.k0*s.m.LD + x.i0)
	t.p.panels[s.m.Type](x.kc, panels, lanes, last, (*byte)(unsafe.Pointer(&places[0])), &a[0], from, s.m.LD, rowsAhead)
	return true
}

// rowsAhead is how many rows ahead packPanels prefetches.
const rowsAhead = 4

// depthsAtOnce is the number of depths of all panels that are packed before the next ones where depths are so many
// bytes apart that they share sets of the caches: a panel reads part of a cache line of each depth, and the next panel
// the rest. It is even, as a word is two depths.
const (
	depthsAtOnce = 8
	depthsApart  = 1 << 12
)

// packB packs the columns from j on in a panel of nr, or of vw if that is enough, unless they are read by offsets or
// the first tile over them, a packing tile of h rows, packs them.
func (x *block) packB(j, h int) {
	t, n, at, subnormal := x.t, min(x.t.p.nr, x.j1-j), j-x.b0, uint64(0)
	if n == t.p.nr && len(t.packing) >= h && x.kc > 0 {
		x.packing = t.packing[h-1]
	}
	if x.kc > 0 && x.packing == nil && !t.readsIndirect(j, n) {
		subnormal = t.pack(t.b, x.w, x.b[at*t.packedDepth(x.kc):], t.p.width(n), x.item, j, n, x.k0, x.kc)
	}
	x.w.subnormalB[at/t.p.nr] = subnormal
}
