package ir

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Parse reads the text form. Messages begin with name. Custom ops must be given; the text spells
// them @name.
func Parse(name string, src []byte, custom ...*Def) (*Graph, error) {
	p := &parser{lex: lexer{file: name, src: src, line: 1}, custom: map[string]*Def{}}
	for _, d := range custom {
		p.custom[d.Name] = d
	}
	return p.file()
}

func (p *parser) file() (*Graph, error) {
	p.advance()
	g := p.graph(nil)
	if p.err == nil && p.tok.kind != tokEOF {
		p.fail("text after the graph: %s", p.tok)
	}
	if p.err != nil {
		return nil, p.err
	}
	return g, nil
}

// maxNesting bounds graphs within attributes, so that hostile text cannot exhaust the stack.
const maxNesting = 32

type parser struct {
	lex    lexer
	tok    token
	last   int // line of the token before tok
	err    error
	custom map[string]*Def
	opaque bool // custom ops may be unknown
	depth  int

	g     *Graph
	b     *Builder
	outer *parser // parser of the enclosing graph, for captured values

	gradNames map[string]*Value // values that names of gradients may contain; nil before the backward section
	grads     map[int]operandAt // by result: the value of the line's grad=
	later     []reference       // of= and grad= whose value is defined in a later line
	said      Attrs             // the line's description of its custom op's row
	primes    map[string]*Value
	section   Section
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = p.lex.errorf(p.tok.line, format, args...)
	}
}

// wrong records an error about the last token; fail is for the next one.
func (p *parser) wrong(format string, args ...any) {
	if p.err == nil {
		p.err = p.lex.errorf(p.last, format, args...)
	}
}

func (p *parser) advance() {
	p.last = p.tok.line
	if p.err != nil {
		p.tok = token{kind: tokEOF, line: p.tok.line}
		return
	}
	t, err := p.lex.next()
	if err != nil {
		p.err = err
		t = token{kind: tokEOF, line: p.lex.line}
	}
	p.tok = t
}

func (p *parser) is(text string) bool {
	return (p.tok.kind == tokPunct || p.tok.kind == tokIdent) && p.tok.text == text
}

func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.fail("expected %q, found %s", text, p.tok)
	}
}

func (p *parser) ident(what string) string {
	t := p.tok
	if t.kind != tokIdent && t.kind != tokString {
		p.fail("expected %s, found %s", what, t)
		return ""
	}
	p.advance()
	return t.text
}

// graph parses one graph. outer is the parser of the enclosing graph.
func (p *parser) graph(outer *parser) *Graph {
	p.expect("graph")
	p.expect("@")
	p.g = &Graph{Name: p.ident("a name")}
	if err := CheckName(p.g.Name); err != nil {
		p.wrong("graph: %v", err)
	}
	p.b = Edit(p.g)
	p.outer, p.primes = outer, map[string]*Value{}
	if outer != nil {
		p.g.Syms = slices.Clone(outer.g.Syms)
	}
	p.expect("{")
	for p.accept("dim") {
		p.dim()
	}
	for p.err == nil {
		kind := slices.Index(varNames[:], p.tok.text)
		if p.tok.kind != tokIdent || kind <= 0 {
			break
		}
		p.advance()
		p.decl(VarKind(kind))
	}
	for s := range NumSections {
		if p.accept(s.String()) {
			p.expect(":")
			p.section = s
			p.b = p.b.In(s)
			for p.err == nil && p.tok.kind == tokValue {
				p.node()
			}
		}
	}
	if p.accept("return") {
		p.g.Return = p.values()
	}
	p.resolve()
	p.expect("}")
	return p.g
}

func (p *parser) decl(kind VarKind) {
	t := p.tok
	if t.kind != tokValue || t.prime {
		p.fail("expected the name of the %s, found %s", kind, t)
		return
	}
	p.advance()
	p.expect(":")
	typ := p.typ()
	var init *Init
	if p.accept("=") {
		init = p.init()
	}
	var attrs Attrs
	if p.is("{") {
		attrs = p.attrs().list
	}
	if p.err != nil {
		return
	}
	p.b.pos = Pos{p.lex.file, t.line}
	p.b.Declare(kind, t.text, typ, init, attrs)
	p.adopt()
}

// adopt takes over the builder's mistake.
func (p *parser) adopt() {
	if p.err == nil && p.b.err != nil {
		p.err = p.b.err
	}
}

func (p *parser) init() *Init {
	if p.tok.kind == tokIdent && !numberText(p.tok.text) {
		i := &Init{Func: p.ident("an initializer")}
		p.expect("(")
		if i.Func == "file" {
			i.File = p.tok.text
			if p.tok.kind != tokString {
				p.fail("expected a file name in quotes, found %s", p.tok)
			}
			p.advance()
			p.expect(",")
			i.Offset = p.integer()
			p.expect(",")
			i.Size = p.integer()
		} else {
			for p.err == nil && !p.is(")") {
				i.Args = append(i.Args, p.number())
				if !p.accept(",") {
					break
				}
			}
		}
		p.expect(")")
		return i
	}
	return &Init{Args: []float64{p.number()}}
}

func numberText(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

func (p *parser) number() float64 {
	x, err := strconv.ParseFloat(p.tok.text, 64)
	if p.tok.kind != tokIdent || err != nil {
		p.fail("expected a number, found %s", p.tok)
	}
	p.advance()
	return x
}

func (p *parser) integer() int64 {
	x, err := strconv.ParseInt(p.tok.text, 10, 64)
	if p.tok.kind != tokIdent || err != nil {
		p.fail("expected an integer, found %s", p.tok)
	}
	p.advance()
	return x
}

func (p *parser) typ() Type {
	name := p.ident("a type")
	d, ok := DTypeOf(name)
	if !ok {
		p.wrong("unknown dtype %q", name)
	}
	p.expect("[")
	if p.accept("*") {
		p.expect("]")
		return Type{DType: d}
	}
	var dims []Dim
	for p.err == nil && !p.is("]") {
		dims = append(dims, p.dimension())
		if !p.accept(",") {
			break
		}
	}
	p.expect("]")
	if err := CheckDims(dims); err != nil {
		p.wrong("%v", err)
	}
	return T(d, dims...)
}

func (p *parser) dimension() Dim {
	text := p.ident("a dimension")
	if text == "?" {
		return UnknownDim
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 0 {
			p.wrong("dimension %d is below zero", n)
		}
		return Dim(n)
	}
	for i, s := range p.g.Syms {
		if s.Name == text {
			return Dim(-i - 1)
		}
	}
	p.wrong("unknown dimension %q: declare it with \"dim %s\"", text, text)
	return 0
}

func (p *parser) values() []*Value {
	var vs []*Value
	for p.err == nil {
		vs = append(vs, p.operand())
		if !p.accept(",") {
			break
		}
	}
	return vs
}

func (p *parser) operand() *Value {
	if p.accept("_") {
		return nil
	}
	t := p.tok
	if t.kind != tokValue {
		p.fail("expected a value, found %s", t)
		return nil
	}
	p.advance()
	if v := p.lookup(t); v != nil {
		return v
	}
	if p.err == nil {
		p.err = p.lex.errorf(t.line, "%s is used before it is defined", t.valueText())
	}
	return nil
}

func (p *parser) lookup(t token) *Value {
	for q := p; q != nil; q = q.outer {
		if t.prime {
			if v := q.primes[t.text]; v != nil {
				return v
			}
		} else if v := q.b.names.get(t.text); v != nil {
			return v
		}
	}
	return nil
}

// node parses one line: results, op, operands, attributes, types.
func (p *parser) node() {
	line := p.tok.line
	results := p.results()
	p.expect("=")
	n := &Node{Pos: Pos{p.lex.file, line}}
	p.opName(n)
	p.said = nil
	if p.err == nil && (p.tok.kind == tokValue || p.is("_")) {
		n.In = p.values()
	}
	if p.accept("|") {
		n.Captured = p.values()
	}
	if p.is("{") {
		p.nodeAttrs(n)
	}
	var types []Type
	if p.accept(":") {
		for p.err == nil {
			types = append(types, p.typ())
			if !p.accept(",") {
				break
			}
		}
	}
	if p.err == nil {
		p.finish(n, results, types, line)
	}
}

func (p *parser) results() []token {
	var ts []token
	for p.err == nil {
		t := p.tok
		if t.kind != tokValue {
			p.fail("expected a result, found %s", t)
			return nil
		}
		p.advance()
		if dup := p.duplicate(t, ts); dup != "" {
			p.err = p.lex.errorf(t.line, "%s", dup)
			return nil
		}
		ts = append(ts, t)
		if !p.accept(",") {
			break
		}
	}
	return ts
}

func (p *parser) opName(n *Node) {
	if p.accept("@") {
		name := p.ident("an op")
		n.Op, n.Custom = OpCustom, p.custom[name]
		if n.Custom == nil && p.opaque {
			n.Custom = &Def{Name: name, Doc: opaqueDoc, Flags: External}
		}
		if n.Custom == nil {
			p.wrong("unknown custom op @%s: give its definition to Parse", name)
		}
		return
	}
	name := p.ident("an op")
	op, ok := OpNamed(name)
	if !ok {
		msg := fmt.Sprintf("unknown op %q", name)
		if s := NearestOp(name); s != "" {
			msg += fmt.Sprintf(", did you mean %q?", s)
		}
		p.wrong("%s", msg)
	}
	n.Op = op
}

type parsedAttrs struct {
	list    Attrs
	named   []operandAt
	written []SourceCast
}

func (p *parser) attrs() parsedAttrs {
	var a parsedAttrs
	p.expect("{")
	for p.err == nil && !p.is("}") {
		name := p.ident("an attribute")
		if a.has(name) {
			p.wrong("attribute %s occurs twice", name)
		}
		if !p.accept("=") {
			a.list = a.list.With(name, true)
			continue
		}
		if p.tok.kind == tokValue && name == written {
			a.written = p.sourceCasts()
			continue
		}
		if p.tok.kind == tokValue {
			a.named = append(a.named, p.named(name))
			continue
		}
		a.list = a.list.With(name, p.attrValue())
	}
	p.expect("}")
	return a
}

func (a *parsedAttrs) has(name string) bool {
	return name == written && a.written != nil || a.list.Get(name) != nil || slices.ContainsFunc(a.named, func(o operandAt) bool { return o.name == name })
}

func (p *parser) attrValue() any {
	if p.tok.kind == tokString {
		s := p.tok.text
		p.advance()
		return s
	}
	if p.is("graph") {
		return p.nested()
	}
	if p.accept("[") {
		return p.listValue()
	}
	text := p.ident("a value")
	return scalarValue(text)
}

func (p *parser) listValue() any {
	var ints []int64
	var floats []float64
	float := p.accept(".")
	for p.err == nil && !p.is("]") {
		switch x := scalarValue(p.ident("a number")).(type) {
		case int64:
			ints, floats = append(ints, x), append(floats, float64(x))
		case float64:
			float, floats = true, append(floats, x)
		default:
			p.wrong("a list holds numbers only")
		}
		if !p.accept(",") {
			break
		}
	}
	p.expect("]")
	if float {
		return append([]float64{}, floats...)
	}
	return append([]int64{}, ints...)
}

func (p *parser) nested() any {
	if p.depth >= maxNesting {
		p.fail("graphs are nested deeper than %d", maxNesting)
		return nil
	}
	q := &parser{lex: p.lex, tok: p.tok, last: p.last, custom: p.custom, opaque: p.opaque, depth: p.depth + 1}
	g := q.graph(p)
	p.lex, p.tok, p.last, p.err = q.lex, q.tok, q.last, q.err
	return g
}

// nodeAttrs divides the list in braces into attributes, named operands, of= and pin=.
func (p *parser) nodeAttrs(n *Node) {
	a := p.attrs()
	p.takeGrads(&a)
	if pin, ok := a.list.Get("pin").(string); ok || a.list.Get("pin") == F32 {
		if !ok {
			pin = "f32"
		}
		i := slices.Index(pinNames[:], pin)
		if i <= 0 {
			p.wrong("pin is %q, want f32, tf32 or low", pin)
			return
		}
		n.Pin = Pin(i)
		a.list = a.list.Without("pin")
	}
	p.stepNumber(n, &a.list, "cluster", &n.Why.Cluster)
	p.stepNumber(n, &a.list, "launch", &n.Why.Launch)
	n.takeMarks(&a.list)
	n.Attrs, n.Why.Casts = a.list, a.written
	if n.Op == OpCustom {
		n.Attrs, p.said = takeSaid(a.list)
	}
	for _, o := range a.named {
		if p.err == nil {
			p.namedOperand(n, o)
		}
	}
}

// stepNumber removes the number of a cluster or a launch from n's list.
func (p *parser) stepNumber(n *Node, list *Attrs, name string, to *int32) {
	id, ok := list.Get(name).(int64)
	if !ok || n.Op == OpForeign {
		return
	}
	if id < 1 || id > math.MaxInt32 {
		p.wrong("%s is %d, want a number above zero", name, id)
	}
	*to = int32(id)
	*list = list.Without(name)
}

func (p *parser) namedOperand(n *Node, o operandAt) {
	if o.name == "of" {
		p.refer(reference{n, ofNode, o})
		return
	}
	for i, d := range n.Def().In {
		if d.Name == o.name && d.Named {
			for len(n.In) <= i {
				n.In = append(n.In, nil)
			}
			n.In[i] = o.v
			return
		}
	}
	p.wrong("%s has no named operand %s", n.Def().Name, o.name)
}

func (p *parser) finish(n *Node, results []token, types []Type, line int) {
	next := make([]*Value, len(results))
	unprimed := 0
	for i, t := range results {
		if t.prime {
			next[i] = p.b.names.get(t.text)
		} else {
			unprimed++
		}
	}
	if len(types) != unprimed && (len(types) > 0 || n.Op == OpForeign) { // types that are written are checked; others are inferred
		p.err = p.lex.errorf(line, "%s: %d results without a prime, %d types", n.Def().Name, unprimed, len(types))
		return
	}
	if n.Op == OpCustom && n.Custom.Doc == opaqueDoc {
		if p.describe(n, results, types); p.err != nil {
			return
		}
	}
	foreign := []Type(nil)
	if n.Op == OpForeign {
		foreign = types
	}
	out := p.b.EmitNode(n, next, foreign...)
	if p.adopt(); p.err != nil {
		return
	}
	if len(out) != len(results) {
		p.err = p.lex.errorf(line, "%s: has %d results, text names %d", n.Def().Name, len(out), len(results))
		return
	}
	for i, t := range results {
		if t.prime {
			p.primes[t.text] = out[i]
			continue
		}
		if len(types) > 0 {
			if out[i].Type != types[0] {
				p.err = p.lex.errorf(line, "%s: result is %s, text says %s", n.Def().Name, p.g.TypeString(out[i].Type), p.g.TypeString(types[0]))
				return
			}
			types = types[1:]
		}
		p.b.names.set(out[i].Name, nil)
		out[i].Name = t.text
		p.b.names.set(t.text, out[i])
	}
	p.setGrads(n)
}
