package passes

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ampc/ir"
	"ampc/passes/ranges"
)

// Config says what to compile a source graph to. The zero Config compiles for
// inference in f32.
type Config struct {
	Policy  Policy   // zero: f32, no casts
	Outputs []Output // results beyond those the graph returns
	Train   bool     // false: inference, and Training is unused
	Training
	Inference
	Compiling
	Debugging
}

// Training is what only a training step is told.
type Training struct {
	// Name is in the names of the step's own state (counters, rates, moments,
	// averages), so that several steps over the same variables count apart.
	Name   string
	Losses []Loss
	Groups []Group // first match wins; parameters that no group matches are not trained
	Clip   Clip    // over all trained parameters; Group.Clip is over one group's
	Scaler Scaler  // of losses that have none of their own; zero: what the policy wants
	// Shared names the scales that other steps use too, and says what this step
	// does with them.
	Shared map[*Scaler]SharedScale
	// NoSkip leaves out the finiteness checks: a NaN then reaches the weights.
	// A graph with a dynamic scaler cannot do without them.
	NoSkip bool
	// Gradients edits unscaled gradients (unit 1, already divided by the count)
	// before clipping. It returns one gradient per parameter it was given, then a
	// GradOf for each state of its own: the variable and its next value.
	Gradients func(b *ir.Builder, g []GradOf) []GradOf
	EMA       float64 // decay of the running average of trained parameters; 0: none
	Micro     int     // micro-batches per step the accumulators are sized for; 0 and 1: no accumulators
	BadMicro  BadMicro
	Parallel  Parallel
	Memory    int64 // bytes that the program may take: backward computes again what is not kept; 0: no limit
	// Checkpoints are names of values that forward keeps for backward; what they are
	// computed from is computed again.
	Checkpoints  []string
	WeightCopies bool // the update writes the weight copies; prepare casts only what no step writes
}

// Inference is what only a step without an update is told.
type Inference struct {
	// Inherit makes values of the forward section stored as in another step that
	// was compiled with Record; nil: the step decides for itself.
	Inherit *Assignment
}

// Compiling changes how a step is compiled and not what it computes.
type Compiling struct {
	Caps    ir.Caps        // which stored dtypes the target's kernels take
	Pad     bool           // zeros fill products up to the multiples that tensor cores want
	Ranges  ranges.Options // what Policy.Guard may assume: the ranges of inputs, and recorded ones
	Disable []string       // passes to leave out
	Prove   bool           // compare the finished step with the graph before layout
	Record  *Assignment    // filled with what this step decides; nil: not wanted
	// Peak is how many bytes the target's program of a finished step takes; Training.Memory needs it.
	Peak func(g *ir.Graph) (int64, error)
	// Curve is filled with what less memory costs, by the pass memory; nil: not wanted. It needs Peak.
	Curve *[]MemoryPoint
	// Source is given a copy of the graph as it is before the pass layout, which the
	// finished step is a translation of: the graph that prove compares it with.
	Source func(t *ir.Graph)
	After  func(e Event) // dump, time, trace; nil in production
}

// Debugging is for tests and tools.
type Debugging struct {
	Only     []string // run these passes alone, in pipeline order; empty: all
	Until    string   // stop after this pass; empty: none
	NoVerify bool     // trust every pass
	Check    bool     // shuffle before every pass, round-trip the text after it, prove the result
	flip     *flip    // a question of WhyNot
}

// On returns the config for a copy of its graph; at says where each value went.
func (c Config) On(at map[*ir.Value]*ir.Value) Config {
	c.Losses, c.Outputs = slices.Clone(c.Losses), slices.Clone(c.Outputs)
	for i := range c.Losses {
		c.Losses[i].Value = at[c.Losses[i].Value]
	}
	for i, o := range c.Outputs {
		if o.Value != nil {
			c.Outputs[i].Value = at[o.Value]
		}
	}
	return c
}

// Widen changes the config to one that keeps every value f32 and the loss scales
// as they are: what calibration records ranges of.
func (c *Config) Widen() {
	c.Policy = c.Policy.Keep("*")
	c.Policy.Guard, c.Micro = 0, 1
	c.Disable = append(slices.Clip(c.Disable), "scalers")
}

// Loss is an f32[] value of the forward section that training minimizes.
type Loss struct {
	Value  *ir.Value
	Weight float64 // zero: 1; below zero: the loss is raised
	Scaler *Scaler // losses with one scaler are differentiated in one sweep; nil: the config's
}

// SharedScale is a loss scale that several steps use.
type SharedScale struct {
	Step, Of string // in the names of its variables; see StateName
	Part     Sharing
}

func (l Loss) weight() float64 {
	if l.Weight == 0 {
		return 1
	}
	return l.Weight
}

// GradOf is a parameter and its gradient, as Config.Gradients sees them.
type GradOf struct {
	Param *ir.Value
	Grad  *ir.Value
}

// BadMicro says what a non-finite micro-batch does.
type BadMicro uint8

const (
	SkipStep  BadMicro = iota // the whole step is skipped
	DropMicro                 // its gradients and its count are left out; the step counts as overflowed for the scaler
)

// Group says how the parameters that match Pattern are trained.
type Group struct {
	Pattern   string // "" and "*": everything; "h0.attn": the scope and all in it; "*.b": by last name
	Optimizer Optimizer
	LR        Schedule
	Clip      Clip
	Freeze    bool // not trained, no gradient computed
	// NoUpdate differentiates and checks the parameters and leaves them as they
	// are, for someone outside who steps them by the outputs of kind OfGradient.
	NoUpdate bool
}

// Clip bounds gradients after unscaling. Both may be set: values first.
type Clip struct {
	Norm  float64 // scale all gradients so that their common 2-norm is at most this; 0: off
	Value float64 // every element into [-Value, Value]; 0: off
}

// Algorithm is how an optimizer uses a gradient.
type Algorithm uint8

const (
	NoOptimizer Algorithm = iota
	UseSGD
	UseAdam
	UseAdamW
	UseRule
)

var algorithmNames = [...]string{"none", "sgd", "adam", "adamw", "rule"}

func (a Algorithm) String() string { return algorithmNames[a] }

// Optimizer is an algorithm with its constants. Build one with SGD, Adam or
// AdamW and change fields of the copy.
type Optimizer struct {
	Algorithm    Algorithm
	Momentum     float64     // SGD; 0: no state
	Nesterov     bool        // SGD
	Beta1, Beta2 float64     // Adam, AdamW
	Eps          float64     // Adam, AdamW: added to the root of the second moment, in f32
	Decay        float64     // added to the gradient (SGD, Adam) or taken off the weight (AdamW)
	StateDType   ir.DType    // of moments; zero: f32
	MatrixDecay  bool        // parameters of rank 0 and 1 do not decay
	Rule         *UpdateRule // of UseRule
}

// UpdateRule is an update rule that its author builds with ops, all of which run in f32.
type UpdateRule struct {
	Name string // is in the names of its states
	// Next returns the next value of a weight, and the states that it sets.
	Next func(b *ir.Builder, p RuleParam) (next *ir.Value, states []GradOf)
}

// RuleParam is what an UpdateRule is told about a parameter.
type RuleParam struct {
	Weight *ir.Value
	Grad   *ir.Value // unscaled, divided by the count and clipped
	LR     *ir.Value // f32 scalar
	Step   *ir.Value // f32 scalar: how many steps are taken, this one included
	Decay  float64
	State  func(name string) string // the name of the variable that holds a state
}

// SGD is stochastic gradient descent, with momentum where it is not 0.
func SGD(momentum float64) Optimizer { return Optimizer{Algorithm: UseSGD, Momentum: momentum} }

// Adam has betas 0.9 and 0.999 and epsilon 1e-8.
func Adam() Optimizer {
	return Optimizer{Algorithm: UseAdam, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
}

// AdamW is Adam with decoupled weight decay.
func AdamW(decay float64) Optimizer {
	o := Adam()
	o.Algorithm, o.Decay = UseAdamW, decay
	return o
}

func (o Optimizer) state() ir.DType {
	if o.StateDType == ir.Invalid {
		return ir.F32
	}
	return o.StateDType
}

// check refuses constants that cannot work, and moments in a dtype that must lose them.
func (o Optimizer) check() error {
	if o.Algorithm == NoOptimizer || int(o.Algorithm) >= len(algorithmNames) {
		return fmt.Errorf("no optimizer: give SGD, Adam or AdamW, or Freeze the group")
	}
	err := cmp.Or(ir.BelowOne.Check("momentum", o.Momentum), ir.AtLeast0.Check("decay", o.Decay), ir.AtLeast0.Check("epsilon", o.Eps),
		ir.BelowOne.Check("beta1", o.Beta1), ir.BelowOne.Check("beta2", o.Beta2))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", o.Algorithm, err)
	case (o.Algorithm == UseRule) != (o.Rule != nil):
		return fmt.Errorf("optimizer %s: an Optimizer has a Rule if and only if its Algorithm is UseRule: make it with WithRule", o.Algorithm)
	case o.Rule != nil:
		return o.Rule.check()
	case o.Nesterov && o.Momentum == 0:
		return fmt.Errorf("sgd: Nesterov needs a momentum")
	}
	return o.checkState()
}

// check refuses names that could not be told from what else stands in the names of states.
func (r *UpdateRule) check() error {
	if r.Next == nil {
		return fmt.Errorf("rule %q: it has no Next", r.Name)
	}
	if err := checkName(r.Name); err != nil || r.Name == "" {
		return fmt.Errorf("rule %q: want a name of letters, digits, _ and - that is no state of the compiler's", r.Name)
	}
	return nil
}

func (o Optimizer) checkState() error {
	d := o.state()
	if d == ir.F32 {
		return nil
	}
	if !d.Low() {
		return fmt.Errorf("%s: state in %s: want f32, f16 or bf16", o.Algorithm, d)
	}
	if o.Algorithm == UseSGD {
		return o.stalls("momentum", o.Momentum)
	}
	if d == ir.F16 {
		return fmt.Errorf("%s: state in f16: the square of a gradient under 2.4e-4 is 0 there and the update divides by its root; use f32, or bf16 with a beta2 of at most 0.99", o.Algorithm)
	}
	if err := o.stalls("beta1", o.Beta1); err != nil {
		return err
	}
	return o.stalls("beta2", o.Beta2)
}

// stalls refuses a decay that rounds back to the value it decays: a moving
// average with it never falls.
func (o Optimizer) stalls(name string, decay float64) error {
	d := o.state()
	halfULP := math.Ldexp(1, -9) // bf16: relative to the largest significand
	if d == ir.F16 {
		halfULP = math.Ldexp(1, -12)
	}
	if 1-decay > halfULP {
		return nil
	}
	return fmt.Errorf("%s: %s %g with state in %s: a moment times %g rounds back to itself, so it never falls; use f32", o.Algorithm, name, decay, d, decay)
}

// ScheduleKind is the shape of a learning rate over the steps.
type ScheduleKind uint8

const (
	NoRate ScheduleKind = iota // of the zero Schedule; with a rate, ConstantRate
	ConstantRate
	CosineRate // from the rate down to Min over Total steps, half a cosine
	LinearRate // from the rate down to Min over Total steps
	StepRate   // times Drop after every Every steps
	PhasesRate // the phases in turn
)

// MaxPhases is how many phases a schedule has at most.
const MaxPhases = 16

// Phase is a part of a schedule: its steps, the shares of the rate at both ends, and the
// way between (see the row schedule).
type Phase struct {
	Steps           int64
	From, To, Power float64
}

var scheduleNames = [...]string{"constant", "constant", "cosine", "linear", "step", "phases"}

func (k ScheduleKind) String() string { return scheduleNames[k] }

// Schedule is a learning rate. The base rate is a state of the program, so it
// may be changed between steps; the shape is compiled in. Groups with equal
// schedules share one rate.
type Schedule struct {
	Rate     float64
	Kind     ScheduleKind
	Warmup   int64   // the rate rises linearly over this many steps: (step+1)/Warmup of it
	Total    int64   // steps until Min, warm-up included
	Min      float64 // as a share of the rate
	Every    int64
	Drop     float64
	Phases   [MaxPhases]Phase // of PhasesRate; those with steps, an array so that schedules compare
	CountAll bool             // count launched steps, skipped ones too; default: steps taken
}

// Constant is a rate that stays.
func Constant(rate float64) Schedule { return Schedule{Rate: rate, Kind: ConstantRate} }

// Cosine rises over warmup steps and falls to 0 at step total.
func Cosine(rate float64, warmup, total int64) Schedule {
	return Schedule{Rate: rate, Kind: CosineRate, Warmup: warmup, Total: total}
}

func (s Schedule) check() error {
	if s == (Schedule{}) {
		return fmt.Errorf("no learning rate: give LR, such as Constant(1e-3)")
	}
	if err := ir.AtLeast0.Check("learning rate", s.Rate); err != nil {
		return err
	}
	if int(s.Kind) >= len(scheduleNames) {
		return fmt.Errorf("schedule: no kind %d: make one with Constant, Cosine, LinearDecay, StepDecay or Phases", uint8(s.Kind))
	}
	if err := ir.ZeroToOne.Check("least share", s.Min); err != nil {
		return fmt.Errorf("%s schedule: %w", s.Kind, err)
	}
	switch {
	case s.Warmup < 0:
		return fmt.Errorf("%s schedule: %d warm-up steps: want 0 or more", s.Kind, s.Warmup)
	case (s.Kind == CosineRate || s.Kind == LinearRate) && s.Total <= s.Warmup:
		return fmt.Errorf("%s schedule: %d steps in all, %d of them warm-up: want more", s.Kind, s.Total, s.Warmup)
	case s.Kind == StepRate && s.Every < 1:
		return fmt.Errorf("step schedule: a drop every %d steps: want 1 or more", s.Every)
	case s.Kind == PhasesRate:
		return s.checkPhases()
	case s.Kind == StepRate:
		if err := ir.Above0.Check("drop", s.Drop); err != nil {
			return fmt.Errorf("step schedule: %w", err)
		}
	}
	return nil
}

func (s Schedule) checkPhases() error {
	if s.Phases[0] == (Phase{}) {
		return fmt.Errorf("phases schedule: no phases: want 1 to %d", MaxPhases)
	}
	for i, p := range s.phases() {
		err := cmp.Or(ir.AtLeast0.Check("From", p.From), ir.AtLeast0.Check("To", p.To), ir.AtLeast0.Check("Power", p.Power))
		if err == nil && p.Steps < 1 {
			err = fmt.Errorf("%d steps: want 1 or more", p.Steps)
		}
		if err != nil {
			return fmt.Errorf("phases schedule: phase %d: %w", i+1, err)
		}
	}
	return nil
}

// phases are those that are given.
func (s *Schedule) phases() []Phase {
	n := MaxPhases
	for n > 0 && s.Phases[n-1] == (Phase{}) {
		n--
	}
	return s.Phases[:n]
}

// Reduce says what stands in a result of a step with several micro-batches.
type Reduce uint8

const (
	ByDefault Reduce = iota // Mean for losses, Last for all else
	Last                    // the value of the last micro-batch
	Mean                    // over the kept micro-batches; weighted by counts for a loss that has one
	Sum
)

// Output is a result of the step. The compiled graph returns what the source
// graph returns and then one value for each of Config.Outputs, in their order.
type Output struct {
	Kind   ResultKind
	Value  *ir.Value // of the source graph: the value itself, or what OfGradient is by
	Reduce Reduce    // of OfValue
}

// ResultKind is what a result is.
type ResultKind uint8

const (
	OfValue    ResultKind = iota // Output.Value
	OfGradient                   // the gradient by Output.Value, unscaled; by what is not a parameter, of the last micro-batch
	OfSkip                       // bool[]: the step left every variable as it was
	OfScale                      // the loss scale of the first sweep in this step, 1 without one
	OfGradNorm                   // the 2-norm of all gradients, unscaled and before clipping
	OfRate                       // the learning rate of the first group's update
)

var resultNames = [...]string{"value", "gradient", "skip", "scale", "gradient norm", "learning rate"}

func (k ResultKind) String() string { return resultNames[k] }
