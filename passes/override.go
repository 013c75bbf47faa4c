package passes

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// override is the precision that code or a policy rule prescribes for a node.
type override struct {
	pin   ir.Pin
	cause ir.Cause
	rule  string
}

// pinOverrides returns, by node ID, the overrides: a pin in code beats the last
// matching rule of the policy, which beats an island; a policy that lists bce
// otherwise has none. A gradient goes with its forward node: no rule matches
// its name. A rule that could change nothing is an error; one that a later rule
// overrules is none, as that is what later rules are for.
func pinOverrides(g *ir.Graph, p Policy) ([]override, error) {
	_, nodes := g.Number()
	overrides := make([]override, nodes)
	var island map[*ir.Node]*ir.Value
	if class, listed := p.Class[ir.OpBCE]; p.Mixed() && (!listed || class == ir.Keep) {
		island = islands(g)
	}
	used := make([]bool, len(p.Rules))
	for _, n := range g.Nodes {
		f := &overrides[n.ID]
		if n.Of != nil && n.Of != n {
			*f = overrides[n.Of.ID]
		}
		if v := island[n]; v != nil {
			*f = override{ir.PinF32, ir.ByIsland, "around " + v.String()}
		}
		p.override(n, f)
		for i, r := range p.Rules {
			used[i] = used[i] || r.names(n) && decidable(n) && (n.Pin == ir.Unpinned || n.Pin == r.Pin || !p.Mixed())
		}
	}
	for i, r := range p.Rules {
		if !used[i] && !p.decidesVar(g, r) {
			return nil, r.located(fmt.Errorf("policy %s: %s", p.Name, r.idle(g)))
		}
	}
	return overrides, nil
}

// override sets f to what n's own pin or else the last matching rule says.
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

// located puts the file and the line of the rule before an error.
func (r Rule) located(err error) error {
	if r.Pos == "" {
		return err
	}
	return fmt.Errorf("%s: %w", r.Pos, err)
}

// names reports whether r speaks of node n: of a result by its name, or of a
// scope around it. Gradients are decided with the node that they are of.
func (r Rule) names(n *ir.Node) bool {
	return (n.Of == nil || n.Of == n) && slices.ContainsFunc(n.Out, func(v *ir.Value) bool {
		return v.Next == nil && Matches(r.Pattern, v.Name)
	})
}

// decidable reports whether a rule could change how n computes or what it stores.
func decidable(n *ir.Node) bool {
	float := func(v *ir.Value) bool { return v != nil && v.Type.DType.Float() }
	return n.Def().Class != ir.Fixed && (slices.ContainsFunc(n.In, float) || slices.ContainsFunc(n.Out, float))
}

// decidesVar reports whether r changes how a variable is stored or read: it does
// where the policy casts variables for every reader.
func (p Policy) decidesVar(g *ir.Graph, r Rule) bool {
	return slices.ContainsFunc(g.Vars, func(v *ir.Value) bool {
		cast := p.Cast && (v.Kind == ir.Param || v.Kind == ir.Input) || p.NoMasters && v.Kind == ir.Param
		return (cast || !p.Mixed()) && v.Type.DType.Float() && Matches(r.Pattern, v.Name)
	})
}

// idle says why r changes nothing, and what to write instead.
func (r Rule) idle(g *ir.Graph) string {
	for _, n := range g.Nodes {
		if r.names(n) {
			return fmt.Sprintf("pattern %q changes nothing: %s", r.Pattern, overruled(n))
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if of := v.Decider(); of != nil && of != v && v.Next == nil && Matches(r.Pattern, v.Name) {
				return fmt.Sprintf("pattern %q changes nothing: %s is a gradient and goes with %s; name that", r.Pattern, v, of)
			}
		}
	}
	for _, v := range g.Vars {
		if !Matches(r.Pattern, v.Name) {
			continue
		}
		if reader := readerOf(g, v); reader != nil {
			return fmt.Sprintf("pattern %q changes nothing: %s is a variable and keeps its dtype; name what reads it, such as %s", r.Pattern, v, reader.Out[0])
		}
		return fmt.Sprintf("pattern %q changes nothing: %s is a variable and keeps its dtype", r.Pattern, v)
	}
	return fmt.Sprintf("pattern %q matches nothing in graph @%s", r.Pattern, g.Name)
}

// overruled says what decides n in the place of rules.
func overruled(n *ir.Node) string {
	if !decidable(n) {
		return fmt.Sprintf("no policy decides the dtype of %s = %s", n.Out[0], n.Def().Name)
	}
	return fmt.Sprintf("%s is pinned in code (%s)", n.Out[0], n.Pos)
}

// readerOf is the first node that reads v and has a result, nil where none does.
func readerOf(g *ir.Graph, v *ir.Value) *ir.Node {
	for _, n := range g.Nodes {
		if slices.Contains(n.In, v) && len(n.Out) > 0 {
			return n
		}
	}
	return nil
}

// islands are the nodes that stay f32 together, their gradients with them: a
// binary cross entropy of probabilities (recognize leaves the ones whose logits
// it cannot see; 1-p of p near 1 is 0 in 16 bits) and what makes the
// probabilities, back to the sigmoid or softmax or to what is not elementwise.
// By node: the cross entropy.
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

// noteIslands tells of every bce that keeps its island f32.
func (a *assigner) noteIslands() {
	for _, n := range a.g.Body[ir.Forward] {
		if n.Op == ir.OpBCE && a.node[n.ID].cause == ir.ByIsland {
			a.c.Count("islands", 1)
			a.c.note("%s: a cross entropy of probabilities is computed in f32, and so are the ops that make the probabilities and their gradients; bce_with_logits runs in %s", n.Out[0], a.low)
		}
	}
}
