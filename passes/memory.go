package passes

import (
	"errors"
	"fmt"

	"ampc/ir"
	"ampc/passes/plan"
)

// memory has the backward pass compute again so much of what the forward pass would
// keep for it that the program takes at most Training.Memory bytes, and adds the least work
// for that. Dtypes are known by then and none changes, so what is computed again has
// the same bits. Random rows draw the same numbers again. What writes a state, sends a
// message or is returned is kept.
//
// Choices come from the frontiers of plan.Repeats. How much the program of a choice
// takes is measured, not estimated: a copy of the graph goes through the remaining
// passes and Compiling.Peak.
func memory(g *ir.Graph, c *Context) error {
	if c.Memory == 0 {
		return nil
	}
	if c.Peak == nil {
		return errors.New("memory: Config.Memory is set and Config.Peak is not: nothing says what a program takes")
	}
	s, err := newMemorySearch(g, c)
	if err != nil {
		return err
	}
	best, err := s.find()
	if err != nil {
		return err
	}
	c.Count("peak_bytes_less", int(s.whole-best.peak))
	return s.apply(best.choice)
}

// memorySearch looks for the choice of least work whose program is small enough.
type memorySearch struct {
	*repeater
	c     *Context
	rest  []Pass // behind memory
	whole int64  // what the program takes where nothing is computed again
	tries int
	limit int64
	least int64 // what the smallest program that was measured takes
	best  *trial
}

// trial is a choice and what its program takes.
type trial struct {
	choice *plan.RepeatChoice
	peak   int64
}

func newMemorySearch(g *ir.Graph, c *Context) (*memorySearch, error) {
	all, err := selectPasses(Pipeline(), c.Config)
	if err != nil {
		return nil, err
	}
	s := &memorySearch{c: c, repeater: newRepeater(g), limit: c.Memory}
	seen := false
	for _, p := range all {
		if seen && p.Name != "prove" {
			s.rest = append(s.rest, p)
		}
		seen = seen || p.Name == "memory"
	}
	return s, nil
}

// find returns the choice of least work that fits.
func (s *memorySearch) find() (*trial, error) {
	none, err := s.measure(s.repeats.Choose(make([]bool, len(s.nodes))))
	if err != nil {
		return nil, err
	}
	s.whole = none.peak
	if none.peak <= s.limit {
		return none, nil
	}
	if err := s.search(s.repeats.Frontier().Corners); err != nil {
		return nil, err
	}
	cuts := s.valleys()
	for stride := 1; stride <= len(cuts); stride *= 2 {
		if stride > 1 && s.best != nil {
			break
		}
		if err := s.search(s.between(cuts, stride)); err != nil {
			return nil, err
		}
	}
	if s.best == nil {
		return nil, fmt.Errorf("memory: the step takes %d bytes, and %d at least where backward computes again what it can: give a TrainConfig.Memory that is not below that, or smaller batches", s.whole, s.least)
	}
	return s.best, nil
}

// between is the corners of the frontier where what lives at every so-manieth valley is not
// computed again.
func (s *memorySearch) between(cuts []int, stride int) []*plan.RepeatChoice {
	walled := s.walled(cuts, stride)
	if stride == 1 {
		return walled.Frontier().Corners
	}
	return walled.Ends()
}

// search improves the best choice by one on the path through corners, which grow in work.
// A corner whose program is no smaller than that of one before is left out: a value that
// is computed again at the peak helps nobody.
func (s *memorySearch) search(corners []*plan.RepeatChoice) error {
	last := &trial{}
	for _, c := range corners {
		if s.best != nil && last.choice != nil && last.choice.Work >= s.best.choice.Work {
			return nil
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

// mix lets only the first nodes of the forward pass follow y, which fits, and the
// others x, which does not: what is computed first is kept longest.
func (s *memorySearch) mix(x, y *plan.RepeatChoice) error {
	lo, hi := 0, len(s.nodes)
	for step := len(s.nodes)/64 + 1; lo+step < hi; {
		mid := (lo + hi) / 2
		fits, err := s.fits(s.repeats.Between(x, y, mid))
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

// fits measures a choice and remembers it where it fits.
func (s *memorySearch) fits(choice *plan.RepeatChoice) (bool, error) {
	m, err := s.measure(choice)
	if err != nil || m.peak > s.limit {
		return false, err
	}
	s.better(m)
	return true, nil
}

// better remembers m, which fits, where it is the best so far.
func (s *memorySearch) better(m *trial) {
	if s.best == nil || m.choice.Work < s.best.choice.Work {
		s.best = m
	}
}

// measure takes a copy of the graph through the remaining passes.
func (s *memorySearch) measure(choice *plan.RepeatChoice) (*trial, error) {
	g, at := s.g.CloneMap()
	again := map[*ir.Node]bool{}
	for i, n := range s.nodes {
		if choice.Again[i] {
			again[at[n.Out[0]].Def] = true
		}
	}
	if err := repeat(g, again, nil); err != nil {
		return nil, err
	}
	for _, p := range s.rest {
		c := newContext(s.c.Config)
		c.training = s.c.training
		if err := runPass(p, g, c); err != nil {
			return nil, err
		}
	}
	peak, err := s.c.Peak(g)
	if s.tries++; s.tries == 1 || peak < s.least {
		s.least = peak
	}
	return &trial{choice, peak}, err
}

// apply has the graph itself compute a choice again.
func (s *memorySearch) apply(choice *plan.RepeatChoice) error {
	again := map[*ir.Node]bool{}
	for i, n := range s.nodes {
		if choice.Again[i] {
			again[n] = true
		}
	}
	return repeat(s.g, again, s.c)
}
