package cpu

import (
	"fmt"
	"slices"
	"strings"

	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// derived is a value that programs compute from variables of the store alone. It is current if its
// versions are those of the variables.
type derived struct {
	names    []string
	from     []*variable
	versions []int64
	mem      []byte
	block    *kern.Block // that mem lies in
	weights  weights
}

func derivedKey(d *lower.Derived) string { return d.Key + " " + strings.Join(d.Vars, " ") }

func (d *derived) reads(name string) bool { return slices.Contains(d.names, name) }

func (d *derived) current() bool {
	for i, v := range d.from {
		if d.versions[i] != v.version {
			return false
		}
	}
	return true
}

// computed records that the value was computed from the variables as they are.
func (d *derived) computed() {
	for i, v := range d.from {
		d.versions[i] = v.version
	}
	d.weights.changed()
}

// bindDerived finds or adds the derived values of the Program in the store; a new one is stale.
func (e *exec) bindDerived(s *store) error {
	if len(e.p.Derived) == 0 {
		return nil
	}
	e.derivedSteps, e.stale = make([]bool, len(e.p.Parts[lower.Prepare])), make([]bool, len(e.p.Parts[lower.Prepare]))
	for i := range e.p.Derived {
		x := &e.p.Derived[i]
		key := derivedKey(x)
		d := s.made[key]
		if d == nil {
			d = &derived{names: x.Vars, versions: make([]int64, len(x.Vars))}
			for _, name := range x.Vars {
				v := s.vars[name]
				if v == nil {
					return fmt.Errorf("the store has no variable %q", name)
				}
				d.from = append(d.from, v)
			}
			if s.made == nil {
				s.made = map[string]*derived{}
			}
			n := e.p.Buffers[x.Buffer].Size
			d.block = s.alloc(n)
			d.mem = d.block.Bytes()[:n:n]
			s.place(s.b.m, d.block, nil)
			s.made[key] = d
		}
		e.derived = append(e.derived, d)
		e.mem[x.Buffer] = d.mem
		e.keep(d.block)
		for _, k := range x.Steps {
			e.derivedSteps[k] = true
		}
	}
	return nil
}

// prepare runs the part of that name without the steps whose derived values are current. Concurrent
// calls that compute derived values wait.
func (e *exec) prepare() error {
	if len(e.derived) == 0 {
		return e.run(lower.Prepare, 0)
	}
	s := e.of.store
	s.deriving.Lock()
	var stale []*derived
	clear(e.stale)
	for i, d := range e.derived {
		if d.current() {
			continue
		}
		stale = append(stale, d)
		for _, k := range e.p.Derived[i].Steps {
			e.stale[k] = true
		}
	}
	if len(stale) == 0 {
		s.deriving.Unlock()
		return e.run(lower.Prepare, 0)
	}
	defer s.deriving.Unlock()
	for _, d := range stale {
		for _, v := range d.from {
			if v.weights.source == nil {
				continue
			}
			end, err := v.weights.source.Use()
			if err != nil {
				panic(kern.FillError{Err: err})
			}
			defer end()
		}
	}
	if err := e.run(lower.Prepare, 0); err != nil {
		return err
	}
	for _, d := range stale {
		d.computed()
	}
	return nil
}
