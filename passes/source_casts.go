package passes

import (
	"slices"

	"ampc/ir"
)

// sourceCasts finds, by value ID, the casts of the source because of which a value has 16 bits
// before the policy chooses dtypes: the cast itself, those of the operands, and for a gradient
// those of the value that it is the gradient of. It is nil if the source has no such cast.
func sourceCasts(g *ir.Graph) [][]ir.SourceCast {
	var casts [][]ir.SourceCast
	of := func(v *ir.Value) []ir.SourceCast {
		if casts == nil || v == nil {
			return nil
		}
		return casts[v.ID]
	}
	low := func(v *ir.Value) bool { return v.Type.DType.Low() && v.Next == nil }
	for s, n := range g.Select(func(_ ir.Section, n *ir.Node) bool { return slices.ContainsFunc(n.Out, low) }).Nodes {
		for _, v := range n.Out {
			if !low(v) {
				continue
			}
			var why ir.Reason
			switch {
			case n.Op == ir.OpCast && n.Why.Casts != nil:
				why.Casts = n.Why.Casts
			case n.Op == ir.OpCast && v.GradOf != nil:
				why.Casts = of(v.GradOf)
			case n.Op == ir.OpCast && s == ir.Backward && n.Of != nil && n.Of.Op == ir.OpCast:
				why.Casts = of(n.Of.In[0])
			case n.Op == ir.OpCast:
				why.Casts = []ir.SourceCast{{Name: v.Name, Pos: n.Pos}}
			default:
				why = inherited(n, v.Type.DType, of)
			}
			if why.Casts != nil {
				if casts == nil {
					values, _ := g.Number()
					casts = make([][]ir.SourceCast, values)
				}
				casts[v.ID] = why.Casts
			}
		}
	}
	return casts
}

// inherited lists the casts because of which the operands of n have the dtype of its result.
func inherited(n *ir.Node, d ir.DType, of func(v *ir.Value) []ir.SourceCast) (why ir.Reason) {
	for _, v := range n.In {
		if v != nil && v.Type.DType == d {
			why.AddCasts(of(v))
		}
	}
	return why
}

// noteSourceCasts marks all casts to 16 bits of the source, before any is dropped or merged.
func noteSourceCasts(g *ir.Graph) {
	casts := sourceCasts(g)
	if casts == nil {
		return
	}
	for _, n := range g.Nodes {
		if n.Op == ir.OpCast && len(n.Out) == 1 {
			n.Why.AddCasts(casts[n.Out[0].ID])
		}
	}
}

// noteSourceDTypes records the casts of the source on all nodes that have 16 bits because of them
// before the policy chooses dtypes.
func noteSourceDTypes(g *ir.Graph) {
	casts := sourceCasts(g)
	if casts == nil {
		return
	}
	for _, n := range g.Nodes {
		if len(n.Out) > 0 {
			n.Why.AddCasts(casts[n.Out[0].ID])
		}
	}
}

// addCasts records casts of the source on the node that stores v: the node of the viewed tensor if
// v is a view.
func addCasts(v *ir.Value, casts []ir.SourceCast) {
	for len(casts) > 0 && v.Def != nil {
		v.Def.Why.AddCasts(casts)
		if !shares(v.Def) {
			return
		}
		v = v.Def.In[0]
	}
}
