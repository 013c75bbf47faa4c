package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"ampc/lower"
)

// profile sums up where a step's time goes, by part and kind of work.
type profile struct {
	program *lower.Program
	byKind  map[string]*spent
}

// spent is what one kind of work took, and what it did in that time.
type spent struct {
	part, kind   string
	took         time.Duration
	calls        int
	flops, bytes int64
}

func (p *profile) add(part lower.Part, step int, took time.Duration) {
	s := &p.program.Parts[part][step]
	kind := s.Kind.String()
	if s.Kernel != nil {
		kind += " " + s.Kernel.Name
	}
	key := part.String() + "/" + kind
	if p.byKind[key] == nil {
		p.byKind[key] = &spent{part: part.String(), kind: kind}
	}
	x := p.byKind[key]
	x.took += took
	x.calls++
	x.flops += s.Flops()
	x.bytes += s.Bytes
}

func (p *profile) print(out io.Writer, policy string) error {
	total := time.Duration(0)
	for _, x := range p.byKind {
		total += x.took
	}
	rows := slices.SortedFunc(maps.Values(p.byKind), func(a, b *spent) int { return int(b.took - a.took) })
	fmt.Fprintf(out, "\n%s:\n", policy)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "share\ttime\tcalls\tGFLOP/s\tGB/s\tpart\twork\t")
	for _, x := range rows {
		flops := "-"
		if x.flops > 0 {
			flops = fmt.Sprintf("%.1f", float64(x.flops)/x.took.Seconds()/1e9)
		}
		fmt.Fprintf(w, "%.1f%%\t%s\t%d\t%s\t%.1f\t%s\t%s\t\n", 100*x.took.Seconds()/total.Seconds(), x.took.Round(time.Microsecond), x.calls,
			flops, float64(x.bytes)/x.took.Seconds()/1e9, x.part, x.kind)
	}
	return w.Flush()
}
