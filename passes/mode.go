package passes

import (
	"slices"

	"ampc/ir"
)

// mode settles what rows do outside training: dropout passes its operand on,
// batch norm normalises by its running statistics. In training a dropout with
// probability 0 goes as well.
func mode(g *ir.Graph, c *Context) error {
	gone := map[*ir.Value]*ir.Value{}
	b, body := ir.Edit(g), g.Body[ir.Forward]
	for _, n := range body {
		switch n.Op {
		case ir.OpDropout:
			if !c.Train || n.Float("p") == 0 {
				gone[n.Out[0]] = n.In[0]
				c.Count("dropouts_removed", 1)
			}
		case ir.OpBatchNorm:
			if mean, v := n.Operand("running_mean"), n.Operand("running_var"); !c.Train && mean != nil && v != nil {
				if err := inferBatchNorm(b, n, gone); err != nil {
					return err
				}
				c.Count("batch_norms_fixed", 1)
			}
		}
	}
	made := g.Body[ir.Forward][len(body):]
	g.Body[ir.Forward] = slices.Concat(made, body) // they read variables alone
	removeNodes(g, gone)
	return b.Err()
}

// inferBatchNorm turns n into batch_norm_infer in place. Its batch statistics
// are read by nothing in a source graph but what the user asked for: they become
// the running ones, and the reciprocal deviation is computed from those.
func inferBatchNorm(b *ir.Builder, n *ir.Node, gone map[*ir.Value]*ir.Value) error {
	mean, variance := n.Operand("running_mean"), n.Operand("running_var")
	read := b.Graph().Uses()
	for i, v := range n.Out[1:] {
		switch name := n.Def().Out[i+1].Name; {
		case name == "mean" || name == "new_mean":
			gone[v] = mean
		case name == "new_var":
			gone[v] = variance
		case len(read.Of(v)) > 0 || slices.Contains(b.Graph().Return, v):
			shifted := b.In(ir.Forward).Named(v.Name+".var").Emit(ir.OpAffine, []*ir.Value{variance}, ir.A("shift", n.Float("eps")))[0]
			gone[v] = b.In(ir.Forward).Named(v.Name+".running").Emit(ir.OpRsqrt, []*ir.Value{shifted}, nil)[0]
		}
	}
	n.Op = ir.OpBatchNormInfer
	n.In = []*ir.Value{n.In[0], n.In[1], n.In[2], mean, variance}
	n.Out = n.Out[:1]
	n.Attrs = n.Attrs.Without("momentum")
	return n.Retype()
}

// removeNodes redirects the keys' readers to their values and drops the nodes
// whose first result is a key.
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
