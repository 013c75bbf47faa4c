package ampc

import "ampc/ir"

// CrossEntropyOptions are the options of CrossEntropy.
type CrossEntropyOptions struct {
	Ignore    *int    // the label that is left out of sum and count: new(0); nil: -100
	Smoothing float64 // share of each label's weight that is spread over all classes
	Weights   Tensor  // [classes], of the term of each class, in f32; the mean divides by those of the labels; it must not depend on a trained parameter
	Axis      int     // of the classes; 0: the last
}

// CrossEntropy is the mean cross entropy of softmax(logits) against labels, over
// the labels that are not ignored. It computes in f32 and never forms the softmax.
//
//   - Shapes: logits[...,classes], labels[...] to a scalar.
//   - DTypes: logits float, labels i32 or i64; the result is f32.
//   - Errors: labels or Weights that do not fit logits. A label outside [0,classes) is an error of the step's result on the CPU.
//   - PyTorch: nn.CrossEntropyLoss, F.cross_entropy; its classes stand second, which is Axis 1 here; SoftCrossEntropy takes probabilities.
func (o ops) CrossEntropy(logits, labels Tensor, opts ...CrossEntropyOptions) Tensor {
	c := option(o, "cross_entropy", opts)
	a := classAttrs(c.Axis, c.Ignore).With("smoothing", c.Smoothing)
	if c.Weights.v != nil {
		return o.tensor(o.b.WeightedCrossEntropy(logits.v, labels.v, c.Weights.v, a))
	}
	return o.tensor(o.b.CrossEntropy(logits.v, labels.v, a))
}

// classAttrs are the attributes of a loss over classes.
func classAttrs(axis int, ignore *int) ir.Attrs {
	a := ir.A("ignore", -100)
	if ignore != nil {
		a = a.With("ignore", *ignore)
	}
	if axis != 0 {
		a = a.With("axis", axis)
	}
	return a
}

// NLLOptions are the options of NLL.
type NLLOptions struct {
	Ignore *int // the label that is left out of sum and count: new(0); nil: -100
	Axis   int  // of the classes; 0: the last
}

// NLL is the mean of −logp at the labels, over the labels that are not ignored.
//
//   - Shapes: logp[...,classes], labels[...] to a scalar.
//   - DTypes: logp float, labels i32 or i64; the result is f32.
//   - Errors: labels that do not fit logp.
//   - PyTorch: nn.NLLLoss, F.nll_loss; its classes stand second, which is Axis 1 here; without weight.
func (o ops) NLL(logp, labels Tensor, opts ...NLLOptions) Tensor {
	c := option(o, "nll", opts)
	return o.tensor(o.b.NLL(logp.v, labels.v, classAttrs(c.Axis, c.Ignore)))
}

// BCEWithLogitsOptions are the options of BCEWithLogits.
type BCEWithLogitsOptions struct {
	PosWeight Tensor // of the terms of target 1, broadcast to x; computed in f32 under every policy
}

// BCEWithLogits is the mean binary cross entropy of sigmoid(x) against target,
// which lies in [0,1]; it stays finite where the sigmoid rounds to 0 or 1.
//
//   - Shapes: x[...], target[...] of one shape to a scalar.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ.
//   - PyTorch: nn.BCEWithLogitsLoss, F.binary_cross_entropy_with_logits; without weight.
func (o ops) BCEWithLogits(x, target Tensor, opts ...BCEWithLogitsOptions) Tensor {
	if w := option(o, "bce_with_logits", opts).PosWeight; w.v != nil {
		return o.tensor(o.b.WeightedBCE(x.v, target.v, w.v))
	}
	return o.tensor(o.b.BCEWithLogits(x.v, target.v))
}

// KLDivOptions are the options of KLDiv.
type KLDivOptions struct {
	LogTarget bool // target holds logarithms
}

// KLDiv is the Kullback-Leibler divergence of target from the logarithms logp,
// averaged over the distributions.
//
//   - Shapes: logp[...,n], target[...,n] of one shape to a scalar.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ.
//   - PyTorch: nn.KLDivLoss(reduction="batchmean") of operands with two dimensions.
func (o ops) KLDiv(logp, target Tensor, opts ...KLDivOptions) Tensor {
	return o.tensor(o.b.KLDiv(logp.v, target.v, ir.A("log_target", option(o, "kl_div", opts).LogTarget)))
}

// CrossEntropyEach is CrossEntropy of each label by itself, 0 where the label is
// ignored: for weights of one's own, or to look at single examples. It is computed in
// f32. Options as of CrossEntropy, without Smoothing and Weights.
//
//   - Shapes: logits[...,classes], labels[...] to labels'.
//   - DTypes: logits float, labels i32 or i64; the result is f32.
//   - Errors: Smoothing, Weights or Axis are set, or labels that do not fit logits.
//   - PyTorch: F.cross_entropy with reduction="none"; its classes stand second, here they are the last.
func (o ops) CrossEntropyEach(logits, labels Tensor, opts ...CrossEntropyOptions) Tensor {
	c := option(o, "cross_entropy_each", opts)
	if c.Smoothing != 0 || c.Weights.v != nil || c.Axis != 0 {
		o.Fail("cross_entropy_each: Smoothing, Weights and Axis are for CrossEntropy")
		return Tensor{}
	}
	o, last := o.composed("cross_entropy_each")
	if !o.given("cross_entropy_each", "", logits) || !o.given("cross_entropy_each", "", labels) {
		return Tensor{}
	}
	ignore := -100.0
	if c.Ignore != nil {
		ignore = float64(*c.Ignore)
	}
	counts := o.Ne(labels, o.Scalar(labels.DType(), ignore))
	at := o.Unsqueeze(o.Where(counts, labels, o.Scalar(labels.DType(), 0)), -1)
	logp := o.Squeeze(o.GatherElements(o.LogSoftmax(o.Cast(logits, F32), -1), at, -1), -1)
	return last.Where(counts, o.Neg(logp), o.Scalar(F32, 0))
}

// BCEWithLogitsEach is BCEWithLogits of each element by itself, in f32.
//
//   - Shapes: x[...], target[...] of one shape to the same.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ.
//   - PyTorch: F.binary_cross_entropy_with_logits with reduction="none".
func (o ops) BCEWithLogitsEach(x, target Tensor) Tensor {
	o, last := o.composed("bce_with_logits_each")
	if !o.sameShape("bce_with_logits_each", x, target) {
		return Tensor{}
	}
	x, target = o.Cast(x, F32), o.Cast(target, F32)
	return last.Sub(o.Softplus(x), o.Mul(x, target))
}

// FocalOptions are the options of Focal.
type FocalOptions struct {
	Gamma *float64 // how much less what is right already counts: new(0.0); nil: 2
	Alpha *float64 // weight of target 1, 1-Alpha is that of target 0; below 0: none; nil: 0.25
}

// Focal is the mean focal loss of sigmoid(x) against target (Lin et al., 2017, "Focal
// Loss for Dense Object Detection"): BCEWithLogits weighted by (1-p)^Gamma, where p is
// the probability of what is right.
//
//   - Shapes: x[...], target[...] of one shape to a scalar.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ.
//   - PyTorch: torchvision.ops.sigmoid_focal_loss with reduction="mean".
func (o ops) Focal(x, target Tensor, opts ...FocalOptions) Tensor {
	c := option(o, "focal", opts)
	o, last := o.composed("focal")
	if !o.sameShape("focal", x, target) {
		return Tensor{}
	}
	x, target = o.Cast(x, F32), o.Cast(target, F32)
	p := o.Sigmoid(x)
	wrong := o.Add(o.Mul(p, o.Affine(target, -1, 1)), o.Mul(o.Affine(p, -1, 1), target)) // 1 - p of what is right
	each := o.Sub(o.Softplus(x), o.Mul(x, target))
	if gamma := given(c.Gamma, 2); gamma != 0 {
		each = o.Mul(each, o.Pow(wrong, o.Scalar(F32, gamma)))
	}
	if alpha := given(c.Alpha, 0.25); alpha >= 0 {
		each = o.Mul(each, o.Affine(target, 2*alpha-1, 1-alpha))
	}
	return last.ReduceMean(each)
}

// TripletOptions are the options of Triplet.
type TripletOptions struct {
	Margin *float64 // by which the negative is to be farther away: new(0.2); nil: 1
}

// Triplet is the mean triplet margin loss: how much farther from the anchor the positive
// is than the negative, and Margin more. Distances are Euclidean, over the last
// dimension, of differences to which 1e-6 is added, as in PyTorch.
//
//   - Shapes: anchor[...,n], positive[...,n], negative[...,n] of one shape to a scalar.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ.
//   - PyTorch: nn.TripletMarginLoss, F.triplet_margin_loss; p is 2, without swap.
func (o ops) Triplet(anchor, positive, negative Tensor, opts ...TripletOptions) Tensor {
	c := option(o, "triplet", opts)
	o, last := o.composed("triplet")
	if !o.sameShape("triplet", anchor, positive) || !o.sameShape("triplet", anchor, negative) {
		return Tensor{}
	}
	distance := func(x, y Tensor) Tensor {
		return o.ReduceL2(o.Affine(o.Sub(o.Cast(x, F32), o.Cast(y, F32)), 1, 1e-6), Axes(-1))
	}
	return last.ReduceMean(o.Relu(o.Affine(o.Sub(distance(anchor, positive), distance(anchor, negative)), 1, given(c.Margin, 1))))
}

// CosineSimilarity is the cosine of the angle between x and y along an axis. Each norm
// counts as at least 1e-8.
//
//   - Shapes: x[...], y[...] of one shape to x's without the axis.
//   - DTypes: floats; the result is f32.
//   - Errors: shapes that differ, or an axis that x does not have.
//   - PyTorch: nn.CosineSimilarity, F.cosine_similarity.
func (o ops) CosineSimilarity(x, y Tensor, axis int) Tensor {
	o, last := o.composed("cosine_similarity")
	if !o.sameShape("cosine_similarity", x, y) {
		return Tensor{}
	}
	eps := NormalizeOptions{Eps: new(1e-8)}
	return last.ReduceSum(o.Mul(o.Normalize(o.Cast(x, F32), axis, eps), o.Normalize(o.Cast(y, F32), axis, eps)), Axes(axis))
}

// CosineEmbeddingOptions are the options of CosineEmbedding.
type CosineEmbeddingOptions struct {
	Margin float64 // similarity below which different pairs cost nothing, from -1 to 1
}

// CosineEmbedding is the mean loss of pairs that are to be similar (target 1), which is
// 1 - cos, or different (target -1), which is max(0, cos - Margin).
//
//   - Shapes: x[...,n], y[...,n] of one shape, target[...] to a scalar.
//   - DTypes: floats, or target an integer; the result is f32.
//   - Errors: shapes that differ.
//   - PyTorch: nn.CosineEmbeddingLoss, F.cosine_embedding_loss.
func (o ops) CosineEmbedding(x, y, target Tensor, opts ...CosineEmbeddingOptions) Tensor {
	c := option(o, "cosine_embedding", opts)
	o, last := o.composed("cosine_embedding")
	if !o.given("cosine_embedding", "", x) || !o.given("cosine_embedding", "", target) {
		return Tensor{}
	}
	cos := o.CosineSimilarity(x, y, -1)
	similar := o.Gt(target, o.Scalar(target.DType(), 0))
	return last.ReduceMean(o.Where(similar, o.Affine(cos, -1, 1), o.Relu(o.Affine(cos, 1, -c.Margin))))
}

// sameShape refuses operands of a composed op that are absent or differ in shape.
func (o ops) sameShape(op string, x, y Tensor) bool {
	if !o.given(op, "", x) || !o.given(op, "", y) {
		return false
	}
	if x.v.Type.Shape != y.v.Type.Shape {
		o.Fail("%s: %s is %s and %s is %s: want one shape", op, x.v, x.v.Type, y.v, y.v.Type)
		return false
	}
	return true
}
