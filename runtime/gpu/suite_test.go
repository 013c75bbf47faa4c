package gpu_test

import (
	"testing"

	"ampc/runtime"
	"ampc/runtime/runtimetest"
)

// TestSuite runs the conformance suite on a simulated device: every row.
func TestSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("every row in every dtype takes half a minute in the interpreter; run without -short")
	}
	t.Parallel()
	b := openSim(t, "sm_90")
	runtimetest.Run(t, func(*testing.T, int) runtime.Backend { return b })
}

// TestRandomRows draws on a simulated device what the evaluator draws, also behind other ranks.
func TestRandomRows(t *testing.T) {
	b := openSim(t, "sm_90")
	runtimetest.RunRows(t, "dropout|uniform", func(*testing.T, int) runtime.Backend { return b })
}

// TestSuiteWithoutDnn runs what cuDNN does on a device that has none.
func TestSuiteWithoutDnn(t *testing.T) {
	if testing.Short() {
		t.Skip("attention and convolutions in every dtype take seconds in the interpreter; run without -short")
	}
	t.Parallel()
	for _, target := range []string{"sm_90/nodnn", "sm_70/nodnn"} {
		b := openSim(t, target)
		runtimetest.RunRows(t, "conv|attention", func(*testing.T, int) runtime.Backend { return b })
	}
}
