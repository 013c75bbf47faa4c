package passes

import (
	"hash/maphash"
	"math"

	"ampc/ir"
	"ampc/ir/eval"
)

// canon removes nodes that no result depends on, folds exact rows of constants, and merges equal
// nodes. It never merges random rows, rows that must stay separate, and nodes with different pins.
// It never folds rows that are not exact: their bits depend on the backend.
func canon(g *ir.Graph, c *Context) error {
	keep := keptValues(g, c)
	values, _ := g.Number()
	m := &merger{g: g, c: c, keep: keep, to: make([]*ir.Value, values), seen: map[uint64][]*ir.Node{}, seed: maphash.MakeSeed()}
	body := g.Body[ir.Forward]
	kept := body[:0]
	for _, n := range body {
		m.redirect(n.In)
		n.Recapture(m.target)
		if m.fold(n) || m.merge(n) {
			continue
		}
		kept = append(kept, n)
	}
	clear(body[len(kept):])
	g.Body[ir.Forward] = kept
	m.redirect(g.Return)
	c.keepLinks()
	return dropUnread(g, c, keep)
}

// keptValues are the losses and the other requested results, and the written values. Their nodes
// stay.
func keptValues(g *ir.Graph, c *Context) map[*ir.Value]bool {
	keep := map[*ir.Value]bool{}
	for _, v := range g.Return {
		keep[v] = true
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Next != nil {
				keep[v] = true
			}
		}
	}
	return keep
}

// merger walks a section in order and remembers the nodes before.
type merger struct {
	g    *ir.Graph
	c    *Context
	keep map[*ir.Value]bool
	to   []*ir.Value // by Value.ID: the value that replaces it
	seen map[uint64][]*ir.Node
	seed maphash.Seed
}

func (m *merger) redirect(vs []*ir.Value) {
	for i, v := range vs {
		if v != nil {
			vs[i] = m.target(v)
		}
	}
}

// target is the value that replaces v, or v itself.
func (m *merger) target(v *ir.Value) *ir.Value {
	if int(v.ID) < len(m.to) && m.to[v.ID] != nil {
		return m.to[v.ID]
	}
	return v
}

func (m *merger) keeps(n *ir.Node) bool {
	for _, v := range n.Out {
		if m.keep[v] {
			return true
		}
	}
	return false
}

// merge redirects n's results to those of an equal node and reports whether there is one.
func (m *merger) merge(n *ir.Node) bool {
	def := n.Def()
	if def.Flags&(ir.Random|ir.NoMerge|ir.Writer|ir.Collective|ir.External) != 0 {
		return false
	}
	h := m.hash(n)
	for _, k := range m.seen[h] {
		if equalNodes(k, n) && m.sameRules(k, n) && m.absorb(k, n) {
			m.c.Count("merged", 1)
			return true
		}
	}
	m.seen[h] = append(m.seen[h], n)
	return false
}

// absorb replaces n by k, unless results of both are kept. The survivor takes the name that is
// kept, otherwise the smaller one, whichever node came first.
func (m *merger) absorb(k, n *ir.Node) bool {
	kept, other := m.keeps(k), m.keeps(n)
	if kept && other {
		return false
	}
	for i, v := range n.Out {
		w := k.Out[i]
		if other || !kept && v.Name < w.Name {
			v.Name, w.Name = w.Name, v.Name
		}
		if m.keep[v] {
			delete(m.keep, v)
			m.keep[w] = true
		}
		m.to[v.ID] = w
	}
	k.Why.AddCasts(n.Why.Casts)
	return true
}

func (m *merger) hash(n *ir.Node) uint64 {
	var h maphash.Hash
	h.SetSeed(m.seed)
	h.WriteByte(byte(n.Op))
	h.WriteByte(byte(n.Op >> 8))
	for _, v := range n.In {
		id := int32(-1)
		if v != nil {
			id = v.ID
		}
		h.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)})
	}
	return h.Sum64()
}

func equalNodes(a, b *ir.Node) bool {
	if a.Op != b.Op || a.Pin != b.Pin || a.Of != b.Of || len(a.In) != len(b.In) || len(a.Out) != len(b.Out) || !a.Attrs.Equal(b.Attrs) {
		return false
	}
	for i := range a.In {
		if a.In[i] != b.In[i] {
			return false
		}
	}
	return true
}

// sameRules reports whether every rule of the policy applies to both nodes or to neither.
func (m *merger) sameRules(a, b *ir.Node) bool {
	for _, r := range m.c.Policy.Rules {
		if Matches(r.Pattern, a.Out[0].Name) != Matches(r.Pattern, b.Out[0].Name) {
			return false
		}
	}
	return true
}

// foldLimit is the largest number of elements of a folded constant.
const foldLimit = 1024

// fold turns an exact elementwise row of constants into a constant with the result's name. A
// constant with attributes, such as a loss scale, stays: its number may change.
func (m *merger) fold(n *ir.Node) bool {
	if n.Def().Elem == nil || n.Def().Flags&(ir.Random|ir.NoMerge) != 0 || len(n.Out) != 1 || m.keeps(n) || !small(n.Out[0].Type) {
		return false
	}
	in, given := constants(n)
	if in == nil || given == 0 && n.Out[0].Type.Shape.Elements() != 1 { // the text of a filled tensor is shorter as the row that fills it
		return false
	}
	if code, _ := ir.NodeCode(n); !exact(code) {
		return false
	}
	out, err := eval.Node(n, in, eval.Options{})
	if err != nil {
		return false
	}
	init := constant(out[0])
	if init == nil {
		return false
	}
	old := n.Out[0]
	v := &ir.Value{Name: old.Name, Type: old.Type, Kind: ir.Const, Init: init, Pos: n.Pos, ID: old.ID}
	m.g.Vars = append(m.g.Vars, v)
	m.to[old.ID] = v
	m.c.Count("folded", 1)
	return true
}

// constants returns n's operands and the number of those present, if all these are small constants
// without attributes; otherwise nil.
func constants(n *ir.Node) (in []*eval.Tensor, given int) {
	in = make([]*eval.Tensor, len(n.In))
	for i, v := range n.In {
		if v == nil {
			continue
		}
		if v.Kind != ir.Const || len(v.Attr) > 0 || v.Init == nil || v.Init.Func == "file" || !small(v.Type) {
			return nil, 0
		}
		t, err := eval.InitVar(v, 0)
		if err != nil {
			return nil, 0
		}
		in[i] = t
		given++
	}
	return in, given
}

func small(t ir.Type) bool {
	n := t.Shape.Elements()
	return n >= 0 && n <= foldLimit
}

func exact(c *ir.Code) bool { ok, _ := c.Exact(); return ok }

// constant is the initializer of t; nil if the text form cannot hold it.
func constant(t *eval.Tensor) *ir.Init {
	args := append([]float64(nil), t.F...)
	for _, x := range t.I {
		if x > 1<<53 || x < -1<<53 {
			return nil
		}
		args = append(args, float64(x))
	}
	for _, x := range args {
		if math.IsNaN(x) {
			return nil
		}
	}
	if uniform(args) {
		return &ir.Init{Args: args[:1]}
	}
	return &ir.Init{Func: "data", Args: args}
}

// uniform reports whether xs is not empty and all its numbers are equal, including the signs of
// zeros.
func uniform(xs []float64) bool {
	for _, x := range xs {
		if math.Float64bits(x) != math.Float64bits(xs[0]) {
			return false
		}
	}
	return len(xs) > 0
}

// dropUnread removes the forward nodes that no kept value depends on.
func dropUnread(g *ir.Graph, c *Context, keep map[*ir.Value]bool) error {
	_, nodes := g.Number()
	live := make([]bool, nodes)
	for v := range keep {
		if v != nil && v.Def != nil {
			live[v.Def.ID] = true
		}
	}
	body := g.Body[ir.Forward]
	for s, n := range g.Nodes {
		if s != ir.Forward {
			reach(n, live)
		}
	}
	for i := len(body) - 1; i >= 0; i-- {
		if live[body[i].ID] {
			reach(body[i], live)
		}
	}
	g.Filter(func(s ir.Section, n *ir.Node) bool {
		if s != ir.Forward || live[n.ID] {
			return true
		}
		c.Count("dead", 1)
		return false
	})
	dropOrigins(g)
	return nil
}

// dropOrigins removes links to forward nodes that no longer exist, and to values of such nodes of
// which a value is the gradient.
func dropOrigins(g *ir.Graph) {
	_, count := g.Number()
	there := make([]*ir.Node, count)
	parts := g.Parts()
	g.InParts(parts, func(_ int, p *ir.Part) {
		for _, n := range p.Nodes {
			there[n.ID] = n
		}
	})
	gone := func(n *ir.Node) bool { return int(n.ID) >= count || there[n.ID] != n }
	g.InParts(parts, func(_ int, p *ir.Part) {
		for _, n := range p.Nodes {
			if n.Of != nil && gone(n.Of) {
				n.Of = nil
			}
			for _, v := range n.Out {
				if v.GradOf != nil && v.GradOf.Def != nil && gone(v.GradOf.Def) {
					v.GradOf = nil
				}
			}
		}
	})
}

// nodeLists are the nodes of a graph at some time, by section.
type nodeLists [ir.NumSections][]*ir.Node

// set makes them the nodes of g.
func (l *nodeLists) set(g *ir.Graph) {
	for s, body := range g.Body {
		l[s] = append(l[s][:0], body...)
	}
}

// lost reports whether g may lack one of the nodes: it has them all if it has them in their order.
func (l *nodeLists) lost(g *ir.Graph) bool {
	for s, before := range l {
		for _, n := range g.Body[s] {
			if len(before) > 0 && n == before[0] {
				before = before[1:]
			}
		}
		if len(before) > 0 {
			return true
		}
	}
	return false
}

// reach marks the nodes whose results n reads.
func reach(n *ir.Node, live []bool) {
	for _, vs := range [2][]*ir.Value{n.In, n.Captured} {
		for _, v := range vs {
			if v != nil && v.Def != nil {
				live[v.Def.ID] = true
			}
		}
	}
}
