package main

import (
	"context"
	"fmt"

	"ampc"
)

// limits after which a run is stopped
const (
	window    = 200 // number of recent steps that are considered
	maxBad    = 180 // a run with this many bad steps among them makes no progress
	badInARow = 25  // bad steps in a row without a fall of the loss scale
	averaged  = 100 // number of steps in the mean loss that is printed
)

// recent records the last steps. A step is bad if it was skipped or its loss is not finite.
type recent struct {
	losses [window]float64
	bad    [window]bool
	n      int // number of steps so far
	row    int // consecutive bad steps since the loss scale last fell
	scale  float64
}

func (r *recent) add(loss, scale float64, skipped bool) {
	bad := skipped || !finite(loss)
	r.losses[r.n%window], r.bad[r.n%window] = loss, bad
	r.n++
	if !bad || scale < r.scale { // while the scale falls, the scaler is still searching for a scale
		r.row = 0
	}
	if bad {
		r.row++
	}
	r.scale = scale
}

// mean returns the mean loss of the good steps among the last ones; ok is false if there are none.
func (r *recent) mean() (mean float64, ok bool) {
	n := 0.0
	for i := max(r.n-averaged, 0); i < r.n; i++ {
		if !r.bad[i%window] {
			n++
			mean += (r.losses[i%window] - mean) / n
		}
	}
	return mean, n > 0
}

// meanText formats the mean for output.
func (r *recent) meanText() string {
	if mean, ok := r.mean(); ok {
		return fmt.Sprintf("%.4f", mean)
	}
	return "none"
}

// stalled returns the reason why training makes no progress, or "".
func (r *recent) stalled(hysteresis int) string {
	bad := 0
	for _, b := range r.bad {
		if b {
			bad++
		}
	}
	switch {
	case r.row >= max(badInARow, 2*hysteresis):
		return fmt.Sprintf("%d steps in a row were skipped or not finite", r.row)
	case bad >= maxBad:
		return fmt.Sprintf("%d of the last %d steps were skipped or not finite", bad, window)
	}
	return ""
}

// stuck returns an error if training makes no progress. Before that it runs the doctor, and saves
// the step if --save-bad is given. All ranks come here after the same step.
func (t *trainer) stuck(ctx context.Context) error {
	err := t.step.Stuck()
	if err == nil {
		why := t.recent.stalled(int(max(t.scaler.Hysteresis, 1)))
		if why == "" {
			return nil
		}
		err = fmt.Errorf("step %d: %s: %s", t.done, why, t.remedy())
	}
	if t.errs == nil {
		return err
	}
	t.bar.close()
	root := t.flags.group.isRoot()
	if path := t.flags.saveBad; path != "" {
		if err := t.step.SaveReplay(path); err != nil {
			return err
		}
		if root {
			fmt.Fprintf(t.errs, "wrote the step: ampc doctor %s\n", path)
		}
	}
	d, failed := t.step.Diagnose(t.flags.group.stepContext(ctx))
	if failed != nil {
		return failed
	}
	if root {
		fmt.Fprintln(t.errs, d)
	}
	if lost := t.flags.group.agree(nil); lost != nil { // launchers end all ranks with the first
		return lost
	}
	return stuckError{err}
}

// remedy advises what to do about skipped steps.
func (t *trainer) remedy() string {
	switch {
	case !t.step.Scaled():
		return "lower --lr, look at the data, or use --policy f32 to see whether precision is to blame"
	case t.scaler.Mode == ampc.Static(1).Mode:
		return fmt.Sprintf("the loss scale stays at %s: use --scaler dynamic, a smaller scale, a lower --lr, or --policy mixed-f16", scaleText(t.scale))
	}
	return fmt.Sprintf("the loss scale, %s now, does not help: lower --lr, look at the data, or keep in f32 what the doctor names", scaleText(t.scale))
}
