//go:build linux && (amd64 || arm64) && !nompi

package mpi

import (
	"fmt"
	"strings"
	"time"
	"unsafe"
)

// beatEvery is the interval at which a rank reports its progress to the others.
const beatEvery = time.Second

// beats are heartbeats: small messages on a communicator of their own. Each says how many messages
// its rank has begun. If a wait takes long, they tell which rank is missing.
type beats struct {
	lib        *library
	comm       uintptr
	rank, size int
	at         int64
	said       time.Time
	last       []beat // by rank
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

// during sends and receives heartbeats while a message waits.
func (b *beats) during(waited time.Duration) {
	if waited > beatEvery/2 && time.Since(b.said) >= beatEvery {
		b.beat()
	}
}

// beat sends this rank's progress to the others and receives theirs. Errors are ignored; the
// message that waits for a lost rank reports them.
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
	if len(b.out) >= 4*b.size { // the receiver has not read for long
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

// hear receives the heartbeats that have arrived. The tag is the sender's rank.
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

// silence is the time since the least recent heartbeat of any rank.
func (b *beats) silence() time.Duration {
	var longest time.Duration
	for r, l := range b.last {
		if r != b.rank {
			longest = max(longest, time.Since(l.when))
		}
	}
	return longest
}

// missing names the ranks that have not begun a message.
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
