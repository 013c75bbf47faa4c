package passes

import (
	"slices"
	"strings"

	"ampc/ir"
)

// innerScale is the scale of a gradient inside the forward pass (Gradients). It is a constant in
// the source. A step with a dynamic scaler turns it into a loss scale that backs off by itself.
type innerScale struct {
	*lossScale
	sweep []*ir.Value // gradients before they are unscaled
	from  []*ir.Value // scalars at which the sweep starts
	over  *ir.Value   // bool[]: in some micro-batch a gradient is not finite although the differentiated scalar is
}

// planInner finds the scales inside the forward pass by which gradients are divided. Those that can
// follow the step's scaler become states.
func (t *training) planInner(g *ir.Graph, c *Context) error {
	follow := t.followed()
	if c.NoSkip || follow == nil {
		return nil
	}
	if err := ir.InferUnits(g); err != nil {
		return err
	}
	for _, v := range g.Vars {
		if v.Kind != ir.Const || !ir.InnerScale(v) {
			continue
		}
		name, _ := ParseStateName(v.Name)
		s := &innerScale{lossScale: &lossScale{name: innerName(name.Of), step: innerScales, after: name.Of, scale: v}}
		s.find(g)
		if len(s.sweep) == 0 {
			continue
		}
		s.scaler = follow.from(v.Init.Args[0])
		v.Kind, v.Attr = ir.State, v.Attr.With("sweep", ir.InnerSweep)
		t.inner = append(t.inner, s)
		c.Count("inner_scales", 1)
	}
	return nil
}

// followed is the dynamic scaler whose rule inner scales follow, or nil.
func (t *training) followed() *Scaler {
	for _, l := range t.scales {
		if l.scaler.Mode == DynamicScale {
			return &l.scaler
		}
	}
	return nil
}

// from is the rule of s for a scale with the initial value init.
func (s Scaler) from(init float64) Scaler {
	s.Init, s.Sharing, s.BlameForward = init, Alone, false
	s.Floor = min(s.Floor, init)
	if s.Cap > 0 {
		s.Cap = max(s.Cap, init)
	}
	return s
}

// innerName is the name of the values of an inner scale.
func innerName(of string) string { return strings.TrimSuffix(innerScales+"."+of, ".") }

// find collects the start values and the results of the sweep.
func (s *innerScale) find(g *ir.Graph) {
	for _, n := range g.Body[ir.Forward] {
		switch {
		case n.Op == ir.OpUnscale && n.In[0].Unit.Has(s.scale.Name):
			s.sweep = append(s.sweep, n.In[0])
		case slices.Contains(n.In, s.scale) && n.Of != nil:
			s.from = append(s.from, n.Of.Out[0])
		}
	}
}

// found is whether the sweep overflowed: its gradients are not finite although its start values
// are, so the data are not the cause.
func (s *innerScale) found(at func(string) *ir.Builder) *ir.Value {
	bad := at(s.name + ".inner_inf").AnyNonfinite(s.sweep...)
	if len(s.from) == 0 {
		return bad
	}
	data := at(s.name + ".from_inf").AnyNonfinite(s.from...)
	fine := at(s.name+".from_ok").Emit(ir.OpNot, []*ir.Value{data}, nil)[0]
	return at(s.name+".inner_over").And(bad, fine)
}

// inner is whether any gradient inside the forward pass overflowed; nil if no inner scale follows a
// scaler.
func (s *scaling) inner() *ir.Value {
	for _, i := range s.t.inner {
		if i.over == nil {
			i.over = i.found(s.at)
		}
		switch {
		case s.innerOver == nil:
			s.innerOver = i.over
		default:
			s.innerOver = s.b.In(ir.Update).Or(s.innerOver, i.over)
		}
	}
	return s.innerOver
}

// advanceInner updates the scales inside the forward pass. A scale does not change if the loss is
// not finite and its own sweep is not the cause.
func (s *scaling) advanceInner() {
	for _, i := range s.t.inner {
		fine := s.at(i.name+".outer").Emit(ir.OpNot, []*ir.Value{i.over}, nil)[0]
		var failed *ir.Value
		for _, sw := range s.t.sweeps {
			if failed == nil {
				failed = sw.forward
			} else {
				failed = s.b.In(ir.Update).Or(failed, sw.forward)
			}
		}
		s.step(i.lossScale, i.over, s.at(i.name+".fwd").And(failed, fine))
	}
}
