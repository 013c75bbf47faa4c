package passes

import "ampc/ir"

// Assignment is how a compiled step stores each value of its forward section. A step that is
// compiled with it (Config.Inherit) gives values of the same names the same dtypes and clusters, so
// the loss of an evaluation has the same bits as that of the training step.
type Assignment struct {
	stored  map[string]ir.DType // by the value's name
	cluster map[string]int32    // by the name of a node's first result
}

// dtype is the stored dtype of v, Invalid if it is unknown.
func (a *Assignment) dtype(v *ir.Value) ir.DType { return a.stored[v.Name] }

// record stores the choices of amp in to.
func (a *assigner) record(to *Assignment) {
	to.stored, to.cluster = map[string]ir.DType{}, map[string]int32{}
	for _, n := range a.g.Body[ir.Forward] {
		for i, v := range n.Out {
			if v.Next != nil {
				continue
			}
			if a.assignable(v) {
				to.stored[v.Name] = a.want[v.ID]
			}
			if i == 0 {
				to.cluster[v.Name] = n.Why.Cluster
			}
		}
	}
}

// inherit sets the dtypes of the values that are in from.
func (a *assigner) inherit(from *Assignment) {
	for _, n := range a.g.Body[ir.Forward] {
		for _, v := range n.Out {
			if d, ok := from.stored[v.Name]; ok && v.Next == nil && a.assignable(v) {
				a.want[v.ID] = d
				a.c.Count("inherited", 1)
			}
		}
	}
}

// inheritClusters puts the nodes that are in from into their clusters. All others are in none. A
// norm or product leaves its cluster if its epilogue is not possible here, because the graph
// returns a value inside it.
func inheritClusters(g *ir.Graph, from *Assignment, caps ir.Caps) {
	size := map[int32]int{}
	for _, n := range g.Nodes {
		n.Why.Cluster = 0
		if len(n.Out) > 0 && n.Out[0].Next == nil {
			n.Why.Cluster = from.cluster[n.Out[0].Name]
			size[n.Why.Cluster]++
		}
	}
	uses, returned := g.Uses(), map[*ir.Value]bool{}
	for _, v := range g.Return {
		returned[v] = true
	}
	for _, n := range g.Nodes {
		k, stage := n.Why.Cluster, caps.EpilogueOf(n)
		if k == 0 || stage == ir.NoEpilogue || caps.FusesCluster(n) {
			continue
		}
		done := 1
		for y := n.Out[0]; done < size[k] && len(uses.Of(y)) == 1 && !returned[y]; done++ {
			m := uses.Of(y)[0].Node
			if stage = caps.Extends(stage, m, y); stage == ir.NoEpilogue || m.Why.Cluster != k {
				break
			}
			y = m.Out[0]
		}
		if done < size[k] {
			n.Why.Cluster = 0
		}
	}
}
