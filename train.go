package ampc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime"
)

// Loss is an f32 scalar to minimise.
type Loss struct {
	Value  Tensor
	Weight float64 // zero: 1; below zero: the loss is raised
	// Scaler is nil for the config's. Losses with one Scaler share its scale, and
	// in one step a backward sweep. Steps that share it are an iteration: the
	// last one compiled advances the scale, for an overflow in any of them.
	Scaler *Scaler
}

// Config says what to compile a model to. Its zero value trains nothing: Train
// wants an Optimizer or Groups.
type Config struct {
	Optimizer Optimizer // with LR: a last group, over every parameter that no other trains
	LR        Schedule  // learning rate of that group; the zero Schedule is none
	Groups    []Group
	Clip      Clip // over all trained parameters; a Group's is over its own
	GradNorm  bool // compute Result.GradNorm also where nothing is clipped by it

	Policy Policy // zero: f32, no casts
	Scaler Scaler // zero: what the policy wants
	Ranges Ranges // what passes may assume of values: the policy's guard, the place of a score's scale
	NoSkip bool   // let steps that are not finite reach the weights
	// Gradients edits the gradients, unscaled and divided by the count, before
	// they are clipped. It returns one for each parameter it was given.
	Gradients func(u *Update, g []Grad) []Grad
	EMA       float64  // decay of a running average of the parameters, from 0 to below 1; 0: none
	Pad       bool     // zeros fill products up to the multiples that tensor cores want; see Program.Misaligned
	Shadow    bool     // the update writes the weights' low copies too, so that no step begins with casts
	Micro     int      // micro-batches that one Run may take; zero: 1
	BadMicro  BadMicro // what a micro-batch that is not finite does

	// Name tells the training steps of a model apart: it is in the names of the
	// step's counters, rates, moments and averages, and so in checkpoints. One of
	// them may have none. Letters, digits, _ and -. For Infer: the step whose
	// averages are read.
	Name    string
	Outputs []Tensor          // more results, read by Result.Value
	Reduce  map[Tensor]Reduce // what an output of several micro-batches holds
	Grads   []Tensor          // parameters whose gradients are results, read by Result.Grad
	Bind    map[string]int64  // sizes of the model's named dimensions
	Sizes   int               // how many further sizes Step.For keeps compiled; zero: 8
	Seed    int64             // of initial values and random ops; the first compiled step's counts
	Backend runtime.Backend   // nil: the CPU; the first compiled step's counts
	Disable []string          // passes to leave out
	// NoProof leaves out the check that holds the compiled step against the model
	// (ampc prove); it takes less than a tenth of the time that compiling does.
	NoProof bool
	// After is told about every pass, with its counters and the graph as the
	// pass left it; nil in production.
	After func(e passes.Event)

	inherit *passes.Assignment             // of the step whose precision this one takes over
	shared  map[*Scaler]passes.SharedScale // scales that other steps use too
}

// Train compiles a training step with one loss.
func Train(m *Model, loss Tensor, c Config) (*Step, error) {
	return m.Train(c, Loss{Value: loss})
}

// Train compiles a training step. A model may be compiled to any number of
// steps: all run over the same variables and low copies. Each has counters, rates
// and optimiser state of its own, under its Config.Name; For compiles one step for
// several sizes.
func (m *Model) Train(c Config, losses ...Loss) (*Step, error) {
	if err := m.Err(); err != nil {
		return nil, err
	}
	if len(losses) == 0 {
		return nil, fmt.Errorf("train: no loss")
	}
	if c.Sizes < 0 {
		return nil, fmt.Errorf("train: Config.Sizes is %d, want 0 or more", c.Sizes)
	}
	if err := m.asked("train", c, losses); err != nil {
		return nil, err
	}
	defer m.gate.hold()()
	return m.compile(c, losses)
}

// asked refuses what a step is asked for and the model does not have.
func (m *Model) asked(verb string, c Config, losses []Loss) error {
	check := func(what string, t Tensor) error {
		if t.v == nil {
			return &ir.Error{Pos: userLine(), Msg: fmt.Sprintf("%s: %s holds an absent tensor (a zero Tensor)", verb, what)}
		}
		if err := m.b.CheckOwn(verb+": "+what, t.v); err != nil {
			return &ir.Error{Pos: userLine(), Msg: err.Error()}
		}
		return nil
	}
	for _, l := range losses {
		if err := check("a loss", l.Value); err != nil {
			return err
		}
	}
	for _, t := range c.Outputs {
		if err := check("Config.Outputs", t); err != nil {
			return err
		}
	}
	for _, t := range c.Grads {
		if err := check("Config.Grads", t); err != nil {
			return err
		}
	}
	for t := range c.Reduce {
		if err := check("Config.Reduce", t); err != nil {
			return err
		}
		if !slices.Contains(c.Outputs, t) {
			return &ir.Error{Pos: userLine(), Msg: fmt.Sprintf("%s: Config.Reduce speaks of %s, which is not among Config.Outputs", verb, t.v)}
		}
	}
	return nil
}

// Infer compiles the forward pass that computes out. Where Config.EMA is set,
// it reads the running averages that training keeps in place of the parameters.
func (m *Model) Infer(c Config, out ...Tensor) (*Step, error) {
	if err := m.forward(&c, out); err != nil {
		return nil, err
	}
	defer m.gate.hold()()
	return m.compile(c, nil)
}

// forward adds out to what c asks for and refuses what cannot be computed.
func (m *Model) forward(c *Config, out []Tensor) error {
	if err := m.Err(); err != nil {
		return err
	}
	if len(out) == 0 {
		return fmt.Errorf("infer: nothing to compute")
	}
	c.Outputs = append(slices.Clone(out), c.Outputs...)
	return m.asked("infer", *c, nil)
}

// Source returns a copy of the model's graph with the dimensions of c.Bind set,
// and what the compiler is told for c and these losses; no losses means inference.
func (m *Model) Source(c Config, losses ...Loss) (*ir.Graph, passes.Config, error) {
	g, at := m.Graph().CloneMap()
	p := passes.Config{
		Policy: c.Policy, Train: len(losses) > 0, Groups: c.groups(), Clip: c.Clip, Scaler: c.Scaler, NoSkip: c.NoSkip, Name: c.Name, Shared: c.shared,
		Gradients: located(c.Gradients), EMA: c.EMA, Pad: c.Pad, Shadow: c.Shadow, Micro: c.Micro, BadMicro: c.BadMicro, Disable: c.Disable, Prove: !c.NoProof, Ranges: c.Ranges, After: c.After, Inherit: c.inherit,
	}
	for _, l := range losses {
		p.Losses = append(p.Losses, passes.Loss{Value: at[l.Value.v], Weight: l.Weight, Scaler: l.Scaler})
	}
	for _, t := range c.Outputs {
		p.Outputs = append(p.Outputs, passes.Output{Value: at[t.v], Reduce: c.Reduce[t]})
	}
	for _, w := range c.Grads {
		p.Outputs = append(p.Outputs, passes.Output{Kind: passes.OfGradient, Value: at[w.v]})
	}
	if len(c.Bind) == 0 {
		return g, p, nil
	}
	return g, p, g.Bind(c.Bind)
}

// located makes what edits gradients put the user's lines on what it builds.
func located(edit func(u *Update, g []Grad) []Grad) func(b *ir.Builder, g []passes.GradOf) []passes.GradOf {
	if edit == nil {
		return nil
	}
	return func(b *ir.Builder, g []passes.GradOf) []passes.GradOf {
		b.Locate(userLine)
		u := &Update{ops{b}}
		in := make([]Grad, len(g))
		for i, x := range g {
			in[i] = Grad{u.tensor(x.Param), u.tensor(x.Grad)}
		}
		edited := edit(u, in)
		out := make([]passes.GradOf, len(edited))
		for i, x := range edited {
			out[i] = passes.GradOf{Param: x.Param.v, Grad: x.Value.v}
		}
		return out
	}
}

// compile builds a step and registers it with the model's session.
func (m *Model) compile(c Config, losses []Loss) (*Step, error) {
	s, err := m.open(c)
	if err != nil {
		return nil, err
	}
	if err := s.free(c.Name, losses); err != nil {
		return nil, err
	}
	c.shared = s.sharedScales(c.Name, losses)
	step, err := m.loaded(s, c, losses)
	if err != nil {
		return nil, err
	}
	s.steps = append(s.steps, step)
	if len(losses) > 0 {
		s.policies[c.Name] = policyName(c.Policy)
	}
	return step, s.share(step)
}

// loaded builds a step and loads its program. Where a library of the device
// refuses a part, that part is built without it, and the step's notes say so.
func (m *Model) loaded(s *session, c Config, losses []Loss) (*Step, error) {
	var refused []string
	for {
		step, err := m.build(s, c, losses)
		if err != nil {
			return nil, err
		}
		err = s.load(step)
		if err == nil {
			step.notes = append(step.notes, refused...)
			return step, nil
		}
		why, again := runtime.Narrow(s.backend, err)
		if !again {
			return nil, err
		}
		refused = append(refused, why)
	}
}

// build takes a copy of the model through the passes and the lowering.
func (m *Model) build(s *session, c Config, losses []Loss) (*Step, error) {
	g, p, err := m.Source(c, losses...)
	if err != nil {
		return nil, err
	}
	if len(losses) == 0 && c.EMA > 0 {
		if err := s.average(g, c.Name); err != nil {
			return nil, err
		}
	}
	if len(losses) == 0 {
		s.scaled(g)
	}
	p.Caps = s.backend.Target().Caps()
	step := &Step{model: m, config: c, losses: losses, graph: g, turn: newGate()}
	p.Inherit, p.Record = c.inherit, &step.assigned
	step.slots = newSlots(m.tensors(m.Graph().Return), &p, c, losses)
	p.After = func(e passes.Event) {
		step.notes = append(step.notes, e.Notes...)
		if c.After != nil {
			c.After(e)
		}
	}
	if err := passes.Run(g, p); err != nil {
		return nil, err
	}
	dropUnused(g)
	step.program, err = lower.Lower(g, s.backend.Target())
	return step, err
}

// dropUnused removes declarations that nothing in the compiled graph reads: a
// step wants no feed for them.
func dropUnused(g *ir.Graph) {
	used := map[*ir.Value]bool{}
	for _, n := range g.Nodes {
		for _, v := range n.In {
			used[v] = true
		}
		for _, v := range n.Out {
			used[v.Next] = true
		}
	}
	for _, v := range g.Return {
		used[v] = true
	}
	g.Vars = slices.DeleteFunc(g.Vars, func(v *ir.Value) bool { return !used[v] })
}

// Scaled says whether the step scales its loss.
func (s *Step) Scaled() bool {
	return slices.ContainsFunc(s.program.Vars, func(v lower.Var) bool { return v.Role() == ir.RoleScale })
}

// Step is a compiled program over the variables of its model. Calls on a model
// and its steps may come from any goroutine: each waits for the one before. A
// training step that runs already is an error instead (see Run).
type Step struct {
	model   *Model
	config  Config
	losses  []Loss
	graph   *ir.Graph
	program *lower.Program
	exec    runtime.Exec
	slots   slots
	of      *Step   // the step that this is another size of, nil
	sizes   []*Step // that For compiled, the last one asked for at the end
	pending []runtime.Feed
	runs    int
	turn    gate     // who runs a training step or one of its sizes
	last    launched // for Diagnose

	assigned passes.Assignment // how the step stores each value
	notes    []string
}

// Graph returns the compiled graph, for reports; it must not be changed.
func (s *Step) Graph() *ir.Graph { return s.graph }

// Notes returns what the compiler rewrote, clamped or left out, a sentence each:
// a sigmoid before a cross entropy, a mask beyond f16, a loss scale that nothing
// needs.
func (s *Step) Notes() []string { return slices.Clone(s.notes) }

// Program returns what the backend runs, for reports; it must not be changed.
func (s *Step) Program() *lower.Program { return s.program }

// Counters returns what the backend has counted, zero where it does not count.
func (s *Step) Counters() runtime.Counters {
	defer s.model.gate.hold()()
	if c, ok := s.exec.(runtime.Counted); ok {
		return c.Counters()
	}
	return runtime.Counters{}
}

// Profile has the backend report what each step of the Program takes; nil
// ends it. It reports false where the backend cannot.
func (s *Step) Profile(f func(part lower.Part, step int, spent runtime.Spent)) bool {
	defer s.model.gate.hold()()
	p, ok := s.exec.(runtime.Profiled)
	if ok {
		p.Profile(f)
	}
	return ok
}

// Run runs one step over one or more micro-batches and updates the variables
// once. It returns as soon as the step is launched; the Result's accessors wait.
// A training step is run by one goroutine at a time: Run while another runs it
// is an error, as the order of their batches would be chance.
//
// Where ctx ends before the update begins, Run returns its cause and every
// variable is as before; once the update has begun, the step ends as usual. On
// the CPU ctx is looked at between the kernels of the step, so the longest of
// them bounds the wait; a GPU takes a step as a whole.
func (s *Step) Run(ctx context.Context, micro ...Feed) (Result, error) {
	end, err := s.begin(ctx, "run")
	if err != nil {
		return Result{}, err
	}
	defer end()
	if len(s.pending) > 0 {
		return Result{}, fmt.Errorf("run: %d accumulated micro-batches wait for Apply", len(s.pending))
	}
	feeds, err := s.encode(micro)
	if err != nil {
		return Result{}, err
	}
	return s.launch(ctx, feeds)
}

// Accumulate adds a micro-batch to the step that Apply will take; the feed's
// data is copied.
func (s *Step) Accumulate(ctx context.Context, f Feed) error {
	end, err := s.begin(ctx, "accumulate")
	if err != nil {
		return err
	}
	defer end()
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(s.pending) >= max(s.config.Micro, 1) {
		return fmt.Errorf("accumulate: the step was compiled for %d micro-batches, all are there: set Config.Micro", max(s.config.Micro, 1))
	}
	feeds, err := s.encode([]Feed{f})
	if err != nil {
		return err
	}
	if err := runtime.CheckFeeds(s.program, feeds); err != nil {
		return err
	}
	for name, x := range feeds[0] {
		x.Data = slices.Clone(x.Data)
		feeds[0][name] = x
	}
	s.pending = append(s.pending, feeds...)
	return nil
}

// Apply runs the accumulated micro-batches as one step.
func (s *Step) Apply(ctx context.Context) (Result, error) {
	end, err := s.begin(ctx, "apply")
	if err != nil {
		return Result{}, err
	}
	defer end()
	if len(s.pending) == 0 {
		return Result{}, fmt.Errorf("apply: no micro-batch was accumulated")
	}
	if err := ctx.Err(); err != nil { // they wait for another call
		return Result{}, err
	}
	feeds := s.pending
	s.pending = nil
	return s.launch(ctx, feeds)
}

func (s *Step) launch(ctx context.Context, feeds []runtime.Feed) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if len(feeds) > max(s.config.Micro, 1) {
		return Result{}, fmt.Errorf("run: %d micro-batches, the step was compiled for %d: set Config.Micro", len(feeds), max(s.config.Micro, 1))
	}
	if _, ok := s.exec.(runtime.Prompt); ok { // elsewhere the host would wait for the device at every step
		s.last.see()
	}
	t, err := s.exec.Step(ctx, feeds)
	if err != nil {
		return Result{}, err
	}
	s.runs++
	r := Result{step: s, ticket: t, past: new(atomic.Pointer[numbers])}
	s.last.add(feeds, r, s.model.session.launches)
	if len(s.losses) > 0 {
		s.model.session.launches++
	}
	return r, nil
}

// encode turns feeds into the runtime's form; what is missing or unknown is
// left to the runtime's own check.
func (s *Step) encode(micro []Feed) ([]runtime.Feed, error) {
	types := map[string]ir.Type{}
	for _, v := range s.program.Vars {
		if v.Kind == ir.Input {
			types[v.Name] = v.Type
		}
	}
	out := make([]runtime.Feed, len(micro))
	for i, f := range micro {
		out[i] = make(runtime.Feed, len(f))
		for _, name := range slices.Sorted(maps.Keys(f)) {
			t, known := types[name]
			if !known { // an input of the model that this step does not need, or nobody's
				if s.model.isInput(name) {
					continue
				}
				return nil, fmt.Errorf("feed %q: the model has no such input", name)
			}
			data, err := encode(f[name], t)
			if err != nil {
				if len(micro) > 1 {
					return nil, fmt.Errorf("micro-batch %d: feed %q %w%s", i, name, err, s.otherSize(name, elements(f[name])))
				}
				return nil, fmt.Errorf("feed %q %w%s", name, err, s.otherSize(name, elements(f[name])))
			}
			out[i][name] = runtime.Tensor{Type: t, Data: data}
		}
	}
	return out, nil
}

func (m *Model) isInput(name string) bool {
	v := m.Graph().Var(name)
	return v != nil && v.Kind == ir.Input
}

// Eval compiles the forward pass that computes out with the precision that
// this step gives each value, over the same variables and low copies, so that
// its losses are comparable. bind gives sizes to named dimensions.
func (s *Step) Eval(out []Tensor, bind map[string]int64) (*Step, error) {
	c := Config{Policy: s.config.Policy, Pad: s.config.Pad, Bind: s.config.Bind, Disable: s.config.Disable, NoProof: s.config.NoProof, inherit: &s.assigned}
	if bind != nil {
		c.Bind = bind
	}
	defer s.model.gate.hold()()
	if s.exec == nil {
		return nil, errClosed
	}
	if err := s.model.forward(&c, out); err != nil {
		return nil, err
	}
	return s.model.compile(c, nil)
}

// errClosed is the error of a step that Close, its own or the model's, has ended.
var errClosed = errors.New("the step is closed")

// Close releases what the step holds on the backend; the model's variables stay.
// It waits for a call that is running.
func (s *Step) Close() error {
	defer s.model.gate.hold()()
	return s.close()
}

func (s *Step) close() error {
	if s.exec == nil {
		return nil
	}
	for _, r := range s.last.results {
		r.settle()
	}
	err := errors.Join(s.closeSizes(), s.exec.Close())
	s.exec, s.pending, s.last = nil, nil, launched{}
	if m := s.model.session; m != nil {
		err = errors.Join(err, m.forget(s))
	}
	return err
}
