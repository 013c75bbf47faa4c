package passes

import "ampc/ir"

// repeat makes backward run the forward nodes of again a second time, before the first reader of
// their results. The pass order may delay them further. A nil context counts nothing.
func repeat(g *ir.Graph, again map[*ir.Node]bool, c *Context) error {
	if len(again) == 0 {
		return nil
	}
	r := &repetition{g: g, nodes: again, fixed: keptAnyway(g), again: map[*ir.Value]*ir.Value{}, reads: map[*ir.Value]int{}, clusters: map[int32]int32{}, names: map[string]bool{}}
	for _, n := range g.Nodes {
		r.cluster = max(r.cluster, n.Why.Cluster)
		for _, v := range n.Out {
			r.names[v.Name] = true
		}
	}
	body := g.Body[ir.Backward]
	g.Body[ir.Backward] = make([]*ir.Node, 0, len(body))
	r.b = ir.Edit(g).In(ir.Backward)
	r.countReads(body)
	for _, n := range body {
		for i, v := range n.In {
			if v != nil {
				n.In[i] = r.instead(v)
			}
		}
		g.Body[ir.Backward] = append(g.Body[ir.Backward], n)
	}
	if c != nil {
		c.Count("nodes_repeated", r.emitted)
		c.Count("flops_repeated", int(r.flops))
	}
	return r.b.Err()
}

// repetition copies nodes of forward into backward.
type repetition struct {
	g        *ir.Graph
	nodes    map[*ir.Node]bool // nodes that run a second time
	fixed    map[*ir.Value]bool
	b        *ir.Builder     // of backward
	names    map[string]bool // of all values before
	again    map[*ir.Value]*ir.Value
	reads    map[*ir.Value]int // by recomputed value: number of its reads
	clusters map[int32]int32   // clusters of the copies, by cluster of the original
	cluster  int32             // highest cluster number in use
	emitted  int
	flops    int64
}

// dropped reports whether backward recomputes v, or the value that v views.
func (r *repetition) dropped(v *ir.Value) bool {
	v = root(v)
	return v.Def != nil && r.nodes[v.Def] && !r.fixed[v]
}

// countReads counts the reads of each recomputed value.
func (r *repetition) countReads(body []*ir.Node) {
	seen := map[*ir.Node]bool{}
	var read func(v *ir.Value)
	read = func(v *ir.Value) {
		if !r.dropped(v) {
			return
		}
		r.reads[v]++
		if n := v.Def; !seen[n] {
			seen[n] = true
			for _, x := range operands(n) {
				read(x)
			}
		}
	}
	for _, n := range body {
		for _, v := range operands(n) {
			read(v)
		}
	}
}

// storesAs is the dtype in which the node of n's operand stores its only result the second time, if
// n is a cast and its only reader then. Invalid means that n is copied.
func (r *repetition) storesAs(n *ir.Node) ir.DType {
	x := n.In[0]
	if n.Op != ir.OpCast || x.Def == nil || !x.Def.Has("out") || len(x.Def.Out) != 1 || r.reads[x] != 1 || r.again[x] != nil || root(x) != x || !r.dropped(x) {
		return ir.Invalid
	}
	return n.Out[0].Type.DType
}

// instead is the value that backward reads for v: v if it is kept, otherwise the recomputed v.
func (r *repetition) instead(v *ir.Value) *ir.Value {
	if !r.dropped(v) {
		return v
	}
	if r.again[v] == nil {
		r.emit(v.Def)
	}
	return r.again[v]
}

// emit emits a copy of n.
func (r *repetition) emit(n *ir.Node) {
	d := r.storesAs(n)
	if d == ir.Invalid {
		r.copy(n, n.Attrs)
		return
	}
	x := n.In[0].Def
	r.copy(x, x.Attrs.With("out", d))
	r.again[n.Out[0]] = r.again[x.Out[0]]
}

// copy emits a copy of n with the given attributes.
func (r *repetition) copy(n *ir.Node, attrs ir.Attrs) {
	in := make([]*ir.Value, len(n.In))
	for i, v := range n.In {
		if v != nil {
			in[i] = r.instead(v)
		}
	}
	r.emitted++
	r.flops += r.g.NodeCost(n).Flops
	name := n.Out[0].Name + ".again"
	for r.names[name] { // the pass recompute has made one
		name += ".again"
	}
	out := r.b.Named(name).EmitNode(&ir.Node{Op: n.Op, In: in, Attrs: attrs, Pos: n.Pos, Pin: n.Pin, Why: n.Why}, nil)
	for i, v := range n.Out {
		r.again[v] = out[i]
		if out[i] == nil {
			r.again[v] = v // the builder has an error
			continue
		}
		out[i].Def.Why.Launch = 0
		out[i].Def.Why.Marks |= ir.MarkRepeated
		if k := n.Why.Cluster; k > 0 {
			if r.clusters[k] == 0 {
				r.cluster++
				r.clusters[k] = r.cluster
			}
			out[i].Def.Why.Cluster = r.clusters[k]
		}
	}
}
