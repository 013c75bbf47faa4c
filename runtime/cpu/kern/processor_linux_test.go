//go:build amd64 || arm64

package kern

import (
	"runtime"
	"syscall"
	"testing"
)

// A thread leaves the processors that are taken and may run on all of its own again afterwards; where none is left it stays.
func TestLeaveProcessors(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var mine, now Processors
	if !mine.call(syscall.SYS_SCHED_GETAFFINITY) || processor() < 0 {
		t.Skip("the system does not let this process ask for its processors")
	}
	var all []int
	for cpu := range 64 * len(mine) {
		if mine.Has(cpu) {
			all = append(all, cpu)
		}
	}
	for _, cpu := range all {
		taken := mine
		taken[cpu/64] &^= 1 << (cpu % 64)
		moved := false
		for range 100 { // the system may move it again at once
			if leaveProcessors(&taken); processor() == cpu {
				moved = true
				break
			}
		}
		if !moved {
			t.Errorf("the thread is on processor %d and all but %d are taken", processor(), cpu)
		}
		if now.call(syscall.SYS_SCHED_GETAFFINITY); now != mine {
			t.Fatalf("it may run on %x, before on %x", now, mine)
		}
	}
	leaveProcessors(&mine)
	if now.call(syscall.SYS_SCHED_GETAFFINITY); now != mine {
		t.Errorf("where none is left it may run on %x, before on %x", now, mine)
	}
}

// A worker that has slept leaves the processor of its caller, and says where it is; one that wakes elsewhere stays.
func TestWorkersSettle(t *testing.T) {
	var mine Processors
	if runtime.NumCPU() < 2 || !mine.call(syscall.SYS_SCHED_GETAFFINITY) || processor() < 0 {
		t.Skip("one processor, or the system does not let this process ask for its own")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := newPool(2, true, nil)
	defer p.Close()
	apart := false
	for range 100 { // the system may move the thread at any time
		at := processor()
		p.place.set(at)
		p.settle(1)
		if now := p.team.place[1].cpu(); now != at && now >= 0 {
			apart = true
			break
		}
	}
	if !apart {
		t.Error("worker 1 stays on the processor of its caller")
	}
	stays := false
	for range 100 {
		at := processor()
		p.place.set(at ^ 1)
		if p.settle(1); p.team.place[1].cpu() == at {
			stays = true
			break
		}
	}
	if !stays {
		t.Error("worker 1 leaves a processor that it has for itself")
	}
}
