package gpu_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/runtime/gpu"
	"ampc/runtime/runtimetest"
)

// TestAlgorithmsAreKept loads a program on two devices of one kind: the first
// times every product's candidates, the second takes what the first has kept.
func TestAlgorithmsAreKept(t *testing.T) {
	dir := t.TempDir()
	var first []gpu.Chosen
	for pass := range 2 {
		b := openSim(t, "sm_90")
		b.Tune(dir)
		e, s, err := load(t, b, ready(t, "mlp?batch=4&hidden=32&layers=3", "mixed-f16", "sm_90")[0])
		if err != nil {
			t.Fatal(err)
		}
		chosen := slices.DeleteFunc(b.Chosen(), func(c gpu.Chosen) bool { return c.Name != "" }) // of epilogues and streams
		steps := 0
		for i, c := range chosen {
			steps += c.Steps
			if (c.Tried != 3 && !onSilicon()) || c.Tried == 0 || c.Kept != (pass == 1) || pass == 1 && c.Algo != first[i].Algo {
				t.Errorf("load %d: %+v", pass, c)
			}
		}
		if steps != 11 || len(chosen) >= steps { // four layers, the first without a gradient of its input
			t.Errorf("%d products in %d problems", steps, len(chosen))
		}
		first = chosen
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Models with what is chosen by measurement: epilogues that keep, read and sum something, and work beside
// other work.
const (
	ends   = "gpt2?layers=1&batch=1&seq=4&dim=8&heads=1&vocab=8"
	beside = "mlp?batch=4&in=8&hidden=16&layers=3&classes=8"
)

// tuned trains a model on a device that measures and keeps its choices in dir. It gives the losses, the
// notes, and what was chosen for problems by their beginning.
func tuned(t *testing.T, opt sim.Options, dir, spec string) (losses []float64, notes string, chosen func(what string) []gpu.Chosen) {
	t.Helper()
	_, b := device(t, opt)
	b.Tune(dir)
	losses, notes = firstLosses(t, spec, b)
	list := b.Chosen()
	return losses, notes, func(what string) []gpu.Chosen {
		return slices.DeleteFunc(slices.Clone(list), func(c gpu.Chosen) bool { return !strings.HasPrefix(c.Problem, what) })
	}
}

// TestEpiloguesAreMeasured: where a library's GELU is slow, a product and a kernel take its place, by what
// was measured. The next process finds that and measures nothing.
func TestEpiloguesAreMeasured(t *testing.T) {
	fast, notes, chosen := tuned(t, sim.Options{}, "", ends)
	list := chosen("epilogue of ")
	if len(list) < 3 || strings.Contains(notes, "measured") {
		t.Errorf("%d epilogues, notes:\n%s", len(list), notes)
	}
	for _, c := range list {
		if c.Name != cuda.EpilogueFused || c.Tried != 2 || c.Other <= c.Time {
			t.Errorf("%+v, want it fused", c)
		}
	}
	dir := t.TempDir()
	slow := sim.Options{Slow: []sim.Slow{{What: "epilogue 164", Times: 1e5}}} // GELU, its argument, a bias
	for pass := range 2 {
		losses, notes, chosen := tuned(t, slow, dir, ends)
		split := slices.DeleteFunc(chosen("epilogue of "), func(c gpu.Chosen) bool { return c.Name != cuda.EpilogueSplit })
		if len(split) != 1 || split[0].Kept != (pass == 1) || split[0].Other <= split[0].Time || !strings.Contains(split[0].Problem, "epilogue=164") {
			t.Errorf("load %d: %+v", pass, split)
		}
		if strings.Count(notes, "measured, step ") != 1 || !strings.Contains(notes, "slower in the library's epilogue: ") {
			t.Errorf("load %d, notes:\n%s", pass, notes)
		}
		for i := range losses {
			if d := math.Abs(losses[i] - fast[i]); !(d <= 2e-3*fast[i]) {
				t.Errorf("load %d: loss %d is %g, %g with the epilogue", pass, i, losses[i], fast[i])
			}
		}
	}
}

// TestFilterGradientsAreMeasured: where a library is slow with f32 gradients of 16-bit filters they are of
// 16 bits, by what was measured, which the next process finds. Those of pointwise convolutions are f32, as
// products.
func TestFilterGradientsAreMeasured(t *testing.T) {
	const images = "resnet8?batch=2&size=8&width=8"
	fast, notes, chosen := tuned(t, sim.Options{}, "", images)
	list := chosen("f32 beside ")
	if len(list) < 3 || strings.Contains(notes, "measured") {
		t.Errorf("%d gradients of filters, notes:\n%s", len(list), notes)
	}
	for _, c := range list {
		if c.Name != cuda.FilterWide || c.Tried != 2 {
			t.Errorf("%+v, want f32", c)
		}
	}
	dir := t.TempDir()
	for pass := range 2 {
		losses, notes, chosen := tuned(t, sim.Options{Slow: []sim.Slow{{What: "conv in f32", Times: 1e5}}}, dir, images)
		narrow := chosen("f32 beside ")
		if len(narrow) != len(list) {
			t.Errorf("load %d: %d gradients measured, %d before", pass, len(narrow), len(list))
		}
		for _, c := range narrow {
			if c.Name != cuda.FilterNarrow || c.Kept != (pass == 1) || c.Other <= c.Time {
				t.Errorf("load %d: %+v, want 16 bits", pass, c)
			}
		}
		if strings.Count(notes, "slower in f32: ") != len(list) || !strings.Contains(notes, "gradients of 16-bit filters are of 16 bits, then cast") {
			t.Errorf("load %d, notes:\n%s", pass, notes)
		}
		for i := range losses {
			if d := math.Abs(losses[i] - fast[i]); !(d <= 2e-3*fast[i]) {
				t.Errorf("load %d: loss %d is %g, %g with f32 gradients", pass, i, losses[i], fast[i])
			}
		}
	}
}

// TestStreamsAreMeasured: a Program keeps to one stream where a second makes it slower. It computes the
// same bits, from variables as they were before the measurement.
func TestStreamsAreMeasured(t *testing.T) {
	two, _, chosen := tuned(t, sim.Options{}, "", beside)
	if list := chosen("streams of "); len(list) != 1 || list[0].Name != "two streams" || list[0].Tried != 2 {
		t.Errorf("%+v, want two streams", list)
	}
	dir := t.TempDir()
	for pass := range 2 {
		one, _, chosen := tuned(t, sim.Options{Crowded: 1e5}, dir, beside)
		list := chosen("streams of ")
		if len(list) != 1 || list[0].Name != "one stream" || list[0].Kept != (pass == 1) || list[0].Other <= list[0].Time {
			t.Errorf("load %d: %+v, want one stream", pass, list)
		}
		if !slices.Equal(one, two) {
			t.Errorf("load %d: losses %v on one stream, %v on two", pass, one, two)
		}
	}
}

// TestSumsVaryBySwitch: attention has the same sums in every run unless Vary allows others.
func TestSumsVaryBySwitch(t *testing.T) {
	engines := []sim.Engine{{Index: 1, Times: 1e4, Workspace: 1 << 10, Parts: 1},
		{Index: 2, Times: 1, Workspace: 1 << 10, Parts: 2, Notes: []int32{cuda.NoteNondeterministic}}}
	g := ready(t, "gpt?layers=1&batch=1&seq=128&dim=8&heads=1&vocab=8", "mixed-f16", "sm_90")[0]
	for vary, want := range map[bool]string{false: "a0:1", true: "a1:2"} {
		_, b := device(t, sim.Options{Engines: engines})
		b.Tune("")
		b.Vary(vary)
		l := runtimetest.Load(t, b, g, 1)
		list := slices.DeleteFunc(b.Chosen(), func(c gpu.Chosen) bool { return !strings.HasPrefix(c.Problem, "attention") })
		if len(list) != 2 {
			t.Errorf("%d graphs of attention", len(list))
		}
		for _, c := range list {
			if c.Name != want {
				t.Errorf("vary %t: %+v, want %s", vary, c, want)
			}
		}
		l.Close(t)
	}
	for name, want := range map[string]bool{"sim:sm_90/vary": true, "sim:sm_90/nodnn/vary": true, "sim:sm_90/vary/nodnn": false} {
		b, err := gpu.OpenNamed(name)
		if (err == nil) != want || want && b.Name() != name {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && b.Close() != nil {
			t.Errorf("%s is not closed", name)
		}
	}
}
