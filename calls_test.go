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
	"ampc/runtime/cpu"
	"github.com/x448/float16"
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

// tiny is a model of one layer with a step that was run once.
func tiny(t *testing.T, c ampc.TrainConfig) (*ampc.Model, *ampc.Step, *ampc.Result) {
	t.Helper()
	m := ampc.New("tiny")
	x, y := m.Input("x", ampc.F32, 2, 3), m.Input("y", ampc.I32, 2)
	loss := m.CrossEntropy(m.Linear("fc", x, 2), y)
	c.Optimizer, c.LR = ampc.SGD(0), ampc.Constant(0.1)
	step, err := m.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(t.Context(), tinyFeed())
	if err != nil {
		t.Fatal(err)
	}
	return m, step, r
}

func tinyFeed() ampc.Feed {
	return ampc.Feed{"x": []float32{1, 2, 3, 4, 5, 6}, "y": []int32{0, 1}}
}

// A step that was closed, or whose model was, says so; so does the result of a step that did not run.
func TestClosedStepsSaySo(t *testing.T) {
	for name, end := range map[string]func(*ampc.Model, *ampc.Step) error{
		"step":  func(_ *ampc.Model, s *ampc.Step) error { return s.Close() },
		"model": func(m *ampc.Model, _ *ampc.Step) error { return m.Close() },
	} {
		m, step, _ := tiny(t, ampc.TrainConfig{})
		if err := end(m, step); err != nil {
			t.Fatal(err)
		}
		for call, f := range map[string]func() error{
			"Run":        func() error { _, err := step.Run(t.Context(), tinyFeed()); return err },
			"Accumulate": func() error { return step.Accumulate(t.Context(), tinyFeed()) },
			"Apply":      func() error { _, err := step.Apply(t.Context()); return err },
			"Eval":       func() error { _, err := step.Eval(ampc.Tensor{}); return err },
			"SetLR":      func() error { return step.SetLR(1) },
			"Diagnose":   func() error { _, err := step.Diagnose(t.Context()); return err },
			"SaveReplay": func() error { return step.SaveReplay(filepath.Join(t.TempDir(), "a.ampc")) },
			"Stuck":      step.Stuck,
		} {
			if err := f(); err == nil || err.Error() != "the step is closed" {
				t.Errorf("%s closed: %s gives %v", name, call, err)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	var none *ampc.Result
	_, waited := none.Wait(t.Context())
	_, value := none.Value(ampc.Tensor{})
	_, grad := none.Grad(ampc.Tensor{})
	for call, err := range map[string]error{"Wait": waited, "Value": value, "Grad": grad} {
		if err == nil {
			t.Errorf("a step that did not run: %s gives no error", call)
		}
	}
}

// What a closed model refuses says that it is closed, not that it has no step yet.
func TestClosedModelsSaySo(t *testing.T) {
	m, _, _ := tiny(t, ampc.TrainConfig{})
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	path, loss := filepath.Join(t.TempDir(), "a.safetensors"), m.Lookup("cross_entropy")
	loss = m.ReduceSum(loss)
	for call, f := range map[string]func() error{
		"SaveFile":    func() error { return m.SaveFile(path) },
		"LoadFile":    func() error { return m.LoadFile(path) },
		"Snapshot":    func() error { _, err := m.Snapshot(); return err },
		"SetMeta":     func() error { return m.SetMeta("a", "b") },
		"Variable":    func() error { _, err := m.Variable("fc.w"); return err },
		"SetVariable": func() error { return m.SetVariable("fc.w", 1) },
		"Train": func() error {
			_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Name: "b"}, ampc.Loss{Value: loss})
			return err
		},
		"Infer": func() error { _, err := m.Infer(ampc.InferConfig{}, loss); return err },
		"Calibrate": func() error {
			_, err := m.Calibrate(t.Context(), ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, nil, ampc.Loss{Value: loss})
			return err
		},
		"Set": func() error { return m.Set(ampc.Seed(1)) },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "the model is closed") || strings.Contains(err.Error(), "compile") {
			t.Errorf("%s gives %v", call, err)
		}
	}
}

// A context that ended does not lose what was accumulated.
func TestApplyKeepsMicroBatchesForAnotherCall(t *testing.T) {
	m, step, first := tiny(t, ampc.TrainConfig{})
	defer m.Close()
	if err := step.Accumulate(t.Context(), tinyFeed()); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := step.Apply(ended); err != context.Canceled {
		t.Fatalf("error %v", err)
	}
	r, err := step.Apply(t.Context())
	if err != nil || !(metrics(t, r).Loss < metrics(t, first).Loss) {
		t.Errorf("loss %g after %g (%v)", metrics(t, r).Loss, metrics(t, first).Loss, err)
	}
}

// Halves are taken for f32 as they are for f16.
func TestHalvesFedForF32(t *testing.T) {
	m, step, r := tiny(t, ampc.TrainConfig{})
	defer m.Close()
	half := tinyFeed()
	half["x"] = []float16.Float16{float16.Fromfloat32(1), float16.Fromfloat32(2), float16.Fromfloat32(3), float16.Fromfloat32(4), float16.Fromfloat32(5), float16.Fromfloat32(6)}
	again, err := step.Run(t.Context(), half)
	if err != nil || !(metrics(t, again).Loss < metrics(t, r).Loss) {
		t.Errorf("halves fed for f32: loss %g after %g (%v)", metrics(t, again).Loss, metrics(t, r).Loss, err)
	}
}

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
