package mutants

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// Mutations of concatenations and of the casts of their parts.

func ofJoins() []family {
	return []family{
		{name: "cast of a part left out or doubled", list: partCast},
		{name: "cast of a part moved to another", list: partCastMoved},
		{name: "part in another dtype", list: partDType},
		{name: "parts in another order", list: partsSwapped},
		{name: "parts rounded", list: partRounded},
		{name: "join rounded for a reader", list: joinRounded},
	}
}

// joins calls f for every concatenation of floats.
func (s *subject) joins(f func(n *ir.Node)) {
	for _, n := range s.final.Nodes {
		if n.Op == ir.OpConcat && n.Out[0].Type.DType.Float() && n.Out[0].Next == nil {
			f(n)
		}
	}
}

// lows are the 16-bit dtypes, the policy's first.
func (s *subject) lows() []ir.DType {
	if s.policy.Low == ir.BF16 {
		return []ir.DType{ir.BF16, ir.F16}
	}
	return []ir.DType{ir.F16, ir.BF16}
}

// through takes v to a dtype and back, before node x.
func (m *mutant) through(x *ir.Node, v *ir.Value, d ir.DType) *ir.Value {
	return m.as(x, m.as(x, v, d), v.Type.DType)
}

// as is v in a dtype, before node x.
func (m *mutant) as(x *ir.Node, v *ir.Value, d ir.DType) *ir.Value {
	if v.Type.DType == d {
		return v
	}
	return m.insert(x, ir.OpCast, ir.A("to", d), v)
}

// keeps edits a node, and gives its readers what it computes now in the dtype that it had.
func (m *mutant) keeps(n *ir.Node, edit func(x *ir.Node) bool) bool {
	x := m.node[n]
	had := x.Out[0].Type.DType
	if !edit(x) || x.Retype() != nil {
		return false
	}
	return x.Out[0].Type.DType == had || m.behind(x, had)
}

// behind casts the first result of x to a dtype, and what comes of that to the next, for all that read or return it.
func (m *mutant) behind(x *ir.Node, to ...ir.DType) bool {
	v := x.Out[0]
	var list []*ir.Node
	for _, d := range to {
		y := &ir.Node{Op: ir.OpCast, Attrs: ir.A("to", d), In: []*ir.Value{v}}
		m.made++
		v = &ir.Value{Name: fmt.Sprintf("mutant.%d", m.made), Def: y}
		y.Out = []*ir.Value{v}
		if y.Retype() != nil {
			return false
		}
		list = append(list, y)
	}
	m.g.Replace(map[*ir.Value]*ir.Value{x.Out[0]: v})
	for s, body := range m.g.Body {
		if i := slices.Index(body, x); i >= 0 {
			m.g.Body[s] = slices.Insert(body, i+1, list...)
			return true
		}
	}
	return false
}

// partCast leaves the cast of a part out, and rounds a part that is cast once more.
func partCast(s *subject, add adder) {
	s.joins(func(n *ir.Node) {
		for i, v := range n.In {
			if v.Def == nil || v.Def.Op != ir.OpCast {
				continue
			}
			add(n, func(m *mutant) bool {
				return m.keeps(n, func(x *ir.Node) bool {
					x.In = slices.Clone(x.In)
					x.In[i] = x.In[i].Def.In[0]
					return true
				})
			}, "the cast of %s left out", v)
			for _, d := range s.lows() {
				if d != v.Type.DType {
					add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.through(x, old, d) }), "%s cast to %s and back", v, d)
				}
			}
		}
	})
}

// partCastMoved takes the cast off one part and rounds another in its place.
func partCastMoved(s *subject, add adder) {
	s.joins(func(n *ir.Node) {
		for i, v := range n.In {
			if v.Def == nil || v.Def.Op != ir.OpCast {
				continue
			}
			for k, w := range n.In {
				if k == i || w.Type.DType == ir.F32 && v.Type.DType == ir.F32 && !v.Def.In[0].Type.DType.Low() {
					continue
				}
				low := v.Type.DType
				if !low.Low() {
					low = v.Def.In[0].Type.DType
				}
				for _, bare := range []bool{false, true} {
					add(n, func(m *mutant) bool {
						return m.keeps(n, func(x *ir.Node) bool {
							x.In = slices.Clone(x.In)
							x.In[i] = x.In[i].Def.In[0]
							if bare {
								x.In[k] = m.as(x, x.In[k], low)
							} else {
								x.In[k] = m.through(x, x.In[k], low)
							}
							return x.In[k] != nil && x.In[k] != m.value[w]
						})
					}, "the cast of %s given to %s, bare %v", v, w, bare)
				}
			}
		}
	})
}

// partDType joins a part in another dtype than it was computed in.
func partDType(s *subject, add adder) {
	s.joins(func(n *ir.Node) {
		for i, v := range n.In {
			for _, d := range []ir.DType{ir.F16, ir.BF16, ir.F32} {
				if d == v.Type.DType {
					continue
				}
				add(n, func(m *mutant) bool {
					return m.keeps(n, func(x *ir.Node) bool {
						old := x.In[i]
						if old.Def != nil && old.Def.Op == ir.OpCast { // from what the cast reads
							old = old.Def.In[0]
						}
						x.In = slices.Clone(x.In)
						x.In[i] = m.as(x, old, d)
						return x.In[i] != nil
					})
				}, "%s in %s", v, d)
			}
		}
	})
}

// partsSwapped joins two parts in another order, and one of them twice where the sizes allow it.
func partsSwapped(s *subject, add adder) {
	s.joins(func(n *ir.Node) {
		for i, v := range n.In {
			for k, w := range n.In[:i] {
				if v == w {
					continue
				}
				add(n, func(m *mutant) bool {
					x := m.node[n]
					x.In = slices.Clone(x.In)
					x.In[i], x.In[k] = x.In[k], x.In[i]
					return m.repair()
				}, "%s and %s swapped", w, v)
				if v.Type.Shape == w.Type.Shape {
					add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
						return m.as(x, m.value[w], old.Type.DType)
					}), "%s twice, %s left out", w, v)
				}
			}
		}
	})
}

// partRounded rounds one part, or all of them and the result with them, for every reader.
func partRounded(s *subject, add adder) {
	s.joins(func(n *ir.Node) {
		for _, d := range s.lows() {
			for i, v := range n.In {
				if v.Type.DType != d {
					add(n, operand(n, i, func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value { return m.through(x, old, d) }), "%s through %s", v, d)
				}
			}
			if n.Out[0].Type.DType == d {
				continue
			}
			add(n, func(m *mutant) bool {
				return m.keeps(n, func(x *ir.Node) bool {
					x.In, x.Attrs = slices.Clone(x.In), x.Attrs.Without("out")
					for i := range x.In {
						x.In[i] = m.as(x, x.In[i], d)
					}
					return true
				})
			}, "all parts in %s", d)
			add(n, func(m *mutant) bool {
				return m.keeps(n, func(x *ir.Node) bool {
					x.Attrs = x.Attrs.With("out", d)
					return true
				})
			}, "stored in %s", d)
		}
	})
}

// joinRounded gives one reader a concatenation of its own, of which a part or the result is rounded.
func joinRounded(s *subject, add adder) {
	s.joins(func(n *ir.Node) {
		for _, u := range s.uses.Of(n.Out[0]) {
			r := u.Node
			if r.Op == ir.OpCast {
				continue
			}
			for _, d := range s.lows() {
				for i, v := range n.In {
					if v.Type.DType == d {
						continue
					}
					add(r, operand(r, u.Arg(), func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
						y := m.copied(x, old, func(y *ir.Node) bool {
							y.In[i] = m.through(x, y.In[i], d)
							return true
						})
						return m.as(x, y, old.Type.DType)
					}), "%s of a %s whose part %s went through %s", r.Name(), n.Out[0], v, d)
				}
				if n.Out[0].Type.DType == ir.F32 {
					add(r, operand(r, u.Arg(), func(m *mutant, x *ir.Node, old *ir.Value) *ir.Value {
						y := m.copied(x, old, func(y *ir.Node) bool {
							y.Attrs = y.Attrs.With("out", d)
							return true
						})
						return m.as(x, y, ir.F32)
					}), "%s of a %s stored in %s", r.Name(), n.Out[0], d)
				}
			}
		}
	})
}
