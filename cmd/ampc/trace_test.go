package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// chromeEvent is what Chrome's trace format asks of an event; ts and dur are in microseconds.
type chromeEvent struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat"`
	Ph   string         `json:"ph"`
	Ts   *float64       `json:"ts"`
	Dur  *float64       `json:"dur"`
	Pid  *int           `json:"pid"`
	Tid  *int           `json:"tid"`
	Args map[string]any `json:"args"`
}

// traceRow is a row of a trace, by process and thread.
type traceRow struct{ pid, tid int }

// readTrace reads a file as Chrome's trace format: an object with events, of which those of
// metadata name every process and row and complete ones have a duration, begin in order of time and
// do not overlap in one row. It returns the names and the complete events of the rows.
func readTrace(t *testing.T, path string) (names map[traceRow]string, rows map[traceRow][]chromeEvent) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		Unit   string        `json:"displayTimeUnit"`
		Events []chromeEvent `json:"traceEvents"`
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&trace); err != nil || trace.Unit != "ms" && trace.Unit != "ns" {
		t.Fatal(err, trace.Unit)
	}
	names, rows = map[traceRow]string{}, map[traceRow][]chromeEvent{}
	processes := map[int]string{}
	last := 0.0
	for i, e := range trace.Events {
		if e.Name == "" || e.Ts == nil || e.Pid == nil || e.Tid == nil {
			t.Fatalf("event %d lacks a field: %+v", i, e)
		}
		row := traceRow{*e.Pid, *e.Tid}
		name, _ := e.Args["name"].(string)
		switch {
		case e.Ph == "M" && e.Name == "process_name" && name != "":
			processes[row.pid] = name
		case e.Ph == "M" && e.Name == "thread_name" && name != "":
			names[row] = name
		case e.Ph == "M" && e.Name == "thread_sort_index":
			if _, ok := e.Args["sort_index"].(float64); !ok {
				t.Errorf("event %d: %v", i, e.Args)
			}
		case e.Ph == "X" && e.Dur != nil && *e.Dur >= 0 && *e.Ts >= last && e.Cat != "":
			last = *e.Ts
			if names[row] == "" || processes[row.pid] == "" {
				t.Errorf("event %d: its row or process has no name before it", i)
			}
			if n := len(rows[row]); n > 0 && *e.Ts+0.001 < rows[row][n-1].end() {
				t.Errorf("event %d, %s at %g, begins before the one before in its row ends, at %g", i, e.Name, *e.Ts, rows[row][n-1].end())
			}
			rows[row] = append(rows[row], e)
		default:
			t.Errorf("event %d: %+v", i, e)
		}
	}
	return names, rows
}

func (e *chromeEvent) end() float64 { return *e.Ts + *e.Dur }

// Every step of the program is in a trace as often as it ran, and workers of the CPU are at work
// inside the steps.
func TestTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	if code, _, errs := ampcRun("", "bench", "zoo:mlp?batch=64", "--steps", "2", "--policy", "mixed-f16", "--trace", path); code != 0 {
		t.Fatal(errs)
	}
	names, rows := readTrace(t, path)
	steps := rows[traceRow{1, 0}]
	if names[traceRow{1, 0}] != "steps" || len(steps) == 0 || len(steps)%2 != 0 {
		t.Errorf("%d steps in two runs, in the row %q", len(steps), names[traceRow{1, 0}])
	}
	for row, list := range rows {
		if row.tid == 0 {
			continue
		}
		if !strings.HasPrefix(names[row], "worker ") {
			t.Errorf("row %v is %q", row, names[row])
		}
		for _, e := range list {
			if !slices.ContainsFunc(steps, func(s chromeEvent) bool {
				return s.Name == e.Name && *s.Ts <= *e.Ts+0.001 && e.end() <= s.end()+0.001
			}) {
				t.Errorf("%s works on %s from %g to %g, when that step does not run", names[row], e.Name, *e.Ts, e.end())
			}
		}
	}
}

// The streams of a GPU are rows, with every step where the program has it.
func TestTraceOfStreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	args := []string{"zoo:mlp?batch=4&hidden=32", "--policy", "mixed-f16"}
	if code, _, errs := ampcRun("", append([]string{"bench", "--steps", "1", "--device", "sim:sm_90", "--trace", path}, args...)...); code != 0 {
		t.Fatal(errs)
	}
	names, rows := readTrace(t, path)
	code, program, errs := ampcRun("", append([]string{"dump", "--stage", "program", "--target", "sm_90"}, args...)...)
	if code != 0 {
		t.Fatal(errs)
	}
	aside := strings.Count(program, "stream=1")
	if aside == 0 || len(rows) != 2 || names[traceRow{1, 0}] != "stream 0" || names[traceRow{1, 1}] != "stream 1" || len(rows[traceRow{1, 1}]) != aside {
		t.Errorf("rows %v; %d steps on the second, want %d of\n%s", names, len(rows[traceRow{1, 1}]), aside, program)
	}
	for _, list := range rows {
		for _, e := range list {
			if e.Args["part"] == nil || e.Args["bytes"] == nil || e.Args["at"] == nil {
				t.Errorf("%s lacks what it is: %v", e.Name, e.Args)
			}
		}
	}
}
