package main

import (
	"strings"

	"ampc/ir"
)

// checkHasOutput rejects a file without anything to compute: its graph returns nothing and no loss
// is named. The error lists the values that may be losses.
func (o *openedModel) checkHasOutput() error {
	g := o.model.Graph()
	if o.compiled || o.zoo != nil || len(o.losses) > 0 || len(g.Return) > 0 {
		return nil
	}
	losses := candidates(g)
	switch {
	case o.infer:
		return usagef("%s: graph @%s returns nothing, and --infer leaves losses out: write return %%NAME at the end of its forward section", o.spec, g.Name)
	case losses == "":
		return usagef("%s: graph @%s returns nothing: give --train ce:LOGITS,LABELS or --train mse:VALUE,TARGET", o.spec, g.Name)
	}
	return usagef("%s: graph @%s returns nothing: give --train NAME%s", o.spec, g.Name, losses)
}

// candidates lists the values of g that may be losses, in parentheses; "" if there are none.
func candidates(g *ir.Graph) string {
	names := scalars(g)
	if len(names) == 0 {
		return ""
	}
	return " (candidates: " + strings.Join(names, ", ") + ")"
}

// scalars lists the computed f32 values without dimensions that no node reads.
func scalars(g *ir.Graph) (names []string) {
	read := map[*ir.Value]bool{}
	for _, n := range g.Nodes {
		for _, v := range n.In {
			read[v] = true
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Type == ir.T(ir.F32) && !read[v] {
				names = append(names, v.Name)
			}
		}
	}
	return names
}
