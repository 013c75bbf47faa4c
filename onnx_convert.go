package ampc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ampc/internal/file"
	"ampc/ir"
	"ampc/onnx"
	onnxconvert "ampc/onnx/convert"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// ConvertOptions say how ConvertONNX changes a model.
type ConvertOptions struct {
	ONNXOptions         // the sizes at which the model is checked
	Policy      Policy  // says what is stored in 16 bits; zero: nothing
	MaxError    float64 // the largest error of an output that is accepted; 0: any
	Data        []Feed  // inputs that both models are run on, random where a feed lacks one; none: one random feed
	Seed        int64   // of random inputs
	// Calibrate has the data decide, not the classes of ops: what leaves the range of 16
	// bits on it stays f32, and of the rest the fewest nodes that MaxError asks for.
	Calibrate bool
	// LowIO lists patterns of inputs and outputs that take the 16-bit dtype, KeepIO of
	// those that keep theirs all the same. Others keep theirs. A pattern that matches no
	// input and no output of f32 is an error.
	LowIO, KeepIO []string
	// External puts weights into a file beside the model, OUT.data. So it is done in any
	// case where the source's lie in other files, unless it is not changed and stays in its
	// folder, and where the model would take more than FileLimit bytes; zero: 2 GB.
	External  bool
	FileLimit int64
}

// ConvertReport is the result of a conversion.
type ConvertReport struct {
	Nodes, Low int // nodes of the model, and those that compute in 16 bits
	Casts      int // that were added
	Weights    int // that are stored in 16 bits
	Kept       []KeptNode
	Foreign    []KeptNode // that are not understood: kept, and why nothing was compared
	Errors     []OutputError
	In, Out    int64  // bytes of the files, those of weights included
	External   string // the file of the weights, "" for none
	// Unjudged says that the models were not run: their weights take more than 64 MB, and
	// neither data nor MaxError were given.
	Unjudged bool
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
	Graph    string // where it is: "" for the main graph, else "node 3 (If) then_branch: " or "function gelu: "
	Index    int    // among the nodes there, from 0
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
// stay, as do the types of inputs and outputs. What was written is read again and run
// beside the source on the CPU, before it takes the place of out: where it is not finite
// and the source is, or MaxError is exceeded, a file at out stays as it was. Without data
// and MaxError, a model whose weights take more than 64 MB is not run. A policy without 16
// bits copies the file: nothing is run, and no sizes are needed. A file at out keeps its
// mode; it is not replaced where it may not be written to, or is the file at in.
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
	policy, err := o.Policy.compiler()
	if err != nil {
		return nil, err
	}
	if err := o.ends(m); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	began := time.Now()
	c := conversion{o: o, m: m, policy: policy, in: in, source: source, out: out}
	var r *ConvertReport
	if policy.Mixed() {
		r, err = c.lower(ctx)
	} else {
		r, err = c.copy(ctx)
	}
	if c.compared {
		return nil, fmt.Errorf("%s: %w; %s is not written", source, err, out)
	}
	if err != nil {
		return nil, err
	}
	r.Took = time.Since(began)
	return r, nil
}

// copy writes the model as it is; its weights may lie elsewhere then.
func (c *conversion) copy(ctx context.Context) (*ConvertReport, error) {
	r := &ConvertReport{Nodes: len(c.m.Graph.Nodes), Policy: c.policy.String()}
	return r, c.store(ctx, &onnx.Edit{}, r)
}

// lower imports the model, raises it to the opset that the policy needs, and writes it in 16 bits.
func (c *conversion) lower(ctx context.Context) (*ConvertReport, error) {
	options, err := c.o.importing(c.in)
	if err != nil {
		return nil, err
	}
	options.Carry = true
	if c.x, err = onnx.Import(c.m, options); err != nil {
		return nil, sizesWanted(err)
	}
	from := c.m.Opsets[""]
	if least := onnxconvert.LeastOpset(c.policy.Low); from > 0 && from < least {
		if c.m, err = onnxconvert.Raise(c.m, c.x, least); err == nil {
			c.x, err = onnx.Import(c.m, options)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.source, err)
		}
	}
	r, err := c.write(ctx, 1)
	// The file may round otherwise than a trial does, where the CPU joins nodes: then
	// the search is held to less.
	for share := 0.8; errors.As(err, &overLimit{}) && c.o.Calibrate && share > 0.3; share -= 0.2 {
		runs := c.runs
		r, err = c.write(ctx, share)
		c.runs += runs
	}
	if err != nil {
		return nil, err
	}
	r.Runs = c.runs
	if to := c.m.Opsets[""]; to != from {
		r.From, r.Opset = from, to
	}
	return r, nil
}

// conversion is one model being converted.
type conversion struct {
	o        *ConvertOptions
	m        *onnx.Model
	x        *onnx.Imported // nil: it is copied
	policy   passes.Policy
	in, out  string
	source   string // what errors call in
	runs     int
	compared bool           // the last error is about what was written
	feeds    []Feed         // that the source ran on, and what it gave
	want     [][]HostTensor // of each feed
}

// write plans, writes and compares; a search is held to a share of the limit.
func (c *conversion) write(ctx context.Context, share float64) (r *ConvertReport, err error) {
	c.compared = false
	data := &calibrated{policy: c.policy}
	if c.o.Calibrate {
		if data, err = c.o.calibrate(ctx, c.m, c.x, c.policy, share); err != nil {
			return nil, fmt.Errorf("%s: %w", c.source, err)
		}
	}
	kernels, err := cpu.Open(1)
	if err != nil {
		return nil, err
	}
	defer kernels.Close()
	e, plan, err := onnxconvert.Plan(c.m, c.x, data.policy, onnxconvert.Options{Low: c.o.lowEnd, Kernels: kernels})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.source, err)
	}
	c.runs = data.runs
	r = &ConvertReport{Nodes: plan.Nodes, Low: plan.Low, Casts: plan.Casts, Weights: plan.Weights, Policy: data.policy.String()}
	for _, k := range plan.Kept {
		if why := data.why[k.Result]; why != "" {
			k.Why = why
		}
		r.Kept = append(r.Kept, KeptNode{k.Graph, k.Index, k.Name, k.Op, k.Why})
	}
	if r.Unjudged = c.unasked(); r.Unjudged {
		c.want = [][]HostTensor{} // the source is not run
	}
	if r.Foreign, err = c.strange(ctx); err != nil {
		return nil, err
	}
	if len(r.Foreign) > 0 && c.o.MaxError > 0 {
		n := r.Foreign[0]
		return nil, fmt.Errorf("%s: MaxError: outputs cannot be compared, node %d (%s) cannot be run: %s", c.source, n.Index, ir.Printable(n.Op), n.Why)
	}
	return r, c.store(ctx, e, r)
}

// store writes the model, and its weights beside it where they are to be or must.
func (c *conversion) store(ctx context.Context, e *onnx.Edit, r *ConvertReport) error {
	if c.o.External || c.m.External() && (!e.Empty() || !c.stays()) {
		return c.both(ctx, e, r)
	}
	e.Limit = c.o.FileLimit
	err := c.put(ctx, e, r)
	if errors.Is(err, onnx.ErrTooLarge) {
		return c.both(ctx, e, r)
	}
	return err
}

// stays reports whether the result lies in the folder of the source.
func (c *conversion) stays() bool { return filepath.Dir(c.out) == filepath.Dir(c.m.Path()) }

// put writes the model alone.
func (c *conversion) put(ctx context.Context, e *onnx.Edit, r *ConvertReport) error {
	return c.file(c.out, func(f *os.File) error {
		if err := c.m.Write(f, e); err != nil {
			return err
		}
		return c.judge(ctx, f.Name(), r)
	}, r, c.in)
}

// both writes the model and the file of its weights. Neither has its name while they
// are compared: they have those of links to them in a folder of their own.
func (c *conversion) both(ctx context.Context, e *onnx.Edit, r *ConvertReport) error {
	r.External = c.out + dataSuffix
	return c.file(c.out, func(f *os.File) error {
		return file.Write(r.External, func(data *os.File) error {
			e.Data, e.DataFile = data, filepath.Base(r.External)
			if err := c.m.Write(f, e); err != nil {
				return err
			}
			dir, err := os.MkdirTemp(filepath.Dir(c.out), ".ampc-convert-*")
			if err != nil {
				return file.Error(c.out, err)
			}
			defer os.RemoveAll(dir)
			model := filepath.Join(dir, filepath.Base(c.out))
			if err := errors.Join(os.Link(f.Name(), model), os.Link(data.Name(), filepath.Join(dir, e.DataFile))); err != nil {
				return err
			}
			if err := c.judge(ctx, model, r); err != nil {
				return err
			}
			st, err := data.Stat()
			if err != nil {
				return file.Error(r.External, err)
			}
			r.Out = st.Size()
			return nil
		})
	}, r, c.in)
}

// file writes a file; an error of a comparison is not about the file.
func (c *conversion) file(path string, write func(f *os.File) error, r *ConvertReport, in string) error {
	var compared error
	err := file.Write(path, func(f *os.File) error {
		r.Out = 0
		err := write(f)
		if c.compared {
			compared = err
		}
		if err != nil {
			return err
		}
		return r.sizes(c.m, in, f)
	})
	if compared != nil {
		return compared // file.Write names the result, which is not at fault
	}
	return err
}

// judge reads what was written and compares it with the source.
func (c *conversion) judge(ctx context.Context, written string, r *ConvertReport) (err error) {
	defer func() { c.compared = err != nil }()
	if err := c.reread(written); err != nil || c.x == nil {
		return err
	}
	if len(r.Foreign) == 0 && !r.Unjudged {
		r.Errors, err = c.compare(ctx, written)
	}
	return err
}

// maxUnasked is how many bytes of weights are run on random numbers without being asked to.
const maxUnasked = 64 << 20

// unasked reports whether neither data nor a limit asks for a comparison of a large model.
func (c *conversion) unasked() bool {
	return len(c.o.Data) == 0 && !c.o.Calibrate && c.o.MaxError == 0 && c.m.WeightBytes() > maxUnasked
}

// overLimit is the error of an output that is off by more than is accepted.
type overLimit struct {
	output     string
	off, limit float64
}

func (e overLimit) Error() string {
	return fmt.Sprintf("output %s is off by %.2g of its largest magnitude, the limit is %g", e.output, e.off, e.limit)
}

// sizes adds up the bytes of files.
func (r *ConvertReport) sizes(m *onnx.Model, in string, out *os.File) error {
	a, err := os.Stat(in)
	if err != nil {
		return err
	}
	b, err := out.Stat()
	if err != nil {
		return err
	}
	away, err := m.ExternalBytes()
	r.In, r.Out = a.Size()+away, r.Out+b.Size()
	return err
}

// replaceable is the error of an out that cannot be written, or is the model that is read.
func replaceable(m *onnx.Model, in, out string) error {
	if m.ExternalInside() && filepath.Dir(out) != filepath.Dir(m.Path()) {
		return fmt.Errorf("%s: constants of nodes lie in files beside the model: write into the same folder", out)
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
