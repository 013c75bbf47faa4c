package gpu

import (
	"errors"
	"time"

	"ampc/cuda"
	"ampc/lower"
	"ampc/runtime"
)

// profile times steps of a Program by events on their streams. A step of training is issued launch
// by launch then, and waited for.
type profile struct {
	report func(part lower.Part, step int, timing runtime.Timing)
	begin  cuda.Event
	began  time.Time    // when begin was recorded
	events []cuda.Event // two for each run, kept for later steps
	runs   []*bound     // since begin, one for each two events
}

// Profile implements runtime.Profiled. Times are the device's.
func (e *Exec) Profile(f func(part lower.Part, step int, timing runtime.Timing)) {
	_ = e.b.call(func() error { // fails after Close alone
		if e.profile == nil {
			e.profile = &profile{}
		}
		e.profile.report = f
		return nil
	})
}

// profiled reports whether steps are timed.
func (e *Exec) profiled() bool { return e.profile != nil && e.profile.report != nil }

// timed issues a step between two events, where steps are timed.
func (e *Exec) timed(s *bound, issue func() error) error {
	if !e.profiled() {
		return issue()
	}
	p, stream := e.profile, e.on(s).stream
	for len(p.events) < 2*len(p.runs)+2 {
		ev, err := e.b.d.NewEvent(true)
		if err != nil {
			return err
		}
		p.events = append(p.events, ev)
	}
	k := len(p.runs)
	if err := e.b.d.Record(p.events[2*k], stream); err != nil {
		return err
	}
	if err := issue(); err != nil {
		return err
	}
	p.runs = append(p.runs, s)
	return e.b.d.Record(p.events[2*k+1], stream)
}

// timeAll issues launches, waits for them and reports what each took, where steps are timed.
func (e *Exec) timeAll(issue func() error) error {
	if !e.profiled() {
		return issue()
	}
	p := e.profile
	if p.begin == 0 {
		ev, err := e.b.d.NewEvent(true)
		if err != nil {
			return err
		}
		p.begin = ev
	}
	p.runs = p.runs[:0]
	if err := errors.Join(e.b.d.Synchronize(e.b.stream()), e.b.d.Record(p.begin, e.b.stream()), e.b.d.WaitHost(p.begin)); err != nil {
		return err
	}
	p.began = time.Now()
	if err := errors.Join(issue(), e.b.d.Synchronize(e.b.stream())); err != nil {
		return err
	}
	for k, r := range p.runs {
		timing, err := e.timing(k)
		if err != nil {
			return err
		}
		p.report(r.part, r.index, timing)
	}
	return nil
}

// timing is what a run took.
func (e *Exec) timing(k int) (runtime.Timing, error) {
	p := e.profile
	after, err := e.b.d.Elapsed(p.begin, p.events[2*k])
	if err != nil {
		return runtime.Timing{}, err
	}
	took, err := e.b.d.Elapsed(p.events[2*k], p.events[2*k+1])
	if err != nil {
		return runtime.Timing{}, err
	}
	return runtime.Timing{Start: p.began.Add(after), Took: took, Workers: 1, Busy: took}, nil
}

// freeEvents frees what the profile has made.
func (p *profile) freeEvents(d cuda.Driver) (err error) {
	if p == nil {
		return nil
	}
	for _, ev := range p.events {
		err = errors.Join(err, d.FreeEvent(ev))
	}
	if p.begin != 0 {
		err = errors.Join(err, d.FreeEvent(p.begin))
	}
	return err
}
