package convert

import (
	"maps"
	"slices"

	"ampc/ir"
	"ampc/onnx"
	"ampc/passes/plan"
)

// launch is the cost of an additional node in bytes, on top of the bytes that it moves. It keeps
// the cast of a small value from being free.
const launch = 1 << 12

// price decides the nodes that are free, so that the model moves the fewest
// bytes, casts included. In ONNX every node is a kernel of its own, whose operands
// and results are of one type.
func (p *convertPlan) price() {
	w := plan.New()
	choices := make([]plan.Choice, len(p.half))
	for i := range choices {
		switch {
		case p.free[i]:
			choices[i] = w.Choose()
		case p.half[i]:
			choices[i] = plan.Low
		default:
			choices[i] = plan.F32
		}
	}
	tensors := map[string]plan.TensorID{}
	tensor := func(name string) (plan.TensorID, int64, bool) {
		typ := p.x.Types[name]
		if typ.DType != ir.F32 || !typ.Shape.Known() {
			return 0, 0, false
		}
		bytes := 2*typ.Shape.Elements() + launch
		id, ok := tensors[name]
		if !ok {
			stored := plan.F32
			_, cast := p.recast[name]
			if p.given[name] {
				stored = plan.Low
			} else if p.owner(name) != nil || cast {
				if !p.needed[name] {
					stored = w.Choose()
				}
			} else if i, made := p.from[name]; made {
				stored = choices[i]
			}
			id = w.Tensor(plan.Tensor{Stored: stored, Bytes: bytes, CopyTimes: 1})
			tensors[name] = id
		}
		return id, bytes, true
	}
	for i, n := range p.m.Graph.Nodes {
		c := plan.Cluster{Name: n.Name, Times: 1}
		for k, name := range n.In {
			if id, bytes, ok := tensor(name); ok {
				c.Ports = append(c.Ports, plan.Port{Tensor: id, Bytes: bytes, Takes: p.takes(n, k, choices[i])})
			}
		}
		for _, name := range n.Out {
			takes := choices[i]
			if _, cast := p.recast[name]; cast {
				takes = plan.AsStored
			}
			if id, bytes, ok := tensor(name); ok {
				c.Ports = append(c.Ports, plan.Port{Tensor: id, Write: true, Bytes: bytes, Takes: takes})
			}
		}
		w.Clusters = append(w.Clusters, c)
	}
	caller := plan.Cluster{Name: "caller", Times: 1, Outside: true}
	for takes, names := range []map[string]bool{plan.F32: p.needed, plan.Low: p.asked} {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if id, bytes, ok := tensor(name); ok && names[name] {
				caller.Ports = append(caller.Ports, plan.Port{Tensor: id, Bytes: bytes, Takes: plan.Choice(takes)})
			}
		}
	}
	w.Clusters = append(w.Clusters, caller)
	r := plan.NewSolver(w).Solve()
	for i, c := range choices {
		if !p.free[i] {
			continue
		}
		if p.half[i] = r.Low(c); !p.half[i] && p.why[i] == "" {
			p.why[i] = "16 bits would cost more casts than they save"
		}
	}
}

// takes is the name of the value that a node reads at an operand.
func (p *convertPlan) takes(n *onnx.Node, k int, own plan.Choice) plan.Choice {
	switch {
	case n.Op == "Shape" || n.Op == "Size" || n.Op == "Cast":
		return plan.AsStored
	case p.stays(n, k):
		return plan.F32
	}
	return own
}
