package ampc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ampc/internal/casts"
	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/doctor"
)

// Scaled reports whether the step scales its loss.
func (s *Step) Scaled() bool {
	return slices.ContainsFunc(s.program.Vars, func(v lower.Var) bool { return v.Role() == ir.RoleScale })
}

// Step is a compiled program over the variables of its model. Any goroutine may
// call a model and its steps. On the CPU, runs of inference steps go on at the same
// time, as many as the backend has threads; all other calls wait for the one before.
// Running a training step that is already running is an error instead (see Run).
type Step struct {
	model    *Model
	request  // what it was compiled for
	graph    *ir.Graph
	program  *lower.Program
	exec     runtime.Exec
	slots    slots
	of       *Step   // the step that this is another size of, nil
	others   []*Step // sizes that For compiled, the last one asked for at the end
	pending  []runtime.Feed
	runs     int
	met      bool // the ranks have found that they agree
	turn     gate // who runs a training step or one of its sizes
	flight   *flight
	evicted  bool      // closed by For to make room
	last     lastRun   // for Diagnose
	allRanks *ir.Graph // the step of all ranks, made by a Diagnose of several
	kept     *doctor.Kept
	prepared bool // see prepareDiagnosis

	restoring bool // see restoresScale

	assigned passes.Assignment // how the step stores each value
	report   casts.Report      // of the passes
	notes    []string
}

// Graph returns the compiled graph, for reports; it must not be changed.
func (s *Step) Graph() *ir.Graph { return s.graph }

// Notes lists what the compiler rewrote, clamped or left out, one sentence each: a
// sigmoid before a cross entropy, a mask beyond f16, a loss scale that nothing
// needs.
func (s *Step) Notes() []string { return slices.Clone(s.notes) }

// Program returns what the backend runs, for reports; it must not be changed.
func (s *Step) Program() *lower.Program { return s.program }

// Counters returns the backend's counters, which are zero if it does not count.
func (s *Step) Counters() runtime.Counters {
	defer s.model.gate.hold()()
	if c, ok := s.exec.(runtime.Counted); ok {
		return c.Counters()
	}
	return runtime.Counters{}
}

// Profile makes the backend call f with the time of each step of the Program; nil
// turns this off. It returns false if the backend cannot measure.
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
// is an error, as the order of their batches would be chance. An inference step
// serves any number of goroutines: all of them share the weights, and a result is
// there until its Release.
//
// If ctx ends before the update begins, Run returns its cause, and all variables
// are as before. After the update has begun, the step completes. On the CPU, ctx is
// checked between the kernels of the step, so the longest kernel bounds the wait. A
// GPU runs a step as a whole.
func (s *Step) Run(ctx context.Context, micro ...Feed) (*Result, error) {
	s, end, err := s.begin(ctx, "run")
	if err != nil {
		return nil, err
	}
	defer end()
	feeds, err := s.encode(micro)
	if err != nil {
		return nil, err
	}
	done, err := takeCaches(micro)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.launch(ctx, feeds)
}

// Accumulate adds a micro-batch to the step that Apply will run. It copies the
// feed's data. All micro-batches of a step have one size (For).
func (s *Step) Accumulate(ctx context.Context, f Feed) error {
	s, end, err := s.begin(ctx, "accumulate")
	if err != nil {
		return err
	}
	defer end()
	if err := cmp.Or(context.Cause(ctx), s.sizeWaiting()); err != nil {
		return fmt.Errorf("accumulate: %w", err)
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
	s, end, err := s.begin(ctx, "apply")
	if err != nil {
		return nil, err
	}
	defer end()
	if err := s.sizeWaiting(); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	if len(s.pending) == 0 {
		return nil, fmt.Errorf("apply: no micro-batch was accumulated")
	}
	if ctx.Err() != nil { // they wait for another call
		return nil, context.Cause(ctx)
	}
	feeds := s.pending
	s.pending = nil
	return s.launch(ctx, feeds)
}

func (s *Step) launch(ctx context.Context, feeds []runtime.Feed) (*Result, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if len(feeds) > max(s.config.Micro, 1) {
		return nil, fmt.Errorf("run: %d micro-batches, the step was compiled for %d: set TrainConfig.Micro", len(feeds), max(s.config.Micro, 1))
	}
	if of := s.config.Parallel.Slices; of > 0 && len(feeds) != max(s.config.Micro, 1) {
		return nil, fmt.Errorf("run: %d feeds: Parallel.Slices is %d, of which each rank takes %d in one step", len(feeds), of, max(s.config.Micro, 1))
	}
	_, prompt := s.exec.(runtime.Prompt)
	if prompt && !s.concurrent() { // elsewhere the host would wait for the device at every step
		s.last.see()
	}
	if err := s.meet(ctx); err != nil {
		return nil, err
	}
	t, err := s.exec.Step(ctx, feeds)
	if err != nil {
		return nil, err
	}
	r := &Result{step: s, future: t, prompt: prompt}
	s.flight.noting.Lock()
	defer s.flight.noting.Unlock()
	s.runs++
	if hasCaches(s.program) { // which go on: nothing is replayed
		feeds = nil
	}
	s.last.add(feeds, r, s.model.session.launches.Load())
	if len(s.losses) > 0 {
		s.model.session.launches.Add(1)
	}
	if s.restoring {
		if err := s.restoreAfter(ctx, r); err != nil && s.restore == RestoreAlways {
			return nil, fmt.Errorf("run: the step was skipped; TrainConfig.RestoreScale: %w", err)
		}
	}
	s.prepareDiagnosis(r)
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
			if c, is := f[name].(*Cache); is && !known {
				if err := c.addTo(out[i], s); err != nil {
					return nil, fmt.Errorf("feed %q %w", name, err)
				}
				continue
			}
			if !known { // an input of the model that this step does not need, or no input
				if s.model.isInput(name) {
					continue
				}
				return nil, fmt.Errorf("feed %q: the model has no such input; the step reads %s", name, strings.Join(slices.Sorted(maps.Keys(types)), ", "))
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

// Close frees the step's memory on the backend, but not the model's variables. It
// waits for calls that are running.
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
	s.flight.Wait()
	for _, r := range s.last.results {
		r.settle()
	}
	err := errors.Join(s.closeSizes(), s.exec.Close())
	s.exec, s.pending, s.last, s.kept = nil, nil, lastRun{}, nil
	if m := s.model.session; m != nil {
		err = errors.Join(err, m.forget(s))
	}
	return err
}

// keptSizes is how many further sizes a step keeps where KeepSizes is 0.
const keptSizes = 8

// For returns the step for other sizes of the model's named dimensions: a short
// last batch, a longer sequence. sizes holds those that differ from the config's.
// It is the same step: counters, learning rates, loss scale, moments and averages
// are one. The first call for some sizes compiles them. A step keeps KeepSizes
// of them beside its own and closes the one that was asked for longest ago, so ask
// before each Run instead of keeping what For returned. (Run of an inference step
// that was closed to make room compiles it again.) Closing the step closes them all.
func (s *Step) For(sizes Sizes) (*Step, error) {
	if s.of != nil {
		s = s.of
	}
	defer s.model.gate.hold()()
	return s.ofSizes(sizes)
}

// ofSizes is For inside the gate, of the step that has the config's sizes.
func (s *Step) ofSizes(sizes Sizes) (*Step, error) {
	if s.exec == nil {
		return nil, errClosed
	}
	r := s.request
	r.sizes = Sizes{}
	maps.Copy(r.sizes, s.sizes)
	maps.Copy(r.sizes, sizes)
	if maps.Equal(r.sizes, s.sizes) {
		return s, nil
	}
	for i, other := range s.others {
		if maps.Equal(other.sizes, r.sizes) {
			s.others = append(slices.Delete(s.others, i, i+1), other)
			return other, nil
		}
	}
	other, err := s.model.session.compile(s.model, r)
	if err != nil {
		return nil, fmt.Errorf("for %s: %w", r.sizes, err)
	}
	other.of = s
	s.others = append(s.others, other)
	oldest := slices.IndexFunc(s.others, func(x *Step) bool { return len(x.pending) == 0 })
	if len(s.others) <= cmp.Or(s.keep, keptSizes) || s.others[oldest] == other {
		return other, nil
	}
	s.others[oldest].evicted = true
	return other, s.others[oldest].close()
}

// sizeWaiting is an error where micro-batches of another size of the step wait for Apply.
func (s *Step) sizeWaiting() error {
	first := cmp.Or(s.of, s)
	for _, x := range append([]*Step{first}, first.others...) {
		if x != s && len(x.pending) > 0 {
			return fmt.Errorf("%d accumulated micro-batches of another size (%s) wait for Apply: all micro-batches of a step have one size", len(x.pending), x.sizes)
		}
	}
	return nil
}

// again returns a closed step as it is now compiled: an inference step that For closed to make room
// is compiled again. Between its For and its Run any number of goroutines may have asked for other
// sizes, so this happens inside the gate that the run begins in.
func (s *Step) again() (*Step, error) {
	if !s.evicted || len(s.losses) > 0 {
		return nil, errClosed
	}
	return s.of.ofSizes(s.sizes)
}

// String lists the sizes in order of name: "N=3 T=128".
func (z Sizes) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(z)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, z[name]))
	}
	return strings.Join(parts, " ")
}

// closeSizes closes the sizes that For compiled.
func (s *Step) closeSizes() error {
	var err error
	for len(s.others) > 0 {
		err = errors.Join(err, s.others[0].close())
	}
	return err
}

// forget takes a closed step out of the session, and with it the accumulators
// that no other step has: they depend on sizes and hold nothing between steps.
func (s *session) forget(step *Step) error {
	if of := step.of; of != nil {
		of.others = slices.DeleteFunc(of.others, func(x *Step) bool { return x == step })
	}
	s.steps = slices.DeleteFunc(s.steps, func(x *Step) bool { return x == step })
	for scaler, shared := range s.scales {
		if shared.last == step {
			shared.last = nil
			s.scales[scaler] = shared
		}
	}
	used := map[string]bool{}
	for _, other := range s.steps {
		for _, x := range append(slices.Clone(other.others), other) {
			for _, v := range x.program.Vars {
				used[v.Name] = true
			}
		}
	}
	gone := map[string]bool{}
	var names []string
	for _, v := range step.program.Vars {
		if v.Role() == "acc" && !used[v.Name] && !gone[v.Name] {
			gone[v.Name], names = true, append(names, v.Name)
			delete(s.types, v.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	s.vars = slices.DeleteFunc(s.vars, func(v lower.Var) bool { return gone[v.Name] })
	return s.store.Drop(names...)
}

// otherSize names For where what was fed for an input would fit another size of
// the model's named dimensions; "" elsewhere. n is the number of elements.
func (s *Step) otherSize(input string, n int64) string {
	v := s.model.Graph().Var(input)
	if v == nil || n <= 0 {
		return ""
	}
	name, rest := "", int64(1)
	for _, d := range v.Type.Shape.Dims() {
		switch {
		case d >= 0:
			rest *= int64(d)
		case name != "":
			return "; for other sizes of the named dimensions take the step that Step.For returns"
		default:
			name = s.model.Graph().Syms[-d-1].Name
		}
	}
	if name == "" || rest == 0 || n%rest != 0 || n/rest == s.sizes[Dim(name)] { // it has this size, in another shape
		return ""
	}
	return fmt.Sprintf("; for %s=%d take step.For(ampc.Sizes{%q: %d}), with all micro-batches of that size", name, n/rest, name, n/rest)
}
