package ampc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/lower"
	"ampc/runtime"
)

// Every call on a model and its steps may come while others run: under the race
// detector nothing races, and none panics. Once the model is closed each is an error.
func TestCallsAtTheSameTime(t *testing.T) {
	m := ampc.New("busy")
	x, y := m.Input("x", ampc.F32, 2, 3), m.Input("y", ampc.I32, 2)
	out := m.Linear("fc", x, 2)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1)}, ampc.Loss{Value: m.CrossEntropy(out, y)})
	if err != nil {
		t.Fatal(err)
	}
	infer, err := step.Eval(out)
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(context.Background(), tinyFeed())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "c.safetensors")
	if err := m.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"run": func() error { _, err := step.Run(context.Background(), tinyFeed()); return err },
		"infer": func() error {
			_, err := infer.Run(context.Background(), tinyFeed())
			return err
		},
		"save":     func() error { return m.SaveFile(path) },
		"load":     func() error { return m.LoadFile(path) },
		"snapshot": func() error { _, err := m.Snapshot(); return err },
		"diagnose": func() error { _, err := step.Diagnose(context.Background()); return err },
		"rate":     func() error { return step.SetLR(0.1) },
		"read":     func() error { _, err := m.Variable("fc.w"); return err },
		"stuck":    step.Stuck,
		"loss": func() error {
			_, err := r.Wait(context.Background())
			step.Counters()
			m.Warnings()
			m.Variables()
			return err
		},
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for name, call := range calls {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := call(); err != nil && !closedError(err) {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	time.Sleep(10 * time.Millisecond)
	close(stop)
	wg.Wait()
	for _, name := range []string{"run", "infer", "save", "load", "diagnose", "rate", "read", "stuck"} {
		if err := calls[name](); err == nil {
			t.Errorf("%s after Close is not an error", name)
		}
	}
}

// closedError says whether err is what calls after Close answer.
func closedError(err error) bool {
	return strings.Contains(err.Error(), "closed")
}

// A training step that another goroutine is running is an error that says so; an inference step waits.
func TestTrainingStepOfTwoGoroutines(t *testing.T) {
	m, step, _ := tiny(t, ampc.TrainConfig{})
	defer m.Close()
	inside, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	step.Profile(func(lower.Part, int, runtime.Timing) {
		once.Do(func() { close(inside); <-leave })
	})
	first := make(chan error, 1)
	go func() {
		_, err := step.Run(context.Background(), tinyFeed())
		first <- err
	}()
	<-inside
	_, err := step.Run(context.Background(), tinyFeed())
	if err == nil || err.Error() != "run: another goroutine is running this training step: call it from one goroutine at a time" {
		t.Errorf("the second call: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- step.Close() }()
	select {
	case err = <-closed:
		t.Errorf("Close did not wait for the run: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	close(leave)
	if err := <-first; err != nil {
		t.Errorf("the first call: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := step.Run(context.Background(), tinyFeed()); err == nil {
		t.Error("Run after Close is not an error")
	}
}

// A deadline ends a step of many micro-batches, and everything a checkpoint holds is as it was.
func TestDeadlineInsideStep(t *testing.T) {
	m, step, _ := tiny(t, ampc.TrainConfig{Micro: 64, EMA: 0.9, Policy: ampc.MixedF16()})
	defer m.Close()
	state := func() string {
		s, err := m.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "s")
		if err := s.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := state()
	why := errors.New("deadline")
	ctx, cancel := context.WithCancelCause(context.Background())
	steps := 0
	step.Profile(func(lower.Part, int, runtime.Timing) {
		if steps++; steps == 40 {
			cancel(why)
		}
	})
	feeds := make([]ampc.Feed, 64)
	for i := range feeds {
		feeds[i] = tinyFeed()
	}
	if _, err := step.Run(ctx, feeds...); !errors.Is(err, why) || steps != 40 {
		t.Errorf("%v after %d kernels", err, steps)
	}
	if state() != before {
		t.Error("the interrupted step changed what a checkpoint holds")
	}
	step.Profile(nil)
	if _, err := step.Run(context.Background(), feeds...); err != nil {
		t.Error(err)
	}
	if state() == before {
		t.Error("the next step changed nothing")
	}
}

// A model that is dropped without Close leaves no goroutine behind.
func TestDroppedModelLeaksNothing(t *testing.T) {
	start := goruntime.NumGoroutine()
	for range 8 {
		tiny(t, ampc.TrainConfig{})
	}
	for range 100 {
		goruntime.GC()
		if goruntime.NumGoroutine() <= start {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", goruntime.NumGoroutine(), start)
}
