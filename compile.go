package ampc

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/doctor"
	"ampc/world"
)

// request is what a step is compiled for. It goes down one way: the facade makes
// it of the public configuration, the session adds what it knows, passes and
// lowering make a program of it, the backend loads that.
type request struct {
	config   passes.Config // in terms of the model's own graph
	losses   []Loss        // none: inference
	outputs  []Tensor
	grads    []Tensor
	gradNorm bool
	restore  RestoreScale
	world    world.World // nil: one rank
	sizes    Sizes
	batch    int64 // replaces the inputs' common first size where that is a number; 0: as written
	keep     int

	weights  Weights
	averages string // of EMA: the step whose averages are read
	eval     *Step  // whose precision is taken over, nil
}

// compile compiles and registers a step.
func (m *Model) compile(r request) (*Step, error) {
	defer m.gate.hold()()
	if r.eval != nil && r.eval.exec == nil {
		return nil, errClosed
	}
	s, err := m.open()
	if err != nil {
		return nil, err
	}
	if len(r.losses) > 0 {
		if err := s.free(r.config.Name); err != nil {
			return nil, err
		}
		r.config.Shared = s.sharedScales(r)
	}
	step, err := s.compile(m, r)
	if err != nil {
		return nil, err
	}
	s.steps = append(s.steps, step)
	if len(r.losses) > 0 {
		s.policies[r.config.Name] = policyName(r.config.Policy)
	}
	return step, s.share(step)
}

// compile makes a step and loads its program. Where a library of the device
// refuses a part, the step is lowered again without it, and its notes say so.
func (s *session) compile(m *Model, r request) (*Step, error) {
	k, err := s.known(r)
	if err != nil {
		return nil, err
	}
	if r.config.Memory == FitMemory {
		if r.config.Memory, err = s.room(); err != nil {
			return nil, err
		}
	}
	var refused []string
	for {
		step, err := m.translate(r, k, s.backend.Target())
		if err != nil {
			return nil, err
		}
		if err = s.load(step); err == nil {
			step.notes = append(step.notes, refused...)
			return step, nil
		}
		why, again := runtime.FallBack(s.backend, err)
		if !again {
			return nil, s.largest(m, r, k, err)
		}
		refused = append(refused, why)
	}
}

// room is the memory for a program and its variables: what is left, and what those that
// are there have.
func (s *session) room() (int64, error) {
	b, ok := s.backend.(runtime.Bounded)
	if !ok {
		return 0, located(fmt.Errorf("train: TrainConfig.Memory is FitMemory, and %s does not say how much memory it has: give bytes", s.backend.Name()))
	}
	n, err := b.Room()
	for _, v := range s.vars {
		t := v.Type
		if p := s.parts[v.Name]; p != nil && p.asOf < 0 {
			t = p.part.Type
		}
		n += min(t.Bytes(), math.MaxInt64-n)
	}
	return n, err
}

// translate takes a copy of the model through the passes and the lowering. It
// reads nothing of the session but k.
func (m *Model) translate(r request, k known, target lower.Target) (*Step, error) {
	g, p, err := m.bound(r.config, r.sizes)
	if err == nil && r.batch > 0 {
		err = g.Rebatch(r.batch)
	}
	if err != nil {
		return nil, err
	}
	if len(r.losses) == 0 {
		k.read(g)
	}
	step := &Step{model: m, request: r, graph: g, turn: newGate(), flight: &flight{}, kept: new(doctor.Kept), notes: slices.Clone(m.notes)}
	step.slots = newSlots(m.tensors(m.Graph().Return), &p, r)
	p.Caps, p.Record, p.Peak = target.Caps(), &step.assigned, lower.Peak(target)
	p.After = func(e passes.Event) {
		step.notes = append(step.notes, e.Notes...)
		step.report.After(e.Counters, e.Notes)
		if r.config.After != nil {
			r.config.After(e)
		}
	}
	if err := passes.Run(g, p); err != nil {
		return nil, sized(err)
	}
	g.DropUnused()
	program := lower.Lower
	if !p.Prove {
		program = lower.Unverified
	}
	if step.program, err = program(g, target); err != nil {
		return nil, sized(err)
	}
	return step, nil
}

// bound returns a copy of the model's graph with its dimensions bound, and p for it.
func (m *Model) bound(p passes.Config, sizes Sizes) (*ir.Graph, passes.Config, error) {
	g, at := m.Graph().CloneMap()
	p = p.On(at)
	if len(sizes) == 0 {
		return g, p, nil
	}
	return g, p, g.Bind(sizes.bound())
}

// sized adds to an error about dimensions without sizes where to give these.
func sized(err error) error {
	var e *ir.Error
	if !errors.As(err, &e) || len(e.Unsized) == 0 {
		return err
	}
	var list []string
	for _, name := range e.Unsized {
		list = append(list, fmt.Sprintf("%q: 64", name))
	}
	return fmt.Errorf("%w: give %s in Sizes: ampc.Sizes{%s}", err, e.ItOrThem(), strings.Join(list, ", "))
}

// Source returns a copy of the model's graph with the dimensions of c.Sizes bound,
// and the compiler's configuration that Train makes of c and these losses (none: of
// inference). It is for tools that run the compiler's passes themselves.
func (m *Model) Source(c TrainConfig, losses ...Loss) (*ir.Graph, passes.Config, error) {
	p, err := c.compiler(losses)
	p.Checkpoints = slices.Clone(m.kept)
	if err != nil {
		return nil, p, err
	}
	return m.bound(p, c.Sizes)
}

// known is what the session tells an inference step about its variables.
type known struct {
	averages map[string]string  // in place of parameters, by parameter
	types    map[string]ir.Type // of the variables in the store
}

// known gathers what r reads of the session.
func (s *session) known(r request) (known, error) {
	k := known{types: s.types}
	if r.weights != EMA {
		return k, nil
	}
	k.averages = map[string]string{}
	var steps []string // that keep averages
	for _, v := range s.vars {
		n, ok := passes.ParseStateName(v.Name)
		if !ok || v.Role() != "ema" {
			continue
		}
		steps = append(steps, n.Step)
		if r.averages != "" && n.Step != r.averages {
			continue
		}
		if first, two := k.averages[n.Of]; two {
			return k, fmt.Errorf("infer: %s has two averages, %s and %s: say in InferConfig.Step whose to read", n.Of, first, v.Name)
		}
		k.averages[n.Of] = v.Name
	}
	if len(k.averages) == 0 {
		return k, noAverages(r.averages, steps)
	}
	return k, nil
}

// noAverages is the error of an inference step that is to read the averages of
// the step with this name, "" for any; have names the steps that keep some.
func noAverages(name string, have []string) error {
	const add = "compile Train with TrainConfig.EMA first, and load a checkpoint after that"
	switch {
	case name == "":
		return located(fmt.Errorf("infer: InferConfig.Weights is EMA and no training step keeps averages: %s", add))
	case len(have) == 0:
		return located(fmt.Errorf("infer: InferConfig.Step is %q and no training step keeps averages: %s", name, add))
	}
	slices.Sort(have)
	return located(fmt.Errorf("infer: InferConfig.Step is %q, which keeps no averages: steps that do are %q", name, slices.Compact(have)))
}

// read makes g, which trains nothing, read the averages in place of their
// parameters, and the scales of gradients inside the forward pass that training has
// brought.
func (k known) read(g *ir.Graph) {
	for _, v := range g.Vars {
		if _, ok := k.types[v.Name]; ok && v.Kind == ir.Const && ir.InnerScale(v) {
			v.Kind, v.Attr = ir.State, v.Attr.With("sweep", ir.InnerSweep)
		}
		if average := k.averages[v.Name]; average != "" && v.Kind == ir.Param {
			v.Name, v.Kind = average, ir.State
		}
	}
}

// slots are the places of a step's results among the outputs of its program,
// settled before the first pass: whatever values are called, a result is found
// by its place. -1 stands for what the step does not compute.
type slots struct {
	values map[Tensor]int // losses and outputs
	grads  map[Tensor]int // TrainConfig.Grads, by the parameter
	losses []int
	made   [passes.OfRate + 1]int // what the compiler makes, by kind
}

// newSlots asks the compiler for a step's results, of which the model itself
// returns the first.
func newSlots(returned []Tensor, p *passes.Config, r request) slots {
	s := slots{values: map[Tensor]int{}, grads: map[Tensor]int{}}
	for i := range s.made {
		s.made[i] = -1
	}
	asked := p.Outputs // one for each output, one for each gradient
	p.Outputs = nil
	place := func(o passes.Output) int {
		p.Outputs = append(p.Outputs, o)
		return len(returned) + len(p.Outputs) - 1
	}
	for i, t := range returned {
		s.values[t] = i
	}
	for i, l := range r.losses {
		at := place(passes.Output{Value: p.Losses[i].Value})
		s.losses, s.values[l.Value] = append(s.losses, at), at
	}
	for _, kind := range kinds(p, r.gradNorm) {
		s.made[kind] = place(passes.Output{Kind: kind})
	}
	for i, t := range r.outputs {
		s.values[t] = place(asked[i])
	}
	for i, w := range r.grads {
		s.grads[w] = place(asked[len(r.outputs)+i])
	}
	return s
}

// kinds lists what the compiler makes for a training step; norm asks for the norm
// of all gradients, which clipping by it brings without.
func kinds(p *passes.Config, norm bool) []passes.ResultKind {
	if !p.Train {
		return nil
	}
	out := []passes.ResultKind{passes.OfScale, passes.OfRate}
	if !p.NoSkip {
		out = append(out, passes.OfSkip)
	}
	clipped := norm || p.Clip.Norm > 0
	for _, g := range p.Groups {
		clipped = clipped || g.Clip.Norm > 0
	}
	if clipped {
		out = append(out, passes.OfGradNorm)
	}
	return out
}
