package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"ampc/lower"
	"ampc/runtime"
)

// traced is one execution of a step of a program.
type traced struct {
	step   *lower.Step
	part   lower.Part
	timing runtime.Timing
}

// traceEvent is an event of Chrome's trace format: a complete event (X) with its start and
// duration in microseconds, or metadata (M) that names a process or a row.
type traceEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	Start float64        `json:"ts"`
	Took  *float64       `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// firstWorker is the row of worker 0. The rows before it are streams of steps.
const firstWorker = 256

// process returns the name of what ran the steps of a policy.
func (r *benchRow) process() string {
	switch {
	case strings.HasPrefix(r.device, "sim:"):
		return fmt.Sprintf("%s on %s: times of the simulation", r.policy, r.device)
	case r.onGPU():
		return fmt.Sprintf("%s on %s", r.policy, r.device)
	}
	return r.policy
}

func (r *benchRow) onGPU() bool { return r.device != "cpu" && r.device != "" }

// traceOf returns the events of all policies. Each policy is a process. A GPU has a row for each
// stream; the CPU has one for its steps and one for each worker.
func traceOf(rows []benchRow) []traceEvent {
	var list []traceEvent
	for pid := range rows {
		r := &rows[pid]
		if len(r.trace) == 0 {
			continue
		}
		zero := r.trace[0].timing.Start
		at := func(t time.Time) float64 { return float64(t.Sub(zero)) / 1e3 }
		names := map[int]string{}
		event := func(tid int, row, name, cat string, start time.Time, took time.Duration, args map[string]any) {
			names[tid] = row
			us := float64(took) / 1e3
			list = append(list, traceEvent{name, cat, "X", at(start), &us, pid + 1, tid, args})
		}
		for _, x := range r.trace {
			kind := x.step.Kind.String()
			if x.step.Kernel != nil {
				kind += " " + x.step.Kernel.Name
			}
			stream := int(x.step.Stream)
			row := "steps"
			if r.onGPU() {
				row = fmt.Sprintf("stream %d", stream)
			}
			event(stream, row, x.step.Node.Name, kind, x.timing.Start, x.timing.Took,
				map[string]any{"part": x.part.String(), "bytes": x.step.Bytes, "flops": x.step.Flops(), "at": x.step.Node.Pos.String()})
			for _, s := range x.timing.Spans {
				event(firstWorker+s.Worker, fmt.Sprintf("worker %d", s.Worker), x.step.Node.Name, kind, s.Start, s.Took, nil)
			}
		}
		list = append(list, traceEvent{Name: "process_name", Phase: "M", PID: pid + 1, Args: map[string]any{"name": r.process()}})
		for tid, name := range names {
			list = append(list, traceEvent{Name: "thread_name", Phase: "M", PID: pid + 1, TID: tid, Args: map[string]any{"name": name}},
				traceEvent{Name: "thread_sort_index", Phase: "M", PID: pid + 1, TID: tid, Args: map[string]any{"sort_index": tid}})
		}
	}
	slices.SortStableFunc(list, func(a, b traceEvent) int { // metadata first, then by time
		switch {
		case a.Phase != b.Phase:
			return bytes.Compare([]byte(a.Phase), []byte(b.Phase))
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return a.TID - b.TID
	})
	return list
}

func writeTrace(path string, rows []benchRow) error {
	text, err := json.Marshal(map[string]any{"displayTimeUnit": "ms", "traceEvents": traceOf(rows)})
	if err != nil {
		return err
	}
	return writeFile(path, text)
}
