package models_test

import (
	"syscall"
	"testing"
	"time"
)

// spent is the processor time of the process so far.
func spent(b testing.TB) time.Duration {
	b.Helper()
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		b.Fatal(err)
	}
	var created, ended, system, user syscall.Filetime
	if err := syscall.GetProcessTimes(process, &created, &ended, &system, &user); err != nil {
		b.Fatal(err)
	}
	return ticks(system) + ticks(user)
}

// ticks is a duration, which Windows counts in units of 100 ns.
func ticks(t syscall.Filetime) time.Duration {
	return 100 * time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime))
}
