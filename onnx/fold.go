package onnx

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

// Folds keeps, by node, the graph in which it was evaluated last while it was imported. It serves the
// next import of the node if the types of its operands are the same then, and the elements that its row
// looked at, such as axes. So a graph is imported again faster for other sizes.
type Folds map[*Node]*folded

// folded is such a graph.
type folded struct {
	opset int64
	types []ir.Type      // by operand
	fed   []bool         // by operand: it comes from inputs
	read  []*eval.Tensor // by operand: elements that the row looked at, nil for others
	graph *ir.Graph
	vars  []*eval.Tensor // by variable of the graph: the elements of a constant
	from  []int          // by variable: the operand that it holds, -1 for a constant
	there []bool         // by result: it is computed
}

// scratch is what a scratch graph, in which a node is evaluated, is made of.
type scratch struct {
	vars []*eval.Tensor // as folded.vars and from
	from []int
	read []bool // by operand
}

// declare adds an input of type t that holds e: operand i, or a constant where i is -1.
func (s *scratch) declare(b *ir.Builder, t ir.Type, e *eval.Tensor, i int) *ir.Value {
	s.vars, s.from = append(s.vars, e), append(s.from, i)
	return b.Declare(ir.Input, scratchName(len(s.vars)), t, nil, nil)
}

var scratchNames = [...]string{"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7"}

func scratchName(i int) string {
	if i < len(scratchNames) {
		return scratchNames[i]
	}
	return fmt.Sprintf("v%d", i)
}

// known is what is known of operand i's elements, nil where that is nothing.
func (c *call) known(i int) *eval.Tensor {
	if c.env != nil {
		c.env.read[i] = true
	}
	return c.im.known(c.in[i])
}

// fold computes a node whose operands are all known, and returns the inputs from which they come.
func (c *call) fold(r *row) (out []*value, from []string, ok bool) {
	if len(c.in) == 0 {
		return nil, nil, false
	}
	if slices.ContainsFunc(c.in, func(v *value) bool { return v != nil && v.k == nil && (v.init == nil || !Knowable(v.typ)) }) {
		return nil, nil, false
	}
	for _, v := range c.in {
		if v == nil {
			continue
		}
		if c.im.known(v) == nil {
			return nil, nil, false
		}
		from = append(from, v.from...)
	}
	f := c.im.folds[c.n]
	if f == nil || !f.serves(c) {
		if f = c.scratch(r); f == nil {
			return nil, nil, false // the builder of the graph reports the error
		}
		if c.im.folds != nil && c.im.inline == 1 { // nodes of functions are made for each call
			c.im.folds[c.n] = f
		}
	}
	if out = f.values(c); out == nil {
		return nil, nil, false
	}
	return out, from, true
}

// scratch builds the node in a graph of its own, nil where that fails or its results are too large.
func (c *call) scratch(r *row) *folded {
	alone := *c
	alone.b, alone.env = ir.NewBuilder("fold"), &scratch{read: make([]bool, len(c.in))}
	alone.in = make([]*value, len(c.in))
	operands := make([]value, len(c.in))
	for i, v := range c.in {
		if v != nil {
			operands[i] = value{typ: v.typ, k: v.k, from: v.from}
			alone.in[i] = &operands[i]
		}
	}
	ys := alone.build(r)
	if alone.failure() != nil || len(ys) == 0 {
		return nil
	}
	n := len(c.in)
	f := &folded{opset: c.opset, types: make([]ir.Type, n), fed: make([]bool, n), read: make([]*eval.Tensor, n)}
	f.vars, f.from, f.there = alone.env.vars, alone.env.from, make([]bool, len(ys))
	for i, v := range c.in {
		if v == nil {
			continue
		}
		f.types[i], f.fed[i] = v.typ, v.from != nil
		if alone.env.read[i] {
			f.read[i] = v.k
		}
	}
	for i, y := range ys {
		if y == nil {
			continue
		}
		if !y.Type.Shape.Static() || y.Type.Shape.Elements() > maxFolded {
			return nil
		}
		f.there[i] = true
		alone.b.Return(y)
	}
	f.graph = alone.b.Graph()
	return f
}

// serves reports whether building c in a graph of its own would make the same one.
func (f *folded) serves(c *call) bool {
	if f.opset != c.opset || len(f.types) != len(c.in) {
		return false
	}
	for i, v := range c.in {
		switch x := f.read[i]; {
		case v == nil && f.types[i] == (ir.Type{}):
		case v == nil || f.types[i] != v.typ || f.fed[i] != (v.from != nil):
			return false
		case x != nil && x != v.k && (x.Type != v.k.Type || !slices.Equal(x.Bytes(), v.k.Bytes())):
			return false
		}
	}
	return true
}

// values evaluates the graph on the operands of c, nil where that fails.
func (f *folded) values(c *call) []*value {
	vars := make([]*eval.Tensor, len(f.vars))
	for i, k := range f.from {
		if vars[i] = f.vars[i]; k >= 0 {
			vars[i] = c.in[k].k
		}
	}
	res, err := eval.Forward(f.graph, vars)
	if err != nil {
		return nil
	}
	out := make([]*value, len(f.there))
	for i := range out {
		if f.there[i] {
			out[i], res = &value{typ: res[0].Type, k: res[0]}, res[1:]
		}
	}
	return out
}
