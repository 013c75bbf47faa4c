package ampc_test

import (
	"context"
	"errors"
	"testing"

	"ampc"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// late is a backend like a device's: a step returns before its results are there.
type late struct {
	runtime.Backend
	ready chan struct{}
}

func (b late) Load(p *lower.Program, s runtime.Store) (runtime.Exec, error) {
	e, err := b.Backend.Load(p, s)
	return lateExec{e, b.ready}, err
}

type lateExec struct {
	runtime.Exec // without what else the CPU's can do: its results are prompt
	ready        chan struct{}
}

func (e lateExec) Step(ctx context.Context, feeds []runtime.Feed) (runtime.Future, error) {
	t, err := e.Exec.Step(ctx, feeds)
	return lateTicket{t, e.ready}, err
}

type lateTicket struct {
	runtime.Future
	ready chan struct{}
}

func (t lateTicket) Read(out int, dst []byte) error {
	<-t.ready
	return t.Future.Read(out, dst)
}

// The end of the context ends the wait and not the step, whose numbers another
// call waits for.
func TestWaitEndsWithItsContext(t *testing.T) {
	b, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m, loss := small(8)
	slow := late{b, make(chan struct{})}
	if err := m.Set(ampc.On(slow)); err != nil {
		t.Fatal(err)
	}
	r := run(t, train(t, m, loss, adam()), points(1, 8))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := r.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait whose context ended gives %+v (%v)", got, err)
	}
	close(slow.ready)
	if got := metrics(t, r); !(got.Loss > 0) || got.Scale != 65536 || got.Skipped {
		t.Errorf("the step came to %+v", got)
	}
	if err := m.Set(ampc.Seed(1)); err == nil {
		t.Error("options are taken after the first step was compiled")
	}
}
