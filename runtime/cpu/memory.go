package cpu

import (
	"fmt"
	"math"
	goruntime "runtime"
	"runtime/metrics"
)

// ceiling is a bound on the memory of this process.
type ceiling struct {
	bytes int64
	used  int64  // of it; garbage counts until it is collected
	whose string // behind a size: "of this machine"
}

// fits is an error where n bytes more are more than this process may have: the system would end it without one. The
// machine sets a bound, and so may a container (a cgroup) and ulimit.
func fits(n int64) error {
	const little = 1 << 20 // the heap most likely has it
	if n < little || tight(n) == nil {
		return nil
	}
	goruntime.GC() // what is dead counts as used until then
	c := tight(n)
	if c == nil {
		return nil
	}
	return fmt.Errorf("%s are more than the %s %s, %s of them in use: make the batch or the model smaller", size(n), size(c.bytes), c.whose, size(c.used))
}

// tight is a bound that n bytes more would break, nil where there is none.
func tight(n int64) *ceiling {
	for _, c := range ceilings(heap()) {
		if n > c.bytes-c.used {
			return &c
		}
	}
	return nil
}

// Available is the memory in bytes that the Go heap of this process may grow to: the least of what the machine, its
// container (cgroup) and ulimit leave for it. It is math.MaxInt64 where the system does not say. A program that owns its
// process gives most of it to debug.SetMemoryLimit, so that garbage is collected before the system ends the process.
func Available() int64 {
	h := heap()
	n := int64(math.MaxInt64)
	for _, c := range ceilings(h) {
		n = min(n, max(c.bytes-c.used, 0)+h.objects)
	}
	return n
}

// heapUse is the Go heap in bytes.
type heapUse struct {
	objects int64 // live, and dead ones not yet freed
	idle    int64 // mapped, and free for objects to come
}

func heap() heapUse {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return heapUse{int64(s[0].Value.Uint64()), int64(s[1].Value.Uint64() + s[2].Value.Uint64())}
}

// size prints bytes in GB, or in MB where that is little.
func size(n int64) string {
	const mega, giga = 1 << 20, 1 << 30
	if n < giga {
		return fmt.Sprintf("%.1f MB", float64(n)/mega)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/giga)
}
