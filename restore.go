package ampc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/doctor"
)

// RestoreScale says when a step looks whether its loss scale was lowered for
// gradients that the data made NaN, and then puts the scale back.
type RestoreScale uint8

// The values of TrainConfig.RestoreScale.
const (
	// RestoreAuto looks where clean steps do not pay for it: on the CPU, under a
	// scaler that a loss which is not finite leaves alone, as Dynamic does. The rules
	// of other systems are kept as they are.
	RestoreAuto RestoreScale = iota
	// RestoreAlways looks on a GPU, too, where Run then waits for the step, and under
	// the rules of other systems.
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
		now := Host{Type{v.Type}, state[v.Name]}.At
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
		count := func(i int) float64 { return Host{Type{n.In[i].Type}, state[n.In[i].Name]}.At(0) }
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
func (s *Step) RestoreScale() error {
	defer s.model.gate.hold()()
	return s.restoreScale()
}

func (s *Step) restoreScale() error {
	switch {
	case s.exec == nil:
		return errClosed
	case len(s.last.results) == 0:
		return errors.New("restore scale: no step was run yet")
	case !s.last.newest().outcome().Skipped:
		return errors.New("restore scale: the last step was taken: its scale needs no repair")
	case s.model.session.launches.Load() > s.last.at+1:
		return errors.New("restore scale: another step over these variables has run since")
	case s.last.restored:
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

// spares reports whether Run looks after each step whether the data were to blame.
func (s *Step) spares() bool {
	_, prompt := s.exec.(runtime.Prompt)
	return s.restore == RestoreAlways && s.Scaled() || s.restore == RestoreAuto && prompt && s.forgiving
}

// forgives reports whether a step advances a loss scale by a rule that a loss which is
// not finite does not lower.
func forgives(g *ir.Graph) bool {
	for _, n := range g.Body[ir.Update] {
		if n.Op == ir.OpUpdateScale && n.Operand("fwd") != nil {
			return true
		}
	}
	return false
}

// spare puts the loss scales back after a step whose gradients were not finite
// although its loss was, where no scale would have helped. While a diagnosis before
// has said how many more steps the search for a scale skips, these are not replayed.
// The model's gate is held.
func (s *Step) spare(ctx context.Context, r *Result) error {
	if skipped, err := r.skipped(); err != nil || !skipped {
		s.last.row, s.last.search = 0, 0
		return err
	}
	o := r.outcome()
	switch {
	case o.err != nil:
		return o.err
	case math.IsNaN(o.Loss) || math.IsInf(o.Loss, 0): // the device has left the scale alone, or its rule is another system's
		return nil
	case s.last.search > 0:
		s.last.search--
		return nil
	}
	if was, err := s.lowered(); err != nil || len(was) == 0 {
		return err
	}
	d, err := s.diagnose(ctx)
	if err != nil {
		return err
	}
	if toBlame(d) {
		s.last.row++
		return s.restoreScale()
	}
	s.last.row = 0
	for _, m := range d.Remedies {
		s.last.search = max(s.last.search, m.Wait)
	}
	return nil
}

// toBlame reports whether the cause is one that no loss scale helps against.
func toBlame(d *doctor.Diagnosis) bool {
	switch d.Cause {
	case doctor.ForwardOverflow, doctor.Singular, doctor.VanishedConstant, doctor.BadInput, doctor.BadState, doctor.NotPrecision:
		return true
	}
	return false
}

// dropped looks at the micro-batches of a step that leaves bad ones out. The update
// lowers the scale where one was left out for its gradients alone, and the step cannot
// be replayed once it has changed the weights; so it is done before.
type dropped struct {
	step  *Step
	b     *cpu.Backend // for replays inside a step
	state map[string][]byte
	flags []flag
}

// flag is the memory of a state that tells the update that gradients were not finite in
// some micro-batch.
type flag struct {
	at   []byte
	kept bool // it was set by an overflow
}

// forDropped finds the flags: none where the step leaves no micro-batch out, or is not
// run on the CPU, whose steps can be watched.
func (s *Step) forDropped() (*dropped, error) {
	b, ok := s.model.session.backend.(*cpu.Backend)
	if !ok || s.config.BadMicro != passes.DropMicro || !s.spares() {
		return new(dropped), nil
	}
	w := &dropped{step: s, state: map[string][]byte{}, b: b.Inside()}
	flags := overflowFlags(s.graph)
	for _, v := range s.program.Vars {
		if v.Kind != ir.Param && v.Kind != ir.State {
			continue
		}
		data, err := s.model.session.show(v)
		switch {
		case err != nil:
			return nil, err
		case flags[v.Name]:
			w.flags = append(w.flags, flag{at: data})
		case lasting(v):
			w.state[v.Name] = data
		}
	}
	return w, nil
}

// overflowFlags names the states that tell the update of an overflow in some micro-batch.
func overflowFlags(g *ir.Graph) map[string]bool {
	flags, seen := map[string]bool{}, map[*ir.Value]bool{}
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
			flags[v.Name] = true
		}
	}
	for _, n := range g.Body[ir.Update] {
		if n.Op == ir.OpUpdateScale {
			walk(n.Operand("found_inf"))
		}
	}
	return flags
}

// watch has every micro-batch of a step looked at when it has run.
func (w *dropped) watch(ctx context.Context, feeds []runtime.Feed) {
	if len(w.flags) == 0 {
		return
	}
	w.step.exec.(runtime.Tracer).Watch(runtime.Watch{Part: func(part lower.Part, micro int) bool {
		if part == lower.Micro {
			w.look(ctx, feeds[micro], micro)
		}
		return true
	}})
}

// look replays a micro-batch that has set a flag, and takes that back where no loss
// scale would have helped. A replay that fails leaves it.
func (w *dropped) look(ctx context.Context, feed runtime.Feed, micro int) {
	raised := false
	for i := range w.flags {
		f := &w.flags[i]
		f.kept = f.kept && micro > 0
		raised = raised || f.at[0] != 0 && !f.kept
	}
	if !raised {
		return
	}
	c := w.step.replay([]runtime.Feed{feed})
	c.Backend, c.First, c.State = w.b, micro, maps.Clone(w.state)
	d, err := doctor.Diagnose(ctx, c)
	for i := range w.flags {
		f := &w.flags[i]
		switch {
		case f.kept:
		case err == nil && toBlame(d):
			f.at[0] = 0
		default:
			f.kept = f.at[0] != 0
		}
	}
}
