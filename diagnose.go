package ampc

import (
	"context"
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/doctor"
)

// lastRun is a step as it was run, kept by reference: nothing is copied while
// steps are clean.
type lastRun struct {
	feeds    []runtime.Feed
	results  []*Result     // of the last steps, the newest last
	at       int64         // steps of the model launched before
	seen     doctor.Losses // of steps whose results were dropped
	restored bool          // the loss scales are those from before the newest step
	row      int           // how many steps in a row had their scales restored
	search   int           // how many further skipped steps a diagnosis has explained as the search for a scale
}

// see reads the numbers of the oldest result, which the next step overwrites, and adds
// its loss.
func (l *lastRun) see() {
	if len(l.results) < runtime.RingSize {
		return
	}
	l.results[0].settle()
	if len(l.results[0].step.losses) > 0 {
		l.seen.See(l.results[0].outcome().Loss)
	}
}

// losses sums up the losses of all steps before the newest.
func (l *lastRun) losses() doctor.Losses {
	all := l.seen
	for _, r := range l.results[:len(l.results)-1] {
		if len(r.step.losses) > 0 {
			all.See(r.outcome().Loss)
		}
	}
	return all
}

// add appends the newest step, and drops results that the runtime no longer keeps.
func (l *lastRun) add(feeds []runtime.Feed, r *Result, at int64) {
	if len(l.results) == runtime.RingSize {
		l.results = append(l.results[:0], l.results[1:]...)
	}
	l.feeds, l.results, l.at, l.restored = feeds, append(l.results, r), at, false
}

func (l *lastRun) newest() *Result { return l.results[len(l.results)-1] }

// skips counts the steps that were skipped in a row, as far as results are kept.
func (l *lastRun) skips() int {
	n := 0
	for _, r := range slices.Backward(l.results) {
		if !r.outcome().Skipped {
			break
		}
		n++
	}
	return n
}

// Diagnose replays the last step that was run, on the CPU (the step's own backend
// where it is one), under the step's policy and in f32, and says why it was not
// finite. Call it after a skipped step, which left the variables as they were: the
// replay then repeats that step with its loss scale, random draws and
// micro-batches. After a step that was taken, the replay uses the variables as they
// are now, and the report says so.
//
// Feeds that were not converted (see Feed) are kept by reference, so they must not
// have changed. The same holds for the variables: diagnose before SetVariable,
// LoadFile or another step. Other calls on the model wait until it is done.
//
// With TrainConfig.Parallel all ranks call it, and get the same answer, whose notes name the rank.
// Each rank replays the step of all, so it takes the time and the memory of all ranks' batches.
func (s *Step) Diagnose(ctx context.Context) (*Diagnosis, error) {
	defer s.model.gate.hold()()
	d, err := s.diagnose(ctx)
	return diagnosisOf(d), err
}

// diagnose is Diagnose for a caller that has the model's gate.
func (s *Step) diagnose(ctx context.Context) (*doctor.Diagnosis, error) {
	c, end, err := s.replayable()
	if err != nil {
		return nil, err
	}
	defer end()
	d, err := doctor.Diagnose(ctx, c)
	if err == nil && c.Graph == s.allRanks {
		d = namedByRank(d)
	}
	return d, err
}

// prepareFirst has the replays that most first diagnoses take compiled in the background, while the first
// step is fed: what the step stores in 16 bits may overflow there.
func (s *Step) prepareFirst() {
	if !s.preparable() || !storesLow(s.graph) {
		return
	}
	for _, lossFails := range []bool{false, true} {
		c := s.replay(nil)
		c.NotFinite = lossFails
		s.kept.Prepare(c, false)
	}
}

// preparable reports whether replays may be compiled before they are asked for.
func (s *Step) preparable() bool {
	_, prompt := s.exec.(runtime.Prompt)
	return prompt && s.program.Together() <= 1 && !s.concurrent() && !hasCaches(s.program) && s.config.Parallel.Ranks <= 1
}

// storesLow reports whether a node stores 16 bits.
func storesLow(g *ir.Graph) bool {
	for _, n := range g.Nodes {
		if slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return v.Type.DType.Low() }) {
			return true
		}
	}
	return false
}

// prepareDiagnosis has the replays of a step compiled in the background, and loaded before a later
// call, when it was skipped for the first time: a diagnosis then does not wait for the compiler.
func (s *Step) prepareDiagnosis(r *Result) {
	if s.prepared || !s.preparable() {
		return
	}
	if skipped, err := r.skipped(); err != nil || !skipped {
		return
	}
	s.prepared = true
	if loss := r.outcome().Loss; !s.restoring || !finite(loss) { // else Run has diagnosed it
		c := s.replay(nil)
		c.NotFinite = !finite(loss)
		s.kept.Prepare(c, true)
		go s.loadDiagnosis(c, s.kept)
	}
}

// loadDiagnosis loads the prepared replays unless the step is closed by then.
func (s *Step) loadDiagnosis(c *doctor.Case, kept *doctor.Kept) {
	kept.Wait()
	defer s.model.gate.hold()()
	if s.exec == nil {
		return
	}
	state, end, err := s.lastingState()
	if err != nil {
		return
	}
	defer end()
	c.State = state
	_ = kept.Load(c) // a diagnosis loads what is missing
}

// SaveReplay writes what Diagnose would replay to a file: the compiled graph as
// text, the policy's name, variables, loss scales and feeds. The file appears as
// a whole or not at all; DiagnoseFile and `ampc doctor` read it, on any machine.
// With TrainConfig.Parallel all ranks call it, and rank 0 writes the step of all.
func (s *Step) SaveReplay(path string) error {
	defer s.model.gate.hold()()
	c, end, err := s.replayable()
	if err != nil {
		return err
	}
	defer end()
	if c.Graph != s.allRanks {
		return c.Save(path)
	}
	if s.world.Rank() == 0 {
		err = c.Save(path)
	}
	_, err = agree(s.world, "SaveReplay (a call of all ranks)", 0, err)
	return err
}

// DiagnoseFile is Diagnose of a step that SaveReplay wrote. The graph's custom
// ops must be given.
func DiagnoseFile(ctx context.Context, path string, custom ...*CustomOp) (*Diagnosis, error) {
	var rows []*ir.Def
	for _, op := range custom {
		rows = append(rows, op.IR())
	}
	c, err := doctor.Load(path, rows...)
	if err != nil {
		return nil, err
	}
	d, err := doctor.Diagnose(ctx, c)
	return diagnosisOf(d), err
}

// replay returns the case of a diagnosis, without variables.
func (s *Step) replay(feeds []runtime.Feed) *doctor.Case {
	c := &doctor.Case{Graph: s.graph, Feeds: feeds, Policy: policyName(s.config.Policy), Seed: s.model.session.seed, Kept: s.kept}
	c.Backend, _ = s.model.session.backend.(*cpu.Backend)
	return c
}

// lastingState is the variables of the step but those that a replay computes. They are not
// copied where the store lies in this process's memory, and may be read until end is called.
func (s *Step) lastingState() (state map[string][]byte, end func(), err error) {
	state = map[string][]byte{}
	var shown []runtime.Shown
	end = func() {
		for _, x := range shown {
			x.Release()
		}
	}
	for _, v := range s.program.Vars {
		if v.Kind != ir.Param && v.Kind != ir.State || !lasting(v) {
			continue
		}
		data, err := s.model.session.show(v)
		if err != nil {
			end()
			return nil, nil, err
		}
		shown = append(shown, data)
		state[v.Name] = data.Bytes()
	}
	return state, end, nil
}

// replayed is the case of the last step, of all ranks where there are several, with variables as
// they are now.
func (s *Step) replayed() (c *doctor.Case, end func(), err error) {
	if s.world != nil && s.config.Parallel.Ranks > 1 {
		return s.replayOfRanks()
	}
	c = s.replay(s.last.feeds)
	c.State, end, err = s.lastingState()
	return c, end, err
}

// replayable gathers what a replay of the last step needs, for a caller that has
// the model's gate until the replay is over, and calls end then.
func (s *Step) replayable() (c *doctor.Case, end func(), err error) {
	if s.exec == nil {
		return nil, nil, errClosed
	}
	s.flight.Wait()
	if len(s.last.results) == 0 { // on any rank: steps are calls of all
		return nil, nil, fmt.Errorf("diagnose: no step was run yet")
	}
	if hasCaches(s.program) {
		return nil, nil, fmt.Errorf("diagnose: the step has written caches, which a replay does not have as they were: diagnose the model without caches")
	}
	if s.program.Together() > 1 {
		return nil, nil, fmt.Errorf("diagnose: the slices of a step with SyncNorms run together, and a replay runs them one after the other: leave out Slices to diagnose the model")
	}
	if c, end, err = s.replayed(); err != nil {
		return nil, nil, err
	}
	skipped := s.last.newest().outcome().Skipped
	c.NotFinite = len(s.losses) > 0 && skipped && !finite(s.last.newest().outcome().Loss)
	c.Skips, c.Losses = s.last.skips(), s.last.losses()
	if err := s.rewind(c.State, skipped); err != nil {
		end()
		return nil, nil, err
	}
	if len(s.losses) > 0 && !skipped {
		c.Notes = append(c.Notes, "the step was taken: this is about one on the variables as they are after it")
	}
	if len(s.losses) > 0 && s.model.session.launches.Load() > s.last.at+1 {
		c.Notes = append(c.Notes, "other steps over these variables ran since: this is about one on the variables as they are now")
	}
	return c, end, nil
}

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

// Remedy is one complete remedy: after all the changes that it lists, and no
// others, the step is taken and agrees with f32. Of several remedies, apply any
// one.
type Remedy struct {
	Keep     []string // patterns for Policy.Keep, one after the other
	Unpin    []string // nodes whose pin to 16 bits in code is taken off
	Widen    string   // a value of the update that is computed in f32
	LeaveOut []string // casts to 16 bits in the source that are left out, or cast to f32: "NAME (FILE:LINE)"
	Policy   string   // the policy in place of the step's
	Scale    float64  // of the static scaler, or where a dynamic one starts
	Of       string   // of Scale and Floor: the inner gradient's scale; "": the loss scale
	Floor    float64  // of the scaler
	Wait     int      // steps that are skipped yet before the scaler is where the step fits
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
