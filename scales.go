package ampc

import (
	"fmt"
	"maps"

	"ampc/passes"
)

// sharedScale is a loss scale that losses name by its Scaler.
type sharedScale struct {
	passes.SharedScale
	last *Step // compiled last of those that use it: the one that advances it
}

// sharedScales names the scales of a new step's own scalers. Those that earlier
// steps have, the new one is to advance in their place.
func (s *session) sharedScales(step string, losses []Loss) map[*Scaler]passes.SharedScale {
	uses := map[*Scaler]passes.SharedScale{}
	named := map[string]bool{}
	for _, l := range losses {
		if _, again := uses[l.Scaler]; again || l.Scaler == nil {
			continue
		}
		use := passes.SharedScale{Step: step, Of: l.Value.Name()}
		if old, ok := s.scales[l.Scaler]; ok {
			use = old.SharedScale
			use.Part = passes.Advance
		}
		for k := 2; use.Part == passes.Alone && named[use.Of]; k++ {
			use.Of = fmt.Sprintf("%s_%d", l.Value.Name(), k)
		}
		uses[l.Scaler], named[use.Of] = use, true
	}
	return uses
}

// share makes step the one that advances the scales of its losses. A step that
// did so before now notes its overflows for this one.
func (s *session) share(step *Step) error {
	for _, l := range step.losses {
		old := s.scales[l.Scaler].last
		if l.Scaler == nil || old == step {
			continue
		}
		if old != nil && old.exec != nil {
			if err := s.collect(old, l.Scaler); err != nil {
				return err
			}
		}
		s.scales[l.Scaler] = sharedScale{step.config.shared[l.Scaler], step}
	}
	return nil
}

// collect compiles a step again, to note what it finds out about a scale for
// the step that advances it.
func (s *session) collect(old *Step, scaler *Scaler) error {
	c := old.config
	c.shared = maps.Clone(c.shared)
	use := c.shared[scaler]
	use.Part = passes.Collect
	c.shared[scaler] = use
	step, err := old.model.build(s, c, old.losses)
	if err != nil {
		return err
	}
	if err := s.load(step); err != nil {
		return err
	}
	if err := old.closeSizes(); err != nil { // what they do with the scale changes as well
		return err
	}
	for _, r := range old.last.results {
		r.settle()
	}
	step.pending, step.runs, step.turn = old.pending, old.runs, old.turn
	err = old.exec.Close()
	*old = *step
	return err
}
