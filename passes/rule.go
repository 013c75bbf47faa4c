package passes

import "ampc/ir"

// stepRule makes the update rule build the next value of one parameter. Its nodes are pinned to
// f32, in which the other optimizers compute, too.
func (o *updating) stepRule(p *paramPlan, opt Optimizer, lr *ir.Value) {
	r, b := opt.Rule, o.at().Pinned(ir.PinF32)
	if o.c.Policy.NoMasters {
		b.Fail("rule %s computes in f32, and policy %s keeps weights in 16 bits alone: choose a policy with f32 weights, such as mixed-f16", r.Name, o.c.Policy.Name)
		return
	}
	g, tr := p.g, p.skipGroup
	if p.mul != nil {
		g = b.Named("g."+p.v.Name).Unscale(p.g, p.mul)
	}
	if tr.taken == nil {
		tr.taken = b.Affine(b.Cast(tr.step, ir.F32), 1, 1)
	}
	w := p.stepped()
	next, states := r.Next(b, RuleParam{Name: p.v.Name, Weight: w, Grad: g, LR: lr, Step: tr.taken, Decay: opt.Decay, State: func(name string, t ir.Type, init *ir.Init) *ir.Value {
		return o.ruleState(b, p, r, name, t, init)
	}})
	switch {
	case b.Err() != nil:
		return
	case next == nil:
		b.Fail("rule %s returns no next value of %s", r.Name, p.v)
		return
	case next.Type != w.Type:
		b.Fail("rule %s returns %s %s as the next value of %s %s: want its type", r.Name, next, o.g.TypeString(next.Type), p.v, o.g.TypeString(w.Type))
		return
	}
	if r.Elementwise {
		o.checkElementwise(b, r, p, w, g, next, states)
	}
	for _, s := range states {
		o.commit(pendingStat{state: s.Param, next: s.Grad}, tr)
	}
	o.at().EmitWrite(ir.OpAssign, []*ir.Value{w, next, g, lr, tr.skip}, nil, w)
}

// ruleState declares a state of a rule. One of the shape of a weight of which each rank has a part is
// divided, too.
func (o *updating) ruleState(b *ir.Builder, p *paramPlan, r *UpdateRule, name string, t ir.Type, init *ir.Init) *ir.Value {
	of := o.c.state(kindRule+"."+r.Name+"."+name, p.v.Name)
	switch {
	case p.part != nil && t.Shape == p.part.Type.Shape:
		return o.c.declarePart(b, of, p.v.Type.With(t.DType), init, p.v.Type.Shape, "optimizer")
	case r.Elementwise && t.Shape != p.v.Type.Shape && t.Shape.Rank() > 0:
		b.Fail("rule %s says that it is Elementwise, and its state %s of %s is %s: want the shape of Param.Weight, or a scalar", r.Name, name, p.v, o.g.TypeString(t))
	case p.part != nil && t.Shape.Rank() > 0:
		b.Fail("rule %s says that it is Elementwise, and its state %s of %s has the shape of the whole weight: take that of Param.Weight, which is a part", r.Name, name, p.v)
	}
	return b.Declare(ir.State, of, t, init, ir.A("role", "optimizer"))
}

// checkElementwise refuses a rule that says that it is Elementwise and is not.
func (o *updating) checkElementwise(b *ir.Builder, r *UpdateRule, p *paramPlan, w, g, next *ir.Value, states []GradOf) {
	e := &elementwise{of: map[*ir.Value]bool{w: true, g: true}, shape: w.Type.Shape, bad: map[*ir.Value]*ir.Value{}}
	for _, s := range states {
		e.of[s.Param] = s.Param.Type.Shape.Rank() > 0
	}
	for _, v := range append([]*ir.Value{next}, nexts(states)...) {
		if bad := e.outside(v); bad != nil && b.Err() == nil {
			what := "the value " + bad.String()
			if bad.Def != nil {
				what = "its " + bad.Def.Def().Name
			}
			b.Fail("rule %s says that it is Elementwise, and in the update of %s %s is not computed from one element of each operand and scalars: leave out Elementwise", r.Name, p.v, what)
		}
	}
}

func nexts(states []GradOf) (vs []*ir.Value) {
	for _, s := range states {
		vs = append(vs, s.Grad)
	}
	return vs
}

// elementwise finds out what a rule computes element by element.
type elementwise struct {
	of    map[*ir.Value]bool // the weight, its gradient and states of their shape; false: a scalar state
	shape ir.Shape
	bad   map[*ir.Value]*ir.Value // what outside has returned
}

// outside returns a value that v is computed from, or v, that depends on more than one element of the
// weight and what belongs to it, or on the place of an element; nil: there is none.
func (e *elementwise) outside(v *ir.Value) *ir.Value {
	if _, known := e.of[v]; known || v.Def == nil && v.Type.Shape.Rank() == 0 {
		return nil
	}
	if v.Def == nil {
		return v
	}
	if bad, known := e.bad[v]; known {
		return bad
	}
	e.bad[v] = nil
	bad := (*ir.Value)(nil)
	for _, x := range operands(v.Def) {
		if bad == nil {
			bad = e.outside(x)
		}
		if bad == nil && x.Type.Shape.Rank() > 0 && (v.Def.Def().Elem == nil || x.Type.Shape != v.Type.Shape) {
			bad = v
		}
	}
	if bad == nil && v.Type.Shape.Rank() > 0 && (v.Def.Def().Elem == nil || v.Def.Def().Is(ir.Random) || v.Type.Shape != e.shape) {
		bad = v
	}
	e.bad[v] = bad
	return bad
}
