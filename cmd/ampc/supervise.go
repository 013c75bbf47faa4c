package main

import (
	"context"
	"fmt"

	"ampc"
)

// Limits after which a run is stopped.
const (
	lookBack  = 200 // steps that are looked back on
	mostBad   = 180 // of them, a run with as many bad ones goes nowhere
	badInARow = 25  // while the loss scale does not fall
	averaged  = 100 // steps behind the mean that people are shown
)

// recent is what is known of the last steps. A step is bad where it was skipped
// or its loss is not finite.
type recent struct {
	losses [lookBack]float64
	bad    [lookBack]bool
	n      int // steps seen
	row    int // bad steps in a row since the loss scale fell last
	scale  float64
}

func (r *recent) add(loss, scale float64, skipped bool) {
	bad := skipped || !finite(loss)
	r.losses[r.n%lookBack], r.bad[r.n%lookBack] = loss, bad
	r.n++
	if !bad || scale < r.scale { // a falling scale is a search
		r.row = 0
	}
	if bad {
		r.row++
	}
	r.scale = scale
}

// mean is the mean loss of the steps that were good among the last ones; ok is
// false where none was.
func (r *recent) mean() (mean float64, ok bool) {
	n := 0.0
	for i := max(r.n-averaged, 0); i < r.n; i++ {
		if !r.bad[i%lookBack] {
			n++
			mean += (r.losses[i%lookBack] - mean) / n
		}
	}
	return mean, n > 0
}

// meanText is the mean for people.
func (r *recent) meanText() string {
	if mean, ok := r.mean(); ok {
		return fmt.Sprintf("%.4f", mean)
	}
	return "none"
}

// hopeless says that training goes nowhere, "" where it may.
func (r *recent) hopeless(hysteresis int) string {
	bad := 0
	for _, b := range r.bad {
		if b {
			bad++
		}
	}
	switch {
	case r.row >= max(badInARow, 2*hysteresis):
		return fmt.Sprintf("%d steps in a row were skipped or not finite", r.row)
	case bad >= mostBad:
		return fmt.Sprintf("%d of the last %d steps were skipped or not finite", bad, lookBack)
	}
	return ""
}

// stuck returns an error where training goes nowhere any more, after it had the
// doctor say why and saved the step where that was asked for.
func (t *trainer) stuck(ctx context.Context) error {
	err := t.step.Stuck()
	if err == nil {
		why := t.recent.hopeless(int(max(t.scaler.Hysteresis, 1)))
		if why == "" {
			return nil
		}
		err = fmt.Errorf("step %d: %s: %s", t.done, why, t.remedy())
	}
	if t.errs == nil || t.flags.crew != nil { // one rank cannot replay the step of all
		return err
	}
	t.bar.close()
	if path := t.flags.saveBad; path != "" {
		if err := t.step.SaveReplay(path); err != nil {
			return err
		}
		fmt.Fprintf(t.errs, "wrote the step: ampc doctor %s\n", path)
	}
	d, failed := t.step.Diagnose(ctx)
	if failed != nil {
		return failed
	}
	fmt.Fprintln(t.errs, d)
	return stuckError{err}
}

// remedy says what to do about steps that are not taken.
func (t *trainer) remedy() string {
	switch {
	case !t.step.Scaled():
		return "lower --lr, look at the data, or use --policy f32 to see whether precision is to blame"
	case t.scaler.Mode == ampc.Static(1).Mode:
		return fmt.Sprintf("the loss scale stays at %s: use --scaler dynamic, a smaller scale, a lower --lr, or --policy mixed-f16", scaleText(t.scale))
	}
	return fmt.Sprintf("the loss scale, %s now, does not help: lower --lr, look at the data, or keep in f32 what the doctor names", scaleText(t.scale))
}
