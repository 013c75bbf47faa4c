package prove

import (
	"math"
	"slices"

	"ampc/ir"
)

// matcher numbers the values of T and F together. Two values have the same number if the same op
// with the same attributes reads the same values. Their names do not matter, nor the section, if
// that runs equally often, the number of times they are computed, their stored dtypes and their
// layouts.
type matcher struct {
	rules Rules
	tab   *table
	views *views
	buf   []int64

	first      []int32    // by entity (the key of a node): class of its first result
	image      []*ir.Node // by entity: node of T that computes it, or nil
	nodes      []*ir.Node // of T, by ID
	sameEntity []int32    // by node ID of T: the next node of T with the same entity, -1: none
	alias      map[int32]int32
	moves      map[ref]*ir.Node  // nodes of T's backward that only move elements, by result
	same       map[int32]spelled // by class: the result of T that it recomputes
	last       int32             // number of classes
	shown      []int32           // by class: its entity

	words  map[string]int64
	rows   map[*ir.Def]int64
	inits  map[*ir.Init]int64
	datas  [][]float64
	consts []constant // of T, out of range of the policy's low dtype

	t, f     *numbering
	removed  removedScales
	again    bool       // the nodes that recompute norms of T are numbered
	norms    int        // number of nodes of T before those
	spells   []*ir.Node // by ID of such a node less norms: the norm
	spelling []*ir.Node // as spells: the node

	refs  []ref // operands of the current node, with their axes and strides
	axes  [ir.MaxRank]axis
	steps []int64

	clamping int32 // entity whose clamped forms get keys; -1: none
}

// ref is the content of a value: elements of a class, in the order of a view. The zero ref is an
// absent operand.
type ref struct{ class, view int32 }

// numbering is what a matcher knows about one graph, by the IDs of its values and nodes.
type numbering struct {
	g       *ir.Graph
	refs    []ref
	entity  []int32 // of a node; -1 for nodes that only move, cast or repeat
	section []ir.Section
	inMicro []bool      // variables that micro-batches change
	written []*ir.Value // by ID of a variable: the value it gets in a micro-batch
	source  bool        // T
	clamped []*ir.Node  // nodes that match under a clamp
	vars    map[string]int64
}

// constant is a number of T that becomes an infinity in the low dtype.
type constant struct {
	value float64
	class int32
}

// First words of keys that are not ops.
const (
	keyVariable = -1 - iota
	keyConstant
	keyData
	keyCopy
	keyForeignVariable
)

func newMatcher(t, f *ir.Graph, r Rules) *matcher {
	some := len(t.Vars) + t.NumNodes() // more keys than this are rare
	m := &matcher{
		rules: r, tab: newTable(some), views: newViews(some),
		first: make([]int32, 0, some), image: make([]*ir.Node, 0, some), alias: map[int32]int32{}, moves: map[ref]*ir.Node{}, same: map[int32]spelled{}, last: 1, shown: append(make([]int32, 0, 2*some), -1),
		clamping: -1, words: map[string]int64{}, rows: map[*ir.Def]int64{}, inits: map[*ir.Init]int64{},
	}
	m.t, m.f = newNumbering(t), newNumbering(f)
	m.t.source = true
	m.norms = len(m.t.entity)
	m.sameEntity = make([]int32, m.norms)
	m.nodes = make([]*ir.Node, 0, m.norms)
	for _, n := range t.Nodes {
		m.nodes = append(m.nodes, n)
		m.sameEntity[n.ID] = -1
	}
	m.removed = removedFrom(t, f)
	vars := make(map[string]int64, len(t.Vars))
	for i, v := range t.Vars {
		vars[v.Name] = int64(i)
	}
	m.t.vars, m.f.vars = vars, vars
	m.walk(m.t)
	m.walk(m.f)
	return m
}

// number assigns IDs to g's values and nodes. If they have IDs, it writes nothing, because several
// F may be compared with one T at a time.
func number(g *ir.Graph) (values, nodes int) {
	for _, v := range g.Vars {
		if v.ID != int32(values) {
			v.ID = int32(values)
		}
		values++
	}
	for _, n := range g.Nodes {
		if n.ID != int32(nodes) {
			n.ID = int32(nodes)
		}
		nodes++
		for _, v := range n.Out {
			if v.ID != int32(values) {
				v.ID = int32(values)
			}
			values++
		}
	}
	return values, nodes
}

func newNumbering(g *ir.Graph) *numbering {
	values, nodes := number(g)
	x := &numbering{
		g: g, refs: make([]ref, values), entity: make([]int32, nodes), section: make([]ir.Section, nodes),
		inMicro: make([]bool, len(g.Vars)), written: make([]*ir.Value, len(g.Vars)),
	}
	for _, v := range g.Vars {
		x.inMicro[v.ID] = v.Kind == ir.Input
	}
	for s, n := range g.Nodes {
		x.section[n.ID] = s
		for _, v := range n.Out {
			if v.Next != nil && s != ir.Update {
				x.inMicro[v.Next.ID], x.written[v.Next.ID] = true, v
			}
		}
	}
	return x
}

func (m *matcher) walk(x *numbering) {
	for _, v := range x.g.Vars {
		x.refs[v.ID] = m.variable(x, v)
	}
	for _, n := range x.g.Nodes {
		m.node(x, n)
	}
}

// variable is the content of v before the step.
func (m *matcher) variable(x *numbering, v *ir.Value) ref {
	if v.Kind == ir.Const {
		if r, ok := m.constant(x, v); ok {
			return r
		}
	}
	if x.source && m.removed.scale[v] {
		return m.fill(x, v.Type, 1)
	}
	tag, at := int64(keyVariable), int64(v.ID)
	if !x.source {
		if i, ok := m.f.vars[v.Name]; ok {
			at = i
		} else if i := m.copied(v); i >= 0 {
			at = i
		} else {
			tag = keyForeignVariable
		}
	}
	return ref{m.class(tag, at, 0), m.views.whole(v.Type.Shape)}
}

// whole handles a node of F that gathers the ranks' parts of variables: its results are those
// variables.
func (m *matcher) whole(x *numbering, n *ir.Node) bool {
	if x.source || !gathersParts(n) {
		return false
	}
	refs := make([]ref, len(n.In))
	for k, v := range n.In {
		i := m.partOf(v)
		if i < 0 || m.t.g.Vars[i].Type.Shape != n.Out[k].Type.Shape {
			return false
		}
		refs[k] = m.t.refs[m.t.g.Vars[i].ID]
	}
	for k, v := range n.Out {
		x.refs[v.ID] = refs[k]
	}
	return true
}

// partOf is the index of the variable of T of which v of F is this rank's part, in any dtype; -1 if
// it is not a part.
func (m *matcher) partOf(v *ir.Value) int64 {
	for v.Def != nil && v.Def.Op == ir.OpCast && kindOf(v.Def.In[0].Type.DType) == kindOf(v.Type.DType) {
		v = v.Def.In[0]
	}
	if v.Def != nil || v.Kind != ir.State {
		return -1
	}
	if i, ok := m.f.vars[v.PartOf()]; ok && m.t.g.Vars[i].Kind == ir.Param {
		return i
	}
	return -1
}

// read is the content of v for a node of section s.
func (m *matcher) read(x *numbering, s ir.Section, v *ir.Value) ref {
	if v == nil {
		return ref{}
	}
	if v.Def != nil || v.Kind == ir.NotVar || !x.inMicro[v.ID] {
		return x.refs[v.ID]
	}
	switch w := x.written[v.ID]; {
	case s == ir.Prepare:
		return x.refs[v.ID]
	case s == ir.Update && w != nil:
		return x.refs[w.ID]
	}
	r := x.refs[v.ID]
	return ref{m.class(keyVariable, int64(r.class), 1), r.view}
}

// class is the class of a key that no node computes.
func (m *matcher) class(key ...int64) int32 {
	e, fresh := m.intern(key)
	if fresh {
		m.results(e, 1)
	}
	return m.first[e]
}

func (m *matcher) intern(key []int64) (entity int32, fresh bool) {
	e, fresh := m.tab.intern(key)
	if fresh {
		m.first, m.image = append(m.first, 0), append(m.image, nil)
	}
	return e, fresh
}

// results makes n classes for entity e.
func (m *matcher) results(e int32, n int) {
	m.first[e] = m.last
	m.last += int32(n)
	for range n {
		m.shown = append(m.shown, e)
	}
}

// fill is a value of type t all of whose elements are x.
func (m *matcher) fill(n *numbering, t ir.Type, x float64) ref {
	kind := int64(kindOf(t.DType))
	if t.DType.Float() && !n.source {
		if c := m.clampedConstant(x, kind); c > 0 {
			return m.repeat(c, t.Shape)
		}
	}
	c := m.class(keyConstant, kind, int64(math.Float64bits(x)))
	if n.source && t.DType.Float() && m.beyond(x) {
		m.consts = append(m.consts, constant{x, c})
	}
	return m.repeat(c, t.Shape)
}

// repeat is scalar class c, repeated to a shape.
func (m *matcher) repeat(c int32, s ir.Shape) ref {
	if !walkable(s) {
		return ref{m.class(keyCopy, int64(c), int64(m.views.whole(s))), m.views.whole(s)}
	}
	var scalar view
	return ref{c, m.views.number(scalar.repeated(s))}
}

// kindOf is a dtype, the same for all floats.
func kindOf(d ir.DType) ir.DType {
	if d.Float() {
		return ir.F32
	}
	return d
}

// constant is the ref of a constant with a known value.
func (m *matcher) constant(x *numbering, v *ir.Value) (ref, bool) {
	i := v.Init
	switch {
	case i == nil:
		return ref{}, false
	case i.Func == "" && len(i.Args) == 1:
		return m.fill(x, v.Type, i.Args[0]), true
	case i.Func == "zeros":
		return m.fill(x, v.Type, 0), true
	case i.Func == "ones":
		return m.fill(x, v.Type, 1), true
	case i.Func == "data":
		whole := m.views.whole(v.Type.Shape)
		return ref{m.class(keyData, int64(kindOf(v.Type.DType)), m.data(x, i), int64(whole)), whole}, true
	}
	return ref{}, false
}

// data numbers lists of elements by content. A list of F that differs from one of T by clamps gets
// the number of that one.
func (m *matcher) data(x *numbering, i *ir.Init) int64 {
	if id, ok := m.inits[i]; ok {
		return id
	}
	equal := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
	id := slices.IndexFunc(m.datas, func(d []float64) bool { return slices.EqualFunc(d, i.Args, equal) })
	if id < 0 && !x.source {
		id = slices.IndexFunc(m.datas, func(d []float64) bool {
			return slices.EqualFunc(d, i.Args, func(a, b float64) bool { return equal(a, b) || m.clamp(a) == b })
		})
	}
	if id < 0 {
		id = len(m.datas)
		m.datas = append(m.datas, i.Args)
	}
	m.inits[i] = int64(id)
	return int64(id)
}

func (m *matcher) word(s string) int64 {
	id, ok := m.words[s]
	if !ok {
		id = int64(len(m.words))
		m.words[s] = id
	}
	return id
}

// copied is the index of the variable of T whose 16-bit copy state v of F is, which the update
// writes with the variable; -1 for other states.
func (m *matcher) copied(v *ir.Value) int64 {
	if v.Kind != ir.State || v.Attr.Get("role") != ir.RoleCopy || !v.Type.DType.Low() {
		return -1
	}
	name, _ := v.Attr.Get("of").(string)
	i, ok := m.f.vars[name]
	if !ok || m.t.g.Vars[i].Kind != ir.Param || m.t.g.Vars[i].Type.Shape != v.Type.Shape {
		return -1
	}
	return i
}
