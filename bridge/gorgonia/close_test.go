package bridge

import (
	"testing"

	"ampc"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/gpu"
)

// Closing a machine after its backend, which is the wrong order, is not a panic
// and no error. On a device its memory is gone, so that a run is an error.
func TestClosedBackend(t *testing.T) {
	for _, c := range []struct {
		name string
		open func() (runtime.Backend, error)
	}{
		{"cpu", func() (runtime.Backend, error) { return cpu.Open(2) }},
		{"sim", func() (runtime.Backend, error) { return gpu.OpenSim("sm_80") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := c.open()
			if err != nil {
				t.Fatal(err)
			}
			m := mlp(2, 3, 2)
			vm := machine(t, m.g, WithModel(ampc.On(b)))
			m.run(t, vm)
			if err := b.Close(); err != nil { // the simulator counts what was not freed
				t.Log(err)
			}
			if c.name == "sim" {
				wantError(t, vm.RunAll(), "closed")
			}
			if err := vm.Close(); err != nil {
				t.Errorf("closing after the backend: %v", err)
			}
		})
	}
}
