package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestProfileOfLaunches: a profile on a GPU has a line for every launch, with its share of a copy's rate,
// and the step as a graph takes less than its launches one by one.
func TestProfileOfLaunches(t *testing.T) {
	args := []string{"bench", "zoo:mlp?batch=8&hidden=16", "--policy", "mixed-f16", "--device", "sim:sm_90", "--steps", "1", "--profile"}
	output := func(args ...string) string {
		t.Helper()
		code, out, errs := ampcRun("", args...)
		if code != 0 {
			t.Fatal(errs)
		}
		return out
	}
	text := output(args...)
	for _, want := range []string{"each launch alone (a copy: ", "of copy", "TFLOP/s", "gemm f16 8x16x", "launches alone, added up", "the step as one graph"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var rows []benchJSON
	if err := json.Unmarshal([]byte(output(append(args, "--json")...)), &rows); err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, l := range rows[0].Launches {
		if l.Each <= 0 || l.Calls < 1 || l.Share < 0 || l.Share > 1.01 {
			t.Errorf("%+v", l)
		}
		sum += l.Each * int64(l.Calls)
	}
	if rows[0].Graph <= 0 || rows[0].Graph > sum || rows[0].Copy < 1e12 {
		t.Errorf("a step takes %d ns, its launches %d ns, a copy has %g bytes/s", rows[0].Graph, sum, rows[0].Copy)
	}
}
