package gpu_test

import (
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/gpu"
)

func freeBytes(t *testing.T, b *gpu.Backend) int64 {
	t.Helper()
	free, _, err := b.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// What is dropped is freed: accumulators at once, variables that were declared
// together with the last of them.
func TestDroppedVariablesAreFreed(t *testing.T) {
	b := openSim(t, "sm_90")
	s, err := b.NewStore(nil)
	if err != nil {
		t.Fatal(err)
	}
	before := freeBytes(t, b)
	acc := ir.A("role", "acc")
	vars := []lower.Var{{Name: "w", Kind: ir.Param, Type: ir.T(ir.F32, 1000)}, {Name: "sum", Kind: ir.State, Type: ir.T(ir.F32, 3000), Attr: acc},
		{Name: "m", Kind: ir.State, Type: ir.T(ir.F32, 1000)}, {Name: "count", Kind: ir.State, Type: ir.T(ir.F32), Attr: acc}}
	if err := s.Declare(vars); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		drop []string
		held int64 // at least, and less than twice as many
	}{{nil, 20000}, {[]string{"sum"}, 20000}, {[]string{"count", "none"}, 8000}, {[]string{"w"}, 8000}} {
		if err := s.Drop(c.drop...); err != nil {
			t.Fatal(err)
		}
		if held := before - freeBytes(t, b); held < c.held || held >= 2*c.held {
			t.Errorf("%v dropped: %d bytes are held, want about %d", c.drop, held, c.held)
		}
	}
	if err := s.Drop("m"); err != nil {
		t.Fatal(err)
	}
	if held := before - freeBytes(t, b); held != 0 {
		t.Errorf("everything dropped: %d bytes are held", held)
	}
	if err := s.Declare(vars); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if held := before - freeBytes(t, b); held != 0 {
		t.Errorf("closed: %d bytes are held", held)
	}
}

// A size of a step that is closed leaves no memory behind, and the others run on.
func TestClosedSizesFreeTheDevice(t *testing.T) {
	b := openSim(t, "sm_90")
	m := ampc.New("sizes")
	defer m.Close()
	if err := m.Set(ampc.On(b)); err != nil {
		t.Fatal(err)
	}
	out := m.Linear("fc", m.Input("x", ampc.F32, ampc.Dim("N"), 4), 2)
	loss := m.MSE(out, m.Input("y", ampc.F32, ampc.Dim("N"), 2))
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16(), Micro: 2, Sizes: ampc.Sizes{"N": 2},
		Outputs: []ampc.Output{{Tensor: out, Reduce: ampc.Sum}}}, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	use := func(s *ampc.Step, n int) {
		t.Helper()
		f := ampc.Feed{"x": make([]float32, 4*n), "y": make([]float32, 2*n)}
		r, err := s.Run(t.Context(), f, f)
		if err == nil {
			_, err = r.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	use(step, 2)
	before := freeBytes(t, b)
	for _, n := range []int{3, 5, 400} {
		other, err := step.For(ampc.Sizes{"N": int64(n)})
		if err != nil {
			t.Fatal(err)
		}
		use(other, n)
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if held := before - freeBytes(t, b); held > 0 {
			t.Errorf("N=%d closed: %d bytes are still held", n, held)
		}
		use(step, 2)
	}
}
