package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// summary prints the result of a run. After an interruption it omits what takes time.
func (t *trainer) summary(ctx context.Context, w io.Writer, interrupted bool) error {
	fmt.Fprintf(w, "step %d: training loss %s, %d skipped", t.done, t.recent.meanText(), t.skipped)
	if t.step.Scaled() {
		fmt.Fprintf(w, ", loss scale %s after %d backoffs and %d growths", scaleText(t.scale), t.backed, t.grown)
	}
	fmt.Fprintf(w, ", %s", t.took.Round(100*time.Millisecond))
	if t.done > t.started {
		fmt.Fprintf(w, ", %.0f %s/s", t.throughput(), t.unit)
	}
	fmt.Fprintln(w)
	if !interrupted {
		loss, accuracy, err := t.evaluate(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "held out: loss %.4f", loss)
		if !t.correct.Absent() {
			fmt.Fprintf(w, ", accuracy %.2f%%", 100*accuracy)
		}
		fmt.Fprintln(w)
		if t.sample != nil {
			text, err := t.sample(ctx, t.model)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "\nsample:\n%s\n\n", text)
		}
	}
	t.report.Print(w)
	for _, f := range [][2]string{{checkpointFile, "checkpoint"}, {graphFile, "annotated IR"}, {curvesFile, "curves"}, {curvesTable, "their numbers"}} {
		path := filepath.Join(t.saver.dir, f[0])
		if _, err := os.Stat(path); err == nil { // the disk may be full
			fmt.Fprintf(w, "wrote %s: %s\n", f[1], path)
		}
	}
	return nil
}
