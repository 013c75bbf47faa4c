package mutants

import (
	"slices"

	"ampc/ir"
)

// Mutations of dtypes and of where values are rounded.

func ofPrecision() []family {
	return []family{
		{name: "dtype of a cast", list: castDType},
		{name: "dtype of out=", list: outDType},
		{name: "dtype of acc=", list: accDType},
		{name: "tf32 product", list: tf32},
		{name: "edge rounded by casts", list: narrowedEdge(0)},
		{name: "edge rounded by casts that bear marks", list: narrowedEdge(ir.MarkInserted | ir.MarkCached)},
		{name: "edge rounded by round", list: roundedEdge},
		{name: "operand narrowed", list: narrowedOperand},
		{name: "cast removed", list: castRemoved},
		{name: "state in 16 bits", list: lowVariable(ir.State)},
		{name: "weight in 16 bits", list: lowVariable(ir.Param)},
		{name: "kept row relabelled and narrowed", list: relabelled},
		{name: "return rounded", list: returnRounded},
	}
}

func castDType(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if n.Op != ir.OpCast && n.Op != ir.OpRound {
			continue
		}
		for _, d := range []ir.DType{ir.F32, ir.F16, ir.BF16, ir.I32} {
			if d == n.DT("to") {
				continue
			}
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.Attrs = x.Attrs.With("to", d)
				return m.repair()
			}, "to=%s for %s", d, n.DT("to"))
		}
	}
}

func outDType(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if len(n.Out) == 0 || !n.Out[0].Type.DType.Float() || n.Op == ir.OpCast {
			continue
		}
		for _, d := range []ir.DType{ir.F32, ir.F16, ir.BF16} {
			if d == n.Out[0].Type.DType {
				continue
			}
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.Attrs = x.Attrs.With("out", d)
				return m.repair()
			}, "out=%s for %s", d, n.Out[0].Type.DType)
		}
		if n.Has("out") {
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.Attrs = x.Attrs.Without("out")
				return m.repair()
			}, "no out=%s", n.DT("out"))
		}
	}
}

func accDType(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if len(n.Out) == 0 || !n.Out[0].Type.DType.Float() || n.Def().Elem != nil || n.Def().Is(ir.Moves) {
			continue
		}
		for _, d := range []ir.DType{ir.F16, ir.BF16} {
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.Attrs = x.Attrs.With("acc", d)
				return m.repair()
			}, "acc=%s", d)
		}
	}
}

func tf32(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if n.Def().Class == ir.Low {
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.Attrs = x.Attrs.With("math", "tf32")
				return m.repair()
			}, "math=tf32")
		}
	}
}

// narrowedEdge takes an f32 operand to 16 bits and back, with the marks of the compiler's own casts or without.
func narrowedEdge(marks ir.Marks) func(s *subject, add adder) {
	return func(s *subject, add adder) {
		s.operands(func(n *ir.Node, i int, v *ir.Value) {
			if v.Type.DType != ir.F32 {
				return
			}
			for _, d := range []ir.DType{ir.F16, ir.BF16} {
				add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
					low := m.insert(x, ir.OpCast, ir.A("to", d), old)
					back := m.insert(x, ir.OpCast, ir.A("to", ir.F32), low)
					if marks != 0 {
						low.Def.Why = ir.Reason{Class: ir.Low, Cause: ir.ByClass, From: old, Marks: marks}
						back.Def.Why = ir.Reason{Class: ir.Clear, Cause: ir.ByContract, From: low, Marks: marks}
					}
					return back
				}), "%s through %s", v, d)
			}
		})
	}
}

func roundedEdge(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if v.Type.DType == ir.F32 {
			add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
				return m.insert(x, ir.OpRound, ir.A("to", s.policy.Low), old)
			}), "%s rounded", v)
		}
	})
}

// narrowedOperand lets a node read a 16-bit copy, where there is one, or a new one.
func narrowedOperand(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if v.Type.DType != ir.F32 || n.Op == ir.OpCast {
			return
		}
		for _, u := range s.uses.Of(v) {
			if c := u.Node; c.Op == ir.OpCast && c.Out[0].Type.DType.Low() && s.order[c] < s.order[n] {
				add(n, func(m *mutant) bool { return reads(n, i, c.Out[0])(m) && m.repair() }, "%s for %s", c.Out[0], v)
			}
		}
		add(n, func(m *mutant) bool {
			return operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
				return m.insert(x, ir.OpCast, ir.A("to", s.policy.Low), old)
			})(m) && m.repair()
		}, "%s in %s", v, s.policy.Low)
	})
}

func castRemoved(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if n.Op != ir.OpCast {
			continue
		}
		add(n, func(m *mutant) bool {
			x := m.node[n]
			m.g.Replace(map[*ir.Value]*ir.Value{x.Out[0]: x.In[0]})
			m.drop(x)
			return m.repair()
		}, "removed")
		for _, u := range s.uses.Of(n.Out[0]) {
			add(n, func(m *mutant) bool { return reads(u.Node, u.Arg(), n.In[0])(m) && m.repair() }, "removed for %s", u.Node.Name())
		}
	}
}

func lowVariable(kind ir.VarKind) func(s *subject, add adder) {
	return func(s *subject, add adder) {
		for _, v := range s.final.Vars {
			if v.Kind != kind || v.Type.DType != ir.F32 {
				continue
			}
			var reader *ir.Node
			if u := s.uses.Of(v); len(u) > 0 {
				reader = u[0].Node
			}
			for _, d := range []ir.DType{ir.F16, ir.BF16} {
				add(reader, func(m *mutant) bool {
					m.value[v].Type.DType = d
					return m.repair()
				}, "%s in %s", v, d)
			}
		}
	}
}

// relabelled makes a kept or promoting row look like one that may store anything, and stores 16 bits.
func relabelled(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if len(n.Out) == 0 || n.Out[0].Type.DType != ir.F32 {
			continue
		}
		if c := n.Def().Class; c != ir.Keep && c != ir.PromoteC && c != ir.Clear {
			continue
		}
		for _, c := range []ir.Class{ir.Clear, ir.Low} {
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.Why = ir.Reason{Class: c, Cause: ir.ByClass, Marks: ir.MarkStoresLow | ir.MarkReadsLow, Cluster: x.Why.Cluster}
				x.Attrs = x.Attrs.With("out", s.policy.Low)
				return m.repair()
			}, "labelled %s and stored %s", c, s.policy.Low)
		}
	}
}

func returnRounded(s *subject, add adder) {
	for i, v := range s.final.Return {
		if v.Def == nil || v.Type.DType != ir.F32 {
			continue
		}
		for _, d := range []ir.DType{ir.F16, ir.BF16} {
			add(v.Def, func(m *mutant) bool {
				x := m.value[v].Def
				low, back := &ir.Node{Op: ir.OpCast, Attrs: ir.A("to", d), In: []*ir.Value{m.value[v]}}, &ir.Node{Op: ir.OpCast, Attrs: ir.A("to", ir.F32)}
				low.Out = []*ir.Value{{Name: "mutant.low", Def: low}}
				back.In, back.Out = low.Out, []*ir.Value{{Name: "mutant.back", Def: back}}
				if low.Retype() != nil || back.Retype() != nil {
					return false
				}
				sec := s.sec[v.Def]
				at := slices.Index(m.g.Body[sec], x) + 1
				m.g.Body[sec] = slices.Insert(m.g.Body[sec], at, low, back)
				m.g.Return = slices.Clone(m.g.Return)
				m.g.Return[i] = back.Out[0]
				return true
			}, "return %d through %s", i, d)
		}
	}
}
