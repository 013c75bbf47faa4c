package cpu

import (
	"fmt"

	"ampc/runtime"
)

// future reads the results of one step from the ring.
type future struct {
	e   *exec
	seq int64
}

// publish copies the results to the ring. If steps may run concurrently, it copies them to memory
// of their own.
func (e *exec) publish() runtime.Future {
	if !e.of.exclusive {
		return e.publishOwn()
	}
	slot := e.ring[e.seq%runtime.RingSize]
	for i, out := range e.outputs {
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
	if e.seq-t.seq > runtime.RingSize {
		return fmt.Errorf("%s: the results of step %d are gone, the last %d steps keep theirs", e.p.Name, t.seq, runtime.RingSize)
	}
	copy(dst, e.ring[t.seq%runtime.RingSize][out])
	return nil
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
			t.outs[i] = make([]byte, len(out))
		}
	}
	for i, out := range e.outputs {
		copy(t.outs[i], out)
	}
	return t
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
