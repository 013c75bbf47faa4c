package ir

// Walker says which operands and results a target's kernels find by strides,
// and which moving nodes may be left to them.
type Walker struct {
	Reads  func(n *Node, i int, p Place) bool // operand i, lying at p
	Writes func(n *Node, k int, p Place) bool // result k, lying at p
	Moves  func(n *Node) bool                 // n may have no copy of its own
}

// Places are the values of a graph that have no memory of their own, and the
// moving nodes for which nothing is to be done. What selects or reorders, and
// is read by kernels that walk strides alone, lies where its operand does; what
// such a kernel writes lies where a reordering or a concatenation behind it
// puts it. Variables and next values have memory of their own, and so has what
// shows a variable.
type Places struct {
	At     map[*Value]Place
	Shared map[*Node]bool // of the nodes that w.Moves
}

// FindPlaces finds the places of g's values under w. Uses must be g's.
func FindPlaces(g *Graph, uses *Uses, w Walker) Places {
	f := &placer{w: w, uses: uses, returned: map[*Value]bool{}, Places: Places{map[*Value]Place{}, map[*Node]bool{}}}
	for _, v := range g.Return {
		f.returned[v] = true
	}
	for _, n := range g.Nodes {
		f.follow(n)
	}
	var list []*route
	for _, n := range g.Nodes {
		for k := range n.Out {
			if r := f.route(n, k); r != nil {
				list = append(list, r)
			}
		}
	}
	f.joined(list)
	for _, r := range list {
		f.take(r)
	}
	return f.Places
}

type placer struct {
	Places
	w        Walker
	uses     *Uses
	returned map[*Value]bool
}

// stays reports whether v must have memory of its own.
func (f *placer) stays(v *Value) bool { return f.returned[v] || v.Next != nil }

// whole is the place of a dense value that a node computes.
func (f *placer) whole(v *Value) (Place, bool) {
	root := v
	for root.Def != nil && root.Def.Def().Is(View) && root.Next == nil {
		root = root.Def.In[0]
	}
	if root.Def == nil || root.Next != nil || v.Next != nil || !v.Type.DType.Float() || !v.Type.Shape.Static() || v.Type.Shape.Elements() == 0 {
		return Place{}, false
	}
	return Whole(v), true
}

// follow places n's results in the memory of its operand.
func (f *placer) follow(n *Node) {
	if len(n.In) == 0 || n.In[0] == nil {
		return
	}
	p, placed := f.At[n.In[0]]
	switch {
	case n.Def().Is(View) && placed:
	case n.Def().Is(View) || n.Op == OpConcat || !f.w.Moves(n):
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

// passes reports whether all that reads the results of n, whose operand lies at
// p, finds them there.
func (f *placer) passes(n *Node, p Place) bool {
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

// found reports whether all readers of v find it at p.
func (f *placer) found(v *Value, p Place) bool {
	if f.stays(v) {
		return false
	}
	for _, u := range f.uses.Of(v) {
		n := u.Node
		switch {
		case u.Arg < 0:
			return false
		case f.w.Reads(n, u.Arg, p):
		case u.Arg != 0 || n.Op == OpConcat || !n.Def().Is(View) && !f.w.Moves(n) || !f.passes(n, p):
			return false
		}
	}
	return true
}

// route is the way of a result through moving nodes to where it is wanted.
type route struct {
	from    *Node
	k       int
	nodes   []*Node
	args    []int // which operand of each
	readers []Use // beside the first node
}

// route follows result k of n; nil where nothing moves it.
func (f *placer) route(n *Node, k int) *route {
	v := n.Out[k]
	if f.stays(v) || !v.Type.DType.Float() || !v.Type.Shape.Static() || v.Type.Shape.Elements() == 0 || !f.w.Writes(n, k, Whole(v)) {
		return nil
	}
	r := &route{from: n, k: k}
	for _, u := range f.uses.Of(v) {
		switch {
		case u.Arg < 0 || f.Shared[u.Node]:
			return nil
		case f.w.Reads(u.Node, u.Arg, Whole(v)):
			r.readers = append(r.readers, u)
		case len(r.nodes) == 0 && f.carries(u):
			r.add(u)
		default:
			return nil
		}
	}
	for len(r.nodes) > 0 && r.end().Op != OpConcat {
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

// carries reports whether all of what u reads is in u's result, moved.
func (f *placer) carries(u Use) bool {
	n := u.Node
	if n.Def().Is(View) {
		return u.Arg == 0 && n.Out[0].Next == nil
	}
	return (n.Op == OpTranspose || n.Op == OpConcat) && u.Arg >= 0 && n.Out[0].Next == nil && !f.Shared[n] && f.w.Moves(n)
}

func (r *route) add(u Use)  { r.nodes, r.args = append(r.nodes, u.Node), append(r.args, u.Arg) }
func (r *route) end() *Node { return r.nodes[len(r.nodes)-1] }
func (r *route) cut()       { r.nodes, r.args = r.nodes[:len(r.nodes)-1], r.args[:len(r.args)-1] }

// trim leaves out views at the end: they show what lies there.
func (r *route) trim() {
	for len(r.nodes) > 0 && r.end().Def().Is(View) {
		r.cut()
	}
}

// places are where the operands of r's nodes lie, the result itself first;
// nil where it, or one of its readers, cannot be there.
func (f *placer) places(r *route) []Place {
	if len(r.nodes) == 0 {
		return nil
	}
	at := make([]Place, len(r.nodes))
	p := Whole(r.end().Out[0])
	for i := len(r.nodes) - 1; i >= 0; i-- {
		var ok bool
		if p, ok = p.Back(r.nodes[i], r.args[i]); !ok {
			return nil
		}
		at[i] = p
	}
	if !f.w.Writes(r.from, r.k, p) {
		return nil
	}
	for _, u := range r.readers {
		if !f.w.Reads(u.Node, u.Arg, p) {
			return nil
		}
	}
	return at
}

// joined ends routes before a concatenation that not all operands reach.
func (f *placer) joined(list []*route) {
	reached := map[*Node]int{}
	for _, r := range list {
		if c := r.end(); c.Op == OpConcat && f.places(r) != nil {
			reached[c]++
		}
	}
	for _, r := range list {
		if c := r.end(); c.Op == OpConcat && reached[c] < len(c.In) {
			r.cut()
			r.trim()
		}
	}
}

// take places what is on the way of r.
func (f *placer) take(r *route) {
	for i, p := range f.places(r) {
		n := r.nodes[i]
		f.At[n.In[r.args[i]]] = p
		if !n.Def().Is(View) {
			f.Shared[n] = true
		}
	}
}

// Shares reports whether n moves nothing: a View row, or a moving node marked
// so, whose results lie in its operand or whose operands lie in its result.
func (n *Node) Shares() bool {
	d := n.Def()
	return d.Is(View) || d.Is(Moves) && n.Flag("view")
}
