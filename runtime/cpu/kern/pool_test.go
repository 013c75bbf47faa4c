package kern

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// A task that panics, whoever runs it, ends its region with that panic in the caller, no worker waits for good, and the
// next region runs whole.
func TestPoolOutlivesPanics(t *testing.T) {
	bad := errors.New("bad task")
	for _, workers := range []int{2, 3, 20} { // more than there are processors, and a tree
		p := NewPool(workers)
		for round := range 60 {
			n := 1 + 7*(round%9) + workers
			func() {
				defer func() {
					b, ok := recover().(*TaskPanic)
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
	p := NewPool(2)
	defer p.Close()
	regions := func() {
		for range 3 {
			p.For(4, func(_, _ int) { time.Sleep(time.Millisecond) })
		}
		p.For(1, func(_, _ int) {}) // runs where it was called
	}
	regions()
	if u := p.Use(); u != (Use{}) {
		t.Errorf("nobody meters, and there is %+v", u)
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
