package sim

import (
	"fmt"
	"time"

	"ampc/cuda"
	"ampc/ptx/interp"
)

// clock is a vector clock: for each lane, the last operation up to which all are known to be done.
type clock map[int]int

func (c clock) copy() clock {
	out := make(clock, len(c))
	for k, v := range c {
		out[k] = v
	}
	return out
}

// join merges another clock into c.
func (c clock) join(o clock) {
	for k, v := range o {
		if v > c[k] {
			c[k] = v
		}
	}
}

// lane is an ordered queue of operations: a stream, or a captured stream at replay.
type lane struct {
	id    int
	name  string
	known clock
	graph *graph // being captured into
	now   time.Duration
}

// event holds the clock at the point where it was recorded.
type event struct {
	known clock
	timed bool
	graph *graph // recorded in this capture
	lane  *lane
	at    time.Duration
}

// access is one operation's mark on a page.
type access struct {
	lane, tick int
	what       string
}

// page remembers the last write and the reads since.
type page struct {
	write access
	reads []access
}

// unordered returns an access that known does not cover; previous reads matter only to a write.
func (p *page) unordered(known clock, writing bool) string {
	if p.write.what != "" && known[p.write.lane] < p.write.tick {
		return p.write.what
	}
	if writing {
		for _, r := range p.reads {
			if known[r.lane] < r.tick {
				return r.what
			}
		}
	}
	return ""
}

// span is a range of device memory an operation uses.
type span struct {
	at    cuda.Ptr
	bytes int64
	write bool
}

// mark checks and records an operation's pages on a lane.
func (d *Device) mark(l *lane, what string, uses []span) error {
	l.known.join(d.ticks)
	l.known[l.id]++
	if d.opt.NoHazards {
		return nil
	}
	for _, u := range uses {
		first := uint64(u.at) / interp.PageSize * interp.PageSize
		for a := first; a < uint64(u.at)+uint64(u.bytes); a += interp.PageSize {
			if err := d.markPage(l, what, a, u.write); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Device) markPage(l *lane, what string, a uint64, write bool) error {
	p := d.pages[a]
	if p == nil {
		p = &page{}
		d.pages[a] = p
	}
	if who := p.unordered(l.known, write); who != "" {
		verb := "reads"
		if write {
			verb = "writes"
		}
		return d.fail(what, codeHazard, "%s %s page %#x, which %s uses with nothing to order them", what, verb, a, who)
	}
	me := access{l.id, l.known[l.id], fmt.Sprintf("%s on %s", what, l.name)}
	if write {
		p.write, p.reads = me, p.reads[:0]
		return nil
	}
	for i := range p.reads {
		if p.reads[i].lane == l.id {
			p.reads[i] = me
			return nil
		}
	}
	p.reads = append(p.reads, me)
	return nil
}

func (d *Device) newLane(name string) *lane {
	d.ids++
	return &lane{id: d.ids, name: name, known: d.ticks.copy()}
}

// NewStream makes a stream.
func (d *Device) NewStream() (cuda.Stream, error) {
	if err := d.outside("cuStreamCreate"); err != nil {
		return 0, err
	}
	s := cuda.Stream(d.handle())
	d.lanes[s] = d.newLane(fmt.Sprintf("stream %d", len(d.lanes)))
	return s, nil
}

func (d *Device) lane(call string, s cuda.Stream) (*lane, error) {
	if err := d.ready(call); err != nil {
		return nil, err
	}
	l := d.lanes[s]
	if l == nil {
		return nil, d.fail(call, cuda.CodeInvalidHandle, "no such stream")
	}
	return l, nil
}

// FreeStream destroys a stream.
func (d *Device) FreeStream(s cuda.Stream) error {
	l, err := d.lane("cuStreamDestroy_v2", s)
	if err == nil && l.graph != nil {
		err = d.fail("cuStreamDestroy_v2", codeCaptureUnsupported, "the stream is being captured")
	}
	if err == nil {
		delete(d.lanes, s)
	}
	return err
}

// Synchronize waits for the stream: the host then knows all its work to be done.
func (d *Device) Synchronize(s cuda.Stream) error {
	l, err := d.lane("cuStreamSynchronize", s)
	if err == nil {
		err = d.outside("cuStreamSynchronize")
	}
	if err != nil {
		return err
	}
	if err := d.fault("cuStreamSynchronize"); err != nil {
		return err
	}
	d.syncs.Add(1)
	d.hostNow = max(d.hostNow, l.now)
	return d.learn("cuStreamSynchronize", l.known)
}

// NewEvent makes an event.
func (d *Device) NewEvent(timed bool) (cuda.Event, error) {
	if err := d.ready("cuEventCreate"); err != nil {
		return 0, err
	}
	e := cuda.Event(d.handle())
	d.events[e] = &event{timed: timed}
	return e, nil
}

func (d *Device) event(call string, e cuda.Event) (*event, error) {
	if err := d.ready(call); err != nil {
		return nil, err
	}
	ev := d.events[e]
	if ev == nil {
		return nil, d.fail(call, cuda.CodeInvalidHandle, "no such event")
	}
	return ev, nil
}

// FreeEvent destroys an event.
func (d *Device) FreeEvent(e cuda.Event) error {
	_, err := d.event("cuEventDestroy_v2", e)
	delete(d.events, e)
	return err
}

// Record records the event at the current end of the stream.
func (d *Device) Record(e cuda.Event, s cuda.Stream) error {
	ev, err := d.event("cuEventRecord", e)
	if err != nil {
		return err
	}
	l, err := d.lane("cuEventRecord", s)
	if err != nil {
		return err
	}
	ev.graph, ev.lane = l.graph, l
	if l.graph != nil {
		l.graph.record(l, ev)
		return nil
	}
	l.known.join(d.ticks)
	ev.known, ev.at = l.known.copy(), l.now
	return nil
}

// Wait orders the stream after the event's record. An event that was never recorded has no effect.
func (d *Device) Wait(s cuda.Stream, e cuda.Event) error {
	ev, err := d.event("cuStreamWaitEvent", e)
	if err != nil {
		return err
	}
	l, err := d.lane("cuStreamWaitEvent", s)
	if err != nil {
		return err
	}
	if d.Stats.Waits++; d.Stats.Waits == d.opt.DropWait {
		return nil
	}
	switch {
	case ev.graph != nil && l.graph == nil: // the stream joins the capture
		l.graph = ev.graph
		ev.graph.enter(l)
		ev.graph.wait(l, ev)
	case ev.graph != nil && l.graph == ev.graph:
		ev.graph.wait(l, ev)
	case l.graph != nil:
		return d.spoil(l.graph, "cuStreamWaitEvent", codeCaptureIsolation, "a captured stream waits for an event recorded outside the capture")
	default:
		l.known.join(ev.known)
		l.now = max(l.now, ev.at)
	}
	return nil
}

// Done is always true, because calls execute at once. The host then knows the work before the event
// to be done.
func (d *Device) Done(e cuda.Event) (bool, error) {
	ev, err := d.event("cuEventQuery", e)
	if err != nil {
		return false, err
	}
	if ev.graph != nil {
		return false, d.spoil(ev.graph, "cuEventQuery", codeCapturedEvent, "the event was recorded in a capture")
	}
	return true, d.learn("cuEventQuery", ev.known)
}

// WaitHost waits for an event.
func (d *Device) WaitHost(e cuda.Event) error {
	if err := d.outside("cuEventSynchronize"); err != nil {
		return err
	}
	_, err := d.Done(e)
	d.syncs.Add(1)
	if err == nil {
		d.hostNow = max(d.hostNow, d.events[e].at)
	}
	return err
}
