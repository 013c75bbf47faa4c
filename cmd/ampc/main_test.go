package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/internal/safetensors"
)

// ampcRun runs a command line in process.
func ampcRun(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// Every case of testdata/cli is a command line in a directory that holds the
// case's other sections as files; "stdin" is what it reads. exit= is its code,
// lines= how many lines of error it printed.
func TestCommandLines(t *testing.T) {
	cases, err := filepath.Abs("../../testdata/cli")
	if err != nil {
		t.Fatal(err)
	}
	golden.Run(t, cases, func(t *testing.T, c *golden.Case) golden.Result {
		dir := t.TempDir()
		for _, name := range c.Sections() {
			if strings.HasPrefix(name, "want") || name == "stdin" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(c.Section(name)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		t.Chdir(dir)
		code, out, errs := ampcRun(c.Section("stdin"), c.Run...)
		return golden.Result{
			Sections: map[string]string{"want": out, "want-err": errs},
			Counters: map[string]int{"exit": code, "lines": strings.Count(errs, "\n")},
		}
	})
}

// What dump prints reads back: for every model, under every policy, the text
// fed to "dump -" comes out the same.
func TestDumpReadsBack(t *testing.T) {
	for _, model := range []string{"mlp", "gpt?layers=1", "lenet", "resnet8", "lstm", "bert?layers=1", "unet?levels=1", "vit?layers=1", "gan"} {
		for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16", "tf32", "o1-f16", "o2-bf16", "o3-f16", "torch-f16"} {
			code, text, errs := ampcRun("", "dump", "zoo:"+model, "--policy", policy)
			if code != 0 {
				t.Errorf("%s under %s: %s", model, policy, errs)
				continue
			}
			code, again, errs := ampcRun(text, "dump", "-", "--policy", "f32")
			if code != 0 {
				t.Errorf("%s under %s does not read back: %s", model, policy, errs)
				continue
			}
			if canonical(again) != canonical(text) {
				t.Errorf("%s under %s reads back as another graph", model, policy)
			}
		}
	}
}

// canonical leaves the comments out: the reasons behind dtypes are not part of the text.
func canonical(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "  ;")
		b.WriteString(strings.TrimRight(code, " \n") + "\n")
	}
	return b.String()
}

func TestEveryCommandHasHelp(t *testing.T) {
	for _, c := range newRoot().Commands() {
		code, out, errs := ampcRun("", c.Name(), "--help")
		if code != 0 || !strings.Contains(out, "Usage:") {
			t.Errorf("%s --help: code %d, %q %q", c.Name(), code, out, errs)
		}
	}
	if code, out, _ := ampcRun(""); code != 0 || !strings.Contains(out, "Available Commands") {
		t.Errorf("without arguments: code %d, %q", code, out)
	}
}

// Inputs come from npz and safetensors files; results go to one.
func TestRunReadsAndWritesFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	model := "graph @double {\n  input %x : f32[2]\n  input %k : i32[2]\nforward:\n  %y = add %x, %x : f32[2]\n  %z = add %k, %k : i32[2]\n  return %y, %z\n}\n"
	if err := os.WriteFile("double.ir", []byte(model), 0o644); err != nil {
		t.Fatal(err)
	}
	tensors := []safetensors.Tensor{
		{Name: "x", DType: safetensors.F32, Shape: []int64{2}, Write: safetensors.Bytes([]byte{0, 0, 128, 63, 0, 0, 0, 64})}, // 1, 2
		{Name: "k", DType: safetensors.I32, Shape: []int64{2}, Write: safetensors.Bytes([]byte{3, 0, 0, 0, 4, 0, 0, 0})},
	}
	if err := safetensors.WriteFile("in.safetensors", nil, tensors); err != nil {
		t.Fatal(err)
	}
	code, out, errs := ampcRun("", "run", "double.ir", "--infer", "--policy", "f32", "--input", "in.safetensors", "--out", "out.safetensors")
	if code != 0 || !strings.Contains(out, "y : f32[2]  min 2  max 4  mean 3") || !strings.Contains(out, "z : i32[2]  min 6  max 8") {
		t.Fatalf("code %d: %q %q", code, out, errs)
	}
	f, err := safetensors.Open("out.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	y := make([]byte, 8)
	if err := f.Read("y", y); err != nil || !bytes.Equal(y, []byte{0, 0, 0, 64, 0, 0, 128, 64}) {
		t.Errorf("y was written as %v (%v)", y, err)
	}
	for want, args := range map[string][]string{
		"no such input":     {"--input", "out.safetensors"},
		"none.npy: no such": {"--input", "x=none.npy"},
		"not an npy":        {"--input", "x=double.ir"},
		`no dimension "n"`:  {"--input", "in.safetensors", "--dim", "n=3"},
	} {
		code, _, errs := ampcRun("", append([]string{"run", "double.ir", "--infer", "--policy", "f32"}, args...)...)
		if code != 1 || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: code %d, %q, want one line with %q", args, code, errs, want)
		}
	}
}
