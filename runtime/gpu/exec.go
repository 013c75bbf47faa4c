package gpu

import (
	"errors"
	"fmt"

	"ampc/cuda"
	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
	"ampc/runtime"
)

// call issues one step on a stream.
type call func(s cuda.Stream) error

// exec is a loaded Program: every step bound to its addresses.
type exec struct {
	b       *Backend
	p       *lower.Program
	at      []cuda.Ptr // by buffer
	owned   []cuda.Ptr
	modules []cuda.Module
	plans   []cuda.BlasPlan
	steps   [lower.NumParts][]bound

	inputs []input
	micro  cuda.Ptr // the input that holds the micro-batch index, 0 where there is none
	stage  []stage  // page-locked copies of the feeds, one after the other in use
	ring   [runtime.RingSize][]cuda.Ptr
	seq    int64
	count  runtime.Counters
}

type bound struct {
	name string
	run  call
}

type input struct {
	name string
	t    ir.Type
	at   cuda.Ptr
}

// stage is host memory that a step's inputs are copied from. It may be used
// again when the event is reached.
type stage struct {
	mem  []byte
	free cuda.Event
}

// Load implements runtime.Backend.
func (b *Backend) Load(p *lower.Program, s runtime.Store) (runtime.Exec, error) {
	st, ok := s.(*store)
	if !ok || st.b != b {
		return nil, fmt.Errorf("%s: the store belongs to another backend", b.name)
	}
	e := &exec{b: b, p: p, at: make([]cuda.Ptr, len(p.Buffers))}
	err := b.do(func() error {
		err := e.load(st)
		if err != nil {
			err = errors.Join(err, e.free())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", b.name, p.Name, err)
	}
	return e, nil
}

func (e *exec) load(s *store) error {
	if err := e.bind(s); err != nil {
		return err
	}
	functions, err := e.loadModules()
	if err != nil {
		return err
	}
	for part := range lower.NumParts {
		for i := range e.p.Parts[part] {
			st := &e.p.Parts[part][i]
			run, err := e.compile(st, functions)
			if err != nil {
				return fmt.Errorf("%s %s: %w", st.Kind, st.Node.Name, err)
			}
			e.steps[part] = append(e.steps[part], bound{fmt.Sprintf("%s step %d (%s %s)", part, i, st.Kind, st.Node.Name), run})
		}
	}
	return e.makeRing()
}

// bind gives every buffer its address.
func (e *exec) bind(s *store) error {
	var arenas [lower.NumArenas]cuda.Ptr
	for _, a := range []lower.Arena{lower.InputArena, lower.ConstArena, lower.WorkArena} {
		if e.p.Arenas[a] == 0 {
			continue
		}
		p, err := e.own(e.p.Arenas[a], fmt.Sprintf("the %s arena", a))
		if err != nil {
			return err
		}
		arenas[a] = p
	}
	for i := range e.p.Buffers {
		if b := &e.p.Buffers[i]; b.Arena != lower.StateArena {
			e.at[i] = arenas[b.Arena] + cuda.Ptr(b.Offset)
		}
	}
	for i := range e.p.Vars {
		if err := e.bindVar(s, &e.p.Vars[i]); err != nil {
			return err
		}
	}
	for _, c := range e.p.Copies {
		p, err := e.own(e.p.Buffers[c.Buffer].Size, fmt.Sprintf("the %s copy of %q", c.DType, c.Var))
		if err != nil {
			return err
		}
		e.at[c.Buffer] = p
	}
	for i := range e.p.Buffers {
		if b := &e.p.Buffers[i]; b.Root != lower.BufferID(i) {
			e.at[i] = e.at[b.Root] + cuda.Ptr(b.Offset-e.p.Buffers[b.Root].Offset)
		}
	}
	return nil
}

func (e *exec) own(n int64, what string) (cuda.Ptr, error) {
	p, err := e.b.alloc(n, what)
	if err == nil {
		e.owned = append(e.owned, p)
	}
	return p, err
}

func (e *exec) bindVar(s *store, v *lower.Var) error {
	switch v.Kind {
	case ir.Input:
		if v.Role() != runtime.RoleMicro {
			e.inputs = append(e.inputs, input{v.Name, v.Type, e.at[v.Buffer]})
			return nil
		}
		if v.Type != ir.T(ir.I32) {
			return fmt.Errorf("input %q has role micro and type %s, want i32[]", v.Name, v.Type)
		}
		e.micro = e.at[v.Buffer]
	case ir.Const:
		b, err := runtime.InitialBytes(v, 0)
		if err != nil {
			return err
		}
		return e.b.upload(e.at[v.Buffer], b)
	default:
		x := s.vars[v.Name]
		if x == nil {
			return fmt.Errorf("the store has no variable %q", v.Name)
		}
		if x.t != v.Type {
			return fmt.Errorf("variable %q is %s in the store, the program takes %s", v.Name, x.t, v.Type)
		}
		e.at[v.Buffer] = x.at
	}
	return nil
}

func (e *exec) loadModules() (map[string]cuda.Function, error) {
	functions := map[string]cuda.Function{}
	for _, m := range e.p.Modules {
		if err := ptx.Verify(m); err != nil {
			return nil, err
		}
		loaded, err := e.b.d.Load(m.Text())
		if err != nil {
			return nil, err
		}
		e.modules = append(e.modules, loaded)
		for _, k := range m.Kernels {
			if functions[k.Name], err = e.b.d.Function(loaded, k.Name); err != nil {
				return nil, err
			}
		}
	}
	return functions, nil
}

// compile binds one step.
func (e *exec) compile(s *lower.Step, functions map[string]cuda.Function) (call, error) {
	switch {
	case s.Launch != nil:
		l := s.Launch
		f, ok := functions[l.Kernel]
		if !ok {
			return nil, fmt.Errorf("no module has the kernel %s", l.Kernel)
		}
		args := make([]cuda.Ptr, len(l.Args))
		for i, id := range l.Args {
			args[i] = e.at[id]
		}
		return func(st cuda.Stream) error { return e.b.d.Launch(f, l.Grid, l.Block, 0, st, args) }, nil
	case e.stores(s) == 0:
		return func(cuda.Stream) error { return nil }, nil
	case s.Kind == lower.KindGemm:
		return e.product(s)
	}
	return nil, fmt.Errorf("the program is for %s, this is %s", e.p.Target, e.b.name)
}

// makeRing reserves a place for the results of every step that keeps them.
func (e *exec) makeRing() error {
	for k := range e.ring {
		for _, o := range e.p.Outputs {
			p, err := e.own(o.Type.Bytes(), "results")
			if err != nil {
				return err
			}
			e.ring[k] = append(e.ring[k], p)
		}
	}
	return nil
}

// Close implements runtime.Exec.
func (e *exec) Close() error { return e.b.do(e.free) }

func (e *exec) free() error {
	err := e.b.d.Synchronize(e.b.stream)
	for _, p := range e.plans {
		err = errors.Join(err, p.Close())
	}
	for _, m := range e.modules {
		err = errors.Join(err, e.b.d.Unload(m))
	}
	for _, p := range e.owned {
		err = errors.Join(err, e.b.d.Free(p))
	}
	for _, s := range e.stage {
		err = errors.Join(err, e.b.d.HostFree(s.mem), e.b.d.FreeEvent(s.free))
	}
	e.plans, e.modules, e.owned, e.stage = nil, nil, nil, nil
	return err
}

// Counters implements runtime.Counted.
func (e *exec) Counters() runtime.Counters { return e.count }

var _ runtime.Counted = (*exec)(nil)

// stores is how many elements a step writes.
func (e *exec) stores(s *lower.Step) int64 {
	n := int64(0)
	for _, id := range s.Out {
		n += e.p.Buffers[id].Type.Shape.Elements()
	}
	return n
}
