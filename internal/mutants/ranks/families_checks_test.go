package ranks

import (
	"fmt"

	"ampc/ir"
)

// localInstead lets what is done once per step read a value that differs between ranks.
func localInstead(s *subject, g *ir.Graph) []mutation {
	own := locals(g)
	var all []mutation
	for _, n := range g.Body[ir.Update] {
		if n.Def().Is(ir.Collective) {
			continue
		}
		for i, v := range n.In {
			var some []mutation
			for _, w := range own {
				if v != nil && v != w && v.Type == w.Type {
					some = append(some, rewired(n.Name(), i, w.String()))
				}
			}
			all = append(all, thinned(some, 2)...)
		}
	}
	return all
}

// checkOfOneRank joins checks by "and", which is that of no rank alone, or reads one rank's.
func checkOfOneRank(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range of(g, ir.OpAllReduce) {
		for i, v := range n.In {
			if v.Type.DType != ir.Bool {
				continue
			}
			name := n.Name()
			all = append(all, fault("every rank must find "+v.String(), func(g *ir.Graph) bool {
				_, n := at(g, name)
				not := put(g, n, ir.OpNot, nil, n.In[i])
				if not == nil {
					return false
				}
				n.In[i] = not
				return behind(g, n.Out[i], ir.OpNot, nil, n.Out[i])
			}), fault("all and own: "+v.String(), func(g *ir.Graph) bool {
				_, n := at(g, name)
				return behind(g, n.Out[i], ir.OpAnd, nil, n.Out[i], n.In[i])
			}), fault("own not: "+v.String(), func(g *ir.Graph) bool {
				_, n := at(g, name)
				not := put(g, n, ir.OpNot, nil, n.In[i])
				return not != nil && behind(g, n.Out[i], ir.OpAnd, nil, n.Out[i], not)
			}))
		}
	}
	return all
}

// checkOfPart leaves an operand out of a check, or half of its elements.
func checkOfPart(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range of(g, ir.OpAnyNonfinite) {
		name := n.Name()
		for i, v := range n.In {
			if len(n.In) > 1 {
				all = append(all, fault(fmt.Sprintf("%s without %s", name, v), func(g *ir.Graph) bool {
					_, n := at(g, name)
					n.In = append(n.In[:i:i], n.In[i+1:]...)
					return true
				}))
			}
			if v.Type.Shape.Rank() == 0 {
				continue
			}
			all = append(all, fault(fmt.Sprintf("%s of one row of %s", name, v), func(g *ir.Graph) bool {
				_, n := at(g, name)
				n.In[i] = rows(g, n, n.In[i], 1)
				return n.In[i] != nil
			}))
		}
	}
	return all
}

// before is what a rank has sent for v, nil where v is no sum.
func before(v *ir.Value) *ir.Value {
	if v == nil || v.Def == nil || !v.Def.Def().Is(ir.Collective) || v.Def.In[v.Idx].Type != v.Type {
		return nil
	}
	return v.Def.In[v.Idx]
}

// ownOperands lets all operands of n that are sums be those of the rank.
func ownOperands(n *ir.Node) bool {
	done := false
	for i, v := range n.In {
		if w := before(v); w != nil {
			n.In[i], done = w, true
		}
	}
	return done
}

// eachOf lists a mutation for each node of some ops.
func eachOf(g *ir.Graph, what string, edit func(g *ir.Graph, n *ir.Node) bool, ops ...ir.Op) []mutation {
	var all []mutation
	for _, n := range of(g, ops...) {
		name := n.Name()
		all = append(all, fault(name+": "+what, func(g *ir.Graph) bool {
			_, n := at(g, name)
			return edit(g, n)
		}))
	}
	return all
}

// checkBefore checks what ranks send, not what they get; also without joining what they find.
func checkBefore(s *subject, g *ir.Graph) []mutation {
	all := eachOf(g, "own values", func(_ *ir.Graph, n *ir.Node) bool { return ownOperands(n) }, ir.OpAnyNonfinite)
	unjoined := eachOf(g, "own values, not joined", func(g *ir.Graph, n *ir.Node) bool {
		done := ownOperands(n)
		for _, x := range messages(g) {
			for i, v := range x.In {
				if v == n.Out[0] {
					g.Replace(map[*ir.Value]*ir.Value{x.Out[i]: v})
				}
			}
		}
		return done
	}, ir.OpAnyNonfinite)
	return append(all, unjoined...)
}

// checkAfter checks weights when they are written, and so too late for them.
func checkAfter(s *subject, g *ir.Graph) []mutation {
	return eachOf(g, "check of the new weight", func(g *ir.Graph, n *ir.Node) bool {
		i := arg(n, "skip")
		skip := n.In[i]
		n.In[i] = nil
		s, _ := at(g, n.Name())
		b := ir.Edit(g).In(s)
		found := b.Emit(ir.OpAnyNonfinite, []*ir.Value{n.Out[0]}, nil)[0]
		if b.Err() != nil {
			return false
		}
		for _, x := range g.Nodes {
			for k, v := range x.In {
				if v == skip && x.Op != ir.OpAdamW && x.Op != ir.OpBiasCorrection {
					x.In[k] = found
				}
			}
		}
		return settle(g)
	}, ir.OpAdamW)
}

// skipOfOneRank gives a writer of state a skip of its own rank, a part of the skip, or none.
func skipOfOneRank(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range g.Body[ir.Update] {
		i := arg(n, "skip")
		if i < 0 || n.In[i] == nil {
			continue
		}
		name := n.Name()
		all = append(all, absent(name, "skip"))
		for _, part := range []string{"%found_inf", "%fwd", "%any.found_inf", "%any.fwd", "%sum.amp.acc.lost", "%none_kept", "%or"} {
			if value(g, part) != nil {
				all = append(all, rewired(name, i, part))
			}
		}
		all = append(all, fault(name+" skips by its own rank", func(g *ir.Graph) bool {
			_, n := at(g, name)
			n.In[i] = put(g, n, ir.OpOr, nil, value(g, "%found_inf"), value(g, "%fwd"))
			return n.In[i] != nil
		}))
	}
	for _, n := range of(g, ir.OpOr, ir.OpAnd) {
		name := n.Name()
		all = append(all, fault(name+": or is and", func(g *ir.Graph) bool {
			_, n := at(g, name)
			n.Op = ir.OpAnd + ir.OpOr - n.Op
			return true
		}))
	}
	return all
}

// lossOfOneRank divides, returns and checks losses and counts of one rank, or of all ranks
// where the other operand is one rank's.
func lossOfOneRank(s *subject, g *ir.Graph) []mutation {
	own := eachOf(g, "all operands of the rank", func(_ *ir.Graph, n *ir.Node) bool { return ownOperands(n) }, ir.OpDiv, ir.OpMultiplier)
	returned := fault("the rank's loss is returned", func(g *ir.Graph) bool {
		d := g.Return[0].Def
		num, den := before(d.In[0]), before(d.In[1])
		if num == nil || den == nil {
			return false
		}
		g.Return[0] = put(g, d, ir.OpDiv, nil, num, den)
		return g.Return[0] != nil
	})
	means := fault("the mean of the ranks' means", func(g *ir.Graph) bool {
		d := g.Return[0].Def
		num, den := before(d.In[0]), before(d.In[1])
		if num == nil || den == nil {
			return false
		}
		each := put(g, d, ir.OpDiv, nil, num, den)
		return behind(g, d.Out[0], ir.OpAllReduce, ir.A("ranks", s.ranks, "op", "mean", "seq", 90), each)
	})
	uncounted := eachOf(g, "no count", func(_ *ir.Graph, n *ir.Node) bool {
		i := arg(n, "count")
		n.In[i] = nil
		return true
	}, ir.OpMultiplier)
	return append(append(own, returned, means), uncounted...)
}

// dividedBefore divides by the rank's count, and sums after that.
func dividedBefore(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, op := range []string{"sum", "mean"} {
		all = append(all, eachReduced(g, op, func(g *ir.Graph, n *ir.Node, i int) bool {
			count := before(of(g, ir.OpMultiplier)[0].Operand("count"))
			if count == nil || n.In[i] == count {
				return false
			}
			n.In[i] = put(g, n, ir.OpDiv, nil, n.In[i], count)
			n.Attrs = n.Attrs.With("op", op).Without("tree")
			return n.In[i] != nil
		})...)
	}
	return append(all, uncountedMeans(g)...)
}

// uncountedMeans divides all gradients before the sum, and means them, without the count of
// all ranks: this is right only where all ranks count as much.
func uncountedMeans(g *ir.Graph) []mutation {
	return []mutation{fault("means of the ranks' means for all gradients", func(g *ir.Graph) bool {
		mul := of(g, ir.OpMultiplier)
		all, own := mul[0].Operand("count"), before(mul[0].Operand("count"))
		if own == nil {
			return false
		}
		for _, n := range of(g, ir.OpAllReduce) {
			if n == all.Def || !n.In[0].Type.DType.Float() {
				continue
			}
			for i := range n.In {
				if n.In[i] = put(g, n, ir.OpDiv, nil, n.In[i], own); n.In[i] == nil {
					return false
				}
			}
			n.Attrs = n.Attrs.With("op", "mean").Without("tree")
		}
		for _, n := range mul {
			n.In[arg(n, "count")] = nil
		}
		return true
	})}
}

// normOfOneRank clips by the norm of the rank's gradients, or joins the norms of the ranks.
func normOfOneRank(s *subject, g *ir.Graph) []mutation {
	all := eachOf(g, "own gradients", func(_ *ir.Graph, n *ir.Node) bool { return ownOperands(n) }, ir.OpGlobalNorm)
	for _, op := range []string{"sum", "mean", "max"} {
		all = append(all, eachOf(g, op+" of the ranks' norms", func(g *ir.Graph, n *ir.Node) bool {
			return ownOperands(n) && behind(g, n.Out[0], ir.OpAllReduce, ir.A("ranks", s.ranks, "op", op, "seq", 90), n.Out[0])
		}, ir.OpGlobalNorm)...)
	}
	for _, n := range of(g, ir.OpGlobalNorm) {
		for i := 1; i < len(n.In); i++ {
			name := n.Name()
			all = append(all, fault("a norm without "+n.In[i].String(), func(g *ir.Graph) bool {
				_, n := at(g, name)
				n.In = append(n.In[:i:i], n.In[i+1:]...)
				return len(n.In) > 1
			}))
		}
	}
	return append(all, eachOf(g, "the multiplier of the rank's count", func(g *ir.Graph, n *ir.Node) bool {
		if n.In[0] == nil { // a norm of norms
			return false
		}
		m := n.In[0].Def
		own := put(g, m, ir.OpMultiplier, m.Attrs, m.In[0], before(m.In[1]), nil)
		n.In[0] = own
		return own != nil
	}, ir.OpGlobalNorm)...)
}
