// Package cputime measures the processor time of a thread, for tests and benchmarks.
package cputime

import (
	"syscall"
	"time"
	"unsafe"
)

// Thread is the processor time that the calling thread has taken. What other processes take does not
// count. Differences mean something only within runtime.LockOSThread.
func Thread() time.Duration {
	const threadTime = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadTime, uintptr(unsafe.Pointer(&t)), 0); err != 0 {
		panic(err)
	}
	return time.Duration(t.Nano())
}
