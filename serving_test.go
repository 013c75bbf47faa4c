package ampc_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"ampc"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

var servingCalls = flag.Int("serving-calls", 300, "calls of TestServing")

// served is a model with a step for any batch, on a backend of some threads.
func served(t *testing.T, threads int) (*ampc.Model, *ampc.Step, ampc.Tensor) {
	t.Helper()
	b, err := cpu.Open(threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	m := ampc.New("served", ampc.On(b))
	x := m.Input("x", ampc.F32, ampc.Dim("N"), 24)
	y := m.Softmax(m.Linear("fc2", m.Relu(m.Linear("fc1", x, 64)), 40), -1)
	step, err := m.Infer(ampc.InferConfig{Sizes: ampc.Sizes{"N": 20}}, y)
	if err != nil {
		t.Fatal(err)
	}
	return m, step, y
}

// TestServing: calls of one step of many goroutines, for sizes that vary and beyond those that it keeps, give the bits that
// one goroutine gets, while results are released or not and some calls are cancelled.
func TestServing(t *testing.T) {
	for _, threads := range []int{1, 2, 3} {
		m, step, y := served(t, threads)
		feed := func(n int) ampc.Feed {
			x := make([]float32, 24*n)
			for i := range x {
				x[i] = float32((i*7+n)%23)/8 - 1
			}
			return ampc.Feed{"x": x}
		}
		const sizes = 12
		want := make([][]byte, sizes+1)
		call := func(ctx context.Context, n int, release bool) ([]byte, error) {
			s, err := step.For(ampc.Sizes{"N": int64(n)})
			if err != nil {
				return nil, err
			}
			r, err := s.Run(ctx, feed(n))
			if err != nil {
				return nil, err
			}
			h, err := r.Value(y)
			if release {
				r.Release()
				if _, err := r.Value(y); err == nil {
					t.Error("a released result has a value")
				}
			}
			return h.Bytes, err
		}
		for n := 1; n <= sizes; n++ {
			var err error
			if want[n], err = call(t.Context(), n, false); err != nil {
				t.Fatal(err)
			}
		}
		var group sync.WaitGroup
		for g := range 8 {
			group.Go(func() {
				dice := rand.New(rand.NewPCG(uint64(g), 3))
				for range *servingCalls / 3 / 8 {
					n, ctx := 1+dice.IntN(sizes), t.Context()
					if dice.IntN(9) == 0 {
						ended, cancel := context.WithCancel(ctx)
						cancel()
						if _, err := call(ended, n, true); err != nil && !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						continue
					}
					got, err := call(ctx, n, dice.IntN(2) == 0)
					if err != nil {
						t.Error(err)
					} else if !bytes.Equal(got, want[n]) {
						t.Errorf("%d threads, %d rows: other bits than one goroutine gets", threads, n)
					}
				}
			})
		}
		group.Wait()
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := call(t.Context(), 3, false); err == nil {
			t.Error("a call after Close has a result")
		}
	}
}

// TestCloseWaitsForCalls: Close ends when the calls that have begun are over; those that come later are errors.
func TestCloseWaitsForCalls(t *testing.T) {
	_, step, y := served(t, 2)
	x := make([]float32, 20*24)
	var group sync.WaitGroup
	begun := make(chan bool, 100)
	for range 6 {
		group.Go(func() {
			for {
				r, err := step.Run(t.Context(), ampc.Feed{"x": x})
				if err != nil {
					return
				}
				if _, err := r.Value(y); err != nil {
					t.Error(err)
				}
				select {
				case begun <- true:
				default:
				}
			}
		})
	}
	for range 20 {
		<-begun
	}
	if err := step.Close(); err != nil {
		t.Fatal(err)
	}
	group.Wait()
}

// TestServingWhileWritten: a write waits for the calls in flight, and calls that begin later see it.
func TestServingWhileWritten(t *testing.T) {
	m, step, y := served(t, 2)
	defer m.Close()
	x := make([]float32, 20*24)
	seen := map[float64]bool{}
	var group sync.WaitGroup
	var mu sync.Mutex
	for range 4 {
		group.Go(func() {
			for range 60 {
				r, err := step.Run(t.Context(), ampc.Feed{"x": x})
				if err != nil {
					t.Error(err)
					return
				}
				h, err := r.Value(y)
				if err != nil {
					t.Error(err)
					return
				}
				first := h.At(0)
				for row := range 20 {
					if h.At(40*row) != first {
						t.Error("rows of one call saw different biases")
					}
				}
				mu.Lock()
				seen[first] = true
				mu.Unlock()
			}
		})
	}
	bias := make([]float32, 40)
	for i := range 20 {
		bias[0] = float32(i)
		if err := m.SetVariable("fc2.b", bias); err != nil {
			t.Fatal(err)
		}
	}
	group.Wait()
	if len(seen) > 21 {
		t.Errorf("%d different results of 21 biases", len(seen))
	}
}

// TestONNXServing: runs of one session from many goroutines, on sizes beyond those that it keeps and with nodes on the
// host, give what one goroutine gets.
func TestONNXServing(t *testing.T) {
	for _, c := range []struct {
		path, out string
		width     int
	}{{"onnx/testdata/mlp.onnx", "p", 4}, {"onnx/testdata/positive.onnx", "y", 1}} {
		s, err := ampc.OpenONNX(c.path, ampc.ONNXRun{Programs: 3})
		if err != nil {
			t.Fatal(err)
		}
		run := func(n int) ([]byte, error) {
			x := make([]float32, c.width*n)
			for i := range x {
				x[i] = float32((i*5+n)%11) - 4
			}
			r, err := s.Run(t.Context(), ampc.Feed{"x": x})
			if err != nil {
				return nil, err
			}
			return r.Tensors[c.out].Bytes, nil
		}
		const sizes = 5
		want := make([][]byte, sizes+1)
		for n := 1; n <= sizes; n++ {
			if want[n], err = run(n); err != nil {
				t.Fatal(err)
			}
		}
		var group sync.WaitGroup
		for g := range 8 {
			group.Go(func() {
				dice := rand.New(rand.NewPCG(uint64(g), 4))
				for range *servingCalls / 3 / 8 {
					n := 1 + dice.IntN(sizes)
					if got, err := run(n); err != nil {
						t.Error(err)
					} else if !bytes.Equal(got, want[n]) {
						t.Errorf("%s, size %d: other bits than one goroutine gets", c.path, n)
					}
				}
			})
		}
		group.Wait()
		if n, _ := s.Programs(); n > 3 {
			t.Errorf("%s: %d programs are kept, the bound is 3", c.path, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := run(1); err == nil {
			t.Error("a closed session runs")
		}
	}
}

// TestServingCustomOp: the kernel of a custom op runs for one call at a time, and the result of each call is there,
// whatever its size, until it is released.
func TestServingCustomOp(t *testing.T) {
	b, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	inside := 0 // unguarded: the race detector reports kernels that run at the same time
	op := sum2(func(op *ampc.CustomOp) {
		kernel := op.Kernel
		op.Kernel = func(c *ampc.CustomCall, in, out []any) error {
			inside++
			defer func() { inside-- }()
			if inside > 1 {
				t.Error("the kernel runs for two calls at once")
			}
			return kernel(c, in, out)
		}
	})
	const elements = 64 << 10
	m := ampc.New("custom", ampc.On(b))
	defer m.Close()
	x := m.Input("x", ampc.F32, elements)
	y := m.Apply(op, x, x)
	step, err := m.Infer(ampc.InferConfig{}, y)
	if err != nil {
		t.Fatal(err)
	}
	call := func(seed int) (*ampc.Result, error) {
		feed := make([]float32, elements)
		for i := range feed {
			feed[i] = float32(seed)
		}
		return step.Run(t.Context(), ampc.Feed{"x": feed})
	}
	check := func(r *ampc.Result, seed int) {
		h, err := r.Value(y)
		if err != nil {
			t.Error(err)
			return
		}
		for _, i := range []int{0, elements / 2, elements - 1} {
			if h.At(i) != float64(2*seed) {
				t.Errorf("element %d is %g, want %d", i, h.At(i), 2*seed)
			}
		}
	}
	first, err := call(100)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 40 {
				r, err := call(g)
				if err != nil {
					t.Error(err)
					return
				}
				check(r, g)
				if i%2 == 0 {
					r.Release()
				}
			}
		})
	}
	group.Wait()
	check(first, 100)
}

// loadCounter is a backend that counts the programs that are loaded.
type loadCounter struct {
	*cpu.Backend
	n atomic.Int64
}

func (b *loadCounter) Load(p *lower.Program, s runtime.Store) (runtime.Exec, error) {
	b.n.Add(1)
	return b.Backend.Load(p, s)
}

// TestServingManySizes: a call compiles at most twice, for For and for Run, however many goroutines ask for sizes beyond
// those that the step keeps.
func TestServingManySizes(t *testing.T) {
	c, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := &loadCounter{Backend: c}
	m := ampc.New("sizes", ampc.On(b))
	defer m.Close()
	x := m.Input("x", ampc.F32, ampc.Dim("N"), 16)
	y := m.Relu(x)
	step, err := m.Infer(ampc.InferConfig{Sizes: ampc.Sizes{"N": 1}}, y)
	if err != nil {
		t.Fatal(err)
	}
	const goroutines, calls = 40, 4
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for i := range calls {
				n := 2 + (7*g+5*i)%40
				sized, err := step.For(ampc.Sizes{"N": int64(n)})
				if err != nil {
					t.Error(err)
					return
				}
				r, err := sized.Run(t.Context(), ampc.Feed{"x": make([]float32, 16*n)})
				if err != nil {
					t.Error(err)
					return
				}
				if h, err := r.Value(y); err != nil || h.Len() != 16*n {
					t.Errorf("%d elements of %d rows, %v", h.Len(), n, err)
				}
			}
		})
	}
	group.Wait()
	if most := int64(1 + 2*goroutines*calls); b.n.Load() > most {
		t.Errorf("%d programs were loaded for %d calls", b.n.Load(), goroutines*calls)
	}
}

// TestEndedContext: a call whose context has ended returns its cause, whoever waits.
func TestEndedContext(t *testing.T) {
	m, step, _ := served(t, 1)
	defer m.Close()
	mine := errors.New("mine")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	if _, err := step.Run(ctx, ampc.Feed{"x": make([]float32, 20*24)}); !errors.Is(err, mine) {
		t.Errorf("%v, want the cause", err)
	}
}

// TestTensorNotReturned: the error for a tensor that a step does not return names the call that lists it.
func TestTensorNotReturned(t *testing.T) {
	m, step, _ := served(t, 1)
	defer m.Close()
	r, err := step.Run(t.Context(), ampc.Feed{"x": make([]float32, 20*24)})
	if err != nil {
		t.Fatal(err)
	}
	const want = "result %x: not computed by this step: give it to Infer, or Eval, beside the others"
	if _, err := r.Value(m.Lookup("x")); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
