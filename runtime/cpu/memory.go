package cpu

import (
	"fmt"
	"math"
	goruntime "runtime"
	"runtime/metrics"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// ceiling is a bound on the memory of this process.
type ceiling struct {
	bytes int64
	used  int64  // memory in use; garbage counts until it is collected
	whose string // text for a message, after a size: "of this machine"
}

// little is memory that the heap most likely has.
const little = 1 << 20

// fits returns an error if n more bytes exceed what this process may have. Without this check the
// system would end the process. The machine sets a bound, and so may a container (a cgroup) and
// ulimit.
func fits(n int64) error {
	if n < little || exceeded(n) == nil {
		return nil
	}
	goruntime.GC() // garbage counts as used until it is collected
	c := exceeded(n)
	if c == nil {
		return nil
	}
	return &runtime.RoomError{Need: n, Room: c.bytes - c.used, Text: fmt.Sprintf("%s are more than the %s %s, %s of them in use", ir.Bytes(n), ir.Bytes(c.bytes), c.whose, ir.Bytes(c.used))}
}

// fits is fits of this process, unless memory is only planned.
func (b *Backend) fits(n int64) error {
	if b.dry {
		return nil
	}
	return fits(n)
}

// Need implements runtime.Sized: it counts arenas.
func (b *Backend) Need(p *lower.Program, st runtime.Store) int64 {
	return p.Total() - st.(*store).held(p)
}

// roomFor returns an error if p over s does not fit. Results and scratch memory count where the
// arenas alone leave little room: to plan them takes a part of a step's time.
func (b *Backend) roomFor(p *lower.Program, s *store) error {
	need := b.Need(p, s)
	if err := b.fits(need); err != nil || b.dry || need < little || exceeded(need/3*4) == nil {
		return err
	}
	plan, err := planOn(b.m.Path, p, b.Threads())
	if err != nil {
		return err
	}
	return b.fits(need + max(plan.Total()-p.Total(), 0))
}

// exceeded returns a bound that n more bytes would exceed, or nil.
func exceeded(n int64) *ceiling {
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

// Room is Available; see runtime.Bounded.
func (b *Backend) Room() (int64, error) { return Available(), nil }

// heapUse is the Go heap in bytes.
type heapUse struct {
	objects int64 // live objects, dead ones not yet freed, and blocks outside the heap
	idle    int64 // mapped memory that is free for new objects
}

func heap() heapUse {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return heapUse{int64(s[0].Value.Uint64()) + kern.MappedBytes(), int64(s[1].Value.Uint64() + s[2].Value.Uint64())}
}

// minShrink is the least scratch memory in bytes that is given back when a program is closed.
const minShrink = 1 << 20

// shrink gives the scratch memory of kernels back, since a program that is closed may have been the
// one that needed most. No step may be running.
func (b *Backend) shrink() {
	if b.inside {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range slices.Concat(b.idle, []*execContext{b.first}) {
		if c.m.Scratch() >= minShrink {
			c.m.Shrink()
		}
	}
}
