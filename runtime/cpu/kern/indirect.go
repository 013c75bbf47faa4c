package kern

// readsIndirect reports whether tiles read columns [j,j+n) of B by offsets, without packing.
func (t *gemmTask) readsIndirect(j, n int) bool {
	return t.indirect != nil && t.indirect.contiguous(j, n)
}

// indirectDepth is the depth, in packed words, of a block whose B is read by offsets: only A is packed.
const indirectDepth = 2 * sumDepth

// halves are where the two halves of the columns from j on begin, if tiles read them by offsets.
func (x *block) halves(j int) (at [2]*byte) {
	n := min(x.t.p.nr, x.j1-j)
	if n <= 0 || !x.t.readsIndirect(j, n) {
		return at
	}
	f := x.t.indirect
	from := f.base(x.item)
	return [2]*byte{f.buf.byteAt(from + f.lane[j]), f.buf.byteAt(from + f.lane[j+x.t.p.vw])}
}

// fetch prefetches packed words [k0,k1) of the next columns, if tiles read them by offsets.
func (x *block) fetch(k0, k1 int) {
	if x.t.prefetch && x.next[0] != nil && k0 < k1 {
		x.t.p.indirectFetch(k1-k0, x.next[0], x.next[1], &x.t.indirect.depth[x.t.packedDepth(x.k0)+k0])
	}
}
