package prove

import (
	"slices"

	"ampc/ir"
)

// Notes lists casts of f that cost time and change nothing: two casts of a value to one dtype, a
// cast there and back, a cast to the same dtype, or a cast of a weight in every micro-batch. They
// break no rule.
func Notes(f *ir.Graph) []Finding {
	type copyOf struct {
		v *ir.Value
		d ir.DType
	}
	first := map[copyOf]*ir.Node{}
	var notes []Finding
	for s, n := range f.Nodes {
		if n.Op != ir.OpCast || len(n.Out) == 0 || n.Out[0].Next != nil {
			continue
		}
		v, d := n.In[0], n.Out[0].Type.DType
		note := func(text string) {
			notes = append(notes, Finding{Check: "note", Node: n.Name(), Pos: n.Pos, Text: text})
		}
		k := copyOf{v, d}
		if old := first[k]; old != nil {
			note(v.String() + " is cast to " + d.String() + " again: " + old.Name() + " is the same")
		} else {
			first[k] = n
		}
		switch before := v.Def; {
		case v.Type.DType == d:
			note("casts " + d.String() + " to itself")
		case before != nil && before.Op == ir.OpCast && before.In[0].Type.DType == d && v.Type.DType.Holds(d):
			note("casts " + before.In[0].String() + " there and back")
		case v.Kind == ir.Param && d.Low() && s != ir.Prepare && s != ir.Update:
			note("casts a weight once for every micro-batch")
		}
	}
	return slices.Clip(notes)
}
