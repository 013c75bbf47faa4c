package sim

import (
	"testing"

	"ampc/cuda"
	"ampc/internal/trial"
)

// A thread without the device is told which of its calls needs it.
func TestOtherThreads(t *testing.T) {
	d, err := Open(Options{Major: 9})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"cuMemAlloc_v2":       func() error { _, err := d.Alloc(8); return err },
		"cuMemGetInfo_v2":     func() error { _, _, err := d.MemInfo(); return err },
		"cuStreamCreate":      func() error { _, err := d.NewStream(); return err },
		"cuEventCreate":       func() error { _, err := d.NewEvent(false); return err },
		"cuModuleGetFunction": func() error { _, err := d.Function(1, "k"); return err },
		"cuLaunchKernel":      func() error { return d.Launch(1, [3]int{1, 1, 1}, 1, 0, cuda.LegacyStream, nil) },
		"cuMemsetD8Async":     func() error { return d.Fill8(1, 0, 8, cuda.LegacyStream) },
	}
	done := make(chan struct{})
	go func() { // its thread ends with it
		defer close(done)
		if err := d.Bind(); err != nil {
			t.Error(err)
		}
		if _, err := d.NewStream(); err != nil {
			t.Error(err)
		}
	}()
	<-done
	for call, f := range calls {
		trial.WantError(t, f(), call+": CUDA_ERROR_INVALID_CONTEXT", "the device was bound to other threads")
	}
}
