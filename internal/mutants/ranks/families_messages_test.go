package ranks

import (
	"fmt"

	"ampc/ir"
)

// eachSent lists mutations for every tensor of every message.
func eachSent(g *ir.Graph, list func(n *ir.Node, i int) []mutation) []mutation {
	var all []mutation
	for _, n := range messages(g) {
		for i := range n.In {
			all = append(all, list(n, i)...)
		}
	}
	return all
}

// eachReduced lists mutations of the tensors of floats that are summed.
func eachReduced(g *ir.Graph, what string, edit func(g *ir.Graph, n *ir.Node, i int) bool) []mutation {
	return eachSent(g, func(n *ir.Node, i int) []mutation {
		if n.Op != ir.OpAllReduce || !n.In[i].Type.DType.Float() {
			return nil
		}
		name := n.Name()
		return []mutation{fault(n.In[i].String()+": "+what, func(g *ir.Graph) bool {
			_, n := at(g, name)
			return edit(g, n, i)
		})}
	})
}

// bucketDropped removes whole messages.
func bucketDropped(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range messages(g) {
		name := n.Name()
		all = append(all, fault(name, func(g *ir.Graph) bool {
			_, n := at(g, name)
			m := map[*ir.Value]*ir.Value{}
			for i, v := range n.Out {
				m[v] = n.In[i]
			}
			g.Replace(m)
			g.Filter(func(_ ir.Section, x *ir.Node) bool { return x != n })
			for _, x := range g.Nodes {
				x.Retype()
			}
			return true
		}))
	}
	return all
}

// leftOut sends a bucket without one of its tensors.
func leftOut(s *subject, g *ir.Graph) []mutation {
	return eachSent(g, func(n *ir.Node, i int) []mutation {
		if len(n.In) < 2 {
			return nil
		}
		name := n.Name()
		return []mutation{fault(n.In[i].String(), func(g *ir.Graph) bool {
			_, n := at(g, name)
			g.Replace(map[*ir.Value]*ir.Value{n.Out[i]: n.In[i]})
			n.In = append(n.In[:i:i], n.In[i+1:]...)
			n.Out = append(n.Out[:i:i], n.Out[i+1:]...)
			for k, v := range n.Out {
				v.Idx = k
			}
			return true
		})}
	})
}

// oneReader lets one reader of a result read what that rank sent.
func oneReader(s *subject, g *ir.Graph) []mutation {
	return eachSent(g, func(n *ir.Node, i int) []mutation {
		var all []mutation
		for _, x := range g.Nodes {
			for k, v := range x.In {
				if v == n.Out[i] && v.Type == n.In[i].Type {
					all = append(all, rewired(x.Name(), k, n.In[i].String()))
				}
			}
		}
		return all
	})
}

// reducedTwice sums a sum over the ranks again.
func reducedTwice(s *subject, g *ir.Graph) []mutation {
	return eachReduced(g, "the sum is summed", func(g *ir.Graph, n *ir.Node, i int) bool {
		return behind(g, n.Out[i], ir.OpAllReduce, n.Attrs.With("seq", 90), n.Out[i])
	})
}

// addedOwn adds what a rank sent to the sum that it gets.
func addedOwn(s *subject, g *ir.Graph) []mutation {
	return eachReduced(g, "added to its sum", func(g *ir.Graph, n *ir.Node, i int) bool {
		return behind(g, n.Out[i], ir.OpAdd, nil, n.Out[i], n.In[i])
	})
}

// roundedBefore rounds a tensor to 16 bits on its way into a message.
func roundedBefore(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, d := range []ir.DType{ir.F16, ir.BF16} {
		all = append(all, eachReduced(g, d.String(), func(g *ir.Graph, n *ir.Node, i int) bool {
			low := put(g, n, ir.OpCast, ir.A("to", d), n.In[i])
			if low == nil {
				return false
			}
			n.In[i] = put(g, n, ir.OpCast, ir.A("to", n.In[i].Type.DType), low)
			return n.In[i] != nil
		})...)
	}
	return all
}

// otherMessage changes what a message says of itself.
func otherMessage(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range messages(g) {
		for _, x := range []struct {
			attr string
			v    any
		}{
			{"op", "mean"}, {"op", "max"}, {"op", "sum"}, {"msg", ir.BF16}, {"msg", ir.F16}, {"shift", 1}, {"shift", 20}, {"tree", true}, {"tree", false},
			{"ranks", 1}, {"ranks", s.ranks * 2}, {"ranks", s.ranks - 1},
		} {
			if n.HasAttr(x.attr) {
				all = append(all, retyped(n.Name(), x.attr, x.v))
			}
		}
	}
	return all
}

// crossed hands the results of a message to each other's readers.
func crossed(s *subject, g *ir.Graph) []mutation {
	var out []*ir.Value
	for _, n := range messages(g) {
		out = append(out, n.Out...)
	}
	var all []mutation
	for i, v := range out {
		for k, w := range out {
			if i == k || v.Type != w.Type {
				continue
			}
			from, to := v.String(), w.String()
			all = append(all, fault(fmt.Sprintf("%s for %s", to, from), func(g *ir.Graph) bool {
				g.Replace(map[*ir.Value]*ir.Value{value(g, from): value(g, to)})
				return true
			}))
		}
	}
	return all
}

// otherTensor sends other values of the same type than the step does.
func otherTensor(s *subject, g *ir.Graph) []mutation {
	return eachSent(g, func(n *ir.Node, i int) []mutation {
		var all []mutation
		for _, v := range g.Vars {
			if v != n.In[i] && v.Type == n.In[i].Type && v.Kind != ir.Const {
				all = append(all, rewired(n.Name(), i, v.String()))
			}
		}
		for _, x := range g.Nodes {
			for _, v := range x.Out {
				if x != n && v != n.In[i] && v.Type == n.In[i].Type {
					all = append(all, rewired(n.Name(), i, v.String()))
				}
			}
		}
		return thinned(all, 4)
	})
}

// thinned keeps at most n of a list, evenly.
func thinned(all []mutation, n int) []mutation {
	if len(all) <= n {
		return all
	}
	var kept []mutation
	for i := range n {
		kept = append(kept, all[i*len(all)/n])
	}
	return kept
}

// weighedByRank adds rank times the tensor to what a rank sends, or to what it gets.
func weighedByRank(s *subject, g *ir.Graph) []mutation {
	before := eachReduced(g, "sent", func(g *ir.Graph, n *ir.Node, i int) bool {
		x := rankTimes(g, n, n.In[i])
		if x == nil {
			return false
		}
		n.In[i] = put(g, n, ir.OpAdd, nil, n.In[i], x)
		return n.In[i] != nil
	})
	after := eachReduced(g, "received", func(g *ir.Graph, n *ir.Node, i int) bool {
		x := rankTimes(g, n, n.In[i])
		return x != nil && behind(g, n.Out[i], ir.OpAdd, nil, n.Out[i], x)
	})
	return append(before, after...)
}

// rankTimes is v times the number of the rank.
func rankTimes(g *ir.Graph, n *ir.Node, v *ir.Value) *ir.Value {
	r := rankOf(g, n, v.Type.DType)
	if r == nil {
		return nil
	}
	return put(g, n, ir.OpMul, nil, v, r)
}

// ownPart scatters a sum, and puts the part that a rank gets in place of the others' too.
func ownPart(s *subject, g *ir.Graph) []mutation {
	return eachReduced(g, "one part for all", func(g *ir.Graph, n *ir.Node, i int) bool {
		part := put(g, n, ir.OpReduceScatter, ir.A("ranks", s.ranks, "axis", 0, "seq", 90), n.In[i])
		if part == nil {
			return false
		}
		parts := make([]*ir.Value, s.ranks)
		for r := range parts {
			parts[r] = part
		}
		whole := put(g, n, ir.OpConcat, ir.A("axis", 0), parts...)
		if whole == nil {
			return false
		}
		g.Replace(map[*ir.Value]*ir.Value{n.Out[i]: whole})
		return true
	})
}

// otherSection moves a message.
func otherSection(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range messages(g) {
		name := n.Name()
		for _, to := range []ir.Section{ir.Prepare, ir.Forward, ir.Backward, ir.Update} {
			all = append(all, fault(fmt.Sprintf("%s in %s", name, to), func(g *ir.Graph) bool {
				from, n := at(g, name)
				if from == to {
					return false
				}
				g.Filter(func(_ ir.Section, x *ir.Node) bool { return x != n })
				g.Body[to] = append(g.Body[to], n)
				return true
			}))
		}
	}
	return all
}

// weightsAveraged updates by the gradients of the rank alone, and then joins the weights.
func weightsAveraged(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, op := range []string{"mean", "max"} {
		for _, n := range of(g, ir.OpAdamW) {
			name := n.Name()
			all = append(all, fault(name+" by "+op, func(g *ir.Graph) bool {
				_, n := at(g, name)
				sum := n.In[1].Def
				if sum == nil || sum.Op != ir.OpAllReduce {
					return false
				}
				w, own := n.Out[0].Next, sum.In[n.In[1].Idx]
				n.In[1] = own
				b := ir.Edit(g).In(ir.Update)
				b.EmitWrite(ir.OpAllReduce, []*ir.Value{n.Out[0]}, ir.A("ranks", s.ranks, "op", op, "seq", 90), w)
				return b.Err() == nil
			}))
		}
	}
	return all
}

// orderAlone lets one rank put the tensors of a bucket in another order, or its messages.
func orderAlone(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for r := range s.ranks {
		for _, n := range messages(g) {
			for i := 1; i < len(n.In); i++ {
				if n.In[i-1].Type != n.In[i].Type {
					continue // the evaluator has no result for ranks that send other sizes
				}
				name := n.Name()
				m := fault(fmt.Sprintf("%s: tensors %d and %d, rank %d", name, i-1, i, r), func(g *ir.Graph) bool {
					_, n := at(g, name)
					n.In[i-1], n.In[i] = n.In[i], n.In[i-1]
					n.Out[i-1], n.Out[i] = n.Out[i], n.Out[i-1]
					n.Out[i-1].Idx, n.Out[i].Idx = i-1, i
					return true
				})
				m.rank = r
				all = append(all, m)
			}
		}
		all = append(all, messagesSwapped(g, r)...)
	}
	return all
}

// messagesSwapped sends a message of rank r after the one that follows it in its section.
func messagesSwapped(g *ir.Graph, r int) []mutation {
	var all []mutation
	for k := 1; k < len(messages(g)); k++ {
		all = append(all, mutation{what: fmt.Sprintf("message %d after %d, rank %d", k-1, k, r), rank: r, edit: func(g *ir.Graph) bool {
			g.Number()
			first, second := messages(g)[k-1], messages(g)[k]
			x, y := first.Attrs.Get("seq"), second.Attrs.Get("seq")
			first.Attrs, second.Attrs = first.Attrs.With("seq", y), second.Attrs.With("seq", x)
			late := int64(first.ID)
			return g.Sort(func(n *ir.Node) int64 {
				if n == first {
					return int64(second.ID)
				}
				if n == second {
					return late
				}
				return int64(n.ID)
			}) == nil
		}})
	}
	return all
}

// namedAlone lets one rank call a message by another name.
func namedAlone(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for i, n := range messages(g) {
		name := n.Name()
		m := fault(name, func(g *ir.Graph) bool {
			_, n := at(g, name)
			if n.Out[0].Next != nil {
				return false
			}
			n.Out[0].Name += ".other"
			return true
		})
		m.rank = i % s.ranks
		all = append(all, m)
	}
	return all
}
