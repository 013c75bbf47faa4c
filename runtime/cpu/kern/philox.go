package kern

import "ampc/internal/philox"

// Philox writes the words of elements start, start+1, ... of the stream d, zero-extended.
func (p *Path) Philox(d philox.Draw, dst []int64, start uint64) {
	if off := start % 4; off != 0 && len(dst) > 0 {
		n := min(int(4-off), len(dst))
		words(dst[:n], d, start/4, off)
		dst, start = dst[n:], start+uint64(n)
	}
	state := philoxState(d, start/4)
	if n := len(dst) / 32 * 8; n > 0 && philoxWords(p, n/4, &dst[0], &state[0]) {
		dst, start = dst[4*n:], start+4*uint64(n)
	}
	for len(dst) > 0 {
		n := min(4, len(dst))
		words(dst[:n], d, start/4, 0)
		dst, start = dst[n:], start+4
	}
}

// words copies the words of a counter from off on.
func words(dst []int64, d philox.Draw, counter, off uint64) {
	b := d.Block(counter)
	for i := range dst {
		dst[i] = int64(b[int(off)+i])
	}
}

// philoxState is the first counter and the two key words of each of the ten rounds.
func philoxState(d philox.Draw, counter uint64) (x [24]uint32) {
	x = [24]uint32{uint32(counter) + d.First, d.Site, d.Micro, d.Attempt}
	for r := range philox.Rounds {
		key := d.Key(r)
		copy(x[4+2*r:], key[:])
	}
	return x
}
