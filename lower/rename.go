package lower

import "slices"

// WithVars returns p over other variables of the same types. names maps old names to new ones. The
// result shares everything else with p. p writes no variable.
func (p *Program) WithVars(names map[string]string) *Program {
	q := *p
	q.Vars, q.WeightCopies, q.Buffers = slices.Clone(p.Vars), slices.Clone(p.WeightCopies), slices.Clone(p.Buffers)
	for i := range q.Vars {
		v := &q.Vars[i]
		if to, ok := names[v.Name]; ok {
			v.Name, v.Init = to, nil
			q.Buffers[v.Buffer].Name = to
		}
	}
	q.Derived = slices.Clone(p.Derived)
	for i := range q.Derived {
		d := &q.Derived[i]
		d.Vars = slices.Clone(d.Vars)
		for k, name := range d.Vars {
			if to, ok := names[name]; ok {
				d.Vars[k] = to
			}
		}
	}
	for i := range q.WeightCopies {
		c := &q.WeightCopies[i]
		if to, ok := names[c.Var]; ok {
			c.Var = to
		}
	}
	return &q
}
