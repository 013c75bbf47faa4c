package ranks

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// ofParts are the kinds of mutations of steps whose ranks keep parts of the state.
var ofParts = []family{
	{"a weight of other parts", wholeOfOthers},
	{"a weight gathered in another dtype", wholeRounded},
	{"another share of a scattered sum", otherShare},
	{"a scattered message says another thing", otherScatter},
	{"parts of another tensor", partsOfOther},
	{"another range of rows", otherRange},
	{"a part updated by own gradients", partByOwn},
	{"a part updated from what was gathered", partFromWhole},
	{"a norm of parts", normOfParts},
	{"an update is left out", updateLeftOut},
	{"two updates crossed", updatesCrossed},
}

// otherRange takes the range of another rank of the rows that lookups add to a table.
func otherRange(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range of(g, ir.OpGather) {
		name, ranks := n.Name(), n.In[0].Type.Shape.Dims()[0]
		for _, x := range []struct{ scale, shift float64 }{{0, 0}, {-1, float64(ranks - 1)}} {
			all = append(all, fault(fmt.Sprintf("the range of rank %g+%g·r in %s", x.shift, x.scale, name), func(g *ir.Graph) bool {
				_, n := at(g, name)
				n.In[1] = put(g, n, ir.OpAffine, ir.A("scale", x.scale, "shift", x.shift), n.In[1])
				return n.In[1] != nil
			}))
		}
		all = append(all, fault("no padding but the front in "+name, func(g *ir.Graph) bool {
			_, n := at(g, name)
			return remade(g, n.Out[0], func(b *ir.Builder) *ir.Value {
				row := flat(b, n.In[0], 0)
				return like(b, cut(b, row, 0, n.Out[0].Type.Shape.Elements()), n.Out[0])
			})
		}))
	}
	return all
}

// remade lets all readers of v read what build makes of it, in the section of v.
func remade(g *ir.Graph, v *ir.Value, build func(b *ir.Builder) *ir.Value) bool {
	s, _ := at(g, v.Def.Name())
	from := len(g.Body[s])
	b := ir.Edit(g).In(s)
	out := build(b)
	if b.Err() != nil || out == nil || out.Type != v.Type {
		return false
	}
	added := slices.Clone(g.Body[s][from:])
	operands := make([][]*ir.Value, len(added))
	for i, n := range added {
		operands[i] = slices.Clone(n.In)
	}
	g.Replace(map[*ir.Value]*ir.Value{v: out})
	for i, n := range added {
		n.In = operands[i]
	}
	return settle(g)
}

// flat is v as one row, with zeros behind it up to n elements.
func flat(b *ir.Builder, v *ir.Value, n int64) *ir.Value {
	row := b.Reshape(v, -1)
	for b.Err() == nil && row.Type.Shape.Elements() < n { // copies of the front where no zeros are at hand
		row = b.Concat(0, row, cut(b, row, 0, min(n-row.Type.Shape.Elements(), row.Type.Shape.Elements())))
	}
	return row
}

// cut are the elements from..to of a row.
func cut(b *ir.Builder, row *ir.Value, from, to int64) *ir.Value {
	return b.Emit(ir.OpSlice, []*ir.Value{row}, ir.A("axes", []int64{0}, "starts", []int64{from}, "ends", []int64{to}))[0]
}

// like is a row in the shape of v.
func like(b *ir.Builder, row, v *ir.Value) *ir.Value {
	var shape []int64
	for _, d := range v.Type.Shape.Dims() {
		shape = append(shape, int64(d))
	}
	return b.Emit(ir.OpReshape, []*ir.Value{row}, ir.A("shape", shape))[0]
}

// eachResult lists an edit of each result of the messages of one op.
func eachResult(g *ir.Graph, op ir.Op, what string, edit func(g *ir.Graph, n *ir.Node, i int) bool) []mutation {
	var all []mutation
	for _, n := range of(g, op) {
		if op == ir.OpAllGather && n.Attrs.Get("shapes") == nil {
			continue // rows of a lookup, norms
		}
		for i := range n.Out {
			name := n.Name()
			all = append(all, fault(n.Out[i].String()+": "+what, func(g *ir.Graph) bool {
				_, n := at(g, name)
				return edit(g, n, i)
			}))
		}
	}
	return all
}

// wholeOfOthers joins the parts of a weight in another order, or one part again and again.
func wholeOfOthers(s *subject, g *ir.Graph) []mutation {
	all := eachResult(g, ir.OpAllGather, "the first part last", func(g *ir.Graph, n *ir.Node, i int) bool {
		v := n.Out[i]
		whole, part := v.Type.Shape.Elements(), n.In[i].Type.Shape.Elements()
		return part < whole && remade(g, v, func(b *ir.Builder) *ir.Value {
			row := flat(b, v, 0)
			return like(b, b.Concat(0, cut(b, row, part, whole), cut(b, row, 0, part)), v)
		})
	})
	repeated := func(g *ir.Graph, v *ir.Value, part func(b *ir.Builder) *ir.Value) bool {
		return remade(g, v, func(b *ir.Builder) *ir.Value {
			p := part(b)
			row := b.Concat(0, slices.Repeat([]*ir.Value{p}, s.ranks)...)
			return like(b, cut(b, row, 0, v.Type.Shape.Elements()), v)
		})
	}
	all = append(all, eachResult(g, ir.OpAllGather, "own part for all", func(g *ir.Graph, n *ir.Node, i int) bool {
		return repeated(g, n.Out[i], func(*ir.Builder) *ir.Value { return n.In[i] })
	})...)
	all = append(all, eachResult(g, ir.OpAllGather, "the part of rank 0 for all", func(g *ir.Graph, n *ir.Node, i int) bool {
		return repeated(g, n.Out[i], func(b *ir.Builder) *ir.Value {
			return cut(b, flat(b, n.Out[i], 0), 0, n.In[i].Type.Shape.Elements())
		})
	})...)
	return append(all, eachResult(g, ir.OpAllGather, "elements one place further", func(g *ir.Graph, n *ir.Node, i int) bool {
		v := n.Out[i]
		return remade(g, v, func(b *ir.Builder) *ir.Value {
			row, e := flat(b, v, 0), v.Type.Shape.Elements()
			return like(b, b.Concat(0, cut(b, row, 1, e), cut(b, row, 0, 1)), v)
		})
	})...)
}

// wholeRounded gathers a weight in another dtype than those who read it want.
func wholeRounded(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, d := range []ir.DType{ir.F16, ir.BF16} {
		all = append(all, eachResult(g, ir.OpAllGather, "sent in "+d.String(), func(g *ir.Graph, n *ir.Node, i int) bool {
			own := n.In[i].Type.DType
			if own == d || !own.Float() {
				return false
			}
			low := put(g, n, ir.OpCast, ir.A("to", d), n.In[i])
			if low == nil {
				return false
			}
			n.In[i] = put(g, n, ir.OpCast, ir.A("to", own), low)
			return n.In[i] != nil
		})...)
		all = append(all, eachResult(g, ir.OpAllGather, "read in "+d.String(), func(g *ir.Graph, n *ir.Node, i int) bool {
			own := n.Out[i].Type.DType
			return own != d && own.Float() && remade(g, n.Out[i], func(b *ir.Builder) *ir.Value {
				return b.Cast(b.Cast(n.Out[i], d), own)
			})
		})...)
	}
	return all
}

// otherShare gives a rank another share of a sum than its own part.
func otherShare(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	list := func(what string, build func(b *ir.Builder, n *ir.Node, i int) *ir.Value) {
		all = append(all, eachResult(g, ir.OpReduceScatter, what, func(g *ir.Graph, n *ir.Node, i int) bool {
			return remade(g, n.Out[i], func(b *ir.Builder) *ir.Value { return build(b, n, i) })
		})...)
	}
	sum := func(b *ir.Builder, attrs ir.Attrs, v *ir.Value) *ir.Value {
		return b.Emit(ir.OpAllReduce, []*ir.Value{v}, attrs.Without("flat").With("seq", 90))[0]
	}
	first := func(b *ir.Builder, n *ir.Node, v *ir.Value, i int) *ir.Value {
		part := n.Out[i].Type.Shape.Elements()
		return cut(b, flat(b, v, part), 0, part)
	}
	list("own values, the first part", func(b *ir.Builder, n *ir.Node, i int) *ir.Value { return first(b, n, n.In[i], i) })
	list("the part of rank 0 for all", func(b *ir.Builder, n *ir.Node, i int) *ir.Value {
		return first(b, n, sum(b, n.Attrs, n.In[i]), i)
	})
	list("the last part for all", func(b *ir.Builder, n *ir.Node, i int) *ir.Value {
		part := n.Out[i].Type.Shape.Elements()
		return cut(b, flat(b, sum(b, n.Attrs, n.In[i]), part*int64(s.ranks)), part*int64(s.ranks-1), part*int64(s.ranks))
	})
	list("parts are summed", func(b *ir.Builder, n *ir.Node, i int) *ir.Value { return sum(b, n.Attrs, n.Out[i]) })
	list("parts are meant", func(b *ir.Builder, n *ir.Node, i int) *ir.Value {
		return sum(b, n.Attrs.With("op", "mean"), n.Out[i])
	})
	list("twice", func(b *ir.Builder, n *ir.Node, i int) *ir.Value { return b.Add(n.Out[i], n.Out[i]) })
	list("divided by the ranks", func(b *ir.Builder, n *ir.Node, i int) *ir.Value {
		return b.Affine(n.Out[i], 1/float64(s.ranks), 0)
	})
	list("and its own first part", func(b *ir.Builder, n *ir.Node, i int) *ir.Value {
		return b.Add(n.Out[i], first(b, n, n.In[i], i))
	})
	for _, d := range []ir.DType{ir.F16, ir.BF16} {
		list("rounded to "+d.String(), func(b *ir.Builder, n *ir.Node, i int) *ir.Value {
			return b.Cast(b.Cast(n.Out[i], d), ir.F32)
		})
	}
	return all
}

// otherScatter changes what a scattered message says of itself, and what it is made of.
func otherScatter(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range of(g, ir.OpReduceScatter) {
		for _, x := range []struct {
			attr string
			v    any
		}{{"op", "mean"}, {"msg", ir.F32}, {"msg", ir.BF16}, {"msg", ir.F16}, {"shift", 0}, {"shift", 1}, {"shift", 12}, {"ranks", s.ranks * 2}, {"flat", false}} {
			all = append(all, retyped(n.Name(), x.attr, x.v))
		}
	}
	edit := func(what string, make func(g *ir.Graph, n *ir.Node, v *ir.Value) *ir.Value) {
		all = append(all, eachResult(g, ir.OpReduceScatter, what, func(g *ir.Graph, n *ir.Node, i int) bool {
			n.In[i] = make(g, n, n.In[i])
			return n.In[i] != nil
		})...)
	}
	for _, d := range []ir.DType{ir.F16, ir.BF16} {
		edit("rounded to "+d.String()+" first", func(g *ir.Graph, n *ir.Node, v *ir.Value) *ir.Value {
			low := put(g, n, ir.OpCast, ir.A("to", d), v)
			if low == nil {
				return nil
			}
			return put(g, n, ir.OpCast, ir.A("to", v.Type.DType), low)
		})
	}
	edit("divided first", func(g *ir.Graph, n *ir.Node, v *ir.Value) *ir.Value {
		return put(g, n, ir.OpAffine, ir.A("scale", 1/float64(s.ranks), "shift", 0.0), v)
	})
	edit("summed first", func(g *ir.Graph, n *ir.Node, v *ir.Value) *ir.Value {
		return put(g, n, ir.OpAllReduce, n.Attrs.Without("flat").With("seq", 90), v)
	})
	edit("twice", func(g *ir.Graph, n *ir.Node, v *ir.Value) *ir.Value { return put(g, n, ir.OpAdd, nil, v, v) })
	return all
}

// partsOfOther lets the update of a part read the part of another tensor.
func partsOfOther(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range g.Body[ir.Update] {
		for i, v := range n.In {
			if v == nil || v.PartOf() == "" {
				continue
			}
			var some []mutation
			for _, w := range g.Vars {
				if w != v && w.Type == v.Type {
					some = append(some, rewired(n.Name(), i, w.String()))
				}
			}
			all = append(all, thinned(some, 4)...)
		}
	}
	return all
}

// partByOwn updates a part by this rank's gradients.
func partByOwn(s *subject, g *ir.Graph) []mutation {
	return eachOf(g, "own gradient", func(g *ir.Graph, n *ir.Node) bool {
		d := n.In[1]
		if d.Def == nil || d.Def.Op != ir.OpReduceScatter {
			return false
		}
		part := d.Type.Shape.Elements()
		row := put(g, n, ir.OpReshape, ir.A("shape", []int64{-1}), d.Def.In[d.Idx])
		if row == nil {
			return false
		}
		n.In[1] = put(g, n, ir.OpSlice, ir.A("axes", []int64{0}, "starts", []int64{0}, "ends", []int64{part}), row)
		return n.In[1] != nil && n.In[1].Type == d.Type
	}, ir.OpAdamW)
}

// partFromWhole updates a part of the weight that was gathered, in its dtype and of rank 0.
func partFromWhole(s *subject, g *ir.Graph) []mutation {
	return eachOf(g, "the part of rank 0 of what was gathered", func(g *ir.Graph, n *ir.Node) bool {
		v := value(g, "%all."+n.In[0].PartOf())
		if v == nil {
			return false
		}
		part := n.In[0].Type.Shape.Elements()
		row := put(g, n, ir.OpReshape, ir.A("shape", []int64{-1}), v)
		if row == nil || row.Type.Shape.Elements() < part {
			return false
		}
		own := put(g, n, ir.OpSlice, ir.A("axes", []int64{0}, "starts", []int64{0}, "ends", []int64{part}), row)
		if own != nil && own.Type.DType != ir.F32 {
			own = put(g, n, ir.OpCast, ir.A("to", ir.F32), own)
		}
		n.In[0] = own
		return own != nil
	}, ir.OpAdamW)
}

// normOfParts joins the norms of the ranks' parts otherwise.
func normOfParts(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range of(g, ir.OpGlobalNorm) {
		last := n.In[len(n.In)-1]
		gather := slices.IndexFunc(n.In, func(v *ir.Value) bool { return v != nil && v.Def != nil && v.Def.Op == ir.OpAllGather })
		if gather < 0 {
			continue
		}
		name := n.Name()
		list := func(what string, build func(b *ir.Builder, n *ir.Node, norms *ir.Value) *ir.Value) {
			all = append(all, fault(what, func(g *ir.Graph) bool {
				_, n := at(g, name)
				return remade(g, n.Out[0], func(b *ir.Builder) *ir.Value { return build(b, n, n.In[gather]) })
			}))
		}
		list("the norm of the own part", func(b *ir.Builder, n *ir.Node, norms *ir.Value) *ir.Value {
			return b.Reshape(norms.Def.In[0])
		})
		list("the sum of the norms", func(b *ir.Builder, n *ir.Node, norms *ir.Value) *ir.Value { return b.ReduceSum(norms, false, 0) })
		list("the mean of the norms", func(b *ir.Builder, n *ir.Node, norms *ir.Value) *ir.Value {
			return b.Affine(b.ReduceSum(norms, false, 0), 1/float64(s.ranks), 0)
		})
		list("the own norm for all", func(b *ir.Builder, n *ir.Node, norms *ir.Value) *ir.Value {
			return b.GlobalNorm(nil, b.Concat(0, slices.Repeat([]*ir.Value{norms.Def.In[0]}, s.ranks)...))
		})
		list("norms of norms joined again", func(b *ir.Builder, n *ir.Node, norms *ir.Value) *ir.Value {
			return b.Emit(ir.OpAllReduce, []*ir.Value{n.Out[0]}, ir.A("ranks", s.ranks, "seq", 90))[0]
		})
		list("without the last rank's", func(b *ir.Builder, n *ir.Node, norms *ir.Value) *ir.Value {
			return b.GlobalNorm(nil, cut(b, norms, 0, int64(s.ranks-1)))
		})
		all = append(all, fault(fmt.Sprintf("%s twice", last), func(g *ir.Graph) bool {
			_, n := at(g, name)
			n.In = append(n.In, n.In[len(n.In)-1])
			return true
		}))
	}
	return all
}

// updateLeftOut leaves a variable as it was.
func updateLeftOut(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for _, n := range g.Body[ir.Update] {
		if n.Out[0].Next == nil {
			continue
		}
		name := n.Name()
		all = append(all, fault(name, func(g *ir.Graph) bool {
			_, n := at(g, name)
			m := map[*ir.Value]*ir.Value{}
			for _, v := range n.Out {
				if v.Next == nil {
					return false
				}
				m[v] = v.Next
			}
			g.Replace(m)
			g.Filter(func(_ ir.Section, x *ir.Node) bool { return x != n })
			return true
		}))
	}
	return all
}

// updatesCrossed lets the updates of two variables of one type write each other's.
func updatesCrossed(s *subject, g *ir.Graph) []mutation {
	var out []*ir.Value
	for _, n := range g.Body[ir.Update] {
		for _, v := range n.Out {
			if v.Next != nil && v.Type.DType.Float() {
				out = append(out, v)
			}
		}
	}
	var all []mutation
	for i, v := range out {
		for _, w := range out[i+1:] {
			if v.Type != w.Type {
				continue
			}
			x, y := v.String(), w.String()
			all = append(all, fault(x+" and "+y, func(g *ir.Graph) bool {
				v, w := value(g, x), value(g, y)
				v.Next, w.Next = w.Next, v.Next
				v.Name, w.Name = w.Name, v.Name
				return true
			}))
		}
	}
	return thinned(all, 60)
}
