package lower

import (
	"slices"

	"ampc/ir"
)

// cutExpansions divides the expansions of nodes without a kernel, whose clusters are numbered above
// last, into as few clusters as possible: one for each kernel and each iteration space. The
// clusters are in the order in which they run.
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
			case s == ir.Prepare: // nodes of prepare run one by one
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

// kernels divides nodes into clusters. The elementwise nodes after a product become its epilogue.
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

// segment is a group of an expansion's nodes that becomes one step: elementwise nodes over one
// shape, or one node of another kind.
type segment struct {
	nodes []*ir.Node
	shape ir.Shape // elementwise segments
	elem  bool
}

// segments divides nodes such that operands come from the same or an earlier segment. An
// elementwise node joins the first segment of its shape that is not before its operands and has a
// tensor in common.
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

// merged merges adjacent segments over one shape, where the second reads a result of the first.
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
