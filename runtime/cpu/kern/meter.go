package kern

import "time"

// Use is the work of a pool since metering began.
type Use struct {
	Regions int           // parallel regions
	Inside  time.Duration // spent in them, from call to return
	Busy    time.Duration // spent in their tasks, of all workers together
}

// meter counts a pool's use. The caller of regions writes all fields except busy; each worker
// writes its own part of busy before the region can end.
type meter struct {
	regions int
	inside  time.Duration
	busy    []workerTime
}

// workerTime is alone on its cache line.
type workerTime struct {
	d     time.Duration
	spans []Span
	_     [32]byte
}

// Span is a period that a worker spent in the tasks of a region.
type Span struct {
	Worker int
	Start  time.Time
	Took   time.Duration
}

// region counts a region that began at start and ends now.
func (m *meter) region(start time.Time) {
	m.regions, m.inside = m.regions+1, m.inside+time.Since(start)
}

// Meter starts counting from zero, or stops counting. The pool must be idle.
func (p *Pool) Meter(on bool) {
	if !on {
		p.meter.Store(nil)
		return
	}
	p.meter.Store(&meter{busy: make([]workerTime, len(p.team.wake))})
}

// Use returns the counts, which are zero if the pool is not metered. The pool must be idle.
func (p *Pool) Use() Use {
	m := p.meter.Load()
	if m == nil {
		return Use{}
	}
	u := Use{Regions: m.regions, Inside: m.inside}
	for i := range m.busy {
		u.Busy += m.busy[i].d
	}
	return u
}

// Spans returns when each worker was at work, worker by worker, since metering began. The pool must be idle.
func (p *Pool) Spans() (list []Span) {
	if m := p.meter.Load(); m != nil {
		for i := range m.busy {
			list = append(list, m.busy[i].spans...)
		}
	}
	return list
}

// drainMetered is drain with time measurement.
func (p *Pool) drainMetered(w int) int64 {
	m := p.meter.Load()
	if m == nil {
		return p.drain(w)
	}
	start := time.Now()
	n := p.drain(w)
	if n > 0 { // else the region may be over
		took := time.Since(start)
		m.busy[w].d += took
		m.busy[w].spans = append(m.busy[w].spans, Span{w, start, took})
	}
	return n
}
