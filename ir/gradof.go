package ir

import (
	"fmt"
	"strings"
)

// The text form says by names which value a backward value is the gradient of: %d.x, or %d.LOSS.x
// in the sweep of a loss, is the gradient of %x. If the name is wrong, the attribute grad= says it
// (grad.1= for the second result, and so on). grad=_ says that a value is not a gradient although
// its name says so.

// gradNames maps the names that gradients may contain to their values: variables and results of the
// forward section.
func gradNames(g *Graph) map[string]*Value {
	names := make(map[string]*Value, len(g.Vars)+len(g.Body[Forward]))
	for _, v := range g.Vars {
		names[v.Name] = v
	}
	for _, n := range g.Body[Forward] {
		for _, v := range n.Out {
			if v.Next == nil {
				names[v.Name] = v
			}
		}
	}
	return names
}

// namedGradOf is the value of which v, a result of n, is the gradient by its name, or nil. names is
// nil outside the backward section.
func namedGradOf(names map[string]*Value, n *Node, v *Value) *Value {
	name, ok := strings.CutPrefix(v.Name, "d.")
	if names == nil || !ok || v.Next != nil {
		return nil
	}
	if loss, ok := n.Attrs.Get("loss").(string); ok {
		if own, ok := strings.CutPrefix(name, loss+"."); ok && names[own] != nil {
			return names[own]
		}
	}
	return names[name]
}

// gradAttr is the name of the attribute for result i.
func gradAttr(i int) string {
	if i == 0 {
		return "grad"
	}
	return fmt.Sprintf("grad.%d", i)
}

// gradResult is the result that an attribute name of gradAttr is for. ok is false for other names.
func gradResult(name string) (i int, ok bool) {
	if name == "grad" {
		return 0, true
	}
	n, err := fmt.Sscanf(name, "grad.%d", &i)
	return i, n == 1 && err == nil && i > 0 && gradAttr(i) == name
}

// gradAttrs lists the grad= attributes that n's results need because their names are not enough.
func gradAttrs(names map[string]*Value, n *Node) []string {
	var s []string
	for i, v := range n.Out {
		if v.GradOf != namedGradOf(names, n, v) {
			s = append(s, gradAttr(i)+"="+v.GradOf.String())
		}
	}
	return s
}

// takeGrads removes the grad= attributes of a line from its attributes.
func (p *parser) takeGrads(a *parsedAttrs) {
	p.grads = nil
	said := func(o operandAt) bool {
		i, ok := gradResult(o.name)
		if ok && p.grads == nil {
			p.grads = map[int]operandAt{}
		}
		if ok {
			p.grads[i] = o
		}
		return ok
	}
	named := a.named[:0]
	for _, o := range a.named {
		if !said(o) {
			named = append(named, o)
		}
	}
	a.named = named
	for _, x := range a.list {
		if x.Value == "_" && said(operandAt{name: x.Name}) {
			a.list = a.list.Without(x.Name)
		}
	}
}

// setGrads links the results of n to the values that they are the gradients of.
func (p *parser) setGrads(n *Node) {
	if p.section == Backward && p.gradNames == nil {
		p.gradNames = gradNames(p.g)
	}
	for i, v := range n.Out {
		switch of, said := p.grads[i]; {
		case !said:
			v.GradOf = namedGradOf(p.gradNames, n, v)
		case of.at.kind == tokValue:
			p.refer(reference{n, i, of})
		}
	}
	p.grads = nil
}

// Decider is the value whose name policy rules use to decide how v is stored. For a gradient it is
// the forward value that it is the gradient of. If that is a variable or unknown, it is the result
// of the node whose gradient computes v. It is nil if v is not a gradient.
func (v *Value) Decider() *Value {
	switch {
	case v.Def == nil:
		return nil
	case v.GradOf != nil && v.GradOf.Def != nil:
		return v.GradOf
	case v.Def.Of == nil || v.Def.Of == v.Def:
		return v
	case len(v.Def.Of.Out) > 0:
		return v.Def.Of.Out[0]
	}
	return nil
}
