package convert

import (
	"cmp"
	"math"
	"slices"
)

// Found is an assignment that a search came to.
type Found struct {
	Half  []bool
	Error float64
	Alone map[int]float64 // for nodes kept for their rounding: the error of each alone
	Runs  int
}

// limits of a search: runs to find the nodes that matter, and runs to return nodes to 16 bits
const (
	maxSplits   = 400
	maxReleases = 40
)

// search is a Search at work.
type search struct {
	run   func(half []bool) (float64, error)
	limit float64
	found Found
	alone map[int]float64
	err   error
}

// Search finds the nodes of half that must not compute in 16 bits so that run,
// which gives the error of an assignment, does not pass limit; 0: only so that
// the error is finite. First sets of nodes are split in halves, down to the single
// nodes that bring an error by themselves; then the fewest of these are kept that
// suffice, the worst first; then each is given back that is not needed.
func Search(half []bool, limit float64, run func(half []bool) (float64, error)) (Found, error) {
	if limit == 0 {
		limit = math.MaxFloat64
	}
	s := &search{run: run, limit: limit, alone: map[int]float64{}}
	s.found.Half = slices.Clone(half)
	if s.error(half) <= limit || s.err != nil {
		return s.done()
	}
	var all []int
	for i, on := range half {
		if on {
			all = append(all, i)
		}
	}
	s.split(all, s.found.Error)
	ranked := slices.Clone(all)
	slices.SortStableFunc(ranked, func(a, b int) int { return -cmp.Compare(s.alone[a], s.alone[b]) })
	without := func(kept []int) []bool {
		h := slices.Clone(half)
		for _, i := range kept {
			h[i] = false
		}
		return h
	}
	few, many := 0, len(ranked) // a few are not enough; all of many are
	for many-few > 1 && s.err == nil {
		if k := (few + many) / 2; s.error(without(ranked[:k])) <= limit {
			many = k
		} else {
			few = k
		}
	}
	kept := slices.Clone(ranked[:many])
	for i, tries := len(kept)-1, 0; i >= 0 && tries < maxReleases && s.err == nil; i, tries = i-1, tries+1 {
		if rest := slices.Delete(slices.Clone(kept), i, i+1); s.error(without(rest)) <= limit {
			kept = rest
		}
	}
	s.found.Half, s.found.Alone = without(kept), map[int]float64{}
	for _, i := range kept {
		s.found.Alone[i] = s.alone[i]
	}
	s.error(s.found.Half)
	return s.done()
}

func (s *search) done() (Found, error) { return s.found, s.err }

// error runs an assignment. What is not finite is as bad as can be.
func (s *search) error(half []bool) float64 {
	if s.err != nil {
		return 0
	}
	s.found.Runs++
	e, err := s.run(half)
	if s.err = err; math.IsNaN(e) {
		e = math.Inf(1)
	}
	s.found.Error = e
	return e
}

// split finds the error of each node in a set alone. It does not split a set with a small error.
func (s *search) split(set []int, e float64) {
	if s.err != nil {
		return
	}
	if len(set) == 1 || e <= s.limit/8 || s.found.Runs > maxSplits {
		for _, i := range set {
			s.alone[i] = e / float64(len(set))
		}
		return
	}
	mid := len(set) / 2
	for _, part := range [][]int{set[:mid], set[mid:]} {
		h := make([]bool, len(s.found.Half))
		for _, i := range part {
			h[i] = true
		}
		s.split(part, s.error(h))
	}
}
