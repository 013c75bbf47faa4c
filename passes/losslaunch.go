package passes

import (
	"cmp"
	"slices"

	"ampc/ir"
)

// countApart gives each loss that runs in one launch with its gradient (ir.Caps.JoinsLosses) a
// second node, which counts the labels. The gradient often depends on the count, so the launch
// cannot compute it. It returns the number of such nodes.
func countApart(g *ir.Graph, c *Context) (apart int, err error) {
	if !c.Caps.JoinsLosses || !slices.ContainsFunc(slices.Concat(g.Body[ir.Forward], g.Body[ir.Backward]), c.Caps.RunsLoss) {
		return 0, nil
	}
	uses := c.uses(g)
	f := &launchFinder{g: g, caps: c.Caps, uses: uses, launchRules: asStated{c.Caps}}
	f.number()
	kept := f.kept()
	read := func(v *ir.Value) bool { return len(uses.Of(v)) > 0 || kept[v] }
	instead, b := map[*ir.Value]*ir.Value{}, ir.Edit(g)
	for s := ir.Forward; s <= ir.Backward; s++ {
		nodes := g.Body[s]
		g.Body[s] = make([]*ir.Node, 0, len(nodes))
		for _, n := range nodes {
			g.Body[s] = append(g.Body[s], n)
			if f.ownGradient(n) == nil || !read(n.Out[0]) || !read(n.Out[1]) {
				continue
			}
			out := b.In(s).Deriving(n, "").Named(n.Out[0].Name+".labels").EmitNode(&ir.Node{Op: n.Op, In: n.In, Attrs: n.Attrs, Pos: n.Pos, Pin: n.Pin, Of: n.Of, Why: n.Why}, nil)
			if err := b.Err(); err != nil {
				return 0, err
			}
			instead[n.Out[1]] = out[1]
			n.Out[1].Name, out[1].Name = out[1].Name, n.Out[1].Name
		}
	}
	g.Replace(instead)
	return len(instead), nil
}

// losses lists the losses of which nothing reads the count.
func (f *launchFinder) losses() (list []*ir.Node) {
	kept := f.kept()
	for _, n := range f.g.Nodes {
		if f.caps.RunsLoss(n) && n.Def().Is(ir.CountsLabels) && len(f.uses.Of(n.Out[1])) == 0 && !kept[n.Out[1]] {
			list = append(list, n)
		}
	}
	return list
}

// withGradients joins each of losses with its gradient: one kernel reads their operands for both.
func (f *launchFinder) withGradients(losses []*ir.Node) {
	f.sort(losses)
	for _, n := range losses {
		if m := f.ownGradient(n); m != nil {
			f.beside(f.of(n), f.of(m))
		}
	}
}

// ownGradient is the first gradient of loss n for equal operands and attributes, if n can run with
// it: no path leads from the loss to the gradient, and the loss is in no message, whose order would
// change.
func (f *launchFinder) ownGradient(n *ir.Node) *ir.Node {
	if !f.caps.RunsLoss(n) || !n.Def().Is(ir.CountsLabels) || !f.alone(n) || slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return v.Next != nil }) {
		return nil
	}
	var list []*ir.Node
	for _, u := range f.uses.Of(n.In[0]) {
		if m := u.Node; u.Arg() == 0 && m.Def().GradOf == n.Op && sameLoss(n, m) && f.alone(m) && inMicro(f.at(m).section) && inMicro(f.at(n).section) {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b *ir.Node) int { return cmp.Compare(a.Out[0].Name, b.Out[0].Name) })
	for _, m := range list {
		if k := f.of(m); !f.leadsTo(n.Out[0], func(r int32) bool {
			return r == k || slices.ContainsFunc(f.steps[r].nodes, func(x *ir.Node) bool { return x.Def().Is(ir.Collective) })
		}) {
			return m
		}
	}
	return nil
}

// sameLoss reports whether m is the gradient of loss n: it reads the same logits, labels and weights,
// with the same attributes.
func sameLoss(n, m *ir.Node) bool {
	if n.In[1] != m.In[1] || n.Operand("weights") != m.Operand("weights") || m.Out[0].Next != nil {
		return false
	}
	return n.Axis() == m.Axis() && n.Int("ignore") == m.Int("ignore") && n.Float("smoothing") == m.Float("smoothing")
}

// leadsTo reports whether a path leads from v to a step of its part for which is is true.
func (f *launchFinder) leadsTo(v *ir.Value, is func(k int32) bool) bool {
	met, found := map[int32]bool{}, false
	part := f.at(v.Def).section
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		for _, u := range f.uses.Of(v) {
			k := f.of(u.Node)
			if k == elsewhere {
				for _, o := range u.Node.Out {
					walk(o)
				}
				continue
			}
			if found || met[k] || !samePart(f.steps[k].section, part) {
				continue
			}
			met[k], found = true, is(k)
			for _, n := range f.steps[k].nodes {
				for _, o := range n.Out {
					walk(o)
				}
			}
		}
	}
	walk(v)
	return found
}

// inMicro reports whether a section runs once for every micro-batch.
func inMicro(s ir.Section) bool { return s == ir.Forward || s == ir.Backward }

// samePart reports whether two sections are one part of a Program.
func samePart(a, b ir.Section) bool { return a == b || inMicro(a) && inMicro(b) }
