package cpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
	"ampc/world"
)

// exec is a loaded Program in an execution context. Every step is bound to memory.
type exec struct {
	b         *Backend
	of        *program
	context   *execContext
	p         *lower.Program
	blocks    []*kern.Block // memory of the buffers and of steps
	temporary int64         // bytes of blocks that steps use while they run
	holders   atomic.Int64  // the program, until it is closed, and every Shown; blocks are held until none is left
	scratch   scratch
	mem       [][]byte                     // by buffer
	groups    map[*lower.Step]*clusterStep // clusters that read operands of their own; used only during loading
	weights   map[lower.BufferID]*weights  // used only during loading
	forms     map[*weights]*kern.Weights   // packed forms that the program reads
	reads     map[*lower.Step][]*kern.Buf  // used only during loading; where products and convolutions keep their first operands
	steps     [lower.NumParts][]step

	derived      []*derived // by place in the Program's Derived
	derivedSteps []bool     // by step of prepare: it only computes derived values
	stale        []bool     // and the running step needs it

	inputs   []input
	micro    []byte // the input that holds the micro-batch index, nil if there is none
	rank     []byte // the input that holds the rank, nil if there is none
	slice    []byte // the input that holds the number of the micro-batch among those of all ranks, nil if there is none
	each     int    // micro-batches of each rank, for slice
	caches   []cache
	written  []*variable
	early    [][]byte // memory of variables that parts before update write
	saved    [][]byte // content of early before the running step
	begun    bool     // saved is that of the running step
	updating bool     // variables are being written
	copies   []copyState
	outputs  [][]byte
	copying  parallelCopy // an output, when results are published

	kept    results
	futures []future // allocated in bulk, so that steps rarely allocate
	seq     int64

	done  <-chan struct{} // done channel of the running step's context; nil: it cannot end
	fault atomic.Pointer[fault]
	count runtime.Counters

	beside      []*exec          // of the micro-batches that run together with this one, which is the last
	inFlight    []*world.Message // messages that have started and not finished, in order of start
	nextMessage int              // index in Program.Messages of the first message that has not finished
	observers
	pause *pause
}

// step is a bound step of the Program. A step that only refreshes a 16-bit copy has refresh set,
// and is skipped while the copy is current.
type step struct {
	run     func()
	refresh *refresh
}

type refresh struct {
	from *variable
	to   *weightCopy
}

// current reports whether the copy is up to date. If not, it marks the copy as current and counts
// the cast that the caller then runs.
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

// bind binds the Program of x to the memory of an execution context.
func bind(x *program, c *execContext) (*exec, error) {
	b, p, s := x.b, x.p, x.store
	e := &exec{b: b, of: x, context: c, p: p, groups: map[*lower.Step]*clusterStep{}, reads: map[*lower.Step][]*kern.Buf{}, mem: make([][]byte, len(p.Buffers)),
		forms: map[*weights]*kern.Weights{}}
	e.holders.Add(1)
	e.scratch.workers, e.scratch.alloc = c.m.Pool().Most(), func(n int64) []byte {
		e.temporary += n
		return e.alloc(s, n)
	}
	if err := e.bindAll(s); err != nil {
		e.close()
		return nil, fmt.Errorf("cpu: %s: %w", p.Name, err)
	}
	return e, nil
}

// bindAll binds memory and steps.
func (e *exec) bindAll(s *store) (err error) {
	defer noMemory(&err)
	p := e.p
	refreshes, err := e.bind(s)
	if err != nil {
		return err
	}
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			st := &p.Parts[part][i]
			e.scratch.begin()
			run, err := e.compile(st)
			if err != nil {
				return fmt.Errorf("%s %s: %w", st.Kind, st.Node.Name, err)
			}
			bound := step{run: run}
			if part == lower.Prepare {
				bound.refresh = refreshes[i]
			}
			e.steps[part] = append(e.steps[part], bound)
		}
	}
	e.scratch.allot(e.machine().Pool().Workers())
	for i := range e.inputs {
		e.readInPlace(&e.inputs[i])
	}
	e.groups, e.reads, e.weights = nil, nil, nil
	e.setResults()
	return nil
}

// keep holds a block as long as the exec has memory.
func (e *exec) keep(b *kern.Block) {
	b.Hold()
	e.blocks = append(e.blocks, b)
}

// prepareWorkers gives workers that have come since the last step what they need.
func (e *exec) prepareWorkers() (err error) {
	defer noMemory(&err)
	for _, x := range e.beside {
		if err := x.prepareWorkers(); err != nil {
			return err
		}
	}
	workers := e.machine().Pool().Workers()
	if e.scratch.ready >= workers {
		return nil
	}
	if err := e.b.fits(e.scratch.missing(workers)); err != nil {
		return fmt.Errorf("cpu: %s: %d workers instead of %d: %w", e.p.Name, workers, e.scratch.ready, err)
	}
	e.of.store.mu.Lock()
	defer e.of.store.mu.Unlock()
	e.scratch.allot(workers)
	return nil
}

// alloc returns n bytes of the exec's own. They are zero, or undefined if the store uses spares.
func (e *exec) alloc(s *store, n int64) []byte {
	b := s.alloc(n)
	e.blocks = append(e.blocks, b)
	return b.Bytes()[:n:n]
}

// release ends the hold of one holder.
func (e *exec) release() {
	if e.holders.Add(-1) > 0 {
		return
	}
	for _, b := range e.blocks {
		b.Release()
	}
	e.blocks = nil
}

// bind assigns memory to every buffer and fills constants. It returns the 16-bit copies by index of
// the prepare step that makes them.
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
		if v == nil { // a constant is cast in every step
			e.mem[c.Buffer] = e.alloc(s, e.p.Buffers[c.Buffer].Size)
			continue
		}
		low := s.copyOf(v, c.DType)
		e.mem[c.Buffer] = low.mem
		e.keep(low.block)
		refreshes[c.Step] = &refresh{v, low}
	}
	if err := e.bindDerived(s); err != nil {
		return nil, err
	}
	work, err := s.workArena(e.context, e.p)
	if err != nil {
		return nil, err
	}
	e.keep(work)
	for i := range e.p.Buffers {
		switch b := &e.p.Buffers[i]; {
		case b.Root != lower.BufferID(i): // views are bound below, after their root buffers
		case b.Arena == lower.WorkArena:
			e.mem[i] = work.Bytes()[b.Offset : b.Offset+b.Size : b.Offset+b.Size]
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
	return refreshes, e.keepUnpacked(s, refreshes)
}

// cache is a variable whose memory the caller passes with each step.
type cache struct {
	name   string
	buffer lower.BufferID
}

func (e *exec) bindVar(s *store, v *lower.Var) error {
	if v.PerCall() {
		e.caches = append(e.caches, cache{v.Name, v.Buffer})
		e.mem[v.Buffer] = []byte{} // replaced by the memory that a step passes
		return nil
	}
	switch v.Kind {
	case ir.Input:
		mem := e.alloc(s, v.Type.Bytes())
		e.mem[v.Buffer] = mem
		role := v.Role()
		if role != runtime.RoleMicro && role != ir.RoleRank && role != ir.RoleSlice {
			e.inputs = append(e.inputs, input{name: v.Name, buffer: v.Buffer, mem: mem})
			return nil
		}
		if v.Type != ir.T(ir.I32) {
			return fmt.Errorf("input %q has role %s and type %s, want i32[]", v.Name, role, v.Type)
		}
		switch role {
		case ir.RoleRank:
			e.rank = mem
		case ir.RoleSlice:
			each, _ := v.Attr.Get("each").(int64)
			e.slice, e.each = mem, int(each)
		default:
			e.micro = mem
		}
	case ir.Const:
		c := e.of.consts[v.Buffer]
		if c == nil {
			b, err := runtime.InitialBytes(v, 0)
			if err != nil {
				return err
			}
			c = e.b.newBlock(int64(len(b)))
			copy(c.Bytes(), b)
			e.of.consts[v.Buffer] = c
		}
		e.keep(c)
		e.mem[v.Buffer] = c.Bytes()
	default:
		x := s.vars[v.Name]
		if x == nil {
			return fmt.Errorf("the store has no variable %q", v.Name)
		}
		if x.t != v.Type {
			return fmt.Errorf("variable %q is %s in the store, the program takes %s", v.Name, x.t, v.Type)
		}
		e.mem[v.Buffer] = x.mem
		if x.block != nil {
			e.keep(x.block)
		}
	}
	return nil
}

// product binds a step of kind gemm, conv or attention. Operands must be f32 or 16 bits wide. The
// epilogue cluster may store other dtypes.
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
		return e.copyOrFill(s), nil
	}
	return e.kernel(s)
}

// step runs one training or inference step.
func (e *exec) step(ctx context.Context, feeds []runtime.Feed) (future runtime.Future, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = e.failed(r)
		}
	}()
	defer e.releaseCaches()
	defer e.releaseFeeds()
	e.done = ctx.Done()
	e.begun, e.updating = false, false
	e.enter()
	e.save()
	e.begun = true
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

// releaseCaches drops the memory that the caller passed for this step.
func (e *exec) releaseCaches() {
	for _, c := range e.caches {
		e.mem[c.buffer] = []byte{}
	}
}

// refresh runs a step that casts a variable to its copy, unless the copy is current. Concurrent
// calls wait.
func (e *exec) refresh(s *step, i int) {
	e.of.store.casting.Lock()
	defer e.of.store.casting.Unlock()
	if s.refresh.current(&e.count) {
		return
	}
	if source := s.refresh.from.weights.source; source != nil {
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
		e.profile(part, i, e.timed(s.run))
	}
}

// errInterrupted is returned by a part if the step's context has ended.
var errInterrupted = errors.New("interrupted")

// gradients runs prepare, and micro for every feed.
func (e *exec) gradients(ctx context.Context, feeds []runtime.Feed) error {
	e.refreshCopies()
	if e.rank != nil && e.of.world != nil {
		slice[int32](e.rank)[0] = int32(e.of.world.Rank())
	}
	if err := e.prepare(); err != nil {
		return err
	}
	if len(e.beside) > 0 {
		return e.together(feeds)
	}
	for i, f := range feeds {
		e.take(i, f)
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

// take fills the inputs of micro-batch i.
func (e *exec) take(i int, f runtime.Feed) {
	for k := range e.inputs {
		e.feed(&e.inputs[k], f[e.inputs[k].name].Data)
	}
	for _, c := range e.caches {
		e.mem[c.buffer] = f[c.name].Data
	}
	if e.micro != nil {
		slice[int32](e.micro)[0] = int32(e.tracer.From + i)
	}
	if e.slice != nil {
		first := e.tracer.From
		if e.of.world != nil {
			first += e.of.world.Rank() * e.each
		}
		slice[int32](e.slice)[0] = int32(first + i)
	}
}

// update runs to its end, even if the step's context ends.
func (e *exec) update() error {
	e.done = nil
	e.updating = len(e.written) > 0
	if err := e.run(lower.Update, 0); err != nil {
		return err
	}
	for _, v := range e.written {
		v.wrote()
	}
	e.syncCopies()
	return nil
}

// interrupted reports whether the step's context has ended.
func (e *exec) interrupted() bool {
	select {
	case <-e.done:
		return true
	default: // a nil channel: the context cannot end
		return false
	}
}

// run runs a part and reports it to the tracer.
func (e *exec) run(part lower.Part, micro int) error {
	if err := e.part(part); err != nil {
		return err
	}
	if e.tracer.Part != nil && !e.tracer.Part(part, micro) {
		return runtime.ErrStopped
	}
	return nil
}

// part runs the steps of one part in order and stops at a step that reports bad data.
func (e *exec) part(part lower.Part) error {
	e.beginMessages(part)
	defer e.drainMessages()
	if err := e.stretch(part, 0, len(e.steps[part])); err != nil {
		return err
	}
	return e.awaitMessages(part, len(e.steps[part]))
}

// stretch runs some steps of a part in order.
func (e *exec) stretch(part lower.Part, from, to int) error {
	for i := from; i < to; i++ {
		s := &e.steps[part][i]
		if e.interrupted() {
			return errInterrupted
		}
		if err := e.awaitMessages(part, i); err != nil {
			return err
		}
		switch {
		case s.refresh != nil:
			e.refresh(s, i)
		case part == lower.Prepare && len(e.derived) > 0 && e.derivedSteps[i] && !e.stale[i]: // its values are current
		default:
			e.runStep(part, i, s)
		}
		if e.any() && len(e.inFlight) > 0 {
			if err := e.awaitMessages(part, i); err != nil {
				return err
			}
		}
		goOn := e.tracer.Step == nil || e.tracer.Step(part, i)
		if f := e.fault.Load(); f != nil {
			e.fault.Store(nil)
			return fmt.Errorf("%s: %w", e.p.Name, f.err)
		}
		if !goOn {
			return runtime.ErrStopped
		}
	}
	return nil
}

// close drops variables and memory, because results that the caller keeps hold a reference to the
// exec.
func (e *exec) close() {
	for _, x := range e.beside {
		x.close()
	}
	e.releaseWeights()
	e.kept.overwrite()
	e.kept.moved = nil
	e.release()
	e.mem, e.inputs, e.written, e.steps = nil, nil, nil, [lower.NumParts][]step{}
	e.early, e.saved = nil, nil
}

// timed runs a step and measures it. Other programs share the pool, so the pool is measured only
// during the step.
func (e *exec) timed(run func()) runtime.Timing {
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
	unshared := took - use.Inside
	return runtime.Timing{Start: start, Spans: spans, Took: took, Workers: pool.Threads(), Busy: unshared + use.Busy, Regions: use.Regions, Alone: unshared}
}

// machine returns the kernels and workers.
func (e *exec) machine() *kern.Machine { return e.context.m }
