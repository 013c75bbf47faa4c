package passes

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// scale starts each sweep with its loss scale and divides by it in the update. It builds the one
// multiplier that the optimizer applies, the norms, the checks, and the scaler's next state. It
// stores an unscaled gradient only if a node other than the optimizer reads it.
func scale(g *ir.Graph, c *Context) error {
	t := c.training
	if len(t.sweeps) == 0 { // an update in the source follows the same rules
		return wrongOrders(g, c)
	}
	s := &scaling{b: c.append(g), g: g, c: c, t: t}
	for _, sw := range t.sweeps {
		s.seed(sw)
		s.multiplier(sw)
	}
	s.meet()
	if err := s.transform(); err != nil {
		return err
	}
	s.clipValues()
	norms := s.norms()
	for k, sw := range t.sweeps {
		s.check(sw, uint64(1)<<k, norms)
	}
	s.agree()
	s.overflows()
	s.skipGroups()
	s.shown()
	s.clipNorms(norms)
	s.inner()
	for _, l := range t.scales {
		s.advance(l)
	}
	s.advanceInner()
	if s.b.Err() != nil {
		return s.b.Err()
	}
	return wrongOrders(g, c)
}

// wrongOrders refuses a step that uses scaled values in place of unscaled ones, or that lets a
// scaled gradient reach a weight without a check.
func wrongOrders(g *ir.Graph, c *Context) error {
	if err := ir.InferUnits(g); err != nil || c.NoSkip {
		return err
	}
	return checkScaled(g)
}

// scaling builds the nodes of the pass.
type scaling struct {
	b      *ir.Builder
	g      *ir.Graph
	c      *Context
	t      *training
	copies map[*paramPlan]*ir.Value // unscaled gradients

	innerOver *ir.Value // a gradient inside the forward pass overflowed; nil: there is none
}

func (s *scaling) at(name string) *ir.Builder { return s.b.In(ir.Update).Named(name) }

// seed declares the sweep's scale and starts the sweep with it: with the scale itself if the seed
// is 1, otherwise with seed times scale, computed once per step.
func (s *scaling) seed(sw *sweep) {
	if !sw.scaler.scales() {
		return
	}
	if sw.scale == nil {
		sw.scale = s.b.Declare(ir.State, sw.state(kindScale), ir.T(ir.F32), &ir.Init{Args: []float64{sw.scaler.Init}}, ir.A("role", ir.RoleScale))
	}
	starts := map[*ir.Value]*ir.Value{}
	for _, l := range sw.terms {
		starts[l.seed] = sw.scale
		if l.seed.Init.Args[0] != 1 {
			starts[l.seed] = s.b.In(ir.Prepare).Named(l.seed.Name+".scaled").Scale(l.seed, sw.scale)
		}
	}
	for _, n := range s.g.Body[ir.Backward] {
		for i, v := range n.In {
			if start := starts[v]; start != nil {
				n.In[i] = start
			}
		}
	}
	for i, x := range sw.grads {
		if start := starts[x.d]; start != nil { // a loss that is the value of a parameter
			sw.grads[i].d = start
		}
	}
	for _, l := range sw.terms {
		if start := starts[l.seed]; start == sw.scale {
			s.b.Undeclare(l.seed)
		}
	}
	s.c.Count("scaled_sweeps", 1)
}

// multiplier computes the factor that removes scale and count from the sweep's gradients.
func (s *scaling) multiplier(sw *sweep) {
	if sw.scale != nil || sw.count != nil || sw.shift != 0 {
		sw.mul = s.at(sw.label("mul")).Multiplier(sw.scale, sw.count, nil, sw.shift, 0)
	}
}

// meet gives every parameter one gradient: that of its sweep, with the sweep's multiplier, or the
// sum of the unscaled gradients of several sweeps.
func (s *scaling) meet() {
	s.copies = map[*paramPlan]*ir.Value{}
	parts := make(map[*paramPlan][]*ir.Value, len(s.t.params))
	for _, sw := range s.t.sweeps {
		for _, x := range sw.grads {
			if x.p.reach&(x.p.reach-1) == 0 {
				x.p.g, x.p.mul = x.d, sw.mul
				continue
			}
			d := x.d
			if sw.mul != nil {
				d = s.at(sw.label("u")+"."+x.p.v.Name).Unscale(d, sw.mul)
			}
			parts[x.p] = append(parts[x.p], d)
		}
	}
	for _, p := range s.t.params {
		if ds := parts[p]; ds != nil {
			p.g = s.at("g."+p.v.Name).Emit(ir.OpAddN, ds, nil)[0]
			s.c.Count("gradients_met", 1)
		}
	}
}

// unscaled is p's gradient with scale unit 1, stored once.
func (s *scaling) unscaled(p *paramPlan) *ir.Value {
	if p.mul == nil {
		return p.g
	}
	if s.copies[p] == nil {
		s.copies[p] = s.at("g."+p.v.Name).Unscale(p.g, p.mul)
		s.c.Count("unscaled_copies", 1)
	}
	return s.copies[p]
}

// materialize replaces p's gradient by its unscaled copy.
func (s *scaling) materialize(p *paramPlan) { p.g, p.mul = s.unscaled(p), nil }

// transform passes unscaled gradients to the user's function.
func (s *scaling) transform() error {
	f := s.c.Gradients
	if f == nil || s.b.Err() != nil {
		return nil
	}
	gs := make([]GradOf, len(s.t.params))
	for i, p := range s.t.params {
		s.materialize(p)
		gs[i] = GradOf{p.v, p.g}
	}
	b := s.b.In(ir.Update) // the caller records its source lines
	out := f(b, gs)
	if len(out) < len(gs) {
		b.Fail("TrainConfig.Gradients returns %d gradients, want %d: one for each parameter, in the order given", len(out), len(gs))
	}
	if b.Err() != nil {
		return b.Err()
	}
	for i, p := range s.t.params {
		switch d := out[i].Grad; {
		case out[i].Param != p.v:
			b.Fail("TrainConfig.Gradients returns a gradient of %s at place %d, want that of %s: keep the order given", nameOf(out[i].Param), i, p.v)
			return b.Err()
		case d == nil:
			b.Fail("TrainConfig.Gradients returns no gradient of %s", p.v)
			return b.Err()
		case d.Type != p.v.Type.With(ir.F32):
			return &ir.Error{Pos: posOf(d), Msg: fmt.Sprintf("TrainConfig.Gradients returns %s %s as the gradient of %s %s: want its shape, in f32", d, s.g.TypeString(d.Type), p.v, s.g.TypeString(p.v.Type))}
		default:
			p.g, p.made = d, d
		}
	}
	return s.keep(out[len(gs):])
}

// nameOf is a value's name, or "nothing" for nil.
func nameOf(v *ir.Value) string {
	if v == nil {
		return "nothing"
	}
	return v.String()
}

// keep records the states that the hook declared. They are written unless the step is skipped.
func (s *scaling) keep(states []GradOf) error {
	for i, x := range states {
		switch {
		case x.Param == nil || x.Param.Kind != ir.State || x.Grad == nil:
			return fmt.Errorf("TrainConfig.Gradients sets %s, want a state and its next value", nameOf(x.Param))
		case x.Param.Type != x.Grad.Type:
			return fmt.Errorf("TrainConfig.Gradients sets the state %s %s to %s %s: want its type", x.Param, s.g.TypeString(x.Param.Type), x.Grad, s.g.TypeString(x.Grad.Type))
		case slices.ContainsFunc(states[:i], func(y GradOf) bool { return y.Param == x.Param }):
			return fmt.Errorf("TrainConfig.Gradients sets the state %s twice", x.Param)
		}
		s.t.kept = append(s.t.kept, pendingStat{state: x.Param, next: x.Grad})
	}
	return nil
}

func (s *scaling) clipValues() {
	for _, p := range s.t.params {
		limit := p.group.Clip.Value
		if own := s.c.Clip.Value; limit == 0 || own != 0 && own < limit {
			limit = own
		}
		if limit == 0 {
			continue
		}
		s.materialize(p)
		p.g = s.at("clip."+p.v.Name).Emit(ir.OpClip, []*ir.Value{p.g}, ir.A("lo", -limit, "hi", limit))[0]
		s.c.Count("clipped_by_value", 1)
	}
}

// shown unscales the gradients that are results, before clipping by norm.
func (s *scaling) shown() {
	for _, p := range s.t.params {
		if s.asked(OfGradient, p.v) {
			p.shown = s.unscaled(p)
			if p.part != nil {
				p.shown = s.gathered(p, p.shown)
			}
		}
	}
}

// norm is the norm of the gradients of some parameters, and the factor that clips them by it.
type norm struct {
	params []*paramPlan
	reach  uint64
	value  *ir.Value
	max    float64
}

// norms computes the norm over all parameters if the config clips by it or requests it, and over
// each group that clips by its own norm.
func (s *scaling) norms() []*norm {
	var ns []*norm
	if s.c.Clip.Norm > 0 {
		ns = append(ns, s.norm("grad_norm", s.t.params, s.c.Clip.Norm))
		s.t.total = ns[0].value
	}
	groups := map[*Group][]*paramPlan{}
	for _, p := range s.t.params {
		groups[p.group] = append(groups[p.group], p)
	}
	for i := range s.c.Groups {
		gr := &s.c.Groups[i]
		if ps := groups[gr]; gr.Clip.Norm > 0 && len(ps) > 0 {
			name := "grad_norm"
			if s.b.Lookup(name) != nil {
				name = fmt.Sprintf("grad_norm.%d", i+1)
			}
			ns = append(ns, s.norm(name, ps, gr.Clip.Norm))
			if s.t.total == nil && len(ps) == len(s.t.params) {
				s.t.total = ns[len(ns)-1].value
			}
		}
	}
	if s.t.total == nil && s.asked(OfGradNorm, nil) {
		ns = append(ns, s.norm("grad_norm.all", s.t.params, 0))
		s.t.total = ns[len(ns)-1].value
	}
	return ns
}

func (s *scaling) asked(kind ResultKind, v *ir.Value) bool {
	for _, o := range s.c.Outputs {
		if o.Kind == kind && o.Value == v {
			return true
		}
	}
	return false
}

// norm reads scaled gradients if all have the same multiplier, which it applies, and unscaled ones
// otherwise.
func (s *scaling) norm(name string, ps []*paramPlan, limit float64) *norm {
	n := &norm{params: ps, max: limit}
	same := true
	for _, p := range ps {
		n.reach |= p.reach
		same = same && p.mul == ps[0].mul
	}
	vs := make([]*ir.Value, len(ps))
	for i, p := range ps {
		if !same {
			s.materialize(p)
		}
		vs[i] = p.g
	}
	n.value = s.normOfParts(name, ps[0].mul, vs, func(i int) bool { return ps[i].part != nil })
	s.c.Count("norms", 1)
	return n
}

// check computes whether the sweep's scaled gradients, the norms over them, and the forward pass
// are finite.
func (s *scaling) check(sw *sweep, bit uint64, norms []*norm) {
	if s.c.NoSkip {
		return
	}
	vs := make([]*ir.Value, 0, len(sw.grads)+1)
	for _, x := range sw.grads {
		vs = append(vs, x.d)
		if x.p.made != nil { // the transform's result may be infinite where the gradient is not, and a clip would hide that
			vs = append(vs, x.p.made)
		}
	}
	for _, k := range s.t.kept { // a state that becomes infinite stays infinite
		if k.next.Type.DType.Float() {
			vs = append(vs, k.next)
		}
	}
	for _, n := range norms {
		if n.reach&bit != 0 {
			vs = append(vs, n.value)
		}
	}
	sw.foundInf = s.at(sw.label("found_inf")).AnyNonfinite(vs...)
	var fs []*ir.Value
	for _, l := range sw.terms {
		fs = append(fs, l.final)
	}
	for _, p := range s.t.pending {
		fs = append(fs, p.next)
	}
	sw.forward = s.at(sw.label("fwd")).AnyNonfinite(fs...)
	s.c.Count("checks", 1)
}

// overflows computes, for each sweep, the condition that lowers its scale.
func (s *scaling) overflows() {
	for _, sw := range s.t.sweeps {
		sw.overflow = sw.foundInf
		if sw.lost != nil && sw.foundInf != nil {
			sw.overflow = s.at(sw.label("overflow")).Or(sw.foundInf, sw.lost)
		}
	}
}

// skipGroups builds one skip predicate for each set of sweeps that contribute to a parameter's
// gradient, and one for the step as a whole.
func (s *scaling) skipGroups() {
	all := uint64(1)<<len(s.t.sweeps) - 1
	byReach := map[uint64]*skipGroup{}
	for _, reach := range append([]uint64{all}, reaches(s.t.params)...) {
		if byReach[reach] == nil {
			tr := &skipGroup{reach: reach, biases: map[float64]*ir.Value{}}
			if len(s.t.skipGroups) > 0 {
				tr.name = fmt.Sprintf(".%d", len(s.t.skipGroups)+1)
			}
			tr.skip = s.skip(tr)
			byReach[reach] = tr
			s.t.skipGroups = append(s.t.skipGroups, tr)
		}
	}
	for _, p := range s.t.params {
		p.skipGroup = byReach[p.reach]
	}
}

func reaches(ps []*paramPlan) []uint64 {
	rs := make([]uint64, len(ps))
	for i, p := range ps {
		rs[i] = p.reach
	}
	return rs
}

// skip is the OR of found_inf and forward over the group's sweeps, and of the condition that no
// micro-batch counts.
func (s *scaling) skip(tr *skipGroup) *ir.Value {
	if s.c.NoSkip {
		return nil
	}
	var flags []*ir.Value
	for k, sw := range s.t.sweeps {
		if tr.reach&(1<<k) != 0 {
			flags = append(flags, sw.foundInf, sw.forward)
		}
	}
	if m := s.t.micro; m != nil && m.drops {
		zero := constantOf(s.b, "zero", ir.I32, 0)
		flags = append(flags, s.at("none_kept").Emit(ir.OpEq, []*ir.Value{m.kept, zero}, nil)[0])
	}
	skip := flags[0]
	for i, f := range flags[1:] {
		b := s.b.In(ir.Update)
		if i == len(flags)-2 {
			b = b.Named("skip" + tr.name)
		}
		skip = b.Or(skip, f)
	}
	return skip
}

// clipNorms replaces the multipliers of clipped parameters by ones that clip. If both the whole and
// a group of it clip, the smaller factor applies, which equals clipping the whole first and then
// the group.
func (s *scaling) clipNorms(norms []*norm) {
	base := make(map[*paramPlan]*ir.Value, len(s.t.params))
	for _, p := range s.t.params {
		base[p] = p.mul
	}
	for _, n := range norms {
		if n.max == 0 {
			continue
		}
		alone := map[*ir.Value]*ir.Value{} // by multiplier, for parameters with one clip
		both := map[*ir.Value]*ir.Value{}  // by multiplier, for parameters with two
		for _, p := range n.params {
			if alone[base[p]] == nil {
				alone[base[p]] = s.clipped(base[p], n)
			}
			m := alone[base[p]]
			if p.mul != base[p] {
				if both[p.mul] == nil {
					both[p.mul] = s.at("clip.both").Min(p.mul, m)
				}
				m = both[p.mul]
			}
			p.mul = m
		}
		s.c.Count("clipped_by_norm", len(n.params))
	}
}

// clipped is the multiplier mul times n's clipping factor. nil stands for 1.
func (s *scaling) clipped(mul *ir.Value, n *norm) *ir.Value {
	b := s.at("clip")
	if mul == nil {
		return b.Multiplier(nil, nil, n.value, 0, n.max)
	}
	return b.Multiplier(mul.Def.Operand("scale"), mul.Def.Operand("count"), n.value, int(mul.Def.Int("shift")), n.max)
}

// advance updates a dynamic scaler.
func (s *scaling) advance(l *lossScale) {
	sc := l.scaler
	if sc.Mode != DynamicScale {
		return
	}
	found, forward := s.over(l)
	found, fwd := s.causes(l, found, forward)
	if sc.Sharing != Alone {
		found = s.share(l, found, fwd)
	}
	if sc.Sharing == Collect {
		return
	}
	s.step(l, found, fwd)
}

// step writes the scaler's next state. found lowers the scale, fwd leaves it unchanged.
func (s *scaling) step(l *lossScale, found, fwd *ir.Value) {
	sc := l.scaler
	counter := func(name string, start int64) *ir.Value {
		return s.b.Declare(ir.State, l.state(name), ir.T(ir.I32), &ir.Init{Args: []float64{float64(start)}}, ir.A("role", "scaler"))
	}
	good, left := counter("good", 0), counter("left", sc.Hysteresis)
	run, hits := counter(KindForward, 0), counter(KindFloor, 0)
	a := ir.A("growth", sc.Growth, "backoff", sc.Backoff, "every", sc.Every, "floor", sc.Floor, "cap", sc.Cap,
		"hysteresis", sc.Hysteresis, "sticky", sc.Sticky, "renew", sc.Renew)
	s.b.In(ir.Update).EmitWrite(ir.OpUpdateScale, []*ir.Value{l.scale, good, left, run, hits, found, fwd}, a, l.scale, good, left, run, hits)
	s.c.Count("dynamic_scalers", 1)
}

// causes returns the condition that lowers the scale, and the condition that leaves it unchanged:
// the loss is not finite, and not because of the scale. A step in which a gradient inside the
// forward pass overflowed leaves this scale unchanged; the inner scale is lowered.
func (s *scaling) causes(l *lossScale, found, fwd *ir.Value) (*ir.Value, *ir.Value) {
	if l.scaler.BlameForward {
		found, fwd = s.at(l.name+".overflow").Or(found, fwd), nil
	}
	if s.innerOver != nil {
		outer := s.at(l.name+".outer_ok").Emit(ir.OpNot, []*ir.Value{s.innerOver}, nil)[0]
		found = s.at(l.name+".found").And(found, outer)
		if fwd != nil {
			fwd = s.at(l.name+".fwd").And(fwd, outer)
		}
	}
	return found, fwd
}

// over is whether any sweep of a scale overflowed, and whether the forward pass of any of their
// losses was not finite.
func (s *scaling) over(l *lossScale) (found, forward *ir.Value) {
	for _, sw := range s.t.sweeps {
		switch {
		case sw.lossScale != l:
		case found == nil:
			found, forward = sw.overflow, sw.forward
		default:
			found, forward = s.at(l.name+".overflow").Or(found, sw.overflow), s.at(l.name+".fwd").Or(forward, sw.forward)
		}
	}
	return found, forward
}

// share stores which of the steps that share a scale overflowed since it was last updated, and
// returns that with found included. A step whose forward pass itself was not finite stores nothing.
// fwd is nil if that does not matter.
func (s *scaling) share(l *lossScale, found, fwd *ir.Value) *ir.Value {
	noted := s.b.Declare(ir.State, l.state("noted"), ir.T(ir.Bool), &ir.Init{Args: []float64{0}}, ir.A("role", "scaler"))
	if l.scaler.Sharing == Collect {
		if fwd != nil {
			fine := s.at(l.name+".fwd_ok").Emit(ir.OpNot, []*ir.Value{fwd}, nil)[0]
			found = s.at(l.name+".noted.now").And(found, fine)
		}
		return s.b.In(ir.Update).EmitWrite(ir.OpOr, []*ir.Value{noted, found}, nil, noted)[0]
	}
	never := constantOf(s.b, "never", ir.Bool, 0)
	s.b.In(ir.Update).EmitWrite(ir.OpAnd, []*ir.Value{noted, never}, nil, noted)
	return s.at(l.name+".overflow").Or(found, noted)
}
