package lower

import (
	"fmt"

	"ampc/ir"
)

// flow tracks which values memory holds while the steps run. It checks that a cluster finds the
// values that its nodes read: of a variable the value before or after its update, as the graph
// says.
type flow struct {
	p    *Program
	held map[BufferID]map[*ir.Value]bool // by root
}

// verifyFlow checks the steps of all parts in their order.
func (p *Program) verifyFlow() error {
	f := &flow{p, map[BufferID]map[*ir.Value]bool{}}
	for part := range NumParts {
		f.commit()
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			if err := f.step(s); err != nil {
				return fmt.Errorf("%s step %d (%s %s): %w", part, i, s.Kind, s.Node.Name, err)
			}
		}
	}
	return nil
}

// commit is called between two parts: next values of variables that were written become their
// values.
func (f *flow) commit() {
	for _, held := range f.held {
		for v := range held {
			if v.Next != nil {
				held[v.Next] = true
			}
		}
	}
}

func (f *flow) step(s *Step) error {
	for _, k := range s.Runs {
		c := &f.p.Planned[k]
		for _, t := range c.tensors {
			if (t.value.Def == nil || !contains(c.nodes, t.value.Def)) && !f.holds(t.root, t.value) {
				return fmt.Errorf("reads %s from %s, which holds something else then", t.value, f.p.BufferName(t.root))
			}
		}
	}
	for _, k := range s.Runs {
		c := &f.p.Planned[k]
		if c.nodes == nil { // a copy of a next value to its variable
			if from, to := c.Ports[0].Root, c.Ports[1].Root; f.held[from] != nil {
				f.held[to] = f.held[from]
			}
		}
		f.write(c)
	}
	return nil
}

func (f *flow) write(c *PlannedCluster) {
	for _, t := range c.tensors {
		if v := t.value; v.Def != nil && contains(c.nodes, v.Def) {
			if f.held[t.root] == nil || t.strides == nil {
				f.held[t.root] = map[*ir.Value]bool{}
			}
			f.held[t.root][v] = true
		}
	}
}

// holds reports whether root holds v: v was written there, or v is a view and its operand was.
func (f *flow) holds(root BufferID, v *ir.Value) bool {
	held := f.held[root]
	switch {
	case held == nil: // a variable before its update, or a read before a write, which another check reports
		return v.Def == nil || f.shows(root, v)
	case held[v]:
		return true
	}
	return f.shows(root, v)
}

func (f *flow) shows(root BufferID, v *ir.Value) bool {
	if v.Def == nil || v.Def.Def().Elem != nil || len(v.Def.In) == 0 {
		return false
	}
	if v.Def.Def().Is(ir.View) {
		return f.holds(root, v.Def.In[0])
	}
	for _, x := range v.Def.In {
		if x == nil || !f.holds(root, x) {
			return false
		}
	}
	return true
}
