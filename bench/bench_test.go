package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/trial"
	"ampc/models"
)

// small are the models of the comparison on a GPU at a size for the simulator.
var small = []string{
	"mlp?batch=4&in=16&hidden=16",
	"gpt2?layers=2&batch=2&seq=32&dim=32&heads=2&vocab=64",
	"resnet50?batch=2&size=32&width=4&classes=4&blocks1=1&blocks2=1&blocks3=0&blocks4=0",
}

// onCPU are those that are compared on the CPU alone.
var onCPU = []string{
	"lenet?batch=4&conv1=4&conv2=6&pad=0&fc1=20&fc2=0",
	"gpt?layers=2&batch=2&seq=32&dim=32&heads=2&vocab=64",
	"resnet?batch=2&size=16&width=4&classes=4&blocks3=0&blocks4=0",
	"unet3d?batch=2&depth=5&size=7&width=4&levels=1",
	"convlstm?batch=2&seq=3&ahead=2&size=6&width=4",
}

// deviceOf is what the test of a model runs on.
func deviceOf(spec string) string {
	if slices.Contains(onCPU, spec) {
		return "cpu"
	}
	return "sim:sm_90"
}

// command runs bench and gives what it prints.
func command(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, &out); err != nil {
		t.Fatalf("bench %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

func startFile(t *testing.T, spec string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "start.safetensors")
	command(t, "start", spec, path, "--batches", "2")
	return path
}

// The comparison's own path, on the CPU and a simulated GPU: every precision begins at
// the CPU's loss, and no step waits for the device.
func TestTraining(t *testing.T) {
	for _, spec := range slices.Concat(onCPU, small) {
		if spec == small[2] && testing.Short() {
			t.Log("ResNet-50 is left out under -short")
			continue
		}
		file, results := startFile(t, spec), filepath.Join(t.TempDir(), "results.jsonl")
		for _, precision := range []string{"f32", "tf32", "f16", "bf16"} {
			out := command(t, "train", file, "--device", deviceOf(spec), "--precision", precision, "--check", "3", "--rounds", "1", "--steps", "2", "--into", results)
			if !strings.Contains(out, "0 host waits a step") {
				t.Errorf("%s", out)
			}
		}
		rows, _, err := readResults(results)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			want := cpuLosses(t, spec, r.Precision, len(r.Losses))
			if d := apart(r.Losses, want); !(d <= 0.02) || r.Syncs != 0 || r.Skipped != 0 || !(r.StepMS >= r.BestMS && r.BestMS > 0) || r.Held <= 0 || deviceOf(spec) != "cpu" && r.InUse < r.Held {
				t.Errorf("%+v; the CPU's losses %v", r, want)
			}
		}
		inferred := command(t, "train", file, "--infer", "--device", deviceOf(spec), "--precision", "f32", "--check", "2", "--rounds", "1", "--steps", "2", "--into", results)
		if rows, _, err = readResults(results); err != nil {
			t.Fatal(err)
		}
		if last := rows[len(rows)-1]; !last.Infer || !strings.HasPrefix(inferred, spec+", inference f32") || last.PerSecond <= 0 {
			t.Errorf("inference: %+v\n%s", last, inferred)
		}
		if table := command(t, "table", results); strings.Count(table, "| "+spec+" |") != 4 || strings.Count(table, "| "+spec+", inference |") != 1 {
			t.Errorf("want four rows and one of inference:\n%s", table)
		}
	}
}

// cpuLosses trains the same steps by the library's own road: the model's initial
// values of seed 1, its batches, the CPU.
func cpuLosses(t *testing.T, spec, precision string, steps int) (losses []float64) {
	t.Helper()
	z, err := models.Open(spec, ampc.Seed(1))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	if c.Policy, err = ampc.PolicyNamed(policies[precision]); err != nil {
		t.Fatal(err)
	}
	step, err := z.Model.Train(c, ampc.Loss{Value: z.Steps[0].Losses[0].Value})
	if err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		r, err := step.Run(context.Background(), z.Batch(int64(i%2)))
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, trial.Metrics(t, r).Loss)
	}
	return losses
}

func TestTable(t *testing.T) {
	for device, want := range map[string]string{"cuda:0": "ampc", "cuda:0/nodnn/noaux": "ampc/nodnn/noaux", "cpu": "ampc"} {
		if got := system(device); got != want {
			t.Errorf("results of %s are by %s, want %s", device, got, want)
		}
	}
	file := filepath.Join(t.TempDir(), "results.jsonl")
	line := func(by, precision string, perSecond float64, losses ...float64) string {
		text, err := json.Marshal(result{Model: "m", Spec: "m?a=1", Precision: precision, By: by, Device: "GPU", StepMS: 1e3 / perSecond, PerSecond: perSecond, Unit: "images", Losses: losses})
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + "\n"
	}
	lines := line("torch compile", "bf16", 100, 2, 1) + line("ampc", "bf16", 50, 2, 1) + line("torch eager", "bf16", 80, 2, 1.25) +
		line("ampc", "bf16", 110, 2, 1) + line("ampc", "f32", 55, 2, 1) + line("torch compile", "f32", 50, 2, math.NaN(), 1) + line("torch eager", "f32", 50, 2, 1, 1) + `{"model":"m","by":"tor`
	if err := os.WriteFile(file, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	var got []string
	table := command(t, "table", file)
	if !strings.Contains(table, "\nleft out: "+file+":8: unexpected end") {
		t.Errorf("the line that was cut short goes unmentioned:\n%s", table)
	}
	for row := range strings.Lines(table) {
		if cells := strings.Split(row, " | "); strings.HasPrefix(row, "| m?a=1") {
			got = append(got, strings.Join([]string{cells[1], cells[2], cells[4], cells[5], cells[6], cells[7], strings.TrimSuffix(cells[14], " |\n")}, ","))
		}
	}
	want := []string{"f32,ampc,55 images,1.10,1.10,1.00,0.0e+00", "f32,torch compile,50 images,1.00,1.00,1.00,NaN", "f32,torch eager,50 images,1.00,1.00,1.00,0.0e+00", "bf16,ampc,110 images,1.38,1.10,2.00,2.0e-01", "bf16,torch compile,100 images,1.25,1.00,2.00,2.0e-01", "bf16,torch eager,80 images,1.00,0.80,1.60,0.0e+00"}
	if !slices.Equal(got, want) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Where numbers of threads differ, systems are compared at the same one, and each with itself on one thread.
func TestTableOfThreads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.jsonl")
	var lines []byte
	for _, r := range []result{{By: "ampc", Threads: 1, PerSecond: 10}, {By: "ampc", Threads: 2, PerSecond: 18}, {By: "torch eager", Threads: 2, PerSecond: 12}} {
		r.Model, r.Spec, r.Precision, r.Unit, r.Losses = "m", "m?a=1", "f32", "images", []float64{1, 1}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, text...), '\n')
	}
	if err := os.WriteFile(file, lines, 0o644); err != nil {
		t.Fatal(err)
	}
	table := command(t, "table", file)
	for _, want := range []string{"| by | threads | to one | step ms |", "| ampc | 1 | | 0.00 | 10 images |  |", "| ampc | 2 | 1.80 | 0.00 | 18 images | 1.50 |", "| torch eager | 2 | | 0.00 | 12 images |"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestFaults(t *testing.T) {
	file := startFile(t, small[0])
	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	if err := os.WriteFile(broken, []byte("{\"model\":\"mlp\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"want start SPEC FILE":       {},
		"no command":                 {"run"},
		"want SPEC FILE":             {"start", "mlp"},
		"several steps or groups":    {"start", "gan", file},
		"want f32, tf32, f16":        {"train", file, "--precision", "f8"},
		"--device gpu: want cuda:0":  {"train", file, "--device", "gpu"},
		"-1 threads, want 0":         {"train", file, "--device", "cpu", "--threads", "-1"},
		"2, 1 and 1 at least":        {"train", file, "--check", "1"},
		"no model, system or losses": {"table", broken},
	} {
		if err := run(args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("bench %q: %v, want %q in it", args, err, want)
		}
	}
}

// python runs code in bench/torch with the interpreter of $AMPC_PYTHON, or
// python3, which must have the modules named; it skips where that is not so.
func python(t *testing.T, modules []string, args ...string) []byte {
	t.Helper()
	program := os.Getenv("AMPC_PYTHON")
	if program == "" {
		program = "python3"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("no %s to run bench/torch with", program)
	}
	dir, err := filepath.Abs("torch")
	if err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) ([]byte, error) {
		c := exec.Command(path, args...)
		c.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
		return c.CombinedOutput()
	}
	for _, m := range modules {
		if _, err := call("-c", "import "+m); err != nil {
			t.Skipf("%s has no module %s", program, m)
		}
	}
	out, err := call(args...)
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return out
}

// Every Python file compiles, here and without PyTorch.
func TestPythonCompiles(t *testing.T) {
	files, err := filepath.Glob("*/*.py")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files of Python, %v", len(files), err)
	}
	for _, f := range files {
		python(t, nil, "-c", "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')", f)
	}
}

// What start.py reads is what was written, and train.py's lines are ours.
func TestPythonReadsAndWrites(t *testing.T) {
	file := startFile(t, small[0])
	s, err := readStart(file)
	if err != nil {
		t.Fatal(err)
	}
	out := python(t, nil, "-c", `
import json, sys, start, train
recipe, tensors = start.read(sys.argv[1])
variables, batches = start.split(recipe, tensors)
args = train.arguments([sys.argv[1], "--precision", "f16", "--mode", "compile", "--infer"])
print(json.dumps({
    "recipe": recipe, "variables": {k: v[2].hex() for k, v in variables.items()}, "batches": [{k: v[2].hex() for k, v in b.items()} for b in batches],
    "line": json.loads(train.written(train.line(recipe, args, "GPU", 0, [2.5, 2.0, float("nan")], [3.0, 1.0, 2.0], 0.5, 10, 20, 0.0, 1, "note"))),
}))`, file)
	var got struct {
		Recipe    recipe
		Variables map[string]string
		Batches   []map[string]string
		Line      json.RawMessage
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if fmt.Sprint(got.Recipe) != fmt.Sprint(s.recipe) {
		t.Errorf("recipe %+v, want %+v", got.Recipe, s.recipe)
	}
	same := func(what string, got map[string]string, want map[string][]byte) {
		if len(got) != len(want) {
			t.Errorf("%s: %d tensors, want %d", what, len(got), len(want))
		}
		for name, b := range want {
			if got[name] != fmt.Sprintf("%x", b) {
				t.Errorf("%s: %s has other bytes", what, name)
			}
		}
	}
	same("start", got.Variables, s.variables)
	for i, b := range s.batches {
		same(fmt.Sprint("batch ", i), got.Batches[i], b)
	}
	ours, err := json.Marshal(result{Model: "mlp", Spec: small[0], Precision: "f16", Infer: true, By: "torch compile", Device: "GPU", StepMS: 2, BestMS: 1, Unit: "images",
		PerSecond: 2000, Held: 10, InUse: 20, Losses: losses{2.5, 2, math.NaN()}, Skipped: 1, Ready: 0.5, Notes: "note"})
	if err != nil {
		t.Fatal(err)
	}
	var a, b map[string]any
	if err := json.Unmarshal(ours, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got.Line, &b); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("train.py writes\n%v, bench writes\n%v", b, a)
	}
}

// PyTorch trains the same model: from the same start, its losses are those of
// the device that docs compare it with, the CPU or a (simulated) GPU.
func TestTorchAgrees(t *testing.T) {
	if testing.Short() {
		t.Skip("PyTorch takes seconds to start, 48 times; run without -short")
	}
	dir := t.TempDir()
	for _, spec := range slices.Concat(onCPU, small) {
		file, results := startFile(t, spec), filepath.Join(dir, "results.jsonl")
		common := []string{"--check", "4", "--rounds", "1", "--steps", "1", "--into", results, "--precision"}
		for _, c := range []struct {
			precision string
			bound     float64
		}{{"f32", 2e-6}, {"f16", 2e-2}, {"bf16", 5e-2}} {
			for _, more := range [][]string{nil, {"--infer"}} {
				flags := slices.Concat(common, []string{c.precision}, more)
				python(t, []string{"torch.nn"}, append([]string{"torch/train.py", file, "--device", "cpu"}, flags...)...)
				command(t, append([]string{"train", file, "--device", deviceOf(spec)}, flags...)...)
				rows, _, err := readResults(results)
				if err != nil {
					t.Fatal(err)
				}
				torch, ours := rows[len(rows)-2], rows[len(rows)-1]
				d := apart(ours.Losses, torch.Losses)
				t.Logf("%s in %s: losses differ by %.1e", ours.work(), c.precision, d)
				if !(d <= c.bound) || math.IsNaN(d) {
					t.Errorf("%s in %s: ours %v, PyTorch's %v", ours.work(), c.precision, ours.Losses, torch.Losses)
				}
			}
		}
	}
}
