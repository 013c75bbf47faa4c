package cuda

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"
)

// Tuner finds the fastest algorithm for each product by timing candidates, once: choices are kept in
// a file by GPU, library version and problem, so that later runs start at once and give the same bits.
type Tuner struct {
	d     Driver
	path  string
	key   string                     // GPU and library version
	all   map[string]map[string]Algo // key, then problem
	Tried int                        // candidates timed so far
}

// NewTuner reads the choices in path; a file that is not there yet is empty, and an empty path keeps
// choices in memory only.
func NewTuner(d Driver, b Blas, path string) (*Tuner, error) {
	t := &Tuner{d: d, path: path, key: fmt.Sprintf("%s, cublasLt %d", d.Info().Name, b.Version()), all: map[string]map[string]Algo{}}
	if path == "" {
		return t, nil
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(text, &t.all); err != nil {
		return nil, fmt.Errorf("cuda: %s is no file of algorithm choices: %w; remove it", path, err)
	}
	return t, nil
}

const (
	tuneCandidates = 12
	tuneRuns       = 5
)

// Pick gives the algorithm for a problem, timing candidates on the operands the first time: D is
// overwritten. The stream must not be captured.
func (t *Tuner) Pick(m Matmul, p BlasPlan, o Operands, s Stream) (Algo, error) {
	problem := fmt.Sprintf("%+v workspace %d", m, o.WorkspaceBytes)
	if a, ok := t.all[t.key][problem]; ok {
		return a, nil
	}
	algos, err := p.Algos(o.WorkspaceBytes, tuneCandidates)
	if err != nil {
		return Algo{}, err
	}
	best, least := algos[0], time.Duration(-1)
	for _, a := range algos {
		took, err := t.time(p, a, o, s)
		var ce *Error
		if errors.As(err, &ce) && !ce.Sticky() {
			continue // a candidate that does not run is no candidate
		}
		if err != nil {
			return Algo{}, err
		}
		if least < 0 || took < least {
			best, least = a, took
		}
	}
	if least < 0 {
		return Algo{}, &Error{Lib: libBlas, Call: "cublasLtMatmul", Code: blasNotSupported, Name: "no candidate runs"}
	}
	if t.all[t.key] == nil {
		t.all[t.key] = map[string]Algo{}
	}
	t.all[t.key][problem] = best
	return best, nil
}

// time is the median of a few runs after one to warm up.
func (t *Tuner) time(p BlasPlan, a Algo, o Operands, s Stream) (time.Duration, error) {
	t.Tried++
	var ev [2]Event
	for i := range ev {
		e, err := t.d.NewEvent(true)
		if err != nil {
			return 0, err
		}
		defer t.d.FreeEvent(e)
		ev[i] = e
	}
	var took []time.Duration
	for i := range tuneRuns + 1 {
		err := errors.Join(t.d.Record(ev[0], s), p.Run(a, 1, 0, o, s), t.d.Record(ev[1], s), t.d.WaitHost(ev[1]))
		if err != nil {
			return 0, err
		}
		d, err := t.d.Elapsed(ev[0], ev[1])
		if err != nil {
			return 0, err
		}
		if i > 0 {
			took = append(took, d)
		}
	}
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	return took[len(took)/2], nil
}

// Save writes the choices, replacing the file in one step.
func (t *Tuner) Save() error {
	if t.path == "" {
		return nil
	}
	text, err := json.MarshalIndent(t.all, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.path), 0o755); err != nil {
		return err
	}
	tmp := t.path + ".new"
	if err := os.WriteFile(tmp, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, t.path)
}
