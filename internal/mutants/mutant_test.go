package mutants

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// mutant is a copy of a subject's final graph to be changed.
type mutant struct {
	s         *subject
	g         *ir.Graph
	node      map[*ir.Node]*ir.Node   // of the subject to here
	value     map[*ir.Value]*ir.Value // of the subject to here
	fromNode  map[*ir.Node]*ir.Node
	fromValue map[*ir.Value]*ir.Value
	twin      map[*ir.Node]*ir.Node // from a second computation to the node of the subject that it repeats
	made      int
}

func (s *subject) copy() *mutant {
	m := &mutant{s: s, node: map[*ir.Node]*ir.Node{}, fromNode: map[*ir.Node]*ir.Node{}, fromValue: map[*ir.Value]*ir.Value{}, twin: map[*ir.Node]*ir.Node{}}
	m.g, m.value = s.final.CloneMap()
	for sec, body := range s.final.Body {
		for i, n := range body {
			m.node[n], m.fromNode[m.g.Body[sec][i]] = m.g.Body[sec][i], n
		}
	}
	for v, w := range m.value {
		m.fromValue[w] = v
	}
	return m
}

// constant declares a constant that the subject does not have.
func (m *mutant) constant(t ir.Type, x float64) *ir.Value {
	m.made++
	v := &ir.Value{Name: fmt.Sprintf("mutant.%d", m.made), Type: t, Kind: ir.Const, Init: &ir.Init{Args: []float64{x}}}
	m.g.Vars = append(m.g.Vars, v)
	return v
}

// insert puts a new node before another and returns its first result, nil where it cannot be typed.
func (m *mutant) insert(before *ir.Node, op ir.Op, a ir.Attrs, in ...*ir.Value) *ir.Value {
	n := &ir.Node{Op: op, Attrs: a, In: in}
	for _, r := range op.Def().Out {
		if !r.Optional {
			m.made++
			n.Out = append(n.Out, &ir.Value{Name: fmt.Sprintf("mutant.%d", m.made), Def: n, Idx: len(n.Out)})
		}
	}
	return m.place(before, n)
}

func (m *mutant) place(before, n *ir.Node) *ir.Value {
	if n.Retype() != nil {
		return nil
	}
	for s, body := range m.g.Body {
		if i := slices.Index(body, before); i >= 0 {
			m.g.Body[s] = slices.Insert(body, i, n)
			return n.Out[0]
		}
	}
	return nil
}

// copied puts a second computation of v, as edit changes it, before node x, and returns its value. It overflows where
// v does.
func (m *mutant) copied(x *ir.Node, v *ir.Value, edit func(y *ir.Node) bool) *ir.Value {
	d := v.Def
	y := &ir.Node{Op: d.Op, Attrs: d.Attrs, In: slices.Clone(d.In), Pin: d.Pin}
	for i := range d.Out {
		m.made++
		y.Out = append(y.Out, &ir.Value{Name: fmt.Sprintf("mutant.%d", m.made), Def: y, Idx: i})
	}
	if !edit(y) || m.place(x, y) == nil {
		return nil
	}
	m.twin[y] = m.fromNode[d]
	for i, w := range d.Out {
		m.fromValue[y.Out[i]] = m.fromValue[w]
	}
	return y.Out[v.Idx]
}

// drop removes a node that nothing reads any more.
func (m *mutant) drop(n *ir.Node) {
	m.g.Filter(func(_ ir.Section, x *ir.Node) bool { return x != n })
}

// repair infers all types again, first to last, and casts operands of products that no longer agree.
func (m *mutant) repair() bool {
	var all []*ir.Node
	for _, n := range m.g.Nodes {
		all = append(all, n)
	}
	for _, n := range all {
		if n.Def().Class == ir.Low && !m.agree(n) {
			return false
		}
		if n.Retype() != nil {
			return false
		}
	}
	return true
}

func (m *mutant) agree(n *ir.Node) bool {
	var first *ir.Value
	for i, x := range n.In {
		if x == nil || !x.Type.DType.Float() || n.OperandClass(i) != ir.Low {
			continue
		}
		if first == nil {
			first = x
		}
		if x.Type.DType != first.Type.DType {
			y := m.insert(n, ir.OpCast, ir.A("to", first.Type.DType), x)
			if y == nil {
				return false
			}
			n.In[i] = y
		}
	}
	return true
}

// candidate is one possible mutant of a subject.
type candidate struct {
	family, stratum string
	where, text     string
	edit            func(m *mutant) bool // false: it does not apply
}

// family is a kind of mistake.
type family struct {
	name string
	// outside says by the words of the claim why mutants of the family need not be caught; "" where they must be.
	outside string
	list    func(s *subject, add adder)
}

// adder takes a candidate at a node of the subject.
type adder func(n *ir.Node, edit func(m *mutant) bool, text string, args ...any)

// candidates lists the mutants of a family over a subject, at most so many, in turn over ops and sections.
func (s *subject) candidates(f *family, most int) []candidate {
	strata, names := map[string][]candidate{}, []string{}
	f.list(s, func(n *ir.Node, edit func(m *mutant) bool, text string, args ...any) {
		c := candidate{family: f.name, text: fmt.Sprintf(text, args...), edit: edit, where: "graph"}
		if n != nil {
			c.where = n.Name()
			c.stratum = fmt.Sprint(n.Def().Name, s.sec[n])
		}
		if strata[c.stratum] == nil {
			names = append(names, c.stratum)
		}
		strata[c.stratum] = append(strata[c.stratum], c)
	})
	r := s.rand(f.name)
	r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	for _, name := range names {
		l := strata[name]
		r.Shuffle(len(l), func(i, k int) { l[i], l[k] = l[k], l[i] })
	}
	var out []candidate
	for round := 0; len(out) < most; round++ {
		before := len(out)
		for _, name := range names {
			if l := strata[name]; round < len(l) && len(out) < most {
				out = append(out, l[round])
			}
		}
		if len(out) == before {
			break
		}
	}
	return out
}

// earlier lists values of v's type that stand before node n, v itself not among them.
func (s *subject) earlier(v *ir.Value, n *ir.Node) []*ir.Value {
	var out []*ir.Value
	for _, w := range s.byType[v.Type] {
		if w != v && s.at(w) < s.order[n] && !(s.sec[n] == ir.Prepare && w.Kind == ir.Input) {
			out = append(out, w)
		}
	}
	return out
}

// operand makes operand i of n read what with gives.
func operand(n *ir.Node, i int, with func(m *mutant, n *ir.Node, old *ir.Value) *ir.Value) func(*mutant) bool {
	return func(m *mutant) bool {
		x := m.node[n]
		v := with(m, x, x.In[i])
		if v == nil || v == x.In[i] {
			return false
		}
		x.In = slices.Clone(x.In)
		x.In[i] = v
		return true
	}
}

// reads makes operand i of n read a value of the subject.
func reads(n *ir.Node, i int, v *ir.Value) func(*mutant) bool {
	return operand(n, i, func(m *mutant, _ *ir.Node, _ *ir.Value) *ir.Value { return m.value[v] })
}

func (s *subject) operands(f func(n *ir.Node, i int, v *ir.Value)) {
	for _, n := range s.final.Nodes {
		for i, v := range n.In {
			if v != nil {
				f(n, i, v)
			}
		}
	}
}

// named finds an operand by its row's name, -1 where absent.
func named(n *ir.Node, name string) int {
	for i, o := range n.Def().In {
		if o.Name == name && i < len(n.In) && n.In[i] != nil {
			return i
		}
	}
	return -1
}
