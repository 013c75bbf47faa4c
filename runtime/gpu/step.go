package gpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"ampc/cuda"
	"ampc/lower"
	"ampc/runtime"
)

// rank is the number of this device among the ranks of its world.
func (e *Exec) rank() int {
	if e.world == nil {
		return 0
	}
	return e.world.Rank()
}

// Step implements runtime.Exec. It returns when everything is issued and does not wait for the
// device. An id outside its table gives NaN, not an error. The device runs a step as one graph, so
// ctx is checked only before the step is issued. After BeforeUpdate it waits for the gradients.
func (e *Exec) Step(ctx context.Context, feeds []runtime.Feed) (runtime.Future, error) {
	if err := runtime.CheckFeeds(e.p, feeds); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %s: interrupted before step %d: %w", e.b.name, e.p.Name, e.seq+1, context.Cause(ctx))
	}
	if e.world != nil {
		e.world.Begin(fmt.Sprintf("step %d of %s", e.seq+1, e.p.Name))
	}
	if e.pause != nil {
		return e.stepWithPause(ctx, feeds)
	}
	t, err := e.issue(len(feeds), func() error { return e.stage(feeds) })
	if err != nil {
		return nil, err
	}
	return t, nil
}

// issue issues one step with n micro-batches; fill copies their inputs to the device.
func (e *Exec) issue(n int, fill func() error) (*Future, error) {
	return e.issued(e.b.do(func() error {
		if err := e.makeRoom(n); err != nil {
			return err
		}
		if err := fill(); err != nil {
			return err
		}
		if err := e.run(variant{micro: n, casts: e.stale()}); err != nil {
			return err
		}
		return e.keep()
	}))
}

// issued counts an issued step and returns its results; err is the error of issuing it.
func (e *Exec) issued(err error) (*Future, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %s: step %d: %w", e.b.name, e.p.Name, e.seq+1, e.withPlan(err))
	}
	e.seq++
	e.count.Steps++
	return &Future{e, e.seq - 1}, nil
}

// stale reports whether a 16-bit copy (made by prepare, or a variable itself) is older than its
// variable.
func (e *Exec) stale() bool {
	for i := range e.steps[lower.Prepare] {
		if slices.ContainsFunc(e.steps[lower.Prepare][i].fresh, func(f *refresh) bool { return !f.current() }) {
			return true
		}
	}
	return false
}

func (f *refresh) current() bool {
	if f.to == nil {
		return f.state.synced == f.from.version
	}
	return f.to.version == f.from.version
}

// cast records that the copy was made.
func (f *refresh) cast() {
	if f.to == nil {
		f.state.synced = f.from.version
		return
	}
	f.to.version = f.from.version
}

// made updates the versions after a step.
func (e *Exec) made(casts bool) {
	for i := range e.steps[lower.Prepare] {
		for _, f := range e.steps[lower.Prepare][i].fresh {
			if !casts {
				e.count.CastsSaved++
				continue
			}
			f.cast()
			e.count.CastsMade++
			e.count.CastBytes += f.bytes
		}
	}
	for _, v := range e.written {
		v.version++
	}
	for _, s := range e.storedCopies {
		if s.written {
			s.to.synced = s.from.version
		}
	}
}

// inputBytes is the size of one micro-batch on the device.
func (e *Exec) inputBytes() int64 { return e.p.Arenas[lower.InputArena] }

// makeRoom allocates device memory for the inputs of n micro-batches; the first is
// in the input arena. Graphs that read from the old memory are freed.
func (e *Exec) makeRoom(n int) error {
	if n <= max(e.room, 1) || e.inputBytes() == 0 {
		return nil
	}
	p, err := e.own(int64(n)*e.inputBytes(), fmt.Sprintf("the inputs of %d micro-batches", n))
	if err != nil {
		return err
	}
	e.feeds, e.room = p, n
	err = e.b.d.Fill8(p, 0, int64(n)*e.inputBytes(), e.b.stream()) // memory between inputs is copied, too
	for v, g := range e.graphs {
		if v.micro > 1 {
			err = errors.Join(err, e.b.d.FreeExec(g))
			delete(e.graphs, v)
		}
	}
	return err
}

// feedAt is the address for the inputs of micro-batch i of n.
func (e *Exec) feedAt(i, n int) cuda.Ptr {
	if n == 1 {
		return e.arena
	}
	return e.feeds + cuda.Ptr(int64(i)*e.inputBytes())
}

// slot is host memory from which a step's inputs are copied. It may be reused when its event has
// completed.
type slot struct {
	mem  []byte
	free cuda.Event
}

// maxSlots is the number of steps that the host may run ahead of the copies of
// their inputs.
const maxSlots = 32

// stage copies feeds to page-locked memory and from there, in one piece, to the device. Large ones arrive
// beside the step before.
func (e *Exec) stage(feeds []runtime.Feed) error {
	total := int64(len(feeds)) * e.inputBytes()
	if total == 0 {
		return nil
	}
	s, err := e.freeSlot(total)
	if err != nil {
		return err
	}
	for i := range feeds {
		for k := range e.filled {
			f := &e.filled[k]
			binary.LittleEndian.PutUint32(s.mem[int64(i)*e.inputBytes()+int64(f.at):], uint32(f.value(i, e.rank())))
		}
	}
	on, err := e.deliver(e.feedAt(0, len(feeds)), s.mem[:total], func(from, to int64) { e.fill(s.mem, feeds, from, to) })
	if err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	return e.b.d.Record(s.free, on)
}

// fill copies what of the feeds lies between two offsets of the staging memory.
func (e *Exec) fill(mem []byte, feeds []runtime.Feed, from, to int64) {
	for i, f := range feeds {
		for _, in := range e.inputs {
			data, at := f[in.name].Data, int64(i)*e.inputBytes()+int64(in.at)
			if lo, hi := max(from, at), min(to, at+int64(len(data))); lo < hi {
				copy(mem[lo:hi], data[lo-at:])
			}
		}
	}
}

func roundUp(n int64) int64 { return (n + lower.Align - 1) / lower.Align * lower.Align }

// freeSlot returns staging memory that no copy reads any more, or allocates some.
// If the host is maxSlots ahead, it waits for the oldest.
func (e *Exec) freeSlot(n int64) (*slot, error) {
	for i := range e.slots {
		s := &e.slots[i]
		if int64(len(s.mem)) < n {
			continue
		}
		if done, err := e.b.d.Done(s.free); done || err != nil {
			return s, err
		}
	}
	if len(e.slots) >= maxSlots {
		return e.oldestSlot(n)
	}
	mem, err := e.b.d.HostAlloc(n)
	if err != nil {
		return nil, err
	}
	ev, err := e.b.d.NewEvent(false)
	if err != nil {
		return nil, errors.Join(err, e.b.d.HostFree(mem))
	}
	e.slots = append(e.slots, slot{mem, ev})
	return &e.slots[len(e.slots)-1], nil
}

// oldestSlot waits for the slot used longest ago and gives it n bytes.
func (e *Exec) oldestSlot(n int64) (*slot, error) {
	s := e.slots[0]
	copy(e.slots, e.slots[1:])
	last := &e.slots[len(e.slots)-1]
	*last = s
	if err := e.b.d.WaitHost(s.free); err != nil || int64(len(s.mem)) >= n {
		return last, err
	}
	mem, err := e.b.d.HostAlloc(n)
	if err != nil {
		return nil, err
	}
	last.mem = mem
	return last, e.b.d.HostFree(s.mem)
}

// placeResults allocates memory for the results of the last step and of every
// earlier step whose results are kept.
func (e *Exec) placeResults() error {
	total := int64(0)
	for _, o := range e.p.Outputs {
		e.results = append(e.results, result{total, o.Type.Bytes()})
		total += roundUp(o.Type.Bytes())
	}
	if total == 0 {
		return nil
	}
	var errs [2]error
	e.last, errs[0] = e.own(total, "results")
	e.ring, errs[1] = e.own(runtime.RingSize*total, "results")
	return errors.Join(errs[:]...)
}

// resultBytes is the size of the results of one step.
func (e *Exec) resultBytes() int64 {
	if len(e.results) == 0 {
		return 0
	}
	end := e.results[len(e.results)-1]
	return end.at + roundUp(end.bytes)
}

// keep copies the results of the step just issued to its slot in the ring.
func (e *Exec) keep() error {
	slot := e.ring + cuda.Ptr(e.seq%runtime.RingSize*e.resultBytes())
	for _, r := range e.results {
		if r.bytes == 0 {
			continue
		}
		if err := e.b.d.Copy(slot+cuda.Ptr(r.at), e.last+cuda.Ptr(r.at), r.bytes, e.b.stream()); err != nil {
			return err
		}
	}
	return nil
}

// Future reads the results of one step. It implements runtime.Future.
type Future struct {
	e   *Exec
	seq int64
}

var _ runtime.Future = (*Future)(nil)

// Read implements runtime.Future: it waits for the device.
func (t *Future) Read(out int, dst []byte) error {
	e := t.e
	return e.b.do(func() error {
		at, n, err := t.result(out)
		switch {
		case err != nil:
			return err
		case int64(len(dst)) != n:
			return fmt.Errorf("%s: result %s is %s, %d bytes, not %d", e.p.Name, e.p.Outputs[out].Name, e.p.Outputs[out].Type, n, len(dst))
		}
		if err := e.b.download(dst, at); err != nil {
			return fmt.Errorf("%s: %s: step %d or one before, found reading %s: %w", e.b.name, e.p.Name, t.seq+1, e.p.Outputs[out].Name, err)
		}
		return nil
	})
}

// result is the address of a result.
func (t *Future) result(out int) (at cuda.Ptr, bytes int64, err error) {
	e := t.e
	switch {
	case out < 0 || out >= len(e.p.Outputs):
		return 0, 0, fmt.Errorf("%s: result %d of %d", e.p.Name, out, len(e.p.Outputs))
	case e.seq-t.seq > runtime.RingSize:
		return 0, 0, fmt.Errorf("%s: the results of step %d are gone, the last %d steps keep theirs", e.p.Name, t.seq, runtime.RingSize)
	}
	r := e.results[out]
	return e.ring + cuda.Ptr(t.seq%runtime.RingSize*e.resultBytes()+r.at), r.bytes, nil
}
