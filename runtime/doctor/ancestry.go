package doctor

import (
	"slices"

	"ampc/ir"
)

// ancestry removes the nodes of g that results are not computed from within one step. A value that
// one micro-batch passes to the next counts; what an update writes for the next step does not.
// Results that are no next values are returned.
func ancestry(g *ir.Graph, results ...*ir.Value) {
	writer := map[*ir.Value]*ir.Node{}
	for s, n := range g.Nodes {
		for _, o := range n.Out {
			if o.Next != nil && s != ir.Update {
				writer[o.Next] = n
			}
		}
	}
	kept := map[*ir.Node]bool{}
	queue := slices.Clone(results)
	for len(queue) > 0 {
		last := len(queue) - 1
		v := queue[last]
		queue = queue[:last]
		n := v.Def
		if n == nil {
			n = writer[v]
		}
		if n == nil || kept[n] {
			continue
		}
		kept[n] = true
		for _, vs := range [2][]*ir.Value{n.In, n.Captured} {
			for _, op := range vs {
				if op != nil {
					queue = append(queue, op)
				}
			}
		}
	}
	read := map[*ir.Value]bool{}
	for n := range kept {
		for _, op := range n.In {
			read[op] = true
		}
	}
	g.Vars = slices.DeleteFunc(g.Vars, func(x *ir.Value) bool { return x.Kind == ir.State && !read[x] && writer[x] == nil })
	for s := range g.Body {
		g.Body[s] = slices.DeleteFunc(g.Body[s], func(n *ir.Node) bool { return !kept[n] })
	}
	g.Return = slices.DeleteFunc(slices.Clone(results), func(v *ir.Value) bool { return v.Next != nil })
}
