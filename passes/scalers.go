package passes

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// roleGradSeed is the role of the constant with which an inner gradient starts.
const roleGradSeed = "grad_seed"

// scalers checks the loss scales after dtypes were chosen. It removes a scale that no f16 value
// carries, unless other steps share it. It refuses an inner gradient that is stored in f16 without
// a scale, if the policy has loss scaling.
func scalers(g *ir.Graph, c *Context) error {
	if err := ir.InferUnits(g); err != nil {
		return err
	}
	if c.Policy.Low == ir.F16 && c.Scaler.Mode != NoScale {
		if err := refuseUnscaled(g); err != nil {
			return err
		}
	}
	for _, s := range c.training.scales {
		shared := s.scaler.Sharing != Alone // another step may update it for this one
		if s.scale == nil || shared || carried(g, s.scale) {
			continue
		}
		removeScale(g, s)
		c.Count("scalers_removed", 1)
		c.note("loss scale %s: no gradient is stored in f16, so it is removed", s.scale)
		s.scale = nil
	}
	return nil
}

// carried reports whether the scale is in the scale unit of some f16 value.
func carried(g *ir.Graph, scale *ir.Value) bool {
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Type.DType == ir.F16 && v.Unit.Has(scale.Name) {
				return true
			}
		}
	}
	return false
}

// refuseUnscaled follows each unscaled inner gradient from its start value.
func refuseUnscaled(g *ir.Graph) error {
	isSeed := func(v *ir.Value) bool { return v.Attr.Get("role") == roleGradSeed }
	if !slices.ContainsFunc(g.Vars, isSeed) {
		return nil
	}
	values, _ := g.Number()
	from := make([]*ir.Value, values) // by value ID: the start value that it is computed from
	for _, v := range g.Vars {
		if isSeed(v) {
			from[v.ID] = v
		}
	}
	for _, n := range g.Body[ir.Forward] {
		seed := (*ir.Value)(nil)
		for _, v := range n.In {
			if v != nil && seed == nil {
				seed = from[v.ID]
			}
		}
		if seed == nil || n.Of == nil && n.Op != ir.OpCast {
			continue
		}
		for _, v := range n.Out {
			from[v.ID] = seed
			if v.Type.DType == ir.F16 && v.Unit == "" {
				return &ir.Error{Pos: n.Pos, Msg: fmt.Sprintf("the gradient %s is stored in f16 and carries no loss scale (it starts at %s): give the gradient a scale, or pin it to f32", v, seed)}
			}
		}
	}
	return nil
}

// removeScale replaces a scale by 1.
func removeScale(g *ir.Graph, s *lossScale) {
	to := map[*ir.Value]*ir.Value{}
	gone := map[*ir.Value]bool{s.scale: true}
	dead := map[*ir.Node]bool{}
	for _, n := range g.Nodes {
		switch {
		case n.Op == ir.OpScale && n.In[1] == s.scale:
			to[n.Out[0]], dead[n] = n.In[0], true
		case n.Op == ir.OpUpdateScale && n.In[0] == s.scale:
			for _, v := range n.In[:5] {
				gone[v] = true
			}
			dead[n] = true
		case n.Op == ir.OpMultiplier && n.In[0] == s.scale:
			n.In[0] = nil
			if isOne(n) {
				dropMultiplier(g, n.Out[0], to, dead)
				dead[n] = true
			}
		}
	}
	g.Filter(func(_ ir.Section, n *ir.Node) bool { return !dead[n] })
	if reads(g, s.scale) {
		to[s.scale] = declareSeed(ir.Edit(g), private("start", ""), 1)
	}
	vars := g.Vars[:0]
	for _, v := range g.Vars {
		if v.Attr.Get("unit") == s.scale.Name {
			v.Attr = v.Attr.Without("unit")
		}
		if !gone[v] {
			vars = append(vars, v)
		}
	}
	g.Vars = vars
	g.Replace(to)
}

func reads(g *ir.Graph, v *ir.Value) bool {
	for _, n := range g.Nodes {
		if slices.Contains(n.In, v) {
			return true
		}
	}
	return slices.Contains(g.Return, v)
}

// readAs reports whether each reader of v computes the same types if its operands are not
// multiplied by mul.
func readAs(g *ir.Graph, uses *ir.Uses, v, mul *ir.Value) bool {
	if slices.Contains(g.Return, v) {
		return false
	}
	for _, use := range uses.Of(v) {
		n := use.Node
		probe := *n
		probe.In = slices.Clone(n.In)
		for i, x := range n.In {
			if x != nil && x.Def != nil && (x.Def.Op == ir.OpUnscale || x.Def.Op == ir.OpMul) {
				if at := slices.Index(x.Def.In, mul); at >= 0 {
					probe.In[i] = x.Def.In[1-at]
				}
			}
		}
		types, err := n.Def().Infer(&probe)
		if err != nil || !slices.EqualFunc(types, n.Out, func(t ir.Type, out *ir.Value) bool { return t == out.Type }) {
			return false
		}
	}
	return true
}

func isOne(n *ir.Node) bool {
	for _, v := range n.In {
		if v != nil {
			return false
		}
	}
	return n.Int("shift") == 0
}

// dropMultiplier removes mul from its readers.
func dropMultiplier(g *ir.Graph, mul *ir.Value, to map[*ir.Value]*ir.Value, dead map[*ir.Node]bool) {
	uses := g.Uses()
	for _, n := range g.Body[ir.Update] {
		for i, v := range n.In {
			switch {
			case v != mul:
			case n.Op == ir.OpUnscale, n.Op == ir.OpMul:
				if x := n.In[1-i]; readAs(g, uses, n.Out[0], mul) {
					to[n.Out[0]], dead[n] = x, true
				} else { // an f32 node, such as one of a hook on gradients
					n.Op, n.In, n.Attrs = ir.OpCast, []*ir.Value{x}, ir.A("to", n.Out[0].Type.DType)
				}
			default:
				n.In[i] = nil
			}
		}
	}
}
