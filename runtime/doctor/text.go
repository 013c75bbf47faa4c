package doctor

import (
	"fmt"
	"strings"
)

// String is a report of a few lines: what, where, why, and what to do.
func (d *Diagnosis) String() string {
	var b strings.Builder
	if d.Cause == None && d.Node == "" {
		fmt.Fprintf(&b, "no fault: %s\n", d.Why)
	} else {
		d.report(&b)
	}
	if d.Before != nil {
		fmt.Fprintf(&b, "on the variables as they started: %s\n", d.Before)
	}
	for _, n := range d.Notes {
		fmt.Fprintf(&b, "  note: %s\n", n)
	}
	return strings.TrimRight(b.String(), "\n")
}

func (d *Diagnosis) report(b *strings.Builder) {
	title := d.Cause.String()
	if d.Cause == None {
		title = "no fault"
	}
	fmt.Fprintf(b, "%s: %%%s = %s", title, d.Node, d.Op)
	if d.Of != "" {
		fmt.Fprintf(b, ", gradient of %s", d.Of)
	}
	fmt.Fprintf(b, " (%s", d.Direction)
	if d.Scope != "" {
		fmt.Fprintf(b, ", in %s", d.Scope)
	}
	if d.Pos != "" {
		fmt.Fprintf(b, ", at %s", d.Pos)
	}
	if d.Micro > 0 {
		fmt.Fprintf(b, ", micro-batch %d", d.Micro)
	}
	b.WriteString(")\n")
	fmt.Fprintf(b, "  why: %s\n", d.Why)
	for _, r := range d.Inputs {
		fmt.Fprintf(b, "  reads: %s\n", r)
	}
	if d.Output != nil {
		fmt.Fprintf(b, "  result: %s\n", d.Output)
	}
	if d.Wide != nil {
		fmt.Fprintf(b, "  in f32: %s\n", d.Wide)
	}
	if d.Scale != 1 && d.Scale != 0 {
		fmt.Fprintf(b, "  loss scale: %g\n", d.Scale)
	}
	if d.Advice != "" {
		fmt.Fprintf(b, "  do: %s\n", d.Advice)
	}
}
