package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc/fit"
)

// rhyme is enough text for a tiny model to overfit.
func rhyme(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rhyme.txt")
	text := strings.Repeat("One for the master, one for the dame,\nand one for the little boy who lives down the lane.\n", 20)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const tiny = "zoo:gpt?layers=1&heads=2&dim=16&batch=4&seq=16&dropout=0.1"

func TestTrainWritesEverythingAndResumesToTheBit(t *testing.T) {
	text, dir := rhyme(t), t.TempDir()
	train := func(out string, more ...string) string {
		t.Helper()
		args := append([]string{"train", tiny, "--text", text, "--out", filepath.Join(dir, out), "--seed", "3", "--quiet", "--micro", "2"}, more...)
		code, stdout, stderr := ampcRun("", args...)
		if code != 0 {
			t.Fatalf("%v: code %d\n%s", more, code, stderr)
		}
		return stdout
	}
	// The schedule ends where --steps says, so the halves are cut by an interruption instead.
	printed := train("whole", "--steps", "24")
	for _, want := range []string{"step 24: training loss", "held out: loss", "sample:", "casts: ", "wrote checkpoint: ", "wrote annotated IR: ", "wrote curves: "} {
		if !strings.Contains(printed, want) {
			t.Errorf("train does not print %q:\n%s", want, printed)
		}
	}
	interrupt(t, 10, "train", tiny, "--text", text, "--out", filepath.Join(dir, "half"), "--seed", "3", "--micro", "2", "--steps", "24")
	train("rest", "--steps", "24", "--resume", filepath.Join(dir, "half", checkpointFile))
	whole, rest := read(t, dir, "whole", checkpointFile), read(t, dir, "rest", checkpointFile)
	if !bytes.Equal(whole, rest) {
		t.Error("24 steps and an interrupted run that was resumed leave different checkpoints")
	}
	rows, damaged, err := fit.ReadJSONLines(filepath.Join(dir, "rest", curvesLines))
	if err != nil || damaged != 0 || len(rows) != 24 {
		t.Fatalf("%d rows, damaged at %d (%v)", len(rows), damaged, err)
	}
	for i, r := range rows {
		for _, column := range []string{lossColumn, rateColumn, scaleColumn, normColumn, "tokens/s"} {
			if r.Step != i+1 || !(r.Values[column] > 0) {
				t.Errorf("row %d: %s is %g in step %d", i, column, r.Values[column], r.Step)
			}
		}
	}
	if rows[0].Values[memoryColumn] < 1000 {
		t.Errorf("memory %g", rows[0].Values[memoryColumn])
	}
	if n := len(eventFiles(filepath.Join(dir, "whole"))); n != 1 {
		t.Errorf("%d event files, want 1", n)
	}
	code, _, stderr := ampcRun("", "dump", filepath.Join(dir, "whole", "step.ir"))
	if code != 0 {
		t.Errorf("the written IR does not read back: %s", stderr)
	}
	if svg := read(t, dir, "whole", "curves.svg"); !bytes.Contains(svg, []byte("loss scale")) {
		t.Error("the curves lack the scale")
	}
	files, err := os.ReadDir(filepath.Join(dir, "half"))
	if err != nil || len(files) != 7 {
		t.Errorf("files of the interrupted run: %v (%v), want 7", files, err)
	}
}

// interrupt runs a command line and cancels it as soon as it reports a step.
func interrupt(t *testing.T, step int, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out bytes.Buffer
	w := &watcher{want: fmt.Sprintf("step %d/", step), found: cancel}
	if code := run(ctx, args, strings.NewReader(""), &out, w); code != exitInterrupted {
		t.Fatalf("interrupted: code %d\n%s", code, w.text.String())
	}
	if !strings.Contains(w.text.String(), "interrupted after step") {
		t.Fatalf("nothing was interrupted:\n%s", w.text.String())
	}
}

// watcher calls found once the wanted text has been written.
type watcher struct {
	text  bytes.Buffer
	want  string
	found func()
}

func (w *watcher) Write(p []byte) (int, error) {
	w.text.Write(p)
	if strings.Contains(w.text.String(), w.want) {
		w.found()
	}
	return len(p), nil
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestScaleMovesAsAsked(t *testing.T) {
	code, out, errs := ampcRun("", "train", tiny, "--text", rhyme(t), "--out", t.TempDir(), "--steps", "40", "--quiet",
		"--init-scale", "16777216", "--growth-every", "5", "--policy", "mixed-f16")
	if code != 0 {
		t.Fatal(errs)
	}
	var backoffs, growths int
	at := strings.Index(out, "loss scale ")
	if at < 0 {
		t.Fatalf("no scale in %q", out)
	}
	var exponent int
	if _, err := fmt.Sscanf(out[at:], "loss scale 2^%d after %d backoffs and %d growths", &exponent, &backoffs, &growths); err != nil {
		t.Fatal(err)
	}
	if backoffs == 0 || growths == 0 {
		t.Errorf("%d backoffs and %d growths", backoffs, growths)
	}
}

func TestTrainDigits(t *testing.T) {
	const data = "../../../shared/data/"
	if _, err := os.Stat(data + "optdigits.tra"); err != nil {
		t.Skipf("the digits are not beside the repository: %v", err)
	}
	for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16"} {
		code, out, errs := ampcRun("", "train", "zoo:lenet", "--data", data+"optdigits.tra", "--held-out", data+"optdigits.tes",
			"--out", t.TempDir(), "--steps", "500", "--quiet", "--policy", policy)
		if code != 0 {
			t.Fatal(errs)
		}
		var loss, accuracy float64
		at := strings.Index(out, "held out: ")
		if _, err := fmt.Sscanf(out[at:], "held out: loss %f, accuracy %f%%", &loss, &accuracy); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		if accuracy < 97 {
			t.Errorf("%s: held-out accuracy %g%%, want at least 97%%", policy, accuracy)
		}
	}
}

// Models of volumes and videos train on generated scenes: what they have learned
// shows in scenes that no run trains on, which are the same for all seeds.
func TestTrainScenes(t *testing.T) {
	for spec, rate := range map[string]string{"zoo:unet3d?levels=1&depth=8&size=8&width=8": "0.05", "zoo:convlstm?seq=3&ahead=2&size=8&width=8": "0.02"} {
		train := func(seed, steps string) (loss float64) {
			code, out, errs := ampcRun("", "train", spec, "--out", t.TempDir(), "--seed", seed, "--steps", steps, "--lr", rate, "--quiet")
			if code != 0 {
				t.Fatal(errs)
			}
			if _, err := fmt.Sscanf(out[strings.Index(out, "held out: "):], "held out: loss %f", &loss); err != nil {
				t.Fatalf("%v in %q", err, out)
			}
			return loss
		}
		for _, seed := range []string{"1", "2"} {
			if first, last := train(seed, "1"), train(seed, "40"); !(last < 0.7*first) {
				t.Errorf("%s with seed %s: the held-out loss is %g after a step and %g after 40", spec, seed, first, last)
			}
		}
	}
}

// Training that goes nowhere ends with what the doctor says and the step itself,
// which the doctor reads again. What was learned before is in a checkpoint.
func TestTrainStuck(t *testing.T) {
	for policy, cause := range map[string]string{"mixed-f16": "forward overflow: ", "f32": "not a precision problem: "} {
		dir := t.TempDir()
		bad := filepath.Join(dir, "bad.ampc")
		code, _, stderr := ampcRun("", "train", tiny, "--text", rhyme(t), "--out", dir, "--quiet", "--steps", "40", "--lr", "1e30", "--policy", policy, "--save-bad", bad)
		if code != exitStuck || !strings.Contains(stderr, "in a row") || !strings.Contains(stderr, cause) {
			t.Errorf("%s: code %d\n%s", policy, code, stderr)
		}
		checkpoint := filepath.Join(dir, checkpointFile)
		if _, err := os.Stat(checkpoint); err != nil || !strings.Contains(stderr, checkpoint) {
			t.Errorf("%s: no checkpoint (%v):\n%s", policy, err, stderr)
		}
		code, stdout, errs := ampcRun("", "doctor", bad)
		if code != 0 || !strings.Contains(stderr, strings.TrimSpace(stdout)) {
			t.Errorf("%s: the doctor says of the file: code %d\n%s%s\nand train said:\n%s", policy, code, stdout, errs, stderr)
		}
	}
}
