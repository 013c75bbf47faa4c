package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A search of the loss scale is given time, however long it is; steps that nothing but luck would take are not.
func TestHopelessness(t *testing.T) {
	type run struct {
		scaler string
		steps  int // it lasts
		stops  bool
		step   func(i int) (loss, scale float64, skipped bool)
	}
	for name, c := range map[string]run{
		"clean":           {"static", 1000, false, func(i int) (float64, float64, bool) { return 2, 1, false }},
		"static":          {"static", 25, true, func(i int) (float64, float64, bool) { return 2, 65536, true }},
		"not finite":      {"none", 25, true, func(i int) (float64, float64, bool) { return math.NaN(), 1, false }},
		"longest search":  {"torch", 143, false, func(i int) (float64, float64, bool) { return 2, math.Ldexp(1, 16-i), i < 142 }},
		"two for a scale": {"deepspeed", 65, false, func(i int) (float64, float64, bool) { return 2, math.Ldexp(1, 32-i/2), i < 64 }},
		"no end":          {"torch", 180, true, func(i int) (float64, float64, bool) { return 2, math.Ldexp(1, 127-i), true }},
		"one in ten":      {"static", 199, true, func(i int) (float64, float64, bool) { return 2, 1, i%10 != 9 }},
		"one in nine":     {"static", 5000, false, func(i int) (float64, float64, bool) { return 2, 1, i%9 != 8 }},
	} {
		var r recent
		why, steps := "", 0
		for ; steps < 5000 && why == ""; steps++ {
			loss, scale, skipped := c.step(steps)
			r.add(loss, scale, skipped)
			why = r.stalled(1)
			if !c.stops && steps == c.steps {
				break
			}
		}
		if c.stops != (why != "") || c.stops && steps != c.steps {
			t.Errorf("%s: after %d steps %q, want %d", name, steps, why, c.steps)
		}
	}
}

// The mean that is shown is of steps that were taken; where none was there is none.
func TestMeanOfTakenSteps(t *testing.T) {
	var r recent
	if r.meanText() != "none" {
		t.Error("a mean of nothing")
	}
	r.add(100, 1, false)
	for range averaged / 2 {
		r.add(2, 1, false)
		r.add(math.Inf(1), 1, true)
	}
	if got := r.meanText(); got != "2.0000" { // the first step is out of sight
		t.Errorf("mean %s, want 2.0000", got)
	}
	for range averaged {
		r.add(2, 1, true)
	}
	if got := r.meanText(); got != "none" {
		t.Errorf("mean %s of skipped steps", got)
	}
}

// Under a static scale nothing ends a row of skipped steps: the run is stopped, says what to do, and shows no loss of an
// earlier step.
func TestDeadTrainingIsStopped(t *testing.T) {
	for name, args := range map[string][]string{
		"static": {"--scaler", "1267650600228229401496703205376"}, // 2^100
		"o3-f16": {"--policy", "o3-f16", "--lr", "1e4"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		code, stdout, stderr := ampcRun("", append([]string{"train", tiny, "--text", rhyme(t), "--out", out, "--steps", "3000"}, args...)...)
		if code != exitStuck || !strings.Contains(stderr, "in a row were skipped") {
			t.Errorf("%s: code %d, want %d\n%s%s", name, code, exitStuck, stdout, stderr)
		}
		if name == "static" && !strings.Contains(stderr, "step 25: 25 steps in a row were skipped or not finite: the loss scale stays at 2^100: use --scaler dynamic") {
			t.Errorf("%s: no advice:\n%s", name, stderr)
		}
		if _, err := os.Stat(filepath.Join(out, curvesFile)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
