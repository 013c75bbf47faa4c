package ir

import "fmt"

// ParseOpaque is Parse for tools without definitions of custom ops. A custom op has its name and
// the row that the text describes (see Graph.Described). Its results have the types of the text. It
// has no kernel (see Opaque).
func ParseOpaque(name string, src []byte) (*Graph, error) {
	p := &parser{lex: lexer{file: name, src: src, line: 1}, opaque: true}
	return p.file()
}

// Opaque returns a custom op of g of which ParseOpaque knows only the name, or nil.
func Opaque(g *Graph) *Node {
	for _, n := range g.Nodes {
		if n.Op == OpCustom && n.Custom.Doc == opaqueDoc {
			return n
		}
	}
	return nil
}

const opaqueDoc = "A custom op whose definition is not at hand."

// describe completes the row of a custom op by the description in one of its nodes.
func (p *parser) describe(n *Node, results []token, types []Type) {
	d := &Def{Name: n.Custom.Name, Doc: opaqueDoc, Flags: External, Class: Fixed, Why: "custom op", NoGrad: "its definition is not at hand: Model.WriteIR writes its gradient into the text"}
	for i := range n.In {
		d.In = append(d.In, Operand{Name: fmt.Sprint("x", i), Kinds: KAny})
	}
	low, _ := p.said.Get(saidLow).([]int64)
	for i := range results {
		d.Out = append(d.Out, Result{Name: fmt.Sprint("y", i)})
	}
	d.hear(p.said)
	for _, a := range n.Attrs {
		d.Attrs = append(d.Attrs, AttrDef{Name: a.Name, Kind: AttrAny})
	}
	if len(types) != len(results) {
		p.wrong("custom op @%s: its definition is not at hand, so the text must say the types of its results", d.Name)
	}
	operands := make([]Type, len(n.In))
	for i, v := range n.In {
		if v != nil {
			operands[i] = v.Type
		}
	}
	d.Infer = func(n *Node) ([]Type, error) { return typed(n, operands, types, low), nil }
	n.Custom = d
}
