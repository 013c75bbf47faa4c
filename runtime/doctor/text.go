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

// maxReads is how many operands a report prints: an update's check reads hundreds.
const maxReads = 4

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
	for i, r := range d.Inputs {
		if i == maxReads {
			fmt.Fprintf(b, "  reads: %d more\n", len(d.Inputs)-i)
			break
		}
		fmt.Fprintf(b, "  reads: %s\n", r)
	}
	if d.Output != nil {
		fmt.Fprintf(b, "  result: %s\n", d.Output)
	}
	if d.Wide != nil {
		fmt.Fprintf(b, "  in f32: %s\n", d.Wide)
	}
	if d.BF16 != nil {
		fmt.Fprintf(b, "  in bf16: %s\n", d.BF16)
	}
	if d.Scale != 1 && d.Scale != 0 {
		fmt.Fprintf(b, "  %s: %g\n", d.ScaleName, d.Scale)
	}
	if d.Advice != "" {
		fmt.Fprintf(b, "  do: %s\n", d.Advice)
	}
}
