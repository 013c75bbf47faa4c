package ir

import (
	"fmt"
	"slices"
)

// operandAt is a value named in braces, and its position in the text.
type operandAt struct {
	name string
	v    *Value // nil: defined in a later line, as of= and grad= allow
	at   token
}

// named reads the value of a name. The values of of= and grad= are not operands: the order of
// sections does not depend on them.
func (p *parser) named(name string) operandAt {
	o := operandAt{name: name, at: p.tok}
	if _, grad := gradResult(name); (name == "of" || grad) && p.lookup(p.tok) == nil {
		p.advance()
		return o
	}
	o.v = p.operand()
	return o
}

// sourceCasts reads the names of casts, which the graph may no longer have.
func (p *parser) sourceCasts() []SourceCast {
	var casts []SourceCast
	for p.err == nil && p.tok.kind == tokValue {
		casts = append(casts, SourceCast{Name: p.tok.text})
		p.advance()
		if !p.accept(",") {
			return casts
		}
	}
	p.fail("expected the name of a cast, found %s", p.tok)
	return nil
}

// reference is the node that a node comes from (of=), or the value that one of its results is the
// gradient of (grad=).
type reference struct {
	n      *Node
	result int // ofNode, or whose gradient
	to     operandAt
}

const ofNode = -1

// refer sets what r refers to, or, if that is defined in a later line, at the end of the graph.
func (p *parser) refer(r reference) {
	switch v := r.to.v; {
	case v == nil:
		p.later = append(p.later, r)
	case r.result != ofNode:
		r.n.Out[r.result].GradOf = v
	default:
		if r.n.Of = v.Def; r.n.Of == nil && p.err == nil {
			p.err = p.lex.errorf(r.to.at.line, "of=%s is not the result of a node", v)
		}
	}
}

// resolve sets the references to later lines.
func (p *parser) resolve() {
	for _, r := range p.later {
		if r.to.v = p.lookup(r.to.at); r.to.v == nil && p.err == nil {
			p.err = p.lex.errorf(r.to.at.line, "%s is used before it is defined", r.to.at.valueText())
		}
		if p.err != nil {
			return
		}
		p.refer(r)
	}
}

func (p *parser) duplicate(t token, line []token) string {
	for _, u := range line {
		if u.text == t.text && u.prime == t.prime {
			return t.valueText() + " is defined twice"
		}
	}
	if t.prime {
		if p.primes[t.text] != nil {
			return t.valueText() + " is written twice: only the last write carries the prime"
		}
		v := p.b.names.get(t.text)
		if v == nil || !v.IsVar() {
			return fmt.Sprintf("%s: there is no variable %s", t.valueText(), quoteName(t.text))
		}
		return ""
	}
	if old := p.b.names.get(t.text); old != nil {
		return fmt.Sprintf("%s is defined twice: it is already %s", t.valueText(), describe(old))
	}
	return ""
}

func (p *parser) dim() {
	name := p.ident("a dimension name")
	if slices.ContainsFunc(p.g.Syms, func(s Sym) bool { return s.Name == name }) {
		p.wrong("dimension %s is declared twice", name)
	}
	if err := CheckDimName(name); err != nil {
		p.wrong("%v", err)
	}
	s := Sym{Name: name}
	if p.accept("=") {
		s.Nominal = p.integer()
		if s.Nominal <= 0 {
			p.wrong("dimension %s needs a nominal size above zero", name)
		}
	}
	p.g.Syms = append(p.g.Syms, s)
}
