package ampc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// session is a model at run time: one backend, one store of variables, and
// the steps compiled over them.
type session struct {
	backend runtime.Backend
	owned   bool // opened here, so closed here
	store   runtime.Store
	seed    int64
	fed     int         // see Fed
	vars    []lower.Var // in the store, in order of declaration
	types   map[string]ir.Type
	steps   []*Step
	scales  map[*Scaler]sharedScale // by the losses that name them
	meta    map[string]string
	notes   []string            // of the last LoadFile
	parts   map[string]*sharded // by the name of the whole, which vars has

	policies map[string]string // of the training steps compiled so far, by their names

	launches atomic.Int64 // of training steps; inference steps read it at the same time
}

// open returns the model's session, starting it with the first compiled step.
func (m *Model) open() (*session, error) {
	if m.ended {
		return nil, errModelClosed
	}
	if m.session != nil {
		return m.session, nil
	}
	b, owned := m.backend, m.backend == nil
	if owned {
		var err error
		if b, err = cpu.Open(0); err != nil {
			return nil, err
		}
	}
	store, err := b.NewStore(nil)
	if err != nil {
		return nil, err
	}
	m.session = &session{backend: b, owned: owned, store: store, seed: m.seed, fed: m.fed, types: map[string]ir.Type{}, meta: map[string]string{}, scales: map[*Scaler]sharedScale{}, policies: map[string]string{}, parts: map[string]*sharded{}}
	return m.session, nil
}

// free says whether a training step may be called name: two that are there at
// once have two names, for their states stand under them.
func (s *session) free(name string) error {
	for _, step := range s.steps {
		if len(step.losses) == 0 || step.config.Name != name {
			continue
		}
		if name == "" {
			return &ir.Error{Pos: userLine(), Msg: "train: the model has a training step already: give this one a TrainConfig.Name, under which its counters, rates and moments stand; the same step for other sizes is Step.For"}
		}
		return &ir.Error{Pos: userLine(), Msg: fmt.Sprintf("train: the model has a training step %q already: choose another TrainConfig.Name, or close that one; the same step for other sizes is Step.For", name)}
	}
	return nil
}

// load declares and initializes the step's new variables and loads its program.
func (s *session) load(step *Step) error {
	vars, err := runtime.Variables(step.program)
	if err != nil {
		return err
	}
	var fresh []lower.Var
	for _, v := range vars {
		if whole, part := wholeOf(v); part {
			if err := s.addPart(v, whole, step.world); err != nil {
				return err
			}
		} else if s.parts[v.Name] != nil {
			if err := s.readsWhole(v, step); err != nil {
				return err
			}
		} else if t, ok := s.types[v.Name]; !ok {
			fresh = append(fresh, v)
		} else if t != v.Type {
			return fmt.Errorf("variable %q is %s in this step and %s in an earlier one", v.Name, v.Type, t)
		}
	}
	if err := s.store.Declare(fresh); err != nil {
		return err
	}
	for _, v := range fresh {
		data, err := s.initial(v)
		if err != nil {
			return err
		}
		if err := s.store.Write(v.Name, data); err != nil {
			return err
		}
		s.types[v.Name] = v.Type
	}
	s.vars = append(s.vars, fresh...)
	if b, ok := s.backend.(runtime.Sized); ok {
		b.Fed(max(s.fed, step.config.Micro))
	}
	if step.exec, err = s.backend.Load(step.program, s.store); err != nil {
		return err
	}
	step.restoring = step.restoresScale()
	step.prepareFirst()
	if err := step.diagnoseDropped(); err != nil {
		return errors.Join(err, step.exec.Close())
	}
	return s.join(step)
}

// initial computes what a variable holds before the first step.
func (s *session) initial(v lower.Var) ([]byte, error) {
	if v.Role() == "seed" {
		return appendInts([]int64{s.seed}, v.Type.DType)
	}
	if v.Init != nil && v.Init.Func == "file" && v.Init.Size == v.Type.Bytes() {
		return fileSlice(v.Init)
	}
	t, err := eval.InitVar(&ir.Value{Name: v.Name, Type: v.Type, Kind: v.Kind, Init: v.Init, Attr: v.Attr}, s.seed)
	if err != nil {
		return nil, err
	}
	return t.Bytes(), nil
}

func (s *session) write(v lower.Var, data []byte) error {
	p := s.parts[v.Name]
	if p == nil {
		return s.store.Write(v.Name, data)
	}
	if p.asOf >= 0 {
		p.asOf = s.launches.Load()
		if err := s.store.Write(v.Name, data); err != nil {
			return err
		}
	}
	return p.write(s.store, data)
}

// read returns what a variable holds. Of one that is sharded, it is a call of all ranks unless
// an evaluation has brought its parts together since the last training step.
func (s *session) read(v lower.Var) ([]byte, error) {
	if p := s.parts[v.Name]; p != nil && p.asOf != s.launches.Load() {
		return s.gather(context.Background(), v.Name, v.Type.Bytes())
	}
	data := make([]byte, v.Type.Bytes())
	return data, s.store.Read(v.Name, data)
}

// show is read without a copy where the store lies in this process's memory: good
// until the next step or write, and until its Release.
func (s *session) show(v lower.Var) (runtime.Shown, error) {
	if lies, ok := s.store.(runtime.Viewer); ok && s.parts[v.Name] == nil {
		return lies.View(v.Name)
	}
	data, err := s.read(v)
	return runtime.NewShown(data, nil), err
}

// find returns a variable of the store.
func (s *session) find(name string) (lower.Var, bool) {
	for _, v := range s.vars {
		if v.Name == name {
			return v, true
		}
	}
	return lower.Var{}, false
}

// Close releases the model's variables and, if the model was made without On, its
// backend. It waits for calls that are running. Later calls that compile, run, or
// read or write variables are errors; a second Close does nothing.
func (m *Model) Close() error {
	defer m.gate.hold()()
	m.ended = true
	s := m.session
	if s == nil {
		return nil
	}
	for len(s.steps) > 0 {
		if err := s.steps[0].close(); err != nil {
			return err
		}
	}
	m.session = nil
	if err := s.store.Close(); err != nil || !s.owned {
		return err
	}
	return s.backend.Close()
}

// errModelClosed is the error of a model that Close has ended.
var errModelClosed = errors.New("the model is closed")

// idle is the error of a model without a session: it says why there is none.
func (m *Model) idle() error {
	if m.ended {
		return errModelClosed
	}
	return errors.New("no step is compiled yet")
}

// Variable reads a parameter or state by its full name, as it is now.
func (m *Model) Variable(name string) (HostTensor, error) {
	defer m.gate.hold()()
	return m.now(name)
}

// now is Variable inside the gate.
func (m *Model) now(name string) (HostTensor, error) {
	if m.session == nil {
		return HostTensor{}, fmt.Errorf("variable %q: %w", name, m.idle())
	}
	v, ok := m.session.find(name)
	if !ok {
		return HostTensor{}, fmt.Errorf("no variable %q", name)
	}
	data, err := m.session.read(v)
	return HostTensor{Type{v.Type}, data}, err
}

// SetVariable overwrites a parameter or state. value takes the forms a Feed takes.
func (m *Model) SetVariable(name string, value any) error {
	defer m.gate.hold()()
	if m.session == nil {
		return fmt.Errorf("variable %q: %w", name, m.idle())
	}
	v, ok := m.session.find(name)
	if !ok {
		return fmt.Errorf("no variable %q", name)
	}
	data, err := encode(value, v.Type)
	if err != nil {
		return fmt.Errorf("variable %q %w", name, err)
	}
	if err := checkScale(v, data); err != nil {
		return err
	}
	return m.session.write(v, data)
}

// Variables lists the names of all parameters and states in the store.
func (m *Model) Variables() []string {
	defer m.gate.hold()()
	if m.session == nil {
		return nil
	}
	names := make([]string, len(m.session.vars))
	for i, v := range m.session.vars {
		names[i] = v.Name
	}
	return names
}

// gate lets one call at a time at what the steps of a model share: the session,
// its variables, and what a step keeps between runs.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

// enter waits for the gate, or for the end of ctx.
func (g gate) enter(ctx context.Context) error {
	if g.try() {
		return nil
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try enters unless another call is inside.
func (g gate) try() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

// hold waits for the gate and returns what opens it again: `defer g.hold()()`.
func (g gate) hold() func() {
	g <- struct{}{}
	return g.leave
}

func (g gate) leave() { <-g }

// flight is the runs of an inference step that are on their way.
type flight struct {
	sync.WaitGroup            // joined inside the model's gate, so that nothing joins while Close waits
	noting         sync.Mutex // of what Step notes of the last runs
}

// concurrent reports whether runs of the step run at the same time.
func (s *Step) concurrent() bool {
	c, ok := s.exec.(runtime.Concurrent)
	return ok && c.Concurrent()
}

// begin lets one call at a time run the step. A training step that another
// goroutine is running is an error, since the order of its batches would be
// chance. Runs of inference steps leave the gate, and wait for each other only
// where the backend does not run them at the same time. running is the step, or
// what was compiled in its place.
func (s *Step) begin(ctx context.Context, call string) (running *Step, end func(), err error) {
	root := s
	if s.of != nil {
		root = s.of
	}
	gate := s.model.gate
	leave := gate.leave
	if len(s.losses) > 0 {
		if !root.turn.try() {
			return nil, nil, fmt.Errorf("%s: another goroutine is running this training step: call it from one goroutine at a time", call)
		}
		leave = func() {
			gate.leave()
			root.turn.leave()
		}
	}
	if err := gate.enter(ctx); err != nil {
		if len(s.losses) > 0 {
			root.turn.leave()
		}
		return nil, nil, fmt.Errorf("%s: %w", call, err)
	}
	if s.exec == nil {
		if s, err = s.again(); err != nil {
			leave()
			return nil, nil, err
		}
	}
	if call != "run" {
		return s, leave, nil
	}
	if len(s.pending) > 0 {
		leave()
		return nil, nil, fmt.Errorf("run: %d accumulated micro-batches wait for Apply", len(s.pending))
	}
	if err := s.sizeWaiting(); err != nil {
		leave()
		return nil, nil, fmt.Errorf("run: %w", err)
	}
	if err := s.model.session.refresh(ctx, s); err != nil {
		leave()
		return nil, nil, err
	}
	if s.concurrent() {
		s.flight.Add(1)
		leave()
		return s, s.flight.Done, nil
	}
	return s, leave, nil
}

// sharedScale is a loss scale that losses name by its Scaler.
type sharedScale struct {
	passes.SharedScale
	last *Step // compiled last of those that use it: the one that advances it
}

// sharedScales names the scales of a new step's own scalers. Those that earlier
// steps have, the new one is to advance in their place.
func (s *session) sharedScales(r request) map[*passes.Scaler]passes.SharedScale {
	uses := map[*passes.Scaler]passes.SharedScale{}
	named := map[string]bool{}
	for i, l := range r.losses {
		scaler := r.config.Losses[i].Scaler
		if _, again := uses[scaler]; again || scaler == nil {
			continue
		}
		name := l.Value.Name()
		use := passes.SharedScale{Step: r.config.Name, Of: name}
		if old, ok := s.scales[l.Scaler]; ok {
			use = old.SharedScale
			use.Part = passes.Advance
		}
		for k := 2; use.Part == passes.Alone && named[use.Of]; k++ {
			use.Of = fmt.Sprintf("%s_%d", name, k)
		}
		uses[scaler], named[use.Of] = use, true
	}
	return uses
}

// share makes step the one that advances the scales of its losses. A step that
// did so before now notes its overflows for this one.
func (s *session) share(step *Step) error {
	for i, l := range step.losses {
		old := s.scales[l.Scaler].last
		if l.Scaler == nil || old == step {
			continue
		}
		if old != nil && old.exec != nil {
			if err := s.collect(old, l.Scaler); err != nil {
				return err
			}
		}
		s.scales[l.Scaler] = sharedScale{step.config.Shared[step.config.Losses[i].Scaler], step}
	}
	return nil
}

// collect compiles a step again, to note what it finds out about a scale for
// the step that advances it.
func (s *session) collect(old *Step, scaler *Scaler) error {
	r := old.request
	r.config.Shared = maps.Clone(r.config.Shared)
	for i, l := range r.losses {
		if l.Scaler == scaler {
			use := r.config.Shared[r.config.Losses[i].Scaler]
			use.Part = passes.Collect
			r.config.Shared[r.config.Losses[i].Scaler] = use
		}
	}
	step, err := s.compile(old.model, r)
	if err != nil {
		return err
	}
	if err := old.closeSizes(); err != nil { // what they do with the scale changes as well
		return err
	}
	for _, r := range old.last.results {
		r.settle()
	}
	step.pending, step.runs, step.turn = old.pending, old.runs, old.turn
	err = old.exec.Close()
	*old = *step
	return err
}
