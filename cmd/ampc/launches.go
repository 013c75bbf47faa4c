package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"ampc/lower"
	"ampc/lower/sm"
	"ampc/runtime"
	"ampc/runtime/gpu"
)

// launches has the time of every launch of a step on a GPU, by what is launched.
type launches struct {
	program *lower.Program
	steps   int
	byName  map[string]*launchTime
	copy    float64 // bytes that the device copies in a second, read and written
	graph   time.Duration
}

// launchTime is a kernel, or a library's problem.
type launchTime struct {
	part, name   string
	calls        int // in all steps
	took         []time.Duration
	flops, bytes int64 // of one
}

func (l *launches) add(part lower.Part, step int, timing runtime.Timing) {
	s := &l.program.Parts[part][step]
	name := s.Kind.String()
	switch {
	case s.Launch != nil:
		name = s.Launch.Kernel
	case s.Gemm != nil || s.Conv != nil || s.Attn != nil:
		name = sm.ProblemOf(l.program, s)
	}
	key := fmt.Sprint(part, " ", name, " ", s.Bytes)
	x := l.byName[key]
	if x == nil {
		x = &launchTime{part: part.String(), name: name, flops: s.Flops(), bytes: s.Bytes}
		l.byName[key] = x
	}
	x.calls++
	x.took = append(x.took, timing.Took)
}

// all is the time of all launches of a kind in one step.
func (x *launchTime) all(steps int) time.Duration {
	return median(x.took) * time.Duration(x.calls) / time.Duration(steps)
}

// finish measures what the launches are compared with: a copy, and steps as graphs.
func (l *launches) finish(b *gpu.Backend, run func() error) (err error) {
	if l.copy, err = b.CopyRate(); err != nil {
		return err
	}
	b.Clock(true)
	defer b.Clock(false)
	for range l.steps {
		if err := run(); err != nil {
			return err
		}
	}
	l.graph = median(b.StepTimes())
	return nil
}

func (l *launches) sorted() []*launchTime {
	return slices.SortedFunc(maps.Values(l.byName), func(a, b *launchTime) int {
		return cmp.Or(cmp.Compare(b.all(l.steps), a.all(l.steps)), cmp.Compare(a.name, b.name))
	})
}

// print prints a line for each distinct launch, then the sum and the step as a graph.
func (l *launches) print(out io.Writer, policy string) error {
	fmt.Fprintf(out, "\n%s, each launch alone (a copy: %.0f GB/s read and written):\n", policy, l.copy/1e9)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ms a step\tcalls\tms each\tGB/s\tof copy\tTFLOP/s\tpart\tlaunch\t")
	var sum time.Duration
	for _, x := range l.sorted() {
		sum += x.all(l.steps)
		each, flops := median(x.took).Seconds(), "-"
		if x.flops > 0 {
			flops = fmt.Sprintf("%.1f", float64(x.flops)/each/1e12)
		}
		rate := float64(x.bytes) / each
		fmt.Fprintf(w, "%.3f\t%d\t%.4f\t%.0f\t%.0f%%\t%s\t%s\t%s\t\n", x.all(l.steps).Seconds()*1e3, x.calls/l.steps, each*1e3, rate/1e9, 100*rate/l.copy, flops, x.part, x.name)
	}
	fmt.Fprintf(w, "%.3f\t\t\t\t\t\tall\tlaunches alone, added up\t\n", sum.Seconds()*1e3)
	fmt.Fprintf(w, "%.3f\t\t\t\t\t\tall\tthe step as one graph\t\n", l.graph.Seconds()*1e3)
	return w.Flush()
}

// launchJSON is a line of the table, times in nanoseconds.
type launchJSON struct {
	Part  string  `json:"part"`
	Name  string  `json:"launch"`
	Calls int     `json:"calls"`
	Each  int64   `json:"each_ns"`
	Bytes int64   `json:"bytes"`
	Flops int64   `json:"flops"`
	Share float64 `json:"of_copy"`
}

// describe lists the launches, nil for those of a CPU.
func (l *launches) describe() (list []launchJSON) {
	if l == nil {
		return nil
	}
	for _, x := range l.sorted() {
		each := median(x.took)
		list = append(list, launchJSON{x.part, x.name, x.calls / l.steps, int64(each), x.bytes, x.flops, float64(x.bytes) / each.Seconds() / l.copy})
	}
	return list
}
