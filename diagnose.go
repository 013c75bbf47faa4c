package ampc

import (
	"context"
	"fmt"

	"ampc/ir"
	"ampc/runtime"
	"ampc/runtime/doctor"
)

// Diagnosis says why a step was not finite: what, where, why, and what to do.
type Diagnosis = doctor.Diagnosis

// Cause is why a step was not finite.
type Cause = doctor.Cause

// The causes; see package ampc/runtime/doctor.
const (
	NoFault          = doctor.None
	ScaleTooHigh     = doctor.ScaleTooHigh
	GradientOverflow = doctor.GradientOverflow
	ForwardOverflow  = doctor.ForwardOverflow
	Singular         = doctor.Singular
	VanishedConstant = doctor.VanishedConstant
	BadInput         = doctor.BadInput
	BadState         = doctor.BadState
	NotPrecision     = doctor.NotPrecision
)

// launched is a step as it was run, kept by reference: nothing is copied while
// steps are clean.
type launched struct {
	feeds  []runtime.Feed
	result Result
	at     int64 // steps of the model launched before
}

// Diagnose replays the last step that was run, on the CPU, under the step's
// policy and in f32, and says why it was not finite. It is meant for after a
// skipped step, which leaves the variables as they were: the replay is that
// step, with its loss scale, its random draws and its micro-batches. After a
// step that was taken it is one on the variables as they are now, which the
// report mentions.
//
// A Host that was fed is kept by reference: its bytes must be what they were.
func (s *Step) Diagnose(ctx context.Context) (*Diagnosis, error) {
	c, err := s.replayable()
	if err != nil {
		return nil, err
	}
	return doctor.Diagnose(ctx, c)
}

// replayable gathers what a replay of the last step needs.
func (s *Step) replayable() (*doctor.Case, error) {
	if s.last.result.step == nil {
		return nil, fmt.Errorf("diagnose: no step was run yet")
	}
	c := &doctor.Case{Graph: s.graph, State: map[string][]byte{}, Feeds: s.last.feeds, Policy: policyName(s.config.Policy)}
	for _, v := range s.program.Vars {
		if v.Kind != ir.Param && v.Kind != ir.State {
			continue
		}
		data, err := s.model.session.read(v)
		if err != nil {
			return nil, err
		}
		c.State[v.Name] = data
	}
	skipped := s.last.result.Skipped()
	if err := s.rewind(c.State, skipped); err != nil {
		return nil, err
	}
	if len(s.losses) > 0 && !skipped {
		c.Notes = append(c.Notes, "the step was taken: this is about one on the variables as they are after it")
	}
	return c, nil
}

// rewind puts back what a step changes even where it is skipped: the count of
// launched steps, which random draws depend on, and the loss scales.
func (s *Step) rewind(state map[string][]byte, skipped bool) error {
	since := s.model.session.launches - s.last.at
	first := true
	for _, v := range s.program.Vars {
		if v.Kind != ir.State {
			continue
		}
		now := Host{v.Type, state[v.Name]}.At
		switch v.Role() {
		case "attempt":
			was, err := appendInts([]int64{int64(now(0)) - since}, v.Type.DType)
			if err != nil {
				return err
			}
			state[v.Name] = was
		case ir.RoleScale:
			was := s.last.result.Scale() // that of the first sweep
			if !first {
				was = s.scaleBefore(v.Name, now(0), state, skipped)
			}
			first = false
			state[v.Name] = appendFloats([]float64{was}, v.Type.DType)
		}
	}
	return nil
}

// scaleBefore undoes the backoff of a scale: one that was lowered has counted
// no clean step since, and no failed forward pass.
func (s *Step) scaleBefore(name string, now float64, state map[string][]byte, skipped bool) float64 {
	for _, n := range s.graph.Body[ir.Update] {
		if n.Op != ir.OpUpdateScale || n.In[0].Name != name {
			continue
		}
		count := func(i int) float64 { return Host{n.In[i].Type, state[n.In[i].Name]}.At(0) }
		stuck := now == n.Float("floor") && count(4) > 0
		if skipped && count(1) == 0 && count(3) == 0 && !stuck {
			return now / n.Float("backoff")
		}
	}
	return now
}
