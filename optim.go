package ampc

import "ampc/passes"

// Policy says which precision each op gets; MixedF16 and its sisters make one.
type Policy = passes.Policy

// Optimizer is an update rule with its constants.
type Optimizer = passes.Optimizer

// Schedule is a learning rate over the steps.
type Schedule = passes.Schedule

// Group says how the parameters that match a pattern are trained. The first
// group that matches wins; what none matches is not trained.
type Group = passes.Group

// Clip bounds gradients by their common norm or element by element.
type Clip = passes.Clip

// Scaler says how a loss is kept in the range of the low dtype.
type Scaler = passes.Scaler

// Reduce says what a result of several micro-batches holds.
type Reduce = passes.Reduce

// What Config.Reduce can ask for: the value of the last micro-batch (the
// default for all but losses), the mean over those that count, or their sum.
const (
	Last = passes.Last
	Mean = passes.Mean
	Sum  = passes.Sum
)

// BadMicro says what a non-finite micro-batch does.
type BadMicro = passes.BadMicro

// What a non-finite micro-batch does: it skips the step, or its gradients and
// its count are left out.
const (
	SkipStep  = passes.SkipStep
	DropMicro = passes.DropMicro
)

// SGD is stochastic gradient descent; momentum 0 keeps no state.
func SGD(momentum float64) Optimizer { return passes.SGD(momentum) }

// Adam has betas 0.9 and 0.999 and epsilon 1e-8.
func Adam() Optimizer { return passes.Adam() }

// AdamW is Adam with decoupled weight decay.
func AdamW(decay float64) Optimizer { return passes.AdamW(decay) }

// Constant is a learning rate that stays.
func Constant(rate float64) Schedule { return passes.Constant(rate) }

// Cosine rises over warmup steps and falls in half a cosine to 0 at step total.
func Cosine(rate float64, warmup, total int64) Schedule { return passes.Cosine(rate, warmup, total) }

// LinearDecay rises over warmup steps and falls in a line to 0 at step total.
func LinearDecay(rate float64, warmup, total int64) Schedule {
	return passes.Linear(rate, warmup, total)
}

// StepDecay multiplies the rate by drop after every so many steps.
func StepDecay(rate, drop float64, every int64) Schedule {
	return passes.StepDecay(rate, drop, every)
}

// ClipNorm scales all gradients down to a common 2-norm of at most x.
func ClipNorm(x float64) Clip { return Clip{Norm: x} }

// ClipValue bounds every element of every gradient to [-x, x].
func ClipValue(x float64) Clip { return Clip{Value: x} }

// Dynamic is ampc's own rule of loss scaling: start 2^16, doubled after 2000
// clean steps, halved on overflow, between 1 and 2^24.
func Dynamic() Scaler { return passes.Dynamic() }

// Static scales the loss by a fixed power of two.
func Static(scale float64) Scaler { return passes.Static(scale) }

// Unscaled trains without a loss scale; steps that are not finite are still skipped.
func Unscaled() Scaler { return passes.Unscaled() }

// F32Only is the policy that keeps everything in f32.
func F32Only() Policy { return passes.F32() }

// TF32 keeps f32 and rounds the operands of matrix products to a 10-bit mantissa.
func TF32() Policy { return passes.TF32() }

// MixedF16 computes products in f16 and what needs range or precision in f32;
// it brings dynamic loss scaling.
func MixedF16() Policy { return passes.MixedF16() }

// MixedBF16 is MixedF16 in bf16, which needs no loss scaling.
func MixedBF16() Policy { return passes.MixedBF16() }

// Manual leaves the casts to the model.
func Manual() Policy { return passes.Manual() }

// O1, O2 and O3 are Apex's levels with f16 or bf16: per-op casts; weights low
// but batch norm, with f32 masters; everything low without masters.
func O1(low DType) Policy { return passes.O1(low) }

// O2 is described at O1.
func O2(low DType) Policy { return passes.O2(low) }

// O3 is described at O1.
func O3(low DType) Policy { return passes.O3(low) }

// Torch decides as torch.amp's autocast does.
func Torch(low DType) Policy { return passes.Torch(low) }

// PolicyNamed finds a preset by the name that the command line uses.
func PolicyNamed(name string) (Policy, error) { return passes.PolicyNamed(name) }
