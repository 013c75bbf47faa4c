package kern

import "slices"

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
