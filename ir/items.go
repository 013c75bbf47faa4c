package ir

import "slices"

// OneItem returns the graph of one item of a batch, and how many items the batch has, if item i of every result, along
// the first dimension, depends on item i of every input alone. Running it on one item after the other gives what g
// gives. It returns nil where the rows do not say so (Def.Items). g does not change.
func (g *Graph) OneItem() (one *Graph, items int64) {
	if len(g.Return) == 0 || len(g.Body[Prepare])+len(g.Body[Backward])+len(g.Body[Update]) > 0 {
		return nil, 0
	}
	items = g.Return[0].items()
	batch := map[*Value]bool{}
	for _, v := range g.Vars {
		if v.Kind == Input {
			batch[v] = true
		}
	}
	for _, n := range g.Body[Forward] {
		if !slices.ContainsFunc(n.In, func(v *Value) bool { return batch[v] }) && len(n.Captured) == 0 {
			continue
		}
		if !n.itemwise(batch) {
			return nil, 0
		}
		for _, v := range n.Out {
			batch[v] = true
		}
	}
	for v := range batch {
		if v.items() != items {
			return nil, 0
		}
	}
	if items < 2 || slices.ContainsFunc(g.Return, func(v *Value) bool { return !batch[v] }) {
		return nil, 0
	}
	one, copies := g.CloneMap()
	for v := range batch {
		w := copies[v]
		if w.Type = w.Type.oneItem(); w.Def != nil && w.Def.Attrs.Get("shape") != nil {
			w.Def.Attrs = w.Def.Attrs.With("shape", Sizes(w.Type.Shape))
		}
	}
	for _, n := range one.Body[Forward] {
		types, err := n.check()
		if err != nil || !slices.EqualFunc(types, n.Out, func(t Type, v *Value) bool { return t == v.Type }) {
			return nil, 0
		}
	}
	return one, items
}

// items is the size of v's first dimension, 0 where it has none or it is not known.
func (v *Value) items() int64 {
	if !v.Type.Shape.Static() || v.Type.Shape.Rank() == 0 {
		return 0
	}
	return int64(v.Type.Shape.Dim(0))
}

// oneItem is t with one item along the first dimension.
func (t Type) oneItem() Type {
	d := t.Shape.Dims()
	d[0] = 1
	t.Shape = MakeShape(d...)
	return t
}

// itemwise reports whether item i of n's results depends on item i of those operands alone that are in batch.
func (n *Node) itemwise(batch map[*Value]bool) bool {
	d, rank := n.Def(), n.Out[0].Type.Shape.Rank()
	others := slices.ContainsFunc(n.In[min(1, len(n.In)):], func(v *Value) bool { return batch[v] })
	switch {
	case len(n.Captured) > 0 || d.Is(Random):
		return false
	case d.Items != nil:
		return !others && d.Items(n)
	case d.Window != nil:
		return !others && d.Window.Image == In0 && d.Window.Places == Out0
	case d.Elem != nil:
		return !slices.ContainsFunc(n.In, func(v *Value) bool {
			return v != nil && v.Type.Shape.Rank() == rank && !batch[v] && v.items() != 1 || batch[v] && v.Type.Shape.Rank() != rank
		})
	case n.Joins():
		axis := n.Int("axis")
		return axis != 0 && axis != int64(-rank) && !slices.ContainsFunc(n.In, func(v *Value) bool { return !batch[v] })
	}
	return false
}

// sameItems reports whether a reshape, or a node like it, leaves the first dimension alone.
func sameItems(n *Node) bool {
	return n.like() == nil && n.In[0].items() > 0 && n.In[0].items() == n.Out[0].items()
}

// reducesItems reports whether a reduction adds up within items.
func reducesItems(n *Node) bool { return !slices.Contains(n.Axes(), 0) }

// rowsAreItems reports whether a product or norm keeps the dimensions of operand 0 but the last.
func rowsAreItems(n *Node) bool { return n.In[0].Type.Shape.Rank() > 1 }
