package passes

import "ampc/ir"

// views marks the nodes that only move elements for attention, which reads queries, keys and
// values, and writes its result and all gradients, as strided views. Attention then reads directly
// from the product that computed all three, and writes where the next product reads. Splits,
// transposes and the concatenation of the gradients copy nothing.
//
// The mark is part of the text form, because it decides which values have memory. Lowering checks
// it again: where amp inserted a cast in between, that either accesses the strided view itself, or
// makes a copy.
//
// In inference it also marks the concatenations whose operands the CPU's kernels can store in the
// result (markInPlace).
func views(g *ir.Graph, c *Context) error {
	c.keep()
	if c.Caps.RequiresDense && !c.Caps.JoinsInPlace {
		return nil
	}
	decided := *c
	decided.Policy = c.Policy.decided()
	a := newAssigner(g, &decided)
	a.planned = decided.Policy.Algorithm == "mincut"
	var err error
	var shared map[*ir.Node]bool
	g.Together(func() { err = a.judgeRules() }, func() {
		if !c.Caps.RequiresDense {
			shared = a.viewsOfAttention(g)
		}
	})
	if err != nil {
		return err
	}
	c.training.index.assigner = a
	a.markViews(g, shared)
	if c.Caps.JoinsInPlace && len(g.Body[ir.Backward])+len(g.Body[ir.Update]) == 0 {
		a.markInPlace(g)
	}
	return nil
}

// viewsOfAttention is the moves that attention makes unnecessary. It changes nothing.
func (a *assigner) viewsOfAttention(g *ir.Graph) map[*ir.Node]bool {
	return ir.FindViews(g, a.uses, ir.StridedKernels{
		Reads: func(n *ir.Node, i int, p ir.StridedView) bool {
			return i < len(n.Def().In) && n.Def().In[i].Strided && p.Rows() && !a.expands(n)
		},
		Writes: func(n *ir.Node, k int, p ir.StridedView) bool {
			return k < len(n.Def().Out) && n.Def().Out[k].Strided && p.Rows() && !a.expands(n)
		},
		Moves: func(n *ir.Node) bool {
			return a.node[n.ID].pin == ir.Unpinned && (!n.Joins() || gradientsOf(n) != nil) && n.Def().Part != nil
		},
	}).Shared
}

// markViews marks the moves that are views.
func (a *assigner) markViews(g *ir.Graph, shared map[*ir.Node]bool) {
	if len(shared) == 0 {
		return
	}
	for _, n := range g.Nodes {
		if shared[n] {
			n.Attrs = n.Attrs.With("view", true)
			a.c.Count("views", 1)
		}
	}
}

// markInPlace marks the concatenations that copy nothing: each operand is a contiguous part of the
// result, is computed by a kernel that can store it there, and is read by nothing else that needs it
// dense. An operand whose dtype turns out to be another one is cast into its part.
func (a *assigner) markInPlace(g *ir.Graph) {
	found := ir.FindViews(g, a.uses, ir.StridedKernels{
		Reads: func(n *ir.Node, i int, p ir.StridedView) bool {
			return i < len(n.Def().In) && n.Def().In[i].Strided && p.Rows() && !a.expands(n)
		},
		Writes: func(n *ir.Node, _ int, p ir.StridedView) bool {
			return p.Contiguous() && len(n.Out) == 1 && !n.Def().Is(ir.View) && !n.Def().Is(ir.Moves) && !a.formCast(n) && !a.expands(n)
		},
		Moves: func(n *ir.Node) bool { return n.Shares() || n.Joins() && a.node[n.ID].pin == ir.Unpinned },
	})
	for _, n := range g.Nodes {
		if found.Shared[n] && n.Joins() && !n.Shares() {
			n.Attrs = n.Attrs.With("inplace", true)
			a.c.Count("joins_in_place", 1)
		}
	}
}

// gradientsOf is the node whose results, after moves, are all operands of concat n. These always
// have the same dtype. It is nil if there is no such node.
func gradientsOf(n *ir.Node) *ir.Node {
	var from *ir.Node
	for _, v := range n.In {
		for v.Def != nil && (isView(v.Def) || v.Def.Reorders()) {
			v = v.Def.In[0]
		}
		if v.Def == nil || from != nil && v.Def != from {
			return nil
		}
		from = v.Def
	}
	return from
}

// shares reports whether n is a view, or is marked as one.
func shares(n *ir.Node) bool {
	return isView(n) || n.Def().Is(ir.Moves) && n.Flag("view")
}
