package ampc

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ampc/lower"
)

// keptSizes is how many further sizes a step keeps where KeepSizes is 0.
const keptSizes = 8

// For returns the step for other sizes of the model's named dimensions: a short
// last batch, a longer sequence. sizes holds those that differ from the config's.
// It is the same step: counters, learning rates, loss scale, moments and averages
// are one. The first call for some sizes compiles them. A step keeps KeepSizes
// of them beside its own and closes the one that was asked for longest ago, so ask
// before each Run instead of keeping what For returned. Closing the step closes
// them all.
func (s *Step) For(sizes Sizes) (*Step, error) {
	if s.of != nil {
		s = s.of
	}
	defer s.model.gate.hold()()
	if s.exec == nil {
		return nil, errClosed
	}
	r := s.request
	r.sizes = Sizes{}
	maps.Copy(r.sizes, s.sizes)
	maps.Copy(r.sizes, sizes)
	if maps.Equal(r.sizes, s.sizes) {
		return s, nil
	}
	for i, other := range s.others {
		if maps.Equal(other.sizes, r.sizes) {
			s.others = append(slices.Delete(s.others, i, i+1), other)
			return other, nil
		}
	}
	other, err := s.model.session.compile(s.model, r)
	if err != nil {
		return nil, fmt.Errorf("for %s: %w", r.sizes, err)
	}
	other.of = s
	s.others = append(s.others, other)
	if len(s.others) > cmp.Or(s.keep, keptSizes) {
		return other, s.others[0].close()
	}
	return other, nil
}

// String lists the sizes in order of name: "N=3 T=128".
func (z Sizes) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(z)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, z[name]))
	}
	return strings.Join(parts, " ")
}

// closeSizes closes the sizes that For compiled.
func (s *Step) closeSizes() error {
	var err error
	for len(s.others) > 0 {
		err = errors.Join(err, s.others[0].close())
	}
	return err
}

// forget takes a closed step out of the session, and with it the accumulators
// that no other step has: they depend on sizes and hold nothing between steps.
func (s *session) forget(step *Step) error {
	if of := step.of; of != nil {
		of.others = slices.DeleteFunc(of.others, func(x *Step) bool { return x == step })
	}
	s.steps = slices.DeleteFunc(s.steps, func(x *Step) bool { return x == step })
	for scaler, shared := range s.scales {
		if shared.last == step {
			shared.last = nil
			s.scales[scaler] = shared
		}
	}
	used := map[string]bool{}
	for _, other := range s.steps {
		for _, x := range append(slices.Clone(other.others), other) {
			for _, v := range x.program.Vars {
				used[v.Name] = true
			}
		}
	}
	gone := map[string]bool{}
	var names []string
	for _, v := range step.program.Vars {
		if v.Role() == "acc" && !used[v.Name] && !gone[v.Name] {
			gone[v.Name], names = true, append(names, v.Name)
			delete(s.types, v.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	s.vars = slices.DeleteFunc(s.vars, func(v lower.Var) bool { return gone[v.Name] })
	return s.store.Drop(names...)
}

// otherSize names For where what was fed for an input would fit another size of
// the model's named dimensions; "" elsewhere. n is the number of elements.
func (s *Step) otherSize(input string, n int64) string {
	v := s.model.Graph().Var(input)
	if v == nil || n <= 0 {
		return ""
	}
	name, rest := "", int64(1)
	for _, d := range v.Type.Shape.Dims() {
		switch {
		case d >= 0:
			rest *= int64(d)
		case name != "":
			return "; for other sizes of the named dimensions take the step that Step.For returns"
		default:
			name = s.model.Graph().Syms[-d-1].Name
		}
	}
	if name == "" || rest == 0 || n%rest != 0 {
		return ""
	}
	return fmt.Sprintf("; for %s=%d take step.For(ampc.Sizes{%q: %d}), with all micro-batches of that size", name, n/rest, name, n/rest)
}
