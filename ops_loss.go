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
