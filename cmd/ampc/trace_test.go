package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A trace has what Chrome's format asks for: complete events with times and rows, rows that
// are named, and events of one row that do not overlap. Every step of the program is there
// as often as it ran, and workers are at work inside the steps.
func TestTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	if code, _, errs := ampcRun("", "bench", "zoo:mlp?batch=64", "--steps", "2", "--policy", "mixed-f16", "--trace", path); code != 0 {
		t.Fatal(errs)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		Unit   string                       `json:"displayTimeUnit"`
		Events []map[string]json.RawMessage `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &trace); err != nil || trace.Unit != "ms" && trace.Unit != "ns" {
		t.Fatal(err, trace.Unit)
	}
	type row struct{ pid, tid int }
	named, until := map[row]string{}, map[row]float64{}
	stepRow, steps, workers := row{1, 0}, 0, 0
	var stepEnd float64
	for i, e := range trace.Events {
		var at struct {
			Name, Ph string
			Ts, Dur  *float64
			Pid, Tid *int
			Args     struct{ Name string }
		}
		whole, err := json.Marshal(e)
		if err == nil {
			err = json.Unmarshal(whole, &at)
		}
		if err != nil || at.Name == "" || at.Ts == nil || at.Pid == nil || at.Tid == nil {
			t.Fatalf("event %d: %s: %v", i, whole, err)
		}
		r := row{*at.Pid, *at.Tid}
		switch at.Ph {
		case "M":
			if at.Name == "thread_name" {
				named[r] = at.Args.Name
			}
		case "X":
			if at.Dur == nil || *at.Dur < 0 || *at.Ts < 0 || *at.Ts+0.001 < until[r] {
				t.Errorf("event %d: %s begins before %g, where the one before in its row ends", i, whole, until[r])
			}
			until[r] = *at.Ts + *at.Dur
			if named[r] == "" {
				t.Errorf("event %d: %s: its row has no name", i, whole)
			}
			if r == stepRow {
				steps, stepEnd = steps+1, until[r]
			} else {
				workers++
				if until[r] > stepEnd+0.001 {
					t.Errorf("event %d: %s: a worker is at work after its step, which ends at %g", i, whole, stepEnd)
				}
			}
		default:
			t.Errorf("event %d: phase %q", i, at.Ph)
		}
	}
	_, out, _ := ampcRun("", "dump", "zoo:mlp?batch=64", "--stage", "program")
	if steps == 0 || steps%2 != 0 {
		t.Errorf("%d steps in two runs of\n%s", steps, out)
	}
	for r, name := range named {
		if r != stepRow && !strings.HasPrefix(name, "worker ") {
			t.Errorf("row %v is %q", r, name)
		}
	}
	t.Logf("%d steps, %d stretches of work", steps, workers)
}
