package passes

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// mode decides what rows do outside of training. A dropout returns its operand, a batch norm
// normalizes by its running statistics, and gradients inside the forward pass are the gradients of
// that. In training, mode removes dropouts with probability 0, and a batch norm that was exported
// for inference normalizes by the batch again. mode also records the casts of the source before a
// pass merges any.
func mode(g *ir.Graph, c *Context) error {
	noteSourceCasts(g)
	dropAppends(g, c)
	if !slices.ContainsFunc(g.Body[ir.Forward], func(n *ir.Node) bool { return n.Def().Is(ir.Regularizes) || n.Def().Batch != nil }) {
		return nil
	}
	m := &inferring{b: ir.Edit(g), gone: map[*ir.Value]*ir.Value{}, moved: map[*ir.Value]*ir.Value{}, rank: map[*ir.Node]int64{}}
	for _, body := range g.Body {
		for i, n := range body {
			m.rank[n] = 2 * int64(i)
		}
	}
	for _, n := range slices.Clone(g.Body[ir.Forward]) {
		rows := n.Def().Batch
		switch {
		case n.Def().Is(ir.Regularizes):
			if !c.Train || n.Float("p") == 0 {
				m.gone[n.Out[0]] = n.In[0]
				c.Count("dropouts_removed", 1)
			}
		case rows != nil && n.Op == rows.Train:
			if mean, v := n.Operand("running_mean"), n.Operand("running_var"); !c.Train && mean != nil && v != nil {
				if err := m.batchNorm(n); err != nil {
					return err
				}
				c.Count("batch_norms_fixed", 1)
			}
		case rows != nil && n.Op == rows.Infer:
			if c.Train && n.Float("momentum") > 0 && movesStats(n) {
				m.byBatch(n)
				c.Count("batch_norms_trained", 1)
			}
		}
	}
	if m.b.Err() != nil {
		return m.b.Err()
	}
	for v, by := range m.gone { // the operand of a removed node may itself be a gradient that was replaced
		if to := m.moved[by]; to != nil {
			m.gone[v] = to
		}
	}
	g.Replace(m.moved)
	if err := g.Sort(m.order); err != nil {
		return err
	}
	removeNodes(g, m.gone)
	return nil
}

// movesStats reports whether batch norm n of an evaluated model has trained weights, and running
// statistics that can be updated with them.
func movesStats(n *ir.Node) bool {
	return n.In[3].Kind == ir.State && n.In[4].Kind == ir.State && n.In[3].IsVar() && n.In[4].IsVar() &&
		(n.In[1].IsVar() && n.In[1].Kind == ir.Param || n.In[2].IsVar() && n.In[2].Kind == ir.Param)
}

// byBatch replaces n by a norm with the statistics of the batch.
func (m *inferring) byBatch(n *ir.Node) {
	b := m.b.Deriving(n, "").In(ir.Forward).Named(n.Out[0].Name + ".batch")
	y := b.BatchNorm(n.In[0], n.In[1], n.In[2], n.In[3], n.In[4], ir.A("eps", n.Float("eps"), "momentum", n.Float("momentum"), "layout", n.Str("layout")))
	if y != nil {
		y.Def.Of = nil
		m.gone[n.Out[0]], m.rank[y.Def] = y, m.rank[n]
	}
}

// order keeps the order of sections; new nodes that only read variables come first.
func (m *inferring) order(n *ir.Node) int64 {
	if r, ok := m.rank[n]; ok {
		return r
	}
	return -1
}

// inferring changes a forward pass to inference.
type inferring struct {
	b     *ir.Builder
	gone  map[*ir.Value]*ir.Value // replacements of results whose nodes are removed
	moved map[*ir.Value]*ir.Value // replacements of results whose nodes stay
	rank  map[*ir.Node]int64      // the order of each section
}

// batchNorm turns n into batch_norm_infer in place. Requested results and gradients may read its
// batch statistics: they read the running statistics instead, and a reciprocal deviation that is
// computed from these.
func (m *inferring) batchNorm(n *ir.Node) error {
	mean, variance := n.Operand("running_mean"), n.Operand("running_var")
	g := m.b.Graph()
	read := g.Uses()
	for i, v := range n.Out[1:] {
		if err := m.gradients(n, read.Of(v)); err != nil {
			return err
		}
		switch name := n.Def().Out[i+1].Name; {
		case name == "mean" || name == "new_mean":
			m.gone[v] = mean
		case name == "new_var":
			m.gone[v] = variance
		case len(read.Of(v)) > 0 || slices.Contains(g.Return, v):
			shifted := m.b.In(ir.Forward).Named(v.Name+".var").Emit(ir.OpAffine, []*ir.Value{variance}, ir.A("shift", n.Float("eps")))[0]
			m.gone[v] = m.b.In(ir.Forward).Named(v.Name+".running").Emit(ir.OpRsqrt, []*ir.Value{shifted}, nil)[0]
		}
	}
	n.Op = n.Def().Batch.Infer
	n.In = []*ir.Value{n.In[0], n.In[1], n.In[2], mean, variance}
	n.Out = n.Out[:1]
	n.Attrs = n.Attrs.Without("momentum")
	return n.Retype()
}

// gradients removes the batch statistics from the gradients of n's operand: running statistics do
// not depend on it.
func (m *inferring) gradients(n *ir.Node, readers []ir.Use) error {
	body, grad := &m.b.Graph().Body, n.Def().Batch.Grad
	for _, r := range readers {
		switch k := r.Node; {
		case k.Op == grad && m.moved[k.Out[0]] == nil:
			from := len(body[ir.Forward])
			m.moved[k.Out[0]] = m.b.Deriving(n, "").Named(k.Out[0].Name + ".fixed").FixedNormGrad(k)
			for _, made := range m.b.Graph().Body[ir.Forward][from:] {
				m.rank[made] = m.rank[k] - 1
			}
		case k.Op != grad && k.Of != nil:
			return &ir.Error{Pos: k.Pos, Msg: fmt.Sprintf("%s: a gradient of a gradient through %s computes with the statistics of the batch, which inference does not have: compute it in training", k.Def().Name, n.Out[0])}
		}
	}
	return nil
}

// removeNodes redirects the readers of each key to its value, and removes the nodes whose first
// result is a key.
func removeNodes(g *ir.Graph, gone map[*ir.Value]*ir.Value) {
	if len(gone) == 0 {
		return
	}
	g.Replace(gone)
	g.Filter(func(_ ir.Section, n *ir.Node) bool {
		if len(n.Out) == 0 {
			return true
		}
		_, drop := gone[n.Out[0]]
		return !drop
	})
}
