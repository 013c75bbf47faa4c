package fit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"ampc"
	"ampc/data"
	"ampc/internal/file"
)

// The checkpoints in Run.Folder, as Model.SaveFile writes them. Model.LoadFile reads
// them into any model of the same layers.
const (
	LastFile = "last.safetensors"
	BestFile = "best.safetensors"
)

// metaKey is the key of the run's state in the metadata of checkpoints.
const metaKey = "fit"

// state is the state of a run apart from the model. A checkpoint contains it.
type state struct {
	Steps    int        `json:"steps"`
	Skipped  int        `json:"skipped"`
	Data     data.State `json:"data"`  // position after the last step
	Batch    int        `json:"batch"` // batch size of the loader
	Micro    int        `json:"micro"`
	Sum      exact      `json:"loss_sum"`  // sum over the steps of this epoch that were not skipped
	Taken    int        `json:"taken"`     // number of these steps
	Ended    bool       `json:"ended"`     // Sum and Taken belong to the previous epoch
	EvalStep int        `json:"eval_step"` // the last step that was evaluated
	Best     exact      `json:"best"`
	BestStep int        `json:"best_step"`
	Since    int        `json:"since"` // number of evaluations since the best one
}

// exact is a number that JSON represents bit for bit, including NaN.
type exact float64

// MarshalText writes the number.
func (x exact) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(x), 'g', -1, 64), nil
}

// UnmarshalText reads the number.
func (x *exact) UnmarshalText(b []byte) error {
	v, err := strconv.ParseFloat(string(b), 64)
	*x = exact(v)
	return err
}

// took counts a step.
func (s *state) took(m ampc.Metrics, at data.State) {
	if s.Ended {
		s.Sum, s.Taken, s.Ended = 0, 0, false
	}
	s.Steps++
	s.Data = at
	if m.Skipped {
		s.Skipped++
		return
	}
	s.Sum += exact(m.Loss)
	s.Taken++
}

// loss is the mean over the epoch's steps.
func (s *state) loss() float64 { return float64(s.Sum) / float64(s.Taken) }

// judge records an evaluation and reports whether it is the best.
func (s *state) judge(x float64, higher bool, gain float64) bool {
	best := float64(s.Best)
	better := x < best-gain
	if higher {
		better = x > best+gain
	}
	if math.IsNaN(best) {
		better = !math.IsNaN(x)
	}
	if better {
		s.Best, s.BestStep, s.Since = exact(x), s.Steps, 0
	} else {
		s.Since++
	}
	return better
}

// open locks the folder, continues the run in it and starts the logs. release undoes the lock and
// closes the logs. On several ranks rank 0 has both.
func (t *trainer) open(ctx context.Context) (release func() error, err error) {
	if t.data, err = t.ranks.shared(t.Data); err != nil {
		return nil, err
	}
	if n := t.Step.Parallel().Slices; n > 0 && t.ranks.several() {
		return nil, fmt.Errorf("the step has %d slices, which fit does not divide among ranks: write the loop, or leave out Slices", n)
	}
	if t.ranks.several() && t.Eval != nil && t.Eval.Data.Options().Ranks > 1 {
		return nil, errors.New("want all records in Eval.Data: leave out its Options.Rank, ranks take its batches in turn")
	}
	t.state.Data = t.data.State()
	t.state.Batch, t.state.Micro = t.Data.Options().Batch, max(t.Micro, 1)
	if err := t.ranks.same(fmt.Sprint(t.Epochs, t.Steps, t.EvalEvery, t.SaveEvery, t.Patience, t.MinGain, t.Higher, t.watched(), t.Eval == nil, t.Folder == "", t.state.Batch, t.state.Micro, t.state.Data)); err != nil {
		return nil, err
	}
	var lock *os.File
	release = func() error {
		var errs []error
		for _, l := range t.logs() {
			errs = append(errs, l.Close())
		}
		if lock != nil {
			errs = append(errs, lock.Close())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil && lock != nil {
			lock.Close()
		}
	}()
	if t.Folder != "" {
		if t.ranks.rank() == 0 {
			lock, err = t.lock()
		}
		if err := t.ranks.agree(context.WithoutCancel(ctx), err); err != nil {
			return nil, err
		}
		if err := t.resume(ctx); err != nil {
			return nil, err
		}
	}
	t.begun = t.state.Steps
	t.report.Epoch = t.state.Data.Epoch
	if err := t.ranks.agree(context.WithoutCancel(ctx), t.beginLogs()); err != nil {
		return nil, err
	}
	return release, nil
}

// lock claims the folder.
func (t *trainer) lock() (*os.File, error) {
	if err := os.MkdirAll(t.Folder, 0o777); err != nil {
		return nil, file.Error(t.Folder, err)
	}
	lock, err := file.Lock(filepath.Join(t.Folder, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Folder, err)
	}
	return lock, nil
}

func (t *trainer) beginLogs() error {
	for i, l := range t.logs() {
		if err := l.Begin(t.columns(), t.state.Steps); err != nil {
			for _, begun := range t.Logs[:i] {
				begun.Close()
			}
			return err
		}
	}
	return nil
}

// there reports whether the folder holds a run, as rank 0 sees it.
func (t *trainer) there(ctx context.Context, path string) (bool, error) {
	_, err := os.Stat(path)
	none := errors.Is(err, fs.ErrNotExist)
	switch {
	case t.ranks.rank() > 0:
		none, err = false, nil
	case none:
		err = nil
	case err != nil:
		err = file.Error(path, err)
	case !t.Resume:
		err = fmt.Errorf("%s: holds a run: set Resume to continue it, or choose another Folder", t.Folder)
	}
	if err := t.ranks.agree(context.WithoutCancel(ctx), err); err != nil || !t.ranks.several() {
		return !none, err
	}
	own := []byte{0}
	if none {
		own[0] = 1
	}
	all, err := t.ranks.gather("whether there is a run", own)
	return err == nil && all[0][0] == 0, err
}

// resume continues the run in the folder, if there is one.
func (t *trainer) resume(ctx context.Context) error {
	path := filepath.Join(t.Folder, LastFile)
	if there, err := t.there(ctx, path); err != nil || !there {
		return err
	}
	if err := t.Model.LoadFile(path); err != nil { // a call of all ranks
		return err
	}
	now := t.state
	if err := json.Unmarshal([]byte(t.Model.Meta(metaKey)), &t.state); err != nil {
		return fmt.Errorf("%s: no checkpoint of fit: metadata %q is %q", path, metaKey, t.Model.Meta(metaKey))
	}
	if was := t.state; was.Batch != now.Batch || was.Micro != now.Micro {
		return fmt.Errorf("%s: the run has batches of %d, %d in a step; this one %d, %d", path, was.Batch, was.Micro, now.Batch, now.Micro)
	}
	if err := t.data.Restore(t.state.Data); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if t.Progress != nil && t.ranks.rank() == 0 {
		fmt.Fprintf(t.Progress, "resumed after step %d of %s\n", t.state.Steps, path)
		for _, w := range t.Model.Warnings() {
			fmt.Fprintln(t.Progress, "warning:", w)
		}
	}
	return nil
}

// save writes a checkpoint. Ranks that share their state write it together, otherwise rank 0 does.
func (t *trainer) save(ctx context.Context, name string) error {
	if t.Folder == "" {
		return nil
	}
	text, err := json.Marshal(t.state)
	if err != nil {
		return err
	}
	if err := t.Model.SetMeta(metaKey, string(text)); err != nil {
		return err
	}
	path := filepath.Join(t.Folder, name)
	if t.Step.Parallel().Shard && t.ranks.several() {
		return t.Model.SaveFile(path)
	}
	if t.ranks.rank() == 0 {
		err = t.Model.SaveFile(path)
	}
	return t.ranks.agree(context.WithoutCancel(ctx), err)
}
