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
	space bool   // it bounds what is mapped, touched or not
}

// little is memory that the heap most likely has.
const little = 1 << 20

// spaceVaries is how much two runs of a program differ in what they map: by arenas of Go's heap and
// stacks of threads.
const spaceVaries = 128 << 20

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
	spare := (c.bytes - c.used) / 200
	if c.space {
		spare += spaceVaries
	}
	return &runtime.RoomError{Need: n, Room: c.bytes - c.used, Spare: spare, Text: fmt.Sprintf("%s are more than the %s %s, %s of them in use", ir.Bytes(n), ir.Bytes(c.bytes), c.whose, ir.Bytes(c.used))}
}

// noMemory is deferred: it makes the panic of a block that the system has no memory for the error of
// the function.
func noMemory(err *error) {
	if r := recover(); r != nil {
		e, ok := kern.AsNoMemory(r)
		if !ok {
			panic(r)
		}
		*err = e
	}
}

// fits is fits of this process, unless memory is only planned.
func (b *Backend) fits(n int64) error {
	if b.dry {
		return nil
	}
	return fits(n)
}

// Need implements runtime.Sized. Results and scratch memory count where the arenas fit and take more
// than half of the room: to plan them takes a part of a step's time. Where ulimit leaves too little
// address space to plan in, they count as much as the arenas.
func (b *Backend) Need(p *lower.Program, st runtime.Store) (int64, error) {
	need := p.Total() - st.(*store).held(p)
	if b.dry || need < little {
		return need, nil
	}
	if c := exceeded(2 * need); c == nil || need > c.bytes { // not c.used: garbage must not decide what is counted
		return need, nil
	}
	guess := 2 * need
	if slices.ContainsFunc(ceilings(heap()), func(c ceiling) bool { return c.space && guess > c.bytes-c.used }) {
		return guess, nil // planning maps what it counts
	}
	plan, err := planOn(b.m.Path, p, b.Threads())
	return need + max(plan.Total()-p.Total(), 0), err
}

// roomFor returns an error if p over s does not fit.
func (b *Backend) roomFor(p *lower.Program, s *store) error {
	need, err := b.Need(p, s)
	if err != nil {
		return err
	}
	return b.fits(need)
}

// exceeded returns the tightest bound if n more bytes would exceed it, or nil.
func exceeded(n int64) *ceiling {
	c := tightest(ceilings(heap()))
	if c == nil || n <= c.bytes-c.used {
		return nil
	}
	return c
}

// tightest is the bound that leaves the least room, nil if there is none.
func tightest(list []ceiling) *ceiling {
	var least *ceiling
	for i := range list {
		if c := &list[i]; least == nil || c.bytes-c.used < least.bytes-least.used {
			least = c
		}
	}
	return least
}

// Available is the memory in bytes that the Go heap of this process may grow to: the least of what the machine, its
// container (cgroup) and ulimit leave for it. It is math.MaxInt64 where the system does not say. A program that owns its
// process gives most of it to debug.SetMemoryLimit, so that garbage is collected before the system ends the process.
func Available() int64 {
	h := heap()
	c := tightest(ceilings(h))
	if c == nil {
		return math.MaxInt64
	}
	return max(c.bytes-c.used, 0) + h.objects
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
