// Package largeheap lets a test binary's heap grow to five times what lives before it is collected. Tests that
// compile thousands of small graphs spend a third of their time on collections otherwise. Import it for that.
// Above 3 GB it is collected as often as it takes. Benchmarks have the heap that users have.
package largeheap

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

var _ = grow()

// grow reports whether the heap may grow, which the flags of the test binary decide.
func grow() bool {
	if slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.bench=") }) {
		return false
	}
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(3 << 30)
	return true
}
