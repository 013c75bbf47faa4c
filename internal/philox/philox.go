// Package philox is the counter-based generator Philox 4x32-10 (Salmon,
// Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC'11).
// Nothing is carried from draw to draw, so the numbers do not depend on the
// order of drawing or on the number of threads.
package philox

// What kernels of other packages compute the words with: the factors of words 0 and 2, and the number of rounds.
const (
	Mul0, Mul1 = 0xD2511F53, 0xCD9E8D57
	Rounds     = 10

	weyl0, weyl1 = 0x9E3779B9, 0xBB67AE85
)

// Block returns the four words of one counter under one key.
func Block(counter [4]uint32, key [2]uint32) [4]uint32 {
	c0, c1, c2, c3 := counter[0], counter[1], counter[2], counter[3]
	k0, k1 := key[0], key[1]
	for range Rounds {
		p0, p1 := uint64(Mul0)*uint64(c0), uint64(Mul1)*uint64(c2)
		c0, c1, c2, c3 = uint32(p1>>32)^c1^k0, uint32(p1), uint32(p0>>32)^c3^k1, uint32(p0)
		k0, k1 = k0+weyl0, k1+weyl1
	}
	return [4]uint32{c0, c1, c2, c3}
}

// Draw names a stream of one training run: the user's seed, the place in the
// graph that draws, the micro-batch and the attempted step.
type Draw struct {
	Seed                 int64
	Site, Micro, Attempt uint32
	First                uint32 // counters of ranks before this one, which draw for the same tensor
}

// Key is the two words of the key in a round, from 0 on.
func (d Draw) Key(round int) [2]uint32 {
	r := uint32(round)
	return [2]uint32{uint32(d.Seed) + r*weyl0, uint32(d.Seed>>32) + r*weyl1}
}

// Block returns the words of elements 4·i to 4·i+3. The counter is
// (First+i, site, micro, attempt) and the key the seed's low and high half; i counts
// modulo 2³², so a tensor above 2³⁴ elements repeats.
func (d Draw) Block(i uint64) [4]uint32 {
	return Block([4]uint32{uint32(i) + d.First, d.Site, d.Micro, d.Attempt}, [2]uint32{uint32(d.Seed), uint32(d.Seed >> 32)})
}

// Word returns the word of one element.
func (d Draw) Word(element int64) uint32 { return d.Block(uint64(element) / 4)[element&3] }
