package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A checkpoint is written with the weights of the run, in f32 and in 16 bits, and
// computes what the model with these weights does.
func TestExportCheckpoint(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("t.txt", []byte(strings.Repeat("so long as men can breathe or eyes can see ", 40)), 0o644); err != nil {
		t.Fatal(err)
	}
	lines := [][]string{
		{"train", "zoo:gpt?layers=1&dim=32&heads=2&batch=2&seq=16", "--text", "t.txt", "--steps", "2", "--quiet", "--out", "run"},
		{"export", "run", "a.onnx"},
		{"export", filepath.Join("run", "checkpoint.safetensors"), "b.onnx", "--policy", "mixed-bf16"},
		{"run", "a.onnx", "--policy", "f32", "--out", "a.safetensors"},
	}
	for _, args := range lines {
		code, out, errs := ampcRun("", args...)
		if code != 0 {
			t.Fatalf("%v: code %d, %s", args, code, errs)
		}
		if args[0] == "export" && !strings.HasPrefix(out, "opset 17, ") && !strings.HasPrefix(out, "opset 22, ") {
			t.Errorf("%v: %s", args, out)
		}
	}
	a, err := os.Stat("a.onnx")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.Stat("b.onnx")
	if err != nil || b.Size() > a.Size()*6/10 {
		t.Errorf("%d bytes in f32, %d in bf16 (%v)", a.Size(), b.Size(), err)
	}
	for args, want := range map[string]string{
		"export run c.onnx --opset 12":            "--opset 12: want 13 to 24, or 0 for the least; see ampc export --help",
		"export zoo:mlp nowhere/c.onnx":           "nowhere/c.onnx: no such file or directory",
		"export zoo:none c.onnx --policy mixed-1": "mixed-1",
	} {
		code, _, errs := ampcRun("", strings.Fields(args)...)
		if code == 0 || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: code %d, %s", args, code, errs)
		}
	}
}

// The sizes of an ONNX model are bound when it is read, and not again when it is written.
func TestExportWithSizes(t *testing.T) {
	out := filepath.Join(t.TempDir(), "two.onnx")
	if code, text, errs := ampcRun("", "export", "../../onnx/testdata/mlp.onnx", out, "--dim", "N=2"); code != 0 || !strings.HasPrefix(text, "opset ") {
		t.Fatalf("code %d, %s%s", code, text, errs)
	}
	if code, text, errs := ampcRun("", "run", out, "--policy", "f32"); code != 0 || !strings.HasPrefix(text, "p : f32[2,3]") {
		t.Errorf("code %d, %s%s", code, text, errs)
	}
}
