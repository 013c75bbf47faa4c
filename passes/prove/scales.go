package prove

import (
	"slices"

	"ampc/ir"
)

// removedScales are the loss scales of T that F does not have: 1 replaces them. Every value of F is
// then its image times the image's unit without these scales.
type removedScales struct {
	scale map[*ir.Value]bool // the scales
	state map[*ir.Value]bool // states that are updated with them
	one   map[*ir.Value]bool // multipliers that are 1 without them
}

func removedFrom(t, f *ir.Graph) removedScales {
	r := removedScales{map[*ir.Value]bool{}, map[*ir.Value]bool{}, map[*ir.Value]bool{}}
	for _, v := range t.Vars {
		if v.Attr.Get("role") == ir.RoleScale && f.Var(v.Name) == nil {
			r.scale[v] = true
		}
	}
	if len(r.scale) == 0 {
		return r
	}
	for _, n := range t.Body[ir.Update] {
		if n.Op != ir.OpUpdateScale || !r.scale[n.In[0]] {
			continue
		}
		for _, v := range n.Out {
			if v.Next != nil {
				r.state[v.Next] = true
			}
		}
	}
	return r
}

// unscaled handles the nodes of T that a removed scale removes, or that lose an operand.
func (m *matcher) unscaled(x *numbering, s ir.Section, n *ir.Node) bool {
	r := &m.removed
	if len(r.scale) == 0 {
		return false
	}
	is := func(i int, set map[*ir.Value]bool) bool { return i < len(n.In) && n.In[i] != nil && set[n.In[i]] }
	pass := func(i int) bool {
		x.refs[n.Out[0].ID] = m.read(x, s, n.In[i])
		return true
	}
	switch {
	case n.Op == ir.OpScale && is(1, r.scale):
		return pass(0)
	case n.Op == ir.OpUpdateScale && is(0, r.scale):
		return true
	case (n.Op == ir.OpUnscale || n.Op == ir.OpMul) && is(1, r.one):
		return pass(0)
	case n.Op == ir.OpMul && is(0, r.one):
		return pass(1)
	}
	multiplies := n.Op == ir.OpMultiplier && is(0, r.scale)
	if !multiplies && !slices.ContainsFunc(n.In, func(v *ir.Value) bool { return v != nil && r.one[v] }) {
		return false
	}
	k := *n
	k.In = slices.Clone(n.In)
	for i, v := range k.In {
		if v != nil && (r.one[v] || multiplies && i == 0) {
			k.In[i] = nil
		}
	}
	if multiplies && n.Int("shift") == 0 && !slices.ContainsFunc(k.In, func(v *ir.Value) bool { return v != nil }) {
		r.one[n.Out[0]] = true
		return true
	}
	m.compute(x, s, &k)
	return true
}

// units requires that F's scale units are consistent, and that no f16 value lacks a loss scale that
// its image has.
func (p *proof) units() {
	p.judged = len(p.sec)
	if err := ir.InferUnits(p.g); err != nil {
		p.blame("@"+p.g.Name, "%v", err)
	}
	p.unitsKnown = true
	if p.t == nil || len(p.matched().removed.scale) == 0 {
		return
	}
	t, to := p.t.CloneMap() // units are stored in the values
	if err := ir.InferUnits(t); err != nil {
		p.blame("@"+t.Name, "the source: %v", err)
	}
	for _, n := range p.g.Nodes {
		e := p.m.f.entity[n.ID]
		if e < 0 || p.m.image[e] == nil {
			continue
		}
		for k, v := range n.Out {
			image := p.m.image[e]
			if v.Type.DType != ir.F16 || k >= len(image.Out) || to[image.Out[k]] == nil {
				continue
			}
			for s := range p.m.removed.scale {
				if to[image.Out[k]].Unit.Has(s.Name) {
					p.report(n, "%s is stored in f16 without the loss scale %s, which it carries in the source", v, s)
				}
			}
		}
	}
}
