package ampc_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
)

// converted converts one of the shared models by its own data.
func converted(t *testing.T, name, out string, o ampc.ConvertOptions) *ampc.ConvertReport {
	t.Helper()
	path := filepath.Join("../shared/onnx/models", name, "model.onnx")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no models in ../shared/onnx/models: %v", err)
	}
	o.ONNXOptions = fedSizes(t, path)
	o.Data = []ampc.Feed{o.Values}
	r, err := ampc.ConvertONNX(context.Background(), path, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Calibrated by their data, models have no more casts than the peers leave, and at
// most 1.1 times their error; the figures are ModelOpt's and onnxconverter-common's,
// the better of the two (docs/onnx.md).
func TestCalibrateBesidePeers(t *testing.T) {
	for _, c := range []struct {
		name     string
		casts    int
		error    float64
		smallest float64 // share of the file's bytes
	}{
		{"own-mlp", 2, 3.0e-4, 0.51}, {"own-lenet", 2, 6.9e-4, 0.51}, {"own-resnet8w", 2, 6.2e-4, 0.52}, {"own-gptmini", 1, 6.5e-4, 0.53},
	} {
		out := filepath.Join(t.TempDir(), "out.onnx")
		r := converted(t, c.name, out, ampc.ConvertOptions{Policy: ampc.MixedF16(), Calibrate: true, MaxError: 1.1 * c.error})
		if r.Casts > c.casts || r.Errors[0].Error > 1.1*c.error || float64(r.Out) > c.smallest*float64(r.In) {
			t.Errorf("%s: %d casts, error %.2g, %d of %d bytes; want %d, %.2g, %.0f%%", c.name, r.Casts, r.Errors[0].Error, r.Out, r.In, c.casts, 1.1*c.error, 100*c.smallest)
		}
		t.Logf("%s: %d of %d nodes, %d casts, error %.2g, %d bytes, %d runs", c.name, r.Low, r.Nodes, r.Casts, r.Errors[0].Error, r.Out, r.Runs)
	}
}

// What a calibration found is a policy: without data it makes the same file again. A
// limit on the error is held, and says which nodes it cost.
func TestCalibratePolicy(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a.onnx"), filepath.Join(dir, "b.onnx")
	r := converted(t, "own-gptmini", first, ampc.ConvertOptions{Policy: ampc.MixedF16(), Calibrate: true, MaxError: 3e-4})
	if len(r.Kept) == 0 || r.Runs < 3 || r.Errors[0].Error > 3e-4 {
		t.Errorf("%d nodes are kept after %d runs, the error is %g", len(r.Kept), r.Runs, r.Errors[0].Error)
	}
	alone := 0
	for _, k := range r.Kept {
		if strings.Contains(k.Why, "alone it moves an output by") {
			alone++
		}
	}
	if alone == 0 {
		t.Errorf("no node says what it costs: %v", r.Kept)
	}
	p, err := ampc.ParsePolicy("found", []byte(r.Policy))
	if err != nil {
		t.Fatal(err)
	}
	again := converted(t, "own-gptmini", second, ampc.ConvertOptions{Policy: p})
	a, _ := os.ReadFile(first)
	b, _ := os.ReadFile(second)
	if again.Runs != 0 || !bytes.Equal(a, b) {
		t.Errorf("the policy makes another file: %d casts, were %d", again.Casts, r.Casts)
	}
}
