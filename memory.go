package ampc

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"ampc/runtime"
)

// largest completes the error of a step for which there is too little memory the largest batch for
// which there is enough: of the named dimension or the number that is the batch of all inputs
// (ir.Graph.BatchDim, Batch). It compiles the step for other sizes. Where the model is written for one
// number, it says so.
func (s *session) largest(m *Model, r request, k known, err error) error {
	var room *runtime.RoomError
	b, ok := s.backend.(runtime.Sized)
	if !ok || !errors.As(err, &room) {
		return err
	}
	name := Dim(m.Graph().BatchDim())
	batch, what := r.sizes[name], string(name)
	if name == "" {
		batch, what = m.written(r), "batch"
	}
	if batch <= 1 {
		return err
	}
	e := *room
	e.Text = strings.TrimSuffix(err.Error(), room.Ending())
	need := func(n int64) (int64, error) {
		if name == "" {
			r.batch = n
		} else {
			r.sizes = maps.Clone(r.sizes)
			r.sizes[name] = n
		}
		step, err := m.translate(r, k, s.backend.Target())
		if err != nil {
			return 0, err
		}
		return b.Need(step.program, s.store)
	}
	if _, err := need(1); err != nil && name == "" {
		e.Advice = fmt.Sprintf("make the batch or the model smaller; which batch fits is not known, because the model is written for %d: %v", batch, err)
		return &e
	}
	lo, hi := int64(0), batch
	for lo+1 < hi {
		mid := (lo + hi) / 2
		if bytes, err := need(mid); err == nil && bytes <= room.Room-room.Spare {
			lo = mid
		} else {
			hi = mid
		}
	}
	e.Advice = fmt.Sprintf("the largest %s that fits is %d", what, lo)
	if lo == 0 {
		e.Advice = fmt.Sprintf("not even %s = 1 fits: make the model smaller", what)
	}
	return &e
}

// written is the batch that the inputs are declared with, as a number; 0 if there is none.
func (m *Model) written(r request) int64 {
	g, _, err := m.bound(r.config, r.sizes)
	if err != nil {
		return 0
	}
	return g.Batch()
}
