package ampc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"ampc/ir"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/doctor"
	"ampc/world"
)

// RestoreScale says when a step finds out whether its loss scale was lowered for
// gradients that the data made NaN, and then puts the scale back. It does so by the
// diagnosis of a step that was skipped at a finite loss, or of a micro-batch that
// was left out (DropMicro).
type RestoreScale uint8

// The values of TrainConfig.RestoreScale.
const (
	// RestoreAuto does so where steps that are taken do not pay for it: on the CPU,
	// under a scaler that a loss which is not finite leaves alone, as Dynamic does. The
	// rules of other systems are kept as they are. Where the diagnosis or the
	// restoring fails, the scale stays lowered, as without it, and Run reports no error:
	// RestoreAlways does, and so do Step.Diagnose and Step.RestoreScale. With
	// TrainConfig.Parallel it does not, because every rank would replay the step of all.
	RestoreAuto RestoreScale = iota
	// RestoreAlways does so on a GPU, too, where Run then waits for the step, on several
	// ranks, which diagnose a skipped step together, and under the rules of other
	// systems. Run returns an error where a step that was skipped cannot be diagnosed,
	// or its scale cannot be put back. A micro-batch that cannot be diagnosed counts as
	// an overflow.
	RestoreAlways
	// RestoreNever lets every gradient that is not finite lower the scale.
	RestoreNever
)

// rewind puts back what a step changes even where it is skipped: the count of
// launched steps, which random draws depend on, and the loss scales.
func (s *Step) rewind(state map[string][]byte, skipped bool) error {
	since := s.model.session.launches.Load() - s.last.at
	first := true // of the scales of losses
	for _, v := range s.program.Vars {
		if v.Kind != ir.State {
			continue
		}
		now := HostTensor{Type{v.Type}, state[v.Name]}.At
		switch v.Role() {
		case "attempt":
			was, err := appendInts([]int64{int64(now(0)) - since}, v.Type.DType)
			if err != nil {
				return err
			}
			state[v.Name] = was
		case ir.RoleScale:
			was := s.scaleBefore(v.Name, now(0), state, skipped)
			if first && v.Attr.Get("sweep") != ir.InnerSweep {
				was, first = s.last.newest().outcome().Scale, false
			}
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
		count := func(i int) float64 { return HostTensor{Type{n.In[i].Type}, state[n.In[i].Name]}.At(0) }
		stuck := now == n.Float("floor") && count(4) > 0
		if skipped && !s.last.restored && count(1) == 0 && count(3) == 0 && !stuck {
			return now / n.Float("backoff")
		}
	}
	return now
}

// RestoreScale puts the loss scales back to what they were before the last step,
// which was skipped. It is for a step that Diagnose blames on the data
// (NotPrecision): its gradients are not finite in f32 either, so the scale was not
// at fault. The scaler cannot know that while the step runs, because an overflow
// leaves the same NaN, and has lowered the scale. Counts of clean steps start over
// as after any skipped step.
//
// TrainConfig.RestoreScale says when Run does so by itself. It is an error where
// the last step was taken, or another step over the same variables ran since.
//
// With TrainConfig.Parallel all ranks call it: the scales stay equal on all, and an error of one
// is one of all.
func (s *Step) RestoreScale() error {
	defer s.model.gate.hold()()
	err := s.restorable()
	if s.group() != nil {
		_, err = agree(s.group(), "RestoreScale (a call of all ranks)", 0, err)
	}
	if err != nil {
		return err
	}
	return s.restoreScale()
}

// group is the ranks that run the step together, nil where there is one process.
func (s *Step) group() world.World {
	if s.config.Parallel.Ranks > 1 {
		return s.world
	}
	return nil
}

// restorable returns why the loss scales cannot be put back, nil where they can.
func (s *Step) restorable() error {
	switch {
	case s.exec == nil:
		return errClosed
	case len(s.last.results) == 0:
		return errors.New("restore scale: no step was run yet")
	case !s.last.newest().outcome().Skipped:
		return errors.New("restore scale: the last step was taken: its scale needs no repair")
	case s.model.session.launches.Load() > s.last.at+1:
		return errors.New("restore scale: another step over these variables has run since")
	}
	return nil
}

// restoreScale puts the loss scales back, which restorable has allowed.
func (s *Step) restoreScale() error {
	if s.last.restored {
		return nil
	}
	was, err := s.lowered()
	if err != nil {
		return err
	}
	for _, v := range s.program.Vars {
		if data := was[v.Name]; data != nil {
			if err := s.model.session.write(v, data); err != nil {
				return fmt.Errorf("restore scale: %w", err)
			}
		}
	}
	s.last.restored = true
	return nil
}

// lowered are the loss scales that the last step, which was skipped, has lowered, as
// they were before.
func (s *Step) lowered() (map[string][]byte, error) {
	state, now := map[string][]byte{}, map[string]string{}
	for _, v := range s.program.Vars {
		if v.Kind != ir.State || !lasting(v) || v.Type.Shape.Elements() != 1 {
			continue
		}
		data, err := s.model.session.read(v)
		if err != nil {
			return nil, err
		}
		state[v.Name], now[v.Name] = data, string(data)
	}
	if err := s.rewind(state, true); err != nil {
		return nil, err
	}
	was := map[string][]byte{}
	for _, v := range s.program.Vars {
		if v.Kind == ir.State && v.Role() == ir.RoleScale && string(state[v.Name]) != now[v.Name] {
			was[v.Name] = state[v.Name]
		}
	}
	return was, nil
}

// restoresScale reports whether Run restores the scale by itself.
func (s *Step) restoresScale() bool {
	_, prompt := s.exec.(runtime.Prompt)
	return s.restore == RestoreAlways && s.Scaled() || s.restore == RestoreAuto && prompt && s.program.Together() == 1 && s.group() == nil && scalerReadsLoss(s.graph)
}

// scalerReadsLoss reports whether a loss scale of the step advances by a rule that a
// loss which is not finite does not lower.
func scalerReadsLoss(g *ir.Graph) bool {
	for _, n := range g.Body[ir.Update] {
		if n.Op == ir.OpUpdateScale && n.Operand("fwd") != nil {
			return true
		}
	}
	return false
}

// restoreAfter puts the loss scales back after a step whose gradients were not finite
// although its loss was, where no scale would have helped. While a diagnosis before
// has said how many more steps the search for a scale skips, these are not replayed.
// The model's gate is held.
func (s *Step) restoreAfter(ctx context.Context, r *Result) error {
	if skipped, err := r.skipped(); err != nil || !skipped {
		s.last.row, s.last.search = 0, 0
		return err
	}
	o := r.outcome()
	switch {
	case o.err != nil:
		return o.err
	case !finite(o.Loss): // the device has left the scale alone, or its rule is another system's
		return nil
	case s.last.search > 0:
		s.last.search--
		return nil
	}
	if was, err := s.lowered(); err != nil || len(was) == 0 {
		return err
	}
	helps, wait, err := s.scaleHelps(ctx)
	if err != nil {
		return err
	}
	if !helps {
		s.last.row++
		if err := s.restorable(); err != nil {
			return err
		}
		return s.restoreScale()
	}
	s.last.row, s.last.search = 0, max(s.last.search, wait)
	return nil
}

// scaleHelps diagnoses the last step, which was skipped: whether a smaller loss scale would help, and
// for how many more steps the search for one goes on. Ranks take the answer of rank 0.
func (s *Step) scaleHelps(ctx context.Context) (helps bool, wait int, err error) {
	d, err := s.diagnose(ctx)
	if err == nil {
		helps = !noScaleHelps(d)
		for _, m := range d.Remedies {
			wait = max(wait, m.Wait)
		}
	}
	if s.group() == nil {
		return helps, wait, err
	}
	answer := uint64(wait) << 1
	if helps {
		answer++
	}
	answers, err := agree(s.group(), "the diagnosis of a skipped step", answer, err)
	if err != nil {
		return false, 0, err
	}
	return answers[0]&1 == 1, int(answers[0] >> 1), nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// noScaleHelps reports whether the cause is one that no loss scale helps against.
func noScaleHelps(d *doctor.Diagnosis) bool {
	switch d.Cause {
	case doctor.ForwardOverflow, doctor.Singular, doctor.VanishedConstant, doctor.BadInput, doctor.BadState, doctor.NotPrecision:
		return true
	}
	return false
}

// diagnoseDropped makes the step diagnose the micro-batches that it leaves out, before its update.
// The update lowers the scale if only gradients were the reason. The diagnosis cannot wait, because
// a step cannot be replayed after it has changed the weights. On several ranks what is left out counts
// as an overflow: one rank cannot replay the norms and losses of all in the middle of a step.
func (s *Step) diagnoseDropped() error {
	flags := overflowFlags(s.graph)
	e, ok := s.exec.(runtime.Pauser)
	if !ok || s.config.BadMicro != passes.DropMicro || len(flags) == 0 || !s.restoring || s.group() != nil {
		return nil
	}
	var inside *cpu.Backend // for replays; nil: the step runs elsewhere
	if b, ok := s.model.session.backend.(*cpu.Backend); ok {
		inside = b.Inside()
	}
	return e.BeforeUpdate(flags, max(s.config.Micro, 1), func(ctx context.Context, feeds []runtime.Feed, set [][]bool) []bool {
		return s.overflows(ctx, inside, feeds, set)
	})
}

// overflows returns the flags that an overflow has set. Micro-batches that set a flag are replayed
// until one of them has overflowed; one that cannot be replayed counts as an overflow.
func (s *Step) overflows(ctx context.Context, b *cpu.Backend, feeds []runtime.Feed, set [][]bool) []bool {
	is := make([]bool, len(set[0]))
	var state map[string][]byte
	for micro, flags := range set {
		open := false
		for k, raised := range flags {
			open = open || raised && !is[k]
		}
		if !open {
			continue
		}
		var err error
		if state == nil {
			var end func()
			if state, end, err = s.lastingState(); err == nil {
				defer end()
			}
		}
		var d *doctor.Diagnosis
		if err == nil {
			c := s.replay(feeds[micro : micro+1])
			c.Backend, c.First, c.State = b, micro, maps.Clone(state)
			d, err = doctor.Diagnose(ctx, c)
		}
		if err == nil && noScaleHelps(d) {
			continue
		}
		for k, raised := range flags {
			is[k] = is[k] || raised
		}
	}
	return is
}

// overflowFlags names, in order, the states that record for the update that gradients of some
// micro-batch were not finite.
func overflowFlags(g *ir.Graph) []string {
	var flags []string
	seen := map[*ir.Value]bool{}
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		if v == nil || seen[v] {
			return
		}
		seen[v] = true
		switch {
		case v.Def != nil:
			for _, op := range v.Def.In {
				walk(op)
			}
		case v.Attr.Get("role") == "acc" && v.Type.DType == ir.Bool:
			flags = append(flags, v.Name)
		}
	}
	for _, n := range g.Body[ir.Update] {
		if n.Op == ir.OpUpdateScale {
			walk(n.Operand("found_inf"))
		}
	}
	return flags
}
