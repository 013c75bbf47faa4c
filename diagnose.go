package ampc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ampc/ir"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/doctor"
)

// lastRun is a step as it was run, kept by reference: nothing is copied while
// steps are clean.
type lastRun struct {
	feeds    []runtime.Feed
	results  []*Result     // of the last steps, the newest last
	at       int64         // steps of the model launched before
	seen     doctor.Losses // of steps whose results are no longer kept
	restored bool          // the loss scales are what they were before the newest
}

// see keeps the numbers of the step whose results the next one overwrites, and
// notes its loss.
func (l *lastRun) see() {
	if len(l.results) < runtime.RingSize {
		return
	}
	l.results[0].settle()
	if len(l.results[0].step.losses) > 0 {
		l.seen.See(l.results[0].outcome().Loss)
	}
}

// losses are those of all steps before the newest.
func (l *lastRun) losses() doctor.Losses {
	all := l.seen
	for _, r := range l.results[:len(l.results)-1] {
		if len(r.step.losses) > 0 {
			all.See(r.outcome().Loss)
		}
	}
	return all
}

// add notes one more step; results older than the runtime keeps fall off.
func (l *lastRun) add(feeds []runtime.Feed, r *Result, at int64) {
	if len(l.results) == runtime.RingSize {
		l.results = append(l.results[:0], l.results[1:]...)
	}
	l.feeds, l.results, l.at, l.restored = feeds, append(l.results, r), at, false
}

func (l *lastRun) newest() *Result { return l.results[len(l.results)-1] }

// skips counts the steps that were skipped in a row, as far as results are kept.
func (l *lastRun) skips() int {
	n := 0
	for _, r := range slices.Backward(l.results) {
		if !r.outcome().Skipped {
			break
		}
		n++
	}
	return n
}

// Diagnose replays the last step that was run, on the CPU (the step's own backend
// where it is one), under the step's policy and in f32, and says why it was not
// finite. It is meant for after a skipped step, which leaves the variables as they
// were: the replay is that step, with its loss scale, its random draws and its
// micro-batches. After a step that was taken it is one on the variables as they
// are now, which the report mentions.
//
// What was fed and not converted (see Feed) is kept by reference: it must hold what it
// held. So must the variables: diagnose before SetVariable, LoadFile or another step.
func (s *Step) Diagnose(ctx context.Context) (*Diagnosis, error) {
	held := snapshots.Get().(map[string][]byte)
	defer snapshots.Put(held)
	c, err := s.replayable(held)
	if err != nil {
		return nil, err
	}
	d, err := doctor.Diagnose(ctx, c)
	return diagnosisOf(d), err
}

// snapshots is memory for the variables of a step that is diagnosed, by name. The
// garbage collector takes it where no other diagnosis follows.
var snapshots = sync.Pool{New: func() any { return map[string][]byte{} }}

// SaveReplay writes what Diagnose would replay to a file: the compiled graph as
// text, the policy's name, variables, loss scales and feeds. The file appears as
// a whole or not at all; DiagnoseFile and `ampc doctor` read it, on any machine.
func (s *Step) SaveReplay(path string) error {
	c, err := s.replayable(map[string][]byte{})
	if err != nil {
		return err
	}
	return c.Save(path)
}

// DiagnoseFile is Diagnose of a step that SaveReplay wrote. The graph's custom
// ops must be given.
func DiagnoseFile(ctx context.Context, path string, custom ...*CustomOp) (*Diagnosis, error) {
	var rows []*ir.Def
	for _, op := range custom {
		rows = append(rows, op.IR())
	}
	c, err := doctor.Load(path, rows...)
	if err != nil {
		return nil, err
	}
	d, err := doctor.Diagnose(ctx, c)
	return diagnosisOf(d), err
}

// replayable gathers what a replay of the last step needs. Variables are copied to
// the memory that held has for them, or to new memory, which is added to it.
func (s *Step) replayable(held map[string][]byte) (*doctor.Case, error) {
	defer s.model.gate.hold()()
	if s.exec == nil {
		return nil, errClosed
	}
	if len(s.last.results) == 0 {
		return nil, fmt.Errorf("diagnose: no step was run yet")
	}
	c := &doctor.Case{Graph: s.graph, State: map[string][]byte{}, Feeds: s.last.feeds, Policy: policyName(s.config.Policy), Seed: s.model.session.seed}
	c.Backend, _ = s.model.session.backend.(*cpu.Backend)
	for _, v := range s.program.Vars {
		if v.Kind != ir.Param && v.Kind != ir.State || !lasting(v) {
			continue
		}
		if int64(len(held[v.Name])) != v.Type.Bytes() {
			held[v.Name] = make([]byte, v.Type.Bytes())
		}
		if err := s.model.session.store.Read(v.Name, held[v.Name]); err != nil {
			return nil, err
		}
		c.State[v.Name] = held[v.Name]
	}
	skipped := s.last.newest().outcome().Skipped
	c.Skips, c.Losses = s.last.skips(), s.last.losses()
	if err := s.rewind(c.State, skipped); err != nil {
		return nil, err
	}
	if len(s.losses) > 0 && !skipped {
		c.Notes = append(c.Notes, "the step was taken: this is about one on the variables as they are after it")
	}
	if len(s.losses) > 0 && s.model.session.launches > s.last.at+1 {
		c.Notes = append(c.Notes, "other steps over these variables ran since: this is about one on the variables as they are now")
	}
	return c, nil
}

// rewind puts back what a step changes even where it is skipped: the count of
// launched steps, which random draws depend on, and the loss scales.
func (s *Step) rewind(state map[string][]byte, skipped bool) error {
	since := s.model.session.launches - s.last.at
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
