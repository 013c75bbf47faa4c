package host

import (
	"fmt"
	"slices"

	"ampc/onnx"
	"ampc/passes"
)

// checkRules returns an error for a rule of the policy that names no result of a node of m, in any of
// its graphs and functions. Regions are compiled one by one, each with all rules.
func checkRules(m *onnx.Model, p passes.Policy) error {
	for _, r := range slices.Concat(p.Rules, p.Stores) {
		found := makes(m.Graph.Nodes, r.Pattern) || slices.ContainsFunc(m.Functions, func(f *onnx.Function) bool { return makes(f.Nodes, r.Pattern) })
		if !found {
			return fmt.Errorf("policy %s: pattern %q matches no result of a node", p.Name, r.Pattern)
		}
	}
	return nil
}

// makes reports whether a node of ns, or of a graph in an attribute of one, has a result that pattern
// matches.
func makes(ns []*onnx.Node, pattern string) bool {
	return slices.ContainsFunc(ns, func(n *onnx.Node) bool {
		return slices.ContainsFunc(n.Out, func(y string) bool { return y != "" && passes.Matches(pattern, y) }) ||
			slices.ContainsFunc(n.Attrs, func(a *onnx.Attribute) bool { return a.G != nil && makes(a.G.Nodes, pattern) })
	})
}
