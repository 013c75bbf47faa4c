package host

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/onnx"
)

// form is what a region's program depends on: operators, attributes, types, and the
// elements that shapes are made from, but no names. Regions of equal form, as the
// layers of a network have them, are imported and compiled once; the program of a
// second one reads its own weights.
type form struct {
	key    [sha256.Size]byte
	given  []string       // what the region reads, in the order of first use
	params []*onnx.Tensor // initializers among them, nil for others
}

// form is that of the region, nil where names matter, or what no form describes.
func (g *region) form() *form {
	p := &g.r.s.o.Config.Policy
	if g.st.plan.varies == nil || len(p.Rules)+len(p.Stores) > 0 {
		return nil
	}
	w := &formWriter{g: g, h: sha256.New(), names: map[string]int{}, tensors: map[*onnx.Tensor]int{}}
	for _, i := range g.nodes {
		text, ok := g.st.scope.describe(g.r.s.model, i)
		if !ok {
			return nil
		}
		fmt.Fprintf(w.h, "%s %d\n", text, g.st.scope.opsets[g.st.scope.nodes[i].Domain])
		for _, x := range g.st.scope.nodes[i].In {
			if !w.operand(x) {
				return nil
			}
		}
		for _, y := range g.st.scope.nodes[i].Out {
			w.result(y)
		}
	}
	for _, y := range g.want {
		fmt.Fprintf(w.h, "want %d\n", w.names[y])
	}
	w.h.Sum(w.f.key[:0])
	return &w.f
}

// formWriter writes a form: values are numbers in the order in which they occur.
type formWriter struct {
	f       form
	g       *region
	h       hash.Hash
	names   map[string]int
	tensors map[*onnx.Tensor]int
}

// operand writes what a node reads, and describes it where nothing before gave it. It
// is false where it cannot.
func (w *formWriter) operand(name string) bool {
	at, known := w.names[name]
	if name == "" || known {
		fmt.Fprintf(w.h, "%d ", at)
		return true
	}
	x := w.g.given(name)
	if x == nil {
		return false
	}
	w.result(name)
	w.f.given, w.f.params = append(w.f.given, name), append(w.f.params, x.Tensor)
	if x.Tensor != nil {
		return w.initializer(x.Tensor)
	}
	fmt.Fprintf(w.h, "fed %q %s ", x.Kind, x.Type)
	if x.Value != nil {
		fmt.Fprintf(w.h, "%x ", x.Value.Bytes())
	}
	return true
}

// initializer writes what importing may know of a tensor: of large ones of floats, that
// is their type.
func (w *formWriter) initializer(t *onnx.Tensor) bool {
	if at, again := w.tensors[t]; again {
		fmt.Fprintf(w.h, "tensor %d ", at)
		return true
	}
	w.tensors[t] = len(w.tensors)
	typ, err := t.Type()
	if err != nil {
		return false
	}
	fmt.Fprintf(w.h, "tensor %s %t ", typ, t.Made())
	switch {
	case !typ.DType.Float():
		fmt.Fprintf(w.h, "%q ", w.g.r.s.names[t]) // equal ones are one tensor (Session.shared)
	case onnx.Knowable(typ):
		b, err := w.g.r.s.model.Bytes(t)
		if err != nil {
			return false
		}
		fmt.Fprintf(w.h, "%x ", b)
	}
	return true
}

// result numbers a value.
func (w *formWriter) result(name string) {
	if name == "" {
		fmt.Fprint(w.h, "none ")
		return
	}
	w.names[name] = len(w.names) + 1
	fmt.Fprintf(w.h, "%d ", w.names[name])
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

// like makes the region's entry from one of the same form, nil where that does not do.
func (g *region) like(e *entry, f *form) (*entry, error) {
	names, vars := map[string]string{}, map[string]string{}
	for i, x := range f.given {
		names[e.form.given[i]] = x
		if was, now := e.form.params[i], f.params[i]; was != now {
			vars[onnx.VarName(g.r.s.names[was])] = onnx.VarName(g.r.s.names[now])
		}
	}
	out := &entry{at: g.st, region: slices.Clone(g.nodes), why: map[int]string{}, form: f, guards: e.guards.named(names), single: e.single}
	for i, y := range e.outs {
		y.name, y.given = g.want[i], names[y.given]
		if y.known != nil && y.known.init != nil {
			y.known = &Value{init: f.params[slices.Index(e.form.params, y.known.init)]}
		}
		out.outs = append(out.outs, y)
	}
	for _, x := range e.feeds {
		out.feeds = append(out.feeds, feed{x.input, names[x.name]})
	}
	if e.program == nil {
		return out, nil
	}
	p, err := g.r.s.over(e.program, vars)
	if p == nil {
		return nil, err
	}
	out.program = p
	return out, nil
}

// over is p over other variables: p itself where it reads none of those that vars renames,
// nil where a name stands for something else in p.
func (s *Session) over(p *program, vars map[string]string) (*program, error) {
	reads, others := map[string]string{}, map[string]bool{}
	for _, v := range p.code.Vars {
		if to, ok := vars[v.Name]; ok && (v.Kind == ir.Param || v.Kind == ir.State) {
			reads[v.Name] = to
		} else {
			others[v.Name] = true
		}
	}
	if len(reads) == 0 {
		return p, nil
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
	q, err := s.load(p.code.WithVars(reads))
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

// general reports whether the guards hold for any weights: they compute with none.
func (g *guards) general() bool {
	if g == nil || g.graph == nil {
		return true
	}
	return !slices.ContainsFunc(g.graph.Vars, func(v *ir.Value) bool { return v.Kind != ir.Input && v.Kind != ir.Const })
}
