package ampc

import "ampc/passes"

// Algorithm is how an optimizer uses a gradient.
type Algorithm uint8

// The algorithms of Optimizer; the zero Algorithm trains nothing.
const (
	UseSGD Algorithm = iota + 1
	UseAdam
	UseAdamW
)

// Optimizer is an update rule with its constants. Make one with SGD, Adam or
// AdamW and change its fields.
type Optimizer struct {
	Algorithm    Algorithm
	Momentum     float64 // of SGD, from 0 to below 1; 0: no state
	Nesterov     bool    // of SGD; needs a momentum
	Beta1, Beta2 float64 // of Adam and AdamW, from 0 to below 1
	Eps          float64 // of Adam and AdamW: added to the root of the second moment, in f32
	Decay        float64 // weight decay: added to the gradient (SGD, Adam) or taken off the weight (AdamW)
	StateDType   DType   // of moments; zero: F32
}

// SGD is stochastic gradient descent; momentum 0 keeps no state.
func SGD(momentum float64) Optimizer { return Optimizer{Algorithm: UseSGD, Momentum: momentum} }

// Adam has betas 0.9 and 0.999 and epsilon 1e-8 (Kingma and Ba, 2015).
func Adam() Optimizer {
	return Optimizer{Algorithm: UseAdam, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
}

// AdamW is Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
func AdamW(decay float64) Optimizer {
	o := Adam()
	o.Algorithm, o.Decay = UseAdamW, decay
	return o
}

// ScheduleKind is the shape of a learning rate over the steps.
type ScheduleKind uint8

// The shapes of Schedule; the zero ScheduleKind with a rate is ConstantRate.
const (
	ConstantRate ScheduleKind = iota + 1
	CosineRate                // from the rate down to Min over Total steps, half a cosine
	LinearRate                // from the rate down to Min over Total steps
	StepRate                  // times Drop after every Every steps
)

// Schedule is a learning rate over the steps. Make one with Constant, Cosine,
// LinearDecay or StepDecay and change its fields. The base rate is a variable
// (Step.SetLR); the shape is compiled in. Groups with equal schedules share one rate.
type Schedule struct {
	Rate     float64
	Kind     ScheduleKind
	Warmup   int64   // the rate rises linearly over this many steps: (step+1)/Warmup of it
	Total    int64   // steps until Min, warm-up included
	Min      float64 // as a share of the rate, from 0 to 1
	Every    int64   // of StepRate
	Drop     float64 // of StepRate
	CountAll bool    // count launched steps, skipped ones too; default: steps taken
}

// Constant is a learning rate that stays.
func Constant(rate float64) Schedule { return Schedule{Rate: rate, Kind: ConstantRate} }

// Cosine rises over warmup steps and falls in half a cosine to 0 at step total.
func Cosine(rate float64, warmup, total int64) Schedule {
	return Schedule{Rate: rate, Kind: CosineRate, Warmup: warmup, Total: total}
}

// LinearDecay rises over warmup steps and falls in a line to 0 at step total.
func LinearDecay(rate float64, warmup, total int64) Schedule {
	return Schedule{Rate: rate, Kind: LinearRate, Warmup: warmup, Total: total}
}

// StepDecay multiplies the rate by drop after every so many steps.
func StepDecay(rate, drop float64, every int64) Schedule {
	return Schedule{Rate: rate, Kind: StepRate, Drop: drop, Every: every}
}

// Group says how the parameters that match a pattern are trained. The first
// group that matches wins; a parameter that none matches is not trained.
type Group struct {
	Pattern   string // "" and "*": everything; "h0.attn": the scope and all in it; "*.b": by last name
	Optimizer Optimizer
	LR        Schedule
	Clip      Clip // over this group's parameters
	Freeze    bool // not trained, no gradient computed
	// NoUpdate computes and checks the gradients and leaves the parameters as they
	// are, for an optimizer outside that reads them by TrainConfig.Grads.
	NoUpdate bool
}

// Clip bounds unscaled gradients. Where both are set, values are bounded first.
type Clip struct {
	Norm  float64 // scale all gradients so that their common 2-norm is at most this; 0: off
	Value float64 // bound every element to [-Value, Value]; 0: off
}

// ClipNorm scales all gradients down to a common 2-norm of at most x.
func ClipNorm(x float64) Clip { return Clip{Norm: x} }

// ClipValue bounds every element of every gradient to [-x, x].
func ClipValue(x float64) Clip { return Clip{Value: x} }

// String returns the name that the command line uses: sgd, adam, adamw.
func (a Algorithm) String() string { return passes.Algorithm(a).String() }

// String returns the name of the shape: constant, cosine, linear, step.
func (k ScheduleKind) String() string { return passes.ScheduleKind(k).String() }
