package lower

import (
	"slices"

	"ampc/ir"
)

// cutExpansions makes clusters of what stands in place of the nodes that t has no
// kernel for, which is numbered above last: one for each kernel and each iteration
// space, as few as there can be. They stand in the order in which they run.
func cutExpansions(g *ir.Graph, t Target, last int32) {
	r, caps := newReaders(g), t.Caps()
	next := last
	for s := range ir.NumSections {
		for body := g.Body[s]; len(body) > 0; {
			k, n := body[0].Why.Cluster, 1
			for n < len(body) && body[n].Why.Cluster == k {
				n++
			}
			switch {
			case k <= last:
			case s == ir.Prepare: // whose nodes run one by one
				for _, m := range body[:n] {
					m.Why.Cluster = 0
				}
			default:
				var made []*ir.Node
				for _, nodes := range r.kernels(caps, body[:n]) {
					next++
					for _, m := range nodes {
						m.Why.Cluster = next
					}
					made = append(made, nodes...)
				}
				copy(body, made)
			}
			body = body[n:]
		}
	}
}

// kernels divides nodes: a product takes the elementwise nodes behind it as its epilogue.
func (r *readers) kernels(caps ir.Caps, nodes []*ir.Node) (list [][]*ir.Node) {
	if i := slices.IndexFunc(nodes, caps.FusesCluster); i >= 0 {
		if _, _, ok := r.epilogue(caps, nodes[i], others(nodes, i)); ok {
			return [][]*ir.Node{nodes}
		}
	}
	segs := segments(nodes)
	for i := 0; i < len(segs); i++ {
		all := segs[i].nodes
		if !segs[i].elem && i+1 < len(segs) && segs[i+1].elem {
			if _, _, ok := r.epilogue(caps, all[0], segs[i+1].nodes); ok {
				i++
				all = append(all, segs[i].nodes...)
			}
		}
		list = append(list, all)
	}
	return list
}

// segment is a run of an expansion's nodes that becomes one step: elementwise
// nodes over one shape, or a single node of any other kind.
type segment struct {
	nodes []*ir.Node
	shape ir.Shape // elementwise segments
	elem  bool
}

// segments distributes nodes over segments such that operands come from the
// same or an earlier one. An elementwise node joins the first segment of its
// shape that it may follow and that it shares an operand with.
func segments(nodes []*ir.Node) []segment {
	var segs []segment
	at := make(map[*ir.Node]int, len(nodes))
	reads := []map[*ir.Value]bool{} // per segment
	for _, n := range nodes {
		elem, shape := n.Def().Elem != nil, n.Out[0].Type.Shape
		first := 0
		for _, v := range n.In {
			if v == nil || v.Def == nil {
				continue
			}
			if k, ok := at[v.Def]; ok {
				if !elem || !segs[k].elem || segs[k].shape != shape {
					k++
				}
				first = max(first, k)
			}
		}
		k := len(segs)
		for i := first; elem && i < len(segs); i++ {
			if segs[i].elem && segs[i].shape == shape && touches(reads[i], n) {
				k = i
				break
			}
		}
		if k == len(segs) {
			segs = append(segs, segment{elem: elem, shape: shape})
			reads = append(reads, map[*ir.Value]bool{})
		}
		segs[k].nodes = append(segs[k].nodes, n)
		at[n] = k
		for _, v := range append(n.In[:len(n.In):len(n.In)], n.Out...) {
			if v != nil && v.Type.Shape == shape {
				reads[k][v] = true
			}
		}
	}
	return merged(segs)
}

// merged joins neighbours over one shape of which the second reads what the first computes.
func merged(segs []segment) []segment {
	out := segs[:0]
	for _, s := range segs {
		if k := len(out) - 1; k >= 0 && out[k].elem && s.elem && out[k].shape == s.shape && reads(s.nodes, out[k].nodes) {
			out[k].nodes = append(out[k].nodes, s.nodes...)
			continue
		}
		out = append(out, s)
	}
	return out
}

// reads reports whether any of nodes reads a result of one of others.
func reads(nodes, others []*ir.Node) bool {
	for _, n := range nodes {
		for _, v := range n.In {
			if v != nil && v.Def != nil && contains(others, v.Def) {
				return true
			}
		}
	}
	return false
}

func touches(known map[*ir.Value]bool, n *ir.Node) bool {
	for _, v := range n.In {
		if known[v] {
			return true
		}
	}
	return false
}
