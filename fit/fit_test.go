package fit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
	"ampc/data"
	"ampc/fit"
)

// digits is a table of small images whose class decides where they are bright; the
// last batch of an epoch is short.
func digits(t *testing.T, n int) *data.Columns {
	t.Helper()
	var text strings.Builder
	seed := uint32(7)
	random := func(k int) int { seed = seed*1664525 + 1013904223; return int(seed>>16) % k }
	for range n {
		class := random(4)
		for p := range 16 {
			v := random(5)
			if p/4 == class {
				v += 5
			}
			text.WriteString(string(rune('0'+v)) + ",")
		}
		text.WriteString(string(rune('0'+class)) + "\n")
	}
	path := filepath.Join(t.TempDir(), "digits.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	c, err := data.CSV(path, data.CSVOptions{Label: "y"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// classifier is a run over the digits in a folder. Dropout and f16 make bits depend on
// the random state and on the loss scale.
func classifier(t *testing.T, folder string) *fit.Run {
	t.Helper()
	return classifierOf(t, folder, ampc.Parallel{})
}

// classifierOf is the run on one of several ranks.
func classifierOf(t *testing.T, folder string, p ampc.Parallel) *fit.Run {
	t.Helper()
	m := ampc.New("digits", ampc.Seed(3))
	t.Cleanup(func() { m.Close() })
	n := ampc.Dim("N")
	x, y := m.Input("x", ampc.F32, n, 16), m.Input("y", ampc.I32, n)
	h := m.Dropout("drop", m.Relu(m.Linear("fc1", x, 24)), 0.1)
	logits := m.Linear("fc2", h, 4)
	loss := m.CrossEntropy(logits, y)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.AdamW(0.01), LR: ampc.Constant(3e-2), Policy: ampc.MixedF16(), Micro: 2, Parallel: p,
		Sizes: ampc.Sizes{"N": 16}, Scaler: ampc.Scaler{Mode: ampc.DynamicScale, Init: 1 << 24}}, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	eval, err := step.Eval(loss, logits)
	if err != nil {
		t.Fatal(err)
	}
	train, held := data.Split(digits(t, 250), 0.2, 1)
	loader := func(s data.Set, o data.Options) *data.Loader {
		o.Batch = 16
		l, err := data.NewLoader(s, o)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	return &fit.Run{
		Model: m, Step: step, Data: loader(train, data.Options{Shuffle: true, Seed: 5}), Epochs: 6, Micro: 2, BatchDim: "N",
		Eval:   &fit.Evaluation{Step: eval, Data: loader(held, data.Options{}), Metrics: []fit.Metric{fit.Mean("loss", loss), fit.Accuracy("accuracy", logits, "y")}},
		Folder: folder, SaveEvery: 3, Resume: true,
		Logs: []fit.Log{fit.CSV(filepath.Join(folder, "log.csv")), fit.JSONLines(filepath.Join(folder, "log.jsonl"))},
	}
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A run that dies at any step and is resumed ends with the same bytes: both
// checkpoints, the optimizer's moments, the loss scale, both logs.
func TestResumeIsExact(t *testing.T) {
	whole := t.TempDir()
	want, err := classifier(t, whole).Fit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if want.Steps != 42 || want.Epochs != 6 || want.Skipped == 0 || want.Eval["accuracy"] < 0.9 {
		t.Errorf("the run came to %+v", want)
	}
	died := errors.New("died")
	for _, ends := range [][]int{{1, 30}, {4, 8}, {6, 7, 14, 20}, {42}} {
		folder := t.TempDir()
		for _, end := range ends {
			r := classifier(t, folder)
			r.OnStep = func(at fit.Report) error {
				if at.Step == end {
					return died
				}
				return nil
			}
			if _, err := r.Fit(context.Background()); !errors.Is(err, died) {
				t.Fatalf("%v: error %v", ends, err)
			}
		}
		got, err := classifier(t, folder).Fit(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{fit.LastFile, fit.BestFile, "log.csv", "log.jsonl"} {
			if read(t, folder, name) != read(t, whole, name) {
				t.Errorf("stopped at %v: %s differs", ends, name)
			}
		}
		if got.Steps != want.Steps || got.Loss != want.Loss || got.Best != want.Best || got.BestStep != want.BestStep || got.Skipped != want.Skipped {
			t.Errorf("stopped at %v: %+v, want %+v", ends, got, want)
		}
	}
}

// A context that ends saves what was learned, also in the middle of a checkpoint's
// interval, and is the error.
func TestCancelSaves(t *testing.T) {
	whole, folder := t.TempDir(), t.TempDir()
	if _, err := classifier(t, whole).Fit(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := classifier(t, folder)
	r.SaveEvery = 1000
	r.OnStep = func(at fit.Report) error {
		if at.Step == 5 {
			cancel()
		}
		return nil
	}
	if _, err := r.Fit(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	r = classifier(t, folder)
	first := 0
	r.OnStep = func(at fit.Report) error {
		if first == 0 {
			first = at.Step
		}
		return nil
	}
	if _, err := r.Fit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if first != 6 || read(t, folder, fit.LastFile) != read(t, whole, fit.LastFile) {
		t.Errorf("it continued at step %d; the same bytes: %t", first, read(t, folder, fit.LastFile) == read(t, whole, fit.LastFile))
	}
}

func TestEarlyStopping(t *testing.T) {
	r := classifier(t, t.TempDir())
	r.Epochs, r.EvalEvery, r.Patience, r.MinGain = 50, 2, 3, 10 // after the first evaluation nothing is better by 10
	got, err := r.Fit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got.Steps != 8 || got.BestStep != 2 || !strings.Contains(got.Stopped, "no improvement of loss in 3 evaluations") {
		t.Errorf("it came to %+v", got)
	}
	r = classifier(t, t.TempDir())
	r.OnEval = func(at fit.Report) error { return fit.ErrStop }
	if got, err = r.Fit(context.Background()); err != nil || got.Epochs != 1 || got.Stopped == "" {
		t.Errorf("a callback stops: %+v, %v", got, err)
	}
}

func TestRunRefuses(t *testing.T) {
	folder := t.TempDir()
	r := classifier(t, folder)
	r.Steps = 1
	if _, err := r.Fit(context.Background()); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(r *fit.Run){
		"holds a run: set Resume":           func(r *fit.Run) { r.Resume = false },
		"Epochs or Steps":                   func(r *fit.Run) { r.Epochs = 0 },
		"want a Model":                      func(r *fit.Run) { r.Step = nil },
		`to Watch, not "f1"`:                func(r *fit.Run) { r.Watch = "f1" },
		"set Run.BatchDim":                  func(r *fit.Run) { r.BatchDim = "" },
		"two metrics of Eval have one name": func(r *fit.Run) { r.Eval.Metrics[1] = r.Eval.Metrics[0] },
		"not that of the training data":     func(r *fit.Run) { r.Eval.Data = r.Data },
		"batches of 16, 2 in a step":        func(r *fit.Run) { r.Micro = 1 },
		"has other columns than this run":   func(r *fit.Run) { r.Eval.Metrics = r.Eval.Metrics[:1] },
		"want Eval for Patience":            func(r *fit.Run) { r.Eval, r.Patience = nil, 2 },
	} {
		r := classifier(t, folder)
		change(r)
		if _, err := r.Fit(context.Background()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want a line with %q", err, want)
		}
	}
}

// The loop gives nothing that the step alone does not: the same losses by hand.
func TestStepAlone(t *testing.T) {
	var by []float64
	r := classifier(t, "")
	r.Folder, r.Resume, r.Logs, r.Eval, r.Micro = "", false, nil, nil, 1
	r.Steps = 15
	r.OnStep = func(at fit.Report) error { by = append(by, at.Metrics.Loss); return nil }
	if _, err := r.Fit(context.Background()); err != nil {
		t.Fatal(err)
	}
	r = classifier(t, "")
	i := 0
	for b, err := range r.Data.Epochs(context.Background(), 2) {
		if err != nil {
			t.Fatal(err)
		}
		if i == len(by) {
			break
		}
		step, err := r.Step.For(ampc.Sizes{"N": int64(b.Size)})
		if err != nil {
			t.Fatal(err)
		}
		res, err := step.Run(context.Background(), b.Feed)
		if err != nil {
			t.Fatal(err)
		}
		got, err := res.Wait(context.Background())
		if err != nil || math.Float64bits(got.Loss) != math.Float64bits(by[i]) {
			t.Errorf("step %d: loss %g (%v), the run had %g", i, got.Loss, err, by[i])
		}
		i++
	}
	if i != 15 {
		t.Errorf("%d steps", i)
	}
}

// The share of a run that it waits for data, in percent: steps of some milliseconds and
// a loader that keeps up.
func BenchmarkWaited(b *testing.B) {
	for _, hidden := range []int{1024, 8192} { // steps shorter and longer than the loader takes for a batch
		b.Run(fmt.Sprintf("hidden=%d", hidden), func(b *testing.B) { waited(b, hidden) })
	}
}

func waited(b *testing.B, hidden int) {
	m := ampc.New("wide", ampc.Seed(1))
	defer m.Close()
	x, y := m.Input("x", ampc.F32, 64, 1024), m.Input("y", ampc.I32, 64)
	loss := m.CrossEntropy(m.Linear("fc2", m.Relu(m.Linear("fc1", x, hidden)), 10), y)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: loss})
	if err != nil {
		b.Fatal(err)
	}
	set, err := data.NewColumns(map[string]data.Column{"x": {Data: make([]uint8, 2000*1024), Shape: []int{1024}}, "y": {Data: make([]int32, 2000)}})
	if err != nil {
		b.Fatal(err)
	}
	l, err := data.NewLoader(data.Map(set, data.Normalize("x", data.Stats{Mean: 128, Std: 64})), data.Options{Batch: 64, Shuffle: true, Last: data.Drop})
	if err != nil {
		b.Fatal(err)
	}
	r := fit.Run{Model: m, Step: step, Data: l, Steps: b.N}
	s, err := r.Fit(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(100*s.Waited.Seconds()/s.Took.Seconds(), "%waited")
}
