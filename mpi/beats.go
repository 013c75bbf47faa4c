//go:build linux && (amd64 || arm64) && !nompi

package mpi

import (
	"fmt"
	"strings"
	"time"
	"unsafe"
)

// beatEvery is how often a rank tells the others how far it is.
const beatEvery = time.Second

// beats are small messages, on a communicator of their own, that say how many messages
// a rank has begun: who waits long for a message names by them who is not there.
type beats struct {
	lib        *library
	comm       uintptr
	rank, size int
	at         int64
	said       time.Time
	last       []beat // of each rank
	out        []*outgoing
}

type beat struct {
	at   int64
	when time.Time
}

type outgoing struct {
	request uintptr
	at      int64
}

func newBeats(l *library, rank, size int) (*beats, error) {
	b := &beats{lib: l, rank: rank, size: size, last: make([]beat, size), said: time.Now()}
	for r := range b.last {
		b.last[r].when = b.said
	}
	if err := l.call("MPI_Comm_dup", l.world, uintptr(unsafe.Pointer(&b.comm))); err != nil {
		return nil, fmt.Errorf("mpi: %w", err)
	}
	return b, l.call("MPI_Comm_set_errhandler", b.comm, l.errorsReturn)
}

// during beats while a message waits.
func (b *beats) during(waited time.Duration) {
	if waited > beatEvery/2 && time.Since(b.said) >= beatEvery {
		b.beat()
	}
}

// beat tells the others how far this rank is, and hears how far they are. Errors are
// left to the message that a rank is missing from.
func (b *beats) beat() {
	b.said = time.Now()
	b.hear()
	left := b.out[:0]
	for _, o := range b.out {
		done := int32(0)
		if err := b.lib.call("MPI_Test", uintptr(unsafe.Pointer(&o.request)), uintptr(unsafe.Pointer(&done)), b.lib.statusIgnore); err == nil && done == 0 {
			left = append(left, o)
		}
	}
	b.out = left
	if len(b.out) >= 4*b.size { // somebody has not listened for long
		return
	}
	for r := range b.size {
		if r == b.rank {
			continue
		}
		o := &outgoing{at: b.at}
		if err := b.lib.call("MPI_Isend", uintptr(unsafe.Pointer(&o.at)), 8, b.lib.bytes, uintptr(r), uintptr(b.rank), b.comm, uintptr(unsafe.Pointer(&o.request))); err == nil {
			b.out = append(b.out, o)
		}
	}
}

// hear takes what has come. A beat's tag is its sender.
func (b *beats) hear() {
	for r := range b.size {
		for r != b.rank {
			there, at := int32(0), int64(0)
			if err := b.lib.call("MPI_Iprobe", uintptr(r), uintptr(r), b.comm, uintptr(unsafe.Pointer(&there)), b.lib.statusIgnore); err != nil || there == 0 {
				break
			}
			if b.lib.call("MPI_Recv", uintptr(unsafe.Pointer(&at)), 8, b.lib.bytes, uintptr(r), uintptr(r), b.comm, b.lib.statusIgnore) == nil {
				b.last[r] = beat{at, time.Now()}
			}
		}
	}
}

// silence is how long the rank that was heard of least recently has been silent.
func (b *beats) silence() time.Duration {
	var longest time.Duration
	for r, l := range b.last {
		if r != b.rank {
			longest = max(longest, time.Since(l.when))
		}
	}
	return longest
}

// missing names the ranks that a message waits for.
func (b *beats) missing() string {
	var silent, behind []string
	for r, l := range b.last {
		switch {
		case r == b.rank:
		case time.Since(l.when) > 5*beatEvery:
			silent = append(silent, fmt.Sprint(r))
		case l.at < b.at:
			behind = append(behind, fmt.Sprint(r))
		}
	}
	switch {
	case len(silent) > 0:
		return fmt.Sprintf("rank %s has not been heard of for %v", strings.Join(silent, ", "), time.Since(b.last[first(silent)].when).Round(time.Second))
	case len(behind) > 0:
		return fmt.Sprintf("rank %s has not sent it", strings.Join(behind, ", "))
	}
	return "all ranks are there: the network holds it"
}

func first(ranks []string) int {
	var r int
	fmt.Sscan(ranks[0], &r)
	return r
}
