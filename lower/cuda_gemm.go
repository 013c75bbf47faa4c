package lower

import (
	"fmt"

	"ampc/ir"
)

// gemm keeps a product that cuBLASLt computes as it stands. Otherwise it asks
// for the product in f32 and ends it with a group.
func (c *cudaLowerer) gemm() error {
	s, g := c.from, c.from.Gemm
	a, b, d := c.typeOf(s.In[0]).DType, c.typeOf(s.In[1]).DType, c.typeOf(s.Out[0]).DType
	switch {
	case a != b || a != ir.F32 && a != ir.F16 && a != ir.BF16:
		return fmt.Errorf("no product of %s and %s on %s", a, b, c.l.p.Target)
	case c.elements(s.Out[0]) == 0:
		return nil
	case g.K == 0:
		code := ir.NewCode(nil)
		return c.fill(s.Out[0], code.Ins, code.F(0))
	}
	if (d == a || d == ir.F32) && c.blasEnds(s, d) {
		c.out = append(c.out, *s)
		return nil
	}
	sum := c.temp("sum", ir.F32, c.elements(s.Out[0])/g.N, g.N)
	plain := *g
	plain.Epilogue = Epilogue{}
	product := Step{Kind: KindGemm, In: s.In[:2:2], Out: []BufferID{sum}, Node: s.Node, Gemm: &plain}
	product.Bytes = c.l.p.traffic(&product)
	c.out = append(c.out, product)
	return c.ending(&g.Epilogue, sum, s.In, s.Out[0])
}

// blasEnds reports whether cuBLASLt has the epilogue: a bias of the result's
// dtype, then a ReLU.
func (c *cudaLowerer) blasEnds(s *Step, d ir.DType) bool {
	e := &s.Gemm.Epilogue
	if e.Bias != 0 && c.typeOf(s.In[e.Bias]).DType != d {
		return false
	}
	return e.Act != Tanh && e.Residual == 0
}

var endingPrims = map[Act]func(*ir.Code, ir.Reg) ir.Reg{
	Relu: func(c *ir.Code, x ir.Reg) ir.Reg { return c.Max(x, c.F(0)) },
	Tanh: (*ir.Code).Tanh,
}

// ending emits the group that applies an epilogue to rows of sum.
func (c *cudaLowerer) ending(e *Epilogue, sum BufferID, in []BufferID, out BufferID) error {
	t := c.typeOf(sum).Shape
	cols := int64(t.Dim(1))
	g := &Group{Shape: []int64{int64(t.Dim(0)), cols}}
	code := ir.NewCode(nil)
	load := func(id BufferID, strides ...int64) ir.Reg {
		g.Loads = append(g.Loads, Access{Buffer: id, DType: c.typeOf(id).DType, Strides: strides})
		return code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32, Int: int64(len(g.Loads) - 1)})
	}
	y := load(sum, cols, 1)
	if e.Bias != 0 {
		y = code.Add(y, load(in[e.Bias], 0, 1))
	}
	if e.Act != NoAct {
		y = endingPrims[e.Act](code, y)
	}
	if e.Residual != 0 {
		y = code.Add(y, load(in[e.Residual], cols, 1))
	}
	g.Code = code.Ins
	g.Stores = []Access{{Buffer: out, DType: c.typeOf(out).DType, Strides: []int64{cols, 1}, Reg: y}}
	return c.group(g)
}
