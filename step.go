package ampc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ampc/internal/casts"
	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime"
)

// Scaled says whether the step scales its loss.
func (s *Step) Scaled() bool {
	return slices.ContainsFunc(s.program.Vars, func(v lower.Var) bool { return v.Role() == ir.RoleScale })
}

// Step is a compiled program over the variables of its model. Calls on a model
// and its steps may come from any goroutine: each waits for the one before. A
// training step that runs already is an error instead (see Run).
type Step struct {
	model   *Model
	request // what it was compiled for
	graph   *ir.Graph
	program *lower.Program
	exec    runtime.Exec
	slots   slots
	of      *Step   // the step that this is another size of, nil
	others  []*Step // sizes that For compiled, the last one asked for at the end
	pending []runtime.Feed
	runs    int
	turn    gate    // who runs a training step or one of its sizes
	last    lastRun // for Diagnose

	assigned passes.Assignment // how the step stores each value
	report   casts.Report      // of the passes
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
func (s *Step) Profile(f func(part lower.Part, step int, timing runtime.Timing)) bool {
	defer s.model.gate.hold()()
	p, ok := s.exec.(runtime.Profiled)
	if ok {
		p.Profile(f)
	}
	return ok
}

// Run runs one step over one or more micro-batches and updates the variables
// once. It returns as soon as the step is launched; Result.Wait waits.
// A training step is run by one goroutine at a time: Run while another runs it
// is an error, as the order of their batches would be chance.
//
// Where ctx ends before the update begins, Run returns its cause and every
// variable is as before; once the update has begun, the step ends as usual. On
// the CPU ctx is looked at between the kernels of the step, so the longest of
// them bounds the wait; a GPU takes a step as a whole.
func (s *Step) Run(ctx context.Context, micro ...Feed) (*Result, error) {
	end, err := s.begin(ctx, "run")
	if err != nil {
		return nil, err
	}
	defer end()
	if len(s.pending) > 0 {
		return nil, fmt.Errorf("run: %d accumulated micro-batches wait for Apply", len(s.pending))
	}
	feeds, err := s.encode(micro)
	if err != nil {
		return nil, err
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
		return fmt.Errorf("accumulate: the step was compiled for %d micro-batches, all are there: set TrainConfig.Micro", max(s.config.Micro, 1))
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
func (s *Step) Apply(ctx context.Context) (*Result, error) {
	end, err := s.begin(ctx, "apply")
	if err != nil {
		return nil, err
	}
	defer end()
	if len(s.pending) == 0 {
		return nil, fmt.Errorf("apply: no micro-batch was accumulated")
	}
	if err := ctx.Err(); err != nil { // they wait for another call
		return nil, err
	}
	feeds := s.pending
	s.pending = nil
	return s.launch(ctx, feeds)
}

func (s *Step) launch(ctx context.Context, feeds []runtime.Feed) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(feeds) > max(s.config.Micro, 1) {
		return nil, fmt.Errorf("run: %d micro-batches, the step was compiled for %d: set TrainConfig.Micro", len(feeds), max(s.config.Micro, 1))
	}
	_, prompt := s.exec.(runtime.Prompt)
	if prompt { // elsewhere the host would wait for the device at every step
		s.last.see()
	}
	t, err := s.exec.Step(ctx, feeds)
	if err != nil {
		return nil, err
	}
	s.runs++
	r := &Result{step: s, future: t, prompt: prompt}
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
				if errors.As(err, new(sizeError)) {
					err = fmt.Errorf("%w%s", err, s.otherSize(name, elements(f[name])))
				}
				err = fmt.Errorf("feed %q %w", name, err)
				if len(micro) > 1 {
					err = fmt.Errorf("micro-batch %d: %w", i, err)
				}
				return nil, err
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

// errClosed is the error of a step that Close, its own or the model's, has ended.
var errClosed = errors.New("the step is closed")

// Close releases what the step holds on the backend; the model's variables stay.
// It waits for a call that is running.
func (s *Step) Close() error {
	defer s.model.gate.hold()()
	return s.close()
}

func (s *Step) closed() bool {
	defer s.model.gate.hold()()
	return s.exec == nil
}

func (s *Step) close() error {
	if s.exec == nil {
		return nil
	}
	for _, r := range s.last.results {
		r.settle()
	}
	err := errors.Join(s.closeSizes(), s.exec.Close())
	s.exec, s.pending, s.last = nil, nil, lastRun{}
	if m := s.model.session; m != nil {
		err = errors.Join(err, m.forget(s))
	}
	return err
}
