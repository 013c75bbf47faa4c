//go:build !linux

package sim

// thread is one number for all threads: these systems have no GPU that a test could find unbound.
func thread() int { return 0 }
