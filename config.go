package ampc

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"ampc/ir"
	"ampc/passes"
	"ampc/passes/ranges"
	"ampc/passes/systems"
)

// Loss is an f32 scalar to minimize.
type Loss struct {
	Value  Tensor
	Weight float64 // zero: 1; below zero: the loss is raised
	// Scaler is nil for the config's. Losses with one Scaler share its scale, and
	// in one step a backward sweep. Steps that share it are an iteration: the
	// last one compiled advances the scale, for an overflow in any of them.
	Scaler *Scaler
}

// TrainConfig describes a training step. Train refuses the zero TrainConfig: it
// needs an Optimizer or Groups.
type TrainConfig struct {
	Policy    Policy    // zero: f32, no casts
	Optimizer Optimizer // with LR: a last group, over every parameter that no other trains
	LR        Schedule  // learning rate of that group
	Groups    []Group
	Clip      Clip   // over all trained parameters; a Group's is over its own
	GradNorm  bool   // compute the norm that Metrics.GradNorm returns also where nothing is clipped by it
	Scaler    Scaler // zero: that of the policy
	NoSkip    bool   // let steps that are not finite reach the weights
	// RestoreScale says when gradients that are not finite for another reason than the
	// loss scale, such as 0/0 in the data, leave the scale alone: Run replays a step that
	// was skipped at a finite loss, or a micro-batch that was left out, as
	// Step.Diagnose does. Steps that are taken cost no more.
	RestoreScale RestoreScale
	// Gradients edits the gradients, unscaled and divided by the count, before
	// they are clipped. It returns one for each parameter it was given.
	Gradients func(u *Update, g []Grad) []Grad
	EMA       float64  // decay of a running average of the parameters, from 0 to below 1; 0: none
	Micro     int      // micro-batches that one Run may take; zero: 1, or as Parallel.Slices wants
	BadMicro  BadMicro // what a micro-batch that is not finite does
	// Memory is how many bytes the program of the step may take: variables, inputs, and
	// what is computed (the sum of Program.Arenas). The backward pass computes again what
	// the forward pass does not keep, such that the step fits with the least work added. No bit of
	// a result changes. A step that cannot do with so few is an error that names the least.
	// FitMemory: what is left of the memory of the machine (its container, its GPU), when Train
	// is called. Zero: no limit.
	Memory int64
	// Chunks is the number of blocks of rows in which the product that makes logits and its
	// cross entropy run, where nothing else reads the logits. Each block's gradients follow it, so
	// that neither the logits nor their gradient are whole at any time; nothing is computed twice.
	// Sums over the rows are added block by block, in f32, so that losses and gradients differ by
	// the order of sums. Zero: one.
	Chunks   int
	Parallel Parallel // the ranks that share the batch; zero: one process has it all

	// Name distinguishes the training steps of a model: it is in the names of the
	// step's counters, rates, moments and averages, and so in checkpoints. One
	// step may have none. Letters, digits, _ and -.
	Name    string
	Outputs []Output // more results, read by Result.Value
	Grads   []Tensor // parameters whose gradients are results, read by Result.Grad

	Sizes     Sizes // of the model's named dimensions
	KeepSizes int   // how many further sizes Step.For keeps compiled; zero: 8
	Compile   CompileOptions
}

// FitMemory is the TrainConfig.Memory that the backend has.
const FitMemory int64 = -1

// InferConfig describes an inference step.
type InferConfig struct {
	Policy    Policy  // zero: f32, no casts
	Weights   Weights // zero: Live
	Step      string  // of EMA: the TrainConfig.Name of the step whose averages to read; "": the only one that has any
	Sizes     Sizes   // of the model's named dimensions
	KeepSizes int     // how many further sizes Step.For keeps compiled; zero: 8
	Compile   CompileOptions
}

// CompileOptions change how a step is compiled and not what it computes.
type CompileOptions struct {
	Pad          bool     // zeros fill products up to the multiples that tensor cores want; see Program.Misaligned
	WeightCopies bool     // the update writes the weights' 16-bit copies too, so that no step begins with casts
	Ranges       Ranges   // of values, for Policy.Guard and where scores may overflow; Calibrate makes one
	Disable      []string // passes to leave out; `ampc passes` lists them
	// NoProof leaves out the checks that hold the compiled step against the model and its
	// program against the step (Step.Prove); docs/performance.md says how long they take.
	NoProof bool
	// After, if it is not nil, is called after every pass that ran.
	After func(PassEvent)
}

// Weights says which weights an inference step reads.
type Weights uint8

// The weights of InferConfig.
const (
	Live Weights = iota // the parameters as they are
	EMA                 // the running averages that training with TrainConfig.EMA keeps, where a parameter has one; an error where none has
)

// Sizes gives named dimensions (Dim) their sizes.
type Sizes map[Dim]int64

// Output is a further result of a training step.
type Output struct {
	Tensor Tensor
	Reduce Reduce // over the micro-batches of one step
}

// Reduce says what a result of several micro-batches holds.
type Reduce uint8

// The reductions of Output; the zero Reduce is Mean for losses, Last for all else.
const (
	Last Reduce = iota + 1 // the value of the last micro-batch
	Mean                   // over those that count; weighted by counts for a loss that has one
	Sum                    // over those that count
)

// BadMicro says what a micro-batch that is not finite does.
type BadMicro uint8

// The choices of TrainConfig.BadMicro.
const (
	SkipStep  BadMicro = iota // the whole step is skipped
	DropMicro                 // its gradients and its count are left out; the scaler counts an overflow, see RestoreScale
)

// Ranges is what the compiler may assume about the values of a model. Calibrate
// makes one; Inputs may be given by hand.
type Ranges struct {
	Inputs map[string]Interval // of float inputs by name; one that is missing is unknown
	Growth float64             // weights may grow to this many times their initial range; 0: 1
	// Recorded ranges of values by name replace computed ones.
	Recorded map[string]Recorded
}

// Interval bounds a value.
type Interval struct {
	Lo, Hi float64
	NaN    bool // it may be NaN too
}

// Recorded is what a value was seen to hold over some runs.
type Recorded struct {
	Lo, Hi    float64
	Least     float64 // smallest magnitude above zero, 0 where none was seen
	Nonfinite int     // elements that were Inf or NaN
	Elements  int
}

// PassEvent is what one pass of the compiler did.
type PassEvent struct {
	Pass     string
	Took     time.Duration
	Counters map[string]int // what the pass counted, such as "casts_inserted"
	Notes    []string       // what it rewrote, a sentence each
	graph    *ir.Graph
}

// WriteIR writes the graph as the pass left it. It is there during the call of
// CompileOptions.After only.
func (e PassEvent) WriteIR(w io.Writer) error { return e.graph.Print(w, ir.Reasons) }

// Graph is the graph as the pass left it, for tools; it is there during the call of
// CompileOptions.After only and must not be changed.
func (e PassEvent) Graph() *ir.Graph { return e.graph }

// compiler returns the configuration of the passes for c and these losses, in terms of
// the model's own graph. It is the one place where the public configuration becomes
// the compiler's; what a session adds stands in request.
func (c TrainConfig) compiler(losses []Loss) (passes.Config, error) {
	p, err := c.Compile.compiler(c.Policy)
	if err != nil {
		return p, err
	}
	p.Train = len(losses) > 0
	p.Name, p.Groups, p.Clip, p.Scaler = c.Name, c.groups(), c.Clip.compiler(), c.Scaler.compiler()
	p.Memory, p.Chunks = c.Memory, c.Chunks
	p.NoSkip, p.EMA, p.Micro, p.BadMicro = c.NoSkip, c.EMA, c.micro(), passes.BadMicro(c.BadMicro)
	p.Parallel = c.Parallel.compiler()
	p.Gradients = gradientsFor(c.Gradients)
	scalers := map[*Scaler]*passes.Scaler{nil: nil} // losses with one pointer keep sharing one
	for _, l := range losses {
		if _, known := scalers[l.Scaler]; !known {
			s := l.Scaler.compiler()
			scalers[l.Scaler] = &s
		}
		p.Losses = append(p.Losses, passes.Loss{Value: l.Value.v, Weight: l.Weight, Scaler: scalers[l.Scaler]})
	}
	for _, o := range c.Outputs {
		p.Outputs = append(p.Outputs, passes.Output{Value: o.Tensor.v, Reduce: passes.Reduce(o.Reduce)})
	}
	for _, w := range c.Grads {
		p.Outputs = append(p.Outputs, passes.Output{Kind: passes.OfGradient, Value: w.v})
	}
	return p, nil
}

// compiler returns the configuration of the passes for the forward pass that computes out.
func (c InferConfig) compiler(out []Tensor) (passes.Config, error) {
	p, err := c.Compile.compiler(c.Policy)
	for _, t := range out {
		p.Outputs = append(p.Outputs, passes.Output{Value: t.v})
	}
	return p, err
}

func (o CompileOptions) compiler(policy Policy) (passes.Config, error) {
	p := passes.Config{Compiling: passes.Compiling{Pad: o.Pad, Ranges: o.Ranges.compiler(), Disable: o.Disable, Prove: !o.NoProof}, Training: passes.Training{WeightCopies: o.WeightCopies}}
	if tell := o.After; tell != nil {
		p.After = func(e passes.Event) {
			tell(PassEvent{Pass: e.Pass, Took: e.Took, Counters: e.Counters, Notes: e.Notes, graph: e.Graph})
		}
	}
	var err error
	p.Policy, err = policy.compiler()
	return p, err
}

func (p Policy) compiler() (passes.Policy, error) {
	c := passes.Policy{
		Name: p.Name, Low: irDType(p.Low), TF32: p.TF32, Direct: p.Direct, Manual: p.Manual, Algorithm: p.Algorithm, SavedCost: p.SavedCost, Guard: p.Guard,
		Eager: p.Eager, Narrow: p.Narrow, Cast: p.Cast, NoMasters: p.NoMasters, NormF32: p.NormF32, Outputs: irDType(p.Outputs),
		Rules: rulesFor(p.Rules), Stores: rulesFor(p.Stores), Scaler: p.Scaler.compiler(), Losses: p.Losses,
	}
	for _, o := range p.Classes {
		class, ok := ir.ClassOf(string(o.Class))
		if !ok {
			return c, fmt.Errorf("policy %s: class %q of %s: there are low, keep, promote and clear", p.Name, o.Class, o.Op)
		}
		if op, ok := ir.OpNamed(o.Op); ok {
			if c.Class == nil {
				c.Class = map[ir.Op]ir.Class{}
			}
			c.Class[op] = class
			continue
		}
		if !strings.Contains(o.Op, ".") {
			return c, fmt.Errorf("policy %s: no op %q to give a class; `ampc ops` lists them", p.Name, o.Op)
		}
		kind, err := systems.ParseCase(o.Op)
		if err != nil {
			return c, fmt.Errorf("policy %s: %w", p.Name, err)
		}
		kind.Class = class
		c.Cases = append(c.Cases, kind)
	}
	for _, w := range p.Widens {
		widen, err := systems.ParseWiden(w.Op, w.Name)
		if err != nil {
			return c, fmt.Errorf("policy %s: %w", p.Name, err)
		}
		c.Widens = append(c.Widens, widen)
	}
	return c, nil
}

// policyOf returns the public form of a compiler's policy: presets and policy
// files are made there.
func policyOf(c passes.Policy) Policy {
	p := Policy{
		Name: c.Name, Low: DType(c.Low), TF32: c.TF32, Direct: c.Direct, Manual: c.Manual, Algorithm: c.Algorithm, SavedCost: c.SavedCost, Guard: c.Guard,
		Eager: c.Eager, Narrow: c.Narrow, Cast: c.Cast, NoMasters: c.NoMasters, NormF32: c.NormF32, Outputs: DType(c.Outputs),
		Rules: rulesOf(c.Rules), Stores: rulesOf(c.Stores), Scaler: scalerOf(c.Scaler), Losses: c.Losses,
	}
	byName := func(a, b ir.Op) int { return cmp.Compare(a.String(), b.String()) }
	for _, op := range slices.SortedFunc(maps.Keys(c.Class), byName) {
		p.Classes = append(p.Classes, OpClass{op.String(), Class(c.Class[op].String())})
	}
	for _, k := range c.Cases {
		p.Classes = append(p.Classes, OpClass{k.String(), Class(k.Class.String())})
	}
	for _, w := range c.Widens {
		p.Widens = append(p.Widens, Operand{w.Op.String(), w.Operand})
	}
	return p
}

func rulesFor(rules []Rule) []passes.Rule {
	var out []passes.Rule
	for _, r := range rules {
		out = append(out, passes.Rule{Pattern: r.Pattern, Pin: ir.Pin(r.Pin), Pos: r.Pos})
	}
	return out
}

func rulesOf(rules []passes.Rule) []Rule {
	var out []Rule
	for _, r := range rules {
		out = append(out, Rule{r.Pattern, Pin(r.Pin), r.Pos})
	}
	return out
}

func (s Scaler) compiler() passes.Scaler {
	return passes.Scaler{
		Mode: passes.ScalerMode(s.Mode), Init: s.Init, Growth: s.Growth, Backoff: s.Backoff, Every: s.Every, Floor: s.Floor, NoFloor: s.NoFloor,
		Cap: s.Cap, NoCap: s.NoCap, Hysteresis: s.Hysteresis, BlameForward: s.BlameForward, Sticky: s.Sticky, Renew: s.Renew,
	}
}

func scalerOf(s passes.Scaler) Scaler {
	return Scaler{
		Mode: ScalerMode(s.Mode), Init: s.Init, Growth: s.Growth, Backoff: s.Backoff, Every: s.Every, Floor: s.Floor, NoFloor: s.NoFloor,
		Cap: s.Cap, NoCap: s.NoCap, Hysteresis: s.Hysteresis, BlameForward: s.BlameForward, Sticky: s.Sticky, Renew: s.Renew,
	}
}

// groups are the groups that a step trains, the config's own optimizer last.
func (c TrainConfig) groups() []passes.Group {
	groups := slices.Clone(c.Groups)
	if c.Optimizer.Algorithm != 0 {
		groups = append(groups, Group{Optimizer: c.Optimizer, LR: c.LR})
	}
	var out []passes.Group
	for _, g := range groups {
		out = append(out, passes.Group{Pattern: g.Pattern, Optimizer: g.Optimizer.compiler(), LR: g.LR.compiler(), Clip: g.Clip.compiler(), Freeze: g.Freeze, NoUpdate: g.NoUpdate})
	}
	return out
}

func (o Optimizer) compiler() passes.Optimizer {
	return passes.Optimizer{Algorithm: passes.Algorithm(o.Algorithm), Momentum: o.Momentum, Nesterov: o.Nesterov, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Decay: o.Decay, StateDType: irDType(o.StateDType),
		MatrixDecay: o.MatrixDecay, Rule: o.Rule.compiler()}
}

// compiler makes a rule put the user's lines on what it builds.
func (r *UpdateRule) compiler() *passes.UpdateRule {
	if r == nil {
		return nil
	}
	out := &passes.UpdateRule{Name: r.Name, Elementwise: r.Elementwise}
	if r.Next == nil {
		return out
	}
	out.Next = func(b *ir.Builder, p passes.RuleParam) (*ir.Value, []passes.GradOf) {
		b.Locate(userLine)
		u := &Update{ops: ops{b}, states: new([]passes.GradOf), declare: p.State}
		var next Tensor
		u.guard("rule "+r.Name, func() {
			next = r.Next(u, Param{p.Name, u.tensor(p.Weight), u.tensor(p.Grad), u.tensor(p.LR), u.tensor(p.Step), p.Decay})
		})
		return next.v, *u.states
	}
	return out
}

func (s Schedule) compiler() passes.Schedule {
	c := passes.Schedule{Rate: s.Rate, Kind: passes.ScheduleKind(s.Kind), Warmup: s.Warmup, Total: s.Total, Min: s.Min, Every: s.Every, Drop: s.Drop, CountAll: s.CountAll}
	for i := range min(len(s.Phases), len(c.Phases)) {
		c.Phases[i] = passes.Phase(s.Phases[i])
	}
	return c
}

func (c Clip) compiler() passes.Clip { return passes.Clip{Norm: c.Norm, Value: c.Value} }

func (r Ranges) compiler() ranges.Options {
	o := ranges.Options{Growth: r.Growth}
	if r.Inputs != nil {
		o.Inputs = map[string]ir.Interval{}
	}
	for name, i := range r.Inputs {
		o.Inputs[name] = ir.Interval{Lo: i.Lo, Hi: i.Hi, NaN: i.NaN}
	}
	if r.Recorded != nil {
		o.Recorded = map[string]ranges.Recorded{}
	}
	for name, x := range r.Recorded {
		o.Recorded[name] = ranges.Recorded(x)
	}
	return o
}

// gradientsFor makes what edits gradients put the user's lines on what it builds.
func gradientsFor(edit func(u *Update, g []Grad) []Grad) func(b *ir.Builder, g []passes.GradOf) []passes.GradOf {
	if edit == nil {
		return nil
	}
	return func(b *ir.Builder, g []passes.GradOf) []passes.GradOf {
		b.Locate(userLine)
		u := &Update{ops: ops{b}, states: new([]passes.GradOf)}
		in := make([]Grad, len(g))
		for i, x := range g {
			in[i] = Grad{u.tensor(x.Param), u.tensor(x.Grad)}
		}
		edited := in
		u.guard("TrainConfig.Gradients", func() { edited = edit(u, in) })
		if len(edited) > len(in) {
			u.Fail("TrainConfig.Gradients returns %d gradients, want %d: one for each parameter, in the order given", len(edited), len(in))
		}
		out := make([]passes.GradOf, len(edited))
		for i, x := range edited {
			out[i] = passes.GradOf{Param: x.Param.v, Grad: x.Value.v}
		}
		return append(out, *u.states...)
	}
}

// guard calls the user's function. A panic in it is a mistake with the line that panicked.
func (u *Update) guard(what string, f func()) {
	defer func() {
		if r := recover(); r != nil {
			u.Fail("%s panics: %v", what, r)
		}
	}()
	f()
}

// bound are the sizes as the graph takes them.
func (z Sizes) bound() map[string]int64 {
	out := map[string]int64{}
	for name, n := range z {
		out[string(name)] = n
	}
	return out
}

func irDType(d DType) ir.DType { return ir.DType(d) }
