package passes

import (
	"math"

	"ampc/ir"
	"ampc/ir/eval"
)

// Functions that read values as arithmetic expressions, so that a pattern is written once and
// matches every spelling of it: the user's, an importer's or that of constant folding.

// number returns the number that all elements of v have, if v is such a constant.
func number(v *ir.Value) (float64, bool) {
	switch {
	case v == nil:
	case v.Kind == ir.Const && v.Init != nil && v.Type.Shape.Elements() == 1 && v.Type.DType.Float() && v.Init.Func != "file":
		if v.Init.Func == "" {
			return v.Init.Args[0], true
		}
		if t, err := eval.InitVar(v, 0); err == nil {
			return t.F[0], true
		}
	}
	return v.Filled()
}

// linear writes v as a·x + b with numbers a and b, through nested sums, products and quotients with
// numbers.
func linear(v *ir.Value) (x *ir.Value, a, b float64) {
	a = 1
	for depth := 0; depth < 8 && v.Def != nil; depth++ {
		n := v.Def
		switch n.Op {
		case ir.OpAffine:
			a, b, v = a*n.Float("scale"), b+a*n.Float("shift"), n.In[0]
			continue
		case ir.OpNeg:
			a, v = -a, n.In[0]
			continue
		}
		if len(n.In) != 2 {
			break
		}
		other, k, ok := numberOperand(n)
		if !ok {
			break
		}
		switch {
		case n.Op == ir.OpMul:
			a *= k
		case n.Op == ir.OpAdd:
			b += a * k
		case n.Op == ir.OpDiv && other == n.In[0]:
			a /= k
		case n.Op == ir.OpSub && other == n.In[0]:
			b -= a * k
		case n.Op == ir.OpSub:
			a, b = -a, b+a*k
		default:
			return v, a, b
		}
		v = other
	}
	return v, a, b
}

// between lists the nodes from x to v that linear has combined.
func between(v, x *ir.Value) (via []*ir.Node) {
	for v != x {
		via = append(via, v.Def)
		next := v.Def.In[0]
		if len(v.Def.In) == 2 {
			next, _, _ = numberOperand(v.Def)
		}
		v = next
	}
	return via
}

// numberOperand splits a binary node into the operand that is a number and the other operand. The
// number must not widen the result's shape. An absent optional operand is neither.
func numberOperand(n *ir.Node) (other *ir.Value, k float64, ok bool) {
	if n.In[0] == nil || n.In[1] == nil {
		return nil, 0, false
	}
	for i := range 2 {
		if k, ok = number(n.In[i]); ok && n.In[1-i].Type.Shape == n.Out[0].Type.Shape {
			return n.In[1-i], k, true
		}
	}
	return nil, 0, false
}

// factor is a value to a power, counted in halves: 1/√z is {z, -1}.
type factor struct {
	v      *ir.Value
	halves int
}

// product is k times powers of values, with the nodes that it was read from.
type product struct {
	k     float64
	fs    []factor
	via   []*ir.Node
	stop  *ir.Value // this value is a factor as a whole
	depth int       // largest number of nodes on a path
}

// maxDepth is the largest number of nodes on a path of a pattern that is written out.
const maxDepth = 4

// factors writes v as a product. It follows at most depth nodes on each path.
func factors(v *ir.Value, depth int) *product {
	p := &product{k: 1, depth: depth}
	p.walk(v, 2, 0)
	return p
}

// power reports whether v is k·x^e, with k and the nodes that make it so.
func power(v, x *ir.Value, e int) (k float64, via []*ir.Node, ok bool) {
	p := &product{k: 1, depth: maxDepth, stop: x}
	p.walk(v, 2, 0)
	sum := 0
	for _, f := range p.fs {
		if f.v != x {
			return 0, nil, false
		}
		sum += f.halves
	}
	return p.k, p.via, sum == 2*e
}

func (p *product) walk(v *ir.Value, halves, depth int) {
	if v == p.stop {
		p.fs = append(p.fs, factor{v, halves})
		return
	}
	if c, ok := number(v); ok && c != 0 {
		p.k *= math.Pow(c, float64(halves)/2)
		return
	}
	if n := v.Def; n != nil && (depth < p.depth || rootOrSign(n.Op)) && p.split(n, halves, depth+1) {
		p.via = append(p.via, n)
		return
	}
	p.fs = append(p.fs, factor{v, halves})
}

// rootOrSign are the ops that do not count towards the depth: a pattern never needs their operand
// as a single factor.
func rootOrSign(op ir.Op) bool {
	return op == ir.OpSqrt || op == ir.OpRsqrt || op == ir.OpReciprocal || op == ir.OpNeg || op == ir.OpAffine
}

// split multiplies the factors of n into p and reports whether n is a product or a power.
func (p *product) split(n *ir.Node, halves, depth int) bool {
	switch n.Op {
	case ir.OpMul:
		p.walk(n.In[0], halves, depth)
		p.walk(n.In[1], halves, depth)
	case ir.OpDiv:
		p.walk(n.In[0], halves, depth)
		p.walk(n.In[1], -halves, depth)
	case ir.OpSquare:
		p.walk(n.In[0], 2*halves, depth)
	case ir.OpReciprocal:
		p.walk(n.In[0], -halves, depth)
	case ir.OpNeg:
		if halves != 2 {
			return false
		}
		p.k = -p.k
		p.walk(n.In[0], halves, depth)
	case ir.OpSqrt, ir.OpRsqrt:
		if halves%2 != 0 || halves < -2 || halves > 2 { // √(x²) is |x|, not x
			return false
		}
		h := halves / 2
		if n.Op == ir.OpRsqrt {
			h = -h
		}
		p.fs = append(p.fs, factor{n.In[0], h})
	case ir.OpPow:
		e, ok := number(n.In[1])
		if !ok || e != math.Trunc(e) || math.Abs(e) > 4 {
			return false
		}
		p.walk(n.In[0], int(e)*halves, depth)
	case ir.OpAffine:
		if n.Float("shift") != 0 || n.Float("scale") == 0 {
			return false
		}
		p.k *= math.Pow(n.Float("scale"), float64(halves)/2)
		p.walk(n.In[0], halves, depth)
	default:
		return false
	}
	return true
}

// alike reports whether two numbers differ only by rounding to f32 or to the usual number of
// digits.
func alike(x, y float64) bool { return math.Abs(x-y) <= 2e-6*math.Abs(y) }
