package fit

import (
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
// closes the logs.
func (t *trainer) open() (release func() error, err error) {
	var lock *os.File
	release = func() error {
		var errs []error
		for _, l := range t.Logs {
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
	t.state.Data = t.Data.State()
	t.state.Batch, t.state.Micro = t.Data.Options().Batch, max(t.Micro, 1)
	if t.Folder != "" {
		if err := os.MkdirAll(t.Folder, 0o777); err != nil {
			return nil, file.Error(t.Folder, err)
		}
		if lock, err = file.Lock(filepath.Join(t.Folder, ".lock")); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Folder, err)
		}
		if err := t.resume(); err != nil {
			return nil, err
		}
	}
	t.begun = t.state.Steps
	t.report.Epoch = t.state.Data.Epoch
	for i, l := range t.Logs {
		if err := l.Begin(t.columns(), t.state.Steps); err != nil {
			for _, begun := range t.Logs[:i] {
				begun.Close()
			}
			return nil, err
		}
	}
	return release, nil
}

// resume continues the run in the folder, if there is one.
func (t *trainer) resume() error {
	path := filepath.Join(t.Folder, LastFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return file.Error(path, err)
	}
	if !t.Resume {
		return fmt.Errorf("%s: holds a run: set Resume to continue it, or choose another Folder", t.Folder)
	}
	if err := t.Model.LoadFile(path); err != nil {
		return err
	}
	now := t.state
	if err := json.Unmarshal([]byte(t.Model.Meta(metaKey)), &t.state); err != nil {
		return fmt.Errorf("%s: no checkpoint of fit: metadata %q is %q", path, metaKey, t.Model.Meta(metaKey))
	}
	if was := t.state; was.Batch != now.Batch || was.Micro != now.Micro {
		return fmt.Errorf("%s: the run has batches of %d, %d in a step; this one %d, %d", path, was.Batch, was.Micro, now.Batch, now.Micro)
	}
	if err := t.Data.Restore(t.state.Data); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if t.Progress != nil {
		fmt.Fprintf(t.Progress, "resumed after step %d of %s\n", t.state.Steps, path)
		for _, w := range t.Model.Warnings() {
			fmt.Fprintln(t.Progress, "warning:", w)
		}
	}
	return nil
}

// save writes a checkpoint.
func (t *trainer) save(name string) error {
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
	return t.Model.SaveFile(filepath.Join(t.Folder, name))
}
