package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"ampc/lower"
	"ampc/runtime"
)

// profile sums the time of profiled steps by part and kind of work.
type profile struct {
	program *lower.Program
	steps   int
	byKind  map[string]*timeShare
}

// timeShare is the time of one kind of work, and the amount of work done.
type timeShare struct {
	part, kind        string
	took, busy, alone time.Duration
	workers           int
	calls, regions    int
	flops, bytes      int64
}

// add adds the timing of one step.
func (x *timeShare) add(s runtime.Timing) {
	x.took += s.Took
	x.busy += s.Busy
	x.alone += s.Alone
	x.regions += s.Regions
	x.workers = s.Workers
}

// shared describes the parallelism: the utilization of the workers, the share of the time in which
// one worker ran alone, and the number of parallel regions per step.
func (x *timeShare) shared(steps int) string {
	return fmt.Sprintf("%.1f%%\t%.1f%%\t%d", 100*x.busy.Seconds()/x.took.Seconds()/float64(x.workers), 100*x.alone.Seconds()/x.took.Seconds(), x.regions/steps)
}

func (p *profile) add(part lower.Part, step int, timing runtime.Timing) {
	s := &p.program.Parts[part][step]
	kind := s.Kind.String()
	if s.Kernel != nil {
		kind += " " + s.Kernel.Name
	}
	key := part.String() + "/" + kind
	if p.byKind[key] == nil {
		p.byKind[key] = &timeShare{part: part.String(), kind: kind}
	}
	x := p.byKind[key]
	x.add(timing)
	x.calls++
	x.flops += s.Flops()
	x.bytes += s.Bytes
}

// timeShareJSON is the sum over all profiled steps for one kind of work. Times are in nanoseconds.
type timeShareJSON struct {
	Part  string `json:"part"`
	Kind  string `json:"kind"`
	Took  int64  `json:"took_ns"`
	Busy  int64  `json:"busy_ns"` // summed over all workers
	Alone int64  `json:"alone_ns"`
	Calls int    `json:"calls"`
	Flops int64  `json:"flops"`
	Bytes int64  `json:"bytes"`
}

// describe lists the kinds of work, the one with the most time first.
func (p *profile) describe() []timeShareJSON {
	var list []timeShareJSON
	for _, x := range p.sorted() {
		list = append(list, timeShareJSON{x.part, x.kind, int64(x.took), int64(x.busy), int64(x.alone), x.calls, x.flops, x.bytes})
	}
	return list
}

func (p *profile) sorted() []*timeShare {
	return slices.SortedFunc(maps.Values(p.byKind), func(a, b *timeShare) int { return int(b.took - a.took) })
}

// print prints a line for each kind of work and a total. It omits parallelism if there is one
// worker.
func (p *profile) print(out io.Writer, policy string) error {
	rows := p.sorted()
	all := timeShare{part: "all", kind: fmt.Sprintf("%d steps", p.steps)}
	for _, x := range rows {
		all.add(runtime.Timing{Took: x.took, Busy: x.busy, Alone: x.alone, Regions: x.regions, Workers: x.workers})
		all.calls, all.flops, all.bytes = all.calls+x.calls, all.flops+x.flops, all.bytes+x.bytes
	}
	fmt.Fprintf(out, "\n%s:\n", policy)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "share\ttime\tcalls\tGFLOP/s\tGB/s\t"
	if all.workers > 1 {
		head += "busy\talone\tregions\t"
	}
	fmt.Fprintln(w, head+"part\twork\t")
	for _, x := range append(rows, &all) {
		flops, shared := "-", ""
		if x.flops > 0 {
			flops = fmt.Sprintf("%.1f", float64(x.flops)/x.took.Seconds()/1e9)
		}
		if all.workers > 1 {
			shared = x.shared(p.steps) + "\t"
		}
		fmt.Fprintf(w, "%.1f%%\t%s\t%d\t%s\t%.1f\t%s%s\t%s\t\n", 100*x.took.Seconds()/all.took.Seconds(), x.took.Round(time.Microsecond), x.calls,
			flops, float64(x.bytes)/x.took.Seconds()/1e9, shared, x.part, x.kind)
	}
	return w.Flush()
}
