package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/onnxmodel"
	"ampc/internal/safetensors"
)

// onnxFile writes a model to a folder of the test.
func onnxFile(t *testing.T, g *onnxmodel.Graph) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := g.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// floats writes a vector of n zeros under a name, and returns its file.
func floats(t *testing.T, name string, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.safetensors")
	if err := safetensors.WriteFile(path, nil, []safetensors.Tensor{{Name: name, DType: safetensors.F32, Shape: []int64{int64(n)}, Write: safetensors.Bytes(make([]byte, 4*n))}}); err != nil {
		t.Fatal(err)
	}
	return path
}

// wants runs the command and compares its code, and a part of what it prints; an error is one line.
func wants(t *testing.T, code int, part string, args ...string) {
	t.Helper()
	got, out, errs := ampcRun("", args...)
	if got != code || !strings.Contains(out+errs, part) || code != 0 && strings.Count(errs, "\n") != 1 {
		t.Errorf("%v: code %d, %q %q, want code %d and %q", args, got, out, errs, code, part)
	}
}

// found is a model whose operator runs on the host, with the types of its results.
func found(t *testing.T) string {
	g := onnxmodel.New("g", 17)
	g.Node("NonZero", []string{g.Input("x", onnxmodel.F32, 2, 3)}, []string{"at"})
	g.Output("at", onnxmodel.I64, 2, nil)
	return onnxFile(t, g)
}

// A node whose types the model says runs on the host as one without types does.
func TestTypedHostNodes(t *testing.T) {
	path := found(t)
	wants(t, 0, "at : i64[2,6]", "run", path)
	wants(t, 0, "host: node 0 (NonZero): the size of its result depends on data", "plan", path)
	wants(t, 0, "mixed-bf16", "bench", path, "--steps", "1")
	wants(t, 1, "node 0 (NonZero): it is no part of one compiled step: ampc run runs the model in pieces", "doctor", path)
	wants(t, 1, "node 0 (NonZero): it is no part of one compiled step", "bench", path, "--steps", "1", "--profile")
}

// A node that is carried is exported with what is known of its sizes.
func TestExportOpenSizes(t *testing.T) {
	out := filepath.Join(t.TempDir(), "e.onnx")
	wants(t, 0, "opset 17, 1 nodes", "export", found(t), out)
	wants(t, 0, "at : i64[2,6]", "run", out)
	if list, err := os.ReadDir(filepath.Dir(out)); err != nil || len(list) != 1 {
		t.Errorf("%v are there (%v), want one file", list, err)
	}
}

// Every command refuses a model that is newer than what is known, and in the same words.
func TestNewerVersions(t *testing.T) {
	relu := func(format, opset int64) string {
		g := onnxmodel.New("g", opset)
		g.Format = format
		g.Node("Relu", []string{g.Input("x", onnxmodel.F32, 2)}, []string{"y"})
		g.Output("y", onnxmodel.F32, 2)
		return onnxFile(t, g)
	}
	opset, format := relu(12, 25), relu(13, 24)
	out := filepath.Join(t.TempDir(), "o.onnx")
	for _, command := range []string{"run", "plan", "dump", "convert"} {
		args := func(path string) []string {
			if command == "convert" {
				return []string{command, path, out}
			}
			return []string{command, path}
		}
		wants(t, 1, "m.onnx: operators of opset 25: the newest that is read is 24", args(opset)...)
		wants(t, 1, "m.onnx: the file is of IR version 13: the newest that is read is 12", args(format)...)
	}
	for _, old := range []string{relu(1, 1), relu(2, 2), relu(3, 5)} {
		wants(t, 0, "y : f32[2]", "run", old, "--policy", "f32")
	}
}

// What an import computes otherwise than the file says is a line of run, in one step as in pieces.
func TestRunSaysNotes(t *testing.T) {
	g := onnxmodel.New("g", 17)
	x := g.Input("x", onnxmodel.F64, 2, 2)
	g.Node("MatMul", []string{x, x}, []string{"y"})
	g.Output("y", onnxmodel.F64, 2, 2)
	wants(t, 0, "m.onnx: 1 nodes compute f64 in f32, whose numbers have 24 bits of 53; the first is node 0 (MatMul)\n", "run", onnxFile(t, g))
}

// Symbolic dimensions take the sizes of what is fed; two sizes of one are an error.
func TestFedDimensions(t *testing.T) {
	g := onnxmodel.New("g", 17)
	for _, names := range [][2]string{{"x", "a"}, {"z", "b"}} {
		g.Node("Relu", []string{g.Input(names[0], onnxmodel.F32, "N")}, names[1:])
		g.Output(names[1], onnxmodel.F32, "N")
	}
	path := onnxFile(t, g)
	x, z := floats(t, "x", 2), floats(t, "z", 3)
	wants(t, 0, "b : f32[2]", "run", path, "--input", x)
	wants(t, 1, `dimension "N" is 2 in input "x" and 3 in input "z"`, "run", path, "--input", x, "--input", z)
	wants(t, 1, `dimension "N" was given size 3, and is 2 in input "x"`, "run", path, "--input", x, "--dim", "N=3")
	out := filepath.Join(t.TempDir(), "o.onnx")
	wants(t, 0, "output b: off by", "convert", path, out, "--input", x)
}
