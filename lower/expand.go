package lower

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// expand replaces the nodes that t has no kernel for by their expansions, and those that t runs as
// several kernels by a node for each, in a copy of g. Without such nodes it returns g.
func expand(g *ir.Graph, t Target) (*ir.Graph, error) {
	last := int32(0) // highest cluster number that the passes gave
	for depth := 0; ; depth++ {
		found := false
		for _, n := range g.Nodes {
			found = found || t.Expands(n)
		}
		if !found {
			return withKernels(g, t, depth > 0, last)
		}
		if depth == 8 {
			return nil, fmt.Errorf("@%s: an expansion contains its own op", g.Name)
		}
		if depth == 0 {
			g = g.Clone()
			last = lastCluster(g)
		}
		if err := expandOnce(g, t); err != nil {
			return nil, err
		}
	}
}

// withKernels gives every kernel of g on t a cluster of its own: those of expansions, whose clusters
// are numbered above last, and those beside a product. expanded says that g is a copy already.
func withKernels(g *ir.Graph, t Target, expanded bool, last int32) (*ir.Graph, error) {
	if expanded {
		cutExpansions(g, t, last)
	}
	if !needsKernels(t) {
		return g, nil
	}
	if !expanded {
		g = g.Clone()
	}
	return g, ownKernels(g, t)
}

func expandOnce(g *ir.Graph, t Target) error {
	b := ir.Edit(g)
	instead := map[*ir.Value]*ir.Value{}
	cluster := lastCluster(g)
	for s := range ir.NumSections {
		nodes := g.Body[s]
		g.Body[s] = nil
		for _, n := range nodes {
			if !t.Expands(n) {
				g.Body[s] = append(g.Body[s], n)
				continue
			}
			at := b.In(s).Deriving(n, "")
			from, first := n, len(g.Body[s])
			if t.Widens() {
				from = wideOperands(at, n)
			}
			for i, v := range n.Def().Expand(at, from) {
				if v == nil || i >= len(n.Out) {
					continue
				}
				if old := n.Out[i]; v.Type.DType != old.Type.DType && b.Err() == nil {
					v = at.Emit(ir.OpCast, []*ir.Value{v}, ir.A("to", old.Type.DType))[0]
				}
				instead[n.Out[i]] = v
			}
			if err := b.Err(); err != nil {
				return err
			}
			cluster++ // valid as one cluster: no path leaves the expansion of a node and returns to it (cutExpansions)
			made := g.Body[s][first:]
			for _, m := range made {
				m.Why.Cluster = cluster
			}
			for _, old := range n.Out {
				if v := instead[old]; v != nil && slices.Contains(made, v.Def) {
					v.Name, v.Next = old.Name, old.Next
				}
			}
		}
	}
	g.Replace(instead)
	return nil
}

// lastCluster is the highest number of a cluster in g.
func lastCluster(g *ir.Graph) int32 {
	last := int32(0)
	for _, n := range g.Nodes {
		last = max(last, n.Why.Cluster)
	}
	return last
}

// wideOperands is n with its low operands cast to f32. A row computes in f32 inside; its expansion
// must not round the values in between.
func wideOperands(b *ir.Builder, n *ir.Node) *ir.Node {
	wide := *n
	wide.In = slices.Clone(n.In)
	for i, v := range wide.In {
		if v != nil && v.Type.DType.Low() && !n.OperandDef(i).AsStored {
			wide.In[i] = b.Emit(ir.OpCast, []*ir.Value{v}, ir.A("to", ir.F32))[0]
		}
	}
	return &wide
}
