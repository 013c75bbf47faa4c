package cuda

import (
	"cmp"
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

// Tuner makes choices by measuring them once: the algorithm of each product, the engine of each graph
// of cuDNN, and what else its user measures. They are stored by problem in a file for each GPU and
// library version, so that later runs need no timing and give the same bits.
type Tuner struct {
	d     Driver
	dir   string // "": choices are kept in memory
	files map[string]*choices
}

// choices is a file of choices by problem.
type choices struct {
	path string
	all  map[string]Choice
	new  bool // something is not in the file
}

// Choice is what was chosen for a problem.
type Choice struct {
	Problem string        `json:"-"`
	Algo    Algo          `json:"algo,omitzero"`   // of a product
	Name    string        `json:"name,omitempty"`  // of anything else
	Time    time.Duration `json:"ns"`              // of one run
	Other   time.Duration `json:"other,omitempty"` // of the fastest that was not chosen
	Tried   int           `json:"tried"`           // candidates timed
	Kept    bool          `json:"-"`               // it was read from the file
}

// NewTuner makes a tuner whose files are in dir. With an empty directory name, choices are kept in
// memory only.
func NewTuner(d Driver, dir string) *Tuner {
	return &Tuner{d: d, dir: dir, files: map[string]*choices{}}
}

// of is the file of a library, read when it is first asked for.
func (t *Tuner) of(library string, version int) (*choices, error) {
	name := fmt.Sprintf("%s-%s-%d.json", fileName(t.d.Info().Name), library, version)
	if c := t.files[name]; c != nil {
		return c, nil
	}
	c := &choices{all: map[string]Choice{}}
	if t.dir != "" {
		c.path = filepath.Join(t.dir, name)
		var err error
		if c.all, err = readChoices(c.path); err != nil {
			return nil, err
		}
	}
	t.files[name] = c
	return c, nil
}

// known is the choice made before.
func (c *choices) known(problem string) (Choice, bool) {
	x, ok := c.all[problem]
	x.Problem = problem
	return x, ok
}

func (c *choices) keep(x Choice) { c.all[x.Problem], c.new = x, true }

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
	engineChoices  = 8
)

// Pick returns the algorithm for a problem. For a new problem it times the candidates in memory
// that it allocates, and waits for the device; the stream must not be captured then. If there is
// not enough memory, it returns the library's first candidate and does not store it.
func (t *Tuner) Pick(b Blas, m Matmul, p BlasPlan, workspace Ptr, bytes int64, s Stream) (Choice, error) {
	file, err := t.of("cublaslt", b.Version())
	if err != nil {
		return Choice{}, err
	}
	problem := m.Problem(bytes)
	if c, ok := file.known(problem); ok {
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
		err = t.fastest(&c, len(algos), s, func(i int) error { return p.Run(algos[i], 1, 0, o, s) }, func(i int, took time.Duration) bool {
			better := c.Tried == 1 || took < c.Time
			if better {
				c.Algo = algos[i]
			}
			return better
		})
	}
	if err := errors.Join(err, free()); err != nil {
		return Choice{}, err
	}
	file.keep(c)
	return c, nil
}

// fastest times candidates; better says of each whether it is taken before those timed already.
// Candidates that fail to run are left out.
func (t *Tuner) fastest(c *Choice, candidates int, s Stream, run func(i int) error, better func(i int, took time.Duration) bool) error {
	for i := range candidates {
		took, err := Measure(t.d, s, func() error { return run(i) })
		var ce *Error
		if errors.As(err, &ce) && !ce.Sticky() {
			continue
		}
		if err != nil {
			return err
		}
		c.Tried++
		if better(i, took) {
			c.Other, c.Time = c.Time, took
		} else if c.Other == 0 || took < c.Other {
			c.Other = took
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

// CopyBytes is the size of a copy within the device with which kernels that stream are compared. Half of it
// is above every L2 cache. The driver copies 512 MiB and more in another way, on an H200 at two thirds of
// the rate.
const CopyBytes = 256 << 20

// Measurements of one candidate: runs in a batch, fewer of a whole part of a Program, and batches after
// one that warms up.
const (
	batchRuns = 10
	wholeRuns = 3
	batches   = 3
)

// Measure is the time of one run: the median of a few batches, each a graph of runs, so that neither
// the host's time nor an idle device counts. On a steady device it is one run. It waits for the device,
// and fails where the run cannot be captured.
func Measure(d Driver, s Stream, run func() error) (took time.Duration, err error) {
	return measure(d, s, batchRuns, run)
}

// measure is Measure with batches of so many runs.
func measure(d Driver, s Stream, runs int, run func() error) (took time.Duration, err error) {
	if err := errors.Join(run(), d.Synchronize(s)); err != nil { // libraries load what they need
		return 0, err
	}
	warm, timed := 1, batches
	if d.Info().Steady {
		runs, warm, timed = 1, 0, 1
	}
	if err := d.BeginCapture(s); err != nil {
		return 0, err
	}
	for range runs {
		if err = run(); err != nil {
			break
		}
	}
	g, end := d.EndCapture(s)
	if err != nil && end == nil {
		end = d.FreeGraph(g)
	}
	if err := cmp.Or(err, end); err != nil {
		return 0, err
	}
	x, err := d.Instantiate(g)
	if err := errors.Join(err, d.FreeGraph(g)); err != nil {
		return 0, err
	}
	took, err = medianTime(d, s, warm, timed, func() error { return d.LaunchGraph(x, s) })
	return took / time.Duration(runs), errors.Join(err, d.FreeExec(x))
}

// medianTime is the median of the times that are timed, after those that warm up.
func medianTime(d Driver, s Stream, warm, timed int, run func() error) (time.Duration, error) {
	var took []time.Duration
	for i := range warm + timed {
		t, err := TimeOf(d, s, run)
		if err != nil {
			return 0, err
		}
		if i >= warm {
			took = append(took, t)
		}
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// TimeOf is the time on the device of what run issues on a stream. It waits for it.
func TimeOf(d Driver, s Stream, run func() error) (took time.Duration, err error) {
	var ev [2]Event
	for i := range ev {
		e, err := d.NewEvent(true)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, d.FreeEvent(e)) }()
		ev[i] = e
	}
	if err := d.Record(ev[0], s); err != nil {
		return 0, err
	}
	if err := run(); err != nil {
		return 0, err
	}
	if err := errors.Join(d.Record(ev[1], s), d.WaitHost(ev[1])); err != nil {
		return 0, err
	}
	return d.Elapsed(ev[0], ev[1])
}

// Save writes new choices together with those that other processes have written meanwhile. It
// writes a temporary file, syncs and renames it, so that readers see either the old file or the new
// one.
func (t *Tuner) Save() error {
	var err error
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		err = errors.Join(err, t.files[name].save())
	}
	return err
}

func (c *choices) save() error {
	if c.path == "" || !c.new {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.path), 0o755); err != nil {
		return err
	}
	all, err := readChoices(c.path)
	if err != nil {
		return err
	}
	maps.Copy(all, c.all)
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(c.path), "choices")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), c.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	c.new = false
	return nil
}
