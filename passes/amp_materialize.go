package passes

import (
	"slices"

	"ampc/ir"
)

// materialize writes the chosen dtypes into the graph. It compares the requirements of readers with
// the types that inference finds, not with predictions: if a row cannot store the chosen dtype, the
// result is one cast more and still correct. The builder b is of a's graph.
func (a *assigner) materialize(b *ir.Builder) error {
	r := &materializer{assigner: a, b: b, left: map[*ir.Value]*ir.Value{}, same: map[*ir.Value]*ir.Value{}, shown: map[castKey]*ir.Value{}, asked: map[castKey][]ir.SourceCast{}, forms: map[*ir.Node]bool{}, wide: map[*ir.Node]*ir.Value{}, interior: make([]bool, len(a.node))}
	a.g.InParts(a.g.Parts(), func(_ int, p *ir.Part) {
		for _, n := range p.Nodes {
			r.interior[n.ID] = len(n.Out) > 0 && r.readInside(n.Out[0])
		}
	})
	for s := range ir.NumSections {
		body := a.g.Body[s]
		a.g.Body[s] = make([]*ir.Node, 0, len(body)+len(body)/2)
		r.b = r.b.In(s)
		for _, n := range body {
			a.c.At(n)
			if err := r.place(s, n); err != nil {
				return err
			}
		}
	}
	if err := r.returns(); err != nil {
		return err
	}
	replace(a.g, r.same)
	r.sweep()
	return nil
}

type materializer struct {
	*assigner
	b     *ir.Builder
	left  map[*ir.Value]*ir.Value     // by value used in its cluster: the cast that other readers use
	same  map[*ir.Value]*ir.Value     // by cast written by hand: its replacement
	shown map[castKey]*ir.Value       // views of casts, by viewed value and dtype
	asked map[castKey][]ir.SourceCast // by value and 16-bit dtype: the casts of the source that gave it
	forms map[*ir.Node]bool           // casts that replace casts written by hand
	wide  map[*ir.Node]*ir.Value      // by view: the viewed value, if readers may read it in f32 (returnsWide)

	interior []bool // by ID of a node that was there before: whether a node of its own cluster reads its first result
}

// place casts the operands of n, sets its stored dtypes and appends n, followed by the cast that
// readers outside of its cluster use.
func (r *materializer) place(s ir.Section, n *ir.Node) error {
	if r.formCast(n) {
		r.dissolve(s, n)
		return r.b.Err()
	}
	t := &r.node[n.ID]
	marks := n.Why.Marks &^ (ir.MarkReadsLow | ir.MarkStoresF32 | ir.MarkStoresLow)
	reads := false // an operand in another dtype than before
	for i, v := range n.In {
		if v == nil || v.Type.DType == ir.F64 || !v.Type.DType.Float() {
			continue
		}
		n.In[i] = r.operand(n, i, v)
		reads = reads || n.In[i].Type.DType != r.src[v.ID]
		if t.class == ir.Keep && n.In[i].Type.DType.Low() {
			marks |= ir.MarkReadsLow
		}
	}
	if r.b.Err() != nil {
		return r.b.Err()
	}
	if n.Op != ir.OpForeign {
		if err := r.store(n, t, reads); err != nil {
			return err
		}
	}
	r.math(n, t)
	if len(n.Out) > 0 {
		switch d := n.Out[0].Type.DType; {
		case t.class == ir.Low && d == ir.F32 && r.low != ir.F32 && !r.interior[n.ID]:
			marks |= ir.MarkStoresF32
		case t.class == ir.Keep && d.Low():
			marks |= ir.MarkStoresLow
		}
	}
	casts := n.Why.Casts
	if len(casts) > 0 {
		r.asked[castKey{n.Out[0], r.src[n.Out[0].ID]}] = casts
	}
	n.Why = ir.Reason{Class: t.class, Cause: t.cause, From: t.from, Rule: t.rule, Marks: marks, Cluster: n.Why.Cluster, Launch: n.Why.Launch}
	if len(n.Out) > 0 && n.Out[0].Type.DType.Low() {
		n.Why.Casts = casts
	}
	r.g.Body[s] = append(r.g.Body[s], n)
	return r.leave(n)
}

// dissolve replaces n, a cast written by hand, by a cast like those that the policy needs, under
// n's name, or by the operand itself if it has that dtype.
func (r *materializer) dissolve(s ir.Section, n *ir.Node) {
	v, out := r.current(n.In[0]), n.Out[0]
	before := len(r.g.Body[s])
	x := r.cast(v, r.src[out.ID], 0)
	if len(r.g.Body[s]) > before {
		x.Name, x.Def.Pos = out.Name, n.Pos
		for _, m := range r.g.Body[s][before:] {
			r.forms[m] = true
		}
	}
	if x.Type.DType.Low() {
		addCasts(x, n.Why.Casts)
	}
	r.same[out] = x
}

// sweep drops replacements of casts written by hand that are not read, because all readers take the
// operand.
func (r *materializer) sweep() {
	if len(r.forms) == 0 {
		return
	}
	read := map[*ir.Value]bool{}
	for _, v := range r.g.Return {
		read[v] = true
	}
	for s := int(ir.NumSections) - 1; s >= 0; s-- {
		body := r.g.Body[s]
		kept := len(body)
		for _, n := range slices.Backward(body) {
			if r.forms[n] && !slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return read[v] }) {
				continue
			}
			kept--
			body[kept] = n
			for _, v := range operands(n) {
				read[v] = true
			}
		}
		r.g.Body[s] = body[kept:]
	}
}

// current is v for readers outside of its cluster.
func (r *materializer) current(v *ir.Value) *ir.Value {
	if x := r.same[v]; x != nil {
		v = x
	}
	if x := r.leftBy(v); x != nil {
		v = x
	}
	return v
}

// leftBy is the cast of v that readers outside of its cluster use, or nil. Most values are in no cluster,
// so the map is seldom asked.
func (r *materializer) leftBy(v *ir.Value) *ir.Value {
	if v.Def == nil || v.Def.Why.Cluster == 0 {
		return nil
	}
	return r.left[v]
}

// operand returns v as n reads it, cast if necessary.
func (r *materializer) operand(n *ir.Node, i int, v *ir.Value) *ir.Value {
	if v.Def != nil && n.Why.Cluster > 0 && v.Def.Why.Cluster == n.Why.Cluster {
		return v
	}
	z := r.tensorOf(v)
	d := r.readAs(n, i)
	switch wide := r.leftBy(v) != nil && r.returnsWide(v); {
	case wide && d == ir.F32:
	case wide && d == ir.Invalid && shares(n):
		r.wide[n] = v
		fallthrough
	default:
		v = r.current(v)
	}
	if d == ir.Invalid {
		if x := r.unwidened(v); r.c.Caps.Loads(n, i) && x.Type.DType.Low() {
			v = x
		}
		d = v.Type.DType
	}
	v = r.cast(v, d, 0)
	if v.Def != nil && v.Def.Op == ir.OpCast && v.Type.DType.Low() && r.loads[load{n.Why.Cluster, z}] {
		v.Def.Why.Cluster, v.Def.Why.Launch = n.Why.Cluster, n.Why.Launch
	}
	return v
}

// readAs is the dtype in which n reads operand i. It is Invalid if n reads the stored dtype.
func (r *materializer) readAs(n *ir.Node, i int) ir.DType {
	switch d := r.requiredDType(n, i); {
	case d == ir.F32 && r.planned && r.p.converts(n): // the cast converts both dtypes
		return ir.Invalid
	case d != ir.Invalid:
		return d
	case r.readsCast(n, i):
		return r.low
	case r.c.Caps.Loads(n, i) || !r.node[n.ID].free() || n.Def().Is(ir.View) || shares(n):
		return ir.Invalid
	case r.readsF32[n.ID]:
		return ir.F32
	}
	return r.want[n.Out[0].ID] // a free row whose kernel reads only the dtype of its result
}

// returnsWide reports whether the caller gets v in f32, under a plan. If that is a register of v's
// cluster, those who require f32 read it as well. Without a plan all read the 16-bit form, so that no
// bit depends on what the caller gets.
func (r *materializer) returnsWide(v *ir.Value) bool {
	return r.planned && r.out[v.ID] && r.src[v.ID] == ir.F32 && r.p.Outputs == ir.Invalid
}

// tensorOf is the value that v is after casts written by hand are removed.
func (r *materializer) tensorOf(v *ir.Value) *ir.Value {
	for v.Def != nil && r.formCast(v.Def) {
		v = v.Def.In[0]
	}
	return v
}

// cast emits a cast of v to d unless v has that dtype. If v is a view, it casts the viewed tensor,
// once for all views. An eager system casts the operand itself.
func (r *materializer) cast(v *ir.Value, d ir.DType, marks ir.Marks) *ir.Value {
	if v == nil || d == ir.Invalid || v.Type.DType == d {
		return v
	}
	if v = r.unwidened(v); v.Type.DType == d {
		return v
	}
	if v.Def != nil && shares(v.Def) && !v.Def.Joins() && v.Type.DType.Float() && !r.p.Eager {
		return r.view(v, d, marks)
	}
	out := r.b.Named(castName(v, d)).Cast(v, d)
	if out == nil {
		return v
	}
	out.Def.Pos = v.Pos
	if v.Def != nil {
		out.Def.Pos = v.Def.Pos
	}
	out.Def.Why = ir.Reason{Class: ir.Fixed, Cause: ir.ByContract, From: v, Marks: ir.MarkInserted | marks, Casts: r.asked[castKey{v, d}]}
	r.c.Count("casts_inserted", 1)
	return out
}

// unwidened is the operand of the cast that widened v under a plan, which a cast of v may read
// instead; otherwise v.
func (r *materializer) unwidened(v *ir.Value) *ir.Value {
	for r.planned && v.Def != nil && v.Def.Op == ir.OpCast && v.Next == nil {
		x := v.Def.In[0]
		if !x.Type.DType.Float() || !v.Type.DType.Holds(x.Type.DType) {
			break
		}
		v = x
	}
	return v
}

// view emits the view v of the cast of its tensor to d.
func (r *materializer) view(v *ir.Value, d ir.DType, marks ir.Marks) *ir.Value {
	k := castKey{v, d}
	if out := r.shown[k]; out != nil {
		return out
	}
	n := v.Def
	x := n.In[0]
	if wide := r.wide[n]; d == ir.F32 && wide != nil {
		x = wide
	}
	in := append([]*ir.Value{r.cast(x, d, marks)}, n.In[1:]...)
	node := &ir.Node{Op: n.Op, Custom: n.Custom, In: in, Attrs: n.Attrs, Of: n.Of, Pos: n.Pos, Why: ir.Reason{Class: n.Why.Class, Cause: ir.ByClass}}
	out := r.b.Named(castName(v, d)).EmitNode(node, nil)[0]
	if out == nil {
		return v
	}
	r.shown[k] = out
	return out
}

// castName is the name of the 16-bit copy of v: %fc1.w.f16.
func castName(v *ir.Value, d ir.DType) string { return v.Name + "." + d.String() }

// store sets the out attribute if the row's own choice differs, and infers the result types if they
// may differ: with it, or if n reads other dtypes than before.
func (r *materializer) store(n *ir.Node, t *decision, reads bool) error {
	if reads {
		if err := n.Retype(); err != nil {
			return err
		}
	}
	if len(n.Out) == 0 || n.Out[0].Next != nil || t.class == ir.Fixed || !r.assignable(n.Out[0]) {
		return nil
	}
	v := n.Out[0]
	d := r.want[v.ID]
	if r.interior[n.ID] && !r.c.Caps.FusesNormEpilogue(n) && !r.p.Eager { // a ReLU commutes with the rounding of the norm
		d = ir.F32
	}
	if d == v.Type.DType || d == ir.Invalid || !r.canStore(n, d) {
		return nil
	}
	n.Attrs = n.Attrs.With("out", d)
	return n.Retype()
}

func (r *materializer) canStore(n *ir.Node, d ir.DType) bool {
	if d == ir.F32 {
		return r.storesF32(n) || r.storesWide(n)
	}
	return r.c.Caps.StoresLow(n)
}

// readInside reports whether a node of v's own cluster reads v, which then is an f32 register.
func (r *materializer) readInside(v *ir.Value) bool {
	return slices.ContainsFunc(r.uses.Of(v), func(u ir.Use) bool { return sameCluster(v, u.Node) })
}

// leave adds the cast of n's first result that readers outside of its cluster use.
func (r *materializer) leave(n *ir.Node) error {
	if len(n.Out) == 0 || !r.assignable(n.Out[0]) || !r.interior[n.ID] {
		return nil
	}
	v := n.Out[0]
	if d := r.want[v.ID]; d.Low() && v.Next == nil && r.readOutside(v) {
		out := r.cast(v, d, 0)
		out.Def.Why.Cluster, out.Def.Why.Launch = n.Why.Cluster, n.Why.Launch
		r.left[v] = out
	}
	return r.b.Err()
}

// readOutside reports whether a node outside of its cluster reads v in other registers than the
// caller's.
func (r *materializer) readOutside(v *ir.Value) bool {
	wide := r.returnsWide(v)
	return slices.ContainsFunc(r.uses.Of(v), func(u ir.Use) bool {
		return !sameCluster(v, u.Node) && (!wide || r.readAs(u.Node, u.Arg()) != ir.F32)
	})
}

// math sets the math mode of f32 products and of convolutions.
func (r *materializer) math(n *ir.Node, t *decision) {
	if n.Def().Class != ir.Low || len(n.Out) == 0 {
		return
	}
	on := t.pin == ir.PinTF32 || r.p.TF32 && t.pin == ir.Unpinned
	for i, v := range n.In {
		if v != nil && n.OperandClass(i) == ir.Low && v.Type.DType != ir.F32 {
			on = false
		}
	}
	switch {
	case on:
		n.Attrs = n.Attrs.With("math", "tf32")
		r.c.Count("tf32", 1)
	case r.p.Direct && n.Def().Is(ir.Convolves):
		n.Attrs = n.Attrs.With("math", "direct")
		r.c.Count("direct", 1)
	}
}

// returns gives returned values their source types again, or the type that cast_model_outputs asks
// for.
func (r *materializer) returns() error {
	for i, v := range r.g.Return {
		if !r.assignable(v) {
			continue
		}
		d := r.src[v.ID]
		if r.p.Outputs != ir.Invalid && v.Type.Shape.Rank() > 0 {
			d = r.p.Outputs
		}
		r.b = r.b.In(ir.Forward)
		if v.Def != nil {
			r.b = r.b.In(r.sec[v.Def.ID])
		}
		if x := r.same[v]; x != nil {
			v = x
		}
		r.g.Return[i] = r.cast(v, d, 0)
	}
	return r.b.Err()
}
