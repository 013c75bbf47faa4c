package ampc_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/onnx"
)

// fedSizes are sizes for the inputs of a model: those of its first data set, 1 elsewhere.
func fedSizes(t *testing.T, path string) ampc.ONNXOptions {
	t.Helper()
	o := ampc.ONNXOptions{Shapes: map[string][]int64{}, Values: ampc.Feed{}}
	m, err := onnx.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i, x := range m.Inputs() {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), "test_data_set_0", "input_"+string(rune('0'+i))+".pb"))
		if err != nil {
			continue
		}
		v, _, err := onnx.ParseTensor(b)
		if err != nil {
			t.Fatal(err)
		}
		o.Shapes[x.Name] = ir.Sizes(v.Type.Shape)
		o.Values[x.Name] = ampc.Host{Type: ampc.TypeFromIR(v.Type), Bytes: v.Bytes()}
	}
	return o
}

// Whole models become f16 ones that compute nearly the same, with the types of
// inputs and outputs that they had; under f32 the file stays as it is.
func TestConvertONNX(t *testing.T) {
	list, err := filepath.Glob("../shared/onnx/models/*/model.onnx")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Log("no models in ../shared/onnx/models: only our own is converted")
	}
	for _, path := range append(list, "onnx/testdata/mlp.onnx") {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			o := ampc.ConvertOptions{ONNXOptions: fedSizes(t, path), Policy: ampc.MixedF16()}
			if len(o.Shapes) == 0 {
				o.Sizes = ampc.Sizes{"N": 4}
			} else {
				o.Data = []ampc.Feed{o.Values}
			}
			out := filepath.Join(t.TempDir(), "out.onnx")
			r, err := ampc.ConvertONNX(context.Background(), path, out, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range r.Errors {
				if e.Error > 5e-3 {
					t.Errorf("output %s is off by %.2g", e.Name, e.Error)
				}
			}
			t.Logf("%d of %d nodes, %d weights, %d casts, %d to %d bytes, %v", r.Low, r.Nodes, r.Weights, r.Casts, r.In, r.Out, r.Errors)
			if r.Low == 0 {
				t.Error("no node computes in 16 bits")
			}
			o.Policy = ampc.F32Only()
			if _, err := ampc.ConvertONNX(context.Background(), path, out, o); err != nil {
				t.Fatal(err)
			}
			a, _ := os.ReadFile(path)
			b, _ := os.ReadFile(out)
			if !bytes.Equal(a, b) {
				t.Error("the policy f32 changed bytes")
			}
		})
	}
}

func TestConvertONNXLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	o := ampc.ConvertOptions{ONNXOptions: ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 4}}, Policy: ampc.MixedF16(), MaxError: 1e-9}
	_, err := ampc.ConvertONNX(context.Background(), "onnx/testdata/mlp.onnx", filepath.Join(dir, "out.onnx"), o)
	if err == nil || !strings.Contains(err.Error(), "the limit is 1e-09") {
		t.Error(err)
	}
	o.MaxError, o.Policy = 0, ampc.MixedBF16()
	if _, err := ampc.ConvertONNX(context.Background(), "onnx/testdata/mlp.onnx", filepath.Join(dir, "out.onnx"), o); err == nil || !strings.Contains(err.Error(), "bf16 needs opset 22, the model has 17") {
		t.Error(err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("%v is left", list)
	}
}
