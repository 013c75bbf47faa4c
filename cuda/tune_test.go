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

func TestTuner(t *testing.T) {
	dev, err := sim.Open(sim.Options{Major: 9})
	ok(t, err)
	s, err := dev.NewStream()
	ok(t, err)
	x, err := dev.Alloc(1 << 18)
	ok(t, err)
	ok(t, dev.Fill8(x, 0, 1<<18, s))
	mat := cuda.Matrix{Type: cuda.R16F, Ld: 8}
	m := cuda.Matmul{M: 8, N: 8, K: 8, A: mat, B: mat, C: mat, D: mat, Compute: cuda.Compute32F, Epilogue: cuda.EpilogueNone}
	plan, err := dev.Blas().Plan(m)
	ok(t, err)
	p := &spy{BlasPlan: plan, broken: -1}
	d := &stopwatch{dev, p, []time.Duration{30, 10, 20}}
	o := cuda.Operands{A: x, B: x + 256, C: x + 512, D: x + 512, Workspace: x + 1024, WorkspaceBytes: 1<<18 - 1024}
	file := filepath.Join(t.TempDir(), "cache", "algos.json")

	tuner, err := cuda.NewTuner(d, dev.Blas(), file)
	ok(t, err)
	a, err := tuner.Pick(m, p, o, s)
	ok(t, err)
	if a.Words[1] != 1 || tuner.Tried != 3 {
		t.Errorf("picked %d after %d candidates", a.Words[1], tuner.Tried)
	}
	_, err = tuner.Pick(m, p, o, s)
	ok(t, err)
	if tuner.Tried != 3 {
		t.Error("timed a known problem again")
	}
	ok(t, tuner.Save())

	again, err := cuda.NewTuner(d, dev.Blas(), file)
	ok(t, err)
	b, err := again.Pick(m, p, o, s)
	ok(t, err)
	if b != a || again.Tried != 0 {
		t.Errorf("read back %+v after %d candidates", b, again.Tried)
	}

	p.broken = 1 // the fastest does not run: the next one wins
	fresh, err := cuda.NewTuner(d, dev.Blas(), "")
	ok(t, err)
	c, err := fresh.Pick(m, p, o, s)
	ok(t, err)
	if c.Words[1] != 2 {
		t.Errorf("picked %d with 1 broken", c.Words[1])
	}
	none, err := sim.Open(sim.Options{Major: 9, NoAlgorithm: true})
	ok(t, err)
	q, err := none.Blas().Plan(m)
	ok(t, err)
	if _, err := fresh.Pick(cuda.Matmul{M: 1}, q, o, s); !errors.Is(err, cuda.ErrNotSupported) {
		t.Errorf("no candidates: %v", err)
	}
	ok(t, os.WriteFile(file, []byte("not json"), 0o644))
	if _, err := cuda.NewTuner(d, dev.Blas(), file); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("broken file: %v", err)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
