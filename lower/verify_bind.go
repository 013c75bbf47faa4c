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
	if err := p.verifyKept(bound); err != nil {
		return err
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
	if !p.has(id) {
		return fmt.Errorf("it has buffer %d of %d", id, len(p.Buffers))
	}
	if b := &p.Buffers[id]; b.Type != t {
		return fmt.Errorf("it is %s, its buffer %%%s is %s", t, b.Name, b.Type)
	}
	return nil
}

// kept finds what a store keeps between steps.
type kept struct {
	vars   map[string]*Var
	copies map[string][]BufferID // weight copies by the name of the variable
	steps  map[int]overlay       // of prepare
}

// verifyKept checks weight copies and derived values, and notes that their buffers are bound.
func (p *Program) verifyKept(bound []bool) error {
	if len(p.WeightCopies)+len(p.Derived) == 0 {
		return nil
	}
	k := kept{vars: make(map[string]*Var, len(p.Vars)), copies: map[string][]BufferID{}, steps: map[int]overlay{}}
	for i := range p.Vars {
		k.vars[p.Vars[i].Name] = &p.Vars[i]
	}
	for i := range p.WeightCopies {
		c := &p.WeightCopies[i]
		if err := p.verifyWeightCopy(c, &k); err != nil {
			return err
		}
		k.copies[c.Var] = append(k.copies[c.Var], c.Buffer)
		bound[c.Buffer] = true
	}
	for i := range p.Derived {
		if err := p.verifyDerived(&p.Derived[i], &k); err != nil {
			return err
		}
		bound[p.Derived[i].Buffer] = true
	}
	return nil
}

// verifyWeightCopy checks that a step of prepare makes a weight copy from its variable.
func (p *Program) verifyWeightCopy(c *WeightCopy, k *kept) error {
	v := k.vars[c.Var]
	switch {
	case v == nil:
		return fmt.Errorf("a weight copy of %%%s, which is not a variable", c.Var)
	case !p.has(c.Buffer) || c.Step < 0 || c.Step >= len(p.Parts[Prepare]):
		return fmt.Errorf("the %s copy of %%%s names buffer %d and step %d", c.DType, c.Var, c.Buffer, c.Step)
	}
	b, s := &p.Buffers[c.Buffer], &p.Parts[Prepare][c.Step]
	over, ok := k.steps[c.Step]
	if !ok {
		over = p.overlay(s)
		k.steps[c.Step] = over
	}
	switch {
	case b.Arena != StateArena || b.Type != v.Type.With(c.DType):
		return fmt.Errorf("the %s copy of %%%s is %%%s, %s in the %s arena", c.DType, c.Var, b.Name, b.Type, b.Arena)
	case !over.makes(c.Buffer, v.Buffer):
		return fmt.Errorf("prepare step %d (%s) does not make the %s copy of %%%s", c.Step, s.Node.Name, c.DType, c.Var)
	}
	return nil
}

// makes reports whether the step computes one buffer from another.
func (o *overlay) makes(out, in BufferID) bool {
	if o.s.Cluster == nil {
		return slices.Contains(o.s.Out, out) && slices.Contains(o.s.In, in)
	}
	return slices.ContainsFunc(o.touching(o.p.Buffers[out].Root), func(g *Cluster) bool {
		return g.stores(out) >= 0 && slices.ContainsFunc(g.Loads, func(a Access) bool { return a.Buffer == in })
	})
}

// verifyWritten compares Written with the variables that steps write.
func (p *Program) verifyWritten() error {
	stored := make([]bool, len(p.Buffers))
	for _, steps := range p.Parts {
		for i := range steps {
			for _, id := range steps[i].Out {
				if p.has(id) {
					stored[p.Buffers[id].Root] = true
				}
			}
		}
	}
	written, copied := membersOf(p.Written), p.copied()
	for i := range p.Vars {
		v := &p.Vars[i]
		if said := written.has(v.Name); !v.PerCall() && said != stored[v.Buffer] && !copied[v.Buffer] {
			return fmt.Errorf("variable %%%s: a step writes it: %t; it is listed as written: %t", v.Name, stored[v.Buffer], said)
		}
	}
	return nil
}

// copied are the buffers of weight copies, which prepare may write.
func (p *Program) copied() map[BufferID]bool {
	set := make(map[BufferID]bool, len(p.WeightCopies))
	for i := range p.WeightCopies {
		set[p.WeightCopies[i].Buffer] = true
	}
	return set
}
