package sim

import (
	"strings"
	"time"

	"ampc/cuda"
)

// The simulated device keeps a time of its own, which events record: that of an H200, roughly. An
// operation takes a part that other streams can hide, and one in which it has the device's memory and
// arithmetic to itself. Copies to and from the host have the link between them to themselves. The
// host takes its time to issue a call. None of this is a forecast: it makes choices by time testable.
const (
	issueTime = 2 * time.Microsecond // of the host, for a call
	startTime = 1500 * time.Nanosecond

	memoryRate = 4.3e12 // bytes a second
	linkRate   = 50e9
)

// flopRates are products by operand type.
var flopRates = map[cuda.DataType]float64{cuda.R16F: 750e12, cuda.R16BF: 750e12, cuda.R32F: 50e12}

// tf32Rate is that of f32 products whose operands are rounded.
const tf32Rate = 350e12

// work is what an operation does.
type work struct {
	bytes, link int64   // through memory, over the link
	seconds     float64 // of arithmetic
}

// spend is the time of the operation that just ran on l.
func (d *Device) spend(l *lane, what string, w work) {
	took := max(float64(w.bytes)/memoryRate, w.seconds)
	busy := &d.busy
	if w.link > 0 {
		took, busy = float64(w.link)/linkRate, &d.linkBusy
	}
	for _, s := range d.opt.Slow {
		if strings.Contains(what, s.What) {
			took *= s.Times
		}
	}
	if d.opt.Crowded > 0 && d.latest != nil && d.latest != l && d.latest.now > l.now {
		took *= d.opt.Crowded
	}
	d.latest = l
	start := max(l.now+startTime, *busy)
	l.now = start + time.Duration(took*1e9)
	*busy = l.now
}

// issued is the time of the host's next call.
func (d *Device) issued(l *lane) {
	d.hostNow += issueTime
	l.now = max(l.now, d.hostNow)
}

// Elapsed is the time between two events, by the model above. Both must be timed and recorded.
func (d *Device) Elapsed(from, to cuda.Event) (time.Duration, error) {
	const call = "cuEventElapsedTime"
	var at [2]time.Duration
	for i, e := range []cuda.Event{from, to} {
		ev, err := d.event(call, e)
		if err != nil {
			return 0, err
		}
		if !ev.timed || ev.known == nil {
			return 0, d.fail(call, cuda.CodeInvalidHandle, "the event keeps no time or was never recorded")
		}
		at[i] = ev.at
	}
	return at[1] - at[0], nil
}
