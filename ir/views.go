package ir

import "slices"

// StridedKernels is which operands and results the kernels of a target access by strides, and which
// nodes that move elements need no code then.
type StridedKernels struct {
	Reads  func(n *Node, i int, p StridedView) bool // operand i, if it is the view p
	Writes func(n *Node, k int, p StridedView) bool // result k, if it is the view p
	Moves  func(n *Node) bool                       // n need not have a copy of its own
}

// StridedViews are the values of a graph without their own memory, and the nodes that move elements
// without code. If only strided kernels read the result of a selection or reordering, it is a view
// of the operand. If a strided kernel writes a value, it may be a view of the reordering or
// concatenation that reads it. Variables, next values and views of variables have their own memory.
type StridedViews struct {
	At     map[*Value]StridedView
	Shared map[*Node]bool // nodes for which w.Moves is true
}

// FindViews finds the strided views of g under w. Uses must be g's.
func FindViews(g *Graph, uses *Uses, w StridedKernels) StridedViews {
	f := &viewFinder{w: w, uses: uses, returned: map[*Value]bool{}, StridedViews: StridedViews{map[*Value]StridedView{}, map[*Node]bool{}}}
	for _, v := range g.Return {
		f.returned[v] = true
	}
	for _, n := range g.Nodes {
		f.follow(n)
	}
	parts := g.Parts()
	routes := make([][]*route, len(parts))
	g.InParts(parts, func(i int, p *Part) {
		for _, n := range p.Nodes {
			for k := range n.Out {
				if r := f.route(n, k); r != nil {
					routes[i] = append(routes[i], r)
				}
			}
		}
	})
	list := slices.Concat(routes...)
	f.joined(list)
	for _, r := range list {
		f.take(r)
	}
	return f.StridedViews
}

type viewFinder struct {
	StridedViews
	w        StridedKernels
	uses     *Uses
	returned map[*Value]bool
}

// stays reports whether v must have its own memory.
func (f *viewFinder) stays(v *Value) bool { return f.returned[v] || v.Next != nil }

// whole is the view of a dense value that a node computes.
func (f *viewFinder) whole(v *Value) (StridedView, bool) {
	root := v
	for root.Def != nil && root.Def.Def().Is(View) && root.Next == nil {
		root = root.Def.In[0]
	}
	if root.Def == nil || root.Next != nil || v.Next != nil || !v.Type.DType.Float() || !v.Type.Shape.Static() || v.Type.Shape.Elements() == 0 {
		return StridedView{}, false
	}
	return Whole(v), true
}

// follow makes the results of n views of its operand if all readers allow it.
func (f *viewFinder) follow(n *Node) {
	if len(n.In) == 0 || n.In[0] == nil {
		return
	}
	p, placed := f.At[n.In[0]]
	switch {
	case n.Def().Is(View) && placed:
	case n.Def().Is(View) || n.Joins() || !f.w.Moves(n):
		return
	case !placed:
		if p, placed = f.whole(n.In[0]); !placed {
			return
		}
	}
	if !f.passes(n, p) {
		return
	}
	f.Shared[n] = !n.Def().Is(View)
	for k, v := range n.Out {
		if q, ok := p.Through(n, k); ok && len(f.uses.Of(v)) > 0 {
			f.At[v] = q
		}
	}
}

// passes reports whether all readers of the results of n, whose operand is view p, can read them as
// views.
func (f *viewFinder) passes(n *Node, p StridedView) bool {
	some := false
	for k, v := range n.Out {
		if len(f.uses.Of(v)) == 0 && !f.stays(v) {
			continue
		}
		q, ok := p.Through(n, k)
		if !ok || !f.found(v, q) {
			return false
		}
		some = true
	}
	return some
}

// found reports whether all readers of v can read it as view p.
func (f *viewFinder) found(v *Value, p StridedView) bool {
	if f.stays(v) {
		return false
	}
	for _, u := range f.uses.Of(v) {
		n := u.Node
		switch {
		case u.Arg() < 0:
			return false
		case f.w.Reads(n, u.Arg(), p):
		case u.Arg() != 0 || n.Joins() || !n.Def().Is(View) && !f.w.Moves(n) || !f.passes(n, p):
			return false
		}
	}
	return true
}

// route is the path of a result through moving nodes to its final memory.
type route struct {
	from    *Node
	k       int
	nodes   []*Node
	args    []int // by node: the operand
	readers []Use // other readers than the first node
}

// route follows result k of n; nil if no node moves it.
func (f *viewFinder) route(n *Node, k int) *route {
	v := n.Out[k]
	if !slices.ContainsFunc(f.uses.Of(v), f.carries) { // most results: all others cost more to find out
		return nil
	}
	if f.stays(v) || !v.Type.DType.Float() || !v.Type.Shape.Static() || v.Type.Shape.Elements() == 0 || !f.w.Writes(n, k, Whole(v)) {
		return nil
	}
	r := &route{from: n, k: k}
	for _, u := range f.uses.Of(v) {
		switch {
		case u.Arg() < 0 || f.Shared[u.Node]:
			return nil
		case f.w.Reads(u.Node, u.Arg(), Whole(v)):
			r.readers = append(r.readers, u)
		case len(r.nodes) == 0 && f.carries(u):
			r.add(u)
		default:
			return nil
		}
	}
	for len(r.nodes) > 0 && !r.end().Joins() {
		v := r.end().Out[0]
		uses := f.uses.Of(v)
		if len(uses) != 1 || f.stays(v) || !f.carries(uses[0]) {
			break
		}
		r.add(uses[0])
	}
	if r.trim(); len(r.nodes) == 0 {
		return nil
	}
	return r
}

// carries reports whether u's result contains all of u's operand.
func (f *viewFinder) carries(u Use) bool {
	n := u.Node
	if n.Def().Is(View) {
		return u.Arg() == 0 && n.Out[0].Next == nil
	}
	return (n.Reorders() || n.Joins()) && u.Arg() >= 0 && n.Out[0].Next == nil && !f.Shared[n] && f.w.Moves(n)
}

func (r *route) add(u Use)  { r.nodes, r.args = append(r.nodes, u.Node), append(r.args, u.Arg()) }
func (r *route) end() *Node { return r.nodes[len(r.nodes)-1] }
func (r *route) cut()       { r.nodes, r.args = r.nodes[:len(r.nodes)-1], r.args[:len(r.args)-1] }

// trim removes View rows from the end of the path.
func (r *route) trim() {
	for len(r.nodes) > 0 && r.end().Def().Is(View) {
		r.cut()
	}
}

// views lists the views of the operands of r's nodes, starting with the result itself; nil if the
// result or one of its readers does not allow it.
func (f *viewFinder) views(r *route) []StridedView {
	if len(r.nodes) == 0 {
		return nil
	}
	at := make([]StridedView, len(r.nodes))
	p := Whole(r.end().Out[0])
	for i := len(r.nodes) - 1; i >= 0; i-- {
		var ok bool
		if p, ok = p.back(r.nodes[i], r.args[i]); !ok {
			return nil
		}
		at[i] = p
	}
	if !f.w.Writes(r.from, r.k, p) {
		return nil
	}
	for _, u := range r.readers {
		if !f.w.Reads(u.Node, u.Arg(), p) {
			return nil
		}
	}
	return at
}

// joined shortens paths that reach a concatenation if not all of its operands do.
func (f *viewFinder) joined(list []*route) {
	reached := map[*Node]int{}
	for _, r := range list {
		if c := r.end(); c.Joins() && f.views(r) != nil {
			reached[c]++
		}
	}
	for _, r := range list {
		if c := r.end(); c.Joins() && reached[c] < len(c.In) {
			r.cut()
			r.trim()
		}
	}
}

// take makes the values on path r views.
func (f *viewFinder) take(r *route) {
	for i, p := range f.views(r) {
		n := r.nodes[i]
		f.At[n.In[r.args[i]]] = p
		if !n.Def().Is(View) {
			f.Shared[n] = true
		}
	}
}

// InPlace reports whether n is a concatenation whose operands are stored in its result.
func (n *Node) InPlace() bool { return n.Joins() && n.Flag("inplace") }

// Shares reports whether n moves nothing: it is a View row, or a marked node whose results are
// views of its operand or whose operands are views of its result.
func (n *Node) Shares() bool {
	d := n.Def()
	return d.Is(View) || d.Is(Moves) && n.Flag("view")
}
