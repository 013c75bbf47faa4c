package ampc_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ampc"
	"ampc/onnx"
)

// Files of every version of the format from 3 to 12 run, compiled and in a session, and
// convert to f16 in their own version, to bf16 in the least that has its opset.
func TestONNXFormatVersions(t *testing.T) {
	file, err := os.ReadFile("onnx/testdata/mlp.onnx")
	if err != nil {
		t.Fatal(err)
	}
	if file[0] != 1<<3 { // the field ir_version
		t.Fatal("the file does not begin with its version")
	}
	x := make([]float32, 8)
	for i := range x {
		x[i] = float32(i) / 8
	}
	run := func(path string) []float32 {
		t.Helper()
		s, err := ampc.OpenONNX(path, ampc.ONNXRun{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r, err := s.Run(context.Background(), ampc.Feed{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		return r.Tensors["p"].Floats()
	}
	version := func(path string) int64 {
		t.Helper()
		m, err := onnx.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return m.IR
	}
	dir := t.TempDir()
	want := run("onnx/testdata/mlp.onnx")
	for v := int64(3); v <= 12; v++ {
		path, half := filepath.Join(dir, fmt.Sprintf("v%d.onnx", v)), filepath.Join(dir, "half.onnx")
		file[1] = byte(v)
		if err := os.WriteFile(path, file, 0o666); err != nil {
			t.Fatal(err)
		}
		if got := run(path); version(path) != v || !slices.Equal(got, want) {
			t.Errorf("version %d (read as %d): %v, want %v", v, version(path), got, want)
		}
		m, err := ampc.LoadONNX(path, ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 2}})
		if err != nil {
			t.Fatal(err)
		}
		step, err := m.Infer(ampc.InferConfig{}, m.Outputs()...)
		if err != nil {
			t.Fatal(err)
		}
		r, err := step.Run(context.Background(), ampc.Feed{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		h, err := r.Value(m.Outputs()[0])
		if err != nil || !slices.Equal(h.Floats(), want) {
			t.Errorf("version %d, compiled: %v (%v), want %v", v, h.Floats(), err, want)
		}
		m.Close()
		for policy, least := range map[string]int64{"f16": v, "bf16": max(v, 10)} {
			p := ampc.MixedF16()
			if policy == "bf16" {
				p = ampc.MixedBF16()
			}
			if _, err := ampc.ConvertONNX(context.Background(), path, half, ampc.ConvertOptions{Policy: p, ONNXOptions: ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 2}}}); err != nil {
				t.Fatal(err)
			}
			if got := version(half); got != least {
				t.Errorf("version %d to %s: written in version %d, want %d", v, policy, got, least)
			}
		}
	}
}
