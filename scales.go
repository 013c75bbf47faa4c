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
func (s *session) sharedScales(r request) map[*passes.Scaler]passes.SharedScale {
	uses := map[*passes.Scaler]passes.SharedScale{}
	named := map[string]bool{}
	for i, l := range r.losses {
		scaler := r.config.Losses[i].Scaler
		if _, again := uses[scaler]; again || scaler == nil {
			continue
		}
		name := l.Value.Name()
		use := passes.SharedScale{Step: r.config.Name, Of: name}
		if old, ok := s.scales[l.Scaler]; ok {
			use = old.SharedScale
			use.Part = passes.Advance
		}
		for k := 2; use.Part == passes.Alone && named[use.Of]; k++ {
			use.Of = fmt.Sprintf("%s_%d", name, k)
		}
		uses[scaler], named[use.Of] = use, true
	}
	return uses
}

// share makes step the one that advances the scales of its losses. A step that
// did so before now notes its overflows for this one.
func (s *session) share(step *Step) error {
	for i, l := range step.losses {
		old := s.scales[l.Scaler].last
		if l.Scaler == nil || old == step {
			continue
		}
		if old != nil && old.exec != nil {
			if err := s.collect(old, l.Scaler); err != nil {
				return err
			}
		}
		s.scales[l.Scaler] = sharedScale{step.config.Shared[step.config.Losses[i].Scaler], step}
	}
	return nil
}

// collect compiles a step again, to note what it finds out about a scale for
// the step that advances it.
func (s *session) collect(old *Step, scaler *Scaler) error {
	r := old.request
	r.config.Shared = maps.Clone(r.config.Shared)
	for i, l := range r.losses {
		if l.Scaler == scaler {
			use := r.config.Shared[r.config.Losses[i].Scaler]
			use.Part = passes.Collect
			r.config.Shared[r.config.Losses[i].Scaler] = use
		}
	}
	step, err := s.compile(old.model, r)
	if err != nil {
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
