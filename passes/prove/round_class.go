package prove

import (
	"math"

	"ampc/ir"
)

// rowClass is the class of node t of T under the policy.
func (r *rounding) rowClass(t *ir.Node) ir.Class {
	row := t.Def().Class
	if row == ir.Fixed {
		return row
	}
	if int(t.ID) >= r.m.norms { // part of a recomputed norm
		return ir.Keep
	}
	switch r.pin(t) {
	case ir.PinLow:
		if r.rules.Low.Low() {
			return ir.Low
		}
	case ir.PinF32, ir.PinTF32:
		return ir.Keep
	default:
		if r.rules.Class != nil {
			row = r.rules.Class(t)
		}
		switch {
		case row == ir.Keep && r.rules.Eager:
			return r.gradient(t)
		case r.rules.Paint && (row == ir.PromoteC || row == ir.Clear):
			return ir.Low
		}
	}
	return row
}

// gradient is the class of a kept row under an eager policy. A part of another op's gradient, such
// as the sum for a bias, has the class of that op. Rows that are gradients have their own class.
func (r *rounding) gradient(t *ir.Node) ir.Class {
	of := t.Of
	if of == nil || of == t || r.m.t.section[t.ID] != ir.Backward || r.m.t.section[of.ID] != ir.Forward || t.Def().GradOf != ir.OpInvalid {
		return ir.Keep
	}
	if c := r.rowClass(of); c == ir.Low || c == ir.PromoteC || c == ir.Clear {
		return c
	}
	return ir.Keep
}

func (r *rounding) pin(t *ir.Node) ir.Pin {
	if int(t.ID) < len(r.rules.Pins) {
		return r.rules.Pins[t.ID]
	}
	return ir.Unpinned
}

// class is the class of operand i of t under the policy. What recomputes a pinned norm reads the
// norm's operands as it does.
func (r *rounding) class(t *ir.Node, i int) ir.Class {
	if norm, at := r.m.normOperand(t, i); at >= 0 && r.class(norm, at) == ir.Low {
		return ir.Low
	}
	if c := t.OperandDef(i).Class; c != ir.NoClass && c != t.Def().Class {
		return c
	}
	return r.rowClass(t)
}

// castAll reports whether every reader reads variable t of T in 16 bits.
func (r *rounding) castAll(t *ir.Value) bool {
	return r.rules.CastAll && (t.Kind == ir.Param || t.Kind == ir.Input) && t.Type.DType == ir.F32 && !r.keptVar(t)
}

// exact reports whether 16-bit format d represents x, or x is clamped in it.
func exact(x float64, d ir.DType) bool {
	bits := 11 // of a significand
	if d == ir.BF16 {
		bits = 8
	}
	frac, exp := math.Frexp(x)
	scaled := math.Ldexp(frac, bits)
	return x == 0 || math.IsInf(x, 0) || math.Abs(x) <= d.Max() && math.Ldexp(0.5, exp) >= d.SmallestSubnormal() && scaled == math.Trunc(scaled)
}

// wideAs reports whether a promoting reader counts n's result as 16 bits wide, in whatever form it
// reads it.
func (r *rounding) wideAs(n, t *ir.Node) bool {
	switch class := r.rowClass(t); {
	case class == ir.Fixed || r.pin(t) == ir.PinF32 || r.pin(t) == ir.PinTF32 || !r.rules.Low.Low():
		return false
	case class == ir.Low:
		return true
	case class == ir.Keep && n.Def().Elem == nil:
		return false
	case class != ir.Keep && r.sec[n.ID] == ir.Backward && r.led(t):
		return true
	}
	seen := false
	for i, v := range n.In {
		if v == nil || !v.Type.DType.Float() || v.OneConstant() || i < len(t.In) && t.OperandDef(i).Class == ir.Fixed {
			continue
		}
		seen = true
		if !r.operandLow(n, t, i) {
			return false
		}
	}
	return seen
}

// led reports whether t is a backward node that follows its forward node, and that is stored in 16
// bits. An eager system gives gradients the dtype that the source gives forward.
func (r *rounding) led(t *ir.Node) bool {
	f := r.leader(t)
	return f != nil && (r.storedLow(f.Out[0]) || r.rules.Eager && f.Out[0].Type.DType == r.rules.Low)
}

// leader is the forward node that t, of backward, follows; nil if that has a dtype of its own.
func (r *rounding) leader(t *ir.Node) *ir.Node {
	f := t.Of
	if f == nil || int(f.ID) >= len(r.m.t.entity) || r.m.t.section[f.ID] != ir.Forward {
		return nil
	}
	if c := r.rowClass(f); c != ir.PromoteC && c != ir.Clear {
		return nil
	}
	return f
}

// storedLow reports whether v of T, or what it was moved from as a whole, is 16 bits wide in F. Moves
// that strides do not express have classes of their own.
func (r *rounding) storedLow(v *ir.Value) bool {
	for !r.classLow[r.m.t.refs[v.ID].class] {
		if v.Def == nil || !carries(v.Def) || joins(v.Def) {
			return false
		}
		from := v
		for w := range handedOn(v) {
			from = w
		}
		if from == v {
			return false
		}
		v = from
	}
	return true
}

// operandLow reports whether operand i of n counts as 16 bits in a promotion.
func (r *rounding) operandLow(n, t *ir.Node, i int) bool {
	v := n.In[i]
	if r.inF[v.ID]&^r.inImage(t, i) != 0 || r.inImage(t, i) != 0 && v.Type.DType.Low() {
		return true
	}
	low := true
	r.origins(v, func(w *ir.Value) {
		of := &r.val[w.ID]
		narrow := of.low || r.rules.Narrow && of.extra != 0 // such a policy stores w in 16 bits alone
		low = low && narrow && (w.Def == nil || r.together(w, n) && !of.stored)
	})
	return low
}

// seeds reports whether a backward sweep starts with t: a loss scale, or a constant that 16 bits
// represent.
func (r *rounding) seeds(t *ir.Value) bool {
	if t.Kind == ir.Const && t.Type.Shape.Elements() == 1 && t.Init != nil && len(t.Init.Args) == 1 {
		return exact(t.Init.Args[0], r.rules.Low)
	}
	return t.Kind == ir.State && t.Attr.Get("role") == ir.RoleScale
}

// starts reports whether t multiplies the weight of a loss by the loss scale, and the policy rounds
// what a sweep starts with, as it does the scale itself.
func (r *rounding) starts(t *ir.Node) bool {
	scale := t.Operand("scale")
	return scale != nil && r.m.t.section[t.ID] == ir.Prepare && (r.rules.Narrow || r.rules.Eager) && r.rules.Low.Low() && r.seeds(scale)
}

// origins calls f for the values whose elements v has.
func (r *rounding) origins(v *ir.Value, f func(*ir.Value)) {
	if v.Def == nil || !carries(v.Def) {
		f(v)
		return
	}
	for w := range handedOn(v) {
		r.origins(w, f)
	}
}
