package passes

import (
	"slices"

	"ampc/ir"
)

// recompute makes backward compute again what forward would keep for it alone, where the operands
// are kept in any case:
//
//   - the result of a norm that only elementwise nodes read, as the gradient of SiLU after a group
//     norm does: they compute it, element by element, from what the norm's gradient reads;
//   - the positions of a max pool, from the image that another node reads, where the gradient of
//     the pool searches it itself (ir.Caps.RecomputesPools): the two are one launch.
//
// Dtypes are known by then and do not change. A pool searches the same image as before, so ties and
// NaN give the same positions. An eager policy keeps what the system that it models keeps.
func recompute(g *ir.Graph, c *Context) error {
	if c.Policy.Eager {
		return nil
	}
	r := &recomputer{g: g, uses: c.uses(g), caps: c.Caps, returned: map[*ir.Value]bool{}, norms: map[*ir.Node]*ir.Node{}, pools: map[*ir.Node]*ir.Node{}}
	for _, v := range g.Return {
		r.returned[v] = true
	}
	for _, n := range g.Body[ir.Forward] {
		c.At(n)
		r.look(n)
	}
	if len(r.norms)+len(r.pools) == 0 {
		c.keep()
		return nil
	}
	for _, n := range g.Nodes {
		r.cluster, r.launch = max(r.cluster, n.Why.Cluster), max(r.launch, n.Why.Launch)
	}
	before := floatBytes(g)
	body := g.Body[ir.Backward]
	g.Body[ir.Backward] = make([]*ir.Node, 0, len(body))
	r.b = ir.Edit(g).In(ir.Backward)
	for _, n := range body {
		c.At(n)
		if err := r.before(n); err != nil {
			return err
		}
		g.Body[ir.Backward] = append(g.Body[ir.Backward], n)
	}
	if c.Policy.decided().Algorithm == "mincut" { // the cut did not know of it
		c.Count("cut_bytes", int(floatBytes(g)-before+r.poolBytes())*max(c.Micro, 1))
	}
	c.Count("norms_recomputed", len(r.norms))
	c.Count("pools_recomputed", len(r.pools))
	return r.b.Err()
}

type recomputer struct {
	g        *ir.Graph
	b        *ir.Builder // of backward
	uses     *ir.Uses
	caps     ir.Caps
	returned map[*ir.Value]bool
	cluster  int32                 // highest cluster number in use
	launch   int32                 // highest launch number in use
	norms    map[*ir.Node]*ir.Node // by norm: the last node that computes its result again, nil before
	pools    map[*ir.Node]*ir.Node // by pool: the second pool, nil before
}

// look records a forward node whose result is worth recomputing.
func (r *recomputer) look(n *ir.Node) {
	switch {
	case n.Def().Is(ir.Norm):
		if r.normAgain(n) {
			r.norms[n] = nil
		}
	case cheap(n) > 0 && r.caps.RecomputesPools:
		if index := n.Out[cheap(n)]; !r.returned[index] && r.kept(index) && r.kept(n.In[0]) {
			r.pools[n] = nil
		}
	}
}

// cheap is the result of n that backward recomputes rather than keeps, 0 for none.
func cheap(n *ir.Node) int {
	return max(slices.IndexFunc(n.Def().Out, func(o ir.Result) bool { return o.Cheap }), 0)
}

// kept reports whether backward reads v.
func (r *recomputer) kept(v *ir.Value) bool {
	for _, u := range r.uses.Of(v) {
		if u.Section == ir.Backward {
			return true
		}
	}
	return v.Def == nil // a variable is in memory in any case
}

// normAgain reports whether only the elementwise nodes of one cluster read norm n's result in
// backward, and other nodes read its operands.
func (r *recomputer) normAgain(n *ir.Node) bool {
	y := n.Out[0]
	if !n.In[0].Type.Shape.Static() || r.returned[y] || y.Next != nil || !r.kept(n.In[0]) {
		return false
	}
	for i, d := range n.Def().Out {
		if (d.Name == "mean" || d.Name == "rstd") && !r.kept(n.Out[i]) {
			return false
		}
	}
	var reader *ir.Node
	for _, u := range r.uses.Of(y) {
		if u.Section <= ir.Forward {
			continue
		}
		same := reader == nil || u.Node == reader || u.Node.Why.Cluster > 0 && u.Node.Why.Cluster == reader.Why.Cluster
		if u.Section != ir.Backward || !same || !fusible(u.Node) || u.Node.Out[0].Type.Shape != y.Type.Shape {
			return false
		}
		reader = u.Node
	}
	return reader != nil
}

// before emits what backward node n, the next in the list, reads instead.
func (r *recomputer) before(n *ir.Node) error {
	for i, v := range n.In {
		if v == nil || v.Def == nil {
			continue
		}
		if again, ok := r.norms[v.Def]; ok && v.Idx == 0 {
			if again == nil {
				again = r.norm(v, n)
			}
			if _, err := readInstead(n, i, again.Out[0]); err != nil {
				return err
			}
		}
		if again, ok := r.pools[v.Def]; ok && v.Idx == cheap(v.Def) {
			if again == nil {
				again = r.pool(v.Def)
			}
			n.In[i] = again.Out[v.Idx]
			if r.searchesAlone(n, i, v) {
				r.launch++
				n.Why.Launch, again.Why.Launch = r.launch, r.launch
			}
		}
	}
	return r.b.Err()
}

// searchesAlone reports whether n is the only backward node that reads v, the positions of a pool,
// and its kernel searches the image for them.
func (r *recomputer) searchesAlone(n *ir.Node, i int, v *ir.Value) bool {
	readers := 0
	for _, u := range r.uses.Of(v) {
		if u.Section == ir.Backward {
			readers++
		}
	}
	return readers == 1 && n.OperandDef(i).Searched && n.Why.Launch == 0 && v.Def.In[0].Type.Shape == n.Out[0].Type.Shape && v.Def.Str("layout") == n.Str("layout")
}

// norm emits y, the result of a norm, again, in the cluster of its first reader.
func (r *recomputer) norm(y *ir.Value, reader *ir.Node) *ir.Node {
	n := y.Def
	if reader.Why.Cluster == 0 {
		r.cluster++
		reader.Why.Cluster = r.cluster
	}
	body := &r.g.Body[ir.Backward]
	first := len(*body)
	again := r.b.Deriving(nil, "").Scope(y.Name + ".again").NormAgain(n)
	if again == nil {
		return n
	}
	for _, m := range (*body)[first:] {
		m.Pos, m.Why = n.Pos, ir.Reason{Class: m.Def().Class, Cause: ir.ByNeighbour, From: y}
		if fusible(m) && m.Out[0].Type.Shape == y.Type.Shape { // of a row of one element the statistics have the same shape
			m.Why.Cluster, m.Why.Launch = reader.Why.Cluster, reader.Why.Launch
		}
	}
	r.norms[n] = again.Def
	return again.Def
}

// pool emits the second of two equal pools.
func (r *recomputer) pool(n *ir.Node) *ir.Node {
	out := r.b.Named(n.Out[0].Name+".again").EmitNode(&ir.Node{Op: n.Op, In: slices.Clone(n.In), Attrs: n.Attrs, Pos: n.Pos, Pin: n.Pin, Why: n.Why}, nil)
	if out[0] == nil {
		return n
	}
	out[0].Def.Why.Cluster, out[0].Def.Why.Launch = 0, 0
	r.pools[n] = out[0].Def
	return out[0].Def
}

// poolBytes is how many more bytes the steps of one micro-batch move because pools are computed
// again.
func (r *recomputer) poolBytes() (sum int64) {
	size := func(v *ir.Value) int64 { return r.g.Elements(v.Type) * v.Type.DType.Size() }
	for n, again := range r.pools {
		if again == nil {
			continue
		}
		positions := n.Out[cheap(n)]
		index := size(positions)
		if !slices.ContainsFunc(r.uses.Of(positions), func(u ir.Use) bool { return u.Section != ir.Backward }) {
			sum -= index
		}
		if again.Why.Launch > 0 {
			sum += size(n.In[0]) - index
		} else {
			sum += size(n.In[0]) + size(n.Out[0]) + index
		}
	}
	return sum
}

// floatBytes is how many bytes of float tensors, in their stored dtypes, the steps of forward and
// backward move in one micro-batch. Each step reads a tensor once, and writes a tensor once if
// others read it. Max pools are not counted (poolBytes).
func floatBytes(g *ir.Graph) (sum int64) {
	type read struct {
		unit int64
		v    *ir.Value
	}
	uses, seen, base := g.Uses(), map[read]bool{}, map[*ir.Value]*ir.Value{}
	returned := map[*ir.Value]bool{}
	for _, v := range g.Return {
		returned[v] = true
	}
	var outside func(v *ir.Value) bool
	outside = func(v *ir.Value) bool {
		for _, u := range uses.Of(v) {
			if shares(u.Node) && slices.ContainsFunc(u.Node.Out, outside) || !shares(u.Node) && !sameStep(v, u.Node) {
				return true
			}
		}
		return returned[v] || v.Next != nil
	}
	for s, n := range g.Nodes {
		if shares(n) {
			for _, v := range n.Out {
				base[v] = n.In[0]
				if b := base[n.In[0]]; b != nil {
					base[v] = b
				}
			}
			continue
		}
		if s != ir.Forward && s != ir.Backward || cheap(n) > 0 {
			continue
		}
		for _, v := range n.In {
			if v == nil || !v.Type.DType.Float() || sameStep(v, n) {
				continue
			}
			if b := base[v]; b != nil {
				v = b
			}
			if r := (read{stepOf(n), v}); !seen[r] {
				seen[r] = true
				sum += g.Elements(v.Type) * v.Type.DType.Size()
			}
		}
		for _, v := range n.Out {
			if v.Type.DType.Float() && outside(v) {
				sum += g.Elements(v.Type) * v.Type.DType.Size()
			}
		}
	}
	return sum
}
