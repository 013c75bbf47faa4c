package ptx

import "fmt"

// bitsInByte is the number of elements in a byte of an access to bits, which a thread reads or
// writes as a whole.
const bitsInByte = 8

// checkAccesses reports why an access is not possible: to bits of which a thread does not process
// whole bytes, or to outputs that cannot be spread.
func (c *elementwiseGen) checkAccesses() error {
	for k, a := range c.accesses() {
		if a.Spread != nil {
			if err := a.Spread.check(a, c.Shape); err != nil {
				return err
			}
		}
		if !a.Bits {
			continue
		}
		t := Bool
		if s := k - len(c.Loads); s >= 0 {
			t = c.Code[c.Stores[s].Value].Type
		}
		if c.vec != bitsInByte || c.tail != 0 || c.repeats(a) || a.DType != Uint8 || t != Bool {
			return fmt.Errorf("%s: bits of %s, %d elements at a time, the last %d alone", a.Name, t, c.vec, c.tail)
		}
	}
	return nil
}

// extent is the number of elements from the pointer to the last accessed element, inclusive.
func (c *elementwiseGen) extent(a Access) int64 {
	top := a.Offset
	for i, s := range a.Stride {
		if s > 0 {
			top += s * (c.Shape[i] - 1)
		}
	}
	switch {
	case a.Spread != nil:
		return int64(a.Spread.outputs())
	case a.Bits:
		top /= bitsInByte
	}
	return top + 1
}

// addressOfBits is the address of the byte of the elements from coords on. Strides of outer
// dimensions are whole bytes.
func (c *elementwiseGen) addressOfBits(base Reg, a Access, coords []Reg) Reg {
	b, last := c.b, len(a.Stride)-1
	addr := b.Do("add.u64", base, b.Do("shr.u64", coords[last], I(3)))
	if a.Offset != 0 {
		addr = b.Do("add.u64", addr, I(a.Offset/bitsInByte))
	}
	for d, s := range a.Stride[:last] {
		if s != 0 {
			addr = b.Do("mad.lo.u64", coords[d], I(s/bitsInByte), addr)
		}
	}
	return addr
}

// splitBits loads the byte at a place and returns its bits.
func (c *elementwiseGen) splitBits(at located) []Reg {
	b, out := c.b, make([]Reg, bitsInByte)
	word := b.Do("cvt.u32.u16", b.load(at.base, at.off, Uint8, 1)[0])
	for l := range out {
		out[l] = b.Do("setp.ne.u32", b.Do("and.b32", word, I(1<<l)), I(0))
	}
	return out
}

// joinBits returns the byte of a bool value.
func (c *elementwiseGen) joinBits(v int) []Reg {
	b := c.b
	word := b.Do("selp.b32", I(1), I(0), c.lane(v, 0))
	for l := 1; l < bitsInByte; l++ {
		word = b.Do("or.b32", word, b.Do("selp.b32", I(1<<l), I(0), c.lane(v, l)))
	}
	return []Reg{b.Do("cvt.u16.u32", word)}
}
