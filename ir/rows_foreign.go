package ir

import "fmt"

var foreignRows = map[Op]Def{
	OpForeign: {
		Name: "foreign", Doc: "An op of another system kept verbatim: its name, attributes, nested graphs, and after | the values that those read. It is typed by its text, never cast, and computed by no backend.",
		In: in(Operand{Name: "x", Kinds: KAny, Optional: true, Variadic: true}), Out: out(Result{Name: "y"}),
		Attrs: []AttrDef{{Name: "op", Kind: AttrString, Doc: "its name there"}, {Name: "domain", Kind: AttrString, Doc: "its operator set"}},
		Flags: External, Class: Fixed, Why: "kept verbatim", Unit: UnitOne, NoGrad: "its meaning is not known here", Infer: inferForeign, Bound: noBound,
	},
}

func inferForeign(n *Node) ([]Type, error) {
	if n.Str("op") == "" {
		return nil, fmt.Errorf("attribute op is missing")
	}
	types := make([]Type, len(n.Out))
	for i, v := range n.Out {
		types[i] = v.Type
	}
	return types, nil
}

// Foreign keeps an op of another system. op is its name there, in may hold nil
// for absent operands, captured lists what its nested graphs read from here,
// and types are those of its results. A nested graph reads values of the graph
// around it directly, and its symbols start with that graph's.
func (b *Builder) Foreign(op string, in, captured []*Value, a Attrs, types ...Type) []*Value {
	return b.EmitNode(&Node{Op: OpForeign, In: in, Captured: captured, Attrs: a.With("op", op)}, nil, types...)
}
