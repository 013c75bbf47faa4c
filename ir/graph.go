package ir

import (
	"fmt"
	"slices"
)

// Section is when in the step a node runs.
type Section uint8

const (
	Prepare  Section = iota // once per optimizer step, before the micro-batches
	Forward                 // once per micro-batch
	Backward                // once per micro-batch
	Update                  // once per optimizer step
	NumSections
)

var sectionNames = [NumSections]string{"prepare", "forward", "backward", "update"}

func (s Section) String() string { return sectionNames[s] }

// VarKind is how a variable is declared.
type VarKind uint8

const (
	NotVar  VarKind = iota
	Input           // fed at every micro-batch
	Param           // trained weight
	State           // all other variables that outlive a step
	Const           // known at compile time
	numKind         // sentinel
)

var varNames = [numKind]string{"", "input", "param", "state", "const"}

func (k VarKind) String() string { return varNames[k] }

// Init is the value of a variable before the first step (of a const, always): a literal (Func ""
// and one argument), a named initializer with arguments, or a slice of a file (Func "file").
//
// Initializers: zeros, ones, normal(mean,std), uniform(lo,hi),
// trunc_normal(mean,std), data(v0,v1,...) in row-major order,
// kaiming(fan_in), xavier(fan_in,fan_out).
type Init struct {
	Func   string
	Args   []float64
	File   string
	Offset int64
	Size   int64
}

// Pos is the user's source position: a Go source line or a line of text form.
type Pos struct {
	File string
	Line int
}

func (p Pos) String() string {
	if p.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Value is a declared variable or the result of a node.
type Value struct {
	Type Type
	Kind VarKind // NotVar for results of nodes
	ID   int32   // scratch: dense after Graph.Number, meaningless otherwise
	Def  *Node   // nil for variables
	Idx  int     // which result of Def
	Next *Value  // variable whose next value this is; it prints as %name'
	// GradOf is the value whose whole gradient this is, in the sweep of the node. It is nil for all
	// other values, such as parts of a sum of gradients, except for sums over some of the rows (pass
	// chunks), which are stored as the whole gradient is.
	GradOf *Value
	Name   string // without the %, without the prime
	Unit   Unit   // product of the loss scales that the value carries
	Init   *Init
	Attr   Attrs // attributes of the declaration: role, decay group, ...
	Pos    Pos
}

// IsVar reports whether v is declared rather than computed.
func (v *Value) IsVar() bool { return v.Kind != NotVar }

// String returns the value as the text form writes it.
func (v *Value) String() string {
	if v == nil {
		return "_"
	}
	return string(v.append(nil))
}

// append appends String of v, which is not nil, to b.
func (v *Value) append(b []byte) []byte {
	b = append(append(b, '%'), bareOrQuoted(v.Name)...)
	if v.Next != nil {
		b = append(b, '\'')
	}
	return b
}

// Node is one op applied to values.
type Node struct {
	Op       Op
	Pin      Pin      // precision forced by code
	ID       int32    // scratch: dense after Graph.Number, meaningless otherwise
	In       []*Value // in the row's order, variadic ones last; nil for absent optional ones
	Out      []*Value
	Of       *Node // the forward node a backward node comes from
	Why      Reason
	Attrs    Attrs
	Custom   *Def     // the row when Op is OpCustom
	Captured []*Value // values the nested graphs of a foreign op read
	Pos      Pos
}

// Def returns the node's row.
func (n *Node) Def() *Def {
	if n.Op == OpCustom {
		return n.Custom
	}
	return &defs[n.Op]
}

// Name is the node's name in messages: that of its first result.
func (n *Node) Name() string {
	if len(n.Out) == 0 {
		return n.Def().Name
	}
	return n.Out[0].String()
}

// AppendName appends Name to b.
func (n *Node) AppendName(b []byte) []byte {
	if len(n.Out) == 0 {
		return append(b, n.Def().Name...)
	}
	return n.Out[0].append(b)
}

// Operand returns the operand that the row calls name, or nil if it is absent. Of a variadic
// operand it returns the first.
func (n *Node) Operand(name string) *Value {
	for i, o := range n.Def().In {
		if o.Name == name && i < len(n.In) {
			return n.In[i]
		}
	}
	return nil
}

// OperandDef returns the row's description of operand i. The variadic one describes all operands
// from its position on.
func (n *Node) OperandDef(i int) *Operand {
	in := n.Def().In
	if i >= len(in) {
		i = len(in) - 1
	}
	return &in[i]
}

// Numbers lists the attributes of n with a number that enters as e.
func (n *Node) Numbers(e Entry) []string {
	var names []string
	for _, a := range n.Def().Attrs {
		if a.Entry == e {
			names = append(names, a.Name)
		}
	}
	return names
}

// Graph is one training step, or a part of one.
type Graph struct {
	Name   string
	Syms   []Sym
	Vars   []*Value
	Body   [NumSections][]*Node
	Return []*Value
}

// Nodes calls f for every node in section order until it returns false.
func (g *Graph) Nodes(yield func(Section, *Node) bool) {
	for s := range NumSections {
		for _, n := range g.Body[s] {
			if !yield(s, n) {
				return
			}
		}
	}
}

// NumNodes counts the nodes of all sections.
func (g *Graph) NumNodes() int {
	n := 0
	for _, b := range g.Body {
		n += len(b)
	}
	return n
}

// Sym returns the dimension named name, adding it when new.
func (g *Graph) Sym(name string) Dim {
	for i, s := range g.Syms {
		if s.Name == name {
			return Dim(-i - 1)
		}
	}
	g.Syms = append(g.Syms, Sym{Name: name})
	return Dim(-len(g.Syms))
}

// TypeString prints t with the graph's names for symbolic dimensions.
func (g *Graph) TypeString(t Type) string { return typeString(t, g.Syms) }

// nominal is the size of d in costs.
func (g *Graph) nominal(d Dim) int64 {
	switch {
	case d >= 0:
		return int64(d)
	case d != UnknownDim && int(-d) <= len(g.Syms) && g.Syms[-d-1].Nominal > 0:
		return g.Syms[-d-1].Nominal
	}
	return defaultNominal
}

// Elements returns the element count of t with symbols at their nominal sizes.
func (g *Graph) Elements(t Type) int64 {
	if n := t.Shape.Elements(); n >= 0 {
		return n
	}
	if !t.Shape.Known() {
		return unknownElements
	}
	n := int64(1)
	for _, d := range t.Shape.Dims() {
		n *= g.nominal(d)
	}
	return n
}

// Var finds a declaration by name.
func (g *Graph) Var(name string) *Value {
	for _, v := range g.Vars {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// Value finds any unprimed value by name; it walks the graph.
func (g *Graph) Value(name string) *Value {
	if v := g.Var(name); v != nil {
		return v
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Name == name && v.Next == nil {
				return v
			}
		}
	}
	return nil
}

// NextOf finds the last value written to variable v, or nil if it keeps its value.
func (g *Graph) NextOf(v *Value) *Value {
	for s := range NumSections {
		for _, n := range g.Body[s] {
			for _, o := range n.Out {
				if o.Next == v {
					return o
				}
			}
		}
	}
	return nil
}

// Number gives every value and node of g a dense ID and returns their numbers. Values from outside
// the graph (captures of nested graphs) are numbered where they are first read.
func (g *Graph) Number() (values, nodes int) {
	for i, v := range g.Vars {
		v.ID = int32(i)
	}
	if g.Small() {
		return (*Part)(&g.Body).number(len(g.Vars), 0)
	}
	parts := g.Parts()
	value, node := make([]int, len(parts)+1), make([]int, len(parts)+1) // the first ID of each part
	value[0] = len(g.Vars)
	if len(parts) > 1 {
		g.InParts(parts[:len(parts)-1], func(k int, p *Part) {
			for _, n := range p.Nodes {
				value[k+1] += len(n.Out)
				node[k+1]++
			}
		})
	}
	for k := range parts {
		value[k+1] += value[k]
		node[k+1] += node[k]
	}
	last := len(parts) - 1
	g.InParts(parts, func(k int, p *Part) {
		v, n := p.number(value[k], node[k])
		if k == last {
			values, nodes = v, n
		}
	})
	return values, nodes
}

// number numbers the values and nodes of p from the given IDs on, and returns those after it.
func (p *Part) number(value, node int) (int, int) {
	for _, n := range p.Nodes {
		n.ID = int32(node)
		node++
		for _, v := range n.Out {
			v.ID = int32(value)
			value++
		}
	}
	return value, node
}

// Use is one read of a value. There is one for each operand of a graph, so it is small.
type Use struct {
	Node    *Node
	arg     int32
	Section Section
}

// Arg is the operand of Node that the read is, or -1 for a captured value.
func (u Use) Arg() int { return int(u.arg) }

// Uses is a snapshot of the readers of all values, by Value.ID. Passes compute it again after
// edits: one walk costs less than keeping it current.
type Uses struct {
	start []int32
	list  []Use
}

// Uses numbers the graph and indexes every read in it (Graph.Return not included).
func (g *Graph) Uses() *Uses { return g.UsesIn(&Uses{}) }

// UsesIn is Uses in the memory of u, which is lost.
func (g *Graph) UsesIn(u *Uses) *Uses {
	values, _ := g.Number()
	parts := g.Parts()
	next := make([][]int32, len(parts)) // by part and value: the number of its reads, then where the next one goes
	g.InParts(parts, func(k int, p *Part) {
		count := make([]int32, values)
		p.eachUse(func(v *Value, _ Use) { count[v.ID]++ })
		next[k] = count
	})
	u.start = slices.Grow(u.start[:0], values+1)[:values+1]
	sum := int32(0)
	for v := range values {
		u.start[v] = sum
		for _, at := range next {
			at[v], sum = sum, sum+at[v]
		}
	}
	u.start[values] = sum
	clear(u.list[min(int(sum), len(u.list)):]) // readers that the graph may not have any more
	if cap(u.list) < int(sum) {                // with room for the casts to come
		u.list = make([]Use, sum, sum+sum/4)
	}
	u.list = u.list[:sum]
	g.InParts(parts, func(k int, p *Part) {
		at := next[k]
		p.eachUse(func(v *Value, x Use) {
			u.list[at[v.ID]] = x
			at[v.ID]++
		})
	})
	return u
}

func (p *Part) eachUse(f func(*Value, Use)) {
	for s, n := range p.Nodes {
		for i, v := range n.In {
			if v != nil {
				f(v, Use{n, int32(i), s})
			}
		}
		for _, v := range n.Captured {
			f(v, Use{n, -1, s})
		}
	}
}

// Values counts the values of the graph.
func (u *Uses) Values() int { return len(u.start) - 1 }

// Equal reports whether both are the same readers of the same values.
func (u *Uses) Equal(w *Uses) bool {
	return slices.Equal(u.start, w.start) && slices.Equal(u.list, w.list)
}

// Of returns the reads of v, in section and list order.
func (u *Uses) Of(v *Value) []Use { return u.list[u.start[v.ID]:u.start[v.ID+1]] }
