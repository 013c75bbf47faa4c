package ranks

import (
	"fmt"

	"ampc/ir"
)

// averageOfOneRank averages weights as the rank's own gradients would have made them.
func averageOfOneRank(s *subject, g *ir.Graph) []mutation {
	all := eachOf(g, "a weight by own gradients", func(g *ir.Graph, n *ir.Node) bool {
		w := n.In[1].Def
		if w == nil || w.Op != ir.OpAdamW || before(w.In[1]) == nil {
			return false
		}
		in := append([]*ir.Value(nil), w.In...)
		in[1] = before(w.In[1])
		n.In[1] = put(g, n, ir.OpAdamW, w.Attrs, in...)
		return n.In[1] != nil
	}, ir.OpEMA)
	all = append(all, eachOf(g, "the weight before the step", func(_ *ir.Graph, n *ir.Node) bool {
		n.In[1] = n.In[1].Next
		return n.In[1] != nil
	}, ir.OpEMA)...)
	return append(all, eachOf(g, "a weight that depends on the rank", func(g *ir.Graph, n *ir.Node) bool {
		x := rankTimes(g, n, n.In[1])
		if x == nil {
			return false
		}
		n.In[1] = put(g, n, ir.OpAdd, nil, n.In[1], x)
		return n.In[1] != nil
	}, ir.OpEMA)...)
}

// scaleOfOneRank advances the loss scale by what one rank finds, or by a part of it.
func scaleOfOneRank(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range of(g, ir.OpUpdateScale) {
		for _, operand := range []string{"found_inf", "fwd"} {
			for _, v := range []string{"%found_inf", "%fwd", "%any.found_inf", "%any.fwd", "%skip", "%amp.acc.lost", "%sum.amp.acc.lost", "%micro.over", "%none_kept"} {
				if value(g, v) != nil {
					all = append(all, rewired(n.Name(), arg(n, operand), v))
				}
			}
		}
		all = append(all, absent(n.Name(), "fwd"))
	}
	for _, n := range g.Nodes {
		for i, v := range n.In {
			if v == nil || v.String() != "%amp.scale" || n.Op == ir.OpUpdateScale {
				continue
			}
			name := n.Name()
			all = append(all, fault("a scale by rank in "+name, func(g *ir.Graph) bool {
				_, n := at(g, name)
				x := rankTimes(g, n, n.In[i])
				if x == nil {
					return false
				}
				n.In[i] = put(g, n, ir.OpAdd, nil, n.In[i], x)
				return n.In[i] != nil
			}))
		}
	}
	return all
}

// stateByRank adds the number of the rank to numbers that enter the next values.
func stateByRank(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range g.Nodes {
		if n.Out[0].Next == nil {
			continue
		}
		name := n.Name()
		for i, v := range n.In {
			if v == nil || v.Type.DType == ir.Bool {
				continue
			}
			all = append(all, fault(fmt.Sprintf("%s in %s", v, name), func(g *ir.Graph) bool {
				_, n := at(g, name)
				r := rankOf(g, n, n.In[i].Type.DType)
				if r == nil {
					return false
				}
				n.In[i] = put(g, n, ir.OpAdd, nil, n.In[i], r)
				return n.In[i] != nil
			}))
		}
	}
	return all
}

// gathered lets lookups add the rows of one rank, rows with ids of others, or rows twice.
func gathered(s *subject, g *ir.Graph) []mutation {
	own := eachOf(g, "own rows and ids", func(g *ir.Graph, n *ir.Node) bool {
		for i, v := range n.In {
			if v.Def == nil || v.Def.Op != ir.OpAllGather {
				return false
			}
			n.In[i] = v.Def.In[0]
		}
		return n.Retype() == nil
	}, ir.OpEmbeddingGrad)
	all := append(own, eachOf(g, "summed once more", func(g *ir.Graph, n *ir.Node) bool {
		return behind(g, n.Out[0], ir.OpAllReduce, ir.A("ranks", s.ranks, "seq", 90), n.Out[0])
	}, ir.OpEmbeddingGrad)...)
	for i := range 2 {
		all = append(all, eachOf(g, fmt.Sprintf("operand %d of this rank for all", i), func(g *ir.Graph, n *ir.Node) bool {
			return repeated(g, s.ranks, n.In[i])
		}, ir.OpEmbeddingGrad)...)
		all = append(all, eachOf(g, fmt.Sprintf("operand %d of rank 0 for all", i), func(g *ir.Graph, n *ir.Node) bool {
			return firstPart(g, s.ranks, n, i)
		}, ir.OpEmbeddingGrad)...)
		all = append(all, eachOf(g, fmt.Sprintf("operand %d gathered in axis 1", i), func(g *ir.Graph, n *ir.Node) bool {
			return otherAxis(g, n, i)
		}, ir.OpEmbeddingGrad)...)
	}
	return all
}

// repeated puts a rank's rows in the place of the rows that it gathers.
func repeated(g *ir.Graph, ranks int, v *ir.Value) bool {
	if v.Def == nil || v.Def.Op != ir.OpAllGather {
		return false
	}
	parts := make([]*ir.Value, ranks)
	for r := range parts {
		parts[r] = v.Def.In[0]
	}
	same := put(g, v.Def, ir.OpConcat, ir.A("axis", 0), parts...)
	if same == nil {
		return false
	}
	g.Replace(map[*ir.Value]*ir.Value{v: same})
	return true
}

// firstPart puts the gathered rows of rank 0 in the place of all.
func firstPart(g *ir.Graph, ranks int, n *ir.Node, i int) bool {
	v := n.In[i]
	if v.Def == nil || v.Def.Op != ir.OpAllGather {
		return false
	}
	part := rows(g, n, v, int64(v.Type.Shape.Dim(0))/int64(ranks))
	if part == nil {
		return false
	}
	parts := make([]*ir.Value, ranks)
	for r := range parts {
		parts[r] = part
	}
	n.In[i] = put(g, n, ir.OpConcat, ir.A("axis", 0), parts...)
	return n.In[i] != nil
}

// rows are the first rows of v.
func rows(g *ir.Graph, n *ir.Node, v *ir.Value, count int64) *ir.Value {
	return put(g, n, ir.OpSlice, ir.A("axes", []int64{0}, "starts", []int64{0}, "ends", []int64{count}), v)
}

// otherAxis joins rows along axis 1, and lays them out as if it were axis 0.
func otherAxis(g *ir.Graph, n *ir.Node, i int) bool {
	v := n.In[i]
	if v.Def == nil || v.Def.Op != ir.OpAllGather {
		return false
	}
	var shape []int64
	for _, d := range v.Type.Shape.Dims() {
		shape = append(shape, int64(d))
	}
	v.Def.Attrs = v.Def.Attrs.With("axis", 1)
	if v.Def.Retype() != nil {
		return false
	}
	n.In[i] = put(g, n, ir.OpReshape, ir.A("shape", shape), v)
	return n.In[i] != nil
}

// settingAlone gives one rank another number in an update, or another seed's place.
func settingAlone(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, x := range []struct {
		op   ir.Op
		attr string
		v    any
	}{
		{ir.OpAdamW, "decay", 0.5}, {ir.OpAdamW, "beta1", 0.5}, {ir.OpAdamW, "eps", 0.01}, {ir.OpEMA, "decay", 0.5}, {ir.OpBiasCorrection, "beta", 0.5},
		{ir.OpUpdateScale, "backoff", 0.25}, {ir.OpUpdateScale, "cap", 1024.0}, {ir.OpMultiplier, "shift", 5}, {ir.OpMultiplier, "max", 0.01},
		{ir.OpDropout, "p", 0.6}, {ir.OpDropoutGrad, "p", 0.6}, {ir.OpDropout, "rng", 7}, {ir.OpCrossEntropy, "ignore", 2},
	} {
		for i, n := range of(g, x.op) {
			m := retyped(n.Name(), x.attr, x.v)
			m.rank = i % s.ranks
			all = append(all, m)
		}
	}
	return all
}
