package lower

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// flow tracks which values memory holds while the steps run. It checks that a cluster finds the
// values that its nodes read: of a variable the value before or after its update, as the graph
// says.
type flow struct {
	p    *Program
	held []members[*ir.Value] // by root, from None on
}

// verifyFlow checks the steps of all parts in their order.
func (p *Program) verifyFlow() error {
	f := &flow{p, make([]members[*ir.Value], len(p.Buffers)+1)}
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

func (f *flow) at(root BufferID) *members[*ir.Value] { return &f.held[root+1] }

// commit is called between two parts: next values of variables that were written become their
// values.
func (f *flow) commit() {
	for root := range f.held {
		for _, v := range f.held[root].list {
			if v.Next != nil {
				f.held[root].add(v.Next)
			}
		}
	}
}

func (f *flow) step(s *Step) error {
	for _, k := range s.Runs {
		c := &f.p.Planned[k]
		nodes := membersOf(c.nodes)
		for i := range c.tensors {
			if t := &c.tensors[i]; (t.value.Def == nil || !nodes.has(t.value.Def)) && !f.holds(t.root, t.value) {
				return fmt.Errorf("reads %s from %s, which holds something else then", t.value, f.p.BufferName(t.root))
			}
		}
	}
	for _, k := range s.Runs {
		c := &f.p.Planned[k]
		if c.nodes == nil { // a copy of a next value to its variable
			if from, to := f.at(c.Ports[0].Root), f.at(c.Ports[1].Root); from.list != nil {
				*to = membersOf(slices.Clone(from.list))
			}
		}
		f.write(c)
	}
	return nil
}

func (f *flow) write(c *PlannedCluster) {
	nodes := membersOf(c.nodes)
	for i := range c.tensors {
		t := &c.tensors[i]
		v := t.value
		if v.Def == nil || !nodes.has(v.Def) {
			continue
		}
		held := f.at(t.root)
		if t.strides == nil {
			*held = members[*ir.Value]{}
		}
		held.add(v)
	}
}

// holds reports whether root holds v: v was written there, or v is a view and its operand was.
func (f *flow) holds(root BufferID, v *ir.Value) bool {
	switch held := f.at(root); {
	case held.list == nil: // a variable before its update, or a read before a write, which another check reports
		return v.Def == nil || f.shows(root, v)
	case held.has(v):
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
