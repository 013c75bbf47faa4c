//go:build amd64 || arm64

package kern

import (
	"runtime"
	"syscall"
	"unsafe"
)

func (s *Processors) call(number uintptr) bool {
	_, _, err := syscall.RawSyscall(number, 0, unsafe.Sizeof(*s), uintptr(unsafe.Pointer(s)))
	return err == 0
}

// processor is the number of the processor that runs the caller, -1 where the system does not say.
func processor() int {
	number := uintptr(168) // getcpu
	if runtime.GOARCH == "amd64" {
		number = 309
	}
	var cpu uint32
	if _, _, err := syscall.RawSyscall(number, uintptr(unsafe.Pointer(&cpu)), 0, 0); err != 0 {
		return -1
	}
	return int(cpu)
}

// Affinity is the processors on which this process may run, by its mask and its cpusets: those of a
// thread that is not confined, since a new goroutine runs on no thread that another one has locked. ok is false where the system does not say.
func Affinity() (s Processors, ok bool) {
	done := make(chan struct{})
	go func() {
		ok = s.call(syscall.SYS_SCHED_GETAFFINITY)
		close(done)
	}()
	<-done
	return s, ok
}

// confine locks the caller to its thread, and lets the thread run only on those of its processors
// that are in set. was is where it could run before. ok is false if nothing has changed: none of
// them is in set, or the system refuses.
func confine(set *Processors) (was Processors, ok bool) {
	runtime.LockOSThread()
	if was.call(syscall.SYS_SCHED_GETAFFINITY) {
		if now := was.And(*set); now.Len() > 0 && now.call(syscall.SYS_SCHED_SETAFFINITY) {
			return was, true
		}
	}
	runtime.UnlockOSThread()
	return was, false
}

// release undoes confine. Where the process may no longer run on any processor of before, the thread
// may run wherever the process may.
func release(was *Processors) {
	if !was.call(syscall.SYS_SCHED_SETAFFINITY) {
		var all Processors
		for i := range all {
			all[i] = ^uint64(0)
		}
		all.call(syscall.SYS_SCHED_SETAFFINITY)
	}
	runtime.UnlockOSThread()
}

// leaveProcessors moves the caller to a processor that is not in taken, if it may run on one.
// Afterwards it may run on the same processors as before.
func leaveProcessors(taken *Processors) {
	runtime.LockOSThread() // both calls are for one thread
	defer runtime.UnlockOSThread()
	var all Processors
	if !all.call(syscall.SYS_SCHED_GETAFFINITY) {
		return
	}
	rest, left := all, uint64(0)
	for i := range rest {
		rest[i] &^= taken[i]
		left |= rest[i]
	}
	if left > 0 && rest.call(syscall.SYS_SCHED_SETAFFINITY) {
		all.call(syscall.SYS_SCHED_SETAFFINITY)
	}
}
