package passes

import (
	"fmt"

	"ampc/ir"
)

// force is the precision that code or a policy rule prescribes for a node.
type force struct {
	pin   ir.Pin
	cause ir.Cause
	rule  string
}

// forcedPins returns, by node ID, what is forced: a pin in code beats the last
// matching rule of the policy, which beats an island; a policy that lists bce
// otherwise has none. A backward node goes with
// its forward node. A rule that matches nothing is an error.
func forcedPins(g *ir.Graph, p Policy) ([]force, error) {
	_, nodes := g.Number()
	forced := make([]force, nodes)
	var island map[*ir.Node]*ir.Value
	if class, listed := p.Class[ir.OpBCE]; p.Mixed() && (!listed || class == ir.Keep) {
		island = islands(g)
	}
	used := make([]bool, len(p.Rules))
	for _, v := range g.Vars {
		for i, r := range p.Rules {
			used[i] = used[i] || matchScope(r.Pattern, v.Name)
		}
	}
	for _, n := range g.Nodes {
		f := &forced[n.ID]
		if n.Of != nil && n.Of != n {
			*f = forced[n.Of.ID]
		}
		if v := island[n]; v != nil {
			*f = force{ir.PinF32, ir.ByIsland, "around " + v.String()}
		}
		p.force(n, f, used)
	}
	for i, r := range p.Rules {
		if !used[i] {
			return nil, fmt.Errorf("policy %s: pattern %q matches nothing in graph @%s", p.Name, r.Pattern, g.Name)
		}
	}
	return forced, nil
}

// force overwrites f with what n's own pin or else the last matching rule says,
// and marks the rules that match.
func (p Policy) force(n *ir.Node, f *force, used []bool) {
	for i, r := range p.Rules {
		if len(n.Out) > 0 && n.Out[0].Next == nil && matchScope(r.Pattern, n.Out[0].Name) {
			used[i] = true
			*f = force{r.Pin, ir.ByPattern, r.Pattern}
		}
	}
	if n.Pin != ir.Unpinned {
		*f = force{n.Pin, ir.ByPin, ""}
	}
}

// islands are the nodes that stay f32 together, their gradients with them: a
// binary cross entropy of probabilities (recognise leaves the ones whose logits
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
			a.c.Note("%s: a cross entropy of probabilities runs in f32, with what makes them and the gradients; bce_with_logits runs in %s", n.Out[0], a.low)
		}
	}
}
