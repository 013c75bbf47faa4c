package gpu_test

import (
	"context"
	"math/rand/v2"
	"reflect"
	"testing"

	"ampc/cuda/sim"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/gpu"
	"ampc/runtime/runtimetest"
)

// Under a profile every step of the Program is timed as often as it runs, in its order on its
// stream, and the variables come out as without. Afterwards steps are graphs again.
func TestProfile(t *testing.T) {
	const micro = 3
	d, b := device(t, sim.Options{})
	g := small(t, micro, 100)
	l := runtimetest.Load(t, b, g, 1)
	defer l.Close(t)
	_, plain := device(t, sim.Options{})
	want := runtimetest.Load(t, plain, g, 1)
	defer want.Close(t)
	r := rand.New(rand.NewPCG(3, 4))
	step := func() {
		t.Helper()
		feeds := make([]runtime.Feed, micro)
		for i := range feeds {
			feeds[i] = batch(t, g, r, false)
		}
		for _, x := range []*runtimetest.Loaded{l, want} {
			if _, err := x.Exec.Step(context.Background(), feeds); err != nil {
				t.Fatal(err)
			}
		}
	}
	step()
	ran := map[[2]int]int{}
	ends := map[uint8]runtime.Timing{}
	x := l.Exec.(*gpu.Exec)
	x.Profile(func(part lower.Part, i int, timing runtime.Timing) {
		ran[[2]int{int(part), i}]++
		s := &l.Program.Parts[part][i]
		before, seen := ends[s.Stream]
		if timing.Took < 0 || seen && timing.Start.Before(before.Start.Add(before.Took)) {
			t.Errorf("%s step %d begins at %v, the one before on stream %d ended at %v", part, i, timing.Start, s.Stream, before.Start.Add(before.Took))
		}
		ends[s.Stream] = timing
	})
	const steps = 2
	for range steps {
		step()
	}
	for part, list := range l.Program.Parts {
		for i := range list {
			times := steps
			if lower.Part(part) == lower.Micro {
				times *= micro
			}
			if n := ran[[2]int{part, i}]; n != times {
				t.Errorf("%s step %d was timed %d times, want %d", lower.Part(part), i, n, times)
			}
		}
	}
	x.Profile(nil)
	before := d.Stats.GraphLaunches
	step()
	if n := d.Stats.GraphLaunches - before; n != 1 {
		t.Errorf("%d graph launches after the profile, want 1", n)
	}
	if !reflect.DeepEqual(want.Variables(t), l.Variables(t)) {
		t.Error("the variables differ from those of a run without a profile")
	}
	if len(ends) < 2 {
		t.Errorf("%d streams had steps", len(ends))
	}
}
