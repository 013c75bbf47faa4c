package passes

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// optimizer appends the updates of the variables: one row for each parameter, its states, learning
// rates, bias corrections, moving averages, the writes of running statistics, and the counters. In
// a skipped step every variable keeps its value.
func optimizer(g *ir.Graph, c *Context) error {
	t := c.training
	o := &updating{b: c.append(g), g: g, c: c, t: t, rates: map[rateKey]*ir.Value{}, zero: &ir.Init{Args: []float64{0}}, roles: map[string]ir.Attrs{}, attrs: map[Optimizer]ir.Attrs{}, bases: map[Schedule]*ir.Value{}}
	if len(t.sweeps) == 0 { // inference, or an update that the source contains
		return o.results()
	}
	o.attempt = o.counter(private(kindAttempt, ""), "attempt")
	o.steps()
	o.at().Reserve(2*len(t.params), len(t.params)) // moments and updates
	for _, p := range t.params {
		if !p.group.NoUpdate {
			o.step(p)
		}
	}
	if o.b.Err() != nil { // an error in an update rule
		return o.b.Err()
	}
	o.averages()
	for _, p := range slices.Concat(t.pending, t.kept) {
		o.commit(p, o.t.skipGroups[0])
	}
	for _, tr := range t.skipGroups {
		o.at().CountUp(tr.step, tr.skip)
	}
	o.at().CountUp(o.attempt, nil)
	if err := o.results(); err != nil {
		return err
	}
	if o.b.Err() != nil {
		return o.b.Err()
	}
	return ir.InferUnitsFrom(g, ir.Update) // the pass scale has inferred those before
}

// updating builds the nodes of the pass.
type updating struct {
	b       *ir.Builder
	g       *ir.Graph
	c       *Context
	t       *training
	attempt *ir.Value
	bases   map[Schedule]*ir.Value // base rate, by schedule
	rates   map[rateKey]*ir.Value
	latest  *paramPlan // parameter that rateOf was last asked about, and its rate
	rateNow *ir.Value
	zero    *ir.Init               // of all moments and averages
	roles   map[string]ir.Attrs    // by role: the attributes of states with no other ones
	attrs   map[Optimizer]ir.Attrs // of Adam's updates, without defaults: those of all parameters are equal
}

type rateKey struct {
	s Schedule
	t *skipGroup
}

func (o *updating) at() *ir.Builder { return o.b.In(ir.Update) }

// counter finds or declares the variable with a role.
func (o *updating) counter(name, role string) *ir.Value {
	for _, v := range o.g.Vars {
		if v.Attr.Get("role") == role && v.Name == name {
			return v
		}
	}
	if role == "attempt" {
		if v := roleVar(o.g, role); v != nil {
			return v
		}
	}
	return o.b.Declare(ir.State, name, ir.T(ir.I32), &ir.Init{Args: []float64{0}}, ir.A("role", role))
}

// steps declares the counters of taken steps. The first skip group has the counter of the whole
// step. Another group has its own only if it may be skipped separately.
func (o *updating) steps() {
	for _, tr := range o.t.skipGroups {
		tr.step = o.counter(o.c.state(kindStep+tr.name, ""), "step")
	}
}

// rateOf is the learning rate of a parameter. Parameters of a group follow each other.
func (o *updating) rateOf(p *paramPlan) *ir.Value {
	if o.latest == nil || o.latest.group != p.group || o.latest.skipGroup != p.skipGroup {
		o.latest, o.rateNow = p, o.rate(p.group.LR, p.skipGroup)
	}
	return o.rateNow
}

// rate is the learning rate of a schedule for a skip group.
func (o *updating) rate(s Schedule, tr *skipGroup) *ir.Value {
	key := rateKey{s, tr}
	if s.CountAll {
		key.t = nil
	}
	if v := o.rates[key]; v != nil {
		return v
	}
	base := o.bases[s]
	if base == nil {
		kind := kindRate
		if n := len(o.bases); n > 0 {
			kind += fmt.Sprintf(".%d", n+1)
		}
		base = o.b.Declare(ir.State, o.c.state(kind, ""), ir.T(ir.F32), &ir.Init{Args: []float64{s.Rate}}, ir.A("role", "lr"))
		o.bases[s] = base
	}
	v := base
	if s.Kind > ConstantRate || s.Warmup > 0 {
		count := tr.step
		if s.CountAll {
			count = o.attempt
		}
		a := ir.A("kind", s.Kind.String(), "warmup", s.Warmup, "total", s.Total, "min", s.Min)
		if s.Kind == StepRate {
			a = a.With("every", s.Every).With("drop", s.Drop)
		}
		if s.Kind == PhasesRate {
			a = a.With("steps", each(s.phases(), func(p Phase) int64 { return p.Steps })).With("from", each(s.phases(), func(p Phase) float64 { return p.From }))
			a = a.With("to", each(s.phases(), func(p Phase) float64 { return p.To })).With("power", each(s.phases(), func(p Phase) float64 { return p.Power }))
		}
		v = o.at().Named(base.Name+".now").Schedule(base, count, a)
		o.c.Count("schedules", 1)
	}
	o.rates[key] = v
	return v
}

// each lists one field of all phases.
func each[T any](phases []Phase, field func(Phase) T) []T {
	out := make([]T, len(phases))
	for i, p := range phases {
		out[i] = field(p)
	}
	return out
}

// step updates one parameter.
func (o *updating) step(p *paramPlan) {
	opt, tr := p.group.Optimizer, p.skipGroup
	lr := o.rateOf(p)
	o.c.Count(opt.Algorithm.String(), 1)
	if opt.MatrixDecay && p.v.Type.Shape.Rank() < 2 {
		opt.Decay = 0
	}
	switch opt.Algorithm {
	case UseSGD:
		o.stepSGD(p, opt, lr)
		return
	case UseRule:
		o.stepRule(p, opt, lr)
		return
	}
	c1, c2 := o.bias(tr, opt.Beta1), o.bias(tr, opt.Beta2)
	m, v := o.moment(p, "m"), o.moment(p, "v")
	op := ir.OpAdam
	if opt.Algorithm == UseAdamW {
		op = ir.OpAdamW
	}
	a := o.attrs[opt]
	if a == nil {
		a = ir.A("beta1", opt.Beta1, "beta2", opt.Beta2, "eps", opt.Eps, "decay", opt.Decay)
	}
	w := p.stepped()
	if out := o.at().EmitWrite(op, []*ir.Value{w, p.g, m, v, lr, tr.skip, p.mul, c1, c2}, a, w, m, v); out[0] != nil {
		o.attrs[opt] = out[0].Def.Attrs
	}
}

func (o *updating) stepSGD(p *paramPlan, opt Optimizer, lr *ir.Value) {
	a := ir.A("momentum", opt.Momentum, "nesterov", opt.Nesterov, "decay", opt.Decay)
	w := p.stepped()
	next := []*ir.Value{w}
	var m *ir.Value
	if opt.Momentum != 0 {
		m = o.moment(p, "m")
		next = append(next, m)
	}
	o.at().EmitWrite(ir.OpSGD, []*ir.Value{w, p.g, m, lr, p.skipGroup.skip, p.mul}, a, next...)
}

// moment declares an optimizer state of a parameter. Its name contains the names of the step and of
// the algorithm, so that each step and algorithm has its own.
func (o *updating) moment(p *paramPlan, name string) *ir.Value {
	kind := "adam." + name
	if p.group.Optimizer.Algorithm == UseSGD {
		kind = "sgd." + name
	}
	return o.state(p, o.c.state(kind, p.v.Name), p.group.Optimizer.state(), "optimizer")
}

// bias updates 1-beta^t and returns its value in this step.
func (o *updating) bias(tr *skipGroup, beta float64) *ir.Value {
	if v := tr.biases[beta]; v != nil {
		return v
	}
	kind := fmt.Sprintf("%s.%g%s", kindBias, beta, tr.name)
	state := o.b.Declare(ir.State, o.c.state(kind, ""), ir.T(ir.F32), &ir.Init{Args: []float64{0}}, ir.A("role", "optimizer"))
	tr.biases[beta] = o.at().BiasCorrection(state, tr.skip, beta)
	return tr.biases[beta]
}

// averages updates a moving average of every trained parameter.
func (o *updating) averages() {
	if o.c.EMA == 0 {
		return
	}
	next := map[*ir.Value]*ir.Value{}
	for _, n := range o.g.Body[ir.Update] {
		for _, v := range n.Out {
			if v.Next != nil {
				next[v.Next] = v
			}
		}
	}
	counts := map[*skipGroup]*ir.Value{}
	for _, p := range o.t.params {
		if p.group.NoUpdate {
			continue
		}
		if counts[p.skipGroup] == nil {
			counts[p.skipGroup] = o.b.Declare(ir.State, o.c.state(kindAverages+p.skipGroup.name, ""), ir.T(ir.I32), &ir.Init{Args: []float64{0}}, ir.A("role", "step"))
		}
		avg := o.state(p, o.c.state(kindAverage, p.v.Name), ir.F32, "ema")
		o.at().EMA(avg, next[p.stepped()], counts[p.skipGroup], p.skipGroup.skip, o.c.EMA)
		o.c.Count("averages", 1)
	}
	for _, tr := range o.t.skipGroups {
		if counts[tr] != nil {
			o.at().CountUp(counts[tr], tr.skip)
		}
	}
}

// commit writes a running statistic unless the skip group is skipped. The first group stands for
// the whole step.
func (o *updating) commit(p pendingStat, tr *skipGroup) {
	skip := tr.skip
	if skip == nil {
		skip = constantOf(o.b, "never", ir.Bool, 0)
	}
	o.at().Commit(p.state, p.next, skip)
	o.c.Count("commits", 1)
}

// results puts the results into their order: those of the source graph, over all micro-batches,
// then those that the config requests, in its order.
func (o *updating) results() error {
	claimed := o.g.Return
	o.g.Return = make([]*ir.Value, 0, o.t.returned+len(o.c.Outputs))
	for _, v := range claimed[:o.t.returned] {
		if r := o.t.results[result{v, ByDefault}]; r != nil {
			v = r
		}
		o.g.Return = append(o.g.Return, v)
	}
	for i, out := range o.c.Outputs {
		var v *ir.Value
		if out.Kind == OfValue {
			v = claimed[o.t.outputs[i]]
			if r := o.t.results[result{v, out.Reduce}]; r != nil {
				v = r
			}
			v = o.unscaled(v)
		} else if len(o.t.sweeps) > 0 {
			if at := o.t.outputs[i]; at >= 0 {
				out.Value = claimed[at]
			}
			v = o.made(out)
		}
		if v == nil {
			return o.missing(out)
		}
		o.g.Return = append(o.g.Return, v)
	}
	return nil
}

// made is a result that the compiler computes; nil if this step does not have it.
func (o *updating) made(out Output) *ir.Value {
	switch out.Kind {
	case OfSkip:
		return o.t.skipGroups[0].skip
	case OfScale:
		one := constantOf(o.b, "one.f32", ir.F32, 1)
		if scale := o.t.sweeps[0].scale; scale != nil { // a copy, because the variable changes
			return o.at().Named("scale").Scale(one, scale)
		}
		return one
	case OfGradNorm:
		return o.t.total
	case OfRate:
		return o.rate(o.t.params[0].group.LR, o.t.params[0].skipGroup)
	}
	for _, p := range o.t.params {
		if out.Value == p.v {
			return p.shown
		}
	}
	return o.inner(out.Value)
}

// inner is the unscaled gradient of a value between loss and parameters, in this micro-batch; nil
// unless exactly one sweep computes it.
func (o *updating) inner(of *ir.Value) *ir.Value {
	var d *ir.Value
	for _, n := range o.g.Body[ir.Backward] {
		for _, v := range n.Out {
			switch {
			case v.GradOf != of:
			case d != nil:
				return nil
			default:
				d = v
			}
		}
	}
	if d == nil {
		return nil
	}
	return o.unscaled(d)
}

func (o *updating) missing(out Output) error {
	switch out.Kind {
	case OfGradient:
		return &ir.Error{Pos: posOf(out.Value), Msg: fmt.Sprintf("gradient of %s: this step computes none, or one for each of several scalers", out.Value)}
	case OfSkip:
		return fmt.Errorf("result %s: the checks are turned off", out.Kind)
	}
	return fmt.Errorf("result %s: the step computes none", out.Kind)
}

// unscaled is a value between loss and parameters without the loss scale of its sweep. It returns
// any other value unchanged.
func (o *updating) unscaled(v *ir.Value) *ir.Value {
	for _, s := range o.t.sweeps {
		if s.scale != nil && v.Def != nil && v.Unit == ir.Unit(s.scale.Name) {
			if s.off == nil {
				s.off = o.at().Named(s.label("unscale")).Multiplier(s.scale, nil, nil, s.shift, 0)
			}
			return o.at().Named("g."+v.Name).Unscale(v, s.off)
		}
	}
	return v
}
