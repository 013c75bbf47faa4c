package mutants

import (
	"slices"

	"ampc/ir"
)

// Mutations of rows that only move elements: where their results are rounded, and what they read.

func ofMoves() []family {
	return []family{
		{name: "move rounded", list: moveRounded},
		{name: "move rounded for a reader", list: moveRoundedOnce},
		{name: "move of a rounded copy", list: moveOfCopy},
		{name: "move in the other 16 bits", list: moveOther},
		{name: "move of another value for a reader", list: moveAnother},
	}
}

// moves calls f for rows that move the elements of operand 0.
func (s *subject) moves(f func(n *ir.Node, v *ir.Value)) {
	for _, n := range s.final.Nodes {
		if n.Def().Is(ir.Moves) && n.Op != ir.OpCast && n.Op != ir.OpConcat && len(n.Out) > 0 && n.Out[0].Type.DType.Float() &&
			n.In[0] != nil && !slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return v.Next != nil }) {
			f(n, n.In[0])
		}
	}
}

// moveRounded moves 16 bits where all readers had f32.
func moveRounded(s *subject, add adder) {
	s.moves(func(n *ir.Node, v *ir.Value) {
		for _, d := range s.lows() {
			if v.Type.DType != ir.F32 || len(n.Out) > 1 {
				continue
			}
			add(n, func(m *mutant) bool {
				return m.keeps(n, func(x *ir.Node) bool {
					x.In = slices.Clone(x.In)
					x.In[0] = m.as(x, x.In[0], d)
					return x.In[0] != nil
				})
			}, "of %s in %s", v, d)
			add(n, func(m *mutant) bool { return m.behind(m.node[n], d, ir.F32) }, "cast to %s and back behind it", d)
		}
	})
}

// moveRoundedOnce gives one reader a move of its own, of 16 bits.
func moveRoundedOnce(s *subject, add adder) {
	s.moves(func(n *ir.Node, v *ir.Value) {
		for _, o := range n.Out {
			for _, u := range s.uses.Of(o) {
				for _, d := range s.lows() {
					if o.Type.DType == d {
						continue
					}
					add(u.Node, operand(u.Node, u.Arg(), func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
						y := m.copied(x, old, func(y *ir.Node) bool {
							y.In[0] = m.as(x, y.In[0], d)
							return y.In[0] != nil
						})
						return m.as(x, y, old.Type.DType)
					}), "%s reads %s of %s in %s", u.Node.Name(), n.Op, v, d)
				}
			}
		}
	})
}

// moveOfCopy lets a move read the 16-bit copy of its operand that others read, or the f32 value of the copy that it reads.
func moveOfCopy(s *subject, add adder) {
	s.moves(func(n *ir.Node, v *ir.Value) {
		from := func(w *ir.Value, text string) {
			if len(n.Out) > 1 || s.at(w) >= s.order[n] {
				return
			}
			add(n, func(m *mutant) bool {
				return m.keeps(n, func(x *ir.Node) bool {
					x.In = slices.Clone(x.In)
					x.In[0] = m.value[w]
					return true
				})
			}, "%s for %s, %s", w, v, text)
		}
		for _, u := range s.uses.Of(v) {
			if u.Node.Op == ir.OpCast {
				from(u.Node.Out[0], "its copy")
			}
		}
		if v.Def != nil && v.Def.Op == ir.OpCast {
			from(v.Def.In[0], "of which it is the copy")
		}
	})
}

// moveOther moves the other 16-bit dtype between equal ones.
func moveOther(s *subject, add adder) {
	s.moves(func(n *ir.Node, v *ir.Value) {
		if !v.Type.DType.Low() {
			return
		}
		for _, d := range s.lows() {
			if d == v.Type.DType || len(n.Out) > 1 {
				continue
			}
			add(n, func(m *mutant) bool {
				return m.keeps(n, func(x *ir.Node) bool {
					x.In = slices.Clone(x.In)
					x.In[0] = m.as(x, source(x.In[0]), d)
					return x.In[0] != nil
				})
			}, "of %s in %s", v, d)
		}
	})
}

// moveAnother gives one reader a move of its own, of another value or another way.
func moveAnother(s *subject, add adder) {
	s.moves(func(n *ir.Node, v *ir.Value) {
		changes := append(copyAttribute(s, n), copyOperand(s, n)...)
		for _, o := range n.Out {
			for _, u := range s.uses.Of(o) {
				for _, c := range changes {
					add(u.Node, operand(u.Node, u.Arg(), func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
						return m.as(x, m.copied(x, old, func(y *ir.Node) bool { return c.edit(m, x, y) }), old.Type.DType)
					}), "%s reads another %s of %s, %s", u.Node.Name(), n.Op, v, c.text)
				}
			}
		}
	})
}
