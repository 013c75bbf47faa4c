package refbackend

import (
	"testing"

	"ampc/runtime"
	"ampc/runtime/runtimetest"
)

// TestSuite runs the conformance suite on a backend that nothing else knows of.
func TestSuite(t *testing.T) {
	open := func(*testing.T, int) runtime.Backend { return backend{} }
	if testing.Short() {
		runtimetest.RunRows(t, "matmul|norm|pool|scatter", open)
		t.Skip("the other rows and the steps take seconds; run without -short")
	}
	runtimetest.Run(t, open)
}
