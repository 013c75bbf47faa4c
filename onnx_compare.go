package ampc

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	onnxconvert "ampc/onnx/convert"
	"ampc/onnx/host"
	"ampc/passes"
)

// lowEnd reports whether an input or output is asked for in 16 bits.
func (o *ConvertOptions) lowEnd(name string) bool {
	matches := func(p string) bool { return passes.Matches(p, name) }
	return slices.ContainsFunc(o.LowIO, matches) && !slices.ContainsFunc(o.KeepIO, matches)
}

// ends is the error of a pattern in LowIO or KeepIO that matches nothing.
func (o *ConvertOptions) ends(m *onnx.Model) error {
	var names []string
	for _, x := range slices.Concat(m.Graph.Inputs, m.Graph.Outputs) {
		if d, err := x.DType.DType(); err == nil && d == ir.F32 && x.Kind == "" {
			names = append(names, x.Name)
		}
	}
	for i, list := range [][]string{o.LowIO, o.KeepIO} {
		for _, p := range list {
			if !slices.ContainsFunc(names, func(name string) bool { return passes.Matches(p, name) }) {
				return fmt.Errorf("%s: the pattern %q matches no input and no output of f32; there are %v", []string{"LowIO", "KeepIO"}[i], p, names)
			}
		}
	}
	return nil
}

// runner runs one of the two models: outputs in the order of the file.
type runner struct {
	names []string
	run   func(ctx context.Context, f Feed) ([]HostTensor, error)
	feed  func(seed int64) Feed // random inputs
	close func() error
}

// outputNames are those of the file: a graph may have other ones, where an output is passed through.
func outputNames(m *onnx.Model) (names []string) {
	for _, y := range m.Graph.Outputs {
		names = append(names, y.Name)
	}
	return names
}

// stepped compiles the model for its sizes; source says the names of its outputs.
func stepped(path string, o ONNXOptions, source *onnx.Model) (*runner, error) {
	m, err := LoadONNX(path, o)
	if err != nil {
		return nil, err
	}
	outputs := m.Outputs()
	s, err := m.Infer(InferConfig{Policy: Manual()}, outputs...)
	if err != nil {
		m.Close()
		return nil, err
	}
	r := &runner{names: outputNames(source), close: m.Close, feed: randomOf(s)}
	r.run = func(ctx context.Context, f Feed) ([]HostTensor, error) {
		res, err := s.Run(ctx, f)
		if err != nil {
			return nil, err
		}
		var out []HostTensor
		for _, y := range outputs {
			h, err := res.Value(y)
			if err != nil {
				return nil, err
			}
			out = append(out, h)
		}
		return out, nil
	}
	return r, nil
}

// feeds are the data, with random values of inputs that a feed lacks; without data, one random feed.
func (o *ConvertOptions) feeds(random func(seed int64) Feed) []Feed {
	feeds := []Feed{random(o.Seed)}
	if len(o.Data) == 0 {
		return feeds
	}
	feeds = feeds[:0]
	for _, f := range o.Data {
		full := random(o.Seed)
		maps.Copy(full, f)
		feeds = append(feeds, full)
	}
	return feeds
}

// inSession runs a model that has no static form; x is its graph as far as it has one.
func inSession(path string, m *onnx.Model, x *onnx.Imported) (*runner, error) {
	s, err := OpenONNX(path, ONNXRun{Policy: Manual()})
	if err != nil {
		return nil, err
	}
	return s.runner(m, x), nil
}

// runner runs a model that the session has, with inputs as x has them and outputs as m.
func (s *ONNXSession) runner(m *onnx.Model, x *onnx.Imported) *runner {
	var inputs []namedType
	for _, in := range x.Inputs {
		inputs = append(inputs, namedType{in.Name, in.Value.Type})
	}
	r := &runner{names: outputNames(m), close: s.Close, feed: func(seed int64) Feed { return randomInputs(inputs, seed) }}
	r.run = func(ctx context.Context, f Feed) ([]HostTensor, error) {
		res, err := s.Run(ctx, f)
		if err != nil {
			return nil, err
		}
		var out []HostTensor
		for _, name := range r.names {
			h, ok := res.Tensors[name]
			if !ok {
				return nil, fmt.Errorf("output %s is no tensor", name)
			}
			out = append(out, h)
		}
		return out, nil
	}
	return r
}

// runner runs a file: in a session, where the source has no static form as a whole.
func (c *conversion) runner(path string) (*runner, error) {
	if len(c.x.Foreign) > 0 {
		return inSession(path, c.m, c.x)
	}
	return stepped(path, c.o.ONNXOptions, c.m)
}

// sourceRuns runs the source once on each feed.
func (c *conversion) sourceRuns(ctx context.Context) error {
	if c.want != nil {
		return nil
	}
	r, err := c.runner(c.in)
	if err != nil {
		return err
	}
	defer r.close()
	c.feeds = c.o.feeds(r.feed)
	for _, f := range c.feeds {
		got, err := r.run(ctx, f)
		if err != nil {
			c.want = nil
			return err
		}
		c.want = append(c.want, got)
	}
	return nil
}

// strange lists the nodes that cannot be run, where a run of the source says there are such.
func (c *conversion) strange(ctx context.Context) ([]KeptNode, error) {
	if len(c.x.Foreign) == 0 {
		return nil, nil
	}
	err := c.sourceRuns(ctx)
	if err == nil || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var out []KeptNode
	for _, i := range c.x.Foreign {
		n := c.m.Graph.Nodes[i]
		out = append(out, KeptNode{Index: i, Name: n.Name, Op: n.Op, Why: err.Error()})
		if known := onnx.Known(n.Op) && n.Domain == ""; !known && host.Why(n) == "" {
			out[len(out)-1].Why = "the operator is not known"
		}
	}
	slices.SortStableFunc(out, func(a, b KeptNode) int {
		if (a.Why == "the operator is not known") == (b.Why == "the operator is not known") {
			return 0
		}
		if a.Why == "the operator is not known" {
			return -1
		}
		return 1
	})
	return out, nil
}

// compare runs what was written beside the source, and gives the largest error of
// each output.
func (c *conversion) compare(ctx context.Context, written string) ([]OutputError, error) {
	if err := c.sourceRuns(ctx); err != nil {
		return nil, err
	}
	r, err := c.runner(written)
	if err != nil {
		return nil, fmt.Errorf("what was written is not read: %w", err)
	}
	defer r.close()
	errors := make([]OutputError, len(r.names))
	for i, f := range c.feeds {
		got, err := r.run(ctx, f)
		if err != nil {
			return nil, err
		}
		for k, name := range r.names {
			want := c.want[i][k]
			if c.o.lowEnd(name) && want.Type.DType() == F32 && got[k].Type.t.DType == c.policy.Low {
				got[k] = HostTensor{want.Type, appendFloats(got[k].Floats(), ir.F32)}
			}
			e, err := difference(name, want, got[k])
			if err != nil && !c.o.Calibrate {
				err = fmt.Errorf("%w (Calibrate, --calibrate, keeps in f32 what leaves the range on data)", err)
			}
			if err != nil {
				return nil, err
			}
			errors[k] = OutputError{name, max(errors[k].Error, e)}
			if c.o.MaxError > 0 && e > c.o.MaxError {
				return nil, overLimit{name, e, c.o.MaxError}
			}
		}
	}
	return errors, nil
}

// reread imports what was written, as far as it has a static form: all types must agree.
func (c *conversion) reread(written string) error {
	m, err := onnx.Open(written)
	if err != nil {
		return fmt.Errorf("what was written is not read: %w", err)
	}
	defer m.Close()
	if c.x == nil {
		return nil // a copy has the types of the source
	}
	options, err := c.o.importing(written)
	if err != nil {
		return err
	}
	options.Carry = true
	x, err := onnx.Import(m, options)
	if err != nil {
		return fmt.Errorf("what was written is not read: %w", err)
	}
	if onnxconvert.Check(c.m, c.x) != nil {
		return nil // as the source
	}
	if err := onnxconvert.Check(m, x); err != nil {
		return fmt.Errorf("what was written is not valid: %w", err)
	}
	return nil
}

// difference is the error of an output; one that is not finite where it was is an error.
func difference(name string, want, got HostTensor) (float64, error) {
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

// namedType is an input.
type namedType struct {
	name string
	typ  ir.Type
}

// randomOf makes random inputs of a step.
func randomOf(s *Step) func(seed int64) Feed {
	var list []namedType
	for _, v := range s.Program().Vars {
		if v.Kind == ir.Input && v.Role() == "" {
			list = append(list, namedType{v.Name, v.Type})
		}
	}
	return func(seed int64) Feed { return randomInputs(list, seed) }
}

// randomInputs are numbers from −1 to 1; integers are 0 or 1.
func randomInputs(list []namedType, seed int64) Feed {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	f := Feed{}
	for _, v := range list {
		e := eval.New(v.typ)
		for i := range e.F {
			e.F[i] = eval.Round(2*r.Float64()-1, v.typ.DType)
		}
		for i := range e.I {
			e.I[i] = int64(r.IntN(2))
		}
		f[v.name] = HostTensor{Type{v.typ}, e.Bytes()}
	}
	return f
}
