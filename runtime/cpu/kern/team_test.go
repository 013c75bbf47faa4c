package kern

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// newPool is a pool of n workers, in use.
func newPool(n int, eager bool, nodes []Processors) *Pool {
	p := newPoolOf(newTeam(n, 0, Host{Nodes: nodes}))
	p.enter()
	p.team.eager.Store(eager)
	return p
}

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

// followed runs a region of a pool that is taken into use again, and returns the workers it has.
func followed(t *testing.T, p *Pool) int {
	t.Helper()
	p.Leave()
	p.Enter()
	var ran atomic.Int64
	p.For(100, func(worker, _ int) {
		if ran.Add(1); worker >= p.Workers() {
			t.Errorf("worker %d of %d runs", worker, p.Workers())
		}
	})
	if ran.Load() != 100 {
		t.Errorf("%d of 100 tasks ran", ran.Load())
	}
	if n := p.share(); n > p.Workers() || n != p.Threads() {
		t.Errorf("a region has %d workers, %d may run, of %d", n, p.Threads(), p.Workers())
	}
	return p.share()
}

// A pool of a number of workers has fewer in the uses after which GOMAXPROCS is less than it was. One
// without a number has as many as GOMAXPROCS says, above its first value as well, and one for each
// processor at most. Only workers that may have run have goroutines.
func TestPoolFollowsGOMAXPROCS(t *testing.T) {
	was := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(was)
	for _, c := range []struct{ asked, processors, most int }{{2, 0, 2}, {4, 0, 4}, {0, 6, 6}, {0, 1, 1}} {
		runtime.GOMAXPROCS(2)
		p := startPool(c.asked, Host{Processors: c.processors})
		highest := p.Workers()
		for _, procs := range []int{2, 4, 2, 1, 3, 4, 8, 1, 2} {
			runtime.GOMAXPROCS(procs)
			want := min(procs, c.most)
			if c.asked > 0 && procs >= 2 { // what it was at the start
				want = c.asked
			}
			if got := followed(t, p); got != want {
				t.Errorf("%d workers asked for, GOMAXPROCS %d: a region has %d, want %d", c.asked, procs, got, want)
			}
			if highest = max(highest, want); p.team.started != highest || p.Workers() != highest {
				t.Errorf("%d workers have goroutines and %d may run tasks, at most %d have", p.team.started, p.Workers(), highest)
			}
		}
		p.Close()
	}
}

// Workers poll where each has a processor's time, by the quota of the moment.
func TestPatienceFollowsTheQuota(t *testing.T) {
	was := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(was)
	quota := 2.0
	p := startPool(0, Host{Processors: 4, Quota: func() float64 { return quota }})
	defer p.Close()
	for _, c := range []struct {
		quota float64
		procs int
		eager bool
	}{{2, 2, true}, {1.5, 3, false}, {4, 4, true}, {3.5, 2, true}, {3.5, 4, false}, {0, 3, true}} {
		quota = c.quota
		runtime.GOMAXPROCS(c.procs)
		if followed(t, p); p.team.eager.Load() != c.eager {
			t.Errorf("a quota of %g and GOMAXPROCS %d: workers poll: %t, want %t", c.quota, c.procs, !c.eager, c.eager)
		}
	}
}

// Pools in use at the same time never have a worker that came after their use began, and all of them
// together are no more than GOMAXPROCS allows.
func TestPoolsFollowGOMAXPROCSTogether(t *testing.T) {
	was := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(was)
	first := startPool(0, Host{Processors: 8})
	first.Leave()
	defer first.Close()
	pools := []*Pool{first, first.fork(), first.fork()}
	busy := make([]atomic.Bool, 8)
	var group sync.WaitGroup
	for k, p := range pools {
		group.Go(func() {
			for round := range 60 {
				if k == 0 {
					runtime.GOMAXPROCS(1 + round*5%8)
				}
				p.Enter()
				for range 3 {
					p.For(40, func(w, _ int) {
						if w >= p.Workers() {
							t.Errorf("worker %d of %d runs", w, p.Workers())
						}
						if w > 0 && busy[w].Swap(true) {
							t.Errorf("worker %d is in two tasks", w)
						}
						runtime.Gosched()
						if w > 0 {
							busy[w].Store(false)
						}
					})
				}
				p.Leave()
			}
		})
	}
	group.Wait()
	runtime.GOMAXPROCS(3)
	for _, p := range pools {
		p.Enter()
	}
	for _, p := range pools {
		if n := p.share(); n != 1 {
			t.Errorf("one of three pools has %d of 3 workers", n)
		}
	}
	for _, p := range pools[1:] {
		p.Leave()
	}
	if n := first.share(); n != 3 {
		t.Errorf("a pool alone has %d of 3 workers", n)
	}
}
