package ampc

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/passes"
)

// SetLR changes the base learning rate of the step; its schedule goes on from it.
// A step whose groups have several rates has SetGroupLR for each. A rate that
// Constant would not take, below 0 or not finite, is an error.
func (s *Step) SetLR(rate float64) error {
	defer s.model.gate.hold()()
	if s.exec == nil {
		return errClosed
	}
	rates := s.rates()
	if len(rates) != 1 {
		var patterns []string
		for _, r := range rates {
			patterns = append(patterns, s.patterns(r)...)
		}
		if len(rates) == 0 {
			return fmt.Errorf("set learning rate: the step has none")
		}
		return fmt.Errorf("set learning rate: the step has %d, of groups %s: set each with SetGroupLR", len(rates), strings.Join(patterns, ", "))
	}
	return s.setRate(rates[0], rate)
}

// SetGroupLR changes the base learning rate of the group with this pattern, ""
// for that of TrainConfig.Optimizer; its schedule goes on from it. Groups whose
// schedules are equal have one rate, and cannot be set apart.
func (s *Step) SetGroupLR(pattern string, rate float64) error {
	defer s.model.gate.hold()()
	if s.exec == nil {
		return errClosed
	}
	var known []string
	for _, r := range s.rates() {
		of := s.patterns(r)
		known = append(known, of...)
		switch {
		case !slices.Contains(of, fmt.Sprintf("%q", pattern)):
		case len(of) > 1:
			return fmt.Errorf("set learning rate: groups %s have equal schedules and so one rate: give them schedules that differ, or set all with SetLR where the step has no other", strings.Join(of, ", "))
		default:
			return s.setRate(r, rate)
		}
	}
	return fmt.Errorf("set learning rate: no group %q has one; there are %s", pattern, strings.Join(known, ", "))
}

// rate is a base learning rate and the groups that are stepped by it.
type rate struct {
	base   *ir.Value
	groups []int
}

// rates finds the rates that the update reads, in the order of the groups.
func (s *Step) rates() []rate {
	var out []rate
	groups := s.config.Groups
	for _, n := range s.graph.Body[ir.Update] {
		base := n.Operand("lr")
		if base == nil || len(n.Out) == 0 || n.Out[0].Next == nil {
			continue
		}
		for base.Def != nil {
			base = base.Def.In[0]
		}
		group := passes.GroupOf(groups, n.Out[0].Next.Name)
		at := slices.IndexFunc(out, func(r rate) bool { return r.base == base })
		if at < 0 {
			at = len(out)
			out = append(out, rate{base: base})
		}
		if !slices.Contains(out[at].groups, group) {
			out[at].groups = append(out[at].groups, group)
		}
	}
	for _, r := range out {
		slices.Sort(r.groups)
	}
	slices.SortFunc(out, func(a, b rate) int { return a.groups[0] - b.groups[0] })
	return out
}

func (s *Step) patterns(r rate) []string {
	var out []string
	groups := s.config.Groups
	for _, i := range r.groups {
		out = append(out, fmt.Sprintf("%q", groups[i].Pattern))
	}
	return out
}

func (s *Step) setRate(r rate, x float64) error {
	if err := ir.AtLeast0.Check("set learning rate: learning rate", x); err != nil {
		return err
	}
	v, ok := s.model.session.find(r.base.Name)
	if !ok {
		return fmt.Errorf("set learning rate: no variable %q", r.base.Name)
	}
	return s.model.session.write(v, appendFloats([]float64{x}, v.Type.DType))
}
