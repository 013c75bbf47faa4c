package mutants

import (
	"slices"

	"ampc/ir"
)

// Mutations of products that read a second computation of a value: one that differs from the first.

func ofCopies() []family {
	return []family{
		{name: "product of a copy with another attribute", list: copies(0, copyAttribute)},
		{name: "product of a copy of other operands", list: copies(0, copyOperand)},
		{name: "product of a copy rounded otherwise", list: copies(0, copyRounded)},
		{name: "product of a copy by another op", list: copies(0, copySibling)},
		{name: "product of a copy of another copy", list: copies(1, copyAttribute, copyOperand, copyRounded, copySibling)},
	}
}

// change edits a copy of node d of the subject before node x of the mutant reads it.
type change struct {
	text string
	edit func(m *mutant, x, y *ir.Node) bool
}

// source follows casts back to what is computed.
func source(v *ir.Value) *ir.Value {
	for v != nil && v.Def != nil && v.Def.Op == ir.OpCast {
		v = v.Def.In[0]
	}
	return v
}

// copyable reports whether v can be computed again.
func copyable(v *ir.Value) bool {
	return v != nil && v.Def != nil && v.Next == nil && v.Type.DType.Float() && !v.Def.Def().Is(ir.Random) && v.Def.Op != ir.OpCast &&
		!slices.ContainsFunc(v.Def.Out, func(w *ir.Value) bool { return w.Next != nil })
}

// copies lets each product read a copy that is changed, or one of a copy that is changed so many levels below.
func copies(depth int, changes ...func(s *subject, d *ir.Node) []change) func(s *subject, add adder) {
	return func(s *subject, add adder) {
		s.operands(func(n *ir.Node, i int, v *ir.Value) {
			r := source(v)
			if n.OperandClass(i) != ir.Low || !copyable(r) {
				return
			}
			reader := func(make func(m *mutant, x *ir.Node) *ir.Value) func(*mutant) bool {
				return operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.as(x, make(m, x), old.Type.DType) })
			}
			for _, f := range changes {
				if depth == 0 {
					for _, c := range f(s, r.Def) {
						add(n, reader(func(m *mutant, x *ir.Node) *ir.Value {
							return m.copied(x, m.value[r], func(y *ir.Node) bool { return c.edit(m, x, y) })
						}), "a second %s, %s", r, c.text)
					}
					continue
				}
				for k, w := range r.Def.In {
					e := source(w)
					if !copyable(e) || s.sec[e.Def] > s.sec[n] {
						continue
					}
					for _, c := range f(s, e.Def) {
						add(n, reader(func(m *mutant, x *ir.Node) *ir.Value {
							return m.copied(x, m.value[r], func(y *ir.Node) bool {
								z := m.copied(x, m.value[e], func(z *ir.Node) bool { return c.edit(m, x, z) })
								y.In[k] = m.as(x, z, y.In[k].Type.DType)
								return true
							})
						}), "a second %s of a second %s, %s", r, e, c.text)
					}
				}
			}
		})
	}
}

func copyAttribute(_ *subject, d *ir.Node) (list []change) {
	for _, a := range d.Def().Attrs {
		old := d.Attrs.Get(a.Name)
		if old == nil {
			old = a.Default
		}
		for _, x := range otherValues(a, old) {
			list = append(list, change{a.Name + " changed", func(_ *mutant, _, y *ir.Node) bool {
				y.Attrs = y.Attrs.With(a.Name, x)
				return true
			}})
		}
	}
	return list
}

func copyOperand(s *subject, d *ir.Node) (list []change) {
	for i, v := range d.In {
		if v == nil {
			continue
		}
		near := s.earlier(v, d)
		r := s.rand("copy", d.Name(), i)
		for range min(2, len(near)) {
			w := near[r.IntN(len(near))]
			list = append(list, change{w.String() + " for " + v.String(), func(m *mutant, _, y *ir.Node) bool {
				y.In[i] = m.value[w]
				return true
			}})
		}
		for k, w := range d.In[:i] {
			if w != nil && w != v && w.Type == v.Type {
				list = append(list, change{v.String() + " and " + w.String() + " swapped", func(_ *mutant, _, y *ir.Node) bool {
					y.In[i], y.In[k] = y.In[k], y.In[i]
					return true
				}})
			}
		}
		if o := d.OperandDef(i); o.Optional {
			list = append(list, change{"without " + o.Name, func(_ *mutant, _, y *ir.Node) bool {
				y.In[i] = nil
				return true
			}})
		}
	}
	return list
}

func copyRounded(s *subject, d *ir.Node) (list []change) {
	for i, v := range d.In {
		if v == nil || !v.Type.DType.Float() {
			continue
		}
		for _, low := range s.lows() {
			if low != v.Type.DType {
				list = append(list, change{v.String() + " through " + low.String(), func(m *mutant, x, y *ir.Node) bool {
					y.In[i] = m.through(x, y.In[i], low)
					return true
				}})
			}
		}
	}
	for _, low := range s.lows() {
		if d.Def().Elem == nil && !d.Def().Is(ir.Moves) {
			list = append(list, change{"acc=" + low.String(), func(_ *mutant, _, y *ir.Node) bool {
				y.Attrs = y.Attrs.With("acc", low)
				return true
			}})
		}
		if low != d.Out[0].Type.DType {
			list = append(list, change{"out=" + low.String(), func(_ *mutant, _, y *ir.Node) bool {
				y.Attrs = y.Attrs.With("out", low)
				return true
			}})
		}
	}
	return list
}

func copySibling(_ *subject, d *ir.Node) (list []change) {
	for _, set := range siblings {
		if !slices.Contains(set, d.Op) {
			continue
		}
		for _, op := range set {
			if op == d.Op {
				continue
			}
			list = append(list, change{op.String() + " for " + d.Op.String(), func(_ *mutant, _, y *ir.Node) bool {
				y.Op, y.Attrs = op, taken(op, y.Attrs)
				return true
			}})
		}
	}
	return list
}
