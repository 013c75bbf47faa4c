package passes

import (
	"slices"

	"ampc/ir"
	"ampc/passes/plan"
)

// split adds the cost of a product that is stored in f32 first (ir.Caps.Splits): the sums are
// written and read again, for dtypes of v and of its bias that no single kernel supports. v is a
// result of node last in section s, with which the product's epilogue ends.
func (c *clusterer) split(s ir.Section, last *ir.Node, v *ir.Value) {
	if c.c.Caps.Splits == nil {
		return
	}
	out, p := c.v[v.ID], c.productOf(last)
	if p == nil || out < 0 {
		return
	}
	e := c.epilogue(p, last)
	splits := func(b, d plan.Choice) bool {
		k := e.product
		k.A, k.B, k.Out = c.operandDType(p, 0, d), c.operandDType(p, 1, d), c.dtypeOf(d, v)
		if e.bias.v != nil {
			k.Bias = c.dtypeOf(b, e.bias.v)
		}
		return c.c.Caps.Splits(k)
	}
	size := c.bytes(v) * c.times(s)
	pay := func(a, b plan.Choice, bytes int64) {
		a, b = bits16(a), bits16(b)
		c.plan.Splits = append(c.plan.Splits, plan.Split{A: a, B: b, Bytes: bytes})
	}
	b := e.bias.form
	free := e.bias.v != nil && b.Free()
	wide, low := splits(plan.F32, plan.F32), splits(plan.Low, plan.Low)
	if e.bias.v != nil && !free {
		wide, low = splits(b, plan.F32), splits(b, plan.Low)
	}
	if wide {
		pay(out, plan.Low, 4*size)
	}
	if low {
		pay(plan.F32, out, 4*size)
	}
	if free && !low && splits(plan.F32, plan.Low) {
		pay(b, out, 4*size)
	}
	if free && !wide && splits(plan.Low, plan.F32) {
		pay(out, b, 4*size)
	}
}

// widens reports whether a kernel widens operand i of product n, which reads form x, to f32 first
// (ir.Caps.Widens).
func (c *clusterer) widens(n *ir.Node, i int, x plan.Choice) bool {
	if i > 1 || c.c.Caps.Widens == nil || !c.assignable(n.In[i]) {
		return false
	}
	if x == plan.AsStored {
		x = c.v[c.base[n.In[i].ID].ID]
	}
	return x != plan.F32 && c.c.Caps.Widens(n, i, c.lowOf(x, n.In[i]))
}

// widening is what operand i of product n moves whose 16-bit form, of so many bytes, is copied to f32:
// it is read, and the copy is written and read. An operand that is both factors is copied once.
func (c *clusterer) widening(n *ir.Node, i int, low int64) *plan.Moves {
	whole := func(v *ir.Value) *ir.Value {
		for v.Def != nil && c.formCast(v.Def) {
			v = v.Def.In[0]
		}
		return v
	}
	if i == 1 && whole(n.In[0]) == whole(n.In[1]) && c.widens(n, 0, c.stored(n, 0, n.In[0])) {
		return &plan.Moves{}
	}
	return &plan.Moves{F32: 2 * low, Low: 5 * low}
}

// splitConv adds what it costs that convolution n, whose result is v, in section s, is stored before a
// second kernel adds its bias (ir.Caps.SplitsConv).
func (c *clusterer) splitConv(s ir.Section, n *ir.Node, v *ir.Value) {
	splits, out := c.c.Caps.SplitsConv, c.v[v.ID]
	if splits == nil || out < 0 || !n.Def().Is(ir.Convolves) {
		return
	}
	size := c.bytes(v) * c.times(s)
	if splits(c.convStored(n, v, plan.F32)) {
		c.plan.Splits = append(c.plan.Splits, plan.Split{A: out, B: plan.Low, Bytes: 4 * size})
	}
	if splits(c.convStored(n, v, plan.Low)) {
		c.plan.Splits = append(c.plan.Splits, plan.Split{A: plan.F32, B: out, Bytes: 2 * size})
	}
}

// convStored is convolution n with the dtypes that its operands and its result v have if v is stored
// as d.
func (c *clusterer) convStored(n *ir.Node, v *ir.Value, d plan.Choice) *ir.Node {
	m := &ir.Node{Op: n.Op, Attrs: n.Attrs, Pos: n.Pos, In: slices.Clone(n.In)}
	for i, x := range n.In[:2] {
		m.In[i] = &ir.Value{Name: x.Name, Type: x.Type.With(c.operandDType(n, i, d))}
	}
	m.Out = []*ir.Value{{Name: v.Name, Type: v.Type.With(c.dtypeOf(d, v)), Def: m}}
	return m
}

// bits16 is x with both 16-bit dtypes counted as low.
func bits16(x plan.Choice) plan.Choice {
	if x == plan.Other {
		return plan.Low
	}
	return x
}

// productOf is the product whose epilogue ends with node last. It is nil if there is none, or if
// the product's kernel runs any elementwise work.
func (c *clusterer) productOf(last *ir.Node) *ir.Node {
	product := func(n *ir.Node) bool { return n.Def().Is(ir.MatrixProduct) }
	if last.Why.Cluster == 0 {
		if product(last) {
			return last
		}
		return nil
	}
	if i := slices.IndexFunc(c.member[last.Why.Cluster], product); i >= 0 && c.storesOnce(last) {
		return c.member[last.Why.Cluster][i]
	}
	return nil
}

// epilogue is what a product's kernel computes after the sums.
type epilogue struct {
	product ir.Product // without dtypes
	bias    addend
}

// addend is the bias that an epilogue adds, and the choice of the dtype in which it is read. v is
// nil for none.
type addend struct {
	v    *ir.Value
	form plan.Choice
}

func (c *clusterer) addend(n *ir.Node, i int) addend { return addend{n.In[i], c.stored(n, i, n.In[i])} }

// epilogue is the epilogue of product p, up to node last.
func (c *clusterer) epilogue(p, last *ir.Node) (e epilogue) {
	if p.Bias() != nil {
		e.bias = c.addend(p, 2)
	}
	if p == last {
		return e
	}
	eachInEpilogue(c.c.Caps, p, c.member[last.Why.Cluster], func(s ir.EpilogueStage, m *ir.Node, other int) {
		e.product.Take(s, m)
		if s == ir.AfterBias {
			e.bias = c.addend(m, other)
		}
	})
	return e
}

// eachInEpilogue calls do for the nodes of the epilogue of product p, which are among members, in
// their order: with the stage after each node, and the number of its operand that is not the
// product's value.
func eachInEpilogue(caps ir.Caps, p *ir.Node, members []*ir.Node, do func(s ir.EpilogueStage, m *ir.Node, other int)) {
	stage, y := caps.EpilogueOf(p), p.Out[0]
	for {
		i := slices.IndexFunc(members, func(m *ir.Node) bool { return slices.Contains(m.In, y) })
		if i < 0 {
			return
		}
		m := members[i]
		if stage = caps.Extends(stage, m, y); stage == ir.NoEpilogue {
			return
		}
		do(stage, m, slices.IndexFunc(m.In, func(o *ir.Value) bool { return o != y }))
		y = m.Out[0]
	}
}

// stored is the choice of the dtype in which n reads v, its operand i.
func (m *planner) stored(n *ir.Node, i int, v *ir.Value) plan.Choice {
	return m.formOfRead(v, m.reads(n, i, v))
}

// formOfRead is the choice of the form in which a reader that requires x reads v.
func (m *planner) formOfRead(v *ir.Value, x plan.Choice) plan.Choice {
	if takes, _ := m.takes(v, x); takes != plan.AsStored {
		return takes
	}
	return m.v[m.base[v.ID].ID]
}

// operandDType is the dtype in which product p reads operand i if its result is stored as d: the
// required dtype, or that of the result.
func (c *clusterer) operandDType(p *ir.Node, i int, d plan.Choice) ir.DType {
	x := c.stored(p, i, p.In[i])
	if x.Free() {
		x = d
	}
	return c.dtypeOf(x, p.In[i])
}

// dtypeOf is the dtype of v under a fixed choice.
func (m *planner) dtypeOf(x plan.Choice, v *ir.Value) ir.DType {
	switch x {
	case plan.F32:
		return ir.F32
	case plan.Low, plan.Other:
		return m.lowOf(x, v)
	}
	return v.Type.DType
}
