package ampc

import (
	"io"
	"time"

	"ampc/ir"
)

// Loss is an f32 scalar to minimise.
type Loss struct {
	Value  Tensor
	Weight float64 // zero: 1; below zero: the loss is raised
	// Scaler is nil for the config's. Losses with one Scaler share its scale, and
	// in one step a backward sweep. Steps that share it are an iteration: the
	// last one compiled advances the scale, for an overflow in any of them.
	Scaler *Scaler
}

// TrainConfig says what Train compiles a model to. The zero TrainConfig trains
// nothing: Train wants an Optimizer or Groups.
type TrainConfig struct {
	Policy    Policy    // zero: f32, no casts
	Optimizer Optimizer // with LR: a last group, over every parameter that no other trains
	LR        Schedule  // learning rate of that group
	Groups    []Group
	Clip      Clip   // over all trained parameters; a Group's is over its own
	GradNorm  bool   // compute Metrics.GradNorm also where nothing is clipped by it
	Scaler    Scaler // zero: that of the policy
	NoSkip    bool   // let steps that are not finite reach the weights
	// Gradients edits the gradients, unscaled and divided by the count, before
	// they are clipped. It returns one for each parameter it was given.
	Gradients func(u *Update, g []Grad) []Grad
	EMA       float64  // decay of a running average of the parameters, from 0 to below 1; 0: none
	Micro     int      // micro-batches that one Run may take; zero: 1
	BadMicro  BadMicro // what a micro-batch that is not finite does

	// Name tells the training steps of a model apart: it is in the names of the
	// step's counters, rates, moments and averages, and so in checkpoints. One
	// step may have none. Letters, digits, _ and -.
	Name    string
	Outputs []Output // more results, read by Result.Value
	Grads   []Tensor // parameters whose gradients are results, read by Result.Grad

	Sizes     Sizes // of the model's named dimensions
	KeepSizes int   // how many further sizes Step.For keeps compiled; zero: 8
	Compile   CompileOptions
}

// InferConfig says what Infer compiles a model to.
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
	Pad     bool     // zeros fill products up to the multiples that tensor cores want; see Program.Misaligned
	Shadow  bool     // the update writes the weights' 16-bit copies too, so that no step begins with casts
	Ranges  Ranges   // of values, for Policy.Guard and where scores may overflow; Calibrate makes one
	Disable []string // passes to leave out; `ampc passes` lists them
	// NoProof leaves out the check that holds the compiled step against the model
	// (Step.Prove); it takes less than a tenth of the time of passes and lowering.
	NoProof bool
	// After is told about every pass that ran; nil: nobody is.
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
	DropMicro                 // its gradients and its count are left out; the scaler counts an overflow
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
