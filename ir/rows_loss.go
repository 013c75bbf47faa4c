package ir

import (
	"fmt"
	"math"
)

// A loss row returns the sum of its terms and their count, both f32, so that the sums of
// micro-batches add up to that of the batch. Builder methods return the mean.
var lossRows = map[Op]Def{
	OpCrossEntropy: {
		Name: "cross_entropy", Doc: "Σ −target·log softmax(logits) along axis over labels other than ignore; the target is 1−s on the label plus s/classes everywhere, s the smoothing, times the class's weight. The count is that of labels, or the sum of their weights, 0 where that is not finite; no gradient flows into weights.",
		In:  in(Operand{Name: "logits", ReadsLow: true}, ids("labels"), weightsIn),
		Out: lossOut, Attrs: classAttrs(smoothingAttr),
		Flags: FiniteExpand | CountsLabels, Class: Keep, Why: "exp and log need range", Infer: inferClassLoss, Bound: boundLoss, Cost: flops(0, 5), Range: rangeClassLoss,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return lossGrad(d, func(dsum *Value) []*Value {
				dx := b.one(OpCrossEntropyGrad, values(n.In[0], n.In[1], dsum, n.Operand("weights")), n.Attrs.only("axis", "ignore", "smoothing"))
				return []*Value{dx, nil, nil}
			})
		},
		Expand: func(b *Builder, n *Node) []*Value {
			terms := b.Mul(b.Neg(b.LogSoftmax(n.In[0], n.Int("axis"))), b.target(n))
			return b.maskedSum(n, terms)
		},
	},
	OpCrossEntropyGrad: {
		Name: "cross_entropy_grad", Doc: "(Σ target·softmax(logits) − target)·dsum along axis with the target of cross_entropy, zero where the label is ignored.",
		In:  in(Operand{Name: "logits", ReadsLow: true}, ids("labels"), Operand{Name: "dsum", Class: Fixed}, weightsIn),
		Out: out(Result{Name: "dlogits", StoresLow: true}), Attrs: classAttrs(smoothingAttr),
		Flags: FiniteExpand, Class: Keep, Why: "exp needs range", Unit: UnitProduct, GradOf: OpCrossEntropy, Infer: inferCrossEntropyGrad, Cost: flops(0, 6),
		Range: func(n *Node, in []Interval) []Interval {
			target := 1.0
			if n.Operand("weights") != nil {
				if target = in[3].magnitude(); in[3].Lo < 0 {
					target *= 2
				}
			}
			return []Interval{around(target*in[2].magnitude(), true)}
		},
		Bound: func(n *Node) Bound { return Bound{ULP: 40, K: n.along()} },
		Expand: func(b *Builder, n *Node) []*Value {
			p, t := b.Softmax(n.In[0], n.Int("axis")), b.target(n)
			if n.Operand("weights") != nil {
				p = b.Mul(p, b.ReduceSum(t, true, n.Int("axis")))
			}
			return []*Value{b.Where(b.counted(n), b.Mul(b.Sub(p, t), n.In[2]), nil)}
		},
	},
	OpSoftCrossEntropy: {
		Name: "soft_cross_entropy", Doc: "Σ −target·log softmax(x) along axis; the count is that of distributions.",
		In:  in(Operand{Name: "x", ReadsLow: true}, Operand{Name: "target", ReadsLow: true}),
		Out: lossOut, Attrs: []AttrDef{axisAttr},
		Class: Keep, Why: "exp and log need range", Infer: inferSoftLoss, Bound: boundLoss, Cost: flops(0, 7),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return lossGrad(d, func(dsum *Value) []*Value {
				x, t, axis := n.In[0], n.In[1], n.Int("axis")
				dx := b.Sub(b.Mul(b.Softmax(x, axis), b.ReduceSum(t, true, axis)), t)
				return []*Value{b.Mul(dx, dsum), b.Mul(b.Neg(b.LogSoftmax(x, axis)), dsum)}
			})
		},
		Expand: func(b *Builder, n *Node) []*Value {
			x, axis := n.In[0], n.Int("axis")
			return []*Value{b.sumAll(b.Mul(b.Neg(b.LogSoftmax(x, axis)), n.In[1])), b.counts(n, axis)}
		},
	},
	OpNLL: {
		Name: "nll", Doc: "Σ −logp[label] along axis over labels other than ignore.",
		In:  in(Operand{Name: "logp", ReadsLow: true}, ids("labels")),
		Out: lossOut, Attrs: classAttrs(),
		Class: Keep, Why: "long sums lose bits", Infer: inferClassLoss, Bound: boundLoss, Cost: flops(1, 1),
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return lossGrad(d, func(dsum *Value) []*Value {
				g := b.Mul(b.Neg(b.target(n)), dsum)
				return []*Value{b.Where(b.counted(n), g, nil), nil}
			})
		},
		Expand: func(b *Builder, n *Node) []*Value {
			return b.maskedSum(n, b.Where(b.onLabel(n), b.Neg(n.In[0]), nil))
		},
	},
	OpBCEWithLogits: pairLoss(Def{Name: "bce_with_logits", Doc: "Σ of the binary cross entropy of sigmoid(x) against target, without leaving the range.", Why: "exp and log need range"}, 8,
		func(b *Builder, n *Node, x, t *Value) *Value {
			above, below := b.Mul(b.Relu(x), b.Affine(t, -1, 1)), b.Mul(b.Relu(b.Neg(x)), t) // one of them is 0: no large numbers are subtracted
			return b.Add(b.Add(above, below), b.Log1p(b.Exp(b.Neg(b.Abs(x)))))
		},
		func(b *Builder, n *Node, x, t *Value) (dx, dt *Value) { return b.Sub(b.Sigmoid(x), t), b.Neg(x) }),
	OpBCE: pairLoss(Def{Name: "bce", Doc: "Σ of the binary cross entropy of the probability p against target; logarithms stop at −100.", Why: "log needs range"}, 8,
		func(b *Builder, n *Node, p, t *Value) *Value {
			on, off := b.logClamped(p), b.logClamped(b.Affine(p, -1, 1))
			return b.Neg(b.Add(b.Mul(t, on), b.Mul(b.Affine(t, -1, 1), off)))
		},
		func(b *Builder, n *Node, p, t *Value) (dp, dt *Value) {
			q := b.Affine(p, -1, 1)
			dp = b.Div(b.Sub(p, t), b.Clip(b.Mul(p, q), 1e-12, 1))
			return dp, b.Sub(b.logClamped(q), b.logClamped(p))
		}),
	OpMSE: pairLoss(Def{Name: "mse", Nonfinite: addedUp, Doc: "Σ (x − target)².", Why: "squares need range"}, 3,
		func(b *Builder, n *Node, x, t *Value) *Value { return b.Square(b.Sub(x, t)) },
		func(b *Builder, n *Node, x, t *Value) (dx, dt *Value) {
			g := b.Affine(b.Sub(x, t), 2, 0)
			return g, b.Neg(g)
		}),
	OpL1Loss: pairLoss(Def{Name: "l1_loss", Nonfinite: addedUp, Doc: "Σ |x − target|.", Why: "long sums lose bits"}, 3,
		func(b *Builder, n *Node, x, t *Value) *Value { return b.Abs(b.Sub(x, t)) },
		func(b *Builder, n *Node, x, t *Value) (dx, dt *Value) {
			g := b.Sign(b.Sub(x, t))
			return g, b.Neg(g)
		}),
	OpHuber: pairLoss(Def{Name: "huber", Nonfinite: addedUp, Doc: "Σ of r²/2 where |r| ≤ delta and delta·(|r| − delta/2) elsewhere, r = x − target.", Why: "squares need range",
		Attrs: []AttrDef{{Name: "delta", Kind: AttrFloat, Takes: Above0, Default: float64(1), Doc: "where the square turns into a line"}}}, 5,
		func(b *Builder, n *Node, x, t *Value) *Value {
			delta := n.Float("delta")
			r := b.Abs(b.Sub(x, t))
			near := b.Clip(r, 0, delta)
			return b.Mul(near, b.Sub(r, b.Affine(near, 0.5, 0)))
		},
		func(b *Builder, n *Node, x, t *Value) (dx, dt *Value) {
			g := b.Clip(b.Sub(x, t), -n.Float("delta"), n.Float("delta"))
			return g, b.Neg(g)
		}),
	OpKLDiv: pairLoss(Def{Name: "kl_div", Doc: "Σ target·(log target − logp) with 0·log 0 = 0; the count is that of distributions along the last dimension.", Why: "exp and log need range",
		Attrs: []AttrDef{{Name: "log_target", Kind: AttrBool, Doc: "target holds logarithms"}}}, 6,
		func(b *Builder, n *Node, x, t *Value) *Value {
			p, logp := b.klTarget(n, t)
			return b.Mul(p, b.Sub(logp, x))
		},
		func(b *Builder, n *Node, x, t *Value) (dx, dt *Value) {
			p, logp := b.klTarget(n, t)
			dt = b.Affine(b.Sub(logp, x), 1, 1)
			if n.Flag("log_target") {
				dt = b.Mul(p, dt)
			}
			return b.Neg(p), dt
		}),
}

var (
	lossOut       = out(Result{Name: "sum", Class: Fixed}, Result{Name: "count", Class: Fixed, Finite: true})
	weightsIn     = Operand{Name: "weights", Class: Fixed, Optional: true, NoGrad: "the mean divides by them, over all micro-batches"}
	smoothingAttr = AttrDef{Name: "smoothing", Kind: AttrFloat, Takes: ZeroToOne, Default: float64(0), Doc: "share of the target spread over all classes"}
)

func classAttrs(more ...AttrDef) []AttrDef {
	return append([]AttrDef{axisAttr, {Name: "ignore", Kind: AttrInt, Default: int64(-100), Doc: "label that counts for nothing"}}, more...)
}

// pairLoss completes the row of Σ term(x, target): slope returns the derivatives of a term with
// respect to both.
func pairLoss(d Def, cost int64, term func(b *Builder, n *Node, x, t *Value) *Value, slope func(b *Builder, n *Node, x, t *Value) (dx, dt *Value)) Def {
	d.In, d.Out, d.Class = in(Operand{Name: "x", ReadsLow: true}, Operand{Name: "target", ReadsLow: true}), lossOut, Keep
	d.Infer, d.Bound, d.Cost = inferPairLoss, boundLoss, flops(0, cost)
	if d.Name != "kl_div" { // less than zero if target and p do not add up to one
		d.Range = rangeLoss
	}
	d.Grad = func(b *Builder, n *Node, d []*Value) []*Value {
		return lossGrad(d, func(dsum *Value) []*Value {
			dx, dt := slope(b, n, n.In[0], n.In[1])
			return []*Value{b.Mul(dx, dsum), b.Mul(dt, dsum)}
		})
	}
	d.Expand = func(b *Builder, n *Node) []*Value {
		t, each := term(b, n, n.In[0], n.In[1]), []int64(nil)
		if n.Op == OpKLDiv {
			each = []int64{-1}
		}
		return []*Value{b.sumAll(t), b.counts(n, each...)}
	}
	return d
}

// lossGrad calls f with the gradient of the sum; a count has no gradient.
func lossGrad(d []*Value, f func(dsum *Value) []*Value) []*Value {
	if d[0] == nil {
		return []*Value{nil, nil}
	}
	return f(d[0])
}

func (n *Node) lossTypes() []Type {
	t := T(n.statDType())
	return []Type{t, t}
}

func inferPairLoss(n *Node) ([]Type, error) {
	x, t := n.In[0], n.In[1]
	if n.Op == OpKLDiv {
		if err := wantRank("x", x, 1, MaxRank); err != nil {
			return nil, err
		}
	}
	if a, b := x.Type.Shape, t.Type.Shape; a.Known() && b.Known() && (a.Rank() != b.Rank() || !sameSizes(a, b)) {
		return nil, fmt.Errorf("shapes differ: x %s %s, target %s %s", x, x.Type, t, t.Type)
	}
	return n.lossTypes(), n.noOut()
}

// noOut rejects the out attribute: sums and counts are f32.
func (n *Node) noOut() error {
	if n.Has("out") {
		return fmt.Errorf("its results are f32: out does not apply")
	}
	return nil
}

func inferClassLoss(n *Node) ([]Type, error) {
	return n.lossTypes(), firstError(n.checkClasses(), n.noOut())
}

func inferSoftLoss(n *Node) ([]Type, error) {
	x := n.In[0]
	if err := wantRank("x", x, 1, MaxRank); err != nil {
		return nil, err
	}
	if x.Type.Shape.Known() {
		if _, err := axisOf(n.Int("axis"), x.Type.Shape.Rank()); err != nil {
			return nil, err
		}
	}
	return inferPairLoss(n)
}

// checkClasses checks that labels have the shape of the scores without their class axis, and
// weights the size of that axis.
func (n *Node) checkClasses() error {
	x, labels := n.In[0], n.In[1]
	if err := wantRank(n.Def().In[0].Name, x, 1, MaxRank); err != nil || !x.Type.Shape.Known() {
		return err
	}
	axis, err := axisOf(n.Int("axis"), x.Type.Shape.Rank())
	if err != nil {
		return err
	}
	d := x.Type.Shape.Dims()
	return firstError(wantShape("weights", n.Operand("weights"), d[axis]), wantShape("labels", labels, append(d[:axis:axis], d[axis+1:]...)...))
}

func inferCrossEntropyGrad(n *Node) ([]Type, error) {
	t := []Type{{n.keptDType(), n.In[0].Type.Shape}}
	return t, firstError(n.checkClasses(), wantShape("dsum", n.In[2]), n.checkOut())
}

func boundLoss(n *Node) Bound { return Bound{ULP: 40, K: count(n.In[0].Type)} }

func rangeLoss(n *Node, in []Interval) []Interval {
	inf := math.Inf(1)
	return []Interval{{Lo: 0, Hi: inf, NaN: true}, {Lo: 0, Hi: sure(n.In[1].Type.Shape, count(n.In[1].Type))}}
}

// rangeClassLoss is rangeLoss for classes without weights, or with no weight less than zero.
func rangeClassLoss(n *Node, in []Interval) []Interval {
	out := rangeLoss(n, in)
	if n.Operand("weights") != nil {
		w := in[2]
		if out[1].Hi *= w.magnitude(); out[1].Hi != out[1].Hi {
			out[1].Hi = math.Inf(1)
		}
		if w.Lo < 0 {
			out[0].Lo, out[1].Lo = math.Inf(-1), -out[1].Hi
		}
	}
	return out
}

// classAxis fails where the classes are not known.
func (b *Builder) classAxis(n *Node) (axis int, ok bool) {
	s := n.In[0].Type.Shape
	axis, err := axisOf(n.Int("axis"), s.Rank())
	if err != nil || s.Dim(axis) < 0 {
		b.needsSizes(n.In[0].Type, "%s: needs the number of classes of %s, which has type %s", n.Def().Name, n.In[0], b.g.TypeString(n.In[0].Type))
		return 0, false
	}
	return axis, true
}

// onLabel is true at each label's class.
func (b *Builder) onLabel(n *Node) *Value {
	axis, ok := b.classAxis(n)
	if !ok {
		return nil
	}
	classes := b.iotaAlong(n.In[1].Type.DType, n.In[0].Type.Shape, axis)
	return b.Eq(classes, b.Unsqueeze(n.In[1], int64(axis)))
}

// target is what the label, the smoothing and the weights ask for: a distribution where there are no weights.
func (b *Builder) target(n *Node) *Value {
	d, s := n.statDType(), 0.0
	if n.Op != OpNLL {
		s = n.Float("smoothing")
	}
	w := b.weightRow(n)
	if w == nil {
		hot := b.Where(b.onLabel(n), b.Scalar(d, 1), b.Scalar(d, 0))
		return b.Affine(hot, 1-s, s/float64(n.along()))
	}
	t := b.Where(b.onLabel(n), w, nil)
	if s != 0 {
		t = b.Add(b.Affine(t, 1-s, 0), b.Affine(w, s/float64(n.along()), 0))
	}
	return t
}

// weightRow is the weights along the class axis of the logits, with dimensions
// of one behind it; nil where classes have none.
func (b *Builder) weightRow(n *Node) *Value {
	w := n.Operand("weights")
	if axis, ok := b.classAxis(n); w != nil && ok {
		for k := axis + 1; k < n.In[0].Type.Shape.Rank(); k++ {
			w = b.Unsqueeze(w, -1)
		}
	}
	return w
}

// counted is true where the label is not ignored, with the class axis as 1.
func (b *Builder) counted(n *Node) *Value {
	labels := n.In[1]
	axis, ok := b.classAxis(n)
	if !ok {
		return nil
	}
	return b.Unsqueeze(b.Ne(labels, b.Scalar(labels.Type.DType, float64(n.Int("ignore")))), int64(axis))
}

// counts is the number of elements of x, or of its lines along an axis: a constant where sizes are known.
func (b *Builder) counts(n *Node, axis ...int64) *Value {
	x, d := n.In[0], n.statDType()
	if x != nil && x.Type.Shape.Static() {
		each := int64(1)
		if len(axis) > 0 {
			each = max(int64(x.Type.Shape.Dim(int(axis[0]))), 1)
		}
		return b.Scalar(d, float64(x.Type.Shape.Elements()/each))
	}
	ones := b.broadcastLike(b.Scalar(d, 1), x)
	if len(axis) > 0 {
		ones = b.ReduceMean(ones, false, axis...)
	}
	return b.sumAll(ones)
}

// maskedSum sums terms whose label counts, and counts those labels or adds up
// their weights.
func (b *Builder) maskedSum(n *Node, terms *Value) []*Value {
	counted := b.counted(n)
	sum, w := b.sumAll(b.Where(counted, terms, nil)), b.weightRow(n)
	if w == nil {
		return []*Value{sum, b.sumAll(b.castTo(counted, n.statDType()))}
	}
	mass := b.sumAll(b.Where(counted, b.Where(b.onLabel(n), w, nil), nil))
	return []*Value{sum, b.Where(b.Or(b.IsNaN(mass), b.IsInf(mass)), b.Scalar(n.statDType(), 0), mass)}
}

func (b *Builder) logClamped(p *Value) *Value {
	return b.Clip(b.Log(p), -100, math.Inf(1))
}

// klTarget is kl_div's target as probabilities and as logarithms, the latter 0 where the former is.
func (b *Builder) klTarget(n *Node, t *Value) (p, logp *Value) {
	if n.Flag("log_target") {
		return b.Exp(t), t
	}
	one := b.Scalar(t.Type.DType, 1)
	return t, b.Log(b.Where(b.Gt(t, b.Scalar(t.Type.DType, 0)), t, one))
}

// meanLoss is a loss row's sum over its count.
func (b *Builder) meanLoss(op Op, x, target *Value, a Attrs) *Value {
	r := b.unnamed().Emit(op, []*Value{x, target}, a)
	return b.Div(r[0], r[1])
}

// CrossEntropy is the mean cross entropy of softmax(logits) against integer
// labels. Attributes: axis, ignore, smoothing. Sum and count are the operands
// of the division it returns.
func (b *Builder) CrossEntropy(logits, labels *Value, a Attrs) *Value {
	return b.meanLoss(OpCrossEntropy, logits, labels, a)
}

// SoftCrossEntropy is the mean cross entropy of softmax(x) against the
// distributions in target, both along axis. target has the shape of x.
//
//   - Shapes: x[...], target[...] of one shape to a scalar.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ, or an axis that x does not have.
//   - PyTorch: nn.CrossEntropyLoss of probabilities; its classes stand second.
func (b *Builder) SoftCrossEntropy(x, target *Value, axis int64) *Value {
	return b.meanLoss(OpSoftCrossEntropy, x, target, A("axis", axis))
}

// WeightedCrossEntropy is CrossEntropy whose terms have the weight of their
// class, weights[classes], over the sum of the labels' weights: the mean of
// torch's CrossEntropyLoss(weight=w). No gradient flows into weights.
func (b *Builder) WeightedCrossEntropy(logits, labels, weights *Value, a Attrs) *Value {
	r := b.unnamed().Emit(OpCrossEntropy, values(logits, labels, weights), a)
	return b.Div(r[0], r[1])
}

// WeightedBCE is BCEWithLogits with the terms of target 1 times weight, which
// broadcasts to x: torch's pos_weight. It computes in f32 under every policy.
func (b *Builder) WeightedBCE(x, target, weight *Value) *Value {
	u := b.unnamed().Pinned(PinF32)
	far := u.Log1p(u.Exp(u.Neg(u.Abs(x))))
	above, below := u.Relu(x), u.Relu(u.Neg(x)) // with far: -log(1-p) and -log p
	off := u.Mul(u.Affine(target, -1, 1), u.Add(above, far))
	on := u.Mul(u.Mul(target, weight), u.Add(below, far))
	return b.Pinned(PinF32).ReduceMean(u.Add(off, on), false)
}

// NLL is the mean of −logp at integer labels. Attributes: axis, ignore.
func (b *Builder) NLL(logp, labels *Value, a Attrs) *Value {
	return b.meanLoss(OpNLL, logp, labels, a)
}

// BCEWithLogits is the mean binary cross entropy of sigmoid(x) against target.
func (b *Builder) BCEWithLogits(x, target *Value) *Value {
	return b.meanLoss(OpBCEWithLogits, x, target, nil)
}

// BCE is the mean binary cross entropy of probabilities p against target.
//
//   - Shapes: p[...], target[...] of one shape to a scalar.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ.
//   - PyTorch: nn.BCELoss, F.binary_cross_entropy; without weight.
func (b *Builder) BCE(p, target *Value) *Value { return b.meanLoss(OpBCE, p, target, nil) }

// MSE is the mean squared difference.
//
//   - Shapes: x[...], target[...] of one shape to a scalar.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ.
//   - PyTorch: nn.MSELoss, F.mse_loss.
func (b *Builder) MSE(x, target *Value) *Value { return b.meanLoss(OpMSE, x, target, nil) }

// L1Loss is the mean absolute difference.
//
//   - Shapes: x[...], target[...] of one shape to a scalar.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ.
//   - PyTorch: nn.L1Loss, F.l1_loss.
func (b *Builder) L1Loss(x, target *Value) *Value { return b.meanLoss(OpL1Loss, x, target, nil) }

// Huber is the mean Huber loss with the given delta.
//
//   - Shapes: x[...], target[...] of one shape to a scalar.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ, or delta that is not above 0.
//   - PyTorch: nn.HuberLoss, F.huber_loss.
func (b *Builder) Huber(x, target *Value, delta float64) *Value {
	return b.meanLoss(OpHuber, x, target, A("delta", delta))
}

// KLDiv is the Kullback-Leibler divergence of target from the logarithms logp,
// averaged over distributions. Attribute: log_target.
func (b *Builder) KLDiv(logp, target *Value, a Attrs) *Value {
	return b.meanLoss(OpKLDiv, logp, target, a)
}
