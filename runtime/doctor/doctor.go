// Package doctor explains why a step was not finite. It replays the step on the
// CPU twice, under its policy and in f32, and compares the two replays. It names
// the first node whose operands are finite and whose result is not, says why, and
// lists remedies.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// Cause is why a step was not finite.
type Cause uint8

// The causes. No loss scale helps against any from ForwardOverflow on.
const (
	None             Cause = iota // the step is finite, or its overflow is the search for a loss scale
	ScaleTooHigh                  // gradients overflow that a smaller loss scale would leave finite
	GradientOverflow              // gradients overflow even at scale 1
	ForwardOverflow               // a value of the forward pass is beyond its dtype
	Singular                      // a root, logarithm or quotient at a point that rounding made singular
	VanishedConstant              // a constant that is 0 in its dtype, or whose reciprocal overflows
	BadInput                      // the batch holds NaN or Inf
	BadState                      // parameters or optimizer state hold NaN or Inf
	NotPrecision                  // f32 is not finite either: 0/0 in the data
	Diverged                      // losses and weights had grown before: training ends so in f32 as well
	numCauses
)

var causeNames = [numCauses]string{"none", "scale too high", "gradient overflow", "forward overflow", "singular",
	"vanished constant", "bad input", "bad state", "not a precision problem", "diverged"}

func (c Cause) String() string { return causeNames[c] }

// MarshalText gives JSON the cause's name.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText finds a cause by its name.
func (c *Cause) UnmarshalText(b []byte) error {
	for i, name := range causeNames {
		if name == string(b) {
			*c = Cause(i)
			return nil
		}
	}
	return fmt.Errorf("no cause %q", b)
}

// Direction is the part of a step that computes a value.
type Direction string

// The directions. Inner is a gradient inside the forward pass (Model.Grad).
const (
	Forward  Direction = "forward"
	Inner    Direction = "inner gradient"
	Backward Direction = "backward"
	Update   Direction = "update"
)

// Diagnosis is what the doctor found.
type Diagnosis struct {
	Cause     Cause      `json:"cause"`
	Node      string     `json:"node,omitempty"`  // whose result is the first that is not finite
	Op        string     `json:"op,omitempty"`    // its op, or input, param, state
	Of        string     `json:"of,omitempty"`    // of a gradient: the forward node it belongs to
	Scope     string     `json:"scope,omitempty"` // of the layer it was built in
	Pos       string     `json:"pos,omitempty"`   // file and line that built it
	Direction Direction  `json:"direction,omitempty"`
	Micro     int        `json:"micro"` // micro-batch
	DType     ir.DType   `json:"-"`     // the result is stored in
	Inputs    []Range    `json:"inputs,omitempty"`
	Output    *Range     `json:"output,omitempty"`
	Wide      *Range     `json:"f32,omitempty"`        // the same value in f32, with loss scales of 1
	BF16      *Range     `json:"bf16,omitempty"`       // the same value with bf16 in place of f16, where that could help
	Exact     float64    `json:"exact,omitempty"`      // largest magnitude that the node computed before it was stored, where that is finite
	From      string     `json:"from,omitempty"`       // where the zero that makes it singular comes from
	Scale     float64    `json:"scale,omitempty"`      // loss scale that the value carries, 1 where it carries none
	ScaleName string     `json:"scale_name,omitempty"` // loss scale, inner gradient's scale, or both: scales
	SafeScale float64    `json:"safe_scale,omitempty"` // the largest scale with which all that the step stores in 16 bits fits there
	Why       string     `json:"why,omitempty"`
	Advice    string     `json:"advice,omitempty"`
	Remedies  []Remedy   `json:"remedies,omitempty"` // what Advice says to do, as data: any one of them helps
	Notes     []string   `json:"notes,omitempty"`
	Before    *Diagnosis `json:"before,omitempty"` // of a bad state that a step without checks may have written: the step on the variables as they started
	Replays   int        `json:"replays"`          // complete and partial runs of the step that the diagnosis took
}

// MarshalJSON adds the dtype by its name.
func (d Diagnosis) MarshalJSON() ([]byte, error) {
	type plain Diagnosis
	var dtype string
	if d.DType != ir.Invalid {
		dtype = d.DType.String()
	}
	return json.Marshal(struct {
		plain
		DType string `json:"dtype,omitempty"`
	}{plain(d), dtype})
}

// Case is a step to be replayed.
type Case struct {
	Graph  *ir.Graph         // compiled; it is not changed
	State  map[string][]byte // variables before the step; what is missing is initialized
	Feeds  []runtime.Feed    // one per micro-batch
	First  int               // the number of the first of them within its step
	Policy string            // its name, for the report
	Seed   int64             // of what variables start with
	Skips  int               // steps skipped in a row, this one included; 0: unknown
	Notes  []string          // what the report should mention
	Losses Losses            // of the steps before
	// NotFinite says that the loss of the step was not finite, so that its update need not be looked at.
	NotFinite bool
	// Memory is how many bytes of values a replay may hold; 0: 1 GiB. Where they
	// are more, values are scanned as they are made and their memory is used
	// again: the answer is the same, after about as long.
	Memory int64
	// Backend is what the replays run on; nil: one that is opened for them, with a
	// thread per processor.
	Backend *cpu.Backend
	// Exponents asks for those of the tensors in the report. To count them takes about
	// as long as the rest of the diagnosis of a small model.
	Exponents bool
	// Kept makes later diagnoses of the same step cheaper; nil: nothing is kept. Where
	// State holds its variables in other memory than before, replays are loaded anew.
	Kept *Kept
}

func (c *Case) memory() int64 {
	if c.Memory == 0 {
		return 1 << 30
	}
	return c.Memory
}

// Diagnose replays the step and says why it was not finite. It runs the step once
// under its policy, once in f32, and once in bf16 where f16 fails and no smaller
// loss scale helps. Where it would keep values in f32 and bf16 does not agree with f32 or
// was not tried, it runs the step with these values in f32 too, see confirm. Single nodes
// run again alone. The result does not depend on the number of threads.
func Diagnose(ctx context.Context, c *Case) (*Diagnosis, error) {
	b := c.Backend
	if b == nil {
		var err error
		if b, err = cpu.Open(0); err != nil {
			return nil, err
		}
		defer b.Close()
	}
	k := c.Kept
	if k == nil {
		k = new(Kept)
	}
	k.ahead.Wait()
	d, err := diagnose(ctx, b, c, k)
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	if d.Cause == BadState && !checks(c.Graph) {
		if d.Before, err = diagnose(ctx, b, c.started(), k); err != nil {
			return nil, fmt.Errorf("doctor: %w", err)
		}
		d.Replays += d.Before.Replays
	}
	switch {
	case d.Node != "":
		d.Notes = append(d.Notes, c.Notes...)
	case c.Skips > 0:
		d.Notes = append(d.Notes, "the step was skipped, but its replay is finite: was a fed HostTensor or a variable changed since?")
	}
	return d, nil
}

func diagnose(ctx context.Context, b *cpu.Backend, c *Case, k *Kept) (*Diagnosis, error) {
	s, err := k.of(c)
	if err != nil {
		return nil, err
	}
	x := &analysis{subject: s, workers: newWorkers(b), ctx: ctx, c: c, loaded: k.take(b)}
	defer k.give(x.loaded)
	if err := x.begin(); err != nil {
		return nil, err
	}
	defer x.close()
	return x.diagnose()
}

// checks reports whether a step that is not finite is skipped.
func checks(g *ir.Graph) bool {
	for _, n := range g.Body[ir.Update] {
		if n.Op == ir.OpAnyNonfinite {
			return true
		}
	}
	return false
}

// started is the case with the initial values of weights, moments and averages. Scales and counters
// stay as they are.
func (c *Case) started() *Case {
	s := *c
	s.State = map[string][]byte{}
	for _, v := range c.Graph.Vars {
		if role, _ := v.Attr.Get("role").(string); v.Kind == ir.State && role != "" && role != "optimizer" && role != "ema" {
			s.State[v.Name] = c.State[v.Name]
		}
	}
	return &s
}

// analysis is the state of one diagnosis.
type analysis struct {
	*subject
	*workers
	ctx       context.Context
	c         *Case
	loaded    *loaded            // memory of replays
	actual    *replay            // in the policy
	updates   bool               // it contains update
	reference *reference         // in f32, nil until it is wanted
	exact     Range              // result of the failed node, computed alone in f32, before it is stored
	plain     Range              // the same without loss scales; asked for if exact is not finite
	path      map[*ir.Value]bool // values from the rounding at fault to the failed node
	suspects  []*ir.Value        // see surveyed
	leaveOut  []string           // casts of the source that remedies leave out
	keeping   *keeping           // what the remedy that keeps values in f32 was made from; nil if there is none
	right     [][]byte           // results of the step in f32; nil if no replay computed all of them
	losses    [][]byte           // what the first replay in f32 computed: all results, or the losses alone
	replays   int
}

// begin prepares the replay under the policy. If values with the update take more memory than a
// replay may hold, the update is left out at first.
func (x *analysis) begin() error {
	state, err := complete(x.g, x.c.State, x.c.Seed)
	if err != nil {
		return err
	}
	c, updates, err := x.underPolicy(x.c)
	if err != nil {
		return err
	}
	x.updates = updates
	x.actual, err = x.prepare(c, x.c.Feeds, func(map[string][]byte) map[string][]byte { return state })
	return err
}

// underPolicy returns the compiled replay under the step's policy, and whether it has the update. A step
// whose loss was not finite is replayed up to its losses, and one whose values take too much memory with
// the update up to its gradients, unless no fault was found there.
func (s *subject) underPolicy(c *Case) (r *compiled, updates bool, err error) {
	if c.NotFinite && !s.late {
		s.forward, err = s.upTo(s.forward, ir.Forward, lower.Replay{Nodes: true, Spread: true}, c.memory())
		return s.forward, false, err
	}
	how := lower.Replay{Spread: true, Update: true, Show: checked(s.g)}
	if s.policy == nil {
		if s.policy, err = compile(s.g, how, c.memory()); err != nil {
			return nil, false, err
		}
	}
	if !s.policy.streamed || s.late {
		return s.policy, true, nil
	}
	how.Show = append(how.Show, s.readByUpdate()...)
	s.gradients, err = s.upTo(s.gradients, ir.Backward, how, c.memory())
	return s.gradients, false, err
}

// upTo is known, or where that is nil the step up to a section, with the same nodes and values.
func (s *subject) upTo(known *compiled, last ir.Section, how lower.Replay, memory int64) (*compiled, error) {
	if known != nil {
		return known, nil
	}
	g := *s.g
	without, used := map[*ir.Node]bool{}, map[*ir.Value]bool{}
	for at, n := range s.g.Nodes {
		if at > last {
			without[n] = true
			continue
		}
		for _, vs := range [2][]*ir.Value{n.In, n.Captured} {
			for _, v := range vs {
				used[v] = true
			}
		}
		for _, v := range n.Out {
			used[v.Next] = true
		}
	}
	clear(g.Body[last+1:])
	g.Vars = slices.DeleteFunc(slices.Clone(g.Vars), func(v *ir.Value) bool { return v.Kind == ir.State && !used[v] })
	g.Return = slices.DeleteFunc(slices.Clone(g.Return), func(v *ir.Value) bool { return v.Def == nil || without[v.Def] })
	c, err := compile(&g, how, memory)
	if err == nil {
		c.without = without
	}
	return c, err
}

// readByUpdate names the floats that update reads and forward or backward computes.
func (s *subject) readByUpdate() []string {
	var names []string
	for _, n := range s.g.Body[ir.Update] {
		for _, v := range n.In {
			if v != nil && v.Def != nil && s.section[v.Def] != ir.Update && v.Type.DType.Float() {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

// checked names the values that forward and backward check for Inf and NaN, or accumulate.
func checked(g *ir.Graph) []string {
	var names []string
	for s, n := range g.Nodes {
		if s != ir.Forward && s != ir.Backward || !writes(n) && n.Op != ir.OpAnyNonfinite {
			continue
		}
		for _, v := range n.In {
			if v != nil && v.Def != nil && v.Type.DType.Float() {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

func (x *analysis) close() {
	x.actual.leave()
	if x.reference != nil {
		x.reference.leave()
	}
}

// complete adds the initial values of variables that the state does not have.
func complete(g *ir.Graph, state map[string][]byte, seed int64) (map[string][]byte, error) {
	full := make(map[string][]byte, len(state))
	for _, v := range g.Vars {
		if v.Kind != ir.Param && v.Kind != ir.State {
			continue
		}
		data, ok := state[v.Name]
		if ok && int64(len(data)) != v.Type.Bytes() {
			return nil, fmt.Errorf("state %q has %d bytes, %s takes %d", v.Name, len(data), v.Type, v.Type.Bytes())
		}
		if !ok {
			var err error
			if data, err = runtime.InitialBytes(&lower.Var{Name: v.Name, Type: v.Type, Kind: v.Kind, Init: v.Init, Attr: v.Attr}, seed); err != nil {
				return nil, err
			}
		}
		full[v.Name] = data
	}
	return full, nil
}

// diagnose replays the step up to the first value that is not finite, and judges it.
func (x *analysis) diagnose() (*Diagnosis, error) {
	found, err := x.search()
	if err == nil && found == nil && !x.updates {
		x.late = true
		x.actual.close()
		if err = x.begin(); err == nil {
			found, err = x.search()
		}
	}
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return &Diagnosis{Cause: None, Why: "the step is finite", Replays: x.replays}, nil
	}
	d := x.describe(found)
	if found.IsVar() {
		x.blameVar(d, found)
	} else if err := x.trial(d, found); err != nil {
		return nil, err
	}
	d.Replays = x.replays
	return d, nil
}

// search replays the step under its policy up to the first value that is not finite, and
// returns the value with which that began; nil: the replay is finite.
func (x *analysis) search() (found *ir.Value, err error) {
	x.replays++
	x.stopEarly(&found)
	err = x.actual.run(x.ctx, func() bool {
		if x.actual.part == lower.Update && !x.updates {
			return false
		}
		found = x.origin()
		return found == nil
	})
	return found, err
}

// trial replays the step in f32, finds the cause by comparing v with its value there, and looks
// for remedies.
func (x *analysis) trial(d *Diagnosis, v *ir.Value) error {
	err := x.computeAlone(d, v)
	if err != nil {
		return err
	}
	how := traced
	if !x.exact.Finite() || x.hidden[v] {
		how = full
	}
	lossesOnly := d.Direction == Update && !x.comparable(d) || x.scaleOf(v) != nil && x.exact.Finite() && !x.compared[v]
	err = x.refer(d, v, how, lossesOnly)
	if err == nil && x.reference.incomplete {
		x.hidden[v], x.suspects = true, nil
		x.reference.close()
		err = x.refer(d, v, full, lossesOnly)
	}
	if err != nil {
		return err
	}
	if err := x.diverged(d, v); err != nil || d.Cause == NotPrecision || d.Cause == Diverged {
		return err
	}
	if w := x.notFiniteInF32(); w != nil {
		d.Advice = fmt.Sprintf("diagnose the step under the policy f32 first: %s is not finite in f32 either, so no precision and no loss scale is enough", w)
		return nil
	}
	x.findRemedies(d, v)
	helps, err := x.bfloat(d, v)
	if err != nil {
		return err
	}
	if err := x.confirm(d, v, helps); err != nil {
		return err
	}
	if helps {
		d.Remedies = append(d.Remedies, Remedy{Policy: strings.Replace(x.c.Policy, "f16", "bf16", 1), LeaveOut: x.leaveOut})
	}
	d.Advice = advice(d.Advice, d.Remedies)
	return nil
}

// refer replays the step in f32 and keeps its results, or its losses alone.
func (x *analysis) refer(d *Diagnosis, v *ir.Value, how form, lossesOnly bool) (err error) {
	if x.reference, err = x.build(ir.F32, v, how, lossesOnly); err != nil {
		return err
	}
	x.right, err = x.reference.compare(x, func() {
		if x.reference.part == lower.Micro {
			x.survey()
		}
		if x.reference.part == x.actual.part && x.reference.micro == x.actual.micro {
			x.judge(d, v)
		}
	})
	if x.losses = x.right; lossesOnly {
		x.right = nil
	}
	return err
}

// rightResults are the step's results in f32. If the first replay computed the losses alone, they
// take another replay.
func (x *analysis) rightResults(v *ir.Value) ([][]byte, error) {
	if x.right != nil {
		return x.right, nil
	}
	x.compared[v] = true
	peaks := x.reference.peaks
	x.reference.leave()
	var err error
	if x.reference, err = x.build(ir.F32, v, traced, false); err != nil {
		return nil, err
	}
	x.reference.peaks = peaks
	x.right, err = x.reference.compare(x, nil)
	return x.right, err
}

// comparable reports whether bf16 could help against the fault of d: the policy chose f16, and
// its choice applies where the fault is.
func (x *analysis) comparable(d *Diagnosis) bool {
	return x.chosen16 == ir.F16 && (d.Direction != Update || x.lowParams())
}

// bfloat replays the step in bf16 if f16 fails and a smaller loss scale does not help. It reports
// whether the results agree with f32.
func (x *analysis) bfloat(d *Diagnosis, v *ir.Value) (bool, error) {
	switch d.Cause {
	case ForwardOverflow, GradientOverflow, Singular, VanishedConstant:
	default:
		return false, nil
	}
	if !x.comparable(d) || d.Cause == GradientOverflow && d.SafeScale != 0 { // a scale helps
		return false, nil
	}
	right, err := x.rightResults(v)
	if err != nil || len(right) == 0 {
		return false, err
	}
	r, err := x.build(ir.BF16, v, traced, false)
	if err != nil {
		return false, err
	}
	defer r.leave()
	r.afterStep = func(part lower.Part, step int) bool { // what is not finite here does not agree
		s, made := r.ranges[r.to[v]]
		if made && r.part == x.actual.part && r.micro == x.actual.micro && s.flaw() > onlyNegInf {
			s = r.withExponents(s, r.to[v])
			d.BF16 = &s
			return false
		}
		return true
	}
	out, err := r.compare(x, func() {
		if r.part == x.actual.part && r.micro == x.actual.micro {
			s := r.withExponents(r.rangeOf(r.to[v]), r.to[v])
			d.BF16 = &s
		}
	})
	return err == nil && out != nil && !slices.ContainsFunc(out, func(b []byte) bool { return b == nil }) && x.agree(x.reference.results, out, right), err
}

// lowParams reports whether the policy stores parameters in 16 bits, and so
// chooses dtypes in the update as well.
func (s *subject) lowParams() bool {
	return slices.ContainsFunc(s.g.Vars, func(v *ir.Value) bool { return v.Kind == ir.Param && v.Type.DType.Low() })
}

// stores reports whether some value is stored in d.
func (x *analysis) stores(d ir.DType) bool {
	for _, n := range x.g.Nodes {
		for _, v := range n.Out {
			if v.Type.DType == d {
				return true
			}
		}
	}
	return false
}

// wide is what v holds in f32 with loss scales of 1.
func (x *analysis) wide(v *ir.Value) Range { return x.reference.rangeOf(x.reference.to[v]) }

// factor is the product of loss scales that v carries.
func (x *analysis) factor(v *ir.Value) float64 { return x.carried(v, nil) }

// carried is factor with other numbers for some scales, by name.
func (x *analysis) carried(v *ir.Value, instead map[string]float64) float64 {
	f := 1.0
	if v.Unit == "" {
		return f
	}
	for _, s := range x.scales {
		if !v.Unit.Has(s.Name) {
			continue
		}
		at, given := instead[s.Name]
		if !given {
			at = x.actual.rangeOf(s).Max
		}
		f *= math.Pow(at, float64(v.Unit.Exponent(s.Name)))
	}
	return f
}
