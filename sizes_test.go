package ampc_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"ampc"
)

// anySize is a model whose batch has a name.
func anySize(t *testing.T, c ampc.TrainConfig) (*ampc.Model, *ampc.Step, ampc.Tensor) {
	t.Helper()
	m := ampc.New("any")
	x, y := m.Input("x", ampc.F32, ampc.Dim("N"), 6), m.Input("y", ampc.I32, ampc.Dim("N"))
	out := m.Linear("fc2", m.Gelu(m.Linear("fc1", x, 8)), 3)
	loss := m.CrossEntropy(out, y)
	c.Sizes, c.Outputs = ampc.Sizes{"N": 8}, []ampc.Output{{Tensor: out, Reduce: ampc.Sum}}
	step, err := m.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, step, loss
}

func anyFeed(n int) ampc.Feed {
	x, y := make([]float32, 6*n), make([]int32, n)
	for i := range x {
		x[i] = float32(i%11)/8 - 0.6
	}
	for i := range y {
		y[i] = int32(i % 3)
	}
	return ampc.Feed{"x": x, "y": y}
}

func sized(t *testing.T, s *ampc.Step, n int64) *ampc.Step {
	t.Helper()
	size, err := s.For(ampc.Sizes{"N": n})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// A short batch is a step like any other: the schedule continues, and so do moments,
// the loss scale and the averages.
func TestSizesShareAllState(t *testing.T) {
	scaler := ampc.Dynamic()
	scaler.Every = 2
	c := ampc.TrainConfig{Optimizer: ampc.AdamW(0.1), LR: ampc.Cosine(1e-2, 3, 20), Policy: ampc.MixedF16(), Scaler: scaler, EMA: 0.9, Micro: 2}
	m, step, loss := anySize(t, c)
	plain := c
	plain.Policy, plain.Scaler = ampc.F32Only(), ampc.Unscaled()
	wide, reference, _ := anySize(t, plain)
	before := m.Variables()
	_, fixed, _ := anySize(t, plain)
	for k, n := range []int64{8, 8, 5, 8, 3, 5, 8} {
		want := metrics(t, run(t, fixed, anyFeed(8))).LR
		for _, s := range []*ampc.Step{sized(t, step, n), sized(t, reference, n)} {
			r, err := s.Run(t.Context(), anyFeed(int(n)), anyFeed(int(n)))
			if err != nil {
				t.Fatal(err)
			}
			if metrics(t, r).LR != want {
				t.Errorf("step %d of %d rows: the rate is %g, by steps of one size %g", k, n, metrics(t, r).LR, want)
			}
		}
	}
	for name, want := range map[string]float64{"amp.step": 7, "amp.attempt": 7, "amp.ema.steps": 7, "amp.scale": 65536 * 8} {
		if x, err := m.Variable(name); err != nil || x.At(0) != want {
			t.Errorf("%s is %g after 7 steps of three sizes, want %g (%v)", name, x.At(0), want, err)
		}
	}
	for _, name := range m.Variables() {
		if !slices.Contains(before, name) && !strings.HasPrefix(name, "amp.acc.") {
			t.Errorf("a further size has %s of its own", name)
		}
	}
	followsF32(t, m, wide, 7, "fc1.w", "fc2.b", "amp.ema/fc1.w")
	eval, err := step.Eval(loss)
	if err == nil {
		eval, err = eval.For(ampc.Sizes{"N": 5})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eval.Run(t.Context(), anyFeed(5)); err != nil {
		t.Error(err)
	}
}

// The bound holds, what is evicted or closed says so, and a step's sizes end with it.
func TestSizesAreBounded(t *testing.T) {
	_, step, _ := anySize(t, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), KeepSizes: 2})
	three, four := sized(t, step, 3), sized(t, step, 4)
	if sized(t, step, 3) != three || sized(t, four, 8) != step {
		t.Error("a size that is there is compiled again")
	}
	five := sized(t, step, 5) // evicts 4, which was asked for before 3
	if _, err := four.Run(t.Context(), anyFeed(4)); err == nil || err.Error() != "the step is closed" {
		t.Errorf("an evicted size: %v", err)
	}
	if _, err := three.Run(t.Context(), anyFeed(3)); err != nil {
		t.Error(err)
	}
	if _, err := step.For(ampc.Sizes{"M": 3}); err == nil || !strings.Contains(err.Error(), `no dimension "M"`) {
		t.Errorf("error %v", err)
	}
	if err := step.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*ampc.Step{three, five} {
		if _, err := s.Run(t.Context(), anyFeed(3)); err == nil || err.Error() != "the step is closed" {
			t.Errorf("a size of a closed step: %v", err)
		}
	}
}

// What has another size is refused in a line that names For; micro-batches of one
// step have one size.
func TestFeedsOfAnotherSizeNameFor(t *testing.T) {
	_, step, _ := anySize(t, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Micro: 2})
	_, err := step.Run(t.Context(), anyFeed(5))
	const want = `feed "x" has 30 elements, want f32[8,6], which has 48; for N=5 take step.For(ampc.Sizes{"N": 5}), with all micro-batches of that size`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	floats := anyFeed(8)
	floats["y"] = make([]float32, 8)
	const dtype = `feed "y" is a []float32, want i32[8]: feed []int32, []int64, []int or []uint8`
	if _, err := step.Run(t.Context(), floats); err == nil || err.Error() != dtype {
		t.Errorf("%v\nwant %s", err, dtype)
	}
	_, err = step.Run(t.Context(), anyFeed(8), anyFeed(5))
	if err == nil || err.Error() != "micro-batch 1: "+want {
		t.Errorf("%v\nwant micro-batch 1: %s", err, want)
	}
	turned := anyFeed(8)
	turned["x"] = ampc.HostTensor{Type: ampc.TypeOf(ampc.F32, 6, 8), Bytes: make([]byte, 4*48)}
	const shape = `feed "x" is f32[6,8], want f32[8,6]`
	if _, err := step.Run(t.Context(), turned); err == nil || err.Error() != shape {
		t.Errorf("%v\nwant %s", err, shape)
	}
}

// 200 sizes, compiled and closed, leave no memory behind.
func TestClosedSizesAreFreed(t *testing.T) {
	m, step, _ := anySize(t, ampc.TrainConfig{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.1), Policy: ampc.MixedF16(), KeepSizes: 1, Micro: 2})
	vars := len(m.Variables())
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	var early uint64
	for n := range int64(200) {
		if _, err := sized(t, step, 100+n%2*1000+n).Run(t.Context(), anyFeed(int(100+n%2*1000+n))); err != nil {
			t.Fatal(err)
		}
		if n == 50 {
			early = heap()
		}
	}
	if late := heap(); late > early+early/4+1<<20 {
		t.Errorf("%d bytes in use after 50 sizes, %d after 200", early, late)
	}
	if err := sized(t, step, 299).Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(m.Variables()); n != vars {
		t.Errorf("%d variables, %d before: %q", n, vars, m.Variables())
	}
}

// Accumulated micro-batches of two sizes are refused in a line, whichever came
// first and whatever is called; those that wait are kept.
func TestAccumulatedSizesAreOne(t *testing.T) {
	_, step, _ := anySize(t, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Micro: 2, KeepSizes: 1})
	five := sized(t, step, 5)
	for _, pair := range [][2]*ampc.Step{{step, five}, {five, step}} {
		rows := map[*ampc.Step]int{step: 8, five: 5}
		if err := pair[0].Accumulate(t.Context(), anyFeed(rows[pair[0]])); err != nil {
			t.Fatal(err)
		}
		for call, f := range map[string]func(s *ampc.Step) error{
			"accumulate": func(s *ampc.Step) error { return s.Accumulate(t.Context(), anyFeed(rows[s])) },
			"run":        func(s *ampc.Step) error { _, err := s.Run(t.Context(), anyFeed(rows[s])); return err },
			"apply":      func(s *ampc.Step) error { _, err := s.Apply(t.Context()); return err },
		} {
			err := f(pair[1])
			want := fmt.Sprintf("%s: 1 accumulated micro-batches of another size (N=%d) wait for Apply: all micro-batches of a step have one size", call, rows[pair[0]])
			if err == nil || err.Error() != want {
				t.Errorf("%v\nwant %s", err, want)
			}
		}
		if pair[0] == five { // which is not evicted now
			if _, err := sized(t, step, 4).Run(t.Context(), anyFeed(4)); err == nil || !strings.Contains(err.Error(), "another size (N=5) wait") {
				t.Errorf("a size beside one that waits: %v", err)
			}
		}
		if _, err := pair[0].Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Steps that are compiled and closed leave nothing in the model.
func TestClosedStepsAreFreed(t *testing.T) {
	m, loss := small(8)
	defer m.Close()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	var early uint64
	for n := range 60 {
		s, err := m.Train(adam(), ampc.Loss{Value: loss})
		if err != nil {
			t.Fatal(err)
		}
		run(t, s, points(1, 8))
		eval, err := s.Eval(loss)
		if err != nil {
			t.Fatal(err)
		}
		other, err := m.Infer(ampc.InferConfig{}, loss)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*ampc.Step{eval, other} {
			if _, err := s.Run(t.Context(), points(1, 8)); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if n == 10 {
			early = heap()
		}
	}
	late := heap()
	for try := 0; late > early+early/8+256<<10; try++ {
		if try == 20 {
			t.Fatalf("%d bytes in use after 10 times three steps, %d after 60", early, late)
		}
		time.Sleep(100 * time.Millisecond) // goroutines of closed steps may still end
		late = heap()
	}
}

func TestNamedDimensions(t *testing.T) {
	m := ampc.New("dims")
	x := m.Input("x", ampc.F32, ampc.Dim("n"), 4)
	y := m.Linear("fc", x, 2)
	_, err := m.Infer(ampc.InferConfig{}, y)
	wantError(t, err, `dimension n has no size: give it in Sizes: ampc.Sizes{"n": 64}`)
	defer m.Close()
	for _, n := range []int64{1, 5} {
		s, err := m.Infer(ampc.InferConfig{Sizes: ampc.Sizes{"n": n}}, y)
		if err != nil {
			t.Fatal(err)
		}
		h, err := run(t, s, ampc.Feed{"x": make([]float32, 4*n)}).Value(y)
		if err != nil || h.Len() != int(2*n) {
			t.Errorf("n=%d: %v (%v)", n, h.Type, err)
		}
	}
}

// TestSizesMissing pins what is said where a size must be known before Sizes gives it.
func TestSizesMissing(t *testing.T) {
	m := ampc.New("missing")
	x := m.Input("x", ampc.F32, ampc.Dim("n"), ampc.Dim("k"))
	y := m.ReduceMean(m.Slice(x, []int{0, 1}, []int{0, 0}, []int{1, 1}))
	m.Grad(y, x)
	wantError(t, m.Err(), "dimensions n, k have no sizes: give Input numbers instead of names there")
}
