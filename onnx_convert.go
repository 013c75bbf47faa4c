package ampc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"ampc/internal/file"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	onnxconvert "ampc/onnx/convert"
	"ampc/passes"
)

// ConvertOptions say how ConvertONNX changes a model.
type ConvertOptions struct {
	ONNXOptions         // the sizes at which the model is checked
	Policy      Policy  // says what is stored in 16 bits; zero: nothing
	MaxError    float64 // the largest error of an output that is accepted; 0: any
	Data        []Feed  // inputs that both models are run on; none: one random feed
	Seed        int64   // of random inputs
	// Calibrate has the data decide, not the classes of ops: what leaves the range of 16
	// bits on it stays f32, and of the rest the fewest nodes that MaxError asks for.
	Calibrate bool
}

// ConvertReport is the result of a conversion.
type ConvertReport struct {
	Nodes, Low int // nodes of the model, and those that compute in 16 bits
	Casts      int // that were added
	Weights    int // that are stored in 16 bits
	Kept       []KeptNode
	Foreign    []KeptNode // that are not understood: kept, and why nothing was compared
	Errors     []OutputError
	In, Out    int64 // bytes of the files
	// From and Opset are the versions of the operators before and after, where it had to
	// rise: bf16 takes 22. 0: it is as it was.
	From, Opset int64
	Runs        int           // of assignments that a calibration tried
	Took        time.Duration // all of it, with the runs of both models
	// Policy is the policy as a file says it; after a calibration with a rule for each
	// node that the data decided otherwise. It makes the same model again without data.
	Policy string
}

// KeptNode is a node with floating-point operands that computes in f32, and why.
type KeptNode struct {
	Index    int // among the nodes of the file, from 0
	Name, Op string
	Why      string
}

// OutputError is the largest difference of an output from the source model's,
// as a share of its largest magnitude.
type OutputError struct {
	Name  string
	Error float64
}

// ConvertONNX writes the model in the file at in, changed by a policy, to out.
// The model's own nodes are edited: names, attributes and what is not known here
// stay, as do the types of inputs and outputs. A policy without 16 bits copies
// the file. What was written is read again and run beside the source on the CPU,
// before it takes the place of out: where it is not finite and the source is, or
// MaxError is exceeded, out is left as it was. A file at out keeps its mode; it is
// not replaced where it may not be written to, or is the file at in.
func ConvertONNX(ctx context.Context, in, out string, o ConvertOptions) (*ConvertReport, error) {
	return o.convert(ctx, in, in, out)
}

// convert is ConvertONNX of a file that errors call source.
func (o *ConvertOptions) convert(ctx context.Context, in, source, out string) (*ConvertReport, error) {
	m, err := onnx.Open(in)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := replaceable(m, in, out); err != nil {
		return nil, err
	}
	options, err := o.importing(in)
	if err != nil {
		return nil, err
	}
	x, err := onnx.Import(m, options)
	if err != nil {
		return nil, sizesWanted(err)
	}
	policy, err := o.Policy.compiler()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	from := m.Opsets[""]
	if least := onnxconvert.LeastOpset(policy.Low); from > 0 && from < least {
		if m, err = onnxconvert.Raise(m, x, least); err == nil {
			x, err = onnx.Import(m, options)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
	}
	c := conversion{o: o, m: m, x: x, policy: policy, in: in, source: source, out: out}
	r, err := c.write(ctx, 1)
	// The file may round otherwise than a trial does, where the CPU joins nodes: then
	// the search is held to less.
	for share := 0.8; errors.As(err, &overLimit{}) && o.Calibrate && share > 0.3; share -= 0.2 {
		runs := c.runs
		r, err = c.write(ctx, share)
		c.runs += runs
	}
	if c.compared {
		return nil, fmt.Errorf("%s: %w; %s is left as it was", source, err, out)
	}
	if err != nil {
		return nil, err
	}
	r.Took, r.Runs = time.Since(began), c.runs
	if to := m.Opsets[""]; to != from {
		r.From, r.Opset = from, to
	}
	return r, nil
}

// conversion is one model being converted.
type conversion struct {
	o        *ConvertOptions
	m        *onnx.Model
	x        *onnx.Imported
	policy   passes.Policy
	in, out  string
	source   string // what errors call in
	runs     int
	compared bool // the last error is about what was written
}

// write plans, writes and compares; a search is held to a share of the limit.
func (c *conversion) write(ctx context.Context, share float64) (r *ConvertReport, err error) {
	c.compared = false
	data := &calibrated{policy: c.policy}
	if c.o.Calibrate && c.policy.Mixed() {
		if data, err = c.o.calibrate(ctx, c.m, c.x, c.policy, share); err != nil {
			return nil, fmt.Errorf("%s: %w", c.source, err)
		}
	}
	e, plan, err := onnxconvert.Plan(c.m, c.x, data.policy)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.source, err)
	}
	c.runs = data.runs
	r = &ConvertReport{Nodes: plan.Nodes, Low: plan.Low, Casts: plan.Casts, Weights: plan.Weights, Policy: data.policy.String()}
	for _, k := range plan.Kept {
		if why := data.why[k.Index]; why != "" {
			k.Why = why
		}
		r.Kept = append(r.Kept, KeptNode(k))
	}
	for _, i := range c.x.Foreign {
		n := c.m.Graph.Nodes[i]
		r.Foreign = append(r.Foreign, KeptNode{i, n.Name, n.Op, "the operator is not known"})
	}
	if len(r.Foreign) > 0 && c.o.MaxError > 0 {
		n := r.Foreign[0]
		return nil, fmt.Errorf("%s: MaxError: outputs cannot be compared, node %d (%s) cannot be run: %s", c.source, n.Index, n.Op, n.Why)
	}
	var compared error
	err = file.Write(c.out, func(f *os.File) error {
		if err := c.m.Write(f, e); err != nil {
			return err
		}
		if len(r.Foreign) == 0 {
			if r.Errors, compared = c.o.compare(ctx, c.in, f.Name()); compared != nil {
				return compared
			}
		}
		return r.sizes(c.in, f)
	})
	if compared != nil {
		c.compared = true
		return nil, compared // file.Write names the result, which is not at fault
	}
	return r, err
}

// overLimit is the error of an output that is off by more than is accepted.
type overLimit struct {
	output     string
	off, limit float64
}

func (e overLimit) Error() string {
	return fmt.Sprintf("output %s is off by %.2g of its largest magnitude, the limit is %g", e.output, e.off, e.limit)
}

func (r *ConvertReport) sizes(in string, out *os.File) error {
	a, err := os.Stat(in)
	if err != nil {
		return err
	}
	b, err := out.Stat()
	if err != nil {
		return err
	}
	r.In, r.Out = a.Size(), b.Size()
	return nil
}

// replaceable is the error of an out that cannot be written, or is the model that is read.
func replaceable(m *onnx.Model, in, out string) error {
	if m.External() && filepath.Dir(out) != filepath.Dir(m.Path()) {
		return fmt.Errorf("%s: weights lie in files beside the model: write into the same folder", out)
	}
	a, err := os.Stat(in)
	if err != nil {
		return file.Error(in, err)
	}
	if b, err := os.Stat(out); err == nil && os.SameFile(a, b) {
		return fmt.Errorf("%s: is the model that is converted: give another file for the result", out)
	}
	return file.Writable(out)
}

// compare runs both models, each as its file says it, and gives the largest
// error of each output.
func (o *ConvertOptions) compare(ctx context.Context, a, b string) ([]OutputError, error) {
	var steps [2]*Step
	var outputs [2][]Tensor
	for i, path := range []string{a, b} {
		m, err := LoadONNX(path, o.ONNXOptions)
		if err != nil {
			return nil, fmt.Errorf("what was written is not read: %w", err)
		}
		defer m.Close()
		outputs[i] = m.Outputs()
		if steps[i], err = m.Infer(InferConfig{Policy: Manual()}, outputs[i]...); err != nil {
			return nil, err
		}
	}
	feeds := o.Data
	if len(feeds) == 0 {
		feeds = []Feed{randomFeed(steps[0], o.Seed)}
	}
	errors := make([]OutputError, len(outputs[0]))
	for _, f := range feeds {
		var r [2]*Result
		for i := range steps {
			var err error
			if r[i], err = steps[i].Run(ctx, f); err != nil {
				return nil, err
			}
		}
		for k := range errors {
			e, err := outputError(r[0], r[1], outputs[0][k], outputs[1][k])
			if err != nil {
				return nil, err
			}
			errors[k] = OutputError{outputs[0][k].Name(), max(errors[k].Error, e)}
			if o.MaxError > 0 && e > o.MaxError {
				return nil, overLimit{outputs[0][k].Name(), e, o.MaxError}
			}
		}
	}
	return errors, nil
}

// outputError is max|y−x| / max|x| over the elements that are finite in x.
func outputError(a, b *Result, x, y Tensor) (float64, error) {
	want, err := a.Value(x)
	if err != nil {
		return 0, err
	}
	got, err := b.Value(y)
	if err != nil {
		return 0, err
	}
	return difference(x.Name(), want, got)
}

// difference is the error of an output; one that is not finite where it was is an error.
func difference(name string, want, got Host) (float64, error) {
	if want.Type != got.Type {
		return 0, fmt.Errorf("output %s is %s, was %s", name, got.Type, want.Type)
	}
	var most, off float64
	for i := range want.Len() {
		u, v := want.At(i), got.At(i)
		if math.IsInf(u, 0) || math.IsNaN(u) {
			continue
		}
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return 0, fmt.Errorf("output %s is %g where the source has %g", name, v, u)
		}
		most, off = max(most, math.Abs(u)), max(off, math.Abs(u-v))
	}
	if off == 0 {
		return 0, nil
	}
	return off / most, nil
}

// randomFeed has numbers from −1 to 1; integers are 0 or 1.
func randomFeed(s *Step, seed int64) Feed {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	f := Feed{}
	for _, v := range s.Program().Vars {
		if v.Kind != ir.Input || v.Role() != "" {
			continue
		}
		e := eval.New(v.Type)
		for i := range e.F {
			e.F[i] = eval.Round(2*r.Float64()-1, v.Type.DType)
		}
		for i := range e.I {
			e.I[i] = int64(r.IntN(2))
		}
		f[v.Name] = Host{Type{v.Type}, e.Bytes()}
	}
	return f
}
