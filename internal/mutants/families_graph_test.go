package mutants

import (
	"slices"

	"ampc/ir"
)

// Mutations of edges, ops, attributes and places, which need to know nothing of what a step is for.

func structural() []family {
	return []family{
		{name: "operands swapped", list: swapped},
		{name: "sibling op", list: sibling},
		{name: "operand dropped", list: dropped},
		{name: "operand doubled", list: doubled},
		{name: "operand added", list: added},
		{name: "constant for a value", list: constantFor},
		{name: "another value", list: another},
		{name: "another result", list: anotherResult},
		{name: "node bypassed", list: bypassed},
		{name: "constant changed", list: constantChanged},
		{name: "attribute", list: attribute},
		{name: "axis order", list: axisOrder},
		{name: "section", list: section},
		{name: "node computed again", list: again},
		{name: "op inserted", list: inserted},
	}
}

func swapped(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		for i := range n.In {
			for k := range i {
				a, b := n.In[i], n.In[k]
				if a == nil || b == nil || a == b || a.Type != b.Type {
					continue
				}
				add(n, func(m *mutant) bool {
					x := m.node[n]
					x.In = slices.Clone(x.In)
					x.In[i], x.In[k] = x.In[k], x.In[i]
					return true
				}, "%s and %s swapped", b, a)
			}
		}
	}
}

// siblings are rows that a slip of the hand confuses.
var siblings = [][]ir.Op{
	{ir.OpAdd, ir.OpSub, ir.OpMul, ir.OpDiv, ir.OpMax, ir.OpMin}, {ir.OpAnd, ir.OpOr, ir.OpXor}, {ir.OpEq, ir.OpNe, ir.OpLt, ir.OpLe, ir.OpGt, ir.OpGe},
	{ir.OpRelu, ir.OpGelu, ir.OpTanh, ir.OpSigmoid, ir.OpSilu, ir.OpAbs, ir.OpNeg, ir.OpSquare, ir.OpSqrt, ir.OpRsqrt, ir.OpLeakyRelu},
	{ir.OpReluGrad, ir.OpTanhGrad, ir.OpSigmoidGrad, ir.OpSiluGrad, ir.OpGeluGrad, ir.OpMul},
	{ir.OpReduceSum, ir.OpReduceMean, ir.OpReduceMax, ir.OpReduceMin}, {ir.OpAdam, ir.OpAdamW}, {ir.OpSoftmax, ir.OpLogSoftmax},
	{ir.OpMSE, ir.OpL1Loss, ir.OpHuber, ir.OpBCEWithLogits}, {ir.OpIsNaN, ir.OpIsInf}, {ir.OpMaxPool, ir.OpAvgPool}, {ir.OpScale, ir.OpUnscale, ir.OpMul},
	{ir.OpDropout, ir.OpDropoutGrad}, {ir.OpTril, ir.OpTriu}, {ir.OpCast, ir.OpRound}, {ir.OpAddN, ir.OpConcat},
}

func sibling(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		for _, set := range siblings {
			if !slices.Contains(set, n.Op) {
				continue
			}
			for _, op := range set {
				if op == n.Op {
					continue
				}
				add(n, func(m *mutant) bool {
					x := m.node[n]
					x.Op, x.Attrs = op, taken(op, x.Attrs)
					return m.repair()
				}, "%s for %s", op, n.Op)
			}
		}
	}
}

// taken are the attributes that a row has as well.
func taken(op ir.Op, all ir.Attrs) ir.Attrs {
	for _, a := range all {
		if !slices.ContainsFunc(op.Def().Attrs, func(d ir.AttrDef) bool { return d.Name == a.Name }) && a.Name != "out" {
			all = all.Without(a.Name)
		}
	}
	return all
}

func variadic(n *ir.Node, i int) bool { return n.OperandDef(i).Variadic }

func dropped(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		d := n.OperandDef(i)
		switch {
		case d.Variadic:
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.In = slices.Delete(slices.Clone(x.In), i, i+1)
				return m.repair()
			}, "%s left out", v)
		case d.Optional:
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.In = slices.Clone(x.In)
				x.In[i] = nil
				return m.repair()
			}, "%s=%s left out", d.Name, v)
		}
	})
}

func doubled(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if variadic(n, i) {
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.In = slices.Insert(slices.Clone(x.In), i, x.In[i])
				return m.repair()
			}, "%s twice", v)
		}
	})
}

// added gives a variadic row, or an optional operand that is absent, one value more.
func added(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		last := len(n.In) - 1
		if last >= 0 && n.In[last] != nil && variadic(n, last) {
			for _, v := range s.earlier(n.In[last], n) {
				if slices.Contains(n.In, v) {
					continue
				}
				add(n, func(m *mutant) bool {
					x := m.node[n]
					x.In = append(slices.Clone(x.In), m.value[v])
					return m.repair()
				}, "%s added", v)
			}
		}
		for i, o := range n.Def().In {
			if !o.Optional || i < len(n.In) && n.In[i] != nil || i > len(n.In) {
				continue
			}
			for _, v := range s.final.Return {
				if s.at(v) < s.order[n] {
					add(n, func(m *mutant) bool { return fill(m, n, i, m.value[v]) }, "%s=%s added", o.Name, v)
				}
			}
			for _, v := range s.byType[ir.T(ir.Bool)] {
				if s.at(v) < s.order[n] && o.Kinds == ir.KBool {
					add(n, func(m *mutant) bool { return fill(m, n, i, m.value[v]) }, "%s=%s added", o.Name, v)
				}
			}
		}
	}
}

func fill(m *mutant, n *ir.Node, i int, v *ir.Value) bool {
	x := m.node[n]
	x.In = slices.Clone(x.In)
	for len(x.In) <= i {
		x.In = append(x.In, nil)
	}
	x.In[i] = v
	return m.repair()
}

func constantFor(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		for _, c := range []float64{0, 1} {
			add(n, operand(n, i, func(m *mutant, _ *ir.Node, old *ir.Value) *ir.Value { return m.constant(old.Type, c) }), "%g for %s", c, v)
		}
	})
}

func another(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		list := s.earlier(v, n)
		r := s.rand("another", n.Name(), i)
		for range min(3, len(list)) {
			w := list[r.IntN(len(list))]
			add(n, reads(n, i, w), "%s for %s", w, v)
		}
	})
}

func anotherResult(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if v.Def == nil {
			return
		}
		for _, w := range v.Def.Out {
			if w != v && w.Type == v.Type {
				add(n, reads(n, i, w), "%s for %s", w, v)
			}
		}
	})
}

func bypassed(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if v.Def == nil || v.Next != nil {
			return
		}
		for _, w := range v.Def.In {
			if w != nil && w.Type == v.Type {
				add(n, reads(n, i, w), "%s for %s, which is computed from it", w, v)
			}
		}
	})
}

func constantChanged(s *subject, add adder) {
	for _, v := range s.final.Vars {
		if v.Kind != ir.Const || v.Init == nil || len(v.Init.Args) == 0 {
			continue
		}
		var reader *ir.Node
		if u := s.uses.Of(v); len(u) > 0 {
			reader = u[0].Node
		}
		for _, f := range []func(x float64) float64{func(x float64) float64 { return 2 * x }, func(x float64) float64 { return x + 1 }, func(x float64) float64 { return -x }} {
			args := slices.Clone(v.Init.Args)
			args[0] = f(args[0])
			if args[0] == v.Init.Args[0] {
				continue
			}
			add(reader, func(m *mutant) bool {
				c := *v.Init
				c.Args = args
				m.value[v].Init = &c
				return true
			}, "%s = %g", v, args[0])
		}
	}
}

func attribute(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		for _, d := range n.Def().Attrs {
			old := n.Attrs.Get(d.Name)
			if old == nil {
				old = d.Default
			}
			for _, x := range otherValues(d, old) {
				add(n, func(m *mutant) bool {
					y := m.node[n]
					y.Attrs = y.Attrs.With(d.Name, x)
					return m.repair()
				}, "%s=%v for %v", d.Name, x, old)
			}
		}
	}
}

func otherValues(d ir.AttrDef, old any) []any {
	switch x := old.(type) {
	case int64:
		return []any{x + 1, x - 1}
	case float64:
		return []any{1.5*x + 0.25, -x}
	case bool:
		return []any{!x}
	case string:
		words := map[string][]any{"erf": {"tanh"}, "tanh": {"erf"}, "constant": {"linear"}, "NCHW": {"NHWC"}, "NHWC": {"NCHW"}, "sum": {"mean"}}
		return words[x]
	case []int64:
		var out []any
		for i := range x {
			y := slices.Clone(x)
			y[i]++
			out = append(out, y)
			z := slices.Clone(x)
			z[i]--
			out = append(out, z)
		}
		return out
	case nil:
		if d.Kind == ir.AttrBool {
			return []any{true}
		}
		if d.Kind == ir.AttrInt {
			return []any{int64(1)}
		}
		if d.Kind == ir.AttrFloat {
			return []any{1.0}
		}
	}
	return nil
}

// axisOrder swaps two axes in a transpose, or reads a reshape's operand transposed first.
func axisOrder(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		perm := n.Ints("perm")
		for i := range perm {
			for k := range i {
				add(n, func(m *mutant) bool {
					x, p := m.node[n], slices.Clone(perm)
					p[i], p[k] = p[k], p[i]
					x.Attrs = x.Attrs.With("perm", p)
					return m.repair()
				}, "axes %d and %d swapped", k, i)
			}
		}
		if n.Op != ir.OpReshape {
			continue
		}
		rank := n.In[0].Type.Shape.Rank()
		for i := 1; i < rank; i++ {
			add(n, operand(n, 0, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
				p := make([]int64, rank)
				for k := range p {
					p[k] = int64(k)
				}
				p[i-1], p[i] = p[i], p[i-1]
				return m.insert(x, ir.OpTranspose, ir.A("perm", p), old)
			}), "axes %d and %d of the operand swapped first", i-1, i)
		}
	}
}

// section moves a node to where its operands are there as well.
func section(s *subject, add adder) {
	for sec, n := range s.final.Nodes {
		for to := range ir.NumSections {
			if to == sec || to > sec && s.readBefore(n, to) || to < sec && s.needs(n, to) {
				continue
			}
			add(n, func(m *mutant) bool {
				x := m.node[n]
				m.drop(x)
				if to < sec {
					m.g.Body[to] = append(m.g.Body[to], x)
				} else {
					m.g.Body[to] = slices.Insert(m.g.Body[to], 0, x)
				}
				return true
			}, "moved to %s", to)
		}
	}
}

func (s *subject) readBefore(n *ir.Node, to ir.Section) bool {
	for _, v := range n.Out {
		for _, u := range s.uses.Of(v) {
			if u.Section < to {
				return true
			}
		}
	}
	return false
}

func (s *subject) needs(n *ir.Node, to ir.Section) bool {
	return slices.ContainsFunc(n.In, func(v *ir.Value) bool {
		return v != nil && (v.Def != nil && s.sec[v.Def] > to || v.Kind == ir.Input && to == ir.Prepare)
	})
}

// again lets one reader read a second copy of a node: nothing that anyone can see.
func again(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if v.Def == nil || v.Next != nil || len(v.Def.Out) != 1 || s.sec[v.Def] != s.sec[n] {
			return
		}
		add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
			y := m.insert(x, old.Def.Op, old.Def.Attrs, slices.Clone(old.Def.In)...)
			m.fromValue[y] = v // and so it overflows where v does
			return y
		}), "a second %s", v)
	})
}

// inserted puts an op of one operand on an edge.
func inserted(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if !v.Type.DType.Float() {
			return
		}
		for _, op := range []ir.Op{ir.OpNeg, ir.OpRelu, ir.OpAbs, ir.OpSquare, ir.OpTanh, ir.OpFloor} {
			add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.insert(x, op, nil, old) }), "%s of %s", op, v)
		}
	})
}
