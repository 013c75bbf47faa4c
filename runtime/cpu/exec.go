package cpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
	"ampc/world"
)

// exec is a loaded Program on a lane: every step bound to its memory.
type exec struct {
	b       *Backend
	of      *program
	lane    *lane
	p       *lower.Program
	arena   []byte // work
	scratch scratch
	calls   []kern.Call // per worker, for formulas
	norms   map[lower.BufferID]*flawed
	mem     [][]byte                     // by buffer
	groups  map[*lower.Step]*clusterStep // while it is loaded
	weights map[lower.BufferID]*weights  // the same
	forms   map[*weights]*kern.Weights   // that it reads
	reads   map[*lower.Step][]*kern.Buf  // the same: where products and convolutions have their first operands
	steps   [lower.NumParts][]step

	inputs  []input
	micro   []byte // the input that holds the micro-batch index, nil where there is none
	rank    []byte // the same of the rank
	caches  []cache
	written []*variable
	store   *store
	early   [][]byte // memory of variables that parts before update write
	saved   [][]byte // what it held before the running step
	copies  []copyState
	outputs [][]byte

	ring    [runtime.RingSize][][]byte
	futures []future // handed out one by one, made in bulk so that steps rarely allocate
	seq     int64

	done  <-chan struct{} // of the running step's context; nil: it does not end
	fault atomic.Pointer[fault]
	count runtime.Counters

	flying []*world.Message // started and not there yet, in order
	landed int              // of Program.Messages, those of the running part that are there
	observers
	pause *pause
}

// input is one that is fed. Where products, convolutions and formulas, such as a cast, alone read it, they read what was
// fed in place.
type input struct {
	name    string
	buffer  lower.BufferID
	mem     []byte
	readers []*kern.Buf // their operands; none: it is copied
}

// step is what one Program step became. Steps that only refresh a 16-bit copy
// have it; they are skipped while it is current.
type step struct {
	run   func()
	fresh *refresh
}

type refresh struct {
	from *variable
	to   *weightCopy
}

// current reports whether nothing is to be cast. It counts what is cast otherwise.
func (r *refresh) current(count *runtime.Counters) bool {
	if r.to.version == r.from.version {
		count.CastsSaved++
		return true
	}
	r.to.version = r.from.version
	r.to.weights.changed()
	count.CastsMade++
	count.CastBytes += int64(len(r.to.mem))
	return false
}

// bind binds the Program of x to the memory of a lane.
func bind(x *program, l *lane) (*exec, error) {
	b, p, s := x.b, x.p, x.store
	e := &exec{b: b, of: x, lane: l, p: p, groups: map[*lower.Step]*clusterStep{}, reads: map[*lower.Step][]*kern.Buf{}, mem: make([][]byte, len(p.Buffers)), arena: s.workArena(l, p.Arenas[lower.WorkArena]),
		calls: make([]kern.Call, b.Threads()), norms: map[lower.BufferID]*flawed{}, store: s, forms: map[*weights]*kern.Weights{}}
	refreshes, err := e.bind(s)
	if err != nil {
		return nil, fmt.Errorf("cpu: %s: %w", p.Name, err)
	}
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			st := &p.Parts[part][i]
			e.scratch.begin()
			run, err := e.compile(st)
			if err != nil {
				return nil, fmt.Errorf("cpu: %s: %s %s: %w", p.Name, st.Kind, st.Node.Name, err)
			}
			bound := step{run: run}
			if part == lower.Prepare {
				bound.fresh = refreshes[i]
			}
			e.steps[part] = append(e.steps[part], bound)
		}
	}
	e.scratch.allot(b.Threads(), s.alloc)
	for i := range e.inputs {
		e.readInPlace(&e.inputs[i])
	}
	e.groups, e.reads, e.weights = nil, nil, nil
	for _, o := range p.Outputs {
		e.outputs = append(e.outputs, e.mem[o.Buffer])
		for k := range e.ring {
			e.ring[k] = append(e.ring[k], nil)
		}
	}
	return e, nil
}

// bind gives every buffer its memory, and fills constants. It returns the low
// copies by the step of prepare that makes them.
func (e *exec) bind(s *store) (map[int]*refresh, error) {
	for i := range e.p.Vars {
		if err := e.bindVar(s, &e.p.Vars[i]); err != nil {
			return nil, err
		}
	}
	if err := e.bindCopies(s); err != nil {
		return nil, err
	}
	refreshes := map[int]*refresh{}
	for _, c := range e.p.WeightCopies {
		v := s.vars[c.Var]
		if v == nil { // a constant: cast at every step
			e.mem[c.Buffer] = s.alloc(e.p.Buffers[c.Buffer].Size)
			continue
		}
		low := s.copyOf(v, c.DType)
		e.mem[c.Buffer] = low.mem
		refreshes[c.Step] = &refresh{v, low}
	}
	for i := range e.p.Buffers {
		switch b := &e.p.Buffers[i]; {
		case b.Root != lower.BufferID(i): // below: roots come first
		case b.Arena == lower.WorkArena:
			e.mem[i] = e.arena[b.Offset : b.Offset+b.Size : b.Offset+b.Size]
		case e.mem[i] == nil:
			return nil, fmt.Errorf("buffer %%%s has no memory", b.Name)
		}
	}
	for i := range e.p.Buffers {
		if b := &e.p.Buffers[i]; b.Root != lower.BufferID(i) {
			root := &e.p.Buffers[b.Root]
			at, end := b.Offset-root.Offset, b.Offset-root.Offset+b.Reach()
			e.mem[i] = e.mem[b.Root][at:end:end]
		}
	}
	for _, name := range e.p.Written {
		e.written = append(e.written, s.vars[name])
	}
	for _, id := range e.p.WrittenEarly() {
		e.early = append(e.early, e.mem[id])
	}
	e.bindWeights(s)
	return refreshes, e.keepRead(s, refreshes)
}

// cache is a variable whose memory a call brings.
type cache struct {
	name   string
	buffer lower.BufferID
}

func (e *exec) bindVar(s *store, v *lower.Var) error {
	if v.PerCall() {
		e.caches = append(e.caches, cache{v.Name, v.Buffer})
		e.mem[v.Buffer] = []byte{} // until a call brings it
		return nil
	}
	switch v.Kind {
	case ir.Input:
		mem := s.alloc(v.Type.Bytes())
		e.mem[v.Buffer] = mem
		role := v.Role()
		if role != runtime.RoleMicro && role != ir.RoleRank {
			e.inputs = append(e.inputs, input{name: v.Name, buffer: v.Buffer, mem: mem})
			return nil
		}
		if v.Type != ir.T(ir.I32) {
			return fmt.Errorf("input %q has role %s and type %s, want i32[]", v.Name, role, v.Type)
		}
		if role == ir.RoleRank {
			e.rank = mem
		} else {
			e.micro = mem
		}
	case ir.Const:
		if mem, known := e.of.consts[v.Buffer]; known {
			e.mem[v.Buffer] = mem
			return nil
		}
		b, err := runtime.InitialBytes(v, 0)
		if err != nil {
			return err
		}
		e.mem[v.Buffer] = kern.Alloc(int64(len(b)))
		copy(e.mem[v.Buffer], b)
		e.of.consts[v.Buffer] = e.mem[v.Buffer]
	default:
		x := s.vars[v.Name]
		if x == nil {
			return fmt.Errorf("the store has no variable %q", v.Name)
		}
		if x.t != v.Type {
			return fmt.Errorf("variable %q is %s in the store, the program takes %s", v.Name, x.t, v.Type)
		}
		e.mem[v.Buffer] = x.mem
	}
	return nil
}

// product binds a step of matrix units, which know f32 and the 16-bit dtypes. A
// cluster that it ends in may store others.
func (e *exec) product(s *lower.Step) (func(), error) {
	own := s.In
	if s.Epilogue == nil {
		own = slices.Concat(s.In, s.Out)
	}
	for _, id := range own {
		if id == lower.None {
			continue
		}
		if t := e.p.Buffers[id].Type; t.DType == ir.F64 {
			return nil, fmt.Errorf("the CPU has no %s kernel for %s", s.Kind, t.DType)
		}
	}
	switch s.Kind {
	case lower.KindGemm:
		return e.gemm(s), nil
	case lower.KindConv:
		return e.conv(s), nil
	}
	return e.attention(s), nil
}

// compile binds one step.
func (e *exec) compile(s *lower.Step) (func(), error) {
	switch s.Kind {
	case lower.KindCluster:
		if len(s.More) > 0 {
			return e.batch(s.Clusters()), nil
		}
		g := e.cluster(s.Cluster, elements(s.Cluster))
		e.groups[s] = g
		return g.run, nil
	case lower.KindGemm, lower.KindConv, lower.KindAttention:
		return e.product(s)
	case lower.KindCopy, lower.KindFill:
		return e.moves(s), nil
	}
	return e.kernel(s)
}

// step runs one step.
func (e *exec) step(ctx context.Context, feeds []runtime.Feed) (future runtime.Future, err error) {
	defer func() {
		if r := recover(); r != nil {
			unread, ok := r.(kern.FillError)
			if !ok {
				panic(r)
			}
			e.restore()
			err = fmt.Errorf("%s: weights: %w", e.p.Name, unread.Err)
		}
	}()
	defer e.letGo()
	e.done = ctx.Done()
	e.save()
	if err := e.gradients(ctx, feeds); err != nil {
		e.restore()
		if err == errInterrupted {
			err = fmt.Errorf("%s: interrupted before the update: %w", e.p.Name, context.Cause(ctx))
		}
		return nil, err
	}
	if err := e.update(); err != nil {
		return nil, err
	}
	e.count.Steps++
	return e.publish(), nil
}

// letGo ends the use of memory that the call has brought.
func (e *exec) letGo() {
	for _, c := range e.caches {
		e.mem[c.buffer] = []byte{}
	}
}

// refresh runs a step that casts a copy of a variable, unless the copy is current. Other calls wait.
func (e *exec) refresh(s *step, i int) {
	e.of.store.casting.Lock()
	defer e.of.store.casting.Unlock()
	if s.fresh.current(&e.count) {
		return
	}
	if source := s.fresh.from.weights.source; source != nil {
		end, err := source.Use()
		if err != nil {
			panic(kern.FillError{Err: err})
		}
		defer end()
	}
	e.runStep(lower.Prepare, i, s)
}

func (e *exec) runStep(part lower.Part, i int, s *step) {
	if e.profile == nil {
		s.run()
	} else {
		e.profile(part, i, e.metered(s.run))
	}
}

// errInterrupted is what a part returns when the step's context has ended.
var errInterrupted = errors.New("interrupted")

// gradients runs prepare, and micro for every feed.
func (e *exec) gradients(ctx context.Context, feeds []runtime.Feed) error {
	e.refreshCopies()
	if e.rank != nil && e.of.world != nil {
		slice[int32](e.rank)[0] = int32(e.of.world.Rank())
	}
	if err := e.run(lower.Prepare, 0); err != nil {
		return err
	}
	for i, f := range feeds {
		for k := range e.inputs {
			e.feed(&e.inputs[k], f[e.inputs[k].name].Data)
		}
		for _, c := range e.caches {
			e.mem[c.buffer] = f[c.name].Data
		}
		if e.micro != nil {
			slice[int32](e.micro)[0] = int32(e.tracer.From + i)
		}
		e.pause.clear()
		if err := e.run(lower.Micro, i); err != nil {
			return err
		}
		e.pause.note(i)
	}
	e.pause.decide(ctx, feeds)
	if e.interrupted() {
		return errInterrupted
	}
	return nil
}

// update runs to its end whatever happens to the step's context.
func (e *exec) update() error {
	e.done = nil
	for _, v := range e.store.late {
		copy(v.to, v.from)
	}
	if err := e.run(lower.Update, 0); err != nil {
		return err
	}
	for _, v := range e.written {
		v.wrote()
	}
	e.syncCopies()
	return nil
}

// save keeps what parts before update may overwrite: running statistics, sums over micro-batches.
func (e *exec) save() {
	if e.saved == nil {
		for _, mem := range e.early {
			e.saved = append(e.saved, make([]byte, len(mem)))
		}
	}
	for i, mem := range e.early {
		copy(e.saved[i], mem)
	}
}

// restore undoes what a step has written that ended before its update.
func (e *exec) restore() {
	for i, mem := range e.early {
		copy(mem, e.saved[i])
	}
}

// interrupted says whether the step's context has ended.
func (e *exec) interrupted() bool {
	select {
	case <-e.done:
		return true
	default: // nil: never
		return false
	}
}

// readInPlace finds the operands of those who read an input, if all of them can read it anywhere.
func (e *exec) readInPlace(in *input) {
	shows := func(id lower.BufferID) bool { return id != lower.None && e.p.Buffers[id].Root == in.buffer }
	if slices.ContainsFunc(e.p.Outputs, func(o lower.Binding) bool { return shows(o.Buffer) }) {
		return
	}
	for part := range e.p.Parts {
		for i := range e.p.Parts[part] {
			s := &e.p.Parts[part][i]
			if !slices.ContainsFunc(s.In, shows) {
				continue
			}
			at := e.operand(s, in.mem, shows)
			if at == nil {
				in.readers = nil
				return
			}
			in.readers = append(in.readers, at)
		}
	}
}

// operand is the one operand of a step that shows all of mem, nil if others show it, too, or it is bound for good.
func (e *exec) operand(s *lower.Step, mem []byte, shows func(lower.BufferID) bool) *kern.Buf {
	if g := e.groups[s]; g != nil && g.formula != nil {
		if i := g.formula.only(mem); i >= 0 {
			return &g.formula.bufs[i]
		}
		return nil
	}
	i := slices.IndexFunc(s.In, shows)
	if i >= len(e.reads[s]) || len(e.mem[s.In[i]]) != len(mem) || slices.ContainsFunc(s.In[i+1:], shows) {
		return nil
	}
	return e.reads[s][i]
}

// feed hands an input to those who read it.
func (e *exec) feed(in *input, data []byte) {
	if in.readers == nil || uintptr(unsafe.Pointer(unsafe.SliceData(data)))%4 != 0 {
		copy(in.mem, data)
		data = in.mem
	}
	for _, r := range in.readers {
		r.Data = data
	}
	if in.readers != nil {
		e.mem[in.buffer] = data
	}
}

// run runs a part and shows it to the tracer.
func (e *exec) run(part lower.Part, micro int) error {
	if err := e.part(part); err != nil {
		return err
	}
	if e.tracer.Part != nil && !e.tracer.Part(part, micro) {
		return runtime.ErrStopped
	}
	return nil
}

// part runs one part's steps in order, up to one that reports bad data.
func (e *exec) part(part lower.Part) error {
	e.depart(part)
	defer e.land()
	for i := range e.steps[part] {
		s := &e.steps[part][i]
		if e.interrupted() {
			return errInterrupted
		}
		if err := e.arrive(part, i); err != nil {
			return err
		}
		if s.fresh != nil {
			e.refresh(s, i)
		} else {
			e.runStep(part, i, s)
		}
		if e.any() && len(e.flying) > 0 {
			if err := e.arrive(part, i); err != nil {
				return err
			}
		}
		goes := e.tracer.Step == nil || e.tracer.Step(part, i)
		if f := e.fault.Load(); f != nil {
			e.fault.Store(nil)
			return fmt.Errorf("%s: %w", e.p.Name, f.err)
		}
		if !goes {
			return runtime.ErrStopped
		}
	}
	return e.arrive(part, len(e.steps[part]))
}

// close lets go of variables and memory: results that something keeps hold the exec.
func (e *exec) close() {
	e.releaseWeights()
	e.arena, e.mem, e.inputs, e.written, e.steps = nil, nil, nil, nil, [lower.NumParts][]step{}
	e.early, e.saved, e.store = nil, nil, nil
}

// metered runs a step by the clock. The pool is other programs' as well, so it is metered no longer than that.
func (e *exec) metered(run func()) runtime.Timing {
	pool := e.machine().Pool()
	pool.Meter(true)
	start := time.Now()
	run()
	took, use := time.Since(start), pool.Use()
	var spans []runtime.Span
	for _, s := range pool.Spans() {
		spans = append(spans, runtime.Span(s))
	}
	pool.Meter(false)
	alone := took - use.Inside
	return runtime.Timing{Start: start, Spans: spans, Took: took, Workers: pool.Workers(), Busy: alone + use.Busy, Regions: use.Regions, Alone: alone}
}

// machine is the kernels and workers.
func (e *exec) machine() *kern.Machine { return e.lane.m }
