package kern

import (
	"syscall"
	"time"
	"unsafe"
)

// clock is the processor time of this thread: what other processes take does not count.
func clock() time.Duration {
	const threadTime = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadTime, uintptr(unsafe.Pointer(&t)), 0); err != 0 {
		panic(err)
	}
	return time.Duration(t.Nano())
}
