package nccl

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ampc/cuda"
	"ampc/ir"
	"ampc/world"
)

// deaf is a communicator whose calls return from no abort.
type deaf struct{ cuda.Comm }

func (deaf) State() error { return nil }
func (deaf) Abort() error { select {} }

// A call that does not return after the abort, nor the abort, ends the process. One that returns
// does not.
func TestExit(t *testing.T) {
	for _, returns := range []bool{false, true} {
		ended := make(chan error, 1)
		o := Options{Size: 2, Timeout: 20 * time.Millisecond, Exit: func(err error) { ended <- err }}
		r := &ranks{o: o, comm: deaf{}, beats: newBeats(o), closing: make(chan struct{})}
		r.Begin("step 3 of mlp")
		end := r.watch()
		r.watcher.Add(1)
		go r.guard()
		if returns {
			for r.failed() == nil {
				time.Sleep(time.Millisecond)
			}
			if err := end(false); err == nil {
				t.Error("the call ends without an error")
			}
			time.Sleep(4 * o.grace())
			if len(ended) > 0 {
				t.Errorf("ended: %v", <-ended)
			}
			continue
		}
		want := "nccl: step 3 of mlp was not finished within 20ms: which rank is missing is not known: give all ranks the same AMPC_NCCL_FILE for heartbeats; the call did not return after the communicator was aborted"
		if err := <-ended; err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A rank that closes the World waits for one that may evaluate, and for one that is silent as long
// as any wait lasts.
func TestLeaving(t *testing.T) {
	o := Options{Size: 2, File: t.TempDir() + "/id", Timeout: 40 * time.Millisecond, Exit: func(error) {}}
	r := &ranks{o: o, comm: deaf{}, beats: newBeats(o), closing: make(chan struct{})}
	heardAt := func(at time.Time) {
		r.beats.mu.Lock()
		r.beats.last[1].when = at
		r.beats.mu.Unlock()
	}
	heardAt(time.Now().Add(time.Hour))
	r.leave()
	r.watch()
	r.watcher.Add(1)
	go r.guard()
	time.Sleep(5 * o.Timeout)
	if err := r.failed(); err != nil {
		t.Errorf("ended beside a rank that is there: %v", err)
	}
	heardAt(time.Now().Add(-time.Hour))
	for r.failed() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := r.failed(); !strings.Contains(err.Error(), "nccl: the end was not finished within 40ms: not heard of for ") {
		t.Error(err)
	}
}

// Messages are waited for in the order in which they were started.
func TestWaitOutOfTurn(t *testing.T) {
	r := &ranks{o: Options{Size: 1}, beats: newBeats(Options{Size: 1})}
	a := &world.Message{Name: "a", Op: world.Max, DType: ir.Bool}
	b := &world.Message{Name: "b", Op: world.Max, DType: ir.Bool}
	wait := func(m *world.Message, want string) {
		t.Helper()
		if err := r.Wait(t.Context(), m); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	wait(a, "nccl: rank 0: wait: the message a has not been started")
	if err := errors.Join(r.Start(a), r.Start(b)); err != nil {
		t.Fatal(err)
	}
	wait(b, "nccl: rank 0: wait: the message b is waited for before a, which was started first")
}
