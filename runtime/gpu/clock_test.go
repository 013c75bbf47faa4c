package gpu_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"ampc/cuda/sim"
	"ampc/runtime"
	"ampc/runtime/gpu"
	"ampc/runtime/runtimetest"
)

// TestClock: a step's time on the device is that of its operations, and a copy has the rate of the
// device's model.
func TestClock(t *testing.T) {
	_, b := device(t, sim.Options{})
	_, slow := device(t, sim.Options{Slow: []sim.Slow{{What: "kernel", Times: 1e6}}})
	var took [2]float64
	for i, b := range []*gpu.Backend{b, slow} {
		g := small(t, 1, 100)
		l := runtimetest.Load(t, b, g, 1)
		r := rand.New(rand.NewPCG(3, 4))
		b.Clock(true)
		for range 3 {
			if _, err := l.Exec.Step(context.Background(), []runtime.Feed{batch(t, g, r, false)}); err != nil {
				t.Fatal(err)
			}
		}
		times := b.StepTimes()
		if len(times) != 3 || times[2] <= 0 || times[2] > times[0] {
			t.Errorf("steps took %v: want three, and the first, call by call, the longest", times)
		}
		took[i] = times[2].Seconds()
		l.Close(t)
	}
	if took[1] < 1.5*took[0] {
		t.Errorf("a step takes %g s, one with slow kernels %g s", took[0], took[1])
	}
	rate, err := b.CopyRate()
	if err != nil || rate < 2.5e12 || rate > 4.3e12 {
		t.Errorf("copies %g bytes/s, %v", rate, err)
	}
}
