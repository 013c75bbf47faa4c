package kern

import (
	"errors"
	"sync/atomic"
	"testing"
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
