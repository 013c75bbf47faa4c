package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/onnx"
)

// form is what a region's program depends on: operators, attributes, types, and the
// elements that shapes are made from, but no names. Regions of equal form, as the
// layers of a network have them, are imported and compiled once; the program of a
// second one reads its own weights.
type form struct {
	key    [sha256.Size]byte
	base   *skeleton
	params []*onnx.Tensor // by base.given: initializers, nil for what is fed
	reads  []operand      // by base.open
	known  []*eval.Tensor // by base.open: elements that shapes may be made from; nil for others
}

// skeleton is the part of a form that depends on the nodes and the initializers that they read, but
// not on what is fed.
type skeleton struct {
	key    [sha256.Size]byte
	given  []string       // what the region reads, in the order of first use
	inits  []*onnx.Tensor // initializers among them, nil for others
	shared []*onnx.Tensor // equal ones are one tensor (Session.shared)
	open   []int          // places in given of all but what is the same in every run (scope.fixed)
	like   map[*skeleton]*renaming
}

// renaming maps the names of one region to those of another region of equal form.
type renaming struct {
	values map[string]string
	vars   map[string]string // variables that differ
}

// form is that of the region, nil where names matter, or what no form describes.
func (g *region) form() *form {
	p := &g.r.s.o.Config.Policy
	if g.st.plan.varies == nil || len(p.Rules)+len(p.Stores) > 0 {
		return nil
	}
	b := g.skeleton()
	if b == nil {
		return nil
	}
	f := &form{base: b, params: b.shared, reads: make([]operand, len(b.open)), known: make([]*eval.Tensor, len(b.open))}
	last := g.r.s.lastForm[b.key]
	for i, at := range b.open {
		name := b.given[at]
		v, t, _ := g.f.find(name)
		if t != b.inits[at] || t == nil && v == nil {
			return nil
		}
		if f.reads[i] = (operand{name: name, init: t}); t == nil {
			f.reads[i].kind, f.reads[i].typ = v.Kind, v.Type
			f.known[i] = g.elements(v)
		}
		if last != nil && !f.reads[i].equals(&last.reads[i], f.known[i], last.known[i]) {
			last = nil
		}
	}
	if last != nil {
		f.key = last.key
	} else {
		f.key = f.hash()
	}
	return f
}

// equals reports whether x and y, of which the elements a and b are known, are the same for forms of
// one skeleton.
func (x *operand) equals(y *operand, a, b *eval.Tensor) bool {
	if x.init != nil || y.init != nil {
		return x.init != nil && y.init != nil
	}
	return x.kind == y.kind && x.typ == y.typ && (a == nil) == (b == nil) && (a == nil || bytes.Equal(a.Bytes(), b.Bytes()))
}

// hash is the key of a form that has all else.
func (f *form) hash() [sha256.Size]byte {
	text := append(make([]byte, 0, 512), f.base.key[:]...)
	for i := range f.reads {
		x := &f.reads[i]
		if x.init != nil {
			continue
		}
		text = append(text, byte(x.kind))
		text = appendType(text, x.typ)
		if k := f.known[i]; k != nil {
			text = append(append(text, '='), k.Bytes()...)
		}
	}
	return sha256.Sum256(text)
}

// skeleton is that of the region's nodes, nil where a node has none. The stage keeps
// that of the region that it has where nothing is left out.
func (g *region) skeleton() *skeleton {
	if !g.first() {
		return g.newSkeleton()
	}
	if g.st.skeleton == nil {
		g.st.skeleton = g.newSkeleton()
	}
	return g.st.skeleton
}

// newSkeleton writes the nodes with numbers for values, in the order in which they occur.
func (g *region) newSkeleton() *skeleton {
	b := &skeleton{like: map[*skeleton]*renaming{}}
	s, names := g.st.scope, map[string]int{"": 0}
	var text []byte
	number := func(name string) {
		if _, ok := names[name]; !ok {
			names[name] = len(names)
		}
		text = append(strconv.AppendInt(text, int64(names[name]), 10), ' ')
	}
	for _, i := range g.nodes {
		node, ok := s.describe(g.r.s.model, i)
		if !ok {
			return nil
		}
		text = append(append(text, '\n'), node...)
		text = append(strconv.AppendInt(text, s.opsets[s.nodes[i].Domain], 10), ' ')
		for _, x := range s.nodes[i].In {
			if _, known := names[x]; !known {
				b.given = append(b.given, x)
			}
			number(x)
		}
		for _, y := range s.nodes[i].Out {
			number(y)
		}
	}
	text = append(text, "\nwant "...)
	for _, y := range g.want {
		number(y)
	}
	if text = g.describeInits(b, text); text == nil {
		return nil
	}
	b.key = sha256.Sum256(text)
	return b
}

// describeInits fills in the initializers of a skeleton and appends what importing may
// know of them: of large ones of floats, that is their type. It returns nil where one
// cannot be read.
func (g *region) describeInits(b *skeleton, text []byte) []byte {
	numbers := map[*onnx.Tensor]int{}
	b.inits, b.shared = make([]*onnx.Tensor, len(b.given)), make([]*onnx.Tensor, len(b.given))
	for i, name := range b.given {
		fixed := g.st.scope.fixed[name]
		if !fixed {
			b.open = append(b.open, i)
		}
		_, init, in := g.f.find(name)
		if init == nil {
			continue
		}
		t := g.r.s.shared(init)
		b.inits[i], b.shared[i] = init, t
		text = strconv.AppendInt(append(text, "\ntensor "...), int64(i), 10)
		text = strconv.AppendBool(append(text, ' '), fixed)
		at, again := numbers[t]
		if again {
			text = strconv.AppendInt(append(text, " as "...), int64(at), 10)
			continue
		}
		numbers[t] = i
		typ, err := t.Type()
		if err != nil {
			return nil
		}
		text = strconv.AppendBool(append(text, ' '), t.Made())
		text = appendType(text, typ)
		switch {
		case !typ.DType.Float():
			text = strconv.AppendQuote(text, g.r.s.nameOf(t, name, in))
		case onnx.Knowable(typ):
			data, err := g.r.s.model.Bytes(t)
			if err != nil {
				return nil
			}
			text = append(text, data...)
		default:
			g.r.s.nameOf(t, name, in)
		}
	}
	return text
}

// appendType appends a type of static dimensions.
func appendType(text []byte, t ir.Type) []byte {
	text = append(text, byte(t.DType), byte(t.Shape.Rank()))
	for i := range t.Shape.Rank() {
		text = binary.AppendVarint(text, int64(t.Shape.Dim(i)))
	}
	return text
}

// describe is a node without the names of what it reads and gives; false where it has
// attributes that no text says.
func (s *scope) describe(m *onnx.Model, i int) (string, bool) {
	if s.texts == nil {
		s.texts = make([]string, len(s.nodes))
	}
	if s.texts[i] != "" {
		return s.texts[i], true
	}
	n, b := s.nodes[i], &strings.Builder{}
	fmt.Fprintf(b, "%q %q %q %d %d", n.Domain, n.Op, n.Overload, len(n.In), len(n.Out))
	for _, a := range n.Attrs {
		fmt.Fprintf(b, " %q %d %q", a.Name, a.Type, a.Ref)
		switch a.Type {
		case onnx.AttrFloat, onnx.AttrInt, onnx.AttrString, onnx.AttrFloats, onnx.AttrInts, onnx.AttrStrings:
			fmt.Fprintf(b, " %x %d %q %x %d %q", a.F, a.I, a.S, a.Floats, a.Ints, a.Texts)
		case onnx.AttrTensor:
			if a.T == nil {
				return "", false
			}
			typ, err := a.T.Type()
			if err != nil {
				return "", false
			}
			data, err := m.Bytes(a.T)
			if err != nil {
				return "", false
			}
			fmt.Fprintf(b, " %s %x", typ, sha256.Sum256(data))
		default: // graphs read values by name
			return "", false
		}
	}
	s.texts[i] = b.String()
	return s.texts[i], true
}

// like makes the region's entry from an entry of the same form. It is nil if that is not possible.
func (g *region) like(e *entry, f *form) (*entry, error) {
	to := e.form.to(f, g.r.s)
	out := &entry{at: g.st, region: g.nodes, form: f, guards: e.guards.named(to.values), single: e.single}
	for i, y := range e.outs {
		if y.name = g.want[i]; y.given != "" {
			y.given = to.values[y.given]
		}
		if y.known != nil && y.known.init != nil {
			y.known = &Value{init: f.params[slices.Index(e.form.params, y.known.init)]}
		}
		out.outs = append(out.outs, y)
	}
	if e.program == nil {
		return out, nil
	}
	if e.program.build != nil { // finish sets the feeds
		out.program = e.program
		return out, nil
	}
	p, err := g.r.s.over(e.program, to.vars)
	if p == nil {
		return nil, err
	}
	out.program, out.feeds = p, e.renamed(to)
	return out, nil
}

// renamed are the feeds of an entry that runs e's program.
func (e *entry) renamed(to *renaming) []feed {
	list := make([]feed, len(e.feeds))
	for i, x := range e.feeds {
		list[i] = feed{x.input, to.values[x.name]}
	}
	return list
}

// to is how names of f are called in another region of the same form.
func (f *form) to(other *form, s *Session) *renaming {
	if r := f.base.like[other.base]; r != nil {
		return r
	}
	r := &renaming{map[string]string{}, map[string]string{}}
	for i, x := range other.base.given {
		r.values[f.base.given[i]] = x
		if was, now := f.params[i], other.params[i]; was != now {
			r.vars[onnx.VarName(s.names[was])] = onnx.VarName(s.names[now])
		}
	}
	f.base.like[other.base] = r
	return r
}

// over returns p for other variables. It is p itself if p reads none of the variables that vars
// renames. It is nil if a name has another meaning in p.
func (s *Session) over(p *program, vars map[string]string) (*program, error) {
	renamed := func(v lower.Var) bool {
		return (v.Kind == ir.Param || v.Kind == ir.State) && vars[v.Name] != ""
	}
	if !slices.ContainsFunc(p.code.Vars, renamed) {
		return p, nil
	}
	reads, others := map[string]string{}, map[string]bool{}
	for _, v := range p.code.Vars {
		if renamed(v) {
			reads[v.Name] = vars[v.Name]
		} else {
			others[v.Name] = true
		}
	}
	for _, to := range reads {
		if others[to] {
			return nil, nil
		}
	}
	key := overKey{p, fmt.Sprint(reads)}
	if q := s.cache.over[key]; q != nil {
		return q, nil
	}
	q, err := s.load(p.code.WithVars(reads), p.items)
	if err != nil {
		return nil, err
	}
	q.key = key
	return q, nil
}

// overKey is a program over variables that it was not compiled for.
type overKey struct {
	of   *program
	vars string
}

// named are the guards of values with other names.
func (g *guards) named(names map[string]string) *guards {
	if g == nil {
		return nil
	}
	out := *g
	out.direct, out.inputs = slices.Clone(g.direct), slices.Clone(g.inputs)
	for i := range out.direct {
		out.direct[i].name = names[out.direct[i].name]
	}
	for i := range out.inputs {
		out.inputs[i].name = names[out.inputs[i].name]
	}
	return &out
}

// general reports whether the guards hold for any weights, because they do not compute with
// weights.
func (g *guards) general() bool {
	if g == nil || g.graph == nil {
		return true
	}
	return !slices.ContainsFunc(g.graph.Vars, func(v *ir.Value) bool { return v.Kind != ir.Input && v.Kind != ir.Const })
}
