package lower

import "math/bits"

// places is a set of numbers from 0 on that finds the members next to a number. A bit of level 0 is a
// number. A bit of another level says whether a word of the level below has members.
type places [][]uint64

// newPlaces is an empty set for numbers below n.
func newPlaces(n int) places {
	var s places
	for {
		n = (n + 63) / 64
		s = append(s, make([]uint64, n))
		if n <= 1 {
			return s
		}
	}
}

func (s places) add(i int) {
	for _, words := range s {
		words[i/64] |= 1 << (i % 64)
		i /= 64
	}
}

func (s places) remove(i int) {
	for _, words := range s {
		words[i/64] &^= 1 << (i % 64)
		if words[i/64] != 0 {
			return
		}
		i /= 64
	}
}

// after is the smallest member above i, -1 if there is none.
func (s places) after(i int) int {
	for level, words := range s {
		if i++; i/64 >= len(words) {
			return -1
		}
		if rest := words[i/64] >> (i % 64) << (i % 64); rest != 0 {
			return s.descend(level, i/64*64+bits.TrailingZeros64(rest), bits.TrailingZeros64)
		}
		i /= 64
	}
	return -1
}

// before is the largest member below i, -1 if there is none.
func (s places) before(i int) int {
	for level, words := range s {
		if rest := words[i/64] & (1<<(i%64) - 1); rest != 0 {
			return s.descend(level, i/64*64+bits.Len64(rest)-1, func(w uint64) int { return bits.Len64(w) - 1 })
		}
		i /= 64
	}
	return -1
}

// descend follows bit i of a level to a member, by the bit of each word below that pick names.
func (s places) descend(level, i int, pick func(word uint64) int) int {
	for ; level > 0; level-- {
		i = i*64 + pick(s[level-1][i])
	}
	return i
}
