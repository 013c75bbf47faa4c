package kern

import (
	goflag "flag"
	"fmt"
	"sync"
	"testing"
)

var everyCount = goflag.Bool("every-count", false, "TestDivision looks at all numbers of workers from 1 to 128")

// searched has what search found: kernels share boxes.
var searched sync.Map

// onWorkers is a box and the most workers that it is divided for.
type onWorkers struct {
	box
	workers int
}

// found is what search returned.
type found struct {
	time    int
	balance float64
}

func searchOnce(b box, workers int) (time int, balance float64) {
	key := onWorkers{b, workers}
	if f, ok := searched.Load(key); ok {
		return f.(found).time, f.(found).balance
	}
	time, balance = search(b, workers)
	searched.Store(key, found{time, balance})
	return time, balance
}

// search tries all divisions of a box for at most so many workers. It returns the least time, and the best balance of those that
// are nearly as fast.
func search(b box, workers int) (time int, balance float64) {
	all := func(f func(Division)) {
		f(b.alone())
		r0, c0 := least(b.rows, b.mostRows), least(b.cols, b.mostCols)
		most := b.items*r0*c0 + 8*workers
		for r := r0; r <= b.rows && b.items*r*c0 <= most; r++ {
			for c := c0; c <= b.cols && b.items*r*c <= most; c++ {
				for k := 2; k <= workers; k++ {
					f(b.on(r, c, ceilDiv(b.items*r*c, k)))
				}
			}
		}
	}
	time = b.alone().Time
	all(func(d Division) { time = min(time, d.Time) })
	all(func(d Division) {
		if float64(d.Time) <= (1+fastEnough)*float64(time) {
			balance = max(balance, d.balance())
		}
	})
	return time, balance
}

// planned is what a kernel costs on a machine of some workers.
type planned struct {
	time, best int
	busy, held int // time of tasks, and of the workers that have them
	workers    int // of the region that takes longest
	longest    int
	possible   float64 // the best balance of that
}

func (p *planned) add(b box, d Division, workers int) {
	time, balance := searchOnce(b, workers)
	p.time, p.best = p.time+d.Time, p.best+time
	p.busy, p.held = p.busy+d.Busy, p.held+d.Workers*d.span()
	if d.Time > p.longest {
		p.workers, p.longest, p.possible = d.Workers, d.Time, balance
	}
}

// plan is what run's regions cost on so many workers of a path.
func plan(path *Path, workers int, run func(*Machine)) (p planned) {
	m := NewDry(path, workers)
	m.plans = func(b box, d Division) { p.add(b, d, workers) }
	run(m)
	return p
}

// Kernels, at the shapes of large models, keep the workers that they take busy for nine tenths of the time, and are within a
// twentieth of the fastest division: by the model of costs, for 1 to 128 workers. Less balance is right only where no division
// that is nearly as fast has it, which is rare.
func TestDivision(t *testing.T) {
	counts := []int{1, 2, 3, 4, 8, 16, 32, 64, 75, 128}
	switch {
	case testing.Short():
		counts = []int{1, 2, 8, 32, 75, 128}
	case *everyCount:
		counts = counts[:0]
		for n := range 128 {
			counts = append(counts, n+1)
		}
	}
	cases, uneven := 0, 0
	block := NewBlock(1 << 31)
	defer block.Release()
	for _, path := range Paths() {
		if path.lanes == 1 {
			continue
		}
		for _, k := range dividedKernels(block) {
			row := fmt.Sprintf("%-10s %-44s", path.Name(), k.name)
			for _, n := range counts {
				cases++
				p := plan(path, n, k.run)
				balance, worse := float64(p.busy)/float64(p.held), float64(p.time)/float64(p.best)
				if balance < balanced {
					uneven++
					t.Logf("%s on %d workers: balance %.3f of %d", k.name, n, balance, p.workers)
				}
				if balance < min(balanced, p.possible-0.01) || worse > 1.05 {
					t.Errorf("%s on %d workers: balance %.3f of %d where %.3f is possible, %.3f of the best time", k.name, n, balance, p.workers, p.possible, worse)
				}
				if n&(n-1) == 0 {
					row += fmt.Sprintf(" %d:%.0f%%", p.workers, 100*balance)
				}
			}
			t.Log(row)
		}
	}
	if t.Logf("%d of %d below", uneven, cases); 50*uneven > cases {
		t.Errorf("%d of %d divisions are not balanced", uneven, cases)
	}
}
