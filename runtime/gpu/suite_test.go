package gpu_test

import (
	"testing"

	"ampc/runtime"
	"ampc/runtime/runtimetest"
)

// TestSuite runs the conformance suite on a simulated device. Rows that have
// no way onto a GPU yet are listed, not failed.
func TestSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("every row in every dtype takes half a minute in the interpreter; run without -short")
	}
	b := openSim(t, "sm_90")
	runtimetest.Run(t, func(*testing.T, int) runtime.Backend { return b })
}
