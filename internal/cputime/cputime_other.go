//go:build !linux

// Package cputime measures the processor time of a thread, for tests and benchmarks.
package cputime

import "time"

var started = time.Now()

// Thread is the time since the start of the program: other systems than Linux are not asked.
func Thread() time.Duration { return time.Since(started) }
