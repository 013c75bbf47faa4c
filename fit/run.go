package fit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"ampc"
	"ampc/data"
)

// ErrStop ends a run in order when a callback returns it: the run is evaluated and saved,
// and Fit returns no error.
var ErrStop = errors.New("stop")

// Run describes a training run. Model, Step and Data must be set, and Epochs or Steps.
type Run struct {
	Model *ampc.Model
	Step  *ampc.Step   // of Model.Train
	Data  *data.Loader // its batches have the inputs of the step as fields; on several ranks those of all, of which each takes its rows

	Epochs int // to train, those before a resume included; 0: as many as Steps take
	Steps  int // to make at most, those before a resume included; 0: as many as Epochs have
	// Micro is the number of batches in a step: TrainConfig.Micro, or fewer. Batches
	// that are left at the end of an epoch make a step of fewer. 0: 1.
	Micro int
	// BatchDim is the named dimension that a short last batch changes (Step.For); "":
	// all batches have one size.
	BatchDim ampc.Dim

	Eval      *Evaluation // nil: none
	EvalEvery int         // steps between evaluations; 0: at the end of each epoch. The end of the run is evaluated, too.
	Watch     string      // the metric that says which checkpoint is the best; "": the first of Eval
	Higher    bool        // a larger one is better
	MinGain   float64     // a smaller improvement is none
	Patience  int         // evaluations in a row without improvement after which the run stops; 0: it does not

	// Folder gets LastFile and BestFile; "": nothing is saved. A folder that holds a
	// run is refused unless Resume is set.
	Folder    string
	SaveEvery int  // steps between checkpoints; 0: after each evaluation. The end, a stop and a cancelled context save, too.
	Resume    bool // continue from LastFile where Folder has one

	Logs     []Log
	Progress io.Writer // of rank 0: gets a line for each evaluation and each epoch, and one every ten seconds; nil: none

	OnStep func(Report) error // after each step; ErrStop ends the run, another error fails it
	OnEval func(Report) error // after each evaluation
}

// Report is where a run stands after a step.
type Report struct {
	Step    int         // from 1
	Epoch   int         // from 0
	Feeds   []ampc.Feed // the micro-batches
	Metrics ampc.Metrics
	Result  *ampc.Result       // of the step
	Eval    map[string]float64 // nil where the step was not evaluated
	Best    bool               // the evaluation is the best so far
}

// Summary is what a run came to.
type Summary struct {
	Steps, Epochs int                // whole epochs
	Skipped       int                // steps that left the variables as they were
	Loss          float64            // mean of the last epoch, or of what there was of it; NaN without a step
	Eval          map[string]float64 // the last evaluation
	Best          float64            // of the watched metric; NaN without an evaluation
	BestStep      int
	Stopped       string        // why the run ended before its epochs or steps; "": it did not
	Took, Waited  time.Duration // of this call, and of that the wait for data
}

// trainer is the state of a running Fit.
type trainer struct {
	*Run
	ranks   ranks
	data    *data.Loader // of this rank
	failure error        // of this rank, which the others do not know yet
	state   state
	pending []ampc.Feed // batches of the next step
	size    int         // number of records in each of them
	behind  data.State  // position in the data after them
	row     *Row        // row of the previous step, until it is known whether the step is evaluated
	report  Report
	eval    map[string]float64
	due     bool // the previous step must be saved
	stopped string
	start   time.Time
	shown   time.Time
	begun   int // number of steps before this call
}

// Fit trains. It returns what the run came to, with an error where it failed or ctx
// ended; in the latter case the run is saved first.
func (r *Run) Fit(ctx context.Context) (Summary, error) {
	if err := r.check(); err != nil {
		return Summary{}, fmt.Errorf("fit: %w", err)
	}
	t := &trainer{Run: r, ranks: ranks{r.Step.Parallel().World}, start: time.Now(), shown: time.Now()}
	t.state.Best = exact(math.NaN())
	release, err := t.open(ctx)
	if err != nil {
		return Summary{}, fmt.Errorf("fit: %w", err)
	}
	waited := t.data.Waited()
	err = errors.Join(t.train(ctx), release())
	if t.data != r.Data {
		err = errors.Join(err, r.Data.Restore(t.data.State()))
	}
	s := Summary{
		Steps: t.state.Steps, Epochs: t.state.Data.Epoch, Skipped: t.state.Skipped, Loss: t.state.loss(), Eval: t.eval,
		Best: float64(t.state.Best), BestStep: t.state.BestStep, Stopped: t.stopped, Took: time.Since(t.start), Waited: t.data.Waited() - waited,
	}
	if err != nil {
		return s, fmt.Errorf("fit: %w", err)
	}
	return s, nil
}

func (r *Run) check() error {
	switch {
	case r.Model == nil || r.Step == nil || r.Data == nil:
		return errors.New("want a Model, a Step and Data")
	case r.Epochs < 0 || r.Steps < 0 || r.Micro < 0 || r.EvalEvery < 0 || r.SaveEvery < 0 || r.Patience < 0:
		return errors.New("want 0 or more for Epochs, Steps, Micro, EvalEvery, SaveEvery and Patience")
	case r.Epochs == 0 && r.Steps == 0:
		return errors.New("want Epochs or Steps")
	case r.Eval == nil && (r.Patience > 0 || r.Watch != "" || r.EvalEvery > 0):
		return errors.New("want Eval for Patience, Watch and EvalEvery")
	case r.Resume && r.Folder == "":
		return errors.New("want a Folder to Resume from")
	}
	if r.Eval == nil {
		return nil
	}
	if r.Eval.Step == nil || r.Eval.Data == nil || len(r.Eval.Metrics) == 0 {
		return errors.New("want a Step, Data and Metrics in Eval")
	}
	if r.Eval.Data == r.Data {
		return errors.New("want a loader of its own for Eval.Data, not that of the training data")
	}
	var names []string
	for _, m := range r.Eval.Metrics {
		names = append(names, m.Name())
	}
	if !slices.Contains(names, r.watched()) {
		return fmt.Errorf("want one of the metrics %q to Watch, not %q", names, r.Watch)
	}
	if slices.Sort(names); len(slices.Compact(slices.Clone(names))) < len(names) {
		return fmt.Errorf("want different names: two metrics of Eval have one name: %q", names)
	}
	return nil
}

// watched returns the metric that selects the best checkpoint.
func (r *Run) watched() string {
	if r.Watch != "" || r.Eval == nil {
		return r.Watch
	}
	return r.Eval.Metrics[0].Name()
}

// more reports whether the run continues.
func (t *trainer) more() bool {
	return t.stopped == "" && (t.Epochs == 0 || t.state.Data.Epoch < t.Epochs) && (t.Steps == 0 || t.state.Steps < t.Steps)
}

// train runs epochs until the run ends.
func (t *trainer) train(ctx context.Context) error {
	err := t.epochs(ctx)
	if err == nil {
		err = t.agree(ctx, nil)
	}
	switch {
	case errors.Is(err, ErrStop):
		t.stopped, err = "a callback asked for it", nil
	case t.ranks.several() && errors.Is(err, errEnded):
		t.due = true
		return errors.Join(err, t.settle(ctx))
	case !t.ranks.several() && err != nil && ctx.Err() != nil: // stopped by the caller: the state is saved
		t.due = true
		return errors.Join(context.Cause(ctx), t.settle(ctx))
	}
	if err != nil {
		return errors.Join(err, t.writeRow())
	}
	if t.Eval != nil && t.state.EvalStep < t.state.Steps {
		if err := t.evaluate(ctx); err != nil && !errors.Is(err, ErrStop) {
			return err
		}
	}
	t.due = true
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := t.agree(context.WithoutCancel(ctx), nil); !errors.Is(err, ErrStop) {
		return err
	}
	return nil
}

// agree makes what this rank has met, and err, known to all ranks.
func (t *trainer) agree(ctx context.Context, err error) error {
	if t.failure != nil {
		err, t.failure = errors.Join(t.failure, err), nil
	}
	return t.ranks.agree(ctx, err)
}

// keep returns an error of this rank alone. On several ranks it waits for the next agree, which all
// ranks call.
func (t *trainer) keep(err error) error {
	if !t.ranks.several() {
		return err
	}
	if t.failure == nil {
		t.failure = err
	}
	return nil
}

// epochs trains on the rest of the current epoch, then on the following ones.
func (t *trainer) epochs(ctx context.Context) error {
	if t.evalDue() && t.state.EvalStep < t.state.Steps { // the run was stopped during the evaluation
		if err := t.evaluate(ctx); err != nil {
			return err
		}
	}
	for t.more() {
		for b, err := range t.data.Epoch(t.ranks.context(ctx)) {
			if err = t.agree(ctx, err); err == nil {
				err = t.take(ctx, b)
			}
			if err != nil {
				return err
			}
			if !t.more() {
				break
			}
		}
		if len(t.pending) > 0 && t.more() {
			if err := t.step(ctx); err != nil {
				return err
			}
		}
		if state := t.data.State(); state.Position > 0 { // ended by Steps or by a callback
			return nil
		}
		if err := t.epochEnds(ctx); err != nil {
			return err
		}
	}
	return nil
}

// epochEnds evaluates at the end of an epoch. Only then it moves the position in the data to the
// next epoch, so a run that was stopped before continues with the evaluation.
func (t *trainer) epochEnds(ctx context.Context) error {
	t.values()["epoch/loss"] = t.state.loss()
	var err error
	if t.Eval != nil && t.EvalEvery == 0 {
		err = t.evaluate(ctx)
	} else {
		t.say()
	}
	if err == nil || errors.Is(err, ErrStop) {
		t.state.Data, t.state.Ended = t.data.State(), true
	}
	return err
}

// take adds a batch to the next step, and runs the step when it is complete.
func (t *trainer) take(ctx context.Context, b data.Batch) error {
	if len(t.pending) > 0 && b.Size != t.size { // the micro-batches of a step have the same size
		if err := t.step(ctx); err != nil {
			return err
		}
	}
	t.pending, t.size, t.behind = append(t.pending, b.Feed), b.Size, t.data.State()
	if len(t.pending) < max(t.Micro, 1) {
		return nil
	}
	return t.step(ctx)
}

// step runs a step on the pending batches.
func (t *trainer) step(ctx context.Context) error {
	if err := t.settle(ctx); err != nil {
		return err
	}
	step, err := sized(t.Step, t.data, t.size, t.BatchDim)
	if err != nil {
		return err
	}
	result, err := step.Run(t.ranks.context(ctx), t.pending...)
	if err != nil {
		return err
	}
	fed := t.pending
	t.pending = nil
	got, err := result.Wait(context.WithoutCancel(ctx)) // once the update has begun, the step runs to its end
	if err != nil {
		return err
	}
	t.state.took(got, t.behind)
	t.report = Report{Step: t.state.Steps, Epoch: t.behind.Epoch, Feeds: fed, Metrics: got, Result: result}
	t.values()
	if time.Since(t.shown) > 10*time.Second {
		t.say()
	}
	if got.Skipped {
		if err := t.Step.Stuck(); err != nil {
			return err
		}
	}
	if t.SaveEvery > 0 && t.state.Steps%t.SaveEvery == 0 {
		t.due = true
	}
	if t.OnStep != nil {
		if err := t.keep(t.OnStep(t.report)); err != nil {
			return err
		}
	}
	if t.evalDue() {
		return t.evaluate(ctx)
	}
	return nil
}

// evalDue reports whether an evaluation follows the previous step.
func (t *trainer) evalDue() bool {
	return t.Eval != nil && t.EvalEvery > 0 && t.state.Steps > 0 && t.state.Steps%t.EvalEvery == 0
}

// values returns the values of the previous step's row, which it creates if necessary.
func (t *trainer) values() map[string]float64 {
	if t.row != nil {
		return t.row.Values
	}
	t.row = &Row{Step: t.state.Steps, Epoch: t.report.Epoch, Time: time.Now(), Values: map[string]float64{}}
	if m := t.report.Metrics; t.report.Step == t.state.Steps {
		t.row.Values = map[string]float64{"loss": m.Loss, "lr": m.LR, "scale": m.Scale, "skipped": 0}
		if m.Skipped {
			t.row.Values["skipped"] = 1
		}
		if norm, err := m.GradNorm(); err == nil && finite(norm) {
			t.row.Values["grad_norm"] = norm
		}
	}
	return t.row.Values
}

const evalPrefix = "eval/"

// columns returns the columns of the logs.
func (r *Run) columns() []string {
	out := []string{"loss", "lr", "scale", "skipped", "grad_norm", "epoch/loss"}
	if r.Eval != nil {
		for _, m := range r.Eval.Metrics {
			out = append(out, evalPrefix+m.Name())
		}
	}
	return out
}

// evaluate measures the model and keeps the best one.
func (t *trainer) evaluate(ctx context.Context) error {
	got, err := t.Eval.evaluate(ctx, t.BatchDim, t.ranks)
	if err != nil {
		return err
	}
	t.eval, t.report.Eval = got, got
	for name, x := range got {
		t.values()[evalPrefix+name] = x
	}
	t.state.EvalStep = t.state.Steps
	t.report.Best = t.state.judge(got[t.watched()], t.Higher, t.MinGain)
	t.due = t.due || t.SaveEvery == 0
	if t.report.Best {
		if err := t.save(ctx, BestFile); err != nil {
			return err
		}
	}
	t.say()
	if t.Patience > 0 && t.state.Since >= t.Patience {
		t.stopped = fmt.Sprintf("no improvement of %s in %d evaluations", t.watched(), t.state.Since)
	}
	if t.OnEval != nil {
		return t.keep(t.OnEval(t.report))
	}
	return nil
}

// settle writes the row of the previous step, and saves a checkpoint if one is due.
func (t *trainer) settle(ctx context.Context) error {
	if err := t.keep(t.writeRow()); err != nil {
		return err
	}
	if !t.due {
		return nil
	}
	t.due = false
	for _, l := range t.logs() {
		if err := t.keep(l.Flush()); err != nil {
			return err
		}
	}
	return t.save(ctx, LastFile)
}

// logs are those that this rank writes.
func (t *trainer) logs() []Log {
	if t.ranks.rank() > 0 {
		return nil
	}
	return t.Logs
}

func (t *trainer) writeRow() error {
	if t.row == nil {
		return nil
	}
	row := *t.row
	t.row = nil
	for _, l := range t.logs() {
		if err := l.Write(row); err != nil {
			return err
		}
	}
	return nil
}

// say prints the progress of the run.
func (t *trainer) say() {
	t.shown = time.Now()
	if t.Progress == nil || t.ranks.rank() > 0 {
		return
	}
	line := fmt.Sprintf("epoch %d  step %d  loss %.4g  lr %.3g", t.report.Epoch+1, t.state.Steps, t.state.loss(), t.report.Metrics.LR)
	if t.report.Metrics.Scale != 1 {
		line += fmt.Sprintf("  scale %g", t.report.Metrics.Scale)
	}
	if t.state.Skipped > 0 {
		line += fmt.Sprintf("  skipped %d", t.state.Skipped)
	}
	for _, name := range slices.Sorted(maps.Keys(t.report.Eval)) {
		line += fmt.Sprintf("  %s%s %.4g", evalPrefix, name, t.report.Eval[name])
	}
	if t.report.Best {
		line += "  best"
	}
	fmt.Fprintf(t.Progress, "%s  %.3g steps/s\n", line, float64(t.state.Steps-t.begun)/time.Since(t.start).Seconds())
}
