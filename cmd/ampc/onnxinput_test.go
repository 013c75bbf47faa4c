package main

import (
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/safetensors"
)

// Every command that reads an ONNX model takes an input from a file, which gives the sizes; a model
// of another kind has them, and only run and doctor feed it.
func TestInputsGiveSizes(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.safetensors")
	if err := safetensors.WriteFile(in, nil, []safetensors.Tensor{{Name: "x", DType: safetensors.F32, Shape: []int64{2, 4}, Write: safetensors.Bytes(make([]byte, 32))}}); err != nil {
		t.Fatal(err)
	}
	const model = "../../onnx/testdata/mlp.onnx"
	for want, args := range map[string][]string{
		"%y = linear":               {"dump", model},
		"%p : f32[2,3]  softmax":    {"why", model, "p"},
		"%p must be f32":            {"why-not", model},
		"mixed-f16    2    2":       {"plan", model},
		"float values":              {"ranges", model},
		"the step is finite":        {"doctor", model},
		"no findings":               {"prove", model},
		"p : f32[2,3]  min 0.22406": {"run", model},
	} {
		code, out, errs := ampcRun("", append(args, "--input", in)...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%v: code %d, %q %q, want %q", args, code, out, errs, want)
		}
	}
	code, _, errs := ampcRun("", "dump", "zoo:lenet", "--input", in)
	if code != 2 || !strings.Contains(errs, "--input is for an ONNX model") {
		t.Errorf("zoo:lenet: code %d, %q", code, errs)
	}
	if err := safetensors.WriteFile(in, nil, []safetensors.Tensor{{Name: "x", DType: safetensors.F32, Shape: []int64{6}, Write: safetensors.Bytes(make([]byte, 24))}}); err != nil {
		t.Fatal(err)
	}
	code, out, errs := ampcRun("", "plan", "../../onnx/testdata/positive.onnx", "--input", in)
	if code != 0 || !strings.Contains(out, "runs in pieces: compiled regions: 2") {
		t.Errorf("a model that runs in pieces: code %d, %q %q", code, out, errs)
	}
}
