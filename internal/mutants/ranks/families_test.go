package ranks

import (
	"fmt"

	"ampc/ir"
)

// families are the kinds of mutations.
func families() []family {
	return []family{
		{"a message is not sent", unsent},
	}
}

// unsent lets readers of what a message brings read what it takes.
func unsent(s *subject, g *ir.Graph) []mutation {
	var all []mutation
	for k, n := range messages(g) {
		for i, v := range n.Out {
			if v.Type != n.In[i].Type {
				continue // an all_gather
			}
			all = append(all, mutation{what: fmt.Sprintf("%s for %s", n.In[i], v), rank: -1, edit: func(g *ir.Graph) bool {
				x := messages(g)[k]
				g.Replace(map[*ir.Value]*ir.Value{x.Out[i]: x.In[i]})
				return true
			}})
		}
	}
	return all
}

// messages are the nodes that send, in their order.
func messages(g *ir.Graph) []*ir.Node {
	var sent []*ir.Node
	for _, n := range g.Nodes {
		if n.Def().Is(ir.Collective) {
			sent = append(sent, n)
		}
	}
	return sent
}
