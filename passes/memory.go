package passes

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"

	"ampc/ir"
	"ampc/passes/plan"
)

// memory makes the backward pass recompute values of the forward pass, instead of keeping them,
// until the program takes at most Training.Memory bytes. It adds as little work as possible. Dtypes
// are known by then and do not change, so recomputed values have the same bits. Random rows draw
// the same numbers again. Nodes that write a state or send a message, and returned values, are not
// recomputed.
//
// The choices come from the frontiers of plan.Repeats. The size of the program of a choice is
// measured: a copy of the graph goes through the remaining passes and Compiling.Peak.
func memory(g *ir.Graph, c *Context) error {
	if c.Memory == 0 && c.Curve == nil && len(c.Checkpoints) == 0 || !c.Train {
		c.keep()
		return nil
	}
	if c.Memory == 0 && c.Curve == nil {
		return byHand(g, c)
	}
	if c.Peak == nil {
		return errors.New("memory: Config.Memory or Config.Curve is set and Config.Peak is not: nothing says what a program takes")
	}
	s, err := newMemorySearch(g, c)
	if err != nil {
		return err
	}
	if c.Curve != nil {
		if *c.Curve, err = s.curve(); err != nil {
			return err
		}
	}
	if c.Memory == 0 {
		return nil
	}
	best, err := s.find()
	if err != nil {
		return err
	}
	c.Count("peak_bytes_less", int(s.whole-best.peak))
	return s.apply(best.choice)
}

// byHand makes backward recompute the values that checkpoints are computed from.
func byHand(g *ir.Graph, c *Context) error {
	s := &memorySearch{c: c, repeater: newRepeater(g, c.Caps)}
	for _, name := range s.keep(c.Checkpoints) {
		c.note("checkpoint %%%s is left out: a pass has replaced the value", name)
	}
	before := make([]bool, len(s.nodes)) // by node: it is a checkpoint, or a checkpoint depends on it
	for i := len(s.nodes) - 1; i >= 0; i-- {
		before[i] = before[i] || s.checkpoint[s.nodes[i]]
		for _, v := range s.repeats.Nodes[i].In {
			from := s.repeats.Values[v].Node
			before[from] = before[from] || before[i]
		}
	}
	return s.apply(s.repeats.Choose(before))
}

// MemoryError says that no choice of recomputed values makes the program small enough.
type MemoryError struct {
	Whole  int64  // bytes that the program takes without recomputation
	Least  int64  // bytes of the smallest program that was measured
	Option string // name of the limit in the message; "": TrainConfig.Memory
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("memory: the step takes %s, and at least %s where backward computes again what it can: set %s to %d bytes or more, or make the batch smaller",
		ir.Bytes(e.Whole), ir.Bytes(e.Least), cmp.Or(e.Option, "TrainConfig.Memory"), e.Least)
}

// memorySearch looks for the choice with the least work whose program fits.
type memorySearch struct {
	*repeater
	c     *Context
	rest  []Pass // passes after memory
	whole int64  // bytes of the program without recomputation
	limit int64
	least int64 // bytes of the smallest program that was measured
	best  *trial
	fixed int64 // bytes that every program holds between forward and backward, for any choice
	tried map[string]*trial
	found *plan.Frontier
}

// trial is a choice and the size of its program.
type trial struct {
	choice *plan.RepeatChoice
	peak   int64
}

func newMemorySearch(g *ir.Graph, c *Context) (*memorySearch, error) {
	all, err := selectPasses(c.Config)
	if err != nil {
		return nil, err
	}
	s := &memorySearch{c: c, repeater: newRepeater(g, c.Caps), limit: c.Memory, tried: map[string]*trial{}}
	s.fixed = s.alwaysThere()
	s.keep(c.Checkpoints)
	seen := false
	for _, p := range all {
		if seen && p.Name != "prove" {
			s.rest = append(s.rest, p)
		}
		seen = seen || p.Name == "memory"
	}
	return s, nil
}

// frontier is the frontier of all choices.
func (s *memorySearch) frontier() *plan.Frontier {
	if s.found == nil {
		s.found = s.repeats.Frontier(24)
	}
	return s.found
}

// find returns the choice with the least work that fits.
func (s *memorySearch) find() (*trial, error) {
	none, err := s.measure(s.repeats.Choose(make([]bool, len(s.nodes))))
	if err != nil {
		return nil, err
	}
	s.whole = none.peak
	if none.peak <= s.limit {
		return none, nil
	}
	for f := range s.families() {
		if s.best != nil && f.Bound(s.limit-s.fixed) >= float64(s.best.choice.Work) {
			continue // choices on this path that fit add more work
		}
		if err := s.search(f.Corners); err != nil {
			return nil, err
		}
	}
	if s.best == nil {
		for f := range s.families() { // to name the least in the error
			for _, c := range f.Corners {
				if _, err := s.measure(c); err != nil {
					return nil, err
				}
			}
		}
		return nil, &MemoryError{Whole: s.whole, Least: s.least}
	}
	return s.best, nil
}

// families are paths of choices, from the one that recomputes nothing to one that keeps few values.
// In all but the last, the values after the last valley are kept, because the backward pass starts
// there, while all other values are still in memory. The first path keeps no other values. Each of
// the others also keeps the values that live at every stride-th valley.
func (s *memorySearch) families() iter.Seq[*plan.Frontier] {
	return func(yield func(*plan.Frontier) bool) {
		cuts := s.valleys()
		for stride := len(cuts) + 1; stride > 0; stride = nextStride(stride, len(cuts)) {
			if !yield(s.walled(cuts, stride).Frontier(10)) {
				return
			}
		}
		if len(cuts) > 0 {
			yield(s.frontier())
		}
	}
}

// nextStride is the stride after stride in the list n+1, 1, 2, 3, 4, 6, 8, 12 and so on. All but the
// first are at most n. 0 ends the list.
func nextStride(stride, n int) int {
	next := stride + 1
	switch {
	case stride > n:
		next = 1
	case stride&(stride-1) == 0 && stride > 2:
		next = stride + stride/2
	case stride > 2:
		next = stride + stride/3
	}
	if next > n {
		return 0
	}
	return next
}

// search improves the best choice by choices on the path through corners, which grow in work. It
// skips a corner whose program is no smaller than that of an earlier one: recomputing a value that
// lives at the peak saves nothing.
func (s *memorySearch) search(corners []*plan.RepeatChoice) error {
	last := &trial{}
	for _, c := range corners {
		if last.choice != nil && s.atLeastBest(last.choice) {
			return nil
		}
		if c.Bytes > s.limit-s.fixed { // too large for any order of nodes
			last = &trial{c, math.MaxInt64}
			continue
		}
		m, err := s.measure(c)
		switch {
		case err != nil:
			return err
		case last.choice != nil && m.peak >= last.peak:
		case m.peak > s.limit || last.choice == nil:
			last = m
		default:
			s.better(m)
			return s.mix(last.choice, c)
		}
	}
	return nil
}

// mix tries choices between y, which fits, and x, which does not: the first nodes of the forward
// pass follow y, the others x. The values that are computed first are kept longest.
func (s *memorySearch) mix(x, y *plan.RepeatChoice) error {
	lo, hi := 0, len(s.nodes)
	for step := len(s.nodes)/64 + 1; lo+step < hi; {
		mid := (lo + hi) / 2
		between := s.repeats.Between(x, y, mid)
		if s.atLeastBest(between) {
			hi = mid
			continue
		}
		fits, err := s.fits(between)
		switch {
		case err != nil:
			return err
		case fits:
			hi = mid
		default:
			lo = mid
		}
	}
	return nil
}

// atLeastBest reports whether c adds no less work than the best choice so far.
func (s *memorySearch) atLeastBest(c *plan.RepeatChoice) bool {
	return s.best != nil && c.Work >= s.best.choice.Work
}

// fits measures a choice and records it if it fits.
func (s *memorySearch) fits(choice *plan.RepeatChoice) (bool, error) {
	m, err := s.measure(choice)
	if err != nil || m.peak > s.limit {
		return false, err
	}
	s.better(m)
	return true, nil
}

// better records m, which fits, if it is the best so far.
func (s *memorySearch) better(m *trial) {
	if !s.atLeastBest(m.choice) {
		s.best = m
	}
}

// measure runs a copy of the graph through the remaining passes.
func (s *memorySearch) measure(choice *plan.RepeatChoice) (*trial, error) {
	key := choice.Key()
	if m := s.tried[key]; m != nil {
		return m, nil
	}
	g, at := s.g.CloneMap()
	again := map[*ir.Node]bool{}
	for n := range s.again(choice) {
		again[at[n.Out[0]].Def] = true
	}
	if err := repeat(g, again, nil); err != nil {
		return nil, err
	}
	shared := *s.c.training
	shared.index = index{} // of another graph
	for _, p := range s.rest {
		c := newContext(s.c.Config)
		c.training = &shared
		if err := runPass(p, g, c); err != nil {
			return nil, err
		}
		shared.forget(c)
	}
	peak, err := s.c.Peak(g)
	if err != nil {
		return nil, err
	}
	if len(s.tried) == 0 || peak < s.least {
		s.least = peak
	}
	m := &trial{choice, peak}
	s.tried[key] = m
	return m, nil
}

// apply makes the graph itself recompute the values of a choice.
func (s *memorySearch) apply(choice *plan.RepeatChoice) error {
	return repeat(s.g, s.again(choice), s.c)
}
