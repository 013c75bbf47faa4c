package ranks

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// ofBlocks are the kinds of mutations of steps whose heads run in blocks of rows.
var ofBlocks = []family{
	{"a block is left out of a sum", blockLeftOut},
	{"a block is added otherwise", blockAdded},
	{"rows or labels of another block", blockOfOther},
	{"blocks of other sizes", blockSizes},
	{"rows joined in another order", blocksJoined},
	{"a block's gradient of another loss", blockGradient},
	{"a message of some blocks", blocksSent},
	{"the count of some labels", countOfBlocks},
}

// blockSums are the additions that join blocks: of operands that a head's products and losses make.
func blockSums(g *ir.Graph) []*ir.Node {
	var all []*ir.Node
	from := map[*ir.Value]bool{} // made of a block
	for _, n := range g.Nodes {
		for _, v := range n.In {
			if n.Op == ir.OpSplit || v != nil && from[v] && !n.Def().Is(ir.Collective) {
				for _, out := range n.Out {
					from[out] = true
				}
			}
		}
		if s, _ := at(g, n.Name()); s == ir.Backward && (n.Op == ir.OpAdd || n.Op == ir.OpAddN) && from[n.In[0]] && from[n.In[1]] {
			all = append(all, n)
		}
	}
	return all
}

// eachSum lists an edit of each addition of blocks, for each operand.
func eachSum(g *ir.Graph, what string, edit func(g *ir.Graph, n *ir.Node, i int) bool) []mutation {
	var all []mutation
	for _, n := range blockSums(g) {
		name := n.Name()
		for i, v := range n.In {
			all = append(all, fault(fmt.Sprintf("%s in %s: %s", v, name, what), func(g *ir.Graph) bool {
				_, n := at(g, name)
				return edit(g, n, i)
			}))
		}
	}
	return all
}

// blockLeftOut lets readers of a sum read one operand alone.
func blockLeftOut(s *subject, g *ir.Graph) []mutation {
	return eachSum(g, "alone", func(g *ir.Graph, n *ir.Node, i int) bool {
		g.Replace(map[*ir.Value]*ir.Value{n.Out[0]: n.In[i]})
		g.Filter(func(_ ir.Section, x *ir.Node) bool { return x != n })
		return true
	})
}

// blockAdded adds a block twice, negated, halved, rounded or by rank.
func blockAdded(s *subject, g *ir.Graph) []mutation {
	all := eachSum(g, "for both", func(_ *ir.Graph, n *ir.Node, i int) bool {
		n.In[1-i] = n.In[i]
		return true
	})
	one := func(what string, op ir.Op, attrs ir.Attrs, twice bool) {
		all = append(all, eachSum(g, what, func(g *ir.Graph, n *ir.Node, i int) bool {
			in := []*ir.Value{n.In[i]}
			if twice {
				in = append(in, n.In[i])
			}
			n.In[i] = put(g, n, op, attrs, in...)
			return n.In[i] != nil
		})...)
	}
	one("twice", ir.OpAdd, nil, true)
	one("negated", ir.OpNeg, nil, false)
	one("halved", ir.OpAffine, ir.A("scale", 0.5, "shift", 0.0), false)
	for _, d := range []ir.DType{ir.F16, ir.BF16} {
		all = append(all, eachSum(g, "rounded to "+d.String(), func(g *ir.Graph, n *ir.Node, i int) bool {
			low := put(g, n, ir.OpCast, ir.A("to", d), n.In[i])
			if low == nil || n.In[i].Type.DType == d {
				return false
			}
			n.In[i] = put(g, n, ir.OpCast, ir.A("to", n.In[i].Type.DType), low)
			return n.In[i] != nil
		})...)
	}
	all = append(all, eachSum(g, "less", func(g *ir.Graph, n *ir.Node, i int) bool {
		n.Op = ir.OpSub
		return i == 0 && len(n.In) == 2
	})...)
	return append(all, eachSum(g, "by rank", func(g *ir.Graph, n *ir.Node, i int) bool {
		x := rankTimes(g, n, n.In[i])
		if x == nil {
			return false
		}
		n.In[i] = put(g, n, ir.OpAdd, nil, n.In[i], x)
		return n.In[i] != nil
	})...)
}

// blockOfOther lets a node of one block read the value of another: rows, labels, logits, gradients.
func blockOfOther(s *subject, g *ir.Graph) []mutation {
	from := map[*ir.Value]bool{}
	var own []*ir.Value
	for _, n := range g.Body[ir.Backward] {
		for _, v := range n.In {
			if n.Op == ir.OpSplit || v != nil && from[v] {
				for _, out := range n.Out {
					if !from[out] {
						own = append(own, out)
					}
					from[out] = true
				}
			}
		}
	}
	var all []mutation
	for _, n := range g.Body[ir.Backward] {
		for i, v := range n.In {
			if v == nil || !from[v] || n.Def().Is(ir.Collective) {
				continue
			}
			var some []mutation
			for _, w := range own {
				if w != v && w.Type == v.Type && w.Def != n {
					some = append(some, rewired(n.Name(), i, w.String()))
				}
			}
			all = append(all, thinned(some, 3)...)
		}
	}
	return all
}

// blockSizes gives a block the rows of which another has some, or leaves some out.
func blockSizes(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range of(g, ir.OpSplit) {
		name := n.Name()
		for k := range n.Out {
			all = append(all, fault(fmt.Sprintf("block %d of %s begins at row 0", k, name), func(g *ir.Graph) bool {
				_, n := at(g, name)
				v := n.Out[k]
				from := rows(g, n, n.In[0], int64(v.Type.Shape.Dim(0)))
				if from == nil || k == 0 {
					return false
				}
				g.Replace(map[*ir.Value]*ir.Value{v: from})
				return true
			}))
		}
		all = append(all, fault(name+": the first row again", func(g *ir.Graph) bool {
			_, n := at(g, name)
			count := int64(n.In[0].Type.Shape.Dim(0))
			head, most := rows(g, n, n.In[0], 1), rows(g, n, n.In[0], count-1)
			if head == nil || most == nil {
				return false
			}
			n.In[0] = put(g, n, ir.OpConcat, ir.A("axis", 0), head, most)
			return n.In[0] != nil
		}), fault(name+": results crossed", func(g *ir.Graph) bool {
			_, n := at(g, name)
			if n.Out[0].Type != n.Out[1].Type {
				return false
			}
			for _, x := range g.Nodes {
				for i, v := range x.In {
					if k := slices.Index(n.Out[:2], v); k >= 0 {
						x.In[i] = n.Out[1-k]
					}
				}
			}
			return true
		}))
	}
	return all
}

// blocksJoined joins the rows of blocks in another order, or rows of one again.
func blocksJoined(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range of(g, ir.OpConcat) {
		name := n.Name()
		all = append(all, fault(name+" backwards", func(g *ir.Graph) bool {
			_, n := at(g, name)
			slices.Reverse(n.In)
			return true
		}))
		for i := range n.In {
			for k := range n.In {
				all = append(all, fault(fmt.Sprintf("%s: %s for %s", name, n.In[k], n.In[i]), func(g *ir.Graph) bool {
					_, n := at(g, name)
					done := i != k && n.In[i].Type == n.In[k].Type
					n.In[i] = n.In[k]
					return done
				}))
			}
		}
	}
	return all
}

// blockGradient changes the seed, the labels that are ignored, or the logits of one block's gradient.
func blockGradient(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range of(g, ir.OpCrossEntropy, ir.OpCrossEntropyGrad) {
		all = append(all, retyped(n.Name(), "ignore", 2), retyped(n.Name(), "ignore", -100))
		if n.Op == ir.OpCrossEntropy {
			continue
		}
		name := n.Name()
		for what, edit := range map[string]func(b *ir.Builder, v *ir.Value) *ir.Value{
			"twice":  func(b *ir.Builder, v *ir.Value) *ir.Value { return b.Add(v, v) },
			"halved": func(b *ir.Builder, v *ir.Value) *ir.Value { return b.Affine(v, 0.5, 0) },
		} {
			all = append(all, fault(name+" "+what, func(g *ir.Graph) bool {
				_, n := at(g, name)
				return remade(g, n.Out[0], func(b *ir.Builder) *ir.Value { return edit(b, n.Out[0]) })
			}))
		}
		for _, v := range []string{"%amp.start", "%amp.start.scaled", "%count", "%sum.1", "%sum.2"} {
			all = append(all, rewired(name, 2, v))
		}
	}
	slices.SortFunc(all, func(x, y mutation) int {
		switch {
		case x.what < y.what:
			return -1
		case x.what > y.what:
			return 1
		}
		return 0
	})
	return all
}

// blocksSent sends what is summed of some blocks alone, and adds the rest on the rank.
func blocksSent(s *subject, g *ir.Graph) []mutation {
	return eachSent(g, func(n *ir.Node, k int) []mutation {
		v := n.In[k]
		if v.Def == nil || !slices.Contains(blockSums(g), v.Def) {
			return nil
		}
		name := n.Name()
		var all []mutation
		for i := range 2 {
			all = append(all, fault(fmt.Sprintf("%s of %s alone", v.Def.In[i], v), func(g *ir.Graph) bool {
				_, n := at(g, name)
				n.In[k] = n.In[k].Def.In[i]
				return true
			}), fault(fmt.Sprintf("%s of %s is added behind the sum", v.Def.In[i], v), func(g *ir.Graph) bool {
				_, n := at(g, name)
				rest := n.In[k].Def.In[i]
				n.In[k] = n.In[k].Def.In[1-i]
				return n.Out[k].Type == rest.Type && behind(g, n.Out[k], ir.OpAdd, nil, n.Out[k], rest)
			}))
		}
		return all
	})
}

// countOfBlocks divides by the labels of one block, by all labels, or by one count for each block.
func countOfBlocks(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, v := range []string{"%sum.1.count", "%sum.2.count"} {
		for _, n := range messages(g) {
			for i, x := range n.In {
				if x.String() == "%count" {
					all = append(all, rewired(n.Name(), i, v))
				}
			}
		}
	}
	all = append(all, eachOf(g, "labels that are not ignored are", func(_ *ir.Graph, n *ir.Node) bool {
		n.Op = ir.OpEq
		return true
	}, ir.OpNe)...)
	return append(all, eachOf(g, "of the first row", func(g *ir.Graph, n *ir.Node) bool {
		x := rows(g, n, n.In[0], 1)
		if x == nil || n.Out[0].Name != "count" {
			return false
		}
		n.In[0] = x
		return true
	}, ir.OpReduceSum)...)
}
