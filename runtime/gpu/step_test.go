package gpu_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc"
	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/gpu"
	"ampc/runtime/runtimetest"
)

// small is a classifier with everything a step has: casts kept between steps,
// a dynamic scale that grows after grow good steps, an update that may be skipped.
func small(t *testing.T, micro int, grow int64) *ir.Graph {
	t.Helper()
	m := ampc.New("small")
	x, y := m.Input("x", ampc.F32, 4, 8), m.Input("y", ampc.I32, 4)
	loss := m.Mul(m.CrossEntropy(m.Linear("b", m.Relu(m.Linear("a", x, 8)), 3), y), m.Input("boost", ampc.F32))
	c := ampc.TrainConfig{Optimizer: ampc.AdamW(0.1), LR: ampc.Constant(1e-2), Policy: ampc.MixedF16(), Micro: micro}
	c.Scaler = ampc.Dynamic()
	c.Scaler.Every = grow
	g, p, err := m.Source(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	p.Caps = sm.Must("sm_90").Caps()
	if err := passes.Run(g, p); err != nil {
		t.Fatal(err)
	}
	return g
}

// device is a backend on a simulated device that the test can look into.
func device(t *testing.T, opt sim.Options) (*sim.Device, *gpu.Backend) {
	t.Helper()
	opt.Major = 9
	d, err := sim.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Bind(); err != nil { // tests call it beside the backend
		t.Fatal(err)
	}
	b, err := gpu.OpenOn(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return d, b
}

// batch is one micro-batch for small; with overflow its gradients are beyond
// what f16 holds.
func batch(t *testing.T, g *ir.Graph, r *rand.Rand, overflow bool) runtime.Feed {
	t.Helper()
	f := feed(g, r)
	f["boost"].F[0] = 1
	if overflow {
		f["boost"].F[0] = 1e6
	}
	return runtimetest.Feeds(f)[0]
}

// TestNoHostWaits takes 100 steps, three of them skipped, the scale growing
// once: the host waits for nothing, casts weights only where a step wrote them,
// and launches one graph for each step after the first.
func TestNoHostWaits(t *testing.T) {
	d, b := device(t, sim.Options{})
	g := small(t, 1, 60)
	l := runtimetest.Load(t, b, g, 1)
	defer l.Close(t)
	scale := l.Variables(t)["%amp.scale"].F[0]
	r := rand.New(rand.NewPCG(3, 4))
	syncs, before := d.Syncs(), d.Stats
	for step := range 100 {
		if _, err := l.Exec.Step(context.Background(), []runtime.Feed{batch(t, g, r, step == 9 || step == 19 || step == 29)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.Syncs() - syncs; n != 0 {
		t.Errorf("the host waited %d times in 100 steps", n)
	}
	if n := d.Stats.ToHost - before.ToHost; n != 0 {
		t.Errorf("%d copies to the host, nothing was read", n)
	}
	if n := d.Stats.GraphLaunches - before.GraphLaunches; n != 99 {
		t.Errorf("%d graph launches in the 99 steps after the first", n)
	}
	if n := d.Stats.Captures - before.Captures; n != 1 {
		t.Errorf("%d captures, want 1: the same launches every step", n)
	}
	v := l.Variables(t)
	if got := v["%amp.scale"].F[0]; got != scale/8*2 {
		t.Errorf("scale %g after three skips and one growth of %g", got, scale)
	}
	if got := v["%amp.step"].I[0]; got != 97 {
		t.Errorf("%d steps reached the weights, want 97", got)
	}
}

// TestCapturedAsIssued trains by graphs and launch by launch: results and
// variables have the same bits, with one and with three micro-batches.
func TestCapturedAsIssued(t *testing.T) {
	for _, micro := range []int{1, 3} {
		g := small(t, micro, 2)
		var bits []string
		for _, eager := range []bool{false, true} {
			_, b := device(t, sim.Options{})
			b.Eager(eager)
			l := runtimetest.Load(t, b, g, 1)
			r := rand.New(rand.NewPCG(3, 4))
			var all strings.Builder
			for step := range 6 {
				feeds := make([]runtime.Feed, micro)
				for i := range feeds {
					feeds[i] = batch(t, g, r, step == 3)
				}
				future, err := l.Exec.Step(context.Background(), feeds)
				if err != nil {
					t.Fatal(err)
				}
				for i, o := range l.Program.Outputs {
					buf := make([]byte, o.Type.Bytes())
					if err := future.Read(i, buf); err != nil {
						t.Fatal(err)
					}
					all.Write(buf)
				}
			}
			for _, v := range l.Program.Vars {
				if v.Kind == ir.Param || v.Kind == ir.State {
					buf := make([]byte, v.Type.Bytes())
					if err := l.Store.Read(v.Name, buf); err != nil {
						t.Fatal(err)
					}
					all.Write(buf)
				}
			}
			bits = append(bits, all.String())
			l.Close(t)
		}
		if bits[0] != bits[1] {
			t.Errorf("%d micro-batches: a step as a graph and launch by launch differ", micro)
		}
	}
}

// TestRecapture counts graphs: one for each number of micro-batches, with casts
// and without, and a new one only where the place of the inputs moved.
func TestRecapture(t *testing.T) {
	d, b := device(t, sim.Options{})
	g := small(t, 3, 100)
	l := runtimetest.Load(t, b, g, 1)
	defer l.Close(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct{ micro, captures int }{{1, 0}, {1, 1}, {1, 1}, {2, 2}, {2, 2}, {1, 2}, {3, 3}, {2, 4}, {2, 4}, {3, 4}, {1, 4}} {
		feeds := make([]runtime.Feed, c.micro)
		for i := range feeds {
			feeds[i] = batch(t, g, r, false)
		}
		if _, err := l.Exec.Step(context.Background(), feeds); err != nil {
			t.Fatal(err)
		}
		if d.Stats.Captures != c.captures {
			t.Fatalf("%d captures after a step of %d micro-batches, want %d", d.Stats.Captures, c.micro, c.captures)
		}
	}
}

// reading is a Program that casts a weight and writes nothing.
const reading = `graph @reading {
  input %x : f32[4,8]
  param %w : f32[8,8] = 0.5
prepare:
  %w.l = cast %w {to=f16} : f16[8,8]
forward:
  %x.l = cast %x {to=f16} : f16[4,8]
  %y = matmul %x.l, %w.l {out=f32} : f32[4,8]
  return %y
}
`

// TestCastsOnce casts a weight when it was written, not at every step, and not
// again for a second Program over the same store.
func TestCastsOnce(t *testing.T) {
	_, b := device(t, sim.Options{})
	g, err := ir.Parse("reading.ir", []byte(reading))
	if err != nil {
		t.Fatal(err)
	}
	l := runtimetest.Load(t, b, g, 1)
	defer l.Close(t)
	second, err := b.Load(l.Program, l.Store)
	if err != nil {
		t.Fatal(err)
	}
	x := runtimetest.Feeds(feed(g, rand.New(rand.NewPCG(1, 1))))
	step := func(e runtime.Exec) float32 {
		t.Helper()
		future, err := e.Step(context.Background(), x)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 128)
		if err := future.Read(0, buf); err != nil {
			t.Fatal(err)
		}
		return float(buf)
	}
	y := step(l.Exec)
	for range 3 {
		if step(l.Exec) != y || step(second) != y {
			t.Fatal("the result changed")
		}
	}
	if err := l.Store.Write("w", make([]byte, 256)); err != nil {
		t.Fatal(err)
	}
	if step(second) != 0 || step(l.Exec) != 0 {
		t.Error("a weight that was set to zero is still seen")
	}
	one, two := l.Exec.(runtime.Counted).Counters(), second.(runtime.Counted).Counters()
	if one.CastsMade != 1 || one.CastsSaved != 4 || two.CastsMade != 1 || two.CastsSaved != 3 {
		t.Errorf("casts: first program %+v, second %+v", one, two)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNamesMeanNothing gives every kernel the name of another: the device finds
// them by their text, and no bit changes.
func TestNamesMeanNothing(t *testing.T) {
	for _, m := range []int{0, 1, 3} {
		s := newSubject(t, mutated[m].spec, mutated[m].policy, mutated[m].target)
		p := clone(s.p)
		now := map[string]string{}
		for _, m := range sm.Modules(p) {
			for i, k := range m.Kernels {
				now[k.Name] = m.Kernels[(i+1)%len(m.Kernels)].Name
			}
			for _, k := range m.Kernels {
				k.Name = now[k.Name]
			}
		}
		visit(p, func(_ place, s *lower.Step) {
			if s.Launch != nil {
				s.Launch.Kernel = now[s.Launch.Kernel]
			}
		})
		if err := lower.Verify(p); err != nil {
			t.Fatal(err)
		}
		got, err := s.run(p, 0)
		if err != nil || string(got.bits) != string(s.want.bits) {
			t.Errorf("%s: %d kernels under other names compute something else (%v)", mutated[m].spec, len(now), err)
		}
	}
}

// TestFaults says what went wrong once, with the step's name, and gives the
// plan's numbers where memory is short.
func TestFaults(t *testing.T) {
	g := small(t, 1, 100)
	b, err := gpu.OpenSimulator(sim.Options{Major: 9, FailLaunch: 40})
	if err != nil {
		t.Fatal(err)
	}
	l := runtimetest.Load(t, b, g, 1)
	r := rand.New(rand.NewPCG(3, 4))
	var failed error
	for range 4 {
		if _, failed = l.Exec.Step(context.Background(), []runtime.Feed{batch(t, g, r, false)}); failed != nil {
			break
		}
	}
	if failed == nil || !strings.Contains(failed.Error(), "sim:sm_90: small: step ") || !strings.Contains(failed.Error(), "kernel ") || errors.Is(failed, gpu.ErrLost) {
		t.Errorf("the first error is %v", failed)
	}
	_, again := l.Exec.Step(context.Background(), []runtime.Feed{batch(t, g, r, false)})
	if !errors.Is(again, gpu.ErrLost) || strings.Contains(again.Error(), "kernel ") {
		t.Errorf("the second error is %v", again)
	}
	if err := l.Store.Read("%step", make([]byte, 4)); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("reading a variable gives %v", err)
	}
	if err := errors.Join(l.Exec.Close(), l.Store.Close(), b.Close()); err != nil {
		t.Errorf("closing what is lost: %v", err)
	}

	if b, err = gpu.OpenSimulator(sim.Options{Major: 9, Memory: 6000}); err != nil {
		t.Fatal(err)
	}
	_, s, err := load(t, b, g)
	if !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Fatalf("loading into 6000 bytes gives %v", err)
	}
	for _, part := range []string{"small", "are free", "the plan: variables", "work", "micro-batches"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	if err := errors.Join(s.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}
