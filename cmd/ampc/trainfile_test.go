package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
)

// modelFile writes a classifier of 16 numbers as the text of its graph.
func modelFile(t *testing.T, dir string) string {
	t.Helper()
	m := ampc.New("small")
	x, y := m.Input("x", ampc.F32, ampc.Dim("batch"), 16), m.Input("kind", ampc.I32, ampc.Dim("batch"))
	logits := m.Linear("fc2", m.Dropout("drop", m.Relu(m.Linear("fc1", x, 32)), 0.1), 4)
	m.Named("fit").CrossEntropy(logits, y)
	var text bytes.Buffer
	if err := m.WriteIR(&text); err != nil {
		t.Fatal(err)
	}
	return putFile(t, dir, "small.ir", text.String())
}

func putFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// records are n lines of 16 numbers and a class, which says where they are large, as CSV
// and as JSON lines.
func records(n int) (table, lines string) {
	r := rand.New(rand.NewPCG(1, 1))
	var a, b strings.Builder
	for range n {
		class := r.IntN(4)
		var x []string
		for i := range 16 {
			v := r.NormFloat64()
			if i/4 == class {
				v += 2
			}
			x = append(x, fmt.Sprintf("%.3f", v))
		}
		row := strings.Join(x, ",")
		fmt.Fprintf(&a, "%s,%d\n", row, class)
		fmt.Fprintf(&b, `{"x":[%s],"kind":%d}`+"\n", row, class)
	}
	return a.String(), b.String()
}

func accuracyOf(t *testing.T, printed string) (accuracy float64) {
	t.Helper()
	_, rest, found := strings.Cut(printed, ", accuracy ")
	if _, err := fmt.Sscanf(rest, "%f%%", &accuracy); !found || err != nil {
		t.Errorf("no accuracy in\n%s", printed)
	}
	return accuracy
}

// A model of one's own trains on a table and on JSON lines alike, resumes to the bit,
// and is advised on.
func TestTrainFile(t *testing.T) {
	dir := t.TempDir()
	model, out := modelFile(t, dir), func(name string) string { return filepath.Join(dir, name) }
	text, jsonl := records(300)
	table, lines := putFile(t, dir, "table.csv", text), putFile(t, dir, "lines.jsonl", jsonl)
	base := []string{"train", model, "--loss", "ce:fc2,kind", "--dim", "batch=16", "--lr", "1e-2"}
	run := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := ampcRun("", args...)
		if code != 0 {
			t.Fatalf("%q: code %d\n%s", args, code, stderr)
		}
		return stdout
	}
	printed := run(append(base, "--data", table, "--out", out("whole"), "--steps", "120")...)
	if got := accuracyOf(t, printed); got < 85 || !strings.Contains(printed, "records/s") {
		t.Errorf("accuracy %g:\n%s", got, printed)
	}
	run(append(base, "--data", lines, "--out", out("lines"), "--steps", "120")...)
	if a, b := read(t, dir, "whole", curvesTable), read(t, dir, "lines", curvesTable); !bytes.Equal(timeless(a), timeless(b)) {
		t.Error("JSON lines train otherwise than the same table")
	}
	interrupt(t, 36, append(base[:len(base):len(base)], "--data", table, "--out", out("half"), "--steps", "120")...)
	run("train", "--resume="+out("half"))
	if !bytes.Equal(read(t, dir, "whole", checkpointFile), read(t, dir, "half", checkpointFile)) {
		t.Error("an interrupted run that was resumed leaves another checkpoint")
	}
	advice := run("advise", model, "--loss", "fit", "--dim", "batch=16", "--data", table, "--steps", "30", "--policies", "f32,mixed-f16")
	if !strings.Contains(advice, "verdict: ") || !strings.Contains(advice, "mixed-f16") {
		t.Errorf("advice:\n%s", advice)
	}
}

// An ONNX model without a loss gets one, and an input for its labels.
func TestTrainONNX(t *testing.T) {
	dir := t.TempDir()
	text, _ := records(200)
	table := putFile(t, dir, "table.csv", text)
	model := filepath.Join(dir, "mlp.onnx")
	if code, _, stderr := ampcRun("", "export", "zoo:mlp?in=16&hidden=32&classes=4&batch=8", model); code != 0 {
		t.Fatal(stderr)
	}
	code, stdout, stderr := ampcRun("", "train", model, "--loss", "ce:fc2,labels", "--data", table, "--steps", "100", "--lr", "1e-2", "--optimizer", "adam", "--quiet", "--out", filepath.Join(dir, "out"), "--policy", "mixed-bf16")
	if code != 0 {
		t.Fatal(stderr)
	}
	if got := accuracyOf(t, stdout); got < 80 {
		t.Errorf("accuracy %g:\n%s", got, stdout)
	}
}

func TestTrainFileMistakes(t *testing.T) {
	dir := t.TempDir()
	model := modelFile(t, dir)
	text, jsonl := records(40)
	table := putFile(t, dir, "table.csv", text)
	putFile(t, dir, "short.csv", text[strings.Index(text, ",")+1:])
	putFile(t, dir, "other.jsonl", strings.ReplaceAll(jsonl, "kind", "class"))
	ok := []string{"--loss", "fit", "--dim", "batch=4", "--data", table}
	for want, args := range map[string][]string{
		"give records to train it on with --data":    {"--loss", "fit", "--dim", "batch=4"},
		"--text is for zoo models":                   append(ok[:3:3], "batch=4", "--text", table),
		"names no loss: give --loss VALUE":           ok[2:],
		"dimension batch has no size":                {"--loss", "fit", "--data", table},
		`no value lost`:                              {"--loss", "lost", "--dim", "batch=4", "--data", table},
		"--loss hinge:fc2,kind: no loss":             {"--loss", "hinge:fc2,kind", "--dim", "batch=4", "--data", table},
		"4 records are held out, fewer than a batch": {"--loss", "fit", "--dim", "batch=5", "--data", table},
		":2: 17 cells, the first line has 16":        {"--loss", "fit", "--dim", "batch=4", "--data", filepath.Join(dir, "short.csv")},
		`no field "kind"`:                            {"--loss", "fit", "--dim", "batch=4", "--data", filepath.Join(dir, "other.jsonl")},
		"--data takes one file":                      append(ok[:len(ok):len(ok)], "--data", table),
	} {
		code, _, stderr := ampcRun("", append([]string{"train", model, "--steps", "1", "--quiet", "--out", filepath.Join(dir, "out")}, args...)...)
		if code == 0 || !strings.Contains(stderr, want) || strings.Count(strings.TrimSpace(stderr), "\n") > 0 {
			t.Errorf("%q: code %d, want %q:\n%s", args, code, want, stderr)
		}
	}
	if code, _, stderr := ampcRun("", "train", "zoo:mlp", "--loss", "x", "--data", table); code == 0 || !strings.Contains(stderr, "are for model files") {
		t.Errorf("a loss of a zoo model: %s", stderr)
	}
}

// A model file trains under every policy, and is resumed under the one that it was trained under.
func TestTrainFilePolicies(t *testing.T) {
	dir := t.TempDir()
	model := modelFile(t, dir)
	text, _ := records(200)
	table := putFile(t, dir, "table.csv", text)
	for i, policy := range ampc.PolicyNames() {
		if testing.Short() && i%6 != 0 {
			continue
		}
		out := filepath.Join(dir, policy)
		code, stdout, stderr := ampcRun("", "train", model, "--loss", "ce:fc2,kind", "--dim", "batch=16", "--lr", "1e-2", "--data", table, "--steps", "60", "--policy", policy, "--quiet", "--out", out)
		if code != 0 {
			t.Errorf("%s: code %d\n%s", policy, code, stderr)
			continue
		}
		if got := accuracyOf(t, stdout); got < 70 {
			t.Errorf("%s: accuracy %g:\n%s", policy, got, stdout)
		}
		if code, stdout, stderr = ampcRun("", "train", "--resume="+out, "--steps", "62", "--quiet"); code != 0 || !strings.Contains(stdout, "policy "+policy+",") {
			t.Errorf("%s resumed: code %d\n%s%s", policy, code, stdout, stderr)
		}
	}
}
