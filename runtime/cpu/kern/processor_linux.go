//go:build amd64 || arm64

package kern

import (
	"runtime"
	"syscall"
	"unsafe"
)

func (s *processorSet) call(number uintptr) bool {
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

// leaveProcessors moves the caller to a processor that is not in taken, if it may run on one.
// Afterwards it may run on the same processors as before.
func leaveProcessors(taken *processorSet) {
	runtime.LockOSThread() // both calls are for one thread
	defer runtime.UnlockOSThread()
	var all processorSet
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
