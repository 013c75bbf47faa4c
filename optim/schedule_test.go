package optim_test

import (
	"math"
	"strings"
	"testing"

	"ampc"
	"ampc/optim"
)

// Schedules give PyTorch's rates over 100 steps.
func TestSchedulesAgainstPyTorch(t *testing.T) {
	want := recorded(t).Schedules
	polynomial := optim.Polynomial(0.5, 2, 0, 80)
	for name, s := range map[string]ampc.Schedule{
		"one-cycle": optim.OneCycle(0.5, 100), "polynomial": polynomial, "restarts": optim.CosineRestarts(0.5, 10, 2, 4, 0.1),
	} {
		if len(want[name]) != 100 {
			t.Fatalf("%s: %d rates are recorded", name, len(want[name]))
		}
		step := newStepper(t, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: s}, []int{2})
		for i, w := range want[name] {
			if got := step.run(t, 1, nil).LR; math.Abs(got-w) > 1e-6*0.5 {
				t.Errorf("%s: step %d has rate %g, PyTorch's %g", name, i, got, w)
			}
		}
	}
}

func TestWarmupStableDecay(t *testing.T) {
	step := newStepper(t, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: optim.WarmupStableDecay(1, 4, 5, 15)}, []int{2})
	for i, want := range []float64{0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0, 0} {
		if got := step.run(t, 1, nil).LR; math.Abs(got-want) > 1e-6 {
			t.Errorf("step %d has rate %g, want %g", i, got, want)
		}
	}
}

func TestPlateauAgainstPyTorch(t *testing.T) {
	step := newStepper(t, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5)}, []int{2})
	p := optim.Plateau{Patience: 2, Least: 0.006}
	for i, want := range recorded(t).Schedules["plateau"] {
		loss := 0.01
		if i < 14 {
			loss = math.Exp(-0.5 * float64(min(i, 5)))
		}
		lowered, err := p.Observe(step.step, 0.5, loss)
		if err != nil {
			t.Fatal(err)
		}
		got := step.run(t, 1, nil).LR
		if math.Abs(got-want) > 1e-7 || lowered != (i > 0 && want != recorded(t).Schedules["plateau"][i-1]) {
			t.Errorf("after loss %d the rate is %g, PyTorch's %g; lowered: %t", i, got, want, lowered)
		}
	}
}

func TestBadSchedules(t *testing.T) {
	for want, s := range map[string]ampc.Schedule{
		"no phases":                ampc.Phases(1),
		"phase 1: -1 steps":        optim.OneCycle(1, 0),
		"has 17 phases":            optim.CosineRestarts(1, 10, 1, 17, 0),
		"phase 2: From":            ampc.Phases(1, ampc.Phase{Steps: 1}, ampc.Phase{Steps: 1, From: -1}),
		"phase 1: 0 steps: want 1": ampc.Phases(1, ampc.Phase{From: 1}),
	} {
		m := ampc.New("m")
		loss := m.ReduceSum(m.Param("a", ampc.Fill(1), 5))
		_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: s}, ampc.Loss{Value: loss})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
