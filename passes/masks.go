package passes

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

// masks clamps finite constants that become infinite in their stored dtype. Such a constant is a
// mask (-1e9 added to scores): half of the dtype's least number masks as well, and stays finite
// when a number is added. Infinite constants stay, because they are intended. Factors stay, because
// their product with a small number may be in range, except factors of 0 and 1: (1-keep)·(-1e9).
func masks(g *ir.Graph, c *Context) error {
	m := &masker{g: g, c: c, clamped: map[castKey]*ir.Value{}}
	for _, n := range g.Nodes {
		c.At(n)
		if len(n.Out) == 0 || !n.Out[0].Type.DType.Low() {
			continue
		}
		d := n.Out[0].Type.DType
		m.attr(n, d)
		if n.Def().Elem == nil {
			continue
		}
		for i, v := range n.In {
			if v == nil || v.Type.DType != ir.F32 || !masksBy(n, i) {
				continue
			}
			if _, filled := v.Filled(); filled {
				n.In[i] = m.full(v, d)
			} else if v.Kind == ir.Const {
				n.In[i] = m.clamp(v, d)
			}
		}
	}
	if m.b == nil {
		return nil
	}
	return m.b.Err()
}

type masker struct {
	g       *ir.Graph
	c       *Context
	b       *ir.Builder // nil until the first new constant
	clamped map[castKey]*ir.Value
}

// masksBy reports whether constant operand i of n appears in the result itself or with a small
// number: it is selected, added, compared, or multiplied by 0 or 1.
func masksBy(n *ir.Node, i int) bool {
	others := func(ok func(v *ir.Value) bool) bool {
		for k, v := range n.In {
			if k != i && v != nil && !ok(v) {
				return false
			}
		}
		return true
	}
	switch n.OperandDef(i).Entry {
	case ir.Multiplied:
		return others(func(v *ir.Value) bool { return zeroOrOne(v, 0) })
	case ir.Added, ir.Subtracted: // 1e9·keep - 1e9 cancels to 0
		return others(func(v *ir.Value) bool { return !huge(v, n.Out[0].Type.DType, 0) })
	case ir.Divides, ir.Reduced:
		return false
	}
	return true
}

// huge reports whether v is an f32 value that was computed from a number outside of d's range.
func huge(v *ir.Value, d ir.DType, depth int) bool {
	if x, ok := number(v); ok {
		return clampMask(x, d) != x
	}
	n := v.Def
	if n == nil || depth == maxDepth || n.Def().Elem == nil || v.Type.DType.Low() {
		return false
	}
	if n.Op == ir.OpAffine && (clampMask(n.Float("scale"), d) != n.Float("scale") || clampMask(n.Float("shift"), d) != n.Float("shift")) {
		return true
	}
	return slices.ContainsFunc(n.In, func(x *ir.Value) bool { return x != nil && huge(x, d, depth+1) })
}

// zeroOrOne reports whether all elements of v are 0 or 1: it is made from a bool, or is 1 minus
// such a value.
func zeroOrOne(v *ir.Value, depth int) bool {
	if v.Type.DType == ir.Bool {
		return true
	}
	n := v.Def
	if n == nil || depth == maxDepth {
		return false
	}
	switch {
	case n.Op == ir.OpCast, n.Def().Is(ir.Moves) && len(n.In) == 1:
		return zeroOrOne(n.In[0], depth+1)
	case n.Op == ir.OpSub:
		one, ok := number(n.In[0])
		return ok && one == 1 && zeroOrOne(n.In[1], depth+1)
	case n.Op == ir.OpAffine:
		return n.Float("scale") == -1 && n.Float("shift") == 1 && zeroOrOne(n.In[0], depth+1)
	}
	return false
}

// attr clamps numbers in the attributes of n: those that fill its result, a factor of 0 or 1, and
// an addend if the factor makes no operand larger.
func (m *masker) attr(n *ir.Node, d ir.DType) {
	names := n.Numbers(ir.Fills)
	if factors := n.Numbers(ir.Multiplied); len(factors) > 0 {
		larger := slices.ContainsFunc(factors, func(name string) bool { return math.Abs(n.Float(name)) > 1 })
		switch {
		case zeroOrOne(n.In[0], 0):
			names = append(factors, n.Numbers(ir.Added)...)
		case !larger && !huge(n.In[0], d, 0):
			names = n.Numbers(ir.Added)
		}
	}
	for _, name := range names {
		if !n.Has(name) {
			continue
		}
		x := n.Float(name)
		if y := clampMask(x, d); y != x {
			n.Attrs = n.Attrs.With(name, y)
			m.note("%"+n.Out[0].Name, x, y, d)
		}
	}
}

// full returns a value filled like v, within the range of d. It is a new constant, because other
// readers may need v itself.
func (m *masker) full(v *ir.Value, d ir.DType) *ir.Value {
	x := v.Def.Float("value")
	y := clampMask(x, d)
	if x == y {
		return v
	}
	if w := m.clamped[castKey{v, d}]; w != nil {
		return w
	}
	w := m.edit().Declare(ir.Const, v.Name+".clamped."+d.String(), v.Type, &ir.Init{Args: []float64{y}}, nil)
	m.note(v.String(), x, y, d)
	m.clamped[castKey{v, d}] = w
	return w
}

// edit returns the builder for new constants.
func (m *masker) edit() *ir.Builder {
	if m.b == nil {
		m.b = ir.Edit(m.g)
	}
	return m.b
}

// clamp returns a constant like v within the range of d.
func (m *masker) clamp(v *ir.Value, d ir.DType) *ir.Value {
	if v.Init == nil || v.Init.Func != "" && v.Init.Func != "data" {
		return v
	}
	if w := m.clamped[castKey{v, d}]; w != nil {
		return w
	}
	args := make([]float64, len(v.Init.Args))
	worst := 0.0
	for i, x := range v.Init.Args {
		args[i] = clampMask(x, d)
		if args[i] != x {
			worst = x
		}
	}
	w := v
	if worst != 0 {
		w = m.edit().Declare(ir.Const, v.Name+".clamped."+d.String(), v.Type, &ir.Init{Func: v.Init.Func, Args: args}, v.Attr)
		m.note(v.String(), worst, clampMask(worst, d), d)
	}
	m.clamped[castKey{v, d}] = w
	return w
}

func (m *masker) note(name string, from, to float64, d ir.DType) {
	m.c.Count("masks_clamped", 1)
	m.c.note("%s: %g is beyond %s and became %g", name, from, d, to)
}

// clampMask returns x, or half of the largest finite number of d with x's sign if x is finite and d
// would store an infinity.
func clampMask(x float64, d ir.DType) float64 {
	if math.IsInf(x, 0) || !math.IsInf(eval.Round(x, d), 0) {
		return x
	}
	return math.Copysign(d.Max()/2, x)
}
