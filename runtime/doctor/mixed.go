package doctor

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/lower"
)

// mixed changes a copy of the compiled step to what a remedy that keeps values in f32 makes of it:
// nodes that match the patterns, and their gradients, read and store f32; values that only these
// read are stored in f32; the rest stays as it was. It is no compilation: the policy may store
// more values in f32.
type mixed struct {
	*subject
	patterns []string
	left     []ir.SourceCast // casts that the remedy removes from the source
	t        *variant
	of       map[*ir.Node]*ir.Node // the node of the step, by node of the variant
	kept     map[*ir.Node]bool     // nodes of the variant that read and store f32
	soft     map[*ir.Node]bool     // nodes of the variant that store f32 for those
	casts    map[cast]*ir.Value
}

// cast is a value in another dtype.
type cast struct {
	v  *ir.Value
	to ir.DType
	s  ir.Section
}

// mixedVariant makes the step with a remedy's values in f32, with its results and
// without update.
func (s *subject) mixedVariant(patterns []string, left []ir.SourceCast, memory int64) (*variant, error) {
	k := kind{kept: strings.Join(patterns, " ") + " " + strings.Join(placed(left), " ")}
	if t := s.others[k]; t != nil {
		return t, nil
	}
	m := &mixed{subject: s, patterns: patterns, left: left, kept: map[*ir.Node]bool{}, soft: map[*ir.Node]bool{}, casts: map[cast]*ir.Value{}}
	g, to := s.g.CloneMap()
	m.t = &variant{from: s.g, to: to, results: s.results()}
	m.mark(g)
	g.Body[ir.Update] = nil
	if err := m.retype(g); err != nil {
		return nil, err
	}
	m.t.uncast(g)
	results := mapped(m.t.results, to)
	ancestry(g, results...)
	g.Return = results
	var err error
	if m.t.compiled, err = compile(g, lower.Replay{Nodes: true}, memory); err != nil {
		return nil, err
	}
	s.add(k, m.t)
	return m.t, nil
}

// mark finds the nodes that compute in f32, and those that store f32 for them alone.
func (m *mixed) mark(g *ir.Graph) {
	m.of = map[*ir.Node]*ir.Node{}
	for _, n := range m.g.Nodes {
		if len(n.Out) > 0 {
			m.of[m.t.to[n.Out[0]].Def] = n
		}
	}
	readers := map[*ir.Value][]*ir.Node{}
	for _, n := range g.Nodes {
		for _, v := range n.In {
			readers[v] = append(readers[v], n)
		}
		if of := m.of[n]; of != nil && !inserted(of) && m.free(of) {
			m.kept[n], m.soft[n] = m.asked(of), slices.ContainsFunc(of.Out, func(v *ir.Value) bool { return m.matched(v.Decider()) })
		}
	}
	forF32 := func(v *ir.Value) bool {
		return v.Next == nil && !slices.Contains(g.Return, v) && !slices.ContainsFunc(readers[v], func(n *ir.Node) bool {
			return !m.kept[n] && !(m.soft[n] && n.Def().Class != ir.Low)
		})
	}
	for s := int(ir.Update) - 1; s >= 0; s-- {
		for _, n := range slices.Backward(g.Body[s]) {
			if len(n.Out) == 1 && n.Out[0].Type.DType.Low() && n.Op != ir.OpCast && n.Def().Class != ir.Fixed && !m.kept[n] && m.free(m.of[n]) && forF32(n.Out[0]) {
				m.soft[n] = true
			}
		}
	}
}

// asked reports whether the patterns match n, or the forward node whose gradient n is.
func (m *mixed) asked(n *ir.Node) bool {
	if n.Of != nil {
		n = n.Of
	}
	return slices.ContainsFunc(n.Out, m.matched)
}

func (m *mixed) matched(v *ir.Value) bool {
	v = real(v)
	return v != nil && slices.ContainsFunc(m.patterns, func(p string) bool { return within(p, v.Name) })
}

// free reports whether no cast that stays in the source gives n's result 16 bits.
func (m *mixed) free(n *ir.Node) bool {
	return !slices.ContainsFunc(n.Why.Casts, func(c ir.SourceCast) bool { return !slices.Contains(m.left, c) })
}

// retype gives marked nodes their dtypes, with casts where f32 meets 16 bits.
func (m *mixed) retype(g *ir.Graph) error {
	was := map[*ir.Value]ir.DType{}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if was[v] = v.Type.DType; was[v].Low() && m.without(n) {
				was[v] = m.chosen()
			}
		}
	}
	for s := range g.Body {
		var body []*ir.Node
		for _, n := range g.Body[s] {
			in, c := slices.Clone(n.In), n.Def().Class
			m.operands(g, n, ir.Section(s), &body, was, c == ir.PromoteC || c == ir.Clear || c == ir.Keep)
			err := m.store(n)
			if err != nil { // the row wants its operands in one dtype
				n.In = in
				m.operands(g, n, ir.Section(s), &body, was, false)
				err = m.store(n)
			}
			if err != nil {
				return err
			}
			body = append(body, n)
		}
		g.Body[s] = body
	}
	return nil
}

// operands gives n its operands: in f32 where it is kept, else in the dtypes that they
// had. If either is set, it reads what is f32 now as it is.
func (m *mixed) operands(g *ir.Graph, n *ir.Node, s ir.Section, body *[]*ir.Node, was map[*ir.Value]ir.DType, either bool) {
	for i, v := range n.In {
		if v == nil || !v.Type.DType.Float() || writes(n) || n.Op == ir.OpAnyNonfinite {
			continue
		}
		to, w := v.Type.DType, m.wide(g, v)
		switch {
		case m.kept[n], either && w.Def != nil && m.kept[w.Def]:
			v, to = w, ir.F32
		case v.Def != nil && was[v].Low() && !m.soft[n] && !either:
			to = was[v]
		}
		n.In[i] = m.in(body, s, v, to)
	}
}

// store gives n the attributes with which it stores f32, if it is marked.
func (m *mixed) store(n *ir.Node) error {
	switch {
	case m.kept[n]:
		n.Attrs = restored(n.Attrs, ir.F32).Without("math")
	case m.soft[n] && n.Op != ir.OpCast:
		was := n.Attrs
		if n.Attrs = restored(was, ir.F32).With("out", ir.F32); n.Retype() == nil {
			return nil
		}
		n.Attrs = was // the row stores what it reads
	case m.without(n):
		n.Attrs = restored(n.Attrs, m.chosen())
	}
	return n.Retype()
}

// without reports whether n has 16 bits only because of casts that the remedy removes.
func (m *mixed) without(n *ir.Node) bool { return len(n.Why.Casts) > 0 && m.free(n) }

// chosen is the dtype that the policy chooses for a value whose cast is removed.
func (m *mixed) chosen() ir.DType {
	if m.chosen16 == ir.Invalid {
		return ir.F32
	}
	return m.chosen16
}

// wide is what v was cast from by the compiler, or v.
func (m *mixed) wide(g *ir.Graph, v *ir.Value) *ir.Value {
	for v.Def != nil && m.of[v.Def] != nil && inserted(m.of[v.Def]) {
		v = v.Def.In[0]
	}
	if of, ok := v.Attr.Get("of").(string); ok && v.Attr.Get("role") == ir.RoleCopy {
		return g.Var(of)
	}
	return v
}

// in returns v in another dtype, by a cast that it appends to body.
func (m *mixed) in(body *[]*ir.Node, s ir.Section, v *ir.Value, to ir.DType) *ir.Value {
	if v.Type.DType == to {
		return v
	}
	at := cast{v, to, s}
	if m.casts[at] == nil {
		n := &ir.Node{Op: ir.OpCast, In: []*ir.Value{v}, Attrs: ir.A("to", to)}
		w := &ir.Value{Name: fmt.Sprintf("%s%s.%s.%d", ir.Reserved, v.Name, to, s), Type: v.Type.With(to), Def: n}
		n.Out = []*ir.Value{w}
		m.casts[at], *body = w, append(*body, n)
		if to.Low() {
			m.t.narrowed = append(m.t.narrowed, v)
		}
	}
	return m.casts[at]
}

// stores16 reports whether the variant stores v, or a cast of it, in 16 bits.
func (t *variant) stores16(v *ir.Value) bool {
	w := t.to[v]
	return w != nil && (w.Type.DType.Low() || slices.Contains(t.narrowed, w))
}
