package cpu

import (
	"testing"

	"ampc/runtime"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

// TestConformance runs the suite on every set of kernels this processor has; a short run takes the
// best one, and under the race detector plain Go, as the detector does not see assembly.
func TestConformance(t *testing.T) {
	for i, path := range kern.Paths() {
		t.Run(path.Name(), func(t *testing.T) {
			if chosen := i == 0 && !kern.RaceEnabled || kern.RaceEnabled && path.Name() == "go"; testing.Short() && !chosen {
				t.Skip("-short runs one path")
			}
			runtimetest.Run(t, func(t *testing.T, threads int) runtime.Backend {
				b := OpenPath(path, threads)
				t.Cleanup(func() { b.Close() })
				return b
			})
		})
	}
}
