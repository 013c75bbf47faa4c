package ir

import "math"

// poleMasked describes a row of scores that are all -Inf.
const poleMasked = "has a row that is masked whole"

var softmaxRows = map[Op]Def{
	OpSoftmax: {
		Name: "softmax", Flags: ReadsRows, Nonfinite: largestSpoils, Doc: "Normalizes exp(x) along one axis.",
		In: in(Operand{Name: "x", ReadsLow: true}), Out: out(Result{Name: "y", StoresLow: true}), Attrs: []AttrDef{axisAttr},
		Class: Keep, Why: "exp needs range", Poles: poleMasked, Infer: inferAxis, Bound: boundSoftmax, Cost: flops(0, 5),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.SoftmaxGrad(n.Out[0], d[0], n.Int("axis"))}
		},
		Expand: func(b *Builder, n *Node) []*Value {
			e := b.Exp(b.Sub(n.In[0], b.maxOver(n.In[0], n.Int("axis"))))
			return []*Value{b.Div(e, b.sumOver(e, true, n.Int("axis")))}
		},
		Range: func(*Node, []Interval) []Interval { return []Interval{{Lo: 0, Hi: 1, NaN: true}} },
	},
	OpSoftmaxGrad: {
		Name: "softmax_grad", Nonfinite: added, Doc: "y·(dy − Σ dy·y) along one axis.",
		In:  in(Operand{Name: "y", ReadsLow: true}, Operand{Name: "dy", ReadsLow: true}),
		Out: out(Result{Name: "dx", StoresLow: true}), Attrs: []AttrDef{axisAttr},
		Class: Keep, Why: "long sums lose bits", Unit: UnitProduct, GradOf: OpSoftmax, Infer: inferAxisPair, Bound: boundAxis(1), Cost: flops(0, 4),
		Expand: func(b *Builder, n *Node) []*Value {
			y, dy := n.In[0], n.In[1]
			return []*Value{b.Mul(y, b.Sub(dy, b.sumOver(b.Mul(dy, y), true, n.Int("axis"))))}
		},
	},
	OpLogSoftmax: {
		Name: "log_softmax", Flags: ReadsRows, Nonfinite: largestSpoils, Doc: "x − log Σ exp(x) along one axis.",
		In: in(Operand{Name: "x", ReadsLow: true}), Out: out(Result{Name: "y", StoresLow: true}), Attrs: []AttrDef{axisAttr},
		Class: Keep, Why: "exp and log need range", Poles: poleMasked, Infer: inferAxis, Bound: boundAxis(1), Cost: flops(0, 5),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.LogSoftmaxGrad(n.Out[0], d[0], n.Int("axis"))}
		},
		Expand: func(b *Builder, n *Node) []*Value {
			axis := n.Int("axis")
			shifted := b.Sub(n.In[0], b.maxOver(n.In[0], axis))
			return []*Value{b.Sub(shifted, b.Log(b.sumOver(b.Exp(shifted), true, axis)))}
		},
		Range: func(*Node, []Interval) []Interval { return []Interval{{Lo: math.Inf(-1), Hi: 0, NaN: true}} },
	},
	OpLogSoftmaxGrad: {
		Name: "log_softmax_grad", Nonfinite: only(added, "dy"), Doc: "dy − exp(y)·Σ dy along one axis.",
		In:  in(Operand{Name: "y", ReadsLow: true}, Operand{Name: "dy", ReadsLow: true}),
		Out: out(Result{Name: "dx", StoresLow: true}), Attrs: []AttrDef{axisAttr},
		Class: Keep, Why: "long sums lose bits", Unit: UnitProduct, GradOf: OpLogSoftmax, Infer: inferAxisPair, Bound: boundAxis(1), Cost: flops(0, 4),
		Expand: func(b *Builder, n *Node) []*Value {
			y, dy := n.In[0], n.In[1]
			return []*Value{b.Sub(dy, b.Mul(b.Exp(y), b.sumOver(dy, true, n.Int("axis"))))}
		},
	},
}

var axisAttr = AttrDef{Name: "axis", Kind: AttrInt, Default: int64(-1), Doc: "counts from the end where negative"}

func inferAxis(n *Node) ([]Type, error) {
	s := n.In[0].Type.Shape
	if s.Known() {
		if _, err := axisOf(n.Int("axis"), s.Rank()); err != nil {
			return nil, err
		}
	}
	return []Type{{n.keptDType(), s}}, n.checkOut()
}

func inferAxisPair(n *Node) ([]Type, error) {
	y, dy := n.In[0], n.In[1]
	if y.Type.Shape.Known() {
		if err := wantShape("dy", dy, y.Type.Shape.Dims()...); err != nil {
			return nil, err
		}
	}
	return inferAxis(n)
}

// along is the length of the node's axis.
func (n *Node) along() int64 {
	s := n.In[0].Type.Shape
	axis, err := axisOf(n.Int("axis"), s.Rank())
	if err != nil {
		return unknownElements
	}
	return size(s.Dim(axis))
}

// boundSoftmax: x−max is up to 104 where exp has not vanished yet, and half an
// ulp of 104 is 32 ulp of exp(x−max); exp and the division add 4.
func boundSoftmax(n *Node) Bound { return Bound{ULP: 36, K: n.along()} }

// boundAxis is a sum of k products per element along the axis.
func boundAxis(k int64) func(*Node) Bound {
	return func(n *Node) Bound { return Bound{ULP: 8, K: k * n.along()} }
}

// Softmax normalizes exp(x) along axis.
//
//   - Shapes: x[...] to the same.
//   - DTypes: float; computed in f32.
//   - Errors: an axis that x does not have.
//   - PyTorch: nn.Softmax, F.softmax.
func (b *Builder) Softmax(x *Value, axis int64) *Value {
	return b.one(OpSoftmax, []*Value{x}, A("axis", axis))
}

// SoftmaxGrad is the gradient of Softmax from its result y.
func (b *Builder) SoftmaxGrad(y, dy *Value, axis int64) *Value {
	return b.one(OpSoftmaxGrad, []*Value{y, dy}, A("axis", axis))
}

// LogSoftmax is the logarithm of Softmax, computed without leaving the range.
//
//   - Shapes: x[...] to the same.
//   - DTypes: float; computed in f32.
//   - Errors: an axis that x does not have.
//   - PyTorch: nn.LogSoftmax, F.log_softmax.
func (b *Builder) LogSoftmax(x *Value, axis int64) *Value {
	return b.one(OpLogSoftmax, []*Value{x}, A("axis", axis))
}

// LogSoftmaxGrad is the gradient of LogSoftmax from its result y.
func (b *Builder) LogSoftmaxGrad(y, dy *Value, axis int64) *Value {
	return b.one(OpLogSoftmaxGrad, []*Value{y, dy}, A("axis", axis))
}
