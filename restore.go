package ampc

import (
	"errors"
	"fmt"

	"ampc/ir"
)

// RestoreScale puts the loss scales back to what they were before the last step,
// which was skipped. It is for a step that Diagnose blames on the data
// (NotPrecision): its gradients are not finite in f32 either, so the scale was not
// at fault. The scaler cannot know that while the step runs, because an overflow
// leaves the same NaN, and has lowered the scale. Counts of clean steps start over
// as after any skipped step.
//
// It is an error where the last step was taken, or another step over the same
// variables ran since.
func (s *Step) RestoreScale() error {
	defer s.model.gate.hold()()
	switch {
	case s.exec == nil:
		return errClosed
	case len(s.last.results) == 0:
		return errors.New("restore scale: no step was run yet")
	case !s.last.newest().outcome().Skipped:
		return errors.New("restore scale: the last step was taken: its scale needs no repair")
	case s.model.session.launches > s.last.at+1:
		return errors.New("restore scale: another step over these variables ran since")
	case s.last.restored:
		return nil
	}
	state := map[string][]byte{}
	for _, v := range s.program.Vars {
		if v.Kind != ir.State || !lasting(v) || v.Type.Shape.Elements() != 1 {
			continue
		}
		data, err := s.model.session.read(v)
		if err != nil {
			return err
		}
		state[v.Name] = data
	}
	if err := s.rewind(state, true); err != nil {
		return err
	}
	for _, v := range s.program.Vars {
		if v.Kind != ir.State || v.Role() != ir.RoleScale {
			continue
		}
		if err := s.model.session.write(v, state[v.Name]); err != nil {
			return fmt.Errorf("restore scale: %w", err)
		}
	}
	s.last.restored = true
	return nil
}
