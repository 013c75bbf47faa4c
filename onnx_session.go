package ampc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"ampc/ir"
	"ampc/onnx"
	"ampc/onnx/host"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// ONNXRun says how an ONNX model runs in an ONNXSession.
type ONNXRun struct {
	Policy  Policy          // zero: f32, no casts
	Compile CompileOptions  // of each program
	Backend runtime.Backend // where programs run; nil: on the CPU
	// Programs and ProgramBytes bound how many programs are kept, and the bytes that
	// they hold beside the weights; zero: 1024 and 1 GB. The one that ran longest ago
	// is freed first.
	Programs     int
	ProgramBytes int64
	Iterations   int   // of all loops of one run together, at most; zero: a million
	Bytes        int64 // that values between programs may hold during a run; zero: 8 GB
}

// ONNXSession runs an ONNX model on inputs of any size. The first run with new
// sizes compiles a program for them; all programs share the weights. Nodes without
// a static form (loops, branches that depend on data, sequences) run on the host
// between programs. Any goroutine may call Run: programs of several calls run at the
// same time, as runs of an inference Step do, and the rest of the calls in turn.
type ONNXSession struct {
	s     *host.Session
	owned io.Closer // the backend, where it was opened here
}

// ONNXResult is what a run returns, by the names of outputs.
type ONNXResult struct {
	Tensors   map[string]HostTensor
	Sequences map[string][]HostTensor
}

// ONNXStep is a part of a run: a compiled region, or a node on the host.
type ONNXStep struct {
	Graph string `json:"graph,omitempty"` // the path of the graph that it is in, "" for the main graph
	Nodes []int  `json:"nodes"`           // of that graph, from 0: those of a region, or the one on the host
	Op    string `json:"op,omitempty"`    // of a node on the host, "" for a region
	Why   string `json:"why,omitempty"`   // it is on the host
	Times int    `json:"times"`           // how often it ran
}

// OpenONNX prepares the model in the file at path, which must be there until Close.
func OpenONNX(path string, r ONNXRun) (*ONNXSession, error) {
	return r.session(func(o host.Options) (*host.Session, error) { return host.Open(path, o) })
}

// session prepares a model that open opens.
func (r *ONNXRun) session(open func(o host.Options) (*host.Session, error)) (*ONNXSession, error) {
	c, err := r.Compile.compiler(r.Policy)
	if err != nil {
		return nil, err
	}
	out := &ONNXSession{}
	b := r.Backend
	if b == nil {
		if b, err = cpu.Open(0); err != nil {
			return nil, err
		}
		out.owned = b
	}
	out.s, err = open(host.Options{Config: c, Backend: b, Programs: r.Programs, ProgramBytes: r.ProgramBytes, Iterations: r.Iterations, Bytes: r.Bytes})
	if err != nil && out.owned != nil {
		out.owned.Close()
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Close frees programs and weights.
func (s *ONNXSession) Close() error {
	err := s.s.Close()
	if s.owned != nil {
		err = cmp.Or(err, s.owned.Close())
	}
	return err
}

// Run runs the model. The feed has a value for every input: a HostTensor, a slice of its
// elements where no more than one size is open, or a []HostTensor for a sequence.
func (s *ONNXSession) Run(ctx context.Context, f Feed) (*ONNXResult, error) {
	in := map[string]*host.Value{}
	for name, v := range f {
		i := slices.IndexFunc(s.s.Inputs(), func(x *onnx.Info) bool { return x.Name == name })
		if i < 0 {
			var reads []string
			for _, x := range s.s.Inputs() {
				reads = append(reads, x.Name)
			}
			return nil, fmt.Errorf("feed %q: the model has no such input; it reads %s", name, strings.Join(reads, ", "))
		}
		var err error
		if in[name], err = fed(s.s.Inputs()[i], v); err != nil {
			return nil, fmt.Errorf("feed %q %w", name, err)
		}
	}
	out, err := s.s.Run(ctx, in)
	if err != nil {
		return nil, err
	}
	r := &ONNXResult{Tensors: map[string]HostTensor{}, Sequences: map[string][]HostTensor{}}
	for name, v := range out {
		switch v.Kind {
		case host.Tensor:
			r.Tensors[name] = HostTensor{Type{v.Type}, v.Bytes()}
		case host.Sequence:
			list := []HostTensor{}
			for _, x := range v.Seq {
				list = append(list, HostTensor{Type{x.Type}, x.Bytes()})
			}
			r.Sequences[name] = list
		}
	}
	return r, nil
}

// fed is a value as the session takes it.
func fed(x *onnx.Info, v any) (*host.Value, error) {
	if list, ok := v.([]HostTensor); ok {
		var seq []*host.Value
		for _, h := range list {
			seq = append(seq, host.NewTensor(h.Type.t, h.Bytes))
		}
		return host.NewSequence(seq...), nil
	}
	if h, ok := v.(HostTensor); ok && (x.DType == 0 || h.Type.t.Shape.Known()) {
		d, err := x.DType.DType()
		if err == nil && d != h.Type.t.DType {
			h.Bytes, err = encode(h, h.Type.t.With(d))
		}
		if err != nil {
			return nil, err
		}
		return host.NewTensor(h.Type.t.With(d), h.Bytes), nil
	}
	n := elements(v)
	if n < 0 { // a single number
		n = 1
	}
	t, err := sliceType(x, n)
	if err != nil {
		if d, known := x.DType.DType(); known == nil {
			if _, bad := encode(v, ir.T(d)); bad != nil && !errors.As(bad, new(sizeError)) { // no number of elements would do
				err = bad
			}
		}
		return nil, err
	}
	b, err := encode(v, t)
	if err != nil {
		return nil, err
	}
	return host.NewTensor(t, b), nil
}

// sliceType is the type of an input of n elements, where no more than one size is open.
func sliceType(x *onnx.Info, n int64) (ir.Type, error) {
	d, err := x.DType.DType()
	if err != nil {
		return ir.Type{}, err
	}
	dims := make([]ir.Dim, len(x.Dims))
	open, rest := -1, int64(1)
	for i, dim := range x.Dims {
		dims[i] = ir.Dim(dim.Size)
		switch {
		case dim.Known:
			rest *= dim.Size
		case open >= 0:
			return ir.Type{}, fmt.Errorf("has several open sizes: give an ampc.HostTensor, which has a shape")
		default:
			open = i
		}
	}
	if !x.Rank {
		return ir.Type{}, fmt.Errorf("has an open rank: give an ampc.HostTensor, which has a shape")
	}
	if open >= 0 {
		if rest == 0 || n%rest != 0 {
			return ir.Type{}, fmt.Errorf("has %d elements, want a multiple of %d", n, rest)
		}
		dims[open] = ir.Dim(n / rest)
	}
	return ir.Type{DType: d, Shape: ir.MakeShape(dims...)}, nil
}

// Steps lists what the last run did, in order of first appearance.
func (s *ONNXSession) Steps() []ONNXStep {
	var out []ONNXStep
	for _, x := range s.s.Steps() {
		step := ONNXStep{Graph: x.Path, Nodes: x.Nodes, Why: x.Why, Times: x.Times}
		if x.Node != nil {
			step.Nodes, step.Op = []int{x.Index}, x.Node.Op
		}
		out = append(out, step)
	}
	return out
}

// Notes say what the runs so far computed otherwise than the model states: elements of
// f64 in f32.
func (s *ONNXSession) Notes() []string { return s.s.Notes() }

// Programs returns the number of programs in memory and the bytes that they occupy
// beside the weights.
func (s *ONNXSession) Programs() (n int, bytes int64) { return s.s.Programs() }

// Compiling is the total time that runs have spent on making programs, without
// reading weights.
func (s *ONNXSession) Compiling() time.Duration { return s.s.Compiling() }

// String describes the step: its nodes, and why the host runs it.
func (s ONNXStep) String() string {
	var b strings.Builder
	if s.Op == "" {
		fmt.Fprintf(&b, "region of %d nodes, %d to %d", len(s.Nodes), slices.Min(s.Nodes), slices.Max(s.Nodes))
	} else {
		fmt.Fprintf(&b, "host: node %d (%s): %s", s.Nodes[0], s.Op, s.Why)
	}
	if s.Graph != "" {
		fmt.Fprintf(&b, "; in %s", s.Graph)
	}
	if s.Times > 1 {
		fmt.Fprintf(&b, "; %d times", s.Times)
	}
	return b.String()
}
