package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
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
		if c.Run[0] == "plan" { // scratch memory depends on the processor and its number of threads
			t.Setenv("AMPC_CPU", "go")
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		}
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
	for _, model := range []string{"mlp", "gpt?layers=1", "lenet", "resnet8", "lstm", "bert?layers=1", "unet?levels=1", "unet3d?levels=1", "convlstm?seq=2&ahead=2", "vit?layers=1", "gan"} {
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

// What a command line gets wrong is said in one line, with what would be right; the exit code tells command lines from files.
func TestWrongCommandLines(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"empty.policy": "", "model.onnx": "\x08\x03", "model.bin": "\x08\x03", "double.ir": "graph @double {\n  input %x : f32[2]\nforward:\n  %y = add %x, %x\n  return %y\n}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"dump zoo:mlp zoo:gpt":               {2, `ampc dump: want MODEL, got ["zoo:mlp" "zoo:gpt"]; see ampc dump --help`},
		"why":                                {2, "ampc why: want MODEL [VALUE]; see ampc why --help"},
		"passes amp":                         {2, `ampc passes: want no arguments, got ["amp"]; see ampc passes --help`},
		"dump zoo:mlp --micro 0":             {2, "--micro 0: want 1 to 16777216"},
		"dump zoo:mlp --record -1":           {2, "--record -1: want 0 or more steps"},
		"dump zoo:mlp --range x":             {2, "--range x: want INPUT=LO..HI"},
		"ranges zoo:mlp --range x=nan..2":    {2, "--range x=nan..2: want INPUT=LO..HI"},
		"ranges zoo:mlp --range y=0..2":      {1, "--range y=0..2: the graph has no float input %y"},
		"dump zoo:mlp --target sm_10":        {2, `--target: unknown target "sm_10": want cpu, or sm_70 and up, such as sm_80, sm_89 or sm_90, each of these also without some of /nodnn, /noattn`},
		"dump zoo:mlp --scaler 1e300":        {2, "static scale 1e+300: want a power of two from 2^-126 to 2^127"},
		"dump zoo:mlp?in=1e9":                {1, "zoo:mlp: option in=1e9: want a whole number from 1 to 16777216"},
		"dump zoo:gpt?dropout=nan":           {1, "zoo:gpt: option dropout=nan: want a share from 0 to below 1"},
		"dump model.bin":                     {1, "model.bin:1: not the text of a graph: byte 8"},
		"convert none.onnx o.onnx":           {1, "none.onnx: no such file"},
		"convert model.onnx o.onnx":          {1, "model.onnx: the file has no graph: it is not an ONNX model"},
		"convert a b --max-error -1":         {2, "--max-error -1: want a number, 0 or more"},
		"dump model.onnx --dim N":            {2, "--dim N: want NAME=SIZE"},
		"dump model.onnx --shape x=a":        {2, "--shape x=a: want NAME=SIZE,SIZE,..."},
		"dump model.onnx":                    {1, "model.onnx: the file has no graph: it is not an ONNX model"},
		"dump zoo:mlp --policy empty.policy": {1, `empty.policy: an empty policy; begin with a preset, as in "from mixed-f16"`},
		"why-not zoo:mlp fc1 f17":            {2, `no dtype "f17"; there are f32, f16 and bf16`},
		"policy --diff f32":                  {2, "--diff, --set and --unmapped want a NAME or FILE"},
		"compare mlp":                        {2, "mlp: compare takes models of the zoo, such as zoo:gpt"},
		"compare zoo:mlp --steps -1":         {2, "--steps -1: want 0 or more"},
		"run double.ir --infer --steps 0":    {2, "--steps 0: want 1 or more"},
		"run double.ir --infer --out .":      {1, ".: is a directory"},
		"run double.ir --infer --out none/x": {1, "none/x: no such file or directory"},
		"doctor zoo:mlp --save none/x.ampc":  {1, "none/x.ampc: no such file or directory"},
		"train zoo:gpt?seq=2&layers=1 --text double.ir --save-bad none/x": {1, "none/x: no such file or directory"},
	} {
		code, out, errs := ampcRun("", strings.Fields(line)...)
		if code != want.code || !strings.Contains(errs, want.text) || strings.Count(errs, "\n") != 1 || out != "" {
			t.Errorf("%s: code %d, %q, %q; want code %d and one line with %q", line, code, out, errs, want.code, want.text)
		}
	}
}

// What --range says of inputs reaches the passes, with a guard and without: scores that are known to stay small keep
// their scale behind the product.
func TestRangesReachThePasses(t *testing.T) {
	text := "graph @att {\n  input %q : f32[4,8]\n  input %k : f32[4,8]\nforward:\n  %s = matmul %q, %k {tb}\n  %t = affine %s {scale=0.125}\n  %p = softmax %t {axis=-1}\n  return %p\n}\n"
	const moved = "note: %t: the scale of the scores moves before their product\n"
	for want, args := range map[string][]string{
		moved: nil,
		"":    {"--range", "q=-3..3", "--range", "k=-3..3"},
	} {
		if code, _, errs := ampcRun(text, append([]string{"dump", "-", "--infer"}, args...)...); code != 0 || errs != want {
			t.Errorf("%v: code %d, %q, want %q", args, code, errs, want)
		}
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	for _, c := range newRoot().Commands() {
		code, out, errs := ampcRun("", c.Name(), "--help")
		if code != 0 || !strings.Contains(out, "Usage:") || !strings.Contains(out, "Examples:\n  ") {
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
