package passes

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ampc/ir"
	"ampc/passes/ranges"
)

// Config is what a source graph is compiled with. The zero Config compiles for inference in f32.
type Config struct {
	Policy  Policy   // zero: f32, no casts
	Outputs []Output // results in addition to those that the graph returns
	Train   bool     // false: inference; Training is unused
	Training
	Inference
	Compiling
	Debugging
}

// Training are the settings of a training step.
type Training struct {
	// Name is part of the names of the step's own state (counters, rates, moments, averages), so
	// that several steps over the same variables have separate states.
	Name   string
	Losses []Loss
	Groups []Group // the first that matches applies; a parameter that none matches is not trained
	Clip   Clip    // over all trained parameters; Group.Clip is over those of one group
	Scaler Scaler  // of losses without their own; zero: the policy's
	// Shared names the scales that other steps use, too, and says what this step does with them.
	Shared map[*Scaler]SharedScale
	// NoSkip omits the finiteness checks: a NaN then reaches the weights. A graph with a dynamic
	// scaler needs the checks.
	NoSkip bool
	// Gradients edits unscaled gradients (scale unit 1, already divided by the count) before
	// clipping. It returns one gradient for each parameter that it was given, then a GradOf for
	// each state of its own: the variable and its next value.
	Gradients func(b *ir.Builder, g []GradOf) []GradOf
	EMA       float64 // decay of the moving average of trained parameters; 0: none
	Micro     int     // largest number of micro-batches per step; 0 and 1: no accumulators
	BadMicro  BadMicro
	Parallel  Parallel
	Memory    int64 // largest size of the program in bytes: backward recomputes values to fit; 0: no limit
	Chunks    int   // blocks of rows in which a product and its cross entropy run; 0 and 1: they run whole
	// Checkpoints are names of values that forward keeps for backward. Backward recomputes the
	// values that they are computed from.
	Checkpoints  []string
	WeightCopies bool // the update writes the weight copies; prepare casts only weights that no step writes
}

// Inference are the settings of a step without an update.
type Inference struct {
	// Inherit makes the step store values of the forward section as another step does, which was
	// compiled with Record. nil: the step chooses for itself.
	Inherit *Assignment
}

// Compiling are settings of the compiler, which do not change what a step computes.
type Compiling struct {
	Caps    ir.Caps        // stored dtypes that the target's kernels support
	Pad     bool           // pads products with zeros to the multiples that tensor cores want
	Ranges  ranges.Options // ranges of inputs, and recorded ranges, which Policy.Guard uses
	Disable []string       // passes to omit
	// PartialRules says that the graph is a part of a model: what a rule names may be in another part.
	PartialRules bool
	Prove        bool        // compare the compiled step with the graph before layout
	Record       *Assignment // receives the choices of this step; nil: not wanted
	// Peak returns the number of bytes that the target's program of a compiled step takes.
	// Training.Memory needs it.
	Peak func(g *ir.Graph) (int64, error)
	// Curve receives what smaller programs cost, from the pass memory; nil: not wanted. It needs
	// Peak.
	Curve *[]MemoryPoint
	// Source receives a copy of the graph before the pass layout. prove compares the compiled step
	// with it.
	Source func(t *ir.Graph)
	After  func(e Event) // called after each pass, to dump, time or trace; may be nil
}

// Debugging is for tests and tools.
type Debugging struct {
	Only     []string // run only these passes, in the order of the pipeline; empty: all
	Until    string   // last pass to run; empty: all
	NoVerify bool     // do not verify the graph after each pass
	Check    bool     // shuffle before every pass, read the printed text after it, prove the result
	flip     *flip    // question of WhyNot
}

// On returns the config for a copy of its graph. at maps values to their copies.
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

// Widen changes the config to one that keeps every value f32 and leaves the loss scales unchanged.
// Calibration records the ranges of values with it.
func (c *Config) Widen() {
	c.Policy = c.Policy.Keep("*")
	c.Policy.Guard, c.Micro = 0, 1
	c.Disable = append(slices.Clip(c.Disable), "scalers")
}

// Loss is an f32[] value of the forward section that training minimizes.
type Loss struct {
	Value  *ir.Value
	Weight float64 // zero: 1; negative: the loss is maximized
	Scaler *Scaler // losses with the same scaler share one sweep; nil: the config's
}

// SharedScale is a loss scale that several steps use.
type SharedScale struct {
	Step, Of string // parts of the names of its variables; see StateName
	Part     Sharing
}

func (l Loss) weight() float64 {
	if l.Weight == 0 {
		return 1
	}
	return l.Weight
}

// GradOf is a parameter and its gradient, for Config.Gradients.
type GradOf struct {
	Param *ir.Value
	Grad  *ir.Value
}

// BadMicro is what happens when a micro-batch is not finite.
type BadMicro uint8

const (
	SkipStep  BadMicro = iota // the whole step is skipped
	DropMicro                 // its gradients and its count are omitted; the scaler counts the step as overflowed
)

// Group is how the parameters that match Pattern are trained.
type Group struct {
	Pattern   string // "" and "*": all; "h0.attn": the scope and everything in it; "*.b": by last name
	Optimizer Optimizer
	LR        Schedule
	Clip      Clip
	Freeze    bool // not trained, no gradient computed
	// NoUpdate computes and checks the gradients but does not update the parameters. The caller
	// updates them, from outputs of kind OfGradient.
	NoUpdate bool
}

// Clip bounds unscaled gradients. If both fields are set, Value applies first.
type Clip struct {
	Norm  float64 // scales all gradients such that their common 2-norm is at most this; 0: off
	Value float64 // limits every element to [-Value, Value]; 0: off
}

// Algorithm is the update formula of an optimizer.
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

// Optimizer is an algorithm with its constants. SGD, Adam and AdamW return one, whose fields may be
// changed.
type Optimizer struct {
	Algorithm    Algorithm
	Momentum     float64     // SGD; 0: no momentum, no state
	Nesterov     bool        // SGD
	Beta1, Beta2 float64     // Adam, AdamW
	Eps          float64     // Adam, AdamW: added to the root of the second moment, in f32
	Decay        float64     // times the weight, added to the gradient (SGD, Adam) or subtracted from the weight (AdamW)
	StateDType   ir.DType    // of moments; zero: f32
	MatrixDecay  bool        // parameters of rank 0 and 1 do not decay
	Rule         *UpdateRule // of UseRule
}

// UpdateRule is an update formula that its author builds from ops. All of them run in f32.
type UpdateRule struct {
	Name string // part of the names of its states
	// Elementwise states that each element of the next values is computed from the same element of
	// the weight, the gradient and the states, and from scalars. A part of a tensor then suffices.
	Elementwise bool
	// Next returns the next value of a weight, and the states with their next values.
	Next func(b *ir.Builder, p RuleParam) (next *ir.Value, states []GradOf)
}

// RuleParam is the parameter that an UpdateRule updates.
type RuleParam struct {
	Name   string    // of the parameter
	Weight *ir.Value // or this rank's part of it, flattened
	Grad   *ir.Value // of Weight's shape: unscaled, divided by the count and clipped
	LR     *ir.Value // f32 scalar
	Step   *ir.Value // f32 scalar: number of steps taken, with this one
	Decay  float64
	// State declares a variable that holds a state.
	State func(name string, t ir.Type, init *ir.Init) *ir.Value
}

// SGD is stochastic gradient descent. momentum 0 means none.
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

// check refuses constants that cannot work, and a dtype of moments in which updates are lost.
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

// check refuses rule names that make names of states ambiguous.
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

// stalls refuses a decay that rounds to 1 in the dtype of the moments: a moving average with it
// never decreases.
func (o Optimizer) stalls(name string, decay float64) error {
	d := o.state()
	halfULP := math.Ldexp(1, -9) // bf16: half a unit in the last place of the largest significand
	if d == ir.F16 {
		halfULP = math.Ldexp(1, -12)
	}
	if 1-decay > halfULP {
		return nil
	}
	return fmt.Errorf("%s: %s %g with state in %s: a moment times %g rounds back to itself, so it never falls; use f32", o.Algorithm, name, decay, d, decay)
}

// ScheduleKind is the shape of a learning rate schedule.
type ScheduleKind uint8

const (
	NoRate ScheduleKind = iota // of the zero Schedule; with a rate it means ConstantRate
	ConstantRate
	CosineRate // half a cosine from the rate to Min, over Total steps
	LinearRate // linear from the rate to Min, over Total steps
	StepRate   // multiplied by Drop every Every steps
	PhasesRate // the phases one after the other
)

// MaxPhases is the largest number of phases of a schedule.
const MaxPhases = 16

// Phase is a part of a schedule: its number of steps, the fractions of the rate at its start and
// its end, and the shape in between (see the row schedule).
type Phase struct {
	Steps           int64
	From, To, Power float64
}

var scheduleNames = [...]string{"constant", "constant", "cosine", "linear", "step", "phases"}

func (k ScheduleKind) String() string { return scheduleNames[k] }

// Schedule is a learning rate schedule. The base rate is a state of the program, so it may be
// changed between steps. The shape is compiled in. Groups with equal schedules share one rate.
type Schedule struct {
	Rate     float64
	Kind     ScheduleKind
	Warmup   int64   // steps of linear warm-up: the rate is multiplied by (step+1)/Warmup
	Total    int64   // number of steps until Min, with the warm-up
	Min      float64 // fraction of the rate
	Every    int64
	Drop     float64
	Phases   [MaxPhases]Phase // of PhasesRate; an array, so that schedules can be compared
	CountAll bool             // count launched steps, with skipped ones; default: steps taken
}

// Constant is a constant rate.
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

// phases lists the phases that have steps.
func (s *Schedule) phases() []Phase {
	n := MaxPhases
	for n > 0 && s.Phases[n-1] == (Phase{}) {
		n--
	}
	return s.Phases[:n]
}

// Reduce is how the values of several micro-batches become one result.
type Reduce uint8

const (
	ByDefault Reduce = iota // Mean for losses, Last for other values
	Last                    // the value of the last micro-batch
	Mean                    // over the micro-batches that count; for a loss with counts, weighted by them
	Sum
)

// Output is a result of the step. The compiled graph returns the results of the source graph, then
// one value for each of Config.Outputs, in their order.
type Output struct {
	Kind   ResultKind
	Value  *ir.Value // of the source graph: the value itself, or for OfGradient the value to differentiate by
	Reduce Reduce    // of OfValue
}

// ResultKind is what a result of a step is.
type ResultKind uint8

const (
	OfValue    ResultKind = iota // Output.Value
	OfGradient                   // unscaled gradient by Output.Value; if that is not a parameter, of the last micro-batch
	OfSkip                       // bool[]: the step did not change any variable
	OfScale                      // loss scale of the first sweep in this step, 1 if it has none
	OfGradNorm                   // 2-norm of all gradients, unscaled and before clipping
	OfRate                       // the learning rate of the first group's update
)

var resultNames = [...]string{"value", "gradient", "skip", "scale", "gradient norm", "learning rate"}

func (k ResultKind) String() string { return resultNames[k] }
