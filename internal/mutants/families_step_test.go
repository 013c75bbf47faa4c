package mutants

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// Mutations of what makes a step safe: skips, checks, scales, gradients, state.

func ofSteps() []family {
	return []family{
		{name: "skips joined otherwise", list: joins},
		{name: "skip negated", list: skipNegated},
		{name: "skip constant", list: skipConstant},
		{name: "skip of another", list: skipOther},
		{name: "update not guarded", list: unguarded},
		{name: "check behind an op", list: checkLossy},
		{name: "check of a part", list: checkPart},
		{name: "check left out", list: checkDropped},
		{name: "check of something else", list: checkOther},
		{name: "check asks less", list: checkLess},
		{name: "scaler's question", list: scalerQuestion},
		{name: "first micro-batch", list: first},
		{name: "gradient scaled", list: gradientScaled},
		{name: "gradient of another", list: gradientOther},
		{name: "gradient summed otherwise", list: contribution},
		{name: "unscaling", list: unscaling},
		{name: "accumulator passed by", list: accumulatorBypassed},
		{name: "stale read", list: stale},
		{name: "update done twice", list: twice},
		{name: "next value dropped", list: nextDropped},
		{name: "next values crossed", list: nextCrossed},
		{name: "another next value", list: nextOther},
		{name: "returns", list: returns},
		{name: "initial value", list: initial},
		{name: "role of a variable", list: roles},
		{name: "random site", list: sites},
	}
}

// flags calls f for every bool operand of a writer: skip, ok, first, found_inf, fwd.
func (s *subject) flags(name string, f func(n *ir.Node, i int, v *ir.Value)) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if n.OperandDef(i).Name == name && v.Type.DType == ir.Bool {
			f(n, i, v)
		}
	})
}

// skipping calls f for the places that a skip reaches: operands of writers, and of what joins skips.
func (s *subject) skipping(f func(n *ir.Node, i int, v *ir.Value)) {
	for _, name := range []string{"skip", "ok", "found_inf", "fwd"} {
		s.flags(name, f)
	}
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if v.Type.DType == ir.Bool && (n.Op == ir.OpOr || n.Op == ir.OpAnd || n.Op == ir.OpNot) {
			f(n, i, v)
		}
	})
}

func joins(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if n.Op != ir.OpOr && n.Op != ir.OpAnd || n.Out[0].Type.DType != ir.Bool {
			continue
		}
		for _, op := range []ir.Op{ir.OpAnd, ir.OpXor, ir.OpOr, ir.OpEq, ir.OpNe} {
			if op != n.Op {
				add(n, func(m *mutant) bool { m.node[n].Op = op; return m.repair() }, "%s for %s", op, n.Op)
			}
		}
		for i, v := range n.In {
			add(n, reads(n, i, n.In[1-i]), "without %s", v)
			for _, u := range s.uses.Of(n.Out[0]) {
				add(n, reads(u.Node, u.Arg(), v), "%s reads %s alone", u.Node.Name(), v)
			}
		}
	}
}

func skipNegated(s *subject, add adder) {
	s.skipping(func(n *ir.Node, i int, v *ir.Value) {
		add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.insert(x, ir.OpNot, nil, old) }), "not %s", v)
		add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
			return m.insert(x, ir.OpNot, nil, m.insert(x, ir.OpNot, nil, old))
		}), "not not %s", v)
	})
	for _, n := range s.final.Nodes {
		if n.Out[0].Type.DType != ir.Bool || n.Op != ir.OpOr && n.Op != ir.OpAnyNonfinite {
			continue
		}
		add(n, func(m *mutant) bool {
			old := m.node[n].Out[0]
			for sec, body := range m.g.Body {
				if i := slices.Index(body, old.Def); i >= 0 {
					not := &ir.Node{Op: ir.OpNot, In: []*ir.Value{old}}
					not.Out = []*ir.Value{{Name: "mutant.not", Def: not}}
					m.g.Replace(map[*ir.Value]*ir.Value{old: not.Out[0]})
					not.In = []*ir.Value{old}
					m.g.Body[sec] = slices.Insert(m.g.Body[sec], i+1, not)
					return not.Retype() == nil
				}
			}
			return false
		}, "negated for all")
	}
}

func skipConstant(s *subject, add adder) {
	s.skipping(func(n *ir.Node, i int, v *ir.Value) {
		for _, c := range []float64{0, 1} {
			add(n, operand(n, i, func(m *mutant, _ *ir.Node, old *ir.Value) *ir.Value { return m.constant(old.Type, c) }), "%g for %s", c, v)
		}
		add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.insert(x, ir.OpXor, nil, old, old) }), "%s xor itself", v)
		add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
			return m.insert(x, ir.OpAnd, nil, old, m.insert(x, ir.OpNot, nil, old))
		}), "%s and not itself", v)
	})
}

func skipOther(s *subject, add adder) {
	s.skipping(func(n *ir.Node, i int, v *ir.Value) {
		for _, w := range s.earlier(v, n) {
			add(n, reads(n, i, w), "%s for %s", w, v)
			add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
				return m.insert(x, ir.OpOr, nil, old, m.value[w])
			}), "%s or %s", v, w)
			add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
				return m.insert(x, ir.OpAnd, nil, old, m.value[w])
			}), "%s and %s", v, w)
		}
	})
}

func unguarded(s *subject, add adder) {
	for _, name := range []string{"skip", "ok", "fwd"} {
		s.flags(name, func(n *ir.Node, i int, v *ir.Value) {
			if n.OperandDef(i).Optional {
				add(n, func(m *mutant) bool { return operandNil(m, n, i) }, "without %s=%s", name, v)
			}
		})
	}
	for _, n := range s.final.Nodes {
		if n.Op != ir.OpCommit {
			continue
		}
		add(n, reads(n, 0, n.In[1]), "old value %s", n.In[1])
	}
}

func operandNil(m *mutant, n *ir.Node, i int) bool {
	x := m.node[n]
	x.In = slices.Clone(x.In)
	x.In[i] = nil
	return m.repair()
}

// checked calls f for every operand of a finiteness check.
func (s *subject) checked(f func(n *ir.Node, i int, v *ir.Value)) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if n.Op == ir.OpAnyNonfinite {
			f(n, i, v)
		}
	})
}

func checkLossy(s *subject, add adder) {
	s.checked(func(n *ir.Node, i int, v *ir.Value) {
		for _, op := range []ir.Op{ir.OpSign, ir.OpTanh, ir.OpSigmoid, ir.OpRelu, ir.OpSoftsign, ir.OpAtan, ir.OpReciprocal, ir.OpNeg, ir.OpAbs, ir.OpSquare, ir.OpExp} {
			add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.insert(x, op, nil, old) }), "of %s %s", op, v)
		}
		add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
			return m.insert(x, ir.OpClip, ir.A("lo", -1.0, "hi", 1.0), old)
		}), "of %s clipped", v)
		for _, op := range []ir.Op{ir.OpMax, ir.OpMin, ir.OpMul} {
			add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
				return m.insert(x, op, nil, old, m.constant(ir.T(ir.F32), 0))
			}), "of %s with %s and 0", v, op)
		}
		for _, op := range []ir.Op{ir.OpReduceMax, ir.OpReduceMin, ir.OpReduceSum} {
			add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
				if old.Type.Shape.Rank() == 0 {
					return nil
				}
				return m.insert(x, op, nil, old)
			}), "of %s of %s", op, v)
		}
	})
}

func checkPart(s *subject, add adder) {
	s.checked(func(n *ir.Node, i int, v *ir.Value) {
		for axis, d := range v.Type.Shape.Dims() {
			if d < 2 {
				continue
			}
			for _, from := range []int64{0, 1} {
				add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
					return m.insert(x, ir.OpSlice, ir.A("axes", []int64{int64(axis)}, "starts", []int64{from}, "ends", []int64{int64(d) - 1 + from}), old)
				}), "of %s without a row of axis %d", v, axis)
			}
		}
	})
}

func checkDropped(s *subject, add adder) {
	s.checked(func(n *ir.Node, i int, v *ir.Value) {
		if len(n.In) > 1 {
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.In = slices.Delete(slices.Clone(x.In), i, i+1)
				return true
			}, "%s not checked", v)
		}
	})
}

func checkOther(s *subject, add adder) {
	s.checked(func(n *ir.Node, i int, v *ir.Value) {
		var list []*ir.Value
		for t, vs := range s.byType {
			if !t.DType.Float() {
				continue
			}
			for _, w := range vs {
				if w != v && s.at(w) < s.order[n] {
					list = append(list, w)
				}
			}
		}
		slices.SortFunc(list, func(a, b *ir.Value) int {
			if c := s.at(a) - s.at(b); c != 0 {
				return c
			}
			return len(a.Name) - len(b.Name)*1
		})
		r := s.rand("check", n.Name(), i)
		for range min(4, len(list)) {
			w := list[r.IntN(len(list))]
			add(n, reads(n, i, w), "%s for %s", w, v)
		}
		add(n, operand(n, i, func(m *mutant, _ *ir.Node, old *ir.Value) *ir.Value { return m.constant(old.Type, 1) }), "a constant for %s", v)
	})
}

// checkLess asks one question of what any_nonfinite asks two.
func checkLess(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if n.Op != ir.OpAnyNonfinite {
			continue
		}
		for _, v := range n.In {
			for _, op := range []ir.Op{ir.OpIsNaN, ir.OpIsInf} {
				if len(n.In) > 1 || v.Type.Shape.Rank() > 0 {
					continue
				}
				add(n, func(m *mutant) bool { m.node[n].Op = op; return m.repair() }, "%s for any_nonfinite", op)
			}
			if len(n.In) == 1 {
				continue
			}
			add(n, func(m *mutant) bool {
				x := m.node[n]
				x.In = []*ir.Value{m.value[v]}
				return true
			}, "of %s alone", v)
		}
	}
}

func scalerQuestion(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if n.Op != ir.OpUpdateScale {
			continue
		}
		for _, name := range []string{"found_inf", "fwd"} {
			i := named(n, name)
			if i < 0 {
				continue
			}
			v := n.In[i]
			for _, c := range []float64{0, 1} {
				add(n, operand(n, i, func(m *mutant, _ *ir.Node, old *ir.Value) *ir.Value { return m.constant(old.Type, c) }), "%s=%g for %s", name, c, v)
			}
			add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.insert(x, ir.OpNot, nil, old) }), "%s=not %s", name, v)
			for _, w := range s.earlier(v, n) {
				add(n, reads(n, i, w), "%s=%s for %s", name, w, v)
				add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
					return m.insert(x, ir.OpOr, nil, old, m.value[w])
				}), "%s=%s or %s", name, v, w)
			}
		}
		for i := range 4 {
			for k := range i {
				if n.In[i+1].Type == n.In[k+1].Type {
					add(n, reads(n, i+1, n.In[k+1]), "%s for %s", n.In[k+1], n.In[i+1])
				}
			}
		}
	}
}

func first(s *subject, add adder) {
	s.flags("first", func(n *ir.Node, i int, v *ir.Value) {
		for _, c := range []float64{0, 1} {
			add(n, operand(n, i, func(m *mutant, _ *ir.Node, old *ir.Value) *ir.Value { return m.constant(old.Type, c) }), "first=%g", c)
		}
		add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.insert(x, ir.OpNot, nil, old) }), "first=not %s", v)
	})
	for _, n := range s.final.Nodes {
		if n.Op == ir.OpEq && s.sec[n] == ir.Forward && n.In[0].Attr.Get("role") == "micro" {
			for _, c := range []float64{1, 2} {
				add(n, operand(n, 1, func(m *mutant, _ *ir.Node, old *ir.Value) *ir.Value { return m.constant(old.Type, c) }), "micro-batch %g", c)
			}
		}
	}
}

// gradients calls f for every float edge into or in the backward section, and into accumulators and updates.
func (s *subject) gradients(f func(n *ir.Node, i int, v *ir.Value)) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if !v.Type.DType.Float() || v.Def == nil && s.sec[n] != ir.Update {
			return
		}
		if name := n.OperandDef(i).Name; name == "g" || s.sec[n] == ir.Backward && s.sec[v.Def] == ir.Backward {
			f(n, i, v)
		}
	})
}

func gradientScaled(s *subject, add adder) {
	s.gradients(func(n *ir.Node, i int, v *ir.Value) {
		for _, c := range []float64{2, 0.5, 0, -1} {
			add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
				return m.insert(x, ir.OpAffine, ir.A("scale", c), old)
			}), "%s times %g", v, c)
		}
		add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.insert(x, ir.OpAdd, nil, old, old) }), "%s plus itself", v)
	})
}

func gradientOther(s *subject, add adder) {
	s.gradients(func(n *ir.Node, i int, v *ir.Value) {
		list := s.earlier(v, n)
		r := s.rand("gradient", n.Name(), i)
		var near []*ir.Value
		for _, w := range list {
			if w.GradOf != nil || w.Attr.Get("role") == "acc" || w.Def != nil && s.sec[w.Def] == ir.Backward {
				near = append(near, w)
			}
		}
		for range min(2, len(near)) {
			w := near[r.IntN(len(near))]
			add(n, reads(n, i, w), "%s for %s", w, v)
		}
	})
}

// contribution changes what a sum of gradients consists of.
func contribution(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if n.Op != ir.OpAdd && n.Op != ir.OpAddN || s.sec[n] != ir.Backward {
			continue
		}
		for i, v := range n.In {
			for k, w := range n.In {
				if i != k && v != w && v.Type == w.Type {
					add(n, reads(n, i, w), "%s twice, %s left out", w, v)
				}
			}
			for _, u := range s.uses.Of(n.Out[0]) {
				if v.Type == n.Out[0].Type {
					add(n, reads(u.Node, u.Arg(), v), "%s reads %s alone", u.Node.Name(), v)
				}
			}
		}
	}
}

func unscaling(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		name := n.OperandDef(i).Name
		if name != "mul" && !(n.Op == ir.OpMultiplier && (name == "scale" || name == "count" || name == "norm")) && !(n.Op == ir.OpScale && name == "scale") {
			return
		}
		if n.OperandDef(i).Optional {
			add(n, func(m *mutant) bool { return operandNil(m, n, i) }, "without %s=%s", name, v)
		}
		add(n, operand(n, i, func(m *mutant, _ *ir.Node, old *ir.Value) *ir.Value { return m.constant(old.Type, 1) }), "%s=1 for %s", name, v)
		add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.insert(x, ir.OpMul, nil, old, old) }), "%s=%s squared", name, v)
		for _, w := range s.earlier(v, n) {
			if w.Def != nil && w.Def.Op == ir.OpMultiplier || w.Attr.Get("role") == "scale" {
				add(n, reads(n, i, w), "%s=%s for %s", name, w, v)
			}
		}
		if g := named(n, "g"); g >= 0 && name == "mul" && n.Op != ir.OpGlobalNorm {
			add(n, operand(n, g, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
				return m.insert(x, ir.OpUnscale, nil, old, m.value[v])
			}), "%s unscaled twice", n.In[g])
		}
	})
}

// accumulatorBypassed lets the update read the last micro-batch in place of the accumulator.
func accumulatorBypassed(s *subject, add adder) {
	last := map[*ir.Value]*ir.Value{}
	for _, n := range s.final.Nodes {
		if n.Op == ir.OpAccum && n.Out[0].Next != nil {
			last[n.Out[0].Next] = n.In[1]
		}
	}
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if w := last[v]; w != nil && s.sec[n] == ir.Update && (w.Type == v.Type || n.Op == ir.OpAnyNonfinite) {
			add(n, reads(n, i, w), "%s for %s", w, v)
		}
	})
}

// stale reads a variable before its write instead of after, and the other way round.
func stale(s *subject, add adder) {
	s.operands(func(n *ir.Node, i int, v *ir.Value) {
		if v.Next != nil {
			add(n, reads(n, i, v.Next), "%s before its write", v.Next)
			return
		}
		if v.Def != nil || s.sec[n] == ir.Prepare {
			return
		}
		for _, w := range s.byType[v.Type] {
			if w.Next == v && s.at(w) < s.order[n] {
				add(n, reads(n, i, w), "%s after its write", v)
			}
		}
	})
	for _, w := range s.final.Nodes {
		v := w.Out[0].Next
		if v == nil || s.sec[w] != ir.Update {
			continue
		}
		for _, u := range s.uses.Of(v) {
			if u.Section == ir.Update && u.Node != w && s.order[u.Node] < s.order[w] {
				add(u.Node, func(m *mutant) bool { // the reader goes behind the writer, and reads what it wrote
					x, y := m.node[u.Node], m.node[w]
					m.drop(x)
					at := slices.Index(m.g.Body[ir.Update], y) + 1
					m.g.Body[ir.Update] = slices.Insert(m.g.Body[ir.Update], at, x)
					return reads(u.Node, u.Arg(), w.Out[0])(m)
				}, "%s after its write", v)
			}
		}
	}
}

func twice(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if n.Out[0].Next == nil || n.In[0] == nil || n.In[0].Def != nil {
			continue
		}
		add(n, func(m *mutant) bool {
			x := m.node[n]
			y := &ir.Node{Op: x.Op, Attrs: x.Attrs, In: slices.Clone(x.In)}
			for i, v := range x.Out {
				y.Out = append(y.Out, &ir.Value{Name: fmt.Sprintf("mutant.first.%d", i), Def: y, Idx: i})
				for k, w := range x.In {
					if v.Next != nil && w == v.Next {
						x.In = slices.Clone(x.In)
						x.In[k] = y.Out[i]
					}
				}
			}
			return m.place(x, y) != nil
		}, "done twice")
	}
}

func (s *subject) written(f func(n *ir.Node, v *ir.Value)) {
	for _, n := range s.final.Nodes {
		for _, v := range n.Out {
			if v.Next != nil {
				f(n, v)
			}
		}
	}
}

func nextDropped(s *subject, add adder) {
	s.written(func(n *ir.Node, v *ir.Value) {
		add(n, func(m *mutant) bool {
			w := m.value[v]
			w.Next, w.Name = nil, "mutant.next"
			return true
		}, "%s not written", v.Next)
	})
}

func nextCrossed(s *subject, add adder) {
	s.written(func(n *ir.Node, v *ir.Value) {
		s.written(func(o *ir.Node, w *ir.Value) {
			if v == w || v.Type != w.Type || s.at(v) > s.at(w) || s.at(v) == s.at(w) && v.Idx > w.Idx {
				return
			}
			add(n, func(m *mutant) bool {
				a, b := m.value[v], m.value[w]
				a.Next, b.Next = b.Next, a.Next
				a.Name, b.Name = b.Name, a.Name
				return true
			}, "%s and %s crossed", v, w)
		})
	})
}

// nextOther writes another value of the type to a variable.
func nextOther(s *subject, add adder) {
	s.written(func(n *ir.Node, v *ir.Value) {
		r := s.rand("next", v.Name)
		var list []*ir.Value
		for _, w := range s.byType[v.Type] {
			if w.Def != nil && w.Next == nil && s.sec[w.Def] >= ir.Forward {
				list = append(list, w)
			}
		}
		for range min(2, len(list)) {
			w := list[r.IntN(len(list))]
			add(n, func(m *mutant) bool {
				a, b := m.value[v], m.value[w]
				b.Next, a.Next = a.Next, nil
				a.Name, b.Name = "mutant.next", a.Name
				return true
			}, "%s is written with %s", v.Next, w)
		}
	})
}

func returns(s *subject, add adder) {
	for i, v := range s.final.Return {
		def := v.Def
		for k, w := range s.final.Return {
			if k < i && v != w && v.Type == w.Type {
				add(def, func(m *mutant) bool {
					m.g.Return = slices.Clone(m.g.Return)
					m.g.Return[i], m.g.Return[k] = m.g.Return[k], m.g.Return[i]
					return true
				}, "returns %d and %d crossed", k, i)
			}
		}
		r := s.rand("return", i)
		list := s.byType[v.Type]
		for range min(3, len(list)) {
			if w := list[r.IntN(len(list))]; w != v && w.Kind != ir.Input {
				add(def, func(m *mutant) bool {
					m.g.Return = slices.Clone(m.g.Return)
					m.g.Return[i] = m.value[w]
					return true
				}, "return %d is %s for %s", i, w, v)
			}
		}
		add(def, func(m *mutant) bool {
			m.g.Return = slices.Delete(slices.Clone(m.g.Return), i, i+1)
			return true
		}, "return %d dropped", i)
	}
}

func (s *subject) declared(kinds []ir.VarKind, f func(reader *ir.Node, v *ir.Value)) {
	for _, v := range s.final.Vars {
		if u := s.uses.Of(v); len(u) > 0 && slices.Contains(kinds, v.Kind) {
			f(u[0].Node, v)
		}
	}
}

func initial(s *subject, add adder) {
	s.declared([]ir.VarKind{ir.Param, ir.State}, func(n *ir.Node, v *ir.Value) {
		if v.Attr.Get("role") == ir.RoleCopy {
			return // a runtime refreshes it before the first step
		}
		add(n, func(m *mutant) bool {
			m.value[v].Init = &ir.Init{Args: []float64{3}}
			return true
		}, "%s = 3", v)
	})
}

func roles(s *subject, add adder) {
	s.declared([]ir.VarKind{ir.Input, ir.Param, ir.State}, func(n *ir.Node, v *ir.Value) {
		for _, role := range []string{"micro", "scale", "attempt", "step", "seed", "acc"} {
			if v.Attr.Get("role") != role && (v.Attr.Get("role") != nil || role == "scale") {
				add(n, func(m *mutant) bool { w := m.value[v]; w.Attr = w.Attr.With("role", role); return true }, "%s is %s", v, role)
			}
		}
		if v.Attr.Get("role") != nil {
			add(n, func(m *mutant) bool { w := m.value[v]; w.Attr = w.Attr.Without("role"); return true }, "%s without its role", v)
		}
		for _, kind := range []ir.VarKind{ir.Param, ir.State, ir.Const} {
			if kind != v.Kind && v.Kind != ir.Input {
				add(n, func(m *mutant) bool { m.value[v].Kind = kind; return true }, "%s is a %s", v, kind)
			}
		}
		if v.Attr.Get("unit") != nil {
			add(n, func(m *mutant) bool { w := m.value[v]; w.Attr = w.Attr.Without("unit"); return true }, "%s without its unit", v)
		}
	})
}

func sites(s *subject, add adder) {
	for _, n := range s.final.Nodes {
		if !n.Def().Is(ir.Random) {
			continue
		}
		add(n, func(m *mutant) bool {
			x := m.node[n]
			x.Attrs = x.Attrs.With("rng", n.Int("rng")+1000)
			return true
		}, "another site")
		for _, o := range s.final.Nodes {
			if o.Def().Is(ir.Random) && o.Int("rng") != n.Int("rng") {
				add(n, func(m *mutant) bool {
					x := m.node[n]
					x.Attrs = x.Attrs.With("rng", o.Int("rng"))
					return true
				}, "the site of %s", o.Name())
				add(n, func(m *mutant) bool {
					for _, p := range s.final.Nodes {
						if p.Def().Is(ir.Random) && p.Int("rng") == n.Int("rng") {
							x := m.node[p]
							x.Attrs = x.Attrs.With("rng", o.Int("rng"))
						}
					}
					return true
				}, "the site of %s, in backward too", o.Name())
			}
		}
		for i, v := range n.In {
			if v != nil && n.OperandDef(i).Optional {
				add(n, func(m *mutant) bool { return operandNil(m, n, i) }, "without %s", v)
			}
		}
	}
}
