package onnx

import (
	"fmt"
	"math"

	"ampc/ir"
	"ampc/ir/eval"
)

// valueRows make constants, ask for shapes or choose between graphs: rows that
// are more than ops on tensors.
var valueRows = []row{
	{op: "Constant", since: 1, ours: "a constant", not: "sparse tensors, strings", values: constant},
	{op: "ConstantOfShape", since: 9, ours: "full", not: "a shape that depends on data", imp: constantOfShape},
	{op: "Shape", since: 1, ours: "a constant", values: shapeOf},
	{op: "Size", since: 1, ours: "a constant", values: func(c *call) []*value {
		return []*value{known(eval.Ints(ir.I64, nil, c.typ(0).Shape.Elements()))}
	}},
	{op: "Range", since: 11, ours: "a constant", not: "limits that depend on data", values: rangeOf},
	{op: "EyeLike", own: true, since: 9, ours: "a constant", imp: eyeLike},
	{op: "If", since: 1, ours: "the nodes of the branch that is taken", not: "a condition that depends on data", values: branch},
}

func constant(c *call) []*value {
	for _, a := range c.n.Attrs {
		switch {
		case a.Name == "value" && a.T != nil:
			t := a.T
			typ, err := t.Type()
			if err != nil {
				c.refuse("%v", err)
				return nil
			}
			return []*value{{name: c.n.Out[0], typ: typ, init: t}}
		case a.Name == "value_float":
			return []*value{known(eval.Floats(ir.F32, nil, float64(a.F)))}
		case a.Name == "value_int":
			return []*value{known(eval.Ints(ir.I64, nil, a.I))}
		case a.Name == "value_ints":
			return []*value{known(eval.Ints(ir.I64, []ir.Dim{ir.Dim(len(a.Ints))}, a.Ints...))}
		case a.Name == "value_floats":
			e := eval.New(ir.Type{DType: ir.F32, Shape: ir.MakeShape(ir.Dim(len(a.Floats)))})
			for i, x := range a.Floats {
				e.F[i] = float64(x)
			}
			return []*value{known(e)}
		}
	}
	c.refuse("a constant that is not a tensor of numbers is not supported")
	return nil
}

func constantOfShape(c *call) []*ir.Value {
	d, value := ir.F32, 0.0
	if a := c.lookup("value", AttrTensor); a != nil && a.T != nil {
		e, err := a.T.value()
		if err != nil || e.Len() != 1 {
			c.refuse("attribute value: %v", err)
			return nil
		}
		d, value = e.Type.DType, e.At(0)
	}
	shape := c.ints(0, "shape")
	for _, n := range shape {
		if n < 0 {
			c.fail("shape %v has a negative size", shape)
			return nil
		}
	}
	if len(shape) > ir.MaxRank {
		c.refuse("a tensor of rank %d is not supported: the largest rank is %d", len(shape), ir.MaxRank)
		return nil
	}
	return one(c.b.Full(d, value, shape...))
}

func shapeOf(c *call) []*value {
	d := c.dims(0)
	n := int64(len(d))
	limit := func(name string, or int64) int64 {
		k := c.int(name, or)
		if k < 0 {
			k += n
		}
		return min(max(k, 0), n)
	}
	from, to := limit("start", 0), limit("end", n)
	d = d[from:max(from, to)]
	return []*value{known(eval.Ints(ir.I64, []ir.Dim{ir.Dim(len(d))}, d...))}
}

func rangeOf(c *call) []*value {
	start, limit, delta := c.number(0, "start"), c.number(1, "limit"), c.number(2, "step")
	if c.err != nil {
		return nil
	}
	n := math.Max(math.Ceil((limit-start)/delta), 0)
	if delta == 0 || !(n <= maxRange) {
		c.fail("the range from %g to %g in steps of %g has no end, or too many elements", start, limit, delta)
		return nil
	}
	e := eval.New(ir.Type{DType: c.typ(0).DType, Shape: ir.MakeShape(ir.Dim(n))})
	for i := range e.F {
		e.F[i] = eval.Round(start+float64(i)*delta, e.Type.DType)
	}
	for i := range e.I {
		e.I[i] = int64(start) + int64(i)*int64(delta)
	}
	return []*value{known(e)}
}

// maxRange bounds a Range.
const maxRange = 1 << 20

func eyeLike(c *call) []*ir.Value {
	d := c.typ(0).DType
	if t := c.int("dtype", 0); t != 0 {
		var err error
		if d, err = DataType(t).ours(); err != nil {
			c.refuse("%v", err)
			return nil
		}
	}
	s := c.dims(0)
	if len(s) != 2 {
		c.fail("operand 0 has rank %d, want 2", len(s))
		return nil
	}
	b := c.b
	rows, cols := b.Iota(ir.I64, 0, s...), b.Iota(ir.I64, 1, s...)
	return one(c.cast(b.Eq(b.Add(rows, b.Scalar(ir.I64, float64(c.int("k", 0)))), cols), d))
}

// branch puts the nodes of the branch that is taken in the place of an If.
func branch(c *call) []*value {
	cond := c.elements(0, "condition")
	if c.err != nil {
		return nil
	}
	if cond.Len() != 1 {
		c.fail("the condition has %d elements, want 1", cond.Len())
		return nil
	}
	name := "else_branch"
	if cond.At(0) != 0 {
		name = "then_branch"
	}
	a := c.lookup(name, AttrGraph)
	if a == nil {
		c.fail("attribute %s is missing", name)
		return nil
	}
	if c.im.inline++; c.im.inline > maxDepth {
		c.fail("graphs are nested more than %d deep, which is the limit", maxDepth)
		return nil
	}
	defer func() { c.im.inline-- }()
	s := &scope{vals: map[string]*value{}, outer: c.s, opsets: c.s.opsets}
	if err := c.im.initializers(a.G, s); err != nil {
		c.err = err
		return nil
	}
	if err := c.im.nodes(a.G.Nodes, s); err != nil {
		c.err = fmt.Errorf("%s: %w", name, err)
		return nil
	}
	out := make([]*value, len(a.G.Outputs))
	for i, y := range a.G.Outputs {
		if out[i] = s.find(y.Name); out[i] == nil {
			c.fail("%s: no node of it computes its output %q", name, y.Name)
		}
	}
	return out
}
