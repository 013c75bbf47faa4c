package nccl

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// beats are heartbeats: each rank writes a file with how many steps and messages it has begun, and with
// a count that rises. If a wait takes long, they tell which rank is missing.
type beats struct {
	file       string // "": there are none
	rank, size int

	mu    sync.Mutex
	begun int64
	count int64
	said  time.Time
	every time.Duration
	last  []heard // by rank
}

// heard is what was read of another rank.
type heard struct {
	begun, count int64
	when         time.Time // when the count rose, by this rank's clock
}

// beatMost is the longest interval between two heartbeats.
const beatMost = time.Second

func newBeats(o Options) *beats {
	b := &beats{file: o.File, rank: o.Rank, size: o.Size, last: make([]heard, o.Size), every: min(o.Timeout/20, beatMost)}
	for r := range b.last {
		b.last[r].when = time.Now()
	}
	return b
}

func (b *beats) path(rank int) string { return b.file + "." + strconv.Itoa(rank) }

// begin notes that this rank begins something that all ranks do.
func (b *beats) begin() {
	b.mu.Lock()
	b.begun++
	b.mu.Unlock()
}

// beat writes this rank's heartbeat and reads those of the others, not too often. A file that cannot
// be written or read is that of a silent rank.
func (b *beats) beat() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == "" || time.Since(b.said) < b.every {
		return
	}
	b.said = time.Now()
	b.count++
	text := fmt.Sprintf("%d %d\n", b.begun, b.count)
	part := b.path(b.rank) + ".part"
	if os.WriteFile(part, []byte(text), 0o600) == nil {
		_ = os.Rename(part, b.path(b.rank))
	}
	for r := range b.last {
		if r != b.rank {
			b.hear(r)
		}
	}
}

func (b *beats) hear(r int) {
	text, err := os.ReadFile(b.path(r))
	if err != nil {
		return
	}
	var begun, count int64
	if n, _ := fmt.Sscan(string(text), &begun, &count); n == 2 && count != b.last[r].count {
		b.last[r] = heard{begun, count, time.Now()}
	}
}

// silentAfter is how many intervals without a heartbeat make a rank silent.
const silentAfter = 8

// patience is how long a rank must be silent to be missing.
func (b *beats) patience() time.Duration { return silentAfter * b.every }

// missing names the ranks that are silent; if there are none, those that have not begun what this
// rank has, which may be on their way. known says that there are silent ones, or that none can be known.
func (b *beats) missing() (text string, known bool) {
	if b.file == "" {
		return "which rank is missing is not known: give all ranks the same AMPC_NCCL_FILE for heartbeats", true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var silent, behind []string
	var longest time.Duration
	for r, l := range b.last {
		switch quiet := time.Since(l.when); {
		case r == b.rank:
		case quiet > b.patience():
			silent = append(silent, strconv.Itoa(r))
			longest = max(longest, quiet)
		case l.begun < b.begun:
			behind = append(behind, strconv.Itoa(r))
		}
	}
	switch {
	case len(silent) > 0:
		return fmt.Sprintf("not heard of for %v: rank %s", longest.Round(time.Millisecond), strings.Join(silent, ", ")), true
	case len(behind) > 0:
		return "has not begun it: rank " + strings.Join(behind, ", "), false
	}
	return "all ranks are there: the network holds it", false
}

// end removes this rank's heartbeat.
func (b *beats) end() {
	if b.file != "" {
		_ = os.Remove(b.path(b.rank))
	}
}
