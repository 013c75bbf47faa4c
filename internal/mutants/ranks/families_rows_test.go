package ranks

import (
	"ampc/ir"
)

// accumPassed sends or reads what the last micro-batch alone has, or a lower level.
func accumPassed(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, a := range of(g, ir.OpAccum, ir.OpAccumTree) {
		acc := a.Out[0].Next
		for _, n := range g.Body[ir.Update] {
			for i, v := range n.In {
				if v == nil || v != acc && v != a.Out[0] {
					continue
				}
				for x := a; x != nil; x = x.In[1].Def {
					if x.Op != ir.OpAccum && x.Op != ir.OpAccumTree {
						break
					}
					all = append(all, rewired(n.Name(), i, x.In[1].String()))
					if x.In[0] != v {
						all = append(all, rewired(n.Name(), i, x.In[0].String()))
					}
				}
			}
		}
	}
	return all
}

// accumFlags starts accumulators early, late or never, and takes what is dropped.
func accumFlags(s *subject, g *ir.Graph) []mutation {
	flags := []string{"%micro.first", "%micro.none", "%micro.bad", "%micro.ok", "%micro.fwd", "%micro.fwd_ok", "%micro.found_inf", "%micro.over"}
	var all []mutation
	for _, n := range of(g, ir.OpAccum, ir.OpCount, ir.OpWhere, ir.OpAnd, ir.OpOr) {
		if n.Name() == "" {
			continue
		}
		for i, v := range n.In {
			if v == nil || v.Type != ir.T(ir.Bool) || !perMicro(g, n) {
				continue
			}
			for _, f := range flags {
				if value(g, f) != nil {
					all = append(all, rewired(n.Name(), i, f))
				}
			}
			name := n.Name()
			all = append(all, fault("not "+v.String()+" in "+name, func(g *ir.Graph) bool {
				_, n := at(g, name)
				n.In[i] = put(g, n, ir.OpNot, nil, n.In[i])
				return n.In[i] != nil
			}))
		}
		for _, o := range []string{"ok", "skip"} {
			if i := arg(n, o); i >= 0 && n.In[i] != nil && perMicro(g, n) {
				all = append(all, absent(n.Name(), o))
			}
		}
	}
	return all
}

// perMicro reports whether n runs once per micro-batch.
func perMicro(g *ir.Graph, n *ir.Node) bool {
	s, _ := at(g, n.Name())
	return s == ir.Forward || s == ir.Backward
}

// accumLevel takes another level or another count of micro-batches.
func accumLevel(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range of(g, ir.OpAccumTree) {
		for level := range 3 {
			all = append(all, retyped(n.Name(), "level", level))
		}
		for _, v := range []string{"%amp.slice", "%amp.zero", "%amp.one"} {
			all = append(all, rewired(n.Name(), arg(n, "micro"), v))
		}
	}
	return all
}

// accumAdds adds something else than the micro-batch has: twice, the sum itself, the value of
// another accumulator, nothing.
func accumAdds(s *subject, g *ir.Graph) []mutation {
	all := eachOf(g, "twice", func(g *ir.Graph, n *ir.Node) bool {
		n.In[1] = put(g, n, ir.OpAdd, nil, n.In[1], n.In[1])
		return n.In[1] != nil
	}, ir.OpAccum, ir.OpAccumTree)
	for _, n := range of(g, ir.OpAccum, ir.OpAccumTree) {
		all = append(all, rewired(n.Name(), 1, n.In[0].String()))
		if low := n.In[1].Def; low != nil && low.Op == ir.OpAccumTree {
			all = append(all, rewired(n.Name(), 1, low.In[0].String()), rewired(n.Name(), 1, low.In[1].String()))
		}
		for _, x := range of(g, ir.OpAccum, ir.OpAccumTree) {
			if x != n && x.In[1].Type == n.In[1].Type {
				all = append(all, rewired(n.Name(), 1, x.In[1].String()))
			}
			if x != n && x.In[0].Type == n.In[0].Type {
				all = append(all, rewired(n.Name(), 0, x.In[0].String()))
			}
		}
	}
	return all
}

// draws are the nodes that draw masks.
func draws(g *ir.Graph) []*ir.Node { return of(g, ir.OpDropout, ir.OpDropoutGrad) }

// drawn lists an edit of all nodes that draw, and of each alone.
func drawn(g *ir.Graph, what string, edit func(g *ir.Graph, n *ir.Node) bool) []mutation {
	if len(draws(g)) == 0 {
		return nil
	}
	return append(eachOf(g, what, edit, ir.OpDropout, ir.OpDropoutGrad), fault("all: "+what, func(g *ir.Graph) bool {
		done := false
		for _, n := range draws(g) {
			if !edit(g, n) {
				return false
			}
			done = true
		}
		return done
	}))
}

// dropoutPlace draws by another place than that of the rows in the batch of all ranks.
func dropoutPlace(s *subject, g *ir.Graph) []mutation {
	all := drawn(g, "as rank 0 and its first rows", func(_ *ir.Graph, n *ir.Node) bool {
		n.In[arg(n, "micro")] = nil
		return true
	})
	for _, v := range []string{"%amp.zero", "%amp.one", "%amp.micro", "%amp.rank", "%cast", "%cast_2", "%mul", "%amp.counters.16", "%attempt", "%seed"} {
		all = append(all, drawn(g, "micro="+v, func(g *ir.Graph, n *ir.Node) bool {
			i, x := arg(n, "micro"), value(g, v)
			if x == nil || n.In[i] == x {
				return false
			}
			n.In[i] = x
			return true
		})...)
	}
	for _, op := range []ir.Op{ir.OpAdd, ir.OpMul} {
		all = append(all, drawn(g, "the place by the rank again", func(g *ir.Graph, n *ir.Node) bool {
			i := arg(n, "micro")
			r := rankOf(g, n, n.In[i].Type.DType)
			if r == nil {
				return false
			}
			n.In[i] = put(g, n, op, nil, n.In[i], r)
			return n.In[i] != nil
		})...)
	}
	return all
}

// dropoutSeed draws by a seed or an attempt that depends on the rank, or at another site.
func dropoutSeed(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, o := range []string{"seed", "attempt"} {
		all = append(all, drawn(g, o+" by rank", func(g *ir.Graph, n *ir.Node) bool {
			i := arg(n, o)
			r := rankOf(g, n, n.In[i].Type.DType)
			if r == nil {
				return false
			}
			n.In[i] = put(g, n, ir.OpAdd, nil, n.In[i], r)
			return n.In[i] != nil
		})...)
	}
	for _, n := range draws(g) {
		all = append(all, retyped(n.Name(), "rng", 9), retyped(n.Name(), "p", 0.5))
	}
	return all
}
