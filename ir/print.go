package ir

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// PrintMode is what the comments contain. All modes parse back to the same graph.
type PrintMode uint8

const (
	Canonical PrintMode = 0
	Reasons   PrintMode = 1 << iota // why each node has its dtype
	Costs                           // flops and bytes
	Positions                       // where the user wrote it
)

// Print writes the text form.
func (g *Graph) Print(w io.Writer, m PrintMode) error {
	p := &printer{g: g, mode: m, w: bufio.NewWriter(w)}
	p.graph("")
	return p.w.Flush()
}

// String returns the canonical text form.
func (g *Graph) String() string {
	var b strings.Builder
	g.Print(&b, Canonical) // a strings.Builder does not fail
	return b.String()
}

// Lines are the canonical lines of all nodes, in the order of Nodes, and of all
// declarations, in the order of Vars.
func (g *Graph) Lines() (nodes, vars []string) {
	for s := range NumSections {
		var grads map[string]*Value
		if s == Backward {
			grads = gradNames(g)
		}
		for _, n := range g.Body[s] {
			nodes = append(nodes, nodeText(g, n, grads))
		}
	}
	for _, v := range g.Vars {
		vars = append(vars, declText(g, v))
	}
	return nodes, vars
}

type printer struct {
	g      *Graph
	mode   PrintMode
	w      *bufio.Writer
	words  *reasonWords
	indent string
	outer  int // number of the graph's symbols that the enclosing graph declares
}

func (p *printer) graph(indent string) {
	g := p.g
	p.indent = indent
	fmt.Fprintf(p.w, "graph @%s {\n", bareOrQuoted(g.Name))
	for _, s := range g.Syms[p.outer:] {
		fmt.Fprintf(p.w, "%s  dim %s", indent, s.Name)
		if s.Nominal > 0 {
			fmt.Fprintf(p.w, " = %d", s.Nominal)
		}
		p.w.WriteByte('\n')
	}
	for _, v := range g.Vars {
		p.w.WriteString(indent + "  " + declText(g, v) + "\n")
	}
	if p.mode&Reasons != 0 {
		p.words = newReasonWords(g)
	}
	for s := range NumSections {
		if len(g.Body[s]) > 0 {
			fmt.Fprintf(p.w, "%s%s:\n", indent, s)
			p.section(s)
		}
	}
	if len(g.Return) > 0 {
		p.w.WriteString(indent + "  return " + valueList(g.Return) + "\n")
	}
	p.w.WriteString(indent + "}")
	if indent == "" {
		p.w.WriteByte('\n')
	}
}

// maxCommentColumn is the last column to which comments are aligned, so that one long line does not
// move all of them.
const maxCommentColumn = 96

func (p *printer) section(s Section) {
	nodes := p.g.Body[s]
	var grads map[string]*Value
	if s == Backward {
		grads = gradNames(p.g)
	}
	if p.mode == Canonical {
		for _, n := range nodes {
			p.w.WriteString(p.indent + "  " + nodeText(p.g, n, grads) + "\n")
		}
		return
	}
	lines := make([]string, len(nodes))
	col := 0
	for i, n := range nodes {
		lines[i] = nodeText(p.g, n, grads)
		if w := utf8.RuneCountInString(lines[i]); w <= maxCommentColumn {
			col = max(col, w)
		}
	}
	for i, n := range nodes {
		p.w.WriteString(p.indent + "  " + lines[i])
		if c := p.comment(n); c != "" {
			pad := max(col-utf8.RuneCountInString(lines[i]), 0)
			p.w.WriteString(strings.Repeat(" ", pad) + "  ; " + c)
		}
		p.w.WriteByte('\n')
	}
}

func (p *printer) comment(n *Node) string {
	var parts []string
	if p.mode&Reasons != 0 {
		if s := p.words.of(n); s != "" {
			parts = append(parts, s)
		}
	}
	if p.mode&Costs != 0 {
		c := p.g.NodeCost(n)
		parts = append(parts, fmt.Sprintf("%s flop, %s read, %s written", Thousands(c.Flops), Thousands(c.Read), Thousands(c.Write)))
	}
	if p.mode&Positions != 0 && n.Pos.File != "" {
		parts = append(parts, "at "+n.Pos.String())
	}
	return strings.Join(parts, "; ")
}

// Thousands prints n with _ between groups of three digits: 1_629_184.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "_" + s[i:]
	}
	if neg {
		return "-" + s
	}
	return s
}

// Bytes prints a number of bytes in the largest unit that fits: 1.50 GB (2^30), 2.0 MB (2^20),
// 4.0 kB (2^10), 12 B.
func Bytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f kB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

func declText(g *Graph, v *Value) string {
	s := v.Kind.String() + " " + v.String() + " : " + g.TypeString(v.Type)
	if v.Init != nil {
		s += " = " + v.Init.String()
	}
	if len(v.Attr) > 0 {
		s += " " + attrsText(v.Attr, nil, nil, &Def{}, g.Syms)
	}
	return s
}

// String returns the initializer as declarations write it.
func (i *Init) String() string {
	if i.Func == "file" {
		return fmt.Sprintf("file(%s, %d, %d)", strconv.Quote(i.File), i.Offset, i.Size)
	}
	args := make([]string, len(i.Args))
	for k, x := range i.Args {
		args[k] = strings.TrimSuffix(floatText(x), ".0")
	}
	if i.Func == "" {
		return args[0]
	}
	return i.Func + "(" + strings.Join(args, ", ") + ")"
}

// nodeText is the line of a node. grads maps the names that gradients may contain, nil outside the
// backward section.
func nodeText(g *Graph, n *Node, grads map[string]*Value) string {
	var b strings.Builder
	b.WriteString(valueList(n.Out))
	if len(n.Out) > 0 {
		b.WriteString(" = ")
	}
	if n.Op == OpCustom {
		b.WriteByte('@')
	}
	b.WriteString(n.Def().Name)
	in, named := n.splitOperands()
	if len(in) > 0 {
		b.WriteString(" " + valueList(in))
	}
	if len(n.Captured) > 0 {
		b.WriteString(" | " + valueList(n.Captured))
	}
	if extra := append(n.extraAttrs(), gradAttrs(grads, n)...); len(n.Attrs) > 0 || len(named) > 0 || len(extra) > 0 {
		b.WriteString(" " + attrsText(n.Attrs, named, extra, n.Def(), g.Syms))
	}
	var types []string
	for _, v := range n.Out {
		if v.Next == nil {
			types = append(types, g.TypeString(v.Type))
		}
	}
	if len(types) > 0 {
		b.WriteString(" : " + strings.Join(types, ", "))
	}
	return b.String()
}

type namedOperand struct {
	name string
	v    *Value
}

// splitOperands separates positional operands from those that the row prints by name. It drops
// trailing absent ones.
func (n *Node) splitOperands() (in []*Value, named []namedOperand) {
	for i, v := range n.In {
		if n.Op == OpForeign {
			in = append(in, v)
			continue
		}
		o := n.OperandDef(i)
		switch {
		case !o.Named:
			in = append(in, v)
		case v != nil:
			named = append(named, namedOperand{o.Name, v})
		}
	}
	if n.Op == OpForeign {
		return in, nil
	}
	for len(in) > 0 && in[len(in)-1] == nil {
		in = in[:len(in)-1]
	}
	return in, named
}

// written is the attribute that names the casts of the source in Reason.Casts.
const written = "written"

// extraAttrs lists the node fields that the text form writes as attributes.
func (n *Node) extraAttrs() []string {
	var s []string
	if n.Of != nil && len(n.Of.Out) > 0 {
		s = append(s, "of="+n.Of.Out[0].String())
	}
	if n.Pin != Unpinned {
		s = append(s, "pin="+n.Pin.String())
	}
	if n.Why.Cluster > 0 {
		s = append(s, fmt.Sprintf("cluster=%d", n.Why.Cluster))
	}
	if n.Why.Launch > 0 {
		s = append(s, fmt.Sprintf("launch=%d", n.Why.Launch))
	}
	for _, m := range markAttrs {
		if n.Why.Has(m.mark) {
			s = append(s, m.name)
		}
	}
	if len(n.Why.Casts) > 0 {
		names := make([]string, len(n.Why.Casts))
		for i, c := range n.Why.Casts {
			names[i] = quoteName(c.Name)
		}
		s = append(s, written+"="+strings.Join(names, ","))
	}
	return s
}

func attrsText(a Attrs, named []namedOperand, extra []string, d *Def, syms []Sym) string {
	parts := slices.Clone(extra)
	for _, o := range named {
		parts = append(parts, o.name+"="+o.v.String())
	}
	for _, x := range a {
		if x.Value == true {
			parts = append(parts, bareOrQuoted(x.Name))
			continue
		}
		text := ""
		if g, ok := x.Value.(*Graph); ok {
			text = nestedText(g, syms)
		} else {
			text = literal(x.Value)
		}
		if a := d.attrDef(x.Name); a != nil && a.Kind == AttrFloat {
			text = strings.TrimSuffix(text, ".0") // the row says that it is a float
		}
		parts = append(parts, bareOrQuoted(x.Name)+"="+text)
	}
	return "{" + strings.Join(parts, " ") + "}"
}

// literal writes an attribute value so that it reads back with the same kind.
func literal(v any) string {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	case string:
		return wordText(v)
	case DType:
		return v.String()
	case []int64:
		s := make([]string, len(v))
		for i, x := range v {
			s[i] = strconv.FormatInt(x, 10)
		}
		return "[" + strings.Join(s, ",") + "]"
	case []float64:
		s := make([]string, len(v))
		for i, x := range v {
			s[i] = floatText(x)
		}
		if len(s) == 0 {
			return "[.]" // an empty list of floats, which differs from an empty list of integers
		}
		return "[" + strings.Join(s, ",") + "]"
	case *Graph:
		return nestedText(v, nil)
	}
	return fmt.Sprint(v)
}

// nestedText writes a nested graph, which declares syms.
func nestedText(g *Graph, syms []Sym) string {
	var b strings.Builder
	inner := *g
	inner.Syms = longer(g.Syms, syms)
	p := &printer{g: &inner, w: bufio.NewWriter(&b), outer: len(syms)}
	p.graph("    ")
	p.w.Flush()
	return b.String()
}

// longer is the longer of two symbol tables, of which one is a prefix of the other.
func longer(a, b []Sym) []Sym {
	if len(a) < len(b) {
		return b
	}
	return a
}

// wordText writes a string without quotes if it cannot be read as something else.
func wordText(s string) string {
	if !isIdent(s) || !('a' <= s[0]|0x20 && s[0]|0x20 <= 'z') {
		return strconv.Quote(s)
	}
	switch s {
	case "true", "false", "inf", "nan", "graph":
		return strconv.Quote(s)
	}
	if _, isType := DTypeOf(s); isType {
		return strconv.Quote(s)
	}
	return s
}

// floatText writes x with the fewest digits that read back, in a form that is not read as an
// integer in a list or a foreign attribute.
func floatText(x float64) string {
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if x == math.Trunc(x) && math.Abs(x) < 1e8 {
		s = strconv.FormatFloat(x, 'f', -1, 64)
	}
	switch {
	case s == "+Inf":
		return "inf"
	case s == "-Inf":
		return "-inf"
	case s == "NaN":
		return "nan"
	case strings.ContainsAny(s, ".e"):
		return s
	}
	return s + ".0"
}

func valueList(vs []*Value) string {
	s := make([]string, len(vs))
	for i, v := range vs {
		s[i] = v.String()
	}
	return strings.Join(s, ", ")
}

func identByte(c byte) bool {
	return c == '_' || c == '.' || c == '-' || c == '/' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isIdent(s string) bool {
	if s == "" || s == "_" {
		return false
	}
	for i := range len(s) {
		if !identByte(s[i]) {
			return false
		}
	}
	return true
}

func bareOrQuoted(s string) string {
	if isIdent(s) {
		return s
	}
	return strconv.Quote(s)
}

func quoteName(s string) string { return "%" + bareOrQuoted(s) }
