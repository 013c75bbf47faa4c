package lower

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// verifyBindings checks what a runtime binds by name. Every variable has its own buffer in the
// arena of its kind. Results are bound to buffers of their type and name, weight copies and derived
// values to the steps that make them from their variables. Written lists the variables that steps
// write.
func (p *Program) verifyBindings() error {
	bound := make([]bool, len(p.Buffers)) // by root outside of the work arena: the runtime fills it
	for i := range p.Vars {
		v := &p.Vars[i]
		if err := p.holdsValue(v.Name, v.Type, v.Buffer); err != nil {
			return fmt.Errorf("variable %%%s: %w", v.Name, err)
		}
		if b := &p.Buffers[v.Buffer]; b.Root != v.Buffer || b.Arena != kindArenas[v.Kind] || b.Name != v.Name || bound[v.Buffer] {
			return fmt.Errorf("variable %%%s: %%%s in the %s arena is not its buffer", v.Name, b.Name, b.Arena)
		}
		bound[v.Buffer] = true
	}
	for i := range p.WeightCopies {
		if err := p.verifyWeightCopy(&p.WeightCopies[i]); err != nil {
			return err
		}
		bound[p.WeightCopies[i].Buffer] = true
	}
	for i := range p.Derived {
		if err := p.verifyDerived(&p.Derived[i]); err != nil {
			return err
		}
		bound[p.Derived[i].Buffer] = true
	}
	for _, l := range p.launches() {
		if len(l.Table) > 0 && len(l.Args) > 0 && l.Args[0] >= 0 && int(l.Args[0]) < len(bound) {
			bound[l.Args[0]] = true
		}
	}
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Arena != WorkArena && b.Root == BufferID(i) && !bound[i] {
			return fmt.Errorf("buffer %%%s lies in the %s arena and nothing fills it", b.Name, b.Arena)
		}
	}
	for _, o := range p.Outputs {
		if err := p.holdsValue(o.Name, o.Type, o.Buffer); err != nil {
			return fmt.Errorf("result %s: %w", o.Name, err)
		}
	}
	return nil
}

// launches lists the launches of all steps.
func (p *Program) launches() []*Launch {
	var list []*Launch
	for _, steps := range p.Parts {
		for i := range steps {
			if l := steps[i].Launch; l != nil {
				list = append(list, l)
			}
		}
	}
	return list
}

// holdsValue checks that id is a buffer for a value of type t.
func (p *Program) holdsValue(name string, t ir.Type, id BufferID) error {
	if id < 0 || int(id) >= len(p.Buffers) {
		return fmt.Errorf("it has buffer %d of %d", id, len(p.Buffers))
	}
	if b := &p.Buffers[id]; b.Type != t {
		return fmt.Errorf("it is %s, its buffer %%%s is %s", t, b.Name, b.Type)
	}
	return nil
}

// verifyWeightCopy checks that a step of prepare makes a weight copy from its variable.
func (p *Program) verifyWeightCopy(c *WeightCopy) error {
	i := slices.IndexFunc(p.Vars, func(v Var) bool { return v.Name == c.Var })
	switch {
	case i < 0:
		return fmt.Errorf("a weight copy of %%%s, which is not a variable", c.Var)
	case c.Buffer < 0 || int(c.Buffer) >= len(p.Buffers) || c.Step < 0 || c.Step >= len(p.Parts[Prepare]):
		return fmt.Errorf("the %s copy of %%%s names buffer %d and step %d", c.DType, c.Var, c.Buffer, c.Step)
	}
	b, s := &p.Buffers[c.Buffer], &p.Parts[Prepare][c.Step]
	switch {
	case b.Arena != StateArena || b.Type != p.Vars[i].Type.With(c.DType):
		return fmt.Errorf("the %s copy of %%%s is %%%s, %s in the %s arena", c.DType, c.Var, b.Name, b.Type, b.Arena)
	case !s.makes(c.Buffer, p.Vars[i].Buffer):
		return fmt.Errorf("prepare step %d (%s) does not make the %s copy of %%%s", c.Step, s.Node.Name, c.DType, c.Var)
	}
	return nil
}

// makes reports whether a step computes one buffer from another.
func (s *Step) makes(out, in BufferID) bool {
	if s.Cluster == nil {
		return slices.Contains(s.Out, out) && slices.Contains(s.In, in)
	}
	return slices.ContainsFunc(s.Clusters(), func(g *Cluster) bool {
		return g.stores(out) >= 0 && slices.ContainsFunc(g.Loads, func(a Access) bool { return a.Buffer == in })
	})
}

// verifyWritten compares Written with the variables that steps write.
func (p *Program) verifyWritten() error {
	stored := make([]bool, len(p.Buffers))
	for _, steps := range p.Parts {
		for i := range steps {
			for _, id := range steps[i].Out {
				if id >= 0 && int(id) < len(p.Buffers) {
					stored[p.Buffers[id].Root] = true
				}
			}
		}
	}
	for i := range p.Vars {
		v := &p.Vars[i]
		if said := slices.Contains(p.Written, v.Name); !v.PerCall() && said != stored[v.Buffer] && !p.copied(v.Buffer) {
			return fmt.Errorf("variable %%%s: a step writes it: %t; it is listed as written: %t", v.Name, stored[v.Buffer], said)
		}
	}
	return nil
}

// copied reports whether a buffer is a weight copy, which prepare may write.
func (p *Program) copied(id BufferID) bool {
	return slices.ContainsFunc(p.WeightCopies, func(c WeightCopy) bool { return c.Buffer == id })
}
