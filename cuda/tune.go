package cuda

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Tuner finds the fastest algorithm for each product by timing the candidates once. Choices are
// stored by problem in a file for each GPU and library version, so that later runs need no timing
// and give the same bits.
type Tuner struct {
	d    Driver
	path string            // "": choices are kept in memory
	all  map[string]Choice // by problem
	new  bool              // something is not in the file
}

// Choice is the algorithm found for a problem.
type Choice struct {
	Problem string        `json:"-"`
	Algo    Algo          `json:"algo"`
	Time    time.Duration `json:"ns"`    // of one product, the median of several runs
	Tried   int           `json:"tried"` // candidates timed
	Kept    bool          `json:"-"`     // it was read from the file
}

// NewTuner reads the directory's file for the device and the library, if there is one. With an
// empty directory name, choices are kept in memory only.
func NewTuner(d Driver, b Blas, dir string) (*Tuner, error) {
	t := &Tuner{d: d, all: map[string]Choice{}}
	if dir == "" {
		return t, nil
	}
	t.path = filepath.Join(dir, fmt.Sprintf("%s-cublaslt-%d.json", fileName(d.Info().Name), b.Version()))
	var err error
	t.all, err = readChoices(t.path)
	return t, err
}

// fileName keeps letters and digits.
func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, s)
}

func readChoices(path string) (map[string]Choice, error) {
	all := map[string]Choice{}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return all, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("cuda: %s is not a file of algorithm choices: %w; remove it", path, err)
	}
	for k, c := range all {
		c.Kept = true
		all[k] = c
	}
	return all, nil
}

var typeNames = map[DataType]string{R32F: "f32", R16F: "f16", R16BF: "bf16"}

// Problem is everything that a choice depends on, except the device and the library.
func (m Matmul) Problem(workspace int64) string {
	t := [2]string{"n", "t"}
	at := func(x bool) string { return t[map[bool]int{true: 1}[x]] }
	s := fmt.Sprintf("%s%s m=%d n=%d k=%d %s*%s->%s ld=%d,%d,%d,%d compute=%d epilogue=%d", at(m.TransA), at(m.TransB), m.M, m.N, m.K,
		typeNames[m.A.Type], typeNames[m.B.Type], typeNames[m.D.Type], m.A.Ld, m.B.Ld, m.C.Ld, m.D.Ld, m.Compute, m.Epilogue)
	if m.Batch > 1 {
		s += fmt.Sprintf(" batch=%d stride=%d,%d,%d,%d", m.Batch, m.A.Stride, m.B.Stride, m.C.Stride, m.D.Stride)
	}
	if m.Epilogue.HasBias() {
		s += " bias=" + typeNames[m.BiasType]
	}
	if m.Epilogue.HasAux() {
		s += fmt.Sprintf(" aux=%s,%d,%d", typeNames[m.AuxType], m.AuxLd, m.AuxStride)
	}
	if m.Align != 0 {
		s += fmt.Sprintf(" align=%d", m.Align)
	}
	return s + fmt.Sprintf(" workspace=%d", workspace)
}

const (
	tuneCandidates = 12
	tuneRuns       = 5
)

// Pick returns the algorithm for a problem. For a new problem it times the candidates in memory
// that it allocates, and waits for the device; the stream must not be captured then. If there is
// not enough memory, it returns the library's first candidate and does not store it.
func (t *Tuner) Pick(m Matmul, p BlasPlan, workspace Ptr, bytes int64, s Stream) (Choice, error) {
	problem := m.Problem(bytes)
	if c, ok := t.all[problem]; ok {
		c.Problem = problem
		return c, nil
	}
	algos, err := p.Algos(bytes, tuneCandidates)
	if err != nil {
		return Choice{}, err
	}
	c := Choice{Problem: problem, Algo: algos[0]}
	o, free, err := t.scratch(m, s)
	if errors.Is(err, ErrOutOfMemory) {
		return c, free()
	}
	if err == nil {
		o.Workspace, o.WorkspaceBytes = workspace, bytes
		err = t.fastest(&c, algos, p, o, s)
	}
	if err := errors.Join(err, free()); err != nil {
		return Choice{}, err
	}
	t.all[problem], t.new = c, true
	return c, nil
}

// fastest times the candidates. Candidates that fail to run are left out.
func (t *Tuner) fastest(c *Choice, algos []Algo, p BlasPlan, o Operands, s Stream) error {
	for _, a := range algos {
		took, err := t.time(p, a, o, s)
		var ce *Error
		if errors.As(err, &ce) && !ce.Sticky() {
			continue
		}
		if err != nil {
			return err
		}
		if c.Tried++; c.Tried == 1 || took < c.Time {
			c.Algo, c.Time = a, took
		}
	}
	if c.Tried == 0 {
		return &Error{Lib: libBlas, Call: "cublasLtMatmul", Code: blasNotSupported, Name: "no candidate runs"}
	}
	return nil
}

// scratchWord fills the operands: two ordinary numbers in any of the types.
const scratchWord = 0x3c9d3c23

// scratch allocates the operands of a problem. Call free also after an error.
func (t *Tuner) scratch(m Matmul, s Stream) (o Operands, free func() error, err error) {
	var owned []Ptr
	free = func() error {
		err := t.d.Synchronize(s)
		for _, p := range owned {
			err = errors.Join(err, t.d.Free(p))
		}
		return err
	}
	matrix := func(x Matrix, cols int64) int64 {
		return (max(x.Stride, 0)*int64(max(m.Batch-1, 0)) + x.Ld*cols) * x.Type.Size()
	}
	side := func(trans bool, plain, turned int64) int64 {
		if trans {
			return turned
		}
		return plain
	}
	aux := (m.AuxStride*int64(max(m.Batch-1, 0)) + m.AuxLd*m.N) * m.AuxType.Size() // of a bit mask more than it takes
	for _, x := range []struct {
		to    *Ptr
		bytes int64
		used  bool
	}{
		{&o.A, matrix(m.A, side(m.TransA, m.K, m.M)), true}, {&o.B, matrix(m.B, side(m.TransB, m.N, m.K)), true}, {&o.D, matrix(m.D, m.N), true},
		{&o.Bias, max(m.M, m.N) * 4, m.Epilogue.HasBias()}, {&o.Aux, aux, m.Epilogue.HasAux()},
	} {
		if err != nil || !x.used {
			continue
		}
		words := (x.bytes + 3) / 4
		if *x.to, err = t.d.Alloc(4 * words); err == nil {
			owned = append(owned, *x.to)
			err = t.d.Fill32(*x.to, scratchWord, words, s)
		}
	}
	o.C = o.D
	return o, free, err
}

// time is the median of a few runs after one to warm up.
func (t *Tuner) time(p BlasPlan, a Algo, o Operands, s Stream) (time.Duration, error) {
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
	slices.Sort(took)
	return took[len(took)/2], nil
}

// Save writes new choices together with those that other processes have written meanwhile. It
// writes a temporary file, syncs and renames it, so that readers see either the old file or the new
// one.
func (t *Tuner) Save() error {
	if t.path == "" || !t.new {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(t.path), 0o755); err != nil {
		return err
	}
	all, err := readChoices(t.path)
	if err != nil {
		return err
	}
	maps.Copy(all, t.all)
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(t.path), "choices")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), t.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	t.new = false
	return nil
}
