package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/ptx"
	"ampc/runtime"
)

// Exec is a loaded Program, whose steps have device addresses. It implements runtime.Exec.
type Exec struct {
	b            *Backend
	p            *lower.Program
	store        *Store
	at           []cuda.Ptr // by buffer
	owned        []cuda.Ptr
	modules      []cuda.Module
	plans        []cuda.BlasPlan
	dnn          []*sharedPlan
	need         map[uint8]int64    // workspace of cuDNN by stream
	spaces       map[uint8]cuda.Ptr // addresses of the workspaces
	steps        [lower.NumParts][]bound
	events       []cuda.Event // by EventID, less one
	edge         cuda.Event   // events at the begin and end of a part on one stream, for the other streams
	written      []*variable
	storedCopies []storedCopy

	arena  cuda.Ptr // of the inputs
	inputs []input
	filled []filled // inputs that the runtime fills in
	feeds  cuda.Ptr // inputs of several micro-batches, one after the other
	room   int      // number of micro-batches
	slots  []slot   // page-locked copies of the feeds, used in turn
	ahead  ahead    // where large feeds arrive beside the step before

	results []result
	last    cuda.Ptr // results of the last step
	ring    cuda.Ptr // and of the last runtime.RingSize

	profile *profile // nil: no step was timed yet

	world Linked    // nil: the Exec is alone
	comm  cuda.Comm // of the world

	pause  *pause // nil: steps do not wait before their update
	graphs map[variant]cuda.GraphExec
	warm   bool // every launch has been issued once
	single bool // all steps run on the first stream, in their order
	seq    int64
	count  runtime.Counters
}

// call issues one step on a stream of the backend.
type call func(l workStream) error

type bound struct {
	name         string
	part         lower.Part
	index        int // in its part
	run          call
	stream       int
	wait, record []cuda.Event
	fresh        []*refresh // set if the step only makes these 16-bit copies
	touches      *sim.Footprint
}

// refresh is a cast of a weight. It is skipped while the 16-bit copy is current.
type refresh struct {
	from  *variable
	bytes int64
	to    *weightCopy // nil: the copy is a variable itself, see below
	state *variable
}

// storedCopy is a variable that is the 16-bit copy of another.
type storedCopy struct {
	from, to *variable
	written  bool // the program writes the copy whenever it writes the variable
}

type input struct {
	name string
	t    ir.Type
	at   cuda.Ptr // offset in the input arena
}

// filled is an i32 input that the runtime fills in: by its role the index of the micro-batch, this
// rank's number, or the index of the slice, of which each rank has some.
type filled struct {
	role string
	at   cuda.Ptr // offset in the input arena
	each int
}

// value is what the input holds in micro-batch i.
func (f *filled) value(i, rank int) int {
	switch f.role {
	case ir.RoleRank:
		return rank
	case ir.RoleSlice:
		return rank*f.each + i
	}
	return i
}

type result struct{ at, bytes int64 }

// Load implements runtime.Backend; the Exec is an *Exec.
func (b *Backend) Load(p *lower.Program, s runtime.Store) (runtime.Exec, error) {
	st, ok := s.(*Store)
	if !ok || st.b != b {
		return nil, fmt.Errorf("%s: the store belongs to another backend", b.name)
	}
	e := &Exec{b: b, p: p, store: st, at: make([]cuda.Ptr, len(p.Buffers)), graphs: map[variant]cuda.GraphExec{}, need: map[uint8]int64{}, spaces: map[uint8]cuda.Ptr{}}
	err := b.do(func() error {
		err := e.withPlan(e.load())
		if err != nil {
			if freed := e.free(); !lost(err) { // where the context is lost, nothing can be freed, for the same reason
				err = errors.Join(err, freed)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", b.name, p.Name, err)
	}
	return e, nil
}

func (e *Exec) load() error {
	refreshes, err := e.bind()
	if err != nil {
		return err
	}
	if err := e.writeTables(); err != nil {
		return err
	}
	functions, err := e.loadModules()
	if err != nil {
		return err
	}
	if err := e.makeEvents(); err != nil {
		return err
	}
	if err := e.compileAll(functions, refreshes); err != nil {
		return err
	}
	e.b.keepChoices()
	if err := e.reserve(); err != nil {
		return err
	}
	e.declare()
	return errors.Join(e.chooseStreams(), e.placeResults())
}

// compileAll binds all steps. What libraries refuse is returned together, so that the Program is lowered
// again once.
func (e *Exec) compileAll(functions map[string]cuda.Function, refreshes map[int][]*refresh) error {
	var refused refusals
	for part := range lower.NumParts {
		for i := range e.p.Parts[part] {
			st := &e.p.Parts[part][i]
			run, err := e.compile(st, functions)
			var r *refusal
			if errors.As(err, &r) {
				r.err = fmt.Errorf("%s %s: %w", st.Kind, st.Node.Name, r.err)
				refused = refused.add(r)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", st.Kind, st.Node.Name, err)
			}
			s := bound{part: part, index: i, name: fmt.Sprintf("%s step %d (%s %s)", part, i, st.Kind, st.Node.Name), run: run, stream: int(st.Stream)}
			for _, w := range st.Wait {
				s.wait = append(s.wait, e.events[w-1])
			}
			if st.Record != 0 {
				s.record = []cuda.Event{e.events[st.Record-1]}
			}
			if part == lower.Prepare {
				s.fresh = refreshes[i]
			}
			e.steps[part] = append(e.steps[part], s)
		}
	}
	if len(refused) > 0 {
		return refused
	}
	return nil
}

// declare computes the footprint of each step for a simulated device: its operands,
// its results, and the workspace of its library.
func (e *Exec) declare() {
	if e.b.held == nil {
		return
	}
	ranges := func(ids []lower.BufferID) (list []sim.Range) {
		for _, id := range ids {
			if id != lower.None {
				list = append(list, sim.Range{At: e.at[id], Bytes: e.p.Buffers[id].Reach()})
			}
		}
		return list
	}
	for part, steps := range e.p.Parts {
		for i := range steps {
			s := &steps[i]
			writes := ranges(s.Out)
			if s.Launch == nil {
				writes = append(writes, sim.Range{At: e.b.streams[s.Stream].space, Bytes: workspaceBytes}, sim.Range{At: e.spaces[s.Stream], Bytes: e.need[s.Stream]})
			}
			e.steps[part][i].touches = sim.NewFootprint(ranges(s.In), writes)
		}
	}
}

// makeEvents makes the streams and events that the steps name.
func (e *Exec) makeEvents() error {
	streams := 1
	for _, steps := range e.p.Parts {
		for i := range steps {
			streams = max(streams, int(steps[i].Stream)+1)
		}
	}
	if err := e.b.needStreams(streams); err != nil {
		return err
	}
	for range e.p.Events {
		ev, err := e.b.d.NewEvent(false)
		if err != nil {
			return err
		}
		e.events = append(e.events, ev)
	}
	var err error
	e.edge, err = e.b.d.NewEvent(false)
	return err
}

// bind assigns an address to every buffer. It returns the 16-bit copies by index of the prepare
// step that makes them.
func (e *Exec) bind() (map[int][]*refresh, error) {
	var arenas [lower.NumArenas]cuda.Ptr
	for _, a := range []lower.Arena{lower.InputArena, lower.ConstArena, lower.WorkArena} {
		if e.p.Arenas[a] == 0 {
			continue
		}
		p, err := e.own(e.p.Arenas[a], fmt.Sprintf("the %s arena", a))
		if err != nil {
			return nil, err
		}
		arenas[a] = p
	}
	e.arena = arenas[lower.InputArena]
	for i := range e.p.Buffers {
		if b := &e.p.Buffers[i]; b.Arena != lower.StateArena {
			e.at[i] = arenas[b.Arena] + cuda.Ptr(b.Offset)
		}
	}
	for i := range e.p.Vars {
		if err := e.bindVar(&e.p.Vars[i]); err != nil {
			return nil, err
		}
	}
	e.bindStoredCopies()
	refreshes, err := e.bindCopies()
	if err != nil {
		return nil, err
	}
	for i := range e.p.Buffers {
		if b := &e.p.Buffers[i]; b.Root != lower.BufferID(i) {
			e.at[i] = e.at[b.Root] + cuda.Ptr(b.Offset-e.p.Buffers[b.Root].Offset)
		}
	}
	for _, name := range e.p.Written {
		e.written = append(e.written, e.store.vars[name])
	}
	return refreshes, nil
}

// bindCopies finds the 16-bit copies that the store keeps.
func (e *Exec) bindCopies() (map[int][]*refresh, error) {
	refreshes := map[int][]*refresh{}
	for _, c := range e.p.WeightCopies {
		v := e.store.vars[c.Var]
		buf := &e.p.Buffers[c.Buffer]
		switch {
		case v == nil: // a constant is cast in every step
			p, err := e.own(buf.Size, fmt.Sprintf("the %s copy of %q", c.DType, c.Var))
			if err != nil {
				return nil, err
			}
			e.at[c.Buffer] = p
		case e.at[c.Buffer] != 0: // a variable that holds the copy
			refreshes[c.Step] = append(refreshes[c.Step], &refresh{from: v, bytes: buf.Size, state: e.store.vars[buf.Name]})
		default:
			low, err := e.store.copyOf(c.Var, v, c.DType)
			if err != nil {
				return nil, err
			}
			e.at[c.Buffer] = low.at
			refreshes[c.Step] = append(refreshes[c.Step], &refresh{from: v, bytes: buf.Size, to: low})
		}
	}
	return refreshes, nil
}

// writeTables writes the address tables of launches that process many buffers.
func (e *Exec) writeTables() error {
	for _, steps := range e.p.Parts {
		for i := range steps {
			l := steps[i].Launch
			if l == nil || len(l.Table) == 0 {
				continue
			}
			raw := make([]byte, 0, 8*len(l.Table))
			for _, w := range l.Table {
				v := uint64(w.Value)
				if w.Buffer != lower.None {
					v = uint64(e.at[w.Buffer])
				}
				raw = binary.LittleEndian.AppendUint64(raw, v)
			}
			if err := e.b.upload(e.at[l.Args[0]], raw); err != nil {
				return err
			}
		}
	}
	return nil
}

// bindStoredCopies finds the variables that are copies of others.
func (e *Exec) bindStoredCopies() {
	written := map[string]bool{}
	for _, name := range e.p.Written {
		written[name] = true
	}
	for i := range e.p.Vars {
		v := &e.p.Vars[i]
		if of, _ := v.Attr.Get("of").(string); v.Kind == ir.State && v.Role() == ir.RoleCopy {
			e.storedCopies = append(e.storedCopies, storedCopy{e.store.vars[of], e.store.vars[v.Name], written[of] && written[v.Name]})
		}
	}
}

// own allocates memory that belongs to this Program.
func (e *Exec) own(n int64, what string) (cuda.Ptr, error) {
	p, err := e.b.alloc(n, what)
	if err == nil {
		e.owned = append(e.owned, p)
	}
	return p, err
}

// withPlan adds the numbers of the memory plan to an out-of-memory error.
func (e *Exec) withPlan(err error) error {
	if !errors.Is(err, cuda.ErrOutOfMemory) {
		return err
	}
	a := &e.p.Arenas
	return fmt.Errorf("%w; the plan: variables %s, inputs %s, constants %s, work %s (%s live at most); a smaller batch or more micro-batches need less",
		err, ir.Bytes(e.store.bytes), ir.Bytes(a[lower.InputArena]), ir.Bytes(a[lower.ConstArena]), ir.Bytes(a[lower.WorkArena]), ir.Bytes(e.p.MaxLive))
}

func (e *Exec) bindVar(v *lower.Var) error {
	switch v.Kind {
	case ir.Input:
		role := v.Role()
		if role != runtime.RoleMicro && role != ir.RoleRank && role != ir.RoleSlice {
			e.inputs = append(e.inputs, input{v.Name, v.Type, e.at[v.Buffer] - e.arena})
			return nil
		}
		if v.Type != ir.T(ir.I32) {
			return fmt.Errorf("input %q has role %s and type %s, want i32[]", v.Name, role, v.Type)
		}
		each, _ := v.Attr.Get("each").(int64)
		e.filled = append(e.filled, filled{role, e.at[v.Buffer] - e.arena, int(each)})
	case ir.Const:
		b, err := runtime.InitialBytes(v, 0)
		if err != nil {
			return err
		}
		return e.b.upload(e.at[v.Buffer], b)
	default:
		x := e.store.vars[v.Name]
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

func (e *Exec) loadModules() (map[string]cuda.Function, error) {
	functions := map[string]cuda.Function{}
	for _, m := range sm.Modules(e.p) {
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
func (e *Exec) compile(s *lower.Step, functions map[string]cuda.Function) (call, error) {
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
		return func(on workStream) error { return e.b.d.Launch(f, l.Grid, l.Block, 0, on.stream, args) }, nil
	case s.Transfer != nil:
		return e.transfer(s), nil
	case e.stores(s) == 0:
		return func(workStream) error { return nil }, nil
	case s.Kind == lower.KindGemm:
		return e.product(s)
	case s.Kind == lower.KindConv || s.Kind == lower.KindAttention:
		return e.graph(s)
	}
	return nil, fmt.Errorf("the program is for %s, this is %s", e.p.Target, e.b.name)
}

// Close implements runtime.Exec.
func (e *Exec) Close() error {
	return e.b.release(e.free)
}

func (e *Exec) free() error {
	delete(e.b.linked, e)
	err := e.b.syncAll()
	for _, g := range e.graphs {
		err = errors.Join(err, e.b.d.FreeExec(g))
	}
	for _, p := range e.plans {
		err = errors.Join(err, p.Close())
	}
	for _, p := range e.dnn {
		err = errors.Join(err, e.b.drop(p))
	}
	for _, m := range e.modules {
		err = errors.Join(err, e.b.d.Unload(m))
	}
	for _, p := range e.owned {
		err = errors.Join(err, e.b.d.Free(p))
	}
	for _, s := range e.slots {
		err = errors.Join(err, e.b.d.HostFree(s.mem), e.b.d.FreeEvent(s.free))
	}
	for _, ev := range append(append(e.ahead.here[:], e.ahead.used[:]...), e.edge) {
		if ev != 0 {
			e.events = append(e.events, ev)
		}
	}
	for _, ev := range e.events {
		err = errors.Join(err, e.b.d.FreeEvent(ev))
	}
	err = errors.Join(err, e.profile.freeEvents(e.b.d))
	e.profile, e.graphs, e.plans, e.dnn, e.modules, e.owned, e.slots, e.events, e.edge, e.ahead = nil, nil, nil, nil, nil, nil, nil, nil, 0, ahead{}
	return err
}

// Counters implements runtime.Counted.
func (e *Exec) Counters() runtime.Counters { return e.count }

var (
	_ runtime.Exec     = (*Exec)(nil)
	_ runtime.Counted  = (*Exec)(nil)
	_ runtime.Profiled = (*Exec)(nil)
)

// stores is the number of elements that a step writes.
func (e *Exec) stores(s *lower.Step) int64 {
	n := int64(0)
	for _, id := range s.Out {
		n += e.p.Buffers[id].Type.Shape.Elements()
	}
	return n
}
