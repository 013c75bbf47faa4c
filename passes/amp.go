package passes

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// amp chooses the stored dtypes from the policy's classes. An algorithm chooses one dtype for each
// stored value (amp_local.go, amp_paint.go, mincut.go). Then materialize writes the choice into the
// graph: out attributes, casts where a reader needs another dtype, and the cause of each choice.
func amp(g *ir.Graph, c *Context) error {
	noteSourceDTypes(g)
	if c.Policy.Manual {
		formLaunches(g, c, g.Uses(), asStated{c.Caps})
		return ir.Verify(g, ir.Mixed) // under Manual the user writes all casts
	}
	c.Policy = c.Policy.decided()
	if err := c.Policy.check(); err != nil {
		return err
	}
	a := c.training.index.assigner
	if a == nil {
		a = newAssigner(g, c)
		if err := a.judgeRules(); err != nil {
			return err
		}
	}
	a.c = c
	a.planned = c.Policy.Algorithm == "mincut"
	c.training.planned = a.planned
	a.noteIslands()
	err := a.storeParams()
	if err != nil {
		return err
	}
	if a.guard, err = a.guarded(); err != nil {
		return err
	}
	formLaunches(g, c, a.uses, a)
	var b *ir.Builder
	g.Together(func() { b = c.builder(g) }, func() { err = a.assign() })
	if err != nil {
		return err
	}
	if c.Inherit != nil {
		a.inherit(c.Inherit)
	}
	if c.Record != nil {
		a.record(c.Record)
	}
	return a.materialize(b)
}

// assign runs the policy's algorithm.
func (a *assigner) assign() error {
	switch a.p.Algorithm {
	case "local":
		a.local()
	case "mincut":
		return a.mincut()
	case "paint":
		a.paint()
	default:
		return fmt.Errorf("policy %s: no algorithm %q; there are local, mincut and paint", a.p.Name, a.p.Algorithm)
	}
	return nil
}

// assigner holds the inputs and the results of the algorithms. Slices are indexed by node or value
// ID.
type assigner struct {
	g    *ir.Graph
	c    *Context
	p    Policy
	low  ir.DType // the policy's low dtype, f32 if it has none
	uses *ir.Uses
	node []decision
	src  []ir.DType   // dtype of the value before assignment
	want []ir.DType   // chosen dtype of the stored value; Invalid: this pass may not change it
	weak []bool       // a constant of one element, which never widens results
	out  []bool       // returned, captured or a next value: it keeps its source dtype
	kept []bool       // variables to which Cast and NoMasters do not apply
	sec  []ir.Section // by node

	// planned: a plan chooses the dtypes. Pins of nodes that only move elements are dropped where
	// they are not needed, and casts written by hand are forms of tensors.
	planned  bool
	captured map[*ir.Value]bool
	required []requirements // by value ID, of the readers of the stored value
	computed []requirements // by value ID, of those that read it in a register of their cluster
	promoted []bool         // by value ID: a row that takes the widest operand computes from it, also in its cluster
	readsF32 []bool         // by node ID: a free row that reads f32, whatever it stores
	loads    map[load]bool  // tensors that a cluster rounds when it loads them
	guard    []string       // why the range guard keeps a free value f32; "": it does not
}

// decision is how one node computes: its class under the policy, and the cause.
type decision struct {
	class ir.Class
	override
	from *ir.Value // value that was the cause, or nil
}

// newAssigner decides the class of every node. The caller asks judgeRules whether the rules of the policy
// have an effect.
func newAssigner(g *ir.Graph, c *Context) *assigner {
	uses := c.uses(g)
	overrides := c.overrides(g)
	values, nodes := uses.Values(), g.NumNodes()
	a := &assigner{
		g: g, c: c, p: c.Policy, low: c.Policy.Low, uses: uses,
		node: make([]decision, nodes), src: make([]ir.DType, values), want: make([]ir.DType, values),
		captured: map[*ir.Value]bool{}, weak: make([]bool, values), out: make([]bool, values), kept: make([]bool, values), sec: make([]ir.Section, nodes), readsF32: make([]bool, nodes),
	}
	if a.low == ir.Invalid {
		a.low = ir.F32
	}
	for _, v := range g.Vars {
		a.src[v.ID] = v.Type.DType
		a.weak[v.ID] = v.OneConstant()
		a.kept[v.ID] = a.p.keepsVar(v, uses)
	}
	parts := g.Parts()
	if a.p.Eager { // the class of a node may be that of an earlier one
		parts = []ir.Part{g.Body}
	}
	g.InParts(parts, func(_ int, p *ir.Part) {
		for s, n := range p.Nodes {
			a.sec[n.ID] = s
			a.node[n.ID] = a.decide(n, overrides[n.ID])
			for _, v := range n.Out {
				a.src[v.ID] = v.Type.DType
				a.out[v.ID] = v.Next != nil
				a.weak[v.ID] = v.OneConstant()
			}
		}
	})
	for _, v := range g.Return {
		a.out[v.ID] = true
	}
	for _, n := range g.Select(func(_ ir.Section, n *ir.Node) bool { return len(n.Captured) > 0 }).Nodes {
		for _, v := range n.Captured {
			a.capture(v, n)
		}
	}
	return a
}

// capture keeps the dtype of v, which the nested graphs of n read by name.
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

// keepsVar reports whether variable v stays f32: because of a rule, or because it is a parameter of
// batch norm under NormF32. Only NormF32 needs uses.
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

// decide applies the overrides, the strongest first: contract, pin, pattern, op, class.
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
		if class := a.p.classOf(n); class != d.Class {
			t.class, t.cause = class, ir.ByOp
		}
		a.gradient(n, &t)
	}
	return t
}

// gradient gives a node of the backward pass that an eager system would keep in f32, such as a sum,
// the class of the op of whose gradient it is part. Eager systems run backward in the dtypes of
// forward, so the gradient of a bias is a 16-bit result. Rows that are gradients have their own
// class.
func (a *assigner) gradient(n *ir.Node, t *decision) {
	of := n.Of
	if !a.p.Eager || t.class != ir.Keep || of == nil || of == n || a.sec[n.ID] != ir.Backward || a.sec[of.ID] != ir.Forward || n.Def().GradOf != ir.OpInvalid {
		return
	}
	if class := a.node[of.ID].class; class == ir.Low || class == ir.PromoteC || class == ir.Clear {
		t.class, t.cause, t.from = class, ir.ByForward, of.Out[0]
	}
}

// kept32 reports whether an override makes n compute in and store f32.
func (t *decision) kept32() bool { return t.pin == ir.PinF32 || t.pin == ir.PinTF32 }

// class is the class of operand i of n under the policy.
func (a *assigner) class(n *ir.Node, i int) ir.Class {
	row, t := n.OperandClass(i), &a.node[n.ID]
	if row == ir.Fixed || row != n.Def().Class {
		return row
	}
	return t.class
}

// assignable reports whether v is a float whose stored dtype may be chosen.
func (a *assigner) assignable(v *ir.Value) bool {
	d := a.src[v.ID]
	return d == ir.F32 || d.Low()
}

// free reports whether n's stored dtype follows its operands.
func (t *decision) free() bool { return t.class == ir.PromoteC || t.class == ir.Clear }

// requiredDType is the dtype in which n needs operand i stored. It is Invalid if the kernel reads
// either dtype, or if the dtype of n's own result decides.
func (a *assigner) requiredDType(n *ir.Node, i int) ir.DType {
	v := n.In[i]
	switch a.class(n, i) {
	case ir.Fixed:
		o := n.OperandDef(i)
		if o.Unread && o.ReadsLow || a.p.NoMasters && a.sec[n.ID] == ir.Update && (i == 0 || o.ReadsLow) && !o.Named { // in the stored dtype, like gradients and weights of the update
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
			return a.low // the product reads a 16-bit copy in any case; the sign of the two differs only where the product read a zero
		}
	}
	return ir.Invalid
}

// movesSource reports whether n only moves elements that are 16-bit in the source. A pin to f32
// widens nothing there.
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
		if a.class(u.Node, u.Arg()) == ir.Low {
			return true
		}
	}
	return false
}

// storeParams stores parameters low under NoMasters, and records the variables that every reader
// reads low.
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

// castVar reports whether a reader without a requirement reads v low, as under o2, which casts
// weights and inputs for all readers.
func (a *assigner) castVar(v *ir.Value) bool {
	return a.p.Cast && (v.Kind == ir.Param || v.Kind == ir.Input) && a.src[v.ID] == ir.F32 && !a.kept[v.ID]
}

// readsCast reports whether n, which has no requirement, reads its operand i low because of castVar.
// The update reads the master weights.
func (a *assigner) readsCast(n *ir.Node, i int) bool {
	return a.castVar(n.In[i]) && a.class(n, i) != ir.Fixed && a.sec[n.ID] != ir.Update
}

// partners maps each value of backward that is the gradient of a stored tensor to that tensor. The
// gradient may be low only where the tensor is. A transposed or padded parameter counts as the
// parameter.
func (a *assigner) partners() []*ir.Value {
	partner := make([]*ir.Value, len(a.want))
	if a.p.Eager {
		return partner
	}
	for _, n := range a.g.Body[ir.Backward] {
		if a.inPrologue(n) {
			continue
		}
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

// moved is the parameter whose elements v has, in another shape or padded; nil for other values.
func moved(v *ir.Value) *ir.Value {
	for ; v != nil && v.Def != nil && v.Def.Def().Is(ir.Moves) && (len(v.Def.In) == 1 || isView(v.Def)); v = v.Def.In[0] { // neither gather nor concat
	}
	if v == nil || v.Kind != ir.Param || v.Def != nil {
		return nil
	}
	return v
}

// leaves reports whether a node outside of n's cluster reads v, so that v is stored.
func (a *assigner) leaves(n *ir.Node, v *ir.Value) bool {
	uses := a.uses.Of(v)
	for _, u := range uses {
		if n.Why.Cluster == 0 || u.Node.Why.Cluster != n.Why.Cluster {
			return true
		}
	}
	return len(uses) == 0 || a.out[v.ID]
}

// unread reports whether no node reads v and nothing else keeps it.
func (a *assigner) unread(v *ir.Value) bool { return len(a.uses.Of(v)) == 0 && !a.out[v.ID] }

// inPrologue reports whether n runs in the kernel of a norm's gradient (ir.Caps.Prologue). That kernel
// reads n's first operand and continues with some of its elements, so n's result has the dtype of that
// operand: nothing is rounded.
func (a *assigner) inPrologue(n *ir.Node) bool {
	return n.Why.Cluster > 0 && n.Def().GradOf != ir.OpInvalid && len(n.Out) == 1 && slices.ContainsFunc(a.uses.Of(n.Out[0]), func(u ir.Use) bool {
		return sameCluster(n.Out[0], u.Node) && a.c.Caps.Prologue(u.Node) == n
	})
}
