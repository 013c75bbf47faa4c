package cuda_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ampc/cuda"
	"ampc/cuda/sim"
)

// stopwatch is a simulated device on which the n-th algorithm takes the n-th time.
type stopwatch struct {
	*sim.Device
	plan  *spy
	takes []time.Duration
}

func (s *stopwatch) Elapsed(cuda.Event, cuda.Event) (time.Duration, error) {
	return s.takes[s.plan.last], nil
}

// Info is that of a device whose times vary: candidates run in batches.
func (s *stopwatch) Info() cuda.Info {
	info := s.Device.Info()
	info.Steady = false
	return info
}

// spy remembers which algorithm ran last, and lets one fail.
type spy struct {
	cuda.BlasPlan
	last, broken int
}

func (p *spy) Run(a cuda.Algo, alpha, beta float32, o cuda.Operands, s cuda.Stream) error {
	if p.last = int(a.Words[1]); p.last == p.broken {
		return &cuda.Error{Lib: "cublasLt", Call: "cublasLtMatmul", Code: 13}
	}
	return p.BlasPlan.Run(a, alpha, beta, o, s)
}

// tuning is a device with a product on it whose candidates take 30, 10 and 20 ns, in batches of ten.
func tuning(t *testing.T, opt sim.Options) (*stopwatch, cuda.Matmul, cuda.Ptr, cuda.Stream) {
	t.Helper()
	opt.Major = 9
	dev, err := sim.Open(opt)
	ok(t, err)
	s, err := dev.NewStream()
	ok(t, err)
	ws, err := dev.Alloc(workspace)
	ok(t, err)
	mat := cuda.Matrix{Type: cuda.R16F, Ld: 8, Stride: 64}
	m := cuda.Matmul{M: 8, N: 8, K: 8, A: mat, B: mat, C: mat, D: mat, Batch: 3, Compute: cuda.Compute32F, Epilogue: cuda.EpilogueGeluAuxBias,
		BiasType: cuda.R16F, AuxType: cuda.R16F, AuxLd: 8, AuxStride: 64}
	plan, err := dev.Blas().Plan(m)
	ok(t, err)
	p := &spy{BlasPlan: plan, broken: -1}
	return &stopwatch{dev, p, []time.Duration{300, 100, 200}}, m, ws, s
}

const workspace = 1 << 18

func TestTuner(t *testing.T) {
	d, m, ws, s := tuning(t, sim.Options{})
	dir := filepath.Join(t.TempDir(), "cache")
	pick := func(tuner *cuda.Tuner) cuda.Choice {
		t.Helper()
		c, err := tuner.Pick(d.Blas(), m, d.plan, ws, workspace, s)
		ok(t, err)
		return c
	}
	tuner := cuda.NewTuner(d, dir)
	a := pick(tuner)
	if a.Algo.Words[1] != 1 || a.Tried != 3 || a.Time != 10 || a.Kept {
		t.Errorf("picked %+v", a)
	}
	before := d.Stats.Products
	if pick(tuner); d.Stats.Products != before {
		t.Error("timed a known problem again")
	}
	ok(t, tuner.Save())
	files, err := os.ReadDir(dir)
	ok(t, err)
	if len(files) != 1 || files[0].Name() != "simulated-sm-90-cublaslt-120405.json" {
		t.Errorf("files %v", files)
	}

	again := cuda.NewTuner(d, dir)
	b := pick(again)
	if b.Algo != a.Algo || !b.Kept || d.Stats.Products != before {
		t.Errorf("read back %+v", b)
	}

	d.plan.broken = 1 // the fastest does not run: the next one wins
	fresh := cuda.NewTuner(d, "")
	if c := pick(fresh); c.Algo.Words[1] != 2 || c.Tried != 2 {
		t.Errorf("picked %+v with 1 broken", c)
	}
	ok(t, fresh.Save())
	ok(t, os.WriteFile(filepath.Join(dir, files[0].Name()), []byte("not json"), 0o644))
	if _, err := cuda.NewTuner(d, dir).Pick(d.Blas(), m, d.plan, ws, workspace, s); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("broken file: %v", err)
	}
	ok(t, d.Free(ws))
	ok(t, d.Close())
}

// TestTunersShareAFile: what another process wrote meanwhile stays.
func TestTunersShareAFile(t *testing.T) {
	d, m, ws, s := tuning(t, sim.Options{})
	dir := t.TempDir()
	one := cuda.NewTuner(d, dir)
	two := cuda.NewTuner(d, dir)
	for _, tuner := range []*cuda.Tuner{one, two} {
		_, err := tuner.Pick(d.Blas(), m, d.plan, ws, workspace, s)
		ok(t, err)
		m.M = 4
		plan, err := d.Blas().Plan(m)
		ok(t, err)
		d.plan.BlasPlan = plan
		ok(t, tuner.Save())
	}
	both := cuda.NewTuner(d, dir)
	for _, rows := range []int64{4, 8} {
		m.M = rows
		if c, err := both.Pick(d.Blas(), m, d.plan, ws, workspace, s); err != nil || !c.Kept {
			t.Errorf("%d rows: %+v, %v", rows, c, err)
		}
	}
}

func TestTunerWithoutChoice(t *testing.T) {
	d, m, ws, s := tuning(t, sim.Options{NoAlgorithm: true})
	tuner := cuda.NewTuner(d, "")
	if _, err := tuner.Pick(d.Blas(), m, d.plan, ws, workspace, s); !errors.Is(err, cuda.ErrNotSupported) {
		t.Errorf("no candidates: %v", err)
	}
	d, m, ws, s = tuning(t, sim.Options{FailAlloc: 3}) // after the workspace and one operand
	tuner = cuda.NewTuner(d, "")
	c, err := tuner.Pick(d.Blas(), m, d.plan, ws, workspace, s)
	if err != nil || c.Tried != 0 || c.Algo.Words[1] != 0 {
		t.Errorf("no memory to time in: %+v, %v", c, err)
	}
	ok(t, d.Free(ws))
	ok(t, d.Close())
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
