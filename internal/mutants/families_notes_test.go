package mutants

import (
	"fmt"
	"math/rand/v2"

	"ampc/ir"
)

// Mutations of annotations: what the claim does not trust. None may change a verdict.

func ofNotes() []family {
	return []family{
		{name: "reasons changed", list: noted(changeWhy)},
		{name: "origin changed", list: noted(changeOf)},
		{name: "groups changed", list: noted(changeGroup)},
		{name: "names changed", list: noted(changeNames)},
		{name: "gradient names changed", list: noted(changeGradOf)},
		{name: "pins changed", list: noted(changePin)},
		{name: "all annotations changed", list: noted(changeAll)},
	}
}

func noted(change func(g *ir.Graph, r *rand.Rand)) func(s *subject, add adder) {
	return func(s *subject, add adder) {
		for i := range 2 {
			add(nil, func(m *mutant) bool { change(m.g, s.rand("notes", i)); return true }, "seed %d", i)
		}
	}
}

func nodesOf(g *ir.Graph) (list []*ir.Node) {
	for _, n := range g.Nodes {
		list = append(list, n)
	}
	return list
}

func changeWhy(g *ir.Graph, r *rand.Rand) {
	for _, n := range g.Nodes {
		n.Why.Class, n.Why.Cause = ir.Class(r.IntN(6)), ir.Cause(r.IntN(11))
		n.Why.Marks, n.Why.From, n.Why.Rule = ir.Marks(r.IntN(128)), nil, ""
		n.Why.Casts = nil
		if r.IntN(4) == 0 {
			n.Why.Casts = []ir.SourceCast{{Name: "written"}}
		}
	}
}

func changeOf(g *ir.Graph, r *rand.Rand) {
	list := nodesOf(g)
	for _, n := range list {
		if n.Of = nil; r.IntN(2) == 0 {
			n.Of = list[r.IntN(len(list))]
		}
	}
}

func changeGroup(g *ir.Graph, r *rand.Rand) {
	for _, n := range g.Nodes {
		n.Why.Cluster = int32(r.IntN(4))
	}
}

// changeNames renames what nodes compute. A variable's name is what a runtime finds it by, and stays.
func changeNames(g *ir.Graph, r *rand.Rand) {
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Next == nil {
				v.Name = fmt.Sprintf("n.%d", r.Uint64())
			}
		}
	}
}

func changeGradOf(g *ir.Graph, r *rand.Rand) {
	list := nodesOf(g)
	for _, n := range list {
		for _, v := range n.Out {
			if v.GradOf = nil; r.IntN(2) == 0 {
				v.GradOf = list[r.IntN(len(list))].Out[0]
			}
		}
	}
}

// changePin changes what code forced: the training graph says it.
func changePin(g *ir.Graph, r *rand.Rand) {
	for _, n := range g.Nodes {
		n.Pin = ir.Pin(r.IntN(4))
	}
}

func changeAll(g *ir.Graph, r *rand.Rand) {
	changeWhy(g, r)
	changeOf(g, r)
	changeGroup(g, r)
	changeNames(g, r)
	changeGradOf(g, r)
	changePin(g, r)
}
