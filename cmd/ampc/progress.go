package main

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how a run is getting on: a bar on a terminal, now and then a
// line anywhere else.
type progress struct {
	w     io.Writer
	bar   *progressbar.ProgressBar // nil off a terminal
	every int                      // steps between lines; 0: silent
	total int
}

func newProgress(w io.Writer, quiet bool, done, total int) *progress {
	p := &progress{w: w, total: total}
	if quiet {
		return p
	}
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		p.every = max(total/10, 1)
		return p
	}
	p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(w), progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100e6), progressbar.OptionSetPredictTime(true))
	p.bar.Set(done)
	return p
}

func (p *progress) show(step int, loss, scale float64, skipped int, rate float64, unit string) {
	line := fmt.Sprintf("loss %.4f  scale %s  skipped %d  %.0f %s/s", loss, scaleText(scale), skipped, rate, unit)
	switch {
	case p.bar != nil:
		p.bar.Describe(line)
		p.bar.Set(step)
	case p.every > 0 && (step%p.every == 0 || step == p.total):
		fmt.Fprintf(p.w, "step %d/%d  %s\n", step, p.total, line)
	}
}

func (p *progress) close() {
	if p.bar != nil {
		p.bar.Exit()
		fmt.Fprintln(p.w)
	}
}
