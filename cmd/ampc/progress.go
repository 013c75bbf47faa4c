package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// progress shows the progress of a run: on a terminal as one line that is overwritten, elsewhere as
// a line from time to time.
type progress struct {
	w           io.Writer
	width       func() int // returns the columns of the terminal; nil if the output is not a terminal
	silent      bool
	every       int // steps between lines if the output is not a terminal
	from, total int
	began, last time.Time
	open        bool // the cursor is at the end of a line that will be overwritten
}

// status is the content of a progress line.
type status struct {
	step    int
	loss    float64 // loss of this step
	mean    string  // mean loss of recent steps
	taken   bool    // whether the step was skipped
	scale   float64
	skipped int
	rate    float64
	unit    string
}

const (
	lineEvery    = time.Minute // longest time between lines if the output is not a terminal
	redrawEvery  = 100 * time.Millisecond
	defaultWidth = 80
)

func newProgress(w io.Writer, quiet bool, done, total int) *progress {
	p := &progress{w: w, silent: quiet, from: done, total: total, every: max(total/10, 1), began: time.Now(), last: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.last = time.Time{}
		p.width = func() int {
			if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
				return columns
			}
			return defaultWidth
		}
	}
	return p
}

func (p *progress) show(s status) {
	now := time.Now()
	ended := s.step == p.total
	switch {
	case p.silent:
	case p.width != nil && (ended || now.Sub(p.last) >= redrawEvery):
		// A line as wide as the terminal would wrap on some.
		fmt.Fprintf(p.w, "\r%s\x1b[K", joined(p.fields(s, now), p.width()-1))
		p.last, p.open = now, true
	case p.width == nil && (ended || s.step%p.every == 0 || now.Sub(p.last) >= lineEvery):
		fmt.Fprintln(p.w, strings.Join(p.fields(s, now), "  "))
		p.last = now
	}
}

// note prints a separate line, even if progress is not shown.
func (p *progress) note(format string, args ...any) {
	p.close()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// close ends the line that is being overwritten.
func (p *progress) close() {
	if p.open {
		fmt.Fprintln(p.w)
		p.open = false
	}
}

// fields returns the parts of the line, the most important first.
func (p *progress) fields(s status, now time.Time) []string {
	loss := fmt.Sprintf("loss %.4f", s.loss)
	if !s.taken {
		loss += " (skipped)"
	}
	f := []string{fmt.Sprintf("step %d/%d", s.step, p.total), loss}
	if s.scale > 0 {
		f = append(f, "scale "+scaleText(s.scale))
	}
	f = append(f, fmt.Sprintf("skipped %d", s.skipped))
	if left := p.left(s.step, now); left > 0 {
		f = append(f, left.String()+" left")
	}
	return append(f, "mean "+s.mean, fmt.Sprintf("%.0f %s/s", s.rate, s.unit))
}

// left estimates the remaining time from the pace so far.
func (p *progress) left(step int, now time.Time) time.Duration {
	if step <= p.from {
		return 0
	}
	pace := now.Sub(p.began) / time.Duration(step-p.from)
	return (pace * time.Duration(p.total-step)).Round(time.Second)
}

// joined is as many fields as have room in a line of that many columns.
func joined(fields []string, columns int) string {
	line := ""
	for i, f := range fields {
		if i > 0 {
			f = "  " + f
		}
		if utf8.RuneCountInString(line)+utf8.RuneCountInString(f) > columns {
			break
		}
		line += f
	}
	return line
}
