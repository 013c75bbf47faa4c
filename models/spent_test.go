//go:build !windows

package models_test

import (
	"syscall"
	"testing"
	"time"
)

// spent is the processor time of the process so far. The system adds that of a
// worker when it goes to sleep, a moment after its last work.
func spent(b testing.TB) time.Duration {
	b.Helper()
	time.Sleep(time.Millisecond)
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
