package ampc_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"ampc"
)

func TestSetLRFreezeAndResults(t *testing.T) {
	m, loss := small(8)
	c := ampc.TrainConfig{Groups: []ampc.Group{
		{Pattern: "fc1", Freeze: true},
		{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5)},
	}, Policy: ampc.MixedF16()}
	s := train(t, m, loss, c)
	frozen, _ := m.Variable("fc1.w")
	trained, _ := m.Variable("fc2.w")
	if err := s.SetLR(0); err != nil {
		t.Fatal(err)
	}
	r := run(t, s, points(1, 8))
	if metrics(t, r).LR != 0 {
		t.Errorf("learning rate %g, want 0", metrics(t, r).LR)
	}
	if now, _ := m.Variable("fc2.w"); !bytes.Equal(now.Bytes, trained.Bytes) {
		t.Error("a rate of 0 changed a weight")
	}
	if err := s.SetLR(0.1); err != nil {
		t.Fatal(err)
	}
	r = run(t, s, points(1, 8))
	if now, _ := m.Variable("fc2.w"); bytes.Equal(now.Bytes, trained.Bytes) {
		t.Error("a rate of 0.1 left a weight as it was")
	}
	if now, _ := m.Variable("fc1.w"); !bytes.Equal(now.Bytes, frozen.Bytes) {
		t.Error("a frozen weight changed")
	}
	if !s.Scaled() || metrics(t, r).Scale != 65536 || metrics(t, r).Skipped {
		t.Errorf("scaled %t, scale %g, skipped %t", s.Scaled(), metrics(t, r).Scale, metrics(t, r).Skipped)
	}
	_, err := r.Value(m.Lookup("fc1"))
	wantError(t, err, "fc1", "TrainConfig.Outputs")
	_, err = r.Grad(m.Lookup("fc2.w"))
	wantError(t, err, "fc2.w", "TrainConfig.Grads")
	if _, err := (*ampc.Result)(nil).Value(loss); err == nil {
		t.Error("a result without a step has a value")
	}
}

// Averages that no step keeps are an error: the live weights are not read in their place.
func TestAveragesThatNoStepKeeps(t *testing.T) {
	const add = "no training step keeps averages: compile Train with TrainConfig.EMA first"
	for name, c := range map[string]struct {
		train []ampc.TrainConfig
		step  string
		want  string // "": no error
	}{
		"never trained":         {nil, "", "InferConfig.Weights is EMA and " + add},
		"never trained, a name": {nil, "a", `InferConfig.Step is "a" and ` + add},
		"trained without":       {[]ampc.TrainConfig{{}}, "", "InferConfig.Weights is EMA and " + add},
		"another step":          {[]ampc.TrainConfig{{Name: "a", EMA: 0.5}, {Name: "b"}}, "b", `InferConfig.Step is "b", which keeps no averages: steps that do are ["a"]`},
		"that step":             {[]ampc.TrainConfig{{Name: "a", EMA: 0.5}, {Name: "b"}}, "a", ""},
		"the only one":          {[]ampc.TrainConfig{{Name: "a", EMA: 0.5}, {Name: "b"}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := ampc.New("average")
			defer m.Close()
			y := m.Mul(m.Param("w", ampc.Fill(1), 1), m.Input("x", ampc.F32, 1))
			loss := m.ReduceSum(y)
			for _, config := range c.train {
				config.Optimizer, config.LR = ampc.SGD(0), ampc.Constant(1)
				train(t, m, loss, config)
			}
			_, err := m.Infer(ampc.InferConfig{Weights: ampc.EMA, Step: c.step}, y)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			if text := err.Error(); !strings.Contains(text, c.want) || !strings.Contains(text, "train_test.go:") || strings.Contains(text, "\n") {
				t.Errorf("%s\nwant one line with its place and %s", text, c.want)
			}
		})
	}
}

// What a skipped step prepares for a diagnosis in the background does not disturb steps that run
// on, steps and models that are closed, or the diagnosis.
func TestPreparedBesideSteps(t *testing.T) {
	ctx := context.Background()
	for _, end := range []string{"run", "close step", "close model", "diagnose"} {
		m := ampc.New("small", ampc.Seed(1))
		x := m.Input("x", ampc.F32, 8, 16)
		loss := m.MSE(m.Linear("fc", x, 4), m.Input("y", ampc.F32, 8, 4))
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16(), RestoreScale: ampc.RestoreNever}, ampc.Loss{Value: loss})
		if err != nil {
			t.Fatal(err)
		}
		feed := make([]float32, 8*16)
		for i := range feed {
			feed[i] = 1e6
		}
		run := func() {
			r, err := step.Run(ctx, ampc.Feed{"x": feed, "y": make([]float32, 8*4)})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := r.Wait(ctx); err != nil || !got.Skipped {
				t.Fatalf("skipped %t: %v", got.Skipped, err)
			}
		}
		run()
		switch end {
		case "run":
			for range 20 {
				run()
			}
		case "close step":
			err = step.Close()
		case "diagnose":
			var d *ampc.Diagnosis
			if d, err = step.Diagnose(ctx); err == nil && d.Cause != ampc.ForwardOverflow {
				t.Errorf("%s: %s", end, d)
			}
		}
		if err != nil {
			t.Errorf("%s: %v", end, err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("%s: %v", end, err)
		}
	}
}
