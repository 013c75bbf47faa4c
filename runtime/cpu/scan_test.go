package cpu

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"ampc/runtime"
)

// Each shares the workers with steps of inference that run meanwhile: each index is called once,
// and the steps give the bits that they give alone.
func TestEachBesideSteps(t *testing.T) {
	b := open(t, 2)
	p, _, e := loaded(t, b, `graph @infer {
  input %x : f32[64,64]
  param %w : f32[64,64]
forward:
  %h = matmul %x, %w : f32[64,64]
  %r = relu %h : f32[64,64]
  %y = softmax %r : f32[64,64]
  return %y
}
`)
	feed := feedFor(p)
	x := slice[float32](feed["x"].Data)
	for i := range x {
		x[i] = float32(i%13) - 6
	}
	run := func() []byte {
		f, err := e.Step(context.Background(), []runtime.Feed{feed})
		out := make([]byte, p.Outputs[0].Type.Bytes())
		if err == nil {
			err = f.Read(0, out)
		}
		if err != nil {
			t.Error(err)
		}
		return out
	}
	want := run()
	var over atomic.Bool
	var steps sync.WaitGroup
	steps.Go(func() {
		for !over.Load() {
			if got := run(); !bytes.Equal(got, want) {
				t.Error("a step beside Each gives other bits")
				return
			}
		}
	})
	for range 2000 {
		calls := make([]atomic.Int32, 8)
		b.Each(len(calls), func(i int) {
			for range 2000 { // as long as a region of a step
				calls[i].Add(1)
			}
		})
		if i := firstOther(calls); i >= 0 {
			t.Errorf("index %d is counted %d times, want 2000", i, calls[i].Load())
			break
		}
	}
	over.Store(true)
	steps.Wait()
}

// firstOther is the first index that was not called once, 2000 times counted, -1 where there is none.
func firstOther(calls []atomic.Int32) int {
	for i := range calls {
		if calls[i].Load() != 2000 {
			return i
		}
	}
	return -1
}
