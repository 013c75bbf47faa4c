package gpu_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/gpu"
	"ampc/runtime/runtimetest"
)

// attempt loads g on a device with faults and takes steps of these many
// micro-batches. It gives everything back, and says what went wrong first.
func attempt(t *testing.T, g *ir.Graph, opt sim.Options, micro ...int) (failed error) {
	t.Helper()
	opt.Major = 9
	d, err := sim.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	b, err := gpu.OpenOn(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	var closers []func() error
	defer func() {
		for _, c := range append(closers, b.Close, d.Close) {
			if err := c(); err != nil && !errors.Is(failed, gpu.ErrLost) && !sticky(failed) {
				t.Errorf("after %v: %v", failed, err)
			}
		}
	}()
	p, err := lower.Lower(g, b.Target())
	if err != nil {
		t.Fatal(err)
	}
	vars, err := runtime.Variables(p)
	if err != nil {
		t.Fatal(err)
	}
	store, err := b.NewStore(vars)
	if err != nil {
		return err
	}
	closers = append(closers, store.Close)
	if err := runtimetest.Initialize(store, vars, 1); err != nil {
		return err
	}
	e, err := b.Load(p, store)
	if err != nil {
		return err
	}
	closers = append([]func() error{e.Close}, closers...)
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range micro {
		feeds := make([]runtime.Feed, n)
		for i := range feeds {
			f := feed(g, r)
			if f["boost"] != nil {
				f["boost"].F[0] = 1
			}
			feeds[i] = runtimetest.Feeds(f)[0]
		}
		if _, err := e.Step(context.Background(), feeds); err != nil && failed == nil {
			failed = err
		} else if err != nil && sticky(failed) != errors.Is(err, gpu.ErrLost) {
			t.Errorf("after %v: %v", failed, err)
		}
	}
	return failed
}

func sticky(err error) bool {
	var e *cuda.Error
	return errors.As(err, &e) && e.Sticky()
}

// TestOutOfMemoryAnywhere lets every allocation fail in turn: the error says
// what was wanted and, once there is a Program, what its plan needs; nothing
// that was reserved before is left.
func TestOutOfMemoryAnywhere(t *testing.T) {
	g := small(t, 3, 100)
	planned := 0
	for n := 1; ; n++ {
		err := attempt(t, g, sim.Options{FailAlloc: n}, 1, 3, 3)
		if err == nil {
			if n < 8 || planned < 6 {
				t.Errorf("%d allocations, %d with a plan", n-1, planned)
			}
			return
		}
		if !errors.Is(err, cuda.ErrOutOfMemory) || !strings.Contains(err.Error(), "are free") {
			t.Errorf("allocation %d: %v", n, err)
		}
		if strings.Contains(err.Error(), "the plan: variables ") {
			planned++
		} else if n > 2 { // the first two are the store's: variables, then accumulators
			t.Errorf("allocation %d: no plan in %v", n, err)
		}
	}
}

// TestInjectedFaults names what failed: a compiler's complaint when the Program
// is loaded, a product that did not execute (the next step runs), what a library
// lacks with what to do, a graph of cuDNN that broke the context.
func TestInjectedFaults(t *testing.T) {
	plain := small(t, 1, 100)
	images := ready(t, "lenet?batch=2&size=8&conv1=2&conv2=3&fc1=8&fc2=6&pad=2", "mixed-f16", "sm_90")[0]
	for _, c := range []struct {
		name string
		g    *ir.Graph
		opt  sim.Options
		want []string
	}{
		{"text of a kernel", plain, sim.Options{FailLoad: 1}, []string{": small: ", "ptxas application ptx input, line 1"}},
		{"product of the first step", plain, sim.Options{FailProduct: 2}, []string{"small: step 1: micro step ", "(gemm %", "cublasLtMatmul"}},
		{"product while a step is captured", plain, sim.Options{FailProduct: 7}, []string{"small: step 2: capturing the step: ", "(gemm %", "cublasLtMatmul"}},
		{"no product", plain, sim.Options{NoAlgorithm: true}, []string{"gemm %", "NOT_SUPPORTED"}},
		{"no convolution", images, sim.Options{NoConv: true}, []string{"conv %d.", "NOT_SUPPORTED", "named .../noconv"}},
		{"graph of cuDNN", images, sim.Options{FailGraph: 1}, []string{": lenet: step 1: ", "(conv %d.", "the context is lost"}},
		{"launch", plain, sim.Options{FailLaunch: 3}, []string{"small: step 1: ", "kernel ", "the context is lost"}},
	} {
		err := attempt(t, c.g, c.opt, 1, 1, 1, 1)
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: got %v, want ... %s ...", c.name, err, w)
				break
			}
		}
	}
}
