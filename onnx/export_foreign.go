package onnx

import (
	"slices"

	"ampc/ir"
)

// What foreign ops hold beside the attributes of their operators: opset is the version
// of their domain, lost are attributes that a graph's text does not hold.
var foreignOwn = []string{"op", "domain", "opset", "lost"}

// foreignExports write nodes that were carried as they were read.
var foreignExports = []export{{op: ir.OpForeign, since: 1, write: func(x *exporter, n *ir.Node) {
	domain, version := standard(n.Str("domain")), n.Int("opset")
	if lost := n.Str("lost"); lost != "" {
		x.fail("its attributes %s were not kept when the model was read", lost)
		return
	}
	switch have := x.domains[domain]; {
	case domain == "" && version != x.opset:
		x.fail("the node is of opset %d: export with that opset", version)
		return
	case domain != "" && have != 0 && have != version:
		x.fail("the graph has nodes of operator set %s in versions %d and %d: a model has one version", domain, have, version)
		return
	case domain != "":
		x.domains[domain] = version
	}
	var out []string
	for i, y := range n.Out {
		out = append(out, x.result(n, i))
		if !slices.Contains(x.g.Return, y) {
			x.infos = append(x.infos, x.info(out[i], y.Type))
		}
	}
	node := NewNode{Name: out[0], Op: n.Str("op"), Domain: domain, In: x.ins(n), Out: out}
	for _, a := range n.Attrs {
		v := a.Value
		if f, ok := v.(float64); ok {
			v = float32(f)
		}
		if !slices.Contains(foreignOwn, a.Name) {
			node.Attrs = append(node.Attrs, NewAttr{a.Name, v})
		}
	}
	x.nodes.message(1, node.pieces())
	x.count++
}}}
