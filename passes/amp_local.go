package passes

import (
	"slices"

	"ampc/ir"
)

// requirements are the dtypes that the readers of a value require, including readers behind rows
// that take any dtype.
type requirements uint8

const (
	readByLow     requirements = 1 << iota // an operand of class low
	readByF32                              // a reader that needs f32 in memory
	readByPromote                          // a promoting row, which an f32 operand would widen
	readByOther                            // a reader without a requirement
)

// local chooses each dtype from the operands and from the requirements of the readers, without
// search and costs. Under Eager it looks at operands only, as an eager system must.
func (a *assigner) local() {
	required := a.requirements()
	partner := a.partners()
	seen := make([]ir.DType, len(a.want)) // dtype that promoting readers count a value as
	for _, v := range a.g.Vars {
		seen[v.ID] = a.want[v.ID]
		if a.castVar(v) {
			seen[v.ID] = a.low
		}
	}
	for s, n := range a.g.Nodes {
		for i, v := range n.Out {
			if !a.assignable(v) {
				continue
			}
			stored, as := a.choose(s, n, i, required[v.ID], seen)
			stored, as = a.ofPolicy(v, stored), a.ofPolicy(v, as)
			if x := partner[v.ID]; x != nil && a.want[x.ID] == ir.F32 && !shares(n) && !a.p.Narrow {
				stored = ir.F32
			}
			if stored.Low() && a.vetoed(n, i) {
				stored, as = ir.F32, ir.F32
			}
			a.want[v.ID], seen[v.ID] = stored, as
		}
	}
}

// ofPolicy is d, the dtype chosen for v. It is f32 instead if d is a 16-bit dtype that is neither
// the policy's nor v's in the source: only casts of the source round to such a dtype.
func (a *assigner) ofPolicy(v *ir.Value, d ir.DType) ir.DType {
	if d.Low() && d != a.low && d != a.src[v.ID] {
		return ir.F32
	}
	return d
}

// requirements walks the graph backwards. Rows that take any dtype pass on the requirements of
// their own readers. A returned result is required in its source dtype.
func (a *assigner) requirements() []requirements {
	required := make([]requirements, len(a.want))
	a.required, a.computed, a.promoted = required, make([]requirements, len(a.want)), make([]bool, len(a.want))
	for id, out := range a.out {
		switch {
		case out && a.src[id] == a.low:
			required[id] = readByLow
		case out:
			required[id] = readByF32
		}
	}
	for s := int(ir.NumSections) - 1; s >= 0; s-- {
		body := a.g.Body[s]
		for k := len(body) - 1; k >= 0; k-- {
			n := body[k]
			if a.planned {
				a.unpinMove(n, required)
			}
			for i, v := range n.In {
				if v == nil || !a.assignable(v) {
					continue
				}
				if sameCluster(v, n) && !a.c.Caps.FusesNormEpilogue(v.Def) { // n reads the f32 register
					a.computed[v.ID] |= a.requirement(n, i)
				} else {
					required[v.ID] |= a.requirement(n, i)
				}
				a.promoted[v.ID] = a.promoted[v.ID] || a.promotes(n, i)
			}
		}
	}
	return required
}

// unpinMove drops the pin to f32 of a row that only moves elements for low operands: rounding
// before or after the move gives the same bits.
func (a *assigner) unpinMove(n *ir.Node, required []requirements) {
	d := n.Def()
	if a.node[n.ID].kept32() && a.low != ir.F32 && d.Is(ir.Moves) && d.Elem == nil && len(n.Out) == 1 && !shares(n) && required[n.Out[0].ID] == readByLow {
		a.node[n.ID] = decision{class: a.p.classOf(n), override: override{cause: ir.ByClass}}
	}
}

// requirement is what n requires of its operand i, if it reads a stored tensor.
func (a *assigner) requirement(n *ir.Node, i int) requirements {
	d := a.requiredDType(n, i)
	if a.formCast(n) {
		if d = a.src[n.Out[0].ID]; d == ir.F32 || d == a.src[n.In[0].ID] {
			return a.required[n.Out[0].ID]
		}
	}
	switch {
	case d == a.low && d != ir.F32:
		return readByLow
	case d != ir.Invalid:
		return readByF32
	}
	var behind, computed requirements
	for _, o := range n.Out {
		if a.assignable(o) {
			behind, computed = behind|a.required[o.ID], computed|a.computed[o.ID]
		}
	}
	switch a.class(n, i) {
	case ir.Clear:
		return behind
	case ir.PromoteC:
		if (behind == readByF32 || behind == 0 && computed == readByF32) && !a.p.Eager {
			return readByF32
		}
		return readByPromote
	}
	return readByOther
}

// promotes reports whether n computes from its operand i in a dtype that depends on it, or passes it
// on to a row that does, in registers of its cluster or not.
func (a *assigner) promotes(n *ir.Node, i int) bool {
	if a.formCast(n) || a.requiredDType(n, i) != ir.Invalid {
		return false
	}
	switch a.class(n, i) {
	case ir.Clear:
		return slices.ContainsFunc(n.Out, func(o *ir.Value) bool { return a.promoted[o.ID] })
	case ir.PromoteC:
		return a.p.Eager || !slices.ContainsFunc(n.Out, func(o *ir.Value) bool { return a.required[o.ID] == readByF32 })
	}
	return false
}

// promotedOutside reports whether a node outside of v's cluster promotes v.
func (a *assigner) promotedOutside(v *ir.Value) bool {
	return slices.ContainsFunc(a.uses.Of(v), func(u ir.Use) bool {
		return !sameCluster(v, u.Node) && a.promotes(u.Node, u.Arg())
	})
}

// choose returns the dtype in which result i of n is stored, and the one that promoting readers in
// its cluster count it as.
func (a *assigner) choose(s ir.Section, n *ir.Node, i int, required requirements, seen []ir.DType) (stored, as ir.DType) {
	t := &a.node[n.ID]
	v := n.Out[i]
	onlyF32 := required == readByF32 && !a.p.Eager
	if c := n.ResultClass(i); c == ir.Fixed || v.Next != nil || t.kept32() || t.class == ir.Fixed {
		return a.src[v.ID], a.src[v.ID]
	}
	switch {
	case t.class == ir.Low && onlyF32 && a.storesF32(n):
		return ir.F32, ir.F32
	case t.class == ir.Low && a.widened(n, seen):
		return ir.F32, ir.F32
	case t.class == ir.Low:
		return a.low, a.low
	case t.class == ir.Keep:
		return a.keep(n, required, seen)
	}
	d := a.follow(s, n, t, seen)
	if a.inPrologue(n) && a.want[n.In[0].ID] == ir.F32 {
		d = ir.F32
	}
	if onlyF32 && !shares(n) {
		return ir.F32, d
	}
	return d, d
}

// keep stores f32. It stores low if a low operand reads the value, no reader needs f32 and no
// promoting row reads it. In its own cluster the value is a register, as wide as its operands.
func (a *assigner) keep(n *ir.Node, required requirements, seen []ir.DType) (stored, as ir.DType) {
	stored, d := ir.F32, ir.F32
	v := n.Out[0]
	if a.c.Caps.StoresLow(n) && !a.p.Eager && required&readByF32 == 0 && (a.narrows(n) || required&readByLow != 0 && required&readByPromote == 0 && !a.promotedOutside(v)) {
		stored = a.low
	}
	if d, _ = a.widest(n, seen); n.Def().Elem == nil {
		d = stored
	}
	return stored, d
}

// follow is the dtype of a free node: that of its forward node, or the widest of its operands, or
// under Narrow the narrowest.
func (a *assigner) follow(s ir.Section, n *ir.Node, t *decision, seen []ir.DType) ir.DType {
	if of := n.Of; s == ir.Backward && of != nil && !shares(n) && a.node[of.ID].free() && a.assignable(of.Out[0]) {
		t.cause, t.from = ir.ByForward, of.Out[0]
		return seen[of.Out[0].ID]
	}
	d, from := a.widest(n, seen)
	if from != nil {
		t.cause, t.from = ir.ByNeighbour, from
	}
	return d
}

// widened reports whether an operand that widens n's result (Policy.Widens) is f32, or is a product
// with an f32 operand.
func (a *assigner) widened(n *ir.Node, seen []ir.DType) bool {
	if !a.storesWide(n) {
		return false
	}
	for i, v := range n.In {
		if v == nil || !a.p.widens(n, i) {
			continue
		}
		for v.Def != nil && (v.Def.Def().Is(ir.Moves) || v.Def.Def().Is(ir.View)) {
			v = v.Def.In[0]
		}
		if v.Def != nil && a.node[v.Def.ID].class == ir.Low {
			v = v.Def.In[0]
		}
		if a.assignable(v) && seen[v.ID] == ir.F32 {
			return true
		}
	}
	return false
}

// storesWide reports whether an operand may widen n's result, and n's kernel can store f32 whatever
// the dtypes of its other results.
func (a *assigner) storesWide(n *ir.Node) bool {
	of := func(w Widen) bool { return w.Op == n.Op }
	return slices.ContainsFunc(a.p.Widens, of) && !a.c.Caps.NoStore[n.Op] && n.Def().Out[0].StoresF32
}

// narrows reports whether n may store 16 bits of f32 operands (Policy.Narrow). In the update it may
// not, unless weights have 16 bits: nothing would see what overflows there.
func (a *assigner) narrows(n *ir.Node) bool {
	return a.p.Narrow && (a.sec[n.ID] != ir.Update || a.p.NoMasters)
}

// widest returns the widest dtype of n's float operands, under Narrow the narrowest, and the operand
// that has it. Constants of one element count only if there are no other operands.
func (a *assigner) widest(n *ir.Node, seen []ir.DType) (ir.DType, *ir.Value) {
	d, from := ir.Invalid, (*ir.Value)(nil)
	narrow := a.narrows(n)
	for i, v := range n.In {
		if v == nil || !a.assignable(v) || a.weak[v.ID] || n.OperandClass(i) == ir.Fixed && !a.p.widens(n, i) {
			continue
		}
		x := seen[v.ID]
		if v.Def != nil && (n.Why.Cluster == 0 || v.Def.Why.Cluster != n.Why.Cluster) {
			x = a.want[v.ID] // n reads the stored value
		}
		switch {
		case d == ir.Invalid || narrow && x.Low() && !d.Low():
			d, from = x, v
		case x != d && !(narrow && d.Low()):
			if m := ir.Promote(d, x); m != d {
				d, from = m, v
			}
		}
	}
	if d == ir.Invalid {
		return ir.F32, nil
	}
	return d, from
}
