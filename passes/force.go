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
// matching rule of the policy. A backward node goes with its forward node. A
// rule that matches nothing is an error.
func forcedPins(g *ir.Graph, p Policy) ([]force, error) {
	_, nodes := g.Number()
	forced := make([]force, nodes)
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
	for i, r := range p.Rules {
		if !used[i] {
			return nil, fmt.Errorf("policy %s: pattern %q matches nothing in graph @%s", p.Name, r.Pattern, g.Name)
		}
	}
	return forced, nil
}
