package passes

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
)

// tape accumulates gradients while it visits nodes from the last to the first. Its slices are
// indexed by Value.ID; values of expansions get numbers when they are created.
type tape struct {
	b       *ir.Builder
	section ir.Section // section of backward nodes
	prefix  string     // of the names of gradients
	loss    string     // name of the sweep, "" if there is only one
	known   int32      // values with a smaller ID existed before
	need    []bool     // the value depends on a wanted value
	parts   [][]*ir.Value
	origin  *ir.Node   // the node whose expansion is being differentiated; nil: none
	stopped []*ir.Node // nodes without a gradient, at which a gradient arrived
	sums    int
}

// newTape marks the values that depend on wanted.
func newTape(b *ir.Builder, section ir.Section, wanted []*ir.Value, prefix, loss string) *tape {
	g := b.Graph()
	n, _ := g.Number()
	t := &tape{b: b.In(section), section: section, prefix: prefix, loss: loss, known: int32(n), need: make([]bool, n), parts: make([][]*ir.Value, n)}
	for _, v := range wanted {
		t.need[v.ID] = true
	}
	for _, n := range g.Body[ir.Forward] {
		t.mark(n)
	}
	return t
}

// mark propagates need through one node.
func (t *tape) mark(n *ir.Node) {
	for _, vs := range [2][]*ir.Value{n.In, n.Captured} {
		for _, v := range vs {
			if v != nil && t.need[v.ID] {
				for _, o := range n.Out {
					t.need[o.ID] = t.need[o.ID] || o.Type.DType.Float()
				}
				return
			}
		}
	}
}

// add contributes d to the gradient of v, if that is needed.
func (t *tape) add(v, d *ir.Value) {
	if v != nil && d != nil && t.need[v.ID] {
		t.parts[v.ID] = append(t.parts[v.ID], d)
	}
}

// flow visits nodes from the last to the first.
func (t *tape) flow(nodes []*ir.Node) error {
	for i := len(nodes) - 1; i >= 0; i-- {
		if err := t.visit(nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *tape) visit(n *ir.Node) error {
	arrived := false
	for _, o := range n.Out {
		arrived = arrived || len(t.parts[o.ID]) > 0
	}
	if !arrived {
		return nil
	}
	if err := t.closed(n); err != nil {
		return err
	}
	d := make([]*ir.Value, len(n.Out))
	for i, o := range n.Out {
		d[i] = t.total(o)
	}
	b := t.deriving(n).Scope(t.prefix + "." + n.Out[0].Name)
	switch def := n.Def(); {
	case (def.Grad != nil || def.Expand != nil) && unranked(n) != nil:
		return &ir.Error{Pos: n.Pos, Msg: fmt.Sprintf("%s: the gradient of %s needs the rank of %s", def.Name, n.Name(), unranked(n))}
	case def.Grad != nil:
		for i, x := range def.Grad(b, n, d) {
			if i < len(n.In) {
				t.add(n.In[i], x)
			}
		}
		return b.Err()
	case def.Expand != nil:
		return t.expanded(b, n, d)
	case def.Is(ir.External):
		return &ir.Error{Pos: n.Pos, Msg: fmt.Sprintf("%s: a loss depends on parameters through %s, which has no gradient: %s", def.Name, n.Name(), def.NoGrad)}
	}
	t.stopped = append(t.stopped, n)
	return nil
}

// closed is the error for an operand without a gradient that depends on a wanted value.
func (t *tape) closed(n *ir.Node) error {
	for i, v := range n.In {
		if o := n.OperandDef(i); v != nil && o.NoGrad != "" && t.need[v.ID] {
			return &ir.Error{Pos: n.Pos, Msg: fmt.Sprintf("%s: %s needs a gradient, and none flows into %s: %s; make it an input or a constant, or freeze its parameters", n.Def().Name, v, o.Name, o.NoGrad)}
		}
	}
	return nil
}

// unranked is an operand of unknown rank, or nil. Gradients are built from shapes.
func unranked(n *ir.Node) *ir.Value {
	for _, v := range n.In {
		if v != nil && !v.Type.Shape.Known() {
			return v
		}
	}
	return nil
}

// deriving is the builder for the gradient of n. Nodes of an expansion belong to the node that was
// expanded.
func (t *tape) deriving(n *ir.Node) *ir.Builder {
	if t.origin != nil {
		n = t.origin
	}
	return t.b.Deriving(n, t.loss)
}

// namedID is the Value.ID of gradients with their final name. New ones have 0.
const namedID = -1

// total is the gradient of v: its only contribution, or the sum of all.
func (t *tape) total(v *ir.Value) *ir.Value {
	parts := t.parts[v.ID]
	if len(parts) == 0 {
		return nil
	}
	d := parts[0]
	name := t.prefix + "." + v.Name
	if len(parts) > 1 {
		// sorted by name, so that the sum does not depend on the order of the section
		slices.SortFunc(parts, func(x, y *ir.Value) int { return strings.Compare(x.Name, y.Name) })
		d = t.deriving(v.Def).Named(name).Emit(ir.OpAddN, parts, nil)[0]
		t.parts[v.ID] = []*ir.Value{d}
		t.sums++
	} else if d.Def != nil && d.ID == 0 {
		t.b.Rename(d, name)
	}
	if d != nil && d.ID == 0 {
		d.ID = namedID
		if t.section == ir.Backward && v.ID < t.known {
			d.GradOf = v
		}
	}
	return d
}

// expanded differentiates n through its expansion. The simpler nodes are computed again in
// backward, and gradients flow through them.
func (t *tape) expanded(b *ir.Builder, n *ir.Node, d []*ir.Value) error {
	body := &t.b.Graph().Body[t.section]
	from := len(*body)
	out := n.Def().Expand(b, n)
	if b.Err() != nil {
		return b.Err()
	}
	inner := append([]*ir.Node(nil), (*body)[from:]...)
	for _, k := range inner {
		for _, o := range k.Out {
			o.ID = int32(len(t.need))
			t.need, t.parts = append(t.need, false), append(t.parts, nil)
		}
		t.mark(k)
	}
	for i, o := range out {
		if i < len(d) && o != nil {
			t.add(o, d[i])
		}
	}
	if t.origin == nil {
		t.origin = n
		defer func() { t.origin = nil }()
	}
	return t.flow(inner)
}

// sweepDead drops the backward nodes from index from on that no kept value depends on, and returns
// them.
func sweepDead(g *ir.Graph, from int, kept []*ir.Value) (dropped []*ir.Node) {
	list := g.Body[ir.Backward]
	_, nodes := g.Number()
	live := make([]bool, nodes)
	for _, v := range kept {
		if v.Def != nil {
			live[v.Def.ID] = true
		}
	}
	for i := len(list) - 1; i >= from; i-- {
		if live[list[i].ID] {
			reach(list[i], live)
		}
	}
	out := list[:from]
	for _, n := range list[from:] {
		if live[n.ID] {
			out = append(out, n)
		} else {
			dropped = append(dropped, n)
		}
	}
	clear(list[len(out):])
	g.Body[ir.Backward] = out
	return dropped
}
