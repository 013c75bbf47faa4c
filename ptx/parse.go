package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse reads PTX text in the subset this package prints, with free layout, comments and several
// statements on a line. It checks form only; call Verify for meaning.
func Parse(text string) (*Module, error) {
	p := &parser{toks: lex(text)}
	m := &Module{}
	for p.err == nil && p.peek() != "" {
		switch t := p.next(); t {
		case ".version":
			p.version(m)
		case ".target":
			m.Flavour.SM = p.target()
		case ".address_size":
			p.expect("64")
		case ".visible":
		case ".entry":
			m.Kernels = append(m.Kernels, p.kernel())
		default:
			p.fail("unexpected %q", t)
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return m, nil
}

type token struct {
	text string
	line int
}

// lex splits text into words and punctuation, dropping comments.
func lex(text string) []token {
	var out []token
	line := 1
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(text[i:], "//"):
			i = skipTo(text, i, "\n")
		case strings.HasPrefix(text[i:], "/*"):
			end := skipTo(text, i, "*/")
			line += strings.Count(text[i:end], "\n")
			i = min(end+2, len(text))
		case isWord(c):
			j := i
			for j < len(text) && isWord(text[j]) {
				j++
			}
			out = append(out, token{text[i:j], line})
			i = j
		default:
			out = append(out, token{string(c), line})
			i++
		}
	}
	return out
}

func skipTo(text string, i int, mark string) int {
	if j := strings.Index(text[i:], mark); j >= 0 {
		return i + j
	}
	return len(text)
}

func isWord(c byte) bool {
	return c == '.' || c == '_' || c == '%' || c == '$' ||
		c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

type parser struct {
	toks []token
	pos  int
	err  error
	k    *Kernel
}

func (p *parser) fail(format string, args ...any) {
	if p.err != nil {
		return
	}
	line := 0
	if n := len(p.toks); n > 0 {
		line = p.toks[min(max(p.pos-1, 0), n-1)].line
	}
	p.err = fmt.Errorf("ptx: line %d: %w", line, fmt.Errorf(format, args...))
}

func (p *parser) peek() string {
	if p.err != nil || p.pos >= len(p.toks) {
		return ""
	}
	return p.toks[p.pos].text
}

func (p *parser) next() string {
	t := p.peek()
	if t == "" {
		p.fail("unexpected end of text")
	}
	p.pos++
	return t
}

func (p *parser) expect(want string) {
	if t := p.next(); t != want {
		p.fail("want %q, have %q", want, t)
	}
}

func (p *parser) accept(want string) bool {
	if p.peek() != want {
		return false
	}
	p.pos++
	return true
}

func (p *parser) number() int {
	t := p.next()
	n, err := strconv.Atoi(t)
	if err != nil {
		p.fail("want a number, have %q", t)
	}
	return n
}

func (p *parser) version(m *Module) {
	major, minor, ok := strings.Cut(p.next(), ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if !ok || err1 != nil || err2 != nil {
		p.fail("malformed .version")
	}
	m.Flavour.Version = a*10 + b
}

func (p *parser) target() int {
	t := p.next()
	sm, err := strconv.Atoi(strings.TrimPrefix(t, "sm_"))
	if err != nil {
		p.fail("unknown target %q", t)
	}
	return sm
}

func (p *parser) kernel() *Kernel {
	k := &Kernel{Name: p.next()}
	p.k = k
	p.expect("(")
	for p.err == nil && !p.accept(")") {
		p.accept(",")
		p.expect(".param")
		typ := strings.TrimPrefix(p.next(), ".")
		k.Params = append(k.Params, Param{Name: p.next(), Type: typ})
	}
	if p.accept(".maxntid") {
		k.Threads = p.number()
		for p.accept(",") {
			p.expect("1")
		}
	}
	if p.accept(".minnctapersm") {
		k.Blocks = p.number()
	}
	p.expect("{")
	for p.err == nil && !p.accept("}") {
		p.statement()
	}
	return k
}

func (p *parser) statement() {
	switch p.peek() {
	case ".reg":
		p.pos++
		p.registers()
	case ".shared":
		p.pos++
		p.shared()
	default:
		p.instruction()
	}
}

func (p *parser) registers() {
	t := p.next()
	info, ok := typeInfo[strings.TrimPrefix(t, ".")]
	if !ok {
		p.fail("unknown register type %s", t)
		return
	}
	prefix := p.next()
	if prefix != classInfo[info.class].prefix {
		p.fail("registers of type %s are written %sN here", t, classInfo[info.class].prefix)
	}
	p.expect("<")
	p.k.Regs[info.class] = p.number()
	p.expect(">")
	p.expect(";")
}

func (p *parser) shared() {
	s := Shared{Align: 1}
	if p.accept(".align") {
		s.Align = p.number()
	}
	p.expect(".b8")
	s.Name = p.next()
	p.expect("[")
	s.Bytes = p.number()
	p.expect("]")
	p.expect(";")
	p.k.Shared = append(p.k.Shared, s)
}

func (p *parser) instruction() {
	in := Inst{}
	if p.pos < len(p.toks) {
		in.Line = p.toks[p.pos].line
	}
	if p.accept("@") {
		in.Not = p.accept("!")
		in.Guard = p.register(p.next())
	}
	name := p.next()
	if in.Guard.Class == NoClass && p.accept(":") {
		p.k.Body = append(p.k.Body, Inst{Label: name, Line: in.Line})
		return
	}
	branch := strings.HasPrefix(name, "bra")
	for p.err == nil && !p.accept(";") {
		if len(in.Args) > 0 {
			p.expect(",")
		}
		in.Args = append(in.Args, p.operand(branch))
	}
	if p.err != nil {
		return
	}
	op, err := lookup(name, in.Args)
	if err != nil {
		p.fail("%w", err)
		return
	}
	in.Op = op
	p.k.Body = append(p.k.Body, in)
}

func (p *parser) operand(branch bool) Operand {
	switch t := p.next(); {
	case t == "": // end of text; next has reported it
		return Operand{}
	case branch:
		return Operand{Kind: KindLabel, Sym: t}
	case t == "[":
		return p.address()
	case t == "{":
		return p.vector()
	case t == "-" || t[0] >= '0' && t[0] <= '9':
		return p.immediate(t)
	case specials[t]:
		return Operand{Kind: KindSym, Sym: t}
	case t[0] == '%':
		return Operand{Kind: KindReg, Reg: p.register(t)}
	default:
		return Operand{Kind: KindSym, Sym: t}
	}
}

func (p *parser) register(t string) Reg {
	for c := Pred; c < numClasses; c++ {
		if num, ok := strings.CutPrefix(t, classInfo[c].prefix); ok {
			if n, err := strconv.Atoi(num); err == nil {
				return Reg{c, n}
			}
		}
	}
	p.fail("unknown register %q", t)
	return Reg{}
}

func (p *parser) address() Operand {
	o := Operand{Kind: KindAddr}
	if t := p.next(); strings.HasPrefix(t, "%") {
		o.Reg = p.register(t)
	} else {
		o.Sym = t
	}
	if p.accept("+") {
		sign := int64(1)
		if p.accept("-") {
			sign = -1
		}
		o.Off = sign * int64(p.number())
	}
	p.expect("]")
	return o
}

func (p *parser) vector() Operand {
	o := Operand{Kind: KindVec}
	for p.err == nil && !p.accept("}") {
		p.accept(",")
		o.Vec = append(o.Vec, p.register(p.next()))
	}
	return o
}

func (p *parser) immediate(t string) Operand {
	o := Operand{Kind: KindImm}
	var err error
	switch {
	case strings.HasPrefix(t, "0f"):
		o.Float = F32
		o.Imm, err = strconv.ParseUint(t[2:], 16, 32)
	case strings.HasPrefix(t, "0d"):
		o.Float = F64
		o.Imm, err = strconv.ParseUint(t[2:], 16, 64)
	case t == "-":
		var u int64
		u, err = strconv.ParseInt("-"+p.next(), 0, 64)
		o.Imm = uint64(u)
	default:
		o.Imm, err = strconv.ParseUint(t, 0, 64)
	}
	if err != nil {
		p.fail("malformed number %q", t)
	}
	return o
}
