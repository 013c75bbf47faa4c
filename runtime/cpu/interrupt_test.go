package cpu

import (
	"bytes"
	"context"
	"errors"
	goruntime "runtime"
	"sync"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// sums adds up over micro-batches in the micro part, and moves a parameter by the sum in update.
const sums = `graph @sums {
  input %x : f32[8]
  input %i : i32[] {role="micro"}
  param %w : f32[8] = 1
  state %acc : f32[8]
  const %zero : i32[] = 0
forward:
  %first = eq %i, %zero : bool[]
  %y = mul %x, %w : f32[8]
  %z = exp %y : f32[8]
  %acc' = accum %acc, %z, %first
update:
  %w' = sub %w, %acc'
  return %z
}
`

// stateOf is all bytes of the variables of p.
func stateOf(t *testing.T, p *lower.Program, s runtime.Store) []byte {
	t.Helper()
	var all []byte
	for _, v := range p.Vars {
		if v.Kind != ir.Param && v.Kind != ir.State {
			continue
		}
		b := make([]byte, v.Type.Bytes())
		if err := s.Read(v.Name, b); err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// A step is interrupted between any two steps of its Program and leaves every byte of every variable as it was, until
// its update begins: then it ends, and the next one is not disturbed.
func TestInterruptedStepLeavesState(t *testing.T) {
	p, s, e := loaded(t, open(t, 1), sums)
	feeds := []runtime.Feed{feedFor(p), feedFor(p), feedFor(p)}
	if _, err := e.Step(context.Background(), feeds); err != nil {
		t.Fatal(err)
	}
	before := stateOf(t, p, s)
	early := len(p.Parts[lower.Prepare]) + len(feeds)*len(p.Parts[lower.Micro])
	why := errors.New("enough")
	for at := range early + len(p.Parts[lower.Update]) {
		ctx, cancel := context.WithCancelCause(t.Context())
		seen := 0
		e.Trace(runtime.Tracer{Step: func(lower.Part, int) bool {
			if seen == at {
				cancel(why)
			}
			seen++
			return true
		}})
		_, err := e.Step(ctx, feeds)
		if at >= early {
			if err != nil || bytes.Equal(stateOf(t, p, s), before) {
				t.Errorf("interrupted after step %d, in update: %v; the update must end", at, err)
			}
			break
		}
		if !errors.Is(err, why) || seen != at+1 {
			t.Errorf("interrupted after step %d: %v after %d steps", at, err, seen)
		}
		if !bytes.Equal(stateOf(t, p, s), before) {
			t.Fatalf("interrupted after step %d: variables changed", at)
		}
		cancel(nil)
	}
}

// A step of a closed Exec is an error, also where it was closed while another ran.
func TestStepAfterClose(t *testing.T) {
	p, _, e := loaded(t, open(t, 1), sums)
	started, closed := make(chan struct{}), make(chan error)
	first := true
	e.Trace(runtime.Tracer{Step: func(lower.Part, int) bool {
		if first {
			first = false
			close(started)
		}
		return true
	}})
	go func() {
		<-started
		closed <- e.Close()
	}()
	if _, err := e.Step(context.Background(), []runtime.Feed{feedFor(p)}); err != nil {
		t.Errorf("the step that ran: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := e.Step(context.Background(), []runtime.Feed{feedFor(p)}); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Close of a backend waits for the step that runs. Later steps and loads are errors; programs can still be closed.
func TestCloseBackendWaits(t *testing.T) {
	b := open(t, 2)
	p, s, e := loaded(t, b, sums)
	started, closed := make(chan struct{}), make(chan struct{})
	var failed error
	go func() {
		<-started
		failed = b.Close()
		close(closed)
	}()
	begin := sync.OnceFunc(func() {
		close(started)
		for waits := false; !waits; goruntime.Gosched() {
			b.semaphore.mu.Lock()
			waits = len(b.semaphore.queue) > 0 || b.closed
			b.semaphore.mu.Unlock()
		}
	})
	e.Trace(runtime.Tracer{Step: func(lower.Part, int) bool {
		begin()
		select {
		case <-closed:
			t.Error("Close returned while a step ran")
		default:
		}
		return true
	}})
	step := func() error {
		_, err := e.Step(t.Context(), []runtime.Feed{feedFor(p)})
		return err
	}
	if err := step(); err != nil {
		t.Errorf("the step that ran: %v", err)
	}
	if <-closed; failed != nil {
		t.Error(failed)
	}
	if err := step(); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("a step after Close: %v", err)
	}
	if _, err := b.Load(p, s); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("a load after Close: %v", err)
	}
	for _, end := range []func() error{b.Close, e.Close, s.Close} {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}
