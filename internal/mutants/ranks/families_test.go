package ranks

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// families are the kinds of mutations.
func families() []family {
	all := []family{
		{"a message is not sent", unsent},
		{"a bucket is dropped", bucketDropped},
		{"a tensor is left out of a bucket", leftOut},
		{"one reader reads what was not sent", oneReader},
		{"reduced twice", reducedTwice},
		{"reduced and added to its own part", addedOwn},
		{"rounded before it is sent", roundedBefore},
		{"another operation or message", otherMessage},
		{"results of a bucket crossed", crossed},
		{"another tensor is sent", otherTensor},
		{"a share that depends on the rank", weighedByRank},
		{"every rank keeps its own part", ownPart},
		{"a message in another section", otherSection},
		{"weights are averaged, not gradients", weightsAveraged},
		{"a value of one rank is read", localInstead},
		{"a check of one rank", checkOfOneRank},
		{"a check of a part", checkOfPart},
		{"a check of values before the sum", checkBefore},
		{"a check after the update", checkAfter},
		{"a skip of one rank or none", skipOfOneRank},
		{"a loss or count of one rank", lossOfOneRank},
		{"division before the sum", dividedBefore},
		{"a norm of one rank", normOfOneRank},
		{"an average of one rank", averageOfOneRank},
		{"a scale of one rank", scaleOfOneRank},
		{"state that depends on the rank", stateByRank},
		{"gathered rows", gathered},
		{"an accumulator is passed by", accumPassed},
		{"an accumulator starts or keeps wrongly", accumFlags},
		{"an accumulator of another level or slice", accumLevel},
		{"an accumulator adds another value", accumAdds},
		{"dropout by another place", dropoutPlace},
		{"dropout by another seed", dropoutSeed},
	}
	alone := onOneRank(all)
	return append(all, alone,
		family{"one rank sends in another order", orderAlone},
		family{"one rank sends under another name", namedAlone},
		family{"one rank has another setting", settingAlone})
}

// aloneName is the family of faults of one rank.
const aloneName = "one rank has a faulty step"

// onOneRank does mutations of the other kinds on one rank alone.
func onOneRank(all []family) family {
	return family{aloneName, func(s *subject, g *ir.Graph) []mutation {
		var alone []mutation
		i := 0
		for _, f := range all {
			for _, m := range f.list(s, g) {
				if i++; i%3 == 0 {
					m.rank = i / 3 % s.ranks
					m.what = fmt.Sprintf("%s: %s, on rank %d", f.name, m.what, m.rank)
					alone = append(alone, m)
				}
			}
		}
		return alone
	}}
}

// unsent lets readers of what a message brings read what it takes.
func unsent(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for k, n := range messages(g) {
		for i, v := range n.Out {
			if v.Type != n.In[i].Type {
				continue // an all_gather
			}
			all = append(all, mutation{what: fmt.Sprintf("%s for %s", n.In[i], v), rank: -1, edit: func(g *ir.Graph) bool {
				x := messages(g)[k]
				g.Replace(map[*ir.Value]*ir.Value{x.Out[i]: x.In[i]})
				return true
			}})
		}
	}
	return all
}

// messages are the nodes that send, in their order.
func messages(g *ir.Graph) []*ir.Node {
	var sent []*ir.Node
	for _, n := range g.Nodes {
		if n.Def().Is(ir.Collective) {
			sent = append(sent, n)
		}
	}
	return sent
}

// fault is a mutation of all ranks. Nodes are put into an order in which operands come
// first.
func fault(what string, edit func(g *ir.Graph) bool) mutation {
	return mutation{what: what, rank: -1, edit: func(g *ir.Graph) bool {
		return edit(g) && settle(g) && !early(g)
	}}
}

// early reports whether something reads a batch before there is one.
func early(g *ir.Graph) bool {
	for _, n := range g.Body[ir.Prepare] {
		for _, v := range n.In {
			if v != nil && v.Kind == ir.Input {
				return true
			}
		}
	}
	return false
}

// at is the node whose first result has the name.
func at(g *ir.Graph, name string) (ir.Section, *ir.Node) {
	for s, n := range g.Nodes {
		if n.Name() == name {
			return s, n
		}
	}
	return 0, nil
}

// value finds a value as the text writes it.
func value(g *ir.Graph, name string) *ir.Value {
	for _, v := range g.Vars {
		if v.String() == name {
			return v
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.String() == name {
				return v
			}
		}
	}
	return nil
}

// of lists the nodes of some ops.
func of(g *ir.Graph, ops ...ir.Op) []*ir.Node {
	var all []*ir.Node
	for _, n := range g.Nodes {
		for _, op := range ops {
			if n.Op == op {
				all = append(all, n)
			}
		}
	}
	return all
}

// arg is the place of the operand that the row calls name.
func arg(n *ir.Node, name string) int {
	for i, o := range n.Def().In {
		if o.Name == name && i < len(n.In) {
			return i
		}
	}
	return -1
}

// put emits a node into the section of n, before it. nil: there is no such node.
func put(g *ir.Graph, n *ir.Node, op ir.Op, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
	s, _ := at(g, n.Name())
	b := ir.Edit(g).In(s)
	out := b.Emit(op, in, attrs)
	if b.Err() != nil || len(out) == 0 {
		return nil
	}
	body := g.Body[s]
	added := body[len(body)-1]
	for i, x := range body {
		if x == n {
			copy(body[i+1:], body[i:len(body)-1])
			body[i] = added
			break
		}
	}
	return out[0]
}

// behind emits a node after n and lets the readers of v, but the new node, read its result.
func behind(g *ir.Graph, v *ir.Value, op ir.Op, attrs ir.Attrs, in ...*ir.Value) bool {
	s, _ := at(g, v.Def.Name())
	b := ir.Edit(g).In(s)
	out := b.Emit(op, slices.Clone(in), attrs)
	if b.Err() != nil || len(out) == 0 {
		return false
	}
	g.Replace(map[*ir.Value]*ir.Value{v: out[0]})
	for i := range out[0].Def.In {
		out[0].Def.In[i] = in[i]
	}
	return settle(g)
}

// settle sorts the sections, so that what was added at the end of one comes before its readers.
func settle(g *ir.Graph) bool {
	g.Number()
	return g.Sort(func(n *ir.Node) int64 { return int64(n.ID) }) == nil
}

// rewired lets operand i of the node read the value, both by their names.
func rewired(node string, i int, with string) mutation {
	return fault(fmt.Sprintf("operand %d of %s is %s", i, node, with), func(g *ir.Graph) bool {
		_, n := at(g, node)
		v := value(g, with)
		if n == nil || v == nil || i < 0 || i >= len(n.In) || n.In[i] == v {
			return false
		}
		n.In[i] = v
		return true
	})
}

// absent leaves an optional operand of a node out.
func absent(node, operand string) mutation {
	return fault(fmt.Sprintf("%s of %s is left out", operand, node), func(g *ir.Graph) bool {
		_, n := at(g, node)
		i := arg(n, operand)
		if i < 0 || n.In[i] == nil {
			return false
		}
		n.In[i] = nil
		return true
	})
}

// retyped sets an attribute of a node.
func retyped(node, attr string, v any) mutation {
	return fault(fmt.Sprintf("%s of %s is %v", attr, node, v), func(g *ir.Graph) bool {
		_, n := at(g, node)
		a := n.Attrs.With(attr, v)
		if a.Equal(n.Attrs) {
			return false
		}
		n.Attrs = a
		return n.Retype() == nil
	})
}

// rankOf is the number of the rank, in a dtype, for the section of n.
func rankOf(g *ir.Graph, n *ir.Node, d ir.DType) *ir.Value {
	r := value(g, "%amp.rank")
	if r == nil {
		r = ir.Edit(g).Declare(ir.Input, "amp.rank", ir.T(ir.I32), nil, ir.A("role", "rank"))
	}
	if r == nil || r.Type.DType == d {
		return r
	}
	return put(g, n, ir.OpCast, ir.A("to", d), r)
}

// locals are the values that differ between ranks: they come from a batch, and no message
// has joined them.
func locals(g *ir.Graph) []*ir.Value {
	is := map[*ir.Value]bool{}
	var all []*ir.Value
	for _, v := range g.Vars {
		role, _ := v.Attr.Get("role").(string)
		if v.Kind == ir.Input && role != "micro" || role == "acc" {
			is[v] = true
			all = append(all, v)
		}
	}
	for _, n := range g.Nodes {
		for _, x := range n.In {
			if x == nil || !is[x] || n.Def().Is(ir.Collective) || is[n.Out[0]] {
				continue
			}
			for _, v := range n.Out {
				is[v] = true
				all = append(all, v)
			}
		}
	}
	return all
}
