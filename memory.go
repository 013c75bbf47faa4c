package ampc

import (
	"errors"
	"fmt"
	"maps"
	"math"
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
	hi, what := r.sizes[name], string(name)
	if name == "" {
		hi, what = m.written(r), "batch"
	}
	if hi <= 1 {
		return err
	}
	e := *room
	e.Text = strings.TrimSuffix(err.Error(), room.Ending())
	need := func(n int64) (float64, error) {
		if name == "" {
			r.batch = n
		} else {
			r.sizes = maps.Clone(r.sizes)
			r.sizes[name] = n
		}
		step, err := m.translate(r, k, s.backend.Target())
		if err != nil {
			return math.Inf(1), err
		}
		return float64(b.Need(step.program, s.store)), nil
	}
	if _, err := need(1); err != nil && name == "" {
		e.Advice = fmt.Sprintf("make the batch or the model smaller; which batch fits is not known, because the model is written for %d: %v", hi, err)
		return &e
	}
	whole, _ := need(hi)
	more := max(1, float64(room.Need)/whole) // than Need counts, such as scratch memory
	lo := int64(0)
	for lo+1 < hi {
		mid := (lo + hi) / 2
		if bytes, _ := need(mid); more*bytes <= float64(room.Room) {
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
