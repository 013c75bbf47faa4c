package kern

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// A task that panics, on whichever worker, ends its region with that panic in the caller, no worker waits for good, and the
// next region runs whole.
func TestPoolOutlivesPanics(t *testing.T) {
	bad := errors.New("bad task")
	for _, workers := range []int{2, 3, 20} { // more than there are processors, and a tree
		p := startPool(workers, Host{})
		for round := range 60 {
			n := 1 + 7*(round%9) + workers
			func() {
				defer func() {
					b, ok := recover().(*taskPanic)
					if !ok || b.Value != any(bad) || len(b.Stack) == 0 {
						t.Errorf("%d workers, %d tasks: recovered %v", workers, n, b)
					}
				}()
				p.For(n, func(_, i int) {
					if i == round%n || i == n-1 {
						panic(bad)
					}
				})
				t.Errorf("%d workers, %d tasks: no panic", workers, n)
			}()
			var ran atomic.Int64
			p.For(n, func(_, _ int) { ran.Add(1) })
			if ran.Load() != int64(n) {
				t.Fatalf("%d workers: %d of %d tasks ran after a panic", workers, ran.Load(), n)
			}
		}
		p.Close()
	}
}

// A metered pool counts its regions and the time in them and in their tasks; one that is not, or not any more, counts nothing.
func TestPoolMeter(t *testing.T) {
	p := startPool(2, Host{})
	defer p.Close()
	regions := func() {
		for range 3 {
			p.For(4, func(_, _ int) { time.Sleep(time.Millisecond) })
		}
		p.For(1, func(_, _ int) {}) // runs where it was called
	}
	regions()
	if u := p.Use(); u != (Use{}) {
		t.Errorf("without meters there is %+v", u)
	}
	p.Meter(true)
	regions()
	if u := p.Use(); u.Regions != 3 || u.Busy < 12*time.Millisecond || u.Inside < 6*time.Millisecond || u.Busy > 2*u.Inside {
		t.Errorf("three regions of four tasks of 1 ms for two workers: %+v", u)
	}
	p.Meter(false)
	if u := p.Use(); u != (Use{}) {
		t.Errorf("the meter is off, and there is %+v", u)
	}
}

// Every index runs once, by a worker that runs nothing else meanwhile, and a worker that takes its time does not keep the others
// from what is left: with more workers than there are processors, more than a caller wakes by itself, and more than a tree of two
// levels has. Those that wait look out for work or sleep at once.
func TestPoolOfManyWorkers(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 16, 17, 40, 64, 200} {
		for _, eager := range []bool{false, true} {
			p := newPool(workers, eager, nil)
			busy, ran := make([]atomic.Bool, workers), make([]atomic.Int64, 1000)
			for round := range 12 {
				n := []int{0, 1, workers - 1, workers, workers + 1, 1000}[round%6]
				p.For(n, func(w, i int) {
					if busy[w].Swap(true) {
						t.Errorf("%d workers: two tasks at once run as worker %d", workers, w)
					}
					if ran[i].Add(1); i == 0 && round > 6 {
						time.Sleep(time.Millisecond)
					}
					busy[w].Store(false)
				})
				for i := range ran {
					if got, want := ran[i].Swap(0), map[bool]int64{true: 1}[i < n]; got != want {
						t.Fatalf("%d workers, %d tasks: task %d ran %d times", workers, n, i, got)
					}
				}
			}
			p.Close()
		}
	}
}

// A region by few workers is run by those and by who was still about, whole; by none or one it is run where it was called.
func TestPoolRunBy(t *testing.T) {
	p := newPool(8, false, nil)
	defer p.Close()
	for _, workers := range []int{-1, 0, 1, 2, 7, 8, 100} {
		p.Meter(true)
		var ran atomic.Int64
		p.runBy(workers, 30, &funcTask{func(w, _ int) {
			if ran.Add(1); workers < 2 && w != 0 {
				t.Errorf("by %d: worker %d has a task", workers, w)
			}
		}})
		if n := p.Use().Regions; ran.Load() != 30 || n > 0 != (workers > 1) {
			t.Errorf("by %d: %d of 30 tasks ran, in %d regions", workers, ran.Load(), n)
		}
	}
}

// Where a worker has as many tasks in one region as in the next, it runs the same ones, unless another was faster.
func TestPoolKeepsShares(t *testing.T) {
	p := startPool(4, Host{})
	defer p.Close()
	for w := range p.shares {
		p.shares[w].set(10*w, 10*(w+1))
	}
	for _, want := range []struct{ worker, index int }{{0, 0}, {0, 1}, {2, 20}, {2, 21}, {3, 30}} {
		if got := p.next(want.worker); got != want.index {
			t.Errorf("worker %d takes %d of its own, want %d", want.worker, got, want.index)
		}
	}
	if n := p.shares[0].drop(); n != 8 {
		t.Errorf("%d are dropped, want the 8 that are left", n)
	}
	for _, want := range []int{19, 18} {
		if got := p.next(0); got != want {
			t.Errorf("without any of its own, worker 0 takes %d, want the end of the next one's, %d", got, want)
		}
	}
	if n := p.shares[1].drop() + p.shares[2].drop() + p.shares[3].drop(); n != 8+8+9 || p.next(0) != -1 || p.next(3) != -1 {
		t.Errorf("%d were left", n)
	}
}
