package ampc_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/ort"
	"ampc/ir"
	"ampc/models"
)

// onnxruntime starts the oracle, nil where it is not there.
func onnxruntime(t *testing.T) *ort.Runtime {
	t.Helper()
	r, err := ort.Start()
	if errors.Is(err, ort.ErrAbsent) {
		t.Logf("not compared with onnxruntime: %v", err)
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// small are zoo models in sizes that run at once.
var exportedZoo = []string{"mlp?batch=3", "lenet?batch=2", "resnet8?batch=2", "resnet?batch=1&width=8", "gpt?batch=2&layers=2&seq=16", "lstm?batch=2&seq=8&dim=32", "bert?batch=2&seq=16",
	"unet?batch=1&size=16&width=8", "unet3d?batch=1&depth=5&size=6&width=4", "convlstm?batch=2&seq=3&ahead=2&size=5&width=4", "vit?batch=2", "gan?batch=4", "gpt2?batch=1&seq=16&layers=1&dim=48&vocab=99"}

// drawnFeed are inputs for a step: numbers from −1 to 1, indices from 0 to 7.
func drawnFeed(s *ampc.Step) ampc.Feed {
	r := rand.New(rand.NewPCG(5, 6))
	f := ampc.Feed{}
	for _, v := range s.Program().Vars {
		if v.Kind != ir.Input || v.Role() != "" {
			continue
		}
		n := v.Type.Shape.Elements()
		if v.Type.DType.Float() {
			x := make([]float32, n)
			for i := range x {
				x[i] = 2*r.Float32() - 1
			}
			f[v.Name] = x
			continue
		}
		x := make([]int32, n)
		for i := range x {
			x[i] = int32(r.IntN(2))
		}
		f[v.Name] = x
	}
	return f
}

// firstResult runs a model and returns its first output.
func firstResult(t *testing.T, m *ampc.Model, feed func(s *ampc.Step) ampc.Feed, out ampc.Tensor) (ampc.HostTensor, ampc.Feed) {
	t.Helper()
	s, err := m.Infer(ampc.InferConfig{Policy: ampc.Manual()}, out)
	if err != nil {
		t.Fatal(err)
	}
	f := feed(s)
	r, err := s.Run(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.Value(out)
	if err != nil {
		t.Fatal(err)
	}
	return h, f
}

// off is the largest difference as a share of the largest magnitude.
func off(got, want []float64) float64 {
	most, d := 0.0, 0.0
	for i, w := range want {
		most = max(most, math.Abs(w))
		if x := math.Abs(got[i] - w); x > d || math.IsNaN(x) {
			d = x
		}
	}
	return d / most
}

func numbers(h ampc.HostTensor) []float64 {
	x := make([]float64, h.Len())
	for i := range x {
		x[i] = h.At(i)
	}
	return x
}

// Every model of the zoo is exported, at its least opset and at a late one, read
// again, and gives the numbers that it gave; so it does in onnxruntime, where that is there.
func TestExportZoo(t *testing.T) {
	oracle := onnxruntime(t)
	for _, spec := range exportedZoo {
		t.Run(spec, func(t *testing.T) {
			z, err := models.Open(spec)
			if err != nil {
				t.Fatal(err)
			}
			defer z.Model.Close()
			h, feed := firstResult(t, z.Model, drawnFeed, z.Output)
			want := numbers(h)
			for _, opset := range []int64{0, 21, 23} {
				path := filepath.Join(t.TempDir(), "out.onnx")
				r, err := z.Model.WriteONNX(context.Background(), path, ampc.ExportOptions{Opset: opset, External: opset == 21}, z.Output)
				if err != nil {
					t.Fatal(err)
				}
				m, err := ampc.LoadONNX(path, ampc.ONNXOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				back, _ := firstResult(t, m, func(*ampc.Step) ampc.Feed { return feed }, m.Outputs()[0])
				if m.Outputs()[0].Name() != z.Output.Name() || off(numbers(back), want) > 1e-5 {
					t.Errorf("opset %d: output %s is off by %g", r.Opset, m.Outputs()[0].Name(), off(numbers(back), want))
				}
				if oracle != nil {
					got, err := oracle.Run(path, ortInputs(feed, z.Model))
					if err != nil {
						t.Errorf("opset %d: onnxruntime: %v", r.Opset, err)
					} else if e := off(ortNumbers(got[0]), want); !(e < 1e-4) {
						t.Errorf("opset %d: onnxruntime's output %s is off by %g", r.Opset, got[0].Name, e)
					}
				}
			}
		})
	}
}

// ortInputs are a feed's arrays, of the types of the model's inputs.
func ortInputs(f ampc.Feed, m *ampc.Model) map[string]ort.Tensor {
	out := map[string]ort.Tensor{}
	for name, v := range f {
		in := m.Graph().Var(name)
		x := ort.Tensor{Type: map[ir.DType]string{ir.F32: "float32", ir.F16: "float16", ir.I32: "int32", ir.I64: "int64", ir.Bool: "bool"}[in.Type.DType], Dims: ir.Sizes(in.Type.Shape)}
		switch v := v.(type) {
		case ampc.HostTensor:
			x.Data = v.Bytes
		case []float32:
			x.Data = hostBytes(v)
		case []int32:
			for _, n := range v {
				x.Data = append(x.Data, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
			}
		default:
			panic(fmt.Sprintf("%T", v))
		}
		out[name] = x
	}
	return out
}

func ortNumbers(x ort.Tensor) []float64 {
	types := map[string]ampc.DType{"float32": ampc.F32, "float16": ampc.F16, "int32": ampc.I32, "int64": ampc.I64, "bool": ampc.Bool, "float64": ampc.F64}
	dims := make([]int, len(x.Dims))
	for i, d := range x.Dims {
		dims[i] = int(d)
	}
	return numbers(ampc.HostTensor{Type: ampc.TypeOf(types[x.Type], dims...), Bytes: x.Data})
}

// A 16-bit model has its weights in a file of their own where that is asked for, or
// where the model would be larger than a file may be: it computes the same, both files
// come together, and nothing is left where one fails.
func TestExportExternalMixed(t *testing.T) {
	oracle := onnxruntime(t)
	z, err := models.Open("mlp?batch=3")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	h, feed := firstResult(t, z.Model, drawnFeed, z.Output)
	for _, o := range []ampc.ExportOptions{
		{External: true, Policy: ampc.MixedF16()}, {FileLimit: 1 << 16, Policy: ampc.MixedF16()}, {External: true, Policy: ampc.MixedBF16()}, {FileLimit: 1 << 16},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "out.onnx")
		r, err := z.Model.WriteONNX(context.Background(), path, o, z.Output)
		if err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 2 || r.External != path+".data" {
			t.Errorf("%v lie there, weights in %q", left, r.External)
		}
		small, err := os.Stat(path)
		if err != nil || small.Size() > 1<<15 {
			t.Errorf("the model has %d bytes: %v", small.Size(), err)
		}
		m, err := ampc.LoadONNX(path, ampc.ONNXOptions{})
		if err != nil {
			t.Fatal(err)
		}
		back, _ := firstResult(t, m, func(*ampc.Step) ampc.Feed { return feed }, m.Outputs()[0])
		if e := off(numbers(back), numbers(h)); e > 2e-2 || r.Conversion != nil && (e == 0 || r.Conversion.Weights == 0) {
			t.Errorf("off by %g", e)
		}
		m.Close()
		if oracle != nil {
			if _, err := oracle.Run(path, nil); err != nil && !strings.Contains(err.Error(), "Could not find an implementation") {
				t.Errorf("onnxruntime: %v", err)
			}
		}
		// A model with weights beside it is converted into another folder, whole.
		again := filepath.Join(t.TempDir(), "again.onnx")
		c, err := ampc.ConvertONNX(context.Background(), path, again, ampc.ConvertOptions{Policy: ampc.MixedF16(), MaxError: 1e-2})
		if err != nil || c.External != again+".data" {
			t.Errorf("%v %v", c, err)
		}
		_, err = ampc.ConvertONNX(context.Background(), path, again, ampc.ConvertOptions{Policy: ampc.MixedF16().Lower("*"), MaxError: 1e-12})
		if left, _ := os.ReadDir(filepath.Dir(again)); len(left) != 2 || r.Conversion == nil && err == nil {
			t.Errorf("%v are left: %v", left, err)
		}
	}
}
