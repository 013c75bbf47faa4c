package cpu

import (
	"testing"

	"ampc/runtime"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

// TestConformance runs the suite on every set of kernels this processor has.
func TestConformance(t *testing.T) {
	for i, path := range kern.Paths() {
		t.Run(path.Name(), func(t *testing.T) {
			if i > 0 && testing.Short() {
				t.Skip("-short runs the best path alone")
			}
			runtimetest.Run(t, func(t *testing.T, threads int) runtime.Backend {
				b := OpenPath(path, threads)
				t.Cleanup(func() { b.Close() })
				return b
			})
		})
	}
}
