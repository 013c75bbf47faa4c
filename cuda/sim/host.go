package sim

import (
	"bytes"

	"ampc/cuda"
)

// flight is a copy between host and device that the host does not know to be done. Until it does,
// the host must not change memory that the copy reads, and cannot see data that the copy writes.
type flight struct {
	lane, tick int
	host       []byte
	data       []byte // what the host memory holds, or will hold
	toHost     bool
}

// stale is the pattern in host memory that a copy has not written yet.
const stale = 0xa5

// takeOff records a copy. The data that it writes to the host appear when the host knows that it is
// done.
func (d *Device) takeOff(host, data []byte, toHost bool) {
	if toHost {
		for i := range host {
			host[i] = stale
		}
	}
	d.flights = append(d.flights, flight{host: host, data: data, toHost: toHost})
}

// board gives the flights from first on their place in a lane.
func (d *Device) board(first int, l *lane) {
	for i := range d.flights[first:] {
		d.flights[first+i].lane, d.flights[first+i].tick = l.id, l.known[l.id]
	}
}

// learn merges a clock into the host's, and completes the copies that are then known to be done.
func (d *Device) learn(call string, known clock) error {
	d.ticks.join(known)
	var flying []flight
	var err error
	for _, f := range d.flights {
		switch {
		case d.ticks[f.lane] < f.tick:
			flying = append(flying, f)
		case f.toHost:
			copy(f.host, f.data)
		case !bytes.Equal(f.host, f.data) && err == nil && !d.opt.NoHazards:
			err = d.fail(call, codeHazard, "host memory of a copy was changed before the copy was known to be done")
		}
	}
	d.flights = flying
	return err
}

// flying reports whether a copy from or to host memory is not known to be done.
func (d *Device) flying(mem []byte) bool {
	for _, f := range d.flights {
		if len(f.host) > 0 && inside(f.host, mem) {
			return true
		}
	}
	return false
}

// overlap finds a span that is written where another is read.
func overlap(uses []span) (read, write span, ok bool) {
	for _, w := range uses {
		for _, r := range uses {
			if w.write && !r.write && w.at < r.at+cuda.Ptr(r.bytes) && r.at < w.at+cuda.Ptr(w.bytes) {
				return r, w, true
			}
		}
	}
	return span{}, span{}, false
}
