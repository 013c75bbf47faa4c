package ampc_test

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
)

// oldModel is the model of testdata/checkpoints, which were written when the
// compiler's variables had names that users could take: format 1.
func oldModel() (*ampc.Model, ampc.Feed, [2]ampc.Tensor) {
	m := ampc.New("saved", ampc.Seed(5))
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.I32, 8)
	h := m.BatchNorm("bn", m.Linear("fc1", x, 6))
	h = m.Dropout("drop", m.Relu(h), 0.25)
	a := m.CrossEntropy(m.Linear("fc2", h, 3), y)
	b := m.Named("aux").ReduceMean(m.Square(m.Linear("aux1", h, 2)))
	xs, ys := make([]float32, 32), make([]int32, 8)
	for i := range xs {
		xs[i] = float32(i%7)/4 - 0.5
	}
	for i := range ys {
		ys[i] = int32(i % 3)
	}
	return m, ampc.Feed{"x": xs, "y": ys}, [2]ampc.Tensor{a, b}
}

func oldConfigs() (one, two ampc.TrainConfig) {
	one = ampc.TrainConfig{Policy: ampc.MixedF16(), EMA: 0.9, Optimizer: ampc.AdamW(0.1), LR: ampc.Cosine(0.1, 3, 20),
		Groups: []ampc.Group{{Pattern: "aux1", Freeze: true}, {Pattern: "fc2", Optimizer: ampc.AdamW(0.1), LR: ampc.Cosine(0.05, 2, 30)}}}
	two = ampc.TrainConfig{Name: "step2", Policy: ampc.MixedF16(), Optimizer: ampc.SGD(0.9), LR: ampc.StepDecay(0.01, 0.5, 2),
		Groups: []ampc.Group{{Pattern: "fc1", Freeze: true}, {Pattern: "bn", Freeze: true}, {Pattern: "fc2", Freeze: true}}}
	return one, two
}

// Checkpoints of format 1 load under the names of today, and training continues with
// the rates and scales that the program of then had, and with its losses but for
// the f16 roundings that the compiler chooses anew: a tenth of one such rounding.
func TestOldCheckpointsLoad(t *testing.T) {
	for file, steps := range map[string]int{"two-steps": 2, "infer-first": 1} {
		m, f, loss := oldModel()
		own := ampc.Dynamic()
		own.Init = 1024
		c, d := oldConfigs()
		compiled := []*ampc.Step{train(t, m, loss[0], c)}
		if steps == 2 {
			s, err := m.Train(d, ampc.Loss{Value: loss[1], Scaler: &own})
			if err != nil {
				t.Fatal(err)
			}
			compiled = append(compiled, s)
		}
		if err := m.LoadFile("testdata/checkpoints/" + file + ".safetensors"); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if w := m.Warnings(); len(w) != 0 {
			t.Errorf("%s: %q", file, w)
		}
		want := strings.Split(strings.TrimSuffix(m.Meta("next"), ";"), ";")
		if len(want) != len(compiled) {
			t.Fatalf("%s: holds %d results for %d steps", file, len(want), len(compiled))
		}
		for i, s := range compiled {
			got := metrics(t, run(t, s, f))
			var loss, rate, scale float64
			if _, err := fmt.Sscan(want[i], &loss, &rate, &scale); err != nil {
				t.Fatalf("%s: %q: %v", file, want[i], err)
			}
			if math.Abs(float64(got.Loss)-loss) > 1e-4*loss || float32(got.LR) != float32(rate) || got.Scale != scale {
				t.Errorf("%s: loss, rate and scale %g %g %g, want %s", file, got.Loss, got.LR, got.Scale, want[i])
			}
		}
		m.Close()
	}
}

// Training state without a home is an error, unless it is to be left.
func TestHomelessStateIsAnError(t *testing.T) {
	m, f, loss := oldModel()
	c, _ := oldConfigs()
	run(t, train(t, m, loss[0], c), f)
	path := filepath.Join(t.TempDir(), "a.safetensors")
	if err := m.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	m.Close()
	for what, edit := range map[string]func(*ampc.TrainConfig){
		"another name":      func(c *ampc.TrainConfig) { c.Name = "other" },
		"another optimizer": func(c *ampc.TrainConfig) { c.Optimizer, c.Groups[1].Optimizer = ampc.SGD(0.9), ampc.SGD(0.9) },
		"no average":        func(c *ampc.TrainConfig) { c.EMA = 0 },
	} {
		for _, file := range []string{path, "testdata/checkpoints/infer-first.safetensors"} {
			if strings.HasPrefix(file, "testdata") && what == "another name" {
				continue
			}
			m, _, loss := oldModel()
			c, _ := oldConfigs()
			edit(&c)
			train(t, m, loss[0], c)
			before, _ := m.Variable("fc1.w")
			err := m.LoadFile(file)
			if err == nil || !strings.Contains(err.Error(), "holds training state that no compiled step has (") || !strings.Contains(err.Error(), "ampc.LeaveState()") {
				t.Errorf("%s, %s: %v", what, file, err)
			}
			if after, _ := m.Variable("fc1.w"); after.At(0) != before.At(0) {
				t.Errorf("%s: the refused file changed something", what)
			}
			if err := m.LoadFile(file, ampc.LeaveState()); err != nil || len(m.Warnings()) == 0 {
				t.Errorf("%s: %v, warnings %q", what, err, m.Warnings())
			}
			m.Close()
		}
	}
}
