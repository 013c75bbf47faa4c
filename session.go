package ampc

import (
	"errors"
	"fmt"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
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
	vars    []lower.Var // in the store, in order of declaration
	types   map[string]ir.Type
	steps   []*Step
	scales  map[*Scaler]sharedScale // by the losses that name them
	meta    map[string]string
	notes   []string // of the last LoadFile

	policies map[string]string // of the training steps compiled so far, by their names

	launches int64 // of training steps
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
	m.session = &session{backend: b, owned: owned, store: store, seed: m.seed, types: map[string]ir.Type{}, meta: map[string]string{}, scales: map[*Scaler]sharedScale{}, policies: map[string]string{}}
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

// load declares and initialises the step's new variables and loads its program.
func (s *session) load(step *Step) error {
	vars, err := runtime.Variables(step.program)
	if err != nil {
		return err
	}
	var fresh []lower.Var
	for _, v := range vars {
		if t, ok := s.types[v.Name]; !ok {
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
	step.exec, err = s.backend.Load(step.program, s.store)
	return err
}

// initial computes what a variable holds before the first step.
func (s *session) initial(v lower.Var) ([]byte, error) {
	if v.Role() == "seed" {
		return appendInts([]int64{s.seed}, v.Type.DType)
	}
	t, err := eval.InitVar(&ir.Value{Name: v.Name, Type: v.Type, Kind: v.Kind, Init: v.Init, Attr: v.Attr}, s.seed)
	if err != nil {
		return nil, err
	}
	return t.Bytes(), nil
}

func (s *session) write(v lower.Var, data []byte) error { return s.store.Write(v.Name, data) }

func (s *session) read(v lower.Var) ([]byte, error) {
	data := make([]byte, v.Type.Bytes())
	return data, s.store.Read(v.Name, data)
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

// Close releases the model's variables and, where the model was given no
// backend (On), the one that was opened for it. It waits for a call that is
// running. After it, a call that compiles, runs, reads or writes variables is an
// error; a second Close does nothing.
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
func (m *Model) Variable(name string) (Host, error) {
	defer m.gate.hold()()
	return m.now(name)
}

// now is Variable inside the gate.
func (m *Model) now(name string) (Host, error) {
	if m.session == nil {
		return Host{}, fmt.Errorf("variable %q: %w", name, m.idle())
	}
	v, ok := m.session.find(name)
	if !ok {
		return Host{}, fmt.Errorf("no variable %q", name)
	}
	data, err := m.session.read(v)
	return Host{Type{v.Type}, data}, err
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
