package ptx

import "fmt"

// sumBlocks bounds the partial sums of Elementwise.Sum.
const sumBlocks = 8 * 132

// SumParts is the number of partial sums that Sum writes.
func (g Elementwise) SumParts() int {
	return int(min(max((product(g.Shape)+elementThreads*8-1)/(elementThreads*8), 1), sumBlocks))
}

// Sum generates a kernel that adds up values of the code over all elements, in f32 and in an order
// fixed by the shape: losses, norms and counts without an intermediate tensor. Stores are ignored.
// Parameters: the loads, then for each value SumParts partial sums in f32; a RowReduce over one row
// adds them up.
func (g Elementwise) Sum(fl Flavour, values ...int) (*Launch, error) {
	g.Stores = nil
	c, err := newElementwiseGen(g, fl)
	if err != nil {
		return nil, fmt.Errorf("ptx: elementwise kernel %s: %w", g.Name, err)
	}
	b, parts := c.b, g.SumParts()
	for _, a := range c.Loads {
		c.bases = append(c.bases, c.param(a, false))
	}
	var outs, sums []Reg
	for i, v := range values {
		if v < 0 || v >= len(c.Code) {
			return nil, fmt.Errorf("ptx: elementwise kernel %s: sum of value %d of %d", g.Name, v, len(c.Code))
		}
		c.args = append(c.args, Argument{Name: fmt.Sprintf("sum%d", i), DType: Float32, Elems: int64(parts), Write: true})
		outs = append(outs, b.Param(fmt.Sprintf("p%d", len(c.args)-1)))
		sums = append(sums, b.floatConst(0))
	}
	tid := b.special("%tid.x")
	mine := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(elementThreads), tid)
	b.strided(b.Do("cvt.u64.u32", mine), parts*elementThreads, int(c.vectors), func(i Reg) {
		c.accumulate(b.Do("mul.lo.u64", i, I(c.vec)), c.vec, values, sums)
	})
	if c.tail > 0 {
		b.when(b.Do("setp.lt.u32", mine, I(c.tail)), func() {
			c.accumulate(b.Do("add.u64", b.Do("cvt.u64.u32", mine), I(c.n-c.tail)), 1, values, sums)
		})
	}
	for i, s := range sums {
		total := b.blockFold(s, tid, elementThreads, fmt.Sprintf("sums%d", i), func(x, y Reg) Reg { return b.add(x, y) })
		b.when(b.Do("setp.eq.u32", tid, I(0)), func() {
			b.Do("st.global.f32", Addr{Base: b.at(outs[i], b.special("%ctaid.x"), 4)}, total)
		})
	}
	return finish(b, [3]int{parts, 1, 1}, c.args)
}

// accumulate adds the values of n elements to the sums.
func (c *elementwiseGen) accumulate(e Reg, n int, values []int, sums []Reg) {
	c.values(e, n)
	for i, v := range values {
		for l := range n {
			c.b.To(sums[i], "add.rn.f32", sums[i], c.convert(c.lane(v, l), Float32))
		}
	}
}
