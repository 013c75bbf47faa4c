package ampc

import "ampc/runtime/doctor"

// Diagnosis says why a step was not finite: what, where, why, and what to do.
// String is a report of a few lines. As JSON it has the same fields.
type Diagnosis struct {
	Cause     Cause
	Node      string    // whose result is the first that is not finite
	Op        string    // its op, or "input", "param", "state"
	Of        string    // of a gradient: the forward node it belongs to
	Scope     string    // of the layer it was built in
	Pos       string    // file and line that built it
	Direction Direction // the part of the step
	Micro     int       // micro-batch, from 0
	DType     DType     // the result is stored in
	Inputs    []Range
	Output    *Range
	Wide      *Range   // the same value in f32, with loss scales of 1
	BF16      *Range   // the same value with bf16 in place of f16, where that could help
	Exact     float64  // largest magnitude that the node computed before it was stored, where that is finite
	From      string   // where the zero that makes it singular comes from
	Scale     float64  // loss scale that the value carries, 1 where it carries none
	ScaleName string   // "loss scale", or that of an inner gradient, or "scales"
	SafeScale float64  // the largest scale with which all that the step stores in 16 bits fits there
	Why       string   // a sentence
	Advice    string   // what to do, a sentence
	Remedies  []Remedy // what Advice says, as data: any one of them helps
	Notes     []string
	Before    *Diagnosis // of a bad state that a step without checks may have written: the step on the variables as they started
	Replays   int        // runs of the step that the diagnosis took, whole or in part

	report *doctor.Diagnosis
}

// String is a report of a few lines: what, where, why, and what to do.
func (d *Diagnosis) String() string { return d.report.String() }

// MarshalJSON implements json.Marshaler; dtypes and causes are written by name.
func (d *Diagnosis) MarshalJSON() ([]byte, error) { return d.report.MarshalJSON() }

// Range is what a tensor holds. Min, Max and AbsMax are over its finite elements,
// 0 where there is none.
type Range struct {
	Name             string
	DType            DType
	Min, Max, AbsMax float64
	NaN, Inf, NegInf int // elements; Inf counts those of either sign
	Zeros, Elements  int
}

// Remedy is one way out, complete in itself: where everything that it says is
// done, and nothing else, the step is taken and agrees with f32. Of several
// remedies any will do.
type Remedy struct {
	Keep   []string // patterns for Policy.Keep, one after the other
	Unpin  []string // nodes whose pin to 16 bits in code is taken off
	Widen  string   // a value of the update that is computed in f32
	Policy string   // the policy in place of the step's
	Scale  float64  // of the static scaler, or where a dynamic one starts
	Of     string   // of Scale and Floor: the inner gradient's scale; "": the loss scale
	Floor  float64  // of the scaler
	Wait   int      // steps that are skipped yet before the scaler is where the step fits
}

// String says what to do.
func (r Remedy) String() string { return doctor.Remedy(r).String() }

// Direction is a part of a step.
type Direction string

// The directions of a Diagnosis.
const (
	InForward       Direction = "forward"
	InInnerGradient Direction = "inner gradient" // a gradient inside the forward pass (Model.Grad)
	InBackward      Direction = "backward"
	InUpdate        Direction = "update"
)

// Cause is why a step was not finite.
type Cause uint8

// The causes. No loss scale helps against any from ForwardOverflow on.
const (
	NoFault          Cause = iota // the step is finite, or its overflow is the search for a loss scale
	ScaleTooHigh                  // gradients overflow that a smaller loss scale would leave finite
	GradientOverflow              // gradients overflow even at scale 1
	ForwardOverflow               // a value of the forward pass is beyond its dtype
	Singular                      // a root, logarithm or quotient at a point that rounding made singular
	VanishedConstant              // a constant that is 0 in its dtype, or whose reciprocal overflows
	BadInput                      // the batch holds NaN or Inf
	BadState                      // parameters or optimizer state hold NaN or Inf
	NotPrecision                  // f32 is not finite either: 0/0 in the data
	Diverged                      // losses and weights had grown before: training ends so in f32 as well
)

// String returns the cause in words: "scale too high".
func (c Cause) String() string { return doctor.Cause(c).String() }

// MarshalText gives JSON the cause's name.
func (c Cause) MarshalText() ([]byte, error) { return doctor.Cause(c).MarshalText() }

// UnmarshalText finds a cause by its name.
func (c *Cause) UnmarshalText(b []byte) error {
	var d doctor.Cause
	if err := d.UnmarshalText(b); err != nil {
		return err
	}
	*c = Cause(d)
	return nil
}

// diagnosisOf returns the public form of the doctor's answer.
func diagnosisOf(d *doctor.Diagnosis) *Diagnosis {
	if d == nil {
		return nil
	}
	out := &Diagnosis{
		Cause: Cause(d.Cause), Node: d.Node, Op: d.Op, Of: d.Of, Scope: d.Scope, Pos: d.Pos, Direction: Direction(d.Direction), Micro: d.Micro, DType: DType(d.DType),
		Output: rangeOf(d.Output), Wide: rangeOf(d.Wide), BF16: rangeOf(d.BF16), Exact: d.Exact, From: d.From, Scale: d.Scale, ScaleName: d.ScaleName, SafeScale: d.SafeScale,
		Why: d.Why, Advice: d.Advice, Notes: d.Notes, Before: diagnosisOf(d.Before), Replays: d.Replays, report: d,
	}
	for _, r := range d.Inputs {
		out.Inputs = append(out.Inputs, *rangeOf(&r))
	}
	for _, r := range d.Remedies {
		out.Remedies = append(out.Remedies, Remedy(r))
	}
	return out
}

func rangeOf(r *doctor.Range) *Range {
	if r == nil {
		return nil
	}
	return &Range{Name: r.Name, DType: DType(r.DType), Min: r.Min, Max: r.Max, AbsMax: r.AbsMax, NaN: r.NaN, Inf: r.Inf, NegInf: r.NegInf, Zeros: r.Zeros, Elements: r.Elements}
}
