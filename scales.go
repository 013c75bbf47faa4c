package ampc

import (
	"maps"

	"ampc/passes"
)

// sharedScale is a loss scale that losses name by its Scaler.
type sharedScale struct {
	name string
	last *Step // compiled last of those that use it: the one that advances it
}

// scaleUse is the name of a scale that several steps use, and one step's part in it.
type scaleUse struct {
	name string
	part passes.Sharing
}

// scaleUses finds the scales that earlier steps have and that a new step with
// these losses is to advance in their place.
func (s *session) scaleUses(losses []Loss) map[*Scaler]scaleUse {
	uses := map[*Scaler]scaleUse{}
	for _, l := range losses {
		if old, ok := s.scales[l.Scaler]; ok {
			uses[l.Scaler] = scaleUse{old.name, passes.Advance}
		}
	}
	return uses
}

// share makes step the one that advances the scales of its losses. A step that
// did so before now notes its overflows for this one.
func (s *session) share(step *Step) error {
	named, _ := step.config.losses(step.losses)
	for i, l := range step.losses {
		old := s.scales[l.Scaler].last
		if l.Scaler == nil || old == step {
			continue
		}
		if old != nil && old.exec != nil {
			if err := s.collect(old, l.Scaler, named[i].Scaler); err != nil {
				return err
			}
		}
		s.scales[l.Scaler] = sharedScale{named[i].Scaler, step}
	}
	return nil
}

// collect compiles a step again, to note what it finds out about a scale for
// the step that advances it.
func (s *session) collect(old *Step, scaler *Scaler, name string) error {
	c := old.config
	c.scales = maps.Clone(c.scales)
	c.scales[scaler] = scaleUse{name, passes.Collect}
	step, err := old.model.build(s, c, old.losses)
	if err != nil {
		return err
	}
	if err := s.load(step); err != nil {
		return err
	}
	step.pending, step.runs = old.pending, old.runs
	err = old.exec.Close()
	*old = *step
	return err
}
