//go:build amd64 || arm64

package kern

import (
	"encoding/binary"
	"unsafe"

	"ampc/internal/philox"
)

// wordSet is how Philox is computed, on a counter in the lower half of each 64-bit lane. Upper halves hold anything.
type wordSet struct {
	narrow    opcode // of a factor, 0: mul reads the lower halves of lanes
	mul       opcode
	high      wordOp // of a vector and itself: upper halves of lanes to the lower ones
	xor       opcode
	xor3      wordOp // op 0: there is none
	even, odd wordOp // lanes 0 and 2, or 1 and 3, of the first and of the second operand, in each 128 bits
}

// wordOp is an instruction with its immediate operand.
type wordOp struct {
	op  opcode
	imm uint8
}

// A generator's state, in the memory of a Call: the counters, in 64-bit lanes, then what is the same for all elements, in the
// order in which random reads it, and like numbers of the pool.
const (
	counterBytes = 64
	fixedWords   = 5 + 2*(philox.Rounds-3)
)

func (s *instructionSet) generatorBytes() int {
	return roundUp(counterBytes+fixedWords*s.numberBytes(), 64)
}

// generatorsBytes is the memory for all generators that a kernel may have.
func (s *instructionSet) generatorsBytes() int { return MostRandom * s.generatorBytes() }

// random is the words of generator g: a vector of counters gives two of words. Those lanes of 128 bits that have even
// numbers of 64 bits belong to the first. Of the first two rounds, what depends on the counter.
func (c *composer) random(g int) int {
	counter := c.add(lane{op: c.set.load[F32], old: none, a: none, b: none, mask: none, generator: 1 + g, twice: true})
	c.counters = append(c.counters, lane{op: c.set.store[F32], old: none, a: counter, b: none, mask: none, generator: 1 + g, twice: true})
	c.inPool(pooled{n: uint32(c.set.lanes / 2)}) // the counters of a vector
	next := 0
	fixed := func() int {
		next++
		return c.inPool(pooled{drawn, uint32(c.set.generatorBytes()*g + counterBytes + c.set.numberBytes()*(next-1))})
	}
	w := &c.set.words
	n3 := c.times(counter, philox.Mul0)
	n2 := c.xor(c.high(n3), fixed())
	n1 := c.times(n2, philox.Mul1)
	n0 := c.xor(c.high(n1), fixed())
	n2 = c.xor(n3, fixed())
	p0, p1 := c.times(n0, philox.Mul0), c.times(n2, philox.Mul1)
	n0, n1, n2, n3 = c.xor(c.high(p1), n1, fixed()), p1, c.xor(c.high(p0), fixed()), p0
	for range philox.Rounds - 3 {
		p0, p1 = c.times(n0, philox.Mul0), c.times(n2, philox.Mul1)
		n0, n1, n2, n3 = c.xor(c.high(p1), n1, fixed()), p1, c.xor(c.high(p0), n3, fixed()), p0
	}
	low, high := c.both(w.even, n0, n1, true), c.both(w.even, n2, n3, true)
	return c.add(lane{op: w.even.op, old: none, a: low, b: high, mask: none, imm: w.even.imm, odd: w.odd})
}

// both applies o to two values, for two vectors if twice is set.
func (c *composer) both(o wordOp, a, b int, twice bool) int {
	return c.add(lane{op: o.op, old: none, a: a, b: b, mask: none, imm: o.imm, twice: twice})
}

// times is the product of a counter word and a number, in 64 bits.
func (c *composer) times(x int, by uint32) int {
	if narrow := c.set.words.narrow; narrow != 0 {
		x = c.add(lane{op: narrow, old: none, a: x, b: none, mask: none, twice: true})
	}
	return c.both(wordOp{op: c.set.words.mul}, x, c.inPool(pooled{n: by}), true)
}

func (c *composer) high(x int) int { return c.both(c.set.words.high, x, x, true) }

// xor is that of two or three values.
func (c *composer) xor(x, y int, z ...int) int {
	w := &c.set.words
	switch {
	case len(z) == 0:
		return c.both(wordOp{op: w.xor}, x, y, true)
	case w.xor3.op == 0:
		return c.xor(c.xor(x, y), z[0])
	}
	return c.add(lane{op: w.xor3.op, old: x, a: y, b: z[0], mask: none, imm: w.xor3.imm, twice: true})
}

// shared adds instruction i, of which two vectors share the result, for the first of them. Counters of later vectors follow those
// of earlier ones, and those that follow the last are stored.
func (c *composer) shared(o *lane, place [][]int, v, i int, add func(lane) int) int {
	next := func(from int) int {
		return add(lane{op: addInt, old: none, a: from, b: c.inPool(pooled{n: uint32(c.set.lanes / 2)}), mask: none})
	}
	switch stores := o.generator > 0 && o.a != none; {
	case v%2 == 1:
		return place[v-1][i]
	case stores && v+2 < len(place):
		return none
	case stores:
		o.a = next(place[v][o.a])
	case o.generator > 0 && v > 0:
		return next(place[v-2][i])
	}
	if !(o.generator > 0) {
		for _, x := range []*int{&o.old, &o.a, &o.b} {
			if *x >= 0 {
				*x = place[v][*x]
			}
		}
	}
	return add(*o)
}

// drawnFrom is where the words of a Random operand come from.
type drawnFrom struct {
	draw  philox.Draw
	start uint64
	state philox.Draw // of which the generator's state has the fixed words, if known is set
	known bool
}

// Draw sets where the words of Random operand k, counted among these, come from: element 0 of the operands has word start of the
// stream d.
func (c *Call) Draw(k int, d philox.Draw, start uint64) { c.draws[k].draw, c.draws[k].start = d, start }

// seek has the generators go on with the counters that have the words of element at, and returns how many of the first one's
// words belong to earlier elements. All Random operands begin at the same word of a counter.
func (f *Fused) seek(c *Call, at int) (skip int) {
	states := f.composed.room(c)
	if c.state != states {
		c.state = states
		for g := range c.draws {
			c.draws[g].known = false
		}
	}
	for g := range f.generators {
		from := &c.draws[g]
		element := from.start + uint64(at)
		set := f.composed.set
		state := unsafe.Slice((*byte)(unsafe.Pointer(states)), set.generatorsBytes())[g*set.generatorBytes():]
		countFrom(state, uint32(element/4)+from.draw.First, f.lanes/4)
		if !from.known || from.state != from.draw {
			set.fixWords(state[counterBytes:], &from.draw)
			from.state, from.known = from.draw, true
		}
		skip = int(element % 4)
	}
	return skip
}

// countFrom writes so many counters from the first one on.
func countFrom(to []byte, first uint32, counters int) {
	half := counters / 2
	for i := range half {
		n := first + uint32(i)
		binary.LittleEndian.PutUint64(to[16*i:], uint64(n))
		binary.LittleEndian.PutUint64(to[16*i+8:], uint64(n+uint32(half)))
	}
}

// fixWords writes what is the same for all elements.
func (s *instructionSet) fixWords(to []byte, d *philox.Draw) {
	key := func(round, half int) uint32 { return d.Key(round)[half] }
	product := func(a, b uint32) (low, high uint32) {
		p := uint64(a) * uint64(b)
		return uint32(p), uint32(p >> 32)
	}
	n1, high := product(philox.Mul1, d.Micro)
	n0 := high ^ d.Site ^ key(0, 0)
	n3, high := product(philox.Mul0, n0)
	put := func(w uint32) {
		for range s.numberBytes() / 4 {
			binary.LittleEndian.PutUint32(to, w)
			to = to[4:]
		}
	}
	for _, w := range []uint32{d.Attempt ^ key(0, 1), n1 ^ key(1, 0), high ^ key(1, 1), key(2, 0), n3 ^ key(2, 1)} {
		put(w)
	}
	for r := 3; r < philox.Rounds; r++ {
		put(key(r, 0))
		put(key(r, 1))
	}
}
