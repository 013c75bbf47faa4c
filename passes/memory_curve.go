package passes

import (
	"cmp"
	"slices"

	"ampc/ir"
	"ampc/passes/plan"
)

// MemoryPoint is the size and the cost of a step that recomputes some of the forward pass.
type MemoryPoint struct {
	Peak  int64 `json:"peak_bytes"`  // bytes that the program takes
	Saved int64 `json:"saved_bytes"` // bytes that forward keeps for backward, without views
	// Flops and Time are added to those of the step, as fractions of them. Time is a model that
	// counts four flops for each byte that moves.
	Flops float64 `json:"flops_added"`
	Time  float64 `json:"time_added"`
	// Bound is a lower bound of Time for programs of this size: the optimum of a linear program in
	// which a value may be kept in part.
	Bound float64 `json:"time_bound"`
}

// curve measures the corners of the frontiers. It returns those that take less memory than all
// cheaper ones.
func (s *memorySearch) curve() ([]MemoryPoint, error) {
	var choices []*plan.RepeatChoice
	for f := range s.families() {
		choices = append(choices, f.Corners...)
	}
	slices.SortStableFunc(choices, func(a, b *plan.RepeatChoice) int {
		return cmp.Or(cmp.Compare(a.Work, b.Work), cmp.Compare(a.Bytes, b.Bytes))
	})
	flops, work := s.whatStepCosts()
	always := s.savedAnyway()
	var out []MemoryPoint
	for i, c := range choices {
		if i > 0 && slices.Equal(c.Again, choices[i-1].Again) {
			continue
		}
		m, err := s.measure(c)
		if err != nil {
			return nil, err
		}
		if len(out) > 0 && m.peak >= out[len(out)-1].Peak {
			continue
		}
		p := MemoryPoint{Peak: m.peak, Saved: c.Bytes + always, Time: float64(c.Work) / work, Bound: s.frontier().Bound(m.peak-s.fixed) / work}
		for k, n := range s.nodes {
			if c.Again[k] {
				p.Flops += float64(s.g.NodeCost(n).Flops) / flops
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// whatStepCosts is the flops of the step, and its work, counted as that of recomputed nodes.
func (s *memorySearch) whatStepCosts() (flops, work float64) {
	uses := s.g.Uses()
	for _, n := range s.g.Nodes {
		if !shares(n) {
			flops += float64(s.g.NodeCost(n).Flops)
			work += float64(s.work(n, uses))
		}
	}
	return max(flops, 1), max(work, 1)
}

// alwaysThere is the number of bytes that every program holds between forward and backward:
// variables, and results of prepare that backward reads.
func (s *memorySearch) alwaysThere() (sum int64) {
	seen := map[*ir.Value]bool{}
	add := func(v *ir.Value) {
		if !seen[v] {
			seen[v] = true
			sum += s.g.Elements(v.Type) * v.Type.DType.Size()
		}
	}
	for _, v := range s.g.Vars {
		add(v)
	}
	prepared := map[*ir.Node]bool{}
	for _, n := range s.g.Body[ir.Prepare] {
		prepared[n] = true
	}
	for _, n := range s.g.Body[ir.Backward] {
		for _, v := range operands(n) {
			if v = root(v); v.Def != nil && prepared[v.Def] {
				add(v)
			}
		}
	}
	return sum
}

// savedAnyway is the number of bytes of forward values that backward reads and that every choice
// keeps.
func (s *memorySearch) savedAnyway() (sum int64) {
	fixed, seen := keptAnyway(s.g), map[*ir.Value]bool{}
	for _, n := range s.g.Body[ir.Backward] {
		for _, v := range operands(n) {
			if v = root(v); v.Def != nil && fixed[v] && !seen[v] {
				if _, here := s.index[v.Def]; here {
					seen[v] = true
					sum += s.g.Elements(v.Type) * v.Type.DType.Size()
				}
			}
		}
	}
	return sum
}
