package passes

import (
	"slices"

	"ampc/ir"
)

// override is the precision that code or a policy rule prescribes for a node.
type override struct {
	pin   ir.Pin
	cause ir.Cause
	rule  string
}

// pinOverrides returns the overrides by node ID; IDs are current. A pin in code comes before the
// last matching rule of the policy, which comes before an island. A policy that lists bce itself has
// no islands. A gradient has the override of its forward node, whose name rules match. Lookups of
// sharded weights come last (readCopies).
func pinOverrides(g *ir.Graph, p Policy) []override {
	overrides := make([]override, g.NumNodes())
	var island map[*ir.Node]*ir.Value
	if class, listed := p.Class[ir.OpBCE]; p.Mixed() && (!listed || class == ir.Keep) {
		island = islands(g)
	}
	for _, n := range g.Nodes {
		f := &overrides[n.ID]
		if n.Of != nil && n.Of != n {
			*f = overrides[n.Of.ID]
		}
		if v := island[n]; v != nil {
			*f = override{ir.PinF32, ir.ByIsland, "around " + v.String()}
		}
		p.override(n, f)
	}
	p.readCopies(g, overrides)
	return overrides
}

// overrides is pinOverrides of the policy for g, as it is.
func (c *Context) overrides(g *ir.Graph) []override {
	if c.training.index.overrides == nil {
		c.training.index.overrides = pinOverrides(g, c.Policy)
	}
	return c.training.index.overrides
}

// readCopies makes lookups of a sharded weight read a 16-bit copy, where code and policy leave it open
// and others read that copy already, or nothing reads the weight in f32. Otherwise the ranks would
// gather the weight in f32 for the few rows that are looked up. Gradients of lookups are added up as
// before. An eager policy copies the dtypes of another system, which reads f32.
func (p Policy) readCopies(g *ir.Graph, overrides []override) {
	if !p.Low.Low() || p.Eager {
		return
	}
	parts := map[string]bool{}
	for _, v := range g.Vars {
		if whole := v.PartOf(); whole != "" {
			parts[whole] = true
		}
	}
	if len(parts) == 0 {
		return
	}
	sharded := func(v *ir.Value) bool {
		return v != nil && v.Kind == ir.Param && v.Type.DType.Float() && parts[v.Name]
	}
	free := func(n *ir.Node) bool {
		return looksUp(n) && sharded(n.In[0]) && overrides[n.ID].pin == ir.Unpinned
	}
	copied, wide := map[*ir.Value]bool{}, map[*ir.Value]bool{}
	for _, v := range g.Return {
		wide[v] = true
	}
	for _, n := range g.Nodes {
		pin, isFree := overrides[n.ID].pin, free(n)
		for i, v := range n.In {
			switch {
			case isFree || !sharded(v):
			case n.OperandClass(i) == n.Def().Class && (pin == ir.PinLow || pin == ir.Unpinned && p.classOf(n) == ir.Low):
				copied[v] = true
			default:
				wide[v] = true
			}
		}
	}
	for _, n := range g.Nodes {
		if free(n) && (copied[n.In[0]] || !wide[n.In[0]]) {
			overrides[n.ID] = override{ir.PinLow, ir.ByCopy, n.In[0].Name}
		}
	}
}

// looksUp reports whether n moves the elements of operand 0 that integers select.
func looksUp(n *ir.Node) bool {
	for i := range n.In {
		if n.OperandDef(i).Selects {
			return n.Def().Is(ir.Moves)
		}
	}
	return false
}

// override sets f by n's own pin or the last matching rule.
func (p Policy) override(n *ir.Node, f *override) {
	for _, r := range p.Rules {
		if r.names(n) {
			*f = override{r.Pin, ir.ByPattern, r.Pattern}
		}
	}
	if n.Pin != ir.Unpinned {
		*f = override{n.Pin, ir.ByPin, ""}
	}
}

// names reports whether r names a result of n or a scope around it. The rules of a gradient are
// those of its forward node.
func (r Rule) names(n *ir.Node) bool {
	return (n.Of == nil || n.Of == n) && slices.ContainsFunc(n.Out, func(v *ir.Value) bool {
		return v.Next == nil && Matches(r.Pattern, v.Name)
	})
}

// decidable reports whether a rule could change the dtype in which n computes or stores.
func decidable(n *ir.Node) bool {
	float := func(v *ir.Value) bool { return v != nil && v.Type.DType.Float() }
	return n.Def().Class != ir.Fixed && (slices.ContainsFunc(n.In, float) || slices.ContainsFunc(n.Out, float))
}

// islands are groups of nodes that stay f32, with their gradients: a binary cross entropy of
// probabilities, and the nodes that compute these, back to the sigmoid or softmax or to a node that
// is not elementwise. (recognize leaves cross entropies whose logits it cannot find; for p near 1,
// 1-p is 0 in 16 bits.) The result maps each node to the cross entropy.
func islands(g *ir.Graph) map[*ir.Node]*ir.Value {
	in := map[*ir.Node]*ir.Value{}
	for _, n := range g.Body[ir.Forward] {
		if n.Op != ir.OpBCE {
			continue
		}
		in[n] = n.Out[0]
		for todo := []*ir.Value{n.In[0]}; len(todo) > 0; {
			d := todo[len(todo)-1].Def
			todo = todo[:len(todo)-1]
			switch {
			case d == nil || in[d] != nil || d.Def().Class == ir.Fixed:
			case d.Op == ir.OpSigmoid || d.Op == ir.OpSoftmax:
				in[d] = n.Out[0]
			case d.Def().Elem != nil || isView(d):
				in[d] = n.Out[0]
				for _, v := range d.In {
					if v != nil {
						todo = append(todo, v)
					}
				}
			}
		}
	}
	return in
}

// noteIslands notes every bce that keeps its island f32.
func (a *assigner) noteIslands() {
	for _, n := range a.g.Body[ir.Forward] {
		if n.Op == ir.OpBCE && a.node[n.ID].cause == ir.ByIsland {
			a.c.Count("islands", 1)
			a.c.note("%s: a cross entropy of probabilities is computed in f32, and so are the ops that make the probabilities and their gradients; bce_with_logits runs in %s", n.Out[0], a.low)
		}
	}
}
