package kern

// Planned is a parallel region that runs no task: how its work is divided among so many workers.
type Planned struct {
	Division
	Task    Task
	box     box
	workers int
}

// NewPlanner makes a machine of n workers, in use, that runs no task. plan sees how the work of each
// region is divided.
func NewPlanner(p *Path, n int, plan func(Planned)) *Machine {
	m := NewDry(p, n, Host{})
	m.plans = func(b box, d Division, t Task) { plan(Planned{d, t, b, n}) }
	return m
}

// Span is the predicted time without what waking the workers takes and lateness.
func (p *Planned) Span() int { return p.span() }

// Possible tries all divisions of the region. It returns the least time, and the best balance of those that are nearly as fast.
func (p *Planned) Possible() (time int, balance float64) {
	b := &p.box
	all := func(f func(Division)) {
		f(b.alone())
		r0, c0 := least(b.rows, b.mostRows), least(b.cols, b.mostCols)
		most := b.items*r0*c0 + mostRounds*p.workers
		for r := r0; r <= b.rows && b.items*r*c0 <= most; r++ {
			for c := c0; c <= b.cols && b.items*r*c <= most; c++ {
				for k := 2; k <= p.workers; k++ {
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
