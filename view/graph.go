package view

import (
	"cmp"
	"math"
	"slices"
	"unicode/utf8"

	"ampc/ir"
	"ampc/passes"
)

// Graph is a graph as the page draws it. Numbers refer to places in its lists.
type Graph struct {
	Name     string  `json:"name"`
	Boxes    []Box   `json:"boxes"`
	Values   []Value `json:"values"`
	Scopes   []Scope `json:"scopes"`
	Sections []int   `json:"sections"` // indices of scopes
	Returns  []int   `json:"returns"`  // indices of values
}

// Box is a node, or a variable.
type Box struct {
	Op      string `json:"op"`            // the name of the op, or the kind of the variable
	Var     bool   `json:"var,omitempty"` // true for a variable
	Section int    `json:"section"`
	In      []int  `json:"in,omitempty"` // indices of values; -1 for an absent operand
	Out     []int  `json:"out"`
	Line    string `json:"line"` // line of the text form
	Pos     string `json:"pos,omitempty"`
	Cluster int32  `json:"cluster,omitempty"`
	Launch  int32  `json:"launch,omitempty"`
	Flops   int64  `json:"flops,omitempty"`
	Read    int64  `json:"read,omitempty"`  // bytes
	Write   int64  `json:"write,omitempty"` // bytes
}

// Value is a variable or a result of a node.
type Value struct {
	Name  string `json:"name"` // name in the text form
	Type  string `json:"type"`
	DType string `json:"dtype"`
	Unit  string `json:"unit,omitempty"` // loss scales that the value is multiplied by; "": none
	Box   int    `json:"box"`
	Why   string `json:"why"`   // the line that ampc why prints
	Cause int    `json:"cause"` // index of the value that decided its dtype, -1: none
}

// maxLine is the number of bytes of a line that are shown, because constants may be long.
const maxLine = 600

// Describe makes the picture of a graph: its values with their reasons, and the layout of
// every scope.
func (l *Layouts) Describe(g *ir.Graph) (*Graph, error) {
	p := &picture{g: g, out: &Graph{Name: g.Name, Boxes: []Box{}, Values: []Value{}, Scopes: []Scope{}, Sections: []int{}, Returns: []int{}}}
	p.boxes()
	p.sections()
	for _, v := range g.Return {
		p.out.Returns = append(p.out.Returns, p.value[v])
	}
	drawings, err := l.place(p.forms)
	for id, d := range drawings {
		p.out.Scopes[id].arrange(p.forms[id], d)
	}
	return p.out, err
}

// Block is a block that holds a graph.
func (l *Layouts) Block(name, label string, g *ir.Graph) Block {
	return Block{name, label, func() (any, error) { return l.Describe(g) }}
}

// picture builds a Graph.
type picture struct {
	g      *ir.Graph
	out    *Graph
	value  map[*ir.Value]int
	places []placement // by box
	all    []*ir.Value // by index
	forms  []form      // by scope
}

func (p *picture) boxes() {
	nodes, vars := p.g.Lines()
	p.value = map[*ir.Value]int{}
	number := func(v *ir.Value, box int) int {
		k := len(p.all)
		p.value[v] = k
		p.all = append(p.all, v)
		p.out.Values = append(p.out.Values, Value{Name: v.String(), Type: p.g.TypeString(v.Type), DType: v.Type.DType.String(), Unit: string(v.Unit), Box: box})
		return k
	}
	for i, v := range p.g.Vars {
		k := number(v, len(p.out.Boxes))
		p.out.Boxes = append(p.out.Boxes, Box{Op: v.Kind.String(), Var: true, Section: -1, Out: []int{k}, Line: cut(vars[i]), Pos: v.Pos.String()})
		p.places = append(p.places, placement{path: nameParts(v)})
	}
	first := len(p.out.Boxes)
	for s, n := range p.g.Nodes {
		at := len(p.out.Boxes)
		cost := p.g.NodeCost(n)
		b := Box{Op: n.Def().Name, Section: int(s), Out: []int{}, Line: cut(nodes[at-first]), Pos: n.Pos.String(), Cluster: n.Why.Cluster, Launch: n.Why.Launch, Flops: cost.Flops, Read: cost.Read, Write: cost.Write}
		for _, v := range n.Out {
			b.Out = append(b.Out, number(v, at))
		}
		p.out.Boxes = append(p.out.Boxes, b)
		place := placement{launch: n.Why.Launch, cluster: n.Why.Cluster}
		if len(n.Out) > 0 {
			place.path = nameParts(n.Out[0])
		}
		p.places = append(p.places, place)
	}
	settle(p.places)
	p.operands(first)
	for k, v := range p.all {
		link, cause := passes.Explain(p.g, v)
		p.out.Values[k].Why, p.out.Values[k].Cause = link.String(), -1
		if at, known := p.value[cause]; known {
			p.out.Values[k].Cause = at
		}
	}
}

// operands fills in the operands of nodes, and places a variable where it is first read.
func (p *picture) operands(first int) {
	at := first
	for s, n := range p.g.Nodes {
		b := &p.out.Boxes[at]
		for _, v := range slices.Concat(n.In, n.Captured) {
			k, known := p.value[v]
			if !known {
				b.In = append(b.In, -1)
				continue
			}
			b.In = append(b.In, k)
			if source := &p.out.Boxes[p.out.Values[k].Box]; source.Var && source.Section < 0 {
				source.Section = int(s)
			}
		}
		at++
	}
	for i := range p.out.Boxes {
		p.out.Boxes[i].Section = max(p.out.Boxes[i].Section, 0) // variables that nothing reads
	}
}

// sections computes the layout of every section that has boxes.
func (p *picture) sections() {
	for s := range ir.NumSections {
		var boxes []int
		for i := range p.out.Boxes {
			if p.out.Boxes[i].Section == int(s) {
				boxes = append(boxes, i)
			}
		}
		if len(boxes) == 0 {
			continue
		}
		root := grow(s.String(), p.inTime(boxes), p.places)
		p.out.Sections = append(p.out.Sections, p.scope(root))
	}
}

// inTime orders a section's boxes: nodes in graph order, each variable before its first reader.
func (p *picture) inTime(boxes []int) []int {
	own, placed := map[int]bool{}, map[int]bool{}
	for _, b := range boxes {
		own[b] = true
	}
	var out []int
	add := func(b int) {
		if own[b] && !placed[b] {
			placed[b] = true
			out = append(out, b)
		}
	}
	for _, b := range boxes {
		if p.out.Boxes[b].Var {
			continue
		}
		for _, v := range p.out.Boxes[b].In {
			if v >= 0 && p.out.Boxes[p.out.Values[v].Box].Var {
				add(p.out.Values[v].Box)
			}
		}
		add(b)
	}
	for _, b := range boxes {
		add(b)
	}
	return out
}

// sizes of folded items in pixels; the page's script has the same
var (
	nodeBox  = box{168, 44}
	varBox   = box{150, 30}
	castBox  = box{96, 24}
	scopeBox = box{190, 52}
)

// sizeOf is the size of a box on the page.
func sizeOf(b *Box) box {
	switch {
	case b.Var:
		return varBox
	case b.Op == ir.OpCast.Def().Name:
		return castBox
	}
	return nodeBox
}

// scope describes t and everything in it, and returns its index.
func (p *picture) scope(t *tree) int {
	id := len(p.out.Scopes)
	p.out.Scopes, p.forms = append(p.out.Scopes, Scope{Name: t.name, Kind: t.kind, Boxes: t.count}), append(p.forms, form{})
	slices.SortStableFunc(t.children, func(a, b *tree) int { return cmp.Compare(a.mean(), b.mean()) })
	items, boxes := make([]int, len(t.children)), make([]box, len(t.children))
	home := map[int]int{} // the item that contains a box
	for i, c := range t.children {
		if c.kind == "" {
			items[i], boxes[i] = c.box, sizeOf(&p.out.Boxes[c.box])
		} else {
			items[i], boxes[i] = -1-p.scope(c), scopeBox
		}
		c.leaves(func(b int) { home[b] = i })
	}
	p.out.Scopes[id].Items, p.forms[id] = items, form{boxes, p.edges(home)}
	return id
}

// arrange fills in the places of what is in a scope.
func (s *Scope) arrange(f form, d placed) {
	s.Rows, s.X, s.Edges = d.rows, []int{}, [][]int{}
	for _, x := range d.x {
		s.X = append(s.X, int(math.Round(x)))
	}
	for i, e := range f.edges {
		s.Edges = append(s.Edges, append([]int{e[0], e[1]}, d.bends[i]...))
	}
}

// leaves calls f for every box in t.
func (t *tree) leaves(f func(b int)) {
	if t.kind == "" {
		f(t.box)
	}
	for _, c := range t.children {
		c.leaves(f)
	}
}

// edges returns the pairs of items of which one reads the other, in order.
func (p *picture) edges(home map[int]int) [][2]int {
	seen := map[[2]int]bool{}
	var list [][2]int
	for b, to := range home {
		for _, v := range p.out.Boxes[b].In {
			if v < 0 {
				continue
			}
			from, inside := home[p.out.Values[v].Box]
			if e := [2]int{from, to}; inside && from != to && !seen[e] {
				seen[e] = true
				list = append(list, e)
			}
		}
	}
	slices.SortFunc(list, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return list
}

// cut truncates a line to maxLine bytes.
func cut(s string) string {
	if len(s) <= maxLine {
		return s
	}
	n := maxLine
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
