package ampc

import (
	"fmt"

	"ampc/runtime"
)

// ModelOption changes where and from what seed a model runs. Options are given to
// New, or to Model.Set before the first step is compiled.
type ModelOption func(*state)

// Seed sets the seed of initial values and random ops; without it, it is 0.
func Seed(n int64) ModelOption { return func(s *state) { s.seed = n } }

// On has the model's variables live, and its steps run, on b. The caller closes
// b after the model. Without it, a model runs on the CPU.
func On(b runtime.Backend) ModelOption { return func(s *state) { s.backend = b } }

// Set changes options. It is an error once a step was compiled.
func (m *Model) Set(o ...ModelOption) error {
	defer m.gate.hold()()
	if m.ended {
		return fmt.Errorf("set: %w", errModelClosed)
	}
	if m.session != nil && len(o) > 0 {
		return fmt.Errorf("set: the model's variables live on %s already: give options to New, or before the first Train or Infer", m.session.backend.Name())
	}
	for _, change := range o {
		change(m.state)
	}
	return nil
}
