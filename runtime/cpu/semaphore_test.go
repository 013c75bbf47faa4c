package cpu

import (
	"bytes"
	"context"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// As many steps run at the same time as the limit says when they begin; an exclusive one runs alone.
func TestSemaphoreFollowsItsLimit(t *testing.T) {
	limit := 1
	g := newSemaphore(func() int { return limit })
	granted := func(permits int) bool {
		ctx, end := context.WithTimeout(context.Background(), time.Millisecond)
		defer end()
		return g.acquire(ctx, permits) == nil
	}
	for _, c := range []struct {
		limit, permits int
		want           bool
	}{{1, 1, true}, {1, 1, false}, {3, 1, true}, {3, allPermits, false}, {3, 1, true}, {3, 1, false}, {2, 1, false}, {4, 1, true}} {
		limit = c.limit
		if got := granted(c.permits); got != c.want {
			t.Fatalf("limit %d, %d permits used: %d more are granted: %t", c.limit, g.used, c.permits, got)
		}
	}
	limit = 1
	for g.used > 1 {
		g.release(1)
		if granted(1) {
			t.Fatalf("limit 1, %d permits used, and another is granted", g.used)
		}
	}
	g.release(1)
	if !granted(allPermits) || granted(1) || granted(allPermits) {
		t.Error("an exclusive step does not run alone")
	}
	g.release(allPermits)
	if !granted(1) {
		t.Error("no step runs after an exclusive one")
	}
}

// Steps that run at the same time while GOMAXPROCS rises and falls have the results of one alone, in
// at most as many contexts as there have been workers.
func TestConcurrentStepsFollowGOMAXPROCS(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	b := openOn(kern.Paths()[0], 0, kern.Host{Processors: 8})
	defer b.Close()
	p, _, e := loaded(t, b, `graph @g {
  input %x : f32[64,200]
  param %w : f32[200,300]
forward:
  %y = matmul %x, %w : f32[64,300]
  %k, %i = topk %y {axis=1 k=7} : f32[64,7], i64[64,7]
  %s = softmax %y : f32[64,300]
  return %s, %k
}
`)
	feed := feedFor(p)
	want := resultOf(t, e, feed)
	var group sync.WaitGroup
	var failed atomic.Bool
	for k := range 6 {
		group.Go(func() {
			for round := range 50 {
				if k == 0 {
					goruntime.GOMAXPROCS(1 + round*2%5)
				}
				if !failed.Load() && !bytes.Equal(resultOf(t, e, feed), want) {
					failed.Store(true)
				}
			}
		})
	}
	group.Wait()
	if failed.Load() {
		t.Error("other results than alone")
	}
	if b.made > 5 || len(b.idle) != b.made {
		t.Errorf("%d contexts, of which %d are idle, for at most 5 workers", b.made, len(b.idle))
	}
}

// resultOf is what a step returns.
func resultOf(t *testing.T, e runtime.Exec, feed runtime.Feed) (all []byte) {
	f, err := e.Step(context.Background(), []runtime.Feed{feed})
	if err != nil {
		t.Error(err)
		return nil
	}
	for i, o := range e.(*program).p.Outputs {
		mem := make([]byte, o.Type.Bytes())
		if err := f.Read(i, mem); err != nil {
			t.Error(err)
		}
		all = append(all, mem...)
	}
	return all
}
