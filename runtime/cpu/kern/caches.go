package kern

// Caches are the sizes in bytes of what one processor has of its caches; 0: not known.
type Caches struct {
	Second int // a second-level cache that n processors share counts as one n-th of it
	Last   int // the same of the largest cache
}

// Caches are those of the machine's host.
func (m *Machine) Caches() Caches { return m.pool.team.host.Caches }

// Blocks that are to stay in the second-level cache have sizes for one of usualSecond bytes. In another one they are
// larger or smaller in proportion, within bounds, because what the system says of a virtual machine's caches may be
// far off. No block size changes the order of a sum.
const (
	usualSecond = 1 << 20
	leastSecond = usualSecond / 4
	mostSecond  = usualSecond * 2
)

// inSecond scales a number of elements that is meant for a cache of usualSecond bytes.
func (c Caches) inSecond(elems int) int {
	if c.Second == 0 {
		return elems
	}
	return int(int64(elems) * int64(min(max(c.Second, leastSecond), mostSecond)) / usualSecond)
}

// packedB is the number of elements of B that a strip of a product keeps packed: half of its part of the largest cache, within bounds.
func (c Caches) packedB() int {
	if c.Last == 0 {
		return mostPackedB
	}
	return min(max(c.Last/(2*4), leastPackedB), mostPackedB)
}

const (
	leastPackedB = 1 << 19
	mostPackedB  = 1 << 20
)

// usualLast is the size of a largest cache that is not known. A known size counts within a quarter of it and four times as much.
const usualLast = 16 << 20

// inLast is how many bytes are taken to stay in the largest cache.
func (c Caches) inLast() int {
	if c.Last == 0 {
		return usualLast
	}
	return min(max(c.Last, usualLast/4), usualLast*4)
}
