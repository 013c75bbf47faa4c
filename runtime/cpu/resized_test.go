package cpu

import (
	"flag"
	"testing"

	"ampc/runtime"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

var (
	resized     = flag.Int("resized", 100, "cases of the conformance suite that TestResized runs with other sizes")
	resizedFrom = flag.Uint64("resized-from", 1, "seed of the first of them")
)

// TestResized runs cases of the conformance suite with random sizes on every set of kernels but plain Go.
func TestResized(t *testing.T) {
	for i, path := range kern.Paths() {
		if path.Name() == "go" || testing.Short() && i > 0 {
			continue
		}
		t.Run(path.Name(), func(t *testing.T) {
			ran := runtimetest.RunResized(t, *resizedFrom, *resized, func(t *testing.T, threads int) runtime.Backend {
				b := OpenPath(path, threads)
				t.Cleanup(func() { b.Close() })
				return b
			})
			if t.Logf("%d of %d cases ran", ran, *resized); ran < *resized/4 {
				t.Error("most sizes do not fit together")
			}
		})
	}
}
