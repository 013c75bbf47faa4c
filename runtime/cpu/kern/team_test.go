package kern

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Pools of one team run regions at the same time: every index once, no worker in two tasks at once.
func TestPoolsShareWorkers(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8, 24} {
		first := newPool(workers, false, nil)
		first.Leave()
		pools := []*Pool{first}
		for len(pools) < min(workers, 6) {
			pools = append(pools, first.fork())
		}
		busy := make([]atomic.Bool, workers)
		var group sync.WaitGroup
		for _, p := range pools {
			group.Go(func() {
				for round := range 30 {
					p.Enter()
					var ran [100]atomic.Int64
					p.For(len(ran), func(w, i int) {
						if w > 0 && busy[w].Swap(true) {
							t.Errorf("%d workers: worker %d is in two tasks", workers, w)
						}
						ran[i].Add(1)
						if w > 0 {
							busy[w].Store(false)
						}
					})
					for i := range ran {
						if n := ran[i].Load(); n != 1 {
							t.Errorf("%d workers, round %d: task %d ran %d times", workers, round, i, n)
						}
					}
					p.Leave()
				}
			})
		}
		group.Wait()
		first.Close()
	}
}

// Crews and callers together are as many as there are workers, evenly divided, and a pool alone has them all.
func TestCrewsAreEven(t *testing.T) {
	for _, c := range []struct {
		workers int
		shares  []int // of each pool, as more and more of them come into use
	}{{1, []int{1}}, {2, []int{2}}, {2, []int{1, 1}}, {4, []int{4}}, {4, []int{2, 2}}, {4, []int{2, 1, 1}}, {8, []int{3, 3, 2}}, {8, []int{2, 2, 2, 2}}} {
		first := newPool(c.workers, false, nil)
		pools := []*Pool{first}
		for len(pools) < len(c.shares) {
			p := first.fork()
			p.Enter()
			pools = append(pools, p)
		}
		sum := 0
		for range 2 { // who is last takes what the first gives back
			sum = 0
			for i, p := range pools {
				if got := p.share(); got > c.shares[i] && i > 0 || got < 1 {
					t.Errorf("%d workers, %d pools: pool %d has %d, want %d", c.workers, len(pools), i, got, c.shares[i])
				}
				sum += p.share()
			}
			for _, p := range pools {
				p.Leave()
				p.Enter()
			}
			for _, p := range pools {
				p.share()
			}
		}
		if sum > c.workers {
			t.Errorf("%d workers, %d pools: they have %d together", c.workers, len(pools), sum)
		}
		for _, p := range pools[1:] {
			p.Leave()
		}
		if n := first.share(); n != c.workers {
			t.Errorf("%d workers: a pool alone has %d", c.workers, n)
		}
		first.Close()
	}
}

// A GOMAXPROCS that falls while a pool exists limits its regions from the next use on, and no longer when it rises again.
func TestPoolFollowsGOMAXPROCS(t *testing.T) {
	was := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(was)
	p := startPool(4, Host{})
	defer p.Close()
	for _, procs := range []int{4, 2, 1, 3, 4, 8} {
		runtime.GOMAXPROCS(procs)
		p.Leave()
		p.Enter()
		if got := p.share(); got > 4 || got != min(procs, p.Workers()) {
			t.Errorf("GOMAXPROCS %d: a region has %d workers of %d", procs, got, p.Workers())
		}
		var ran atomic.Int64
		p.For(100, func(worker, _ int) { ran.Add(1) })
		if ran.Load() != 100 {
			t.Errorf("GOMAXPROCS %d: %d of 100 tasks ran", procs, ran.Load())
		}
	}
}
