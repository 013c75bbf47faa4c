package cpu

import (
	"fmt"
	"slices"
	"sync"

	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// results are the results of a program that writes variables. Small ones are copied to a ring. Large ones stay
// in the work arena until the next step there: one of this program overwrites them, one of another
// program has them moved.
type results struct {
	mu    sync.Mutex // a Read may meet the step of an inference program, which moves results
	ring  [runtime.RingSize][][]byte
	large []int    // indexes of large ones
	stays []bool   // by place in large: the result is in the work arena
	last  int64    // the step whose large results are there, -1: none
	moved [][]byte // by place in large: memory for one that does not stay, or no longer
	away  bool     // all are in moved
}

// setResults finds the memory of results.
func (e *exec) setResults() {
	e.kept.last = -1
	for i, o := range e.p.Outputs {
		e.outputs = append(e.outputs, e.mem[o.Buffer])
		if o.Type.Bytes() > runtime.SmallResult {
			e.kept.large = append(e.kept.large, i)
			e.kept.stays = append(e.kept.stays, e.p.Buffers[e.p.Buffers[o.Buffer].Root].Arena == lower.WorkArena)
		}
	}
	e.kept.moved = make([][]byte, len(e.kept.large))
	for k := range e.kept.ring {
		e.kept.ring[k] = make([][]byte, len(e.outputs))
	}
}

// enter tells the programs that share the work arena that a step of e overwrites it.
func (e *exec) enter() {
	s := e.of.store
	s.mu.Lock()
	before := s.showing[e.context]
	delete(s.showing, e.context)
	s.mu.Unlock()
	switch {
	case before == e:
		e.kept.overwrite()
	case before != nil:
		before.moveResults()
	}
}

// overwrite ends the life of large results.
func (r *results) overwrite() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.away = -1, false
}

// moveResults copies large results from the work arena to memory of their own.
func (e *exec) moveResults() {
	r := &e.kept
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last < 0 || r.away {
		return
	}
	for k, stays := range r.stays {
		if stays {
			e.move(k)
		}
	}
	r.away = true
}

// move copies a large result to memory of its own.
func (e *exec) move(k int) {
	r, from := &e.kept, e.outputs[e.kept.large[k]]
	if r.moved[k] == nil {
		r.moved[k] = e.alloc(e.of.store, int64(len(from)))
	}
	copy(r.moved[k], from)
}

// resultOf returns where a result of a step is, nil if it is gone. e.kept.mu must be held.
func (e *exec) resultOf(seq int64, out int) []byte {
	r := &e.kept
	k := slices.Index(r.large, out)
	switch {
	case k < 0 && e.seq-seq <= runtime.RingSize:
		return r.ring[seq%runtime.RingSize][out]
	case k < 0 || r.last != seq:
		return nil
	case r.away || !r.stays[k]:
		return r.moved[k]
	}
	return e.outputs[out]
}

// future reads the results of one step from the ring.
type future struct {
	e   *exec
	seq int64
}

// publish copies small results to the ring. If the program writes no variable, it copies all results
// to memory of their own.
func (e *exec) publish() runtime.Future {
	if e.of.ownResults {
		return e.publishOwn()
	}
	slot := e.kept.ring[e.seq%runtime.RingSize]
	for i, out := range e.outputs {
		if slices.Contains(e.kept.large, i) {
			continue
		}
		if slot[i] == nil { // the ring is allocated by the first steps
			slot[i] = make([]byte, len(out))
		}
		copy(slot[i], out)
	}
	if len(e.futures) == 0 {
		e.futures = make([]future, 1024)
	}
	t := &e.futures[0]
	e.futures = e.futures[1:]
	t.e, t.seq = e, e.seq
	e.seq++
	if len(e.kept.large) > 0 {
		for k, stays := range e.kept.stays {
			if !stays {
				e.move(k)
			}
		}
		e.kept.last = t.seq
		e.of.store.show(e)
	}
	return t
}

// Read implements runtime.Future.
func (t *future) Read(out int, dst []byte) error {
	e := t.e
	if err := e.b.semaphore.acquire(neverDone, 1); err != nil {
		return err
	}
	defer e.b.semaphore.release(1)
	if err := e.of.checkRead(out, len(dst)); err != nil {
		return err
	}
	why := "large results are kept until the next step"
	if e.of.isClosed() {
		why = "the step is closed"
	}
	e.kept.mu.Lock()
	defer e.kept.mu.Unlock()
	from := e.resultOf(t.seq, out)
	if from != nil {
		copy(dst, from)
		return nil
	}
	if len(dst) > runtime.SmallResult {
		return fmt.Errorf("%s: result %s of step %d is gone: %s", e.p.Name, e.p.Outputs[out].Name, t.seq, why)
	}
	return fmt.Errorf("%s: the results of step %d are gone, the last %d steps keep theirs", e.p.Name, t.seq, runtime.RingSize)
}

// checkRead checks that a result can be read into n bytes.
func (x *program) checkRead(out, n int) error {
	if out < 0 || out >= len(x.p.Outputs) {
		return fmt.Errorf("%s: result %d of %d", x.p.Name, out, len(x.p.Outputs))
	}
	if o := &x.p.Outputs[out]; int64(n) != o.Type.Bytes() {
		return fmt.Errorf("%s: result %s is %s, %d bytes, not %d", x.p.Name, o.Name, o.Type, o.Type.Bytes(), n)
	}
	return nil
}

// ownFuture holds the results of a step in memory of its own, until Release.
type ownFuture struct {
	of   *program
	outs [][]byte
}

func (e *exec) publishOwn() *ownFuture {
	x := e.of
	t := &ownFuture{of: x}
	x.mu.Lock()
	if n := len(x.spare); n > 0 {
		t.outs, x.spare = x.spare[n-1], x.spare[:n-1]
	}
	x.mu.Unlock()
	if t.outs == nil {
		t.outs = make([][]byte, len(e.outputs))
		for i, out := range e.outputs {
			t.outs[i] = kern.AllocAny(int64(len(out)))
		}
	}
	for i, out := range e.outputs {
		e.copying.copy(e.machine(), t.outs[i], out)
	}
	return t
}

// parallelCopy copies memory, a piece a task.
type parallelCopy struct{ dst, src []byte }

// copiedAtOnce is the number of bytes of a piece.
const copiedAtOnce = 256 << 10

// copy copies src to dst, which is as long, on all workers if it is long.
func (c *parallelCopy) copy(m *kern.Machine, dst, src []byte) {
	c.dst, c.src = dst, src
	m.Run(moveWork*len(src), (len(src)+copiedAtOnce-1)/copiedAtOnce, c)
	c.dst, c.src = nil, nil
}

// Run implements kern.Task.
func (c *parallelCopy) Run(_, i int) {
	at := i * copiedAtOnce
	copy(c.dst[at:min(at+copiedAtOnce, len(c.dst))], c.src[at:])
}

// Read implements runtime.Future.
func (t *ownFuture) Read(out int, dst []byte) error {
	if err := t.of.checkRead(out, len(dst)); err != nil {
		return err
	}
	from, err := t.Bytes(out)
	copy(dst, from)
	return err
}

// Bytes implements runtime.Kept.
func (t *ownFuture) Bytes(out int) ([]byte, error) {
	if t.outs == nil {
		return nil, fmt.Errorf("%s: the results were released", t.of.p.Name)
	}
	return t.outs[out], nil
}

// Release implements runtime.Kept. A later step reuses the memory.
func (t *ownFuture) Release() {
	x := t.of
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.outs != nil && !x.closed && len(x.spare) < 2*x.b.Threads() {
		x.spare = append(x.spare, t.outs)
	}
	t.outs = nil
}

var _ runtime.Kept = (*ownFuture)(nil)
