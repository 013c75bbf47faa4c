package passes

import (
	"fmt"

	"ampc/ir"
)

// mode settles what rows do outside training: dropout passes its operand on,
// batch norm normalises by its running statistics. In training a dropout with
// probability 0 goes as well.
// Outside training it also appends the configured outputs to what the graph
// returns; in training the update does.
func mode(g *ir.Graph, c *Context) error {
	if !c.Train {
		if err := returnOutputs(g, c); err != nil {
			return err
		}
	}
	gone := map[*ir.Value]*ir.Value{}
	for _, n := range g.Body[ir.Forward] {
		switch n.Op {
		case ir.OpDropout:
			if !c.Train || n.Float("p") == 0 {
				gone[n.Out[0]] = n.In[0]
				c.Count("dropouts_removed", 1)
			}
		case ir.OpBatchNorm:
			if mean, v := n.Operand("running_mean"), n.Operand("running_var"); !c.Train && mean != nil && v != nil {
				if err := inferBatchNorm(g, n, gone); err != nil {
					return err
				}
				c.Count("batch_norms_fixed", 1)
			}
		}
	}
	removeNodes(g, gone)
	return nil
}

func returnOutputs(g *ir.Graph, c *Context) error {
	for _, out := range c.Outputs {
		v := g.Value(out.Value)
		if v == nil {
			return fmt.Errorf("output %q: no such value in graph @%s", out.Value, g.Name)
		}
		g.Return = append(g.Return, v)
	}
	return nil
}

// inferBatchNorm turns n into batch_norm_infer in place. Its batch statistics
// are read by nothing in a source graph but results the user asked for, which
// become the running ones.
func inferBatchNorm(g *ir.Graph, n *ir.Node, gone map[*ir.Value]*ir.Value) error {
	mean, variance := n.Operand("running_mean"), n.Operand("running_var")
	for i, v := range n.Out[1:] {
		switch name := n.Def().Out[i+1].Name; name {
		case "mean", "new_mean":
			gone[v] = mean
		case "new_var":
			gone[v] = variance
		default:
			gone[v] = nil
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
