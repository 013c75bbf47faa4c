package ampc

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/passes"
)

// Algorithm is how an optimizer uses a gradient.
type Algorithm uint8

// The algorithms of Optimizer; the zero Algorithm trains nothing.
const (
	UseSGD Algorithm = iota + 1
	UseAdam
	UseAdamW
	UseRule // Optimizer.Rule
)

// Optimizer is an update rule with its constants. Make one with SGD, Adam,
// AdamW or WithRule and change its fields.
type Optimizer struct {
	Algorithm    Algorithm
	Momentum     float64 // of SGD, from 0 to below 1; 0: no state
	Nesterov     bool    // of SGD; needs a momentum
	Beta1, Beta2 float64 // of Adam and AdamW, from 0 to below 1
	Eps          float64 // of Adam and AdamW: added to the root of the second moment, in f32
	Decay        float64 // weight decay: added to the gradient (SGD, Adam), taken off the weight (AdamW), or given to the Rule
	StateDType   DType   // of moments of SGD, Adam and AdamW; zero: F32
	// MatrixDecay leaves parameters of rank 0 and 1 without decay: biases, and the
	// scales of norms.
	MatrixDecay bool
	Rule        *UpdateRule // of UseRule
}

// UpdateRule is an optimizer of your own, built with ops. What it builds is part of the
// step: it runs on the step's device, in f32 under every policy, and changes
// nothing where the step is skipped. Policies without f32 weights (o3) are refused. Package ampc/optim has rules to use and to
// learn from.
type UpdateRule struct {
	Name string // is in the names of its states, and so in checkpoints: letters, digits, _ and -
	// Elementwise says that each element of the next weight, and of states, depends on the same
	// element of weight, gradient and states alone, and on scalars, as in Adam. With Parallel.Shard
	// each rank then updates a part: Weight and Grad are a range of the flattened tensors, and
	// states have Weight's shape or are scalars. A rule that says so and is not is refused, on
	// one rank, too. False: the rule may need whole tensors, as Muon does, and with Shard every rank
	// keeps all of what it steps.
	Elementwise bool
	// Next returns the next value of a parameter, which has the parameter's type. It
	// is called once for each parameter when the step is compiled. Update.State declares
	// what is kept from step to step, of any type, and Update.Set gives its next value.
	Next func(u *Update, p Param) Tensor
}

// Param is a parameter as an UpdateRule sees it.
type Param struct {
	Name   string
	Weight Tensor  // or with Shard a part of it (UpdateRule.Elementwise)
	Grad   Tensor  // of the weight's shape, f32: unscaled, divided by the count and clipped
	LR     Tensor  // the learning rate of its group at this step, an f32 scalar
	Step   Tensor  // how many steps are taken, this one included: 1, 2, ...; an f32 scalar
	Decay  float64 // Optimizer.Decay; 0 where MatrixDecay leaves this parameter out
}

// WithRule is an Optimizer that updates by r.
func WithRule(r UpdateRule) Optimizer { return Optimizer{Algorithm: UseRule, Rule: &r} }

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
	PhasesRate                // Phases in turn
)

// Phase is a part of a schedule of kind PhasesRate.
type Phase struct {
	Steps    int64
	From, To float64 // shares of the rate at its first step and behind its last one
	Power    float64 // the way between: 1 is a line, p is (1-u)^p of the difference left at share u of the steps, 0 half a cosine
}

// Schedule is a learning rate over the steps. Make one with Constant, Cosine,
// LinearDecay, StepDecay or Phases (package ampc/optim has more) and change its fields. The base rate is a variable
// (Step.SetLR); the shape is compiled in. Groups with equal schedules share one rate.
type Schedule struct {
	Rate     float64
	Kind     ScheduleKind
	Warmup   int64   // the rate rises linearly over this many steps: (step+1)/Warmup of it
	Total    int64   // steps until Min, warm-up included
	Min      float64 // as a share of the rate, from 0 to 1
	Every    int64   // of StepRate
	Drop     float64 // of StepRate
	Phases   []Phase // of PhasesRate: up to 16 after the warm-up; the rate then stays at the last To
	CountAll bool    // count launched steps, skipped ones too; default: steps taken
}

// Constant is a learning rate that does not change.
func Constant(rate float64) Schedule { return Schedule{Rate: rate, Kind: ConstantRate} }

// Cosine rises over warmup steps and falls in half a cosine to 0 at step total.
func Cosine(rate float64, warmup, total int64) Schedule {
	return Schedule{Rate: rate, Kind: CosineRate, Warmup: warmup, Total: total}
}

// LinearDecay rises over warmup steps and falls in a line to 0 at step total.
func LinearDecay(rate float64, warmup, total int64) Schedule {
	return Schedule{Rate: rate, Kind: LinearRate, Warmup: warmup, Total: total}
}

// StepDecay multiplies the rate by drop after every given number of steps.
func StepDecay(rate, drop float64, every int64) Schedule {
	return Schedule{Rate: rate, Kind: StepRate, Drop: drop, Every: every}
}

// Phases goes through the phases in turn.
func Phases(rate float64, p ...Phase) Schedule {
	return Schedule{Rate: rate, Kind: PhasesRate, Phases: p}
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

// String returns the name that the command line uses: sgd, adam, adamw, rule.
func (a Algorithm) String() string { return passes.Algorithm(a).String() }

// String returns the name of the shape: constant, cosine, linear, step, phases.
func (k ScheduleKind) String() string { return passes.ScheduleKind(k).String() }

// SetLR changes the base learning rate of the step; its schedule continues from it.
// A step whose groups have several rates has SetGroupLR for each. A rate that
// Constant would not take, below 0 or not finite, is an error.
func (s *Step) SetLR(rate float64) error {
	defer s.model.gate.hold()()
	if s.exec == nil {
		return errClosed
	}
	rates := s.rates()
	if len(rates) != 1 {
		var patterns []string
		for _, r := range rates {
			patterns = append(patterns, s.patterns(r)...)
		}
		if len(rates) == 0 {
			return fmt.Errorf("set learning rate: the step has none")
		}
		return fmt.Errorf("set learning rate: the step has %d, of groups %s: set each with SetGroupLR", len(rates), strings.Join(patterns, ", "))
	}
	return s.setRate(rates[0], rate)
}

// SetGroupLR changes the base learning rate of the group with this pattern, ""
// for that of TrainConfig.Optimizer; its schedule continues from it. Groups whose
// schedules are equal have one rate, and cannot be set apart.
func (s *Step) SetGroupLR(pattern string, rate float64) error {
	defer s.model.gate.hold()()
	if s.exec == nil {
		return errClosed
	}
	var known []string
	for _, r := range s.rates() {
		of := s.patterns(r)
		known = append(known, of...)
		switch {
		case !slices.Contains(of, fmt.Sprintf("%q", pattern)):
		case len(of) > 1:
			return fmt.Errorf("set learning rate: groups %s have equal schedules and so one rate: give them schedules that differ, or set all with SetLR where the step has no other", strings.Join(of, ", "))
		default:
			return s.setRate(r, rate)
		}
	}
	return fmt.Errorf("set learning rate: no group %q has one; there are %s", pattern, strings.Join(known, ", "))
}

// rate is a base learning rate and the groups that are stepped by it.
type rate struct {
	base   *ir.Value
	groups []int
}

// rates finds the rates that the update reads, in the order of the groups.
func (s *Step) rates() []rate {
	var out []rate
	groups := s.config.Groups
	for _, n := range s.graph.Body[ir.Update] {
		base := n.Operand("lr")
		if base == nil || len(n.Out) == 0 || n.Out[0].Next == nil {
			continue
		}
		for base.Def != nil {
			base = base.Def.In[0]
		}
		group := passes.GroupOf(groups, n.Out[0].Next.Name)
		at := slices.IndexFunc(out, func(r rate) bool { return r.base == base })
		if at < 0 {
			at = len(out)
			out = append(out, rate{base: base})
		}
		if !slices.Contains(out[at].groups, group) {
			out[at].groups = append(out[at].groups, group)
		}
	}
	for _, r := range out {
		slices.Sort(r.groups)
	}
	slices.SortFunc(out, func(a, b rate) int { return a.groups[0] - b.groups[0] })
	return out
}

func (s *Step) patterns(r rate) []string {
	var out []string
	groups := s.config.Groups
	for _, i := range r.groups {
		out = append(out, fmt.Sprintf("%q", groups[i].Pattern))
	}
	return out
}

func (s *Step) setRate(r rate, x float64) error {
	if err := ir.AtLeast0.Check("set learning rate: learning rate", x); err != nil {
		return err
	}
	v, ok := s.model.session.find(r.base.Name)
	if !ok {
		return fmt.Errorf("set learning rate: no variable %q", r.base.Name)
	}
	return s.model.session.write(v, appendFloats([]float64{x}, v.Type.DType))
}
