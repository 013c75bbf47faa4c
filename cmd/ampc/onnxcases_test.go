package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"ampc/internal/safetensors"
)

// proto is a protobuf message being written.
type proto []byte

func (p proto) num(n protowire.Number, x int64) proto {
	return protowire.AppendVarint(protowire.AppendTag(p, n, protowire.VarintType), uint64(x))
}

func (p proto) raw(n protowire.Number, b []byte) proto {
	return protowire.AppendBytes(protowire.AppendTag(p, n, protowire.BytesType), b)
}

// names are the space-separated names, each a field.
func (p proto) names(n protowire.Number, list string) proto {
	for name := range strings.FieldsSeq(list) {
		p = p.raw(n, []byte(name))
	}
	return p
}

func onnxNode(op, in, out string) proto {
	return proto(nil).names(1, in).names(2, out).names(4, op)
}

// onnxInfo is a value of a data type; dims are sizes, or strings that name them.
func onnxInfo(name string, dtype int64, dims ...any) proto {
	var shape proto
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			shape = shape.raw(1, proto(nil).num(1, int64(d)))
		case string:
			shape = shape.raw(1, proto(nil).names(2, d))
		}
	}
	tensor := proto(nil).num(1, dtype).raw(2, shape)
	return proto(nil).names(1, name).raw(2, proto(nil).raw(1, tensor))
}

// onnxFile writes a model of a graph to a folder of the test.
func onnxFile(t *testing.T, format, opset int64, graph proto) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.onnx")
	model := proto(nil).num(1, format).raw(7, graph.names(2, "g")).raw(8, proto(nil).num(2, opset))
	if err := os.WriteFile(path, model, 0o666); err != nil {
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
	return onnxFile(t, 8, 17, proto(nil).raw(1, onnxNode("NonZero", "x", "at")).
		raw(11, onnxInfo("x", 1, 2, 3)).raw(12, onnxInfo("at", 7, 2, "")))
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
	graph := proto(nil).raw(1, onnxNode("Relu", "x", "y")).raw(11, onnxInfo("x", 1, 2)).raw(12, onnxInfo("y", 1, 2))
	opset, format := onnxFile(t, 12, 25, graph), onnxFile(t, 13, 24, graph)
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
	for _, old := range []string{onnxFile(t, 1, 1, graph), onnxFile(t, 2, 2, graph), onnxFile(t, 3, 5, graph)} {
		wants(t, 0, "y : f32[2]", "run", old, "--policy", "f32")
	}
}

// What an import computes otherwise than the file says is a line of run, in one step as in pieces.
func TestRunSaysNotes(t *testing.T) {
	graph := proto(nil).raw(1, onnxNode("MatMul", "x x", "y")).raw(11, onnxInfo("x", 11, 2, 2)).raw(12, onnxInfo("y", 11, 2, 2))
	wants(t, 0, "m.onnx: 1 nodes compute f64 in f32, whose numbers have 24 bits of 53; the first is node 0 (MatMul)\n", "run", onnxFile(t, 8, 17, graph))
}

// Symbolic dimensions take the sizes of what is fed; two sizes of one are an error.
func TestFedDimensions(t *testing.T) {
	path := onnxFile(t, 8, 17, proto(nil).raw(1, onnxNode("Relu", "x", "a")).raw(1, onnxNode("Relu", "z", "b")).
		raw(11, onnxInfo("x", 1, "N")).raw(11, onnxInfo("z", 1, "N")).raw(12, onnxInfo("a", 1, "N")).raw(12, onnxInfo("b", 1, "N")))
	x, z := floats(t, "x", 2), floats(t, "z", 3)
	wants(t, 0, "b : f32[2]", "run", path, "--input", x)
	wants(t, 1, `dimension "N" is 2 in input "x" and 3 in input "z"`, "run", path, "--input", x, "--input", z)
	wants(t, 1, `dimension "N" was given size 3, and is 2 in input "x"`, "run", path, "--input", x, "--dim", "N=3")
	out := filepath.Join(t.TempDir(), "o.onnx")
	wants(t, 0, "output b: off by", "convert", path, out, "--input", x)
}
