package passes

import (
	"fmt"

	"ampc/ir"
)

// amp turns the policy's classes into stored dtypes. An algorithm chooses one
// dtype per stored value (amp_local.go, amp_paint.go, mincut.go); materialize then writes the
// choice into the graph: out attributes, casts where a reader wants another
// dtype, and the cause of each choice.
func amp(g *ir.Graph, c *Context) error {
	noteSourceDTypes(g)
	if c.Policy.Manual {
		formLaunches(g, c, g.Uses(), asStated{c.Caps})
		return ir.Verify(g, ir.Mixed) // what does not fit is the user's to cast
	}
	c.Policy = c.Policy.decided()
	if err := c.Policy.check(); err != nil {
		return err
	}
	a, err := newAssigner(g, c)
	if err != nil {
		return err
	}
	a.planned = c.Policy.Algorithm == "mincut"
	c.training.planned = a.planned
	a.noteIslands()
	if err := a.storeParams(); err != nil {
		return err
	}
	if a.guard, err = a.guarded(); err != nil {
		return err
	}
	formLaunches(g, c, a.uses, a)
	switch c.Policy.Algorithm {
	case "local":
		a.local()
	case "mincut":
		err = a.mincut()
	case "paint":
		a.paint()
	default:
		return fmt.Errorf("policy %s: no algorithm %q; there are local, mincut and paint", c.Policy.Name, c.Policy.Algorithm)
	}
	if err != nil {
		return err
	}
	if c.Inherit != nil {
		a.inherit(c.Inherit)
	}
	if c.Record != nil {
		a.record(c.Record)
	}
	return a.materialize()
}

// assigner holds what the algorithms decide from and where they put it.
// Slices are indexed by node or value ID.
type assigner struct {
	g    *ir.Graph
	c    *Context
	p    Policy
	low  ir.DType // the policy's low dtype, f32 where it has none
	uses *ir.Uses
	node []decision
	src  []ir.DType   // dtype of the value before assignment
	want []ir.DType   // chosen: how the value is stored (Invalid: not a float this pass may change)
	weak []bool       // one constant element: never widens what it meets
	out  []bool       // returned, captured or a next value: keeps its source dtype
	kept []bool       // variables that Cast and NoMasters leave alone
	sec  []ir.Section // of a node

	// planned: dtypes come of a plan, where moves that need no pin lose it and casts written by hand are forms.
	planned  bool
	captured map[*ir.Value]bool
	loads    map[load]bool // tensors that a cluster rounds while it loads them
	guard    []string      // why the range guard keeps a value f32 where it is free; "": it does not
}

// decision is how one node computes: its class under the policy and why.
type decision struct {
	class ir.Class
	override
	from *ir.Value // the value that decided, nil where none
}

func newAssigner(g *ir.Graph, c *Context) (*assigner, error) {
	overrides, err := pinOverrides(g, c.Policy)
	if err != nil {
		return nil, err
	}
	uses := g.Uses()
	values, nodes := g.Number()
	a := &assigner{
		g: g, c: c, p: c.Policy, low: c.Policy.Low, uses: uses,
		node: make([]decision, nodes), src: make([]ir.DType, values), want: make([]ir.DType, values),
		captured: map[*ir.Value]bool{}, weak: make([]bool, values), out: make([]bool, values), kept: make([]bool, values), sec: make([]ir.Section, nodes),
	}
	if a.low == ir.Invalid {
		a.low = ir.F32
	}
	for _, v := range g.Vars {
		a.src[v.ID] = v.Type.DType
		a.weak[v.ID] = v.OneConstant()
		a.kept[v.ID] = a.p.keepsVar(v, uses)
	}
	for s, n := range g.Nodes {
		a.sec[n.ID] = s
		a.node[n.ID] = a.decide(n, overrides[n.ID])
		for _, v := range n.Out {
			a.src[v.ID] = v.Type.DType
			a.out[v.ID] = v.Next != nil
			a.weak[v.ID] = v.OneConstant()
		}
	}
	for _, v := range g.Return {
		a.out[v.ID] = true
	}
	for _, n := range g.Nodes {
		for _, v := range n.Captured {
			a.capture(v, n)
		}
	}
	return a, nil
}

// capture keeps v, which the nested graphs of n read by name, as it is.
func (a *assigner) capture(v *ir.Value, n *ir.Node) {
	a.out[v.ID], a.captured[v] = true, true
	if v.Def == nil {
		a.kept[v.ID] = true
		return
	}
	if t := &a.node[v.Def.ID]; t.class != ir.Fixed {
		*t = decision{class: ir.Keep, override: override{pin: ir.PinF32, cause: ir.ByNeighbour}, from: n.Out[0]}
	}
}

// keepsVar reports whether a rule keeps variable v f32, or batch norm's
// parameters are to stay f32 (NormF32, which alone asks for uses) and v is one.
func (p Policy) keepsVar(v *ir.Value, uses *ir.Uses) bool {
	keep := false
	for _, r := range p.Rules {
		if Matches(r.Pattern, v.Name) {
			keep = r.Pin != ir.PinLow
		}
	}
	if keep || !p.NormF32 {
		return keep
	}
	for _, u := range uses.Of(v) {
		if u.Node.Def().Batch != nil {
			return true
		}
	}
	return false
}

// decide applies the overrides, strongest first: contract, pin, pattern, op, class.
func (a *assigner) decide(n *ir.Node, f override) decision {
	d := n.Def()
	t := decision{class: d.Class, override: f}
	switch {
	case d.Class == ir.Fixed:
		t.override = override{cause: ir.ByContract}
	case f.pin == ir.PinLow && a.low != ir.F32:
		t.class = ir.Low
	case f.pin == ir.PinF32 || f.pin == ir.PinTF32:
		t.class = ir.Keep
	default:
		t.override = override{cause: ir.ByClass}
		if class := a.p.ClassOf(n); class != d.Class {
			t.class, t.cause = class, ir.ByOp
		}
		a.gradient(n, &t)
	}
	return t
}

// gradient gives a row that an eager system would keep, a sum above all, the
// class of the op whose gradient it is part of: backward runs in the dtypes that
// forward ran in, so a bias's gradient is a 16-bit result. Rows of gradients have
// their own class.
func (a *assigner) gradient(n *ir.Node, t *decision) {
	of := n.Of
	if !a.p.Eager || t.class != ir.Keep || of == nil || of == n || a.sec[n.ID] != ir.Backward || a.sec[of.ID] != ir.Forward || n.Def().GradOf != ir.OpInvalid {
		return
	}
	if class := a.node[of.ID].class; class == ir.Low || class == ir.PromoteC || class == ir.Clear {
		t.class, t.cause, t.from = class, ir.ByForward, of.Out[0]
	}
}

// kept32 reports whether an override makes n compute and store f32.
func (t *decision) kept32() bool { return t.pin == ir.PinF32 || t.pin == ir.PinTF32 }

// class returns how operand i of n is decided under the policy.
func (a *assigner) class(n *ir.Node, i int) ir.Class {
	row, t := n.OperandClass(i), &a.node[n.ID]
	if row == ir.Fixed || row != n.Def().Class {
		return row
	}
	return t.class
}

// assignable reports whether v is a float whose stored dtype is a choice.
func (a *assigner) assignable(v *ir.Value) bool {
	d := a.src[v.ID]
	return d == ir.F32 || d.Low()
}

// free reports whether n's stored dtype follows its operands.
func (t *decision) free() bool { return t.class == ir.PromoteC || t.class == ir.Clear }

// requiredDType is what operand i of n must be stored as, Invalid where the kernel
// takes either or the dtype of n's own result decides.
func (a *assigner) requiredDType(n *ir.Node, i int) ir.DType {
	v := n.In[i]
	switch a.class(n, i) {
	case ir.Fixed:
		if a.p.NoMasters && a.sec[n.ID] == ir.Update { // gradients and weights as they are stored
			return ir.Invalid
		}
		return a.src[v.ID]
	case ir.Low:
		return a.low
	case ir.Keep:
		if n.OperandClass(i) == ir.Low || !a.c.Caps.Loads(n, i) && !(a.node[n.ID].kept32() && a.movesSource(n)) {
			return ir.F32
		}
	default:
		if n.OperandDef(i).Sign && a.low != ir.F32 && !a.p.Eager && a.copiedLow(v) {
			return a.low // a copy is kept for the product: its sign differs only where the product read a zero, too
		}
	}
	return ir.Invalid
}

// movesSource reports whether n only moves elements that the source has in 16
// bits already: a pin to f32 widens nothing there.
func (a *assigner) movesSource(n *ir.Node) bool {
	d := n.Def()
	return d.Is(ir.Moves) && d.Elem == nil && len(n.In) == 1 && len(n.Out) > 0 && a.src[n.Out[0].ID].Low()
}

// copiedLow reports whether a product reads v in 16 bits.
func (a *assigner) copiedLow(v *ir.Value) bool {
	if !a.assignable(v) {
		return false
	}
	for _, u := range a.uses.Of(v) {
		if a.class(u.Node, u.Arg) == ir.Low {
			return true
		}
	}
	return false
}

// storeParams turns parameters low in place under NoMasters, and marks which
// variables every reader sees low.
func (a *assigner) storeParams() error {
	for _, v := range a.g.Vars {
		a.want[v.ID] = ir.Invalid
		if !a.assignable(v) {
			continue
		}
		a.want[v.ID] = v.Type.DType
		if a.p.NoMasters && v.Kind == ir.Param && !a.kept[v.ID] {
			v.Type = v.Type.With(a.low)
			a.want[v.ID] = a.low
		}
	}
	return nil
}

// castVar reports whether a reader that requires no dtype sees v low (o2: weights
// and inputs are cast for everyone).
func (a *assigner) castVar(v *ir.Value) bool {
	return a.p.Cast && (v.Kind == ir.Param || v.Kind == ir.Input) && a.src[v.ID] == ir.F32 && !a.kept[v.ID]
}

// partners finds, for each value of backward that is the gradient of a stored
// tensor, that tensor: the gradient may be low only where the tensor is. A
// parameter in another shape, transposed or padded, counts as the parameter.
func (a *assigner) partners() []*ir.Value {
	partner := make([]*ir.Value, len(a.want))
	if a.p.Eager {
		return partner
	}
	for _, n := range a.g.Body[ir.Backward] {
		for _, v := range n.Out {
			of := v.GradOf
			if p := moved(of); p != nil {
				of = p
			}
			if of != nil && (of.Def == nil || a.leaves(of.Def, of)) {
				partner[v.ID] = of
			}
		}
	}
	return partner
}

// moved is the parameter that v is, in another shape or padded; nil where it is
// something else.
func moved(v *ir.Value) *ir.Value {
	for ; v != nil && v.Def != nil && v.Def.Def().Is(ir.Moves) && (len(v.Def.In) == 1 || isView(v.Def)); v = v.Def.In[0] { // not gather, not concat
	}
	if v == nil || v.Kind != ir.Param || v.Def != nil {
		return nil
	}
	return v
}

// leaves reports whether anybody outside n's cluster reads v, so that it is stored.
func (a *assigner) leaves(n *ir.Node, v *ir.Value) bool {
	uses := a.uses.Of(v)
	for _, u := range uses {
		if n.Why.Cluster == 0 || u.Node.Why.Cluster != n.Why.Cluster {
			return true
		}
	}
	return len(uses) == 0 || a.out[v.ID]
}
