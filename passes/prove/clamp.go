package prove

import (
	"math"
	"slices"

	"ampc/ir"
)

// A mask is a number like -1e9 that is added or selected where an element must have no effect. It
// is clamped to half the largest number of its stored dtype, where it masks as well and stays
// finite. This is the only change of a number that F may contain.

// beyond reports whether the policy's low dtype turns x into an infinity.
func (m *matcher) beyond(x float64) bool { return m.clamp(x) != x && x == x }

// clamp is x within the range of the policy's low dtype.
func (m *matcher) clamp(x float64) float64 {
	d := m.rules.Low
	if !d.Low() || math.IsInf(x, 0) || x != x {
		return x
	}
	first := 65520.0 // smallest number that rounds to Inf: half a unit in the last place above the largest
	if d == ir.BF16 {
		first = 0x1.FFp127
	}
	if math.Abs(x) < first {
		return x
	}
	return math.Copysign(d.Max()/2, x)
}

// clampedConstant is the class of T's constant whose clamped value is x. It is 0 if there is none,
// or if T has x itself.
func (m *matcher) clampedConstant(x float64, kind int64) int32 {
	if m.tab.has([]int64{keyConstant, kind, int64(math.Float64bits(x))}) {
		return 0
	}
	for _, c := range m.consts {
		if m.clamp(c.value) == x {
			return c.class
		}
	}
	return 0
}

// clamps adds keys of T's node n with its numbers clamped: the value of a pad, the factor and
// addend of an affine.
func (m *matcher) clamps(x *numbering, s ir.Section, n *ir.Node) {
	if n.Op != ir.OpPad && n.Op != ir.OpAffine || !m.rules.Low.Low() {
		return
	}
	var names []string
	for _, a := range n.Attrs {
		if v, ok := a.Value.(float64); ok && m.beyond(v) && a.Name != "out" {
			names = append(names, a.Name)
		}
	}
	k := *n
	for which := 1; which < 1<<len(names); which++ {
		k.Attrs = n.Attrs
		for i, name := range names {
			if which&(1<<i) != 0 {
				k.Attrs = k.Attrs.With(name, m.clamp(n.Float(name)))
			}
		}
		m.clamping = x.entity[n.ID]
		m.compute(x, s, &k)
		m.clamping = -1
	}
}

// clampsAllowed finds the clamped numbers of F that neither appear in a 16-bit result themselves nor
// are added to a small number there.
func (p *proof) clampsAllowed() {
	m := p.matched()
	huge := func(v *ir.Value) bool { // v is a constant that was clamped
		c := m.f.refs[v.ID].class
		return slices.ContainsFunc(m.consts, func(k constant) bool { return k.class == c })
	}
	for _, n := range m.f.clamped {
		if !n.Out[0].Type.DType.Low() || n.Has("scale") && m.beyond(m.factor(n)) && !zeroOrOne(n.In[0], 0) {
			p.report(n, "a number beyond %s is clamped, and the result is %s", m.rules.Low, n.Out[0].Type.DType)
		}
	}
	if len(m.consts) == 0 {
		return
	}
	for _, n := range p.g.Nodes {
		for i, v := range n.In {
			if v == nil || v.Kind != ir.Const && !filled(v) || !v.Type.DType.Float() || !huge(v) || m.keepsNumber(v) {
				continue
			}
			if len(n.Out) == 0 || !n.Out[0].Type.DType.Low() || !masks(n, i) {
				p.report(n, "the constant %s is clamped to the range of %s, and this is no mask stored in it", v, m.rules.Low)
			}
		}
	}
}

// factor is the factor of the node of T that the clamped affine n corresponds to.
func (m *matcher) factor(n *ir.Node) float64 { return m.image[m.f.entity[n.ID]].Float("scale") }

// keepsNumber reports whether v contains a number that was not clamped.
func (m *matcher) keepsNumber(v *ir.Value) bool {
	x := 0.0
	switch {
	case v.Def != nil:
		x = v.Def.Float("value")
	case len(v.Init.Args) == 1:
		x = v.Init.Args[0]
	}
	return m.beyond(x)
}

// masks reports whether constant operand i of n appears in the result itself, is added to another
// operand there, or is multiplied by 0 or 1.
func masks(n *ir.Node, i int) bool {
	switch n.OperandDef(i).Entry {
	case ir.Multiplied:
		return len(n.In) == 2 && zeroOrOne(n.In[1-i], 0)
	case ir.Divides, ir.Reduced:
		return false
	}
	return n.Def().Elem != nil || n.Def().Is(ir.Moves)
}

// zeroOrOne reports whether all elements of v are 0 or 1: it is made from a bool, or is 1 minus
// such a value.
func zeroOrOne(v *ir.Value, depth int) bool {
	n := v.Def
	switch {
	case v.Type.DType == ir.Bool:
		return true
	case n == nil || depth > 8:
		return false
	case n.Op == ir.OpCast || n.Def().Is(ir.Moves) && len(n.In) == 1:
		return zeroOrOne(n.In[0], depth+1)
	case n.Op == ir.OpAffine:
		return n.Float("scale") == -1 && n.Float("shift") == 1 && zeroOrOne(n.In[0], depth+1)
	case n.Op == ir.OpSub:
		one := n.In[0]
		literal := one.Kind == ir.Const && one.Init != nil && one.Init.Func == "" && one.Init.Args[0] == 1
		if x, ok := one.Filled(); ok {
			literal = x == 1
		}
		return literal && zeroOrOne(n.In[1], depth+1)
	}
	return false
}

func filled(v *ir.Value) bool { _, ok := v.Filled(); return ok }
