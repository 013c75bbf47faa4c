package cpu

import (
	"errors"
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
	used  int64  // memory in use, by other processes, too; garbage counts until it is collected
	whose string // text for a message, after a size: "of this machine"
	space bool   // it bounds what is mapped, touched or not
}

// little is memory that the heap most likely has.
const little = 1 << 20

// left is the memory within the bound that is not in use.
func (c *ceiling) left() int64 { return c.bytes - c.used }

// room is what a program may need of what is left: a little less than all, and with spare a twentieth
// and 32 MB less, because a plan is as near to what is resident. Address space runs out sooner: Go's
// heap takes it in pieces of 64 MB and never gives it back.
func (c *ceiling) room() int64 {
	return c.left() - c.left()/50 - min(c.varies(), c.left()/8)
}

// spare is how much less room a program should ask for that is to run in another process, since what
// others have changes, and so do arenas of Go's heap and stacks of threads.
func (c *ceiling) spare() int64 { return c.left()/33 + c.varies() }

func (c *ceiling) varies() int64 {
	if c.space {
		return 96 << 20
	}
	return 16 << 20
}

// fits returns an error if n more bytes exceed what this process may have. Without this check the
// system would end the process. The machine sets a bound, and so may a container (a cgroup) and
// ulimit. What other processes of the machine or the container have is in use.
func fits(n int64) error {
	if n < little || exceeded(n) == nil {
		return nil
	}
	goruntime.GC() // garbage counts as used until it is collected
	c := exceeded(n)
	if c == nil {
		return nil
	}
	return &runtime.RoomError{Need: n, Room: c.room(), Spare: c.spare(), Text: fmt.Sprintf("%s are more than the %s %s, %s of them in use", ir.Bytes(n), ir.Bytes(c.bytes), c.whose, ir.Bytes(c.used))}
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

// Fed implements runtime.Sized.
func (b *Backend) Fed(n int) { b.fed.Store(int64(n)) }

// reads is what the caller of a step of p has when it has read all results.
func reads(p *lower.Program) (n int64) {
	for i := range p.Outputs {
		n += p.Outputs[i].Type.Bytes()
	}
	return n
}

// feeds is what the caller feeds to p for a micro-batch, and all that it holds.
func (b *Backend) feeds(p *lower.Program) (each, all int64) {
	for i := range p.Vars {
		if v := &p.Vars[i]; v.Kind == ir.Input && v.Role() == "" {
			each += v.Type.Bytes()
		}
	}
	return each, each * max(b.fed.Load(), 1)
}

// Need implements runtime.Sized. Copies of results and scratch memory count where the rest fits and
// takes more than half of the room: to plan them takes a part of a step's time. Feeds count that the
// caller may have already, and results as the caller reads them.
func (b *Backend) Need(p *lower.Program, st runtime.Store) (int64, error) {
	held := st.(*store).held(p)
	each, feeds := b.feeds(p)
	callers := feeds + reads(p)
	need := p.Total() - held + callers
	if b.dry || need < little {
		return need, nil
	}
	c := exceeded(2 * need)
	if c == nil || need-each > c.bytes { // not c.used: garbage must not decide what is counted
		return need, nil
	}
	plan, err := planOn(b.m.Path, p, b.Threads())
	if none, ok := errors.AsType[kern.NoMemory](err); ok { // planning maps what it counts
		return max(need, c.left()) + none.Bytes, nil
	}
	if c.space { // mapped, but not touched: inputs that are read where they are fed, a fourth of scratch memory to grow in
		return plan.Total() - plan.Inputs + max(plan.Inputs, each) + plan.Scratch/4 - held + callers, err
	}
	return plan.Total() - held + callers, err
}

// roomFor returns an error if p over s does not fit.
func (b *Backend) roomFor(p *lower.Program, s *store) error {
	need, err := b.Need(p, s)
	if err != nil {
		return err
	}
	return b.fits(need)
}

// leavesSpace reports whether n more bytes leave Go's heap address space to grow in.
func leavesSpace(n int64) bool {
	return !slices.ContainsFunc(ceilings(heap()), func(c ceiling) bool { return c.space && n > c.left() })
}

// exceeded returns the tightest bound if n more bytes would exceed it, or nil.
func exceeded(n int64) *ceiling {
	c := tightest(ceilings(heap()))
	if c == nil || n <= c.room() {
		return nil
	}
	return c
}

// tightest is the bound that leaves the least room, nil if there is none.
func tightest(list []ceiling) *ceiling {
	var least *ceiling
	for i := range list {
		if c := &list[i]; least == nil || c.left() < least.left() {
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
	return max(c.left(), 0) + h.objects
}

// Room is Available; see runtime.Bounded.
func (b *Backend) Room() (int64, error) { return Available(), nil }

// heapUse is the Go heap in bytes, and what is beside it.
type heapUse struct {
	objects int64 // live objects, and dead ones not yet freed
	mapped  int64 // blocks outside the heap
}

func heap() heapUse {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return heapUse{int64(s[0].Value.Uint64()), kern.MappedBytes()}
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
