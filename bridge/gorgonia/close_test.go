package bridge

import (
	"testing"

	"ampc"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/gpu"
)

// A backend that its owner closes first takes the machine's memory with it:
// running is an error then, closing is none.
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
			vm := machine(t, m.g, WithConfig(func(c *ampc.Config) { c.Backend = b }))
			m.run(t, vm)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			wantError(t, vm.RunAll(), "closed")
			wantError(t, vm.Sync(), "closed")
			if err := vm.Close(); err != nil {
				t.Errorf("closing after the backend: %v", err)
			}
		})
	}
}
