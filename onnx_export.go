package ampc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ampc/internal/file"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/passes"
)

// ExportOptions say how WriteONNX writes a model.
type ExportOptions struct {
	// Opset is the version of ONNX's operators, 13 to 24; zero: the least that has an
	// operator for every op which has one by opset 17, and 22 for a policy of bf16.
	Opset   int64
	Policy  Policy  // zero: f32; else what was written is converted, as by ConvertONNX
	Sizes   Sizes   // of named dimensions; others stay symbolic where the graph's ops allow it
	Weights Weights // zero: Live
	Step    string  // of EMA, as in InferConfig
	// External puts weights into a file beside the model, PATH.data, as it is done for
	// models of more than FileLimit bytes in any case; zero: 2 GB.
	External  bool
	FileLimit int64
}

// ExportReport describes the file that was written.
type ExportReport struct {
	Opset, IR  int64 // versions of the operators and of the file format
	Nodes      int
	Bytes      int64          // of the model and of the file of its weights
	External   string         // the file of its weights, "" for none
	Conversion *ConvertReport // under a policy; nil: none
}

// WriteONNX writes the forward pass that computes out, or what the model returns
// where none is given, as an ONNX model: dropout is left out and batch norms use
// their running statistics, as in Infer. Weights are those of the compiled steps, or
// initial ones where no step is compiled. Inputs and outputs keep their names and
// types. The file is read again before it takes its place; where anything is wrong,
// a file at path stays as it was.
func (m *Model) WriteONNX(ctx context.Context, path string, o ExportOptions, out ...Tensor) (*ExportReport, error) {
	if out == nil {
		out = m.Outputs()
	}
	low := irDType(o.Policy.Low)
	if low == ir.BF16 && o.Opset == 0 {
		o.Opset = 22
	}
	if low == ir.Invalid {
		return m.writeONNX(ctx, path, o, out)
	}
	if err := file.Writable(path); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".ampc-export-*")
	if err != nil {
		return nil, file.Error(path, err)
	}
	defer os.RemoveAll(dir)
	wide := filepath.Join(dir, filepath.Base(path))
	r, err := m.writeONNX(ctx, wide, o, out)
	if err != nil {
		return nil, err
	}
	c := ConvertOptions{ONNXOptions: ONNXOptions{Sizes: unbound(m, o.Sizes)}, Policy: o.Policy, External: o.External, FileLimit: o.FileLimit}
	if r.Conversion, err = c.convert(ctx, wide, m.Graph().Name, path); err != nil {
		return nil, err
	}
	r.Bytes, r.External = r.Conversion.Out, r.Conversion.External
	return r, nil
}

// unbound gives a size to each dimension that stays symbolic.
func unbound(m *Model, sizes Sizes) Sizes {
	out := Sizes{}
	for _, s := range m.Graph().Syms {
		if _, ok := sizes[Dim(s.Name)]; !ok {
			out[Dim(s.Name)] = 2
		}
	}
	return out
}

// dataSuffix is what the file of weights is called by, behind the model's name.
const dataSuffix = ".data"

// writeONNX writes the model in the precision that it has.
func (m *Model) writeONNX(ctx context.Context, path string, o ExportOptions, out []Tensor) (*ExportReport, error) {
	defer m.gate.hold()()
	g, err := m.inference(o, out)
	if err != nil {
		return nil, err
	}
	e := onnx.ExportOptions{Opset: o.Opset, Limit: o.FileLimit, Weights: func(v *ir.Value) (onnx.NewTensor, error) {
		t, err := m.weights(v)
		write := t.Write
		t.Write = func(w io.Writer) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return write(w)
		}
		return t, err
	}}
	r := &ExportReport{}
	if !o.External {
		err = r.write(path, g, e)
	}
	if o.External || errors.Is(err, onnx.ErrTooLarge) {
		r.External = path + dataSuffix
		e.DataFile = filepath.Base(r.External)
		err = file.Write(r.External, func(f *os.File) error {
			e.Data = f
			return r.write(path, g, e)
		})
	}
	if err != nil {
		return nil, err
	}
	return r, r.sizes(path)
}

func (r *ExportReport) sizes(path string) error {
	for _, p := range []string{path, r.External} {
		if p == "" {
			continue
		}
		st, err := os.Stat(p)
		if err != nil {
			return err
		}
		r.Bytes += st.Size()
	}
	return nil
}

// write writes one file, and reads it again.
func (r *ExportReport) write(path string, g *ir.Graph, e onnx.ExportOptions) error {
	return file.Write(path, func(f *os.File) error {
		x, err := onnx.Export(f, g, e)
		if err != nil {
			return err
		}
		r.Opset, r.IR, r.Nodes = x.Opset, x.IR, int(x.Nodes)
		if e.Data != nil {
			return nil // it names a file that is not there yet
		}
		back, err := onnx.Open(f.Name())
		if err != nil {
			return fmt.Errorf("what was written is not read: %w", err)
		}
		return back.Close()
	})
}

// inference is the graph of the forward pass.
func (m *Model) inference(o ExportOptions, out []Tensor) (*ir.Graph, error) {
	r, err := m.inferRequest(InferConfig{Sizes: o.Sizes, Weights: o.Weights, Step: o.Step}, out)
	if err != nil {
		return nil, err
	}
	g, at := m.Graph().CloneMap()
	g.Return = nil
	for _, t := range r.outputs {
		g.Return = append(g.Return, at[t.v])
	}
	if err := g.Bind(o.Sizes.bound()); err != nil {
		return nil, err
	}
	if n := ir.Opaque(g); n != nil {
		return nil, fmt.Errorf("@%s is a custom op, which ONNX does not have", n.Def().Name)
	}
	if err := passes.Run(g, passes.Config{Debugging: passes.Debugging{Only: []string{"mode", "canon"}}}); err != nil {
		return nil, sized(err)
	}
	if o.Weights == EMA {
		s := m.session
		if s == nil {
			s = &session{}
		}
		k, err := s.known(r)
		if err != nil {
			return nil, err
		}
		k.read(g)
	}
	return g, nil
}

// weights are the elements of a variable as they are now.
func (m *Model) weights(v *ir.Value) (onnx.NewTensor, error) {
	t := onnx.NewTensor{DType: onnx.TypeOf(v.Type.DType), Size: v.Type.Bytes()}
	if m.session != nil {
		if have, ok := m.session.find(v.Name); ok {
			t.Write = func(w io.Writer) error {
				b, err := m.session.read(have)
				if err == nil && have.Type.DType != v.Type.DType {
					b, err = retyped(b, have.Type, v.Type.DType)
				}
				if err == nil {
					_, err = w.Write(b)
				}
				return err
			}
			return t, nil
		}
	}
	if v.Init != nil && v.Init.Func == "file" {
		t.Write = func(w io.Writer) error { return copySlice(w, v.Init) }
		return t, nil
	}
	t.Write = func(w io.Writer) error {
		e, err := eval.InitVar(v, m.seed)
		if err == nil {
			_, err = w.Write(e.Bytes())
		}
		return err
	}
	return t, nil
}

// retyped are elements in another dtype.
func retyped(b []byte, from ir.Type, to ir.DType) ([]byte, error) {
	e, err := eval.FromBytes(from, b)
	if err != nil {
		return nil, err
	}
	e.Type = e.Type.With(to)
	for i, x := range e.F {
		e.F[i] = eval.Round(x, to)
	}
	return e.Bytes(), nil
}

// copySlice copies the bytes of a file that an initializer names.
func copySlice(w io.Writer, in *ir.Init) error {
	f, err := os.Open(in.File)
	if err != nil {
		return file.Error(in.File, err)
	}
	defer f.Close()
	n, err := io.Copy(w, io.NewSectionReader(f, in.Offset, in.Size))
	if err == nil && n < in.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return file.Error(in.File, err)
	}
	return nil
}

// fileSlice are the bytes of a file that an initializer names.
func fileSlice(in *ir.Init) ([]byte, error) {
	f, err := os.Open(in.File)
	if err != nil {
		return nil, file.Error(in.File, err)
	}
	defer f.Close()
	b := make([]byte, in.Size)
	if _, err := f.ReadAt(b, in.Offset); err != nil {
		return nil, fmt.Errorf("%s: bytes %d to %d: %w", in.File, in.Offset, in.Offset+in.Size, err)
	}
	return b, nil
}
