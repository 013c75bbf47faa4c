package ampc

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"ampc/ir"
	"ampc/runtime"
)

// largest completes the error of a step for which there is too little memory the largest batch for
// which there is enough, if the step's batch is a named dimension. It compiles the step for other
// sizes.
func (s *session) largest(m *Model, r request, k known, err error) error {
	var room *runtime.RoomError
	b, ok := s.backend.(runtime.Sized)
	name := m.batch()
	if !ok || r.sizes[name] <= 1 || !errors.As(err, &room) {
		return err
	}
	need := func(n int64) float64 {
		r.sizes = maps.Clone(r.sizes)
		r.sizes[name] = n
		step, err := m.translate(r, k, s.backend.Target())
		if err != nil {
			return math.Inf(1)
		}
		return float64(b.Need(step.program, s.store))
	}
	lo, hi := int64(0), r.sizes[name]
	more := max(1, float64(room.Need)/need(hi)) // than Need counts, such as scratch memory
	fits := func(n int64) bool { return more*need(n) <= float64(room.Room) }
	for lo+1 < hi {
		if mid := (lo + hi) / 2; fits(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	e := *room
	e.Text = strings.TrimSuffix(err.Error(), room.Ending())
	e.Advice = fmt.Sprintf("the largest %s that fits is %d", name, lo)
	if lo == 0 {
		e.Advice = fmt.Sprintf("not even %s = 1 fits: make the model smaller", name)
	}
	return &e
}

// batch is the named dimension that is the first of all inputs that have one, "" if there is none.
func (m *Model) batch() Dim {
	g, name := m.Graph(), ""
	for _, v := range g.Vars {
		if v.Kind != ir.Input || v.Type.Shape.Rank() == 0 {
			continue
		}
		d := v.Type.Shape.Dim(0)
		if d >= 0 || int(-d) > len(g.Syms) {
			continue
		}
		n := g.Syms[-d-1].Name
		if name != "" && name != n {
			return ""
		}
		name = n
	}
	return Dim(name)
}
