package e2e_test

import (
	"math"
	"strings"
	"testing"

	"ampc"
)

// The gradient of an inference is that of what inference computes: batch norm by
// its running statistics, no dropout. It is held against differences.
func TestGradientInInference(t *testing.T) {
	const n, c = 4, 3
	m := ampc.New("infer")
	defer m.Close()
	x, target := m.Input("x", ampc.F32, n, c), m.Input("target", ampc.F32, n, c)
	h := m.Tanh(m.BatchNorm("bn", m.Linear("fc1", x, 5)))
	y := m.MSE(m.BatchNorm("out", m.Dropout("drop", m.Linear("fc2", h, c), 0.5)), target)
	grads := m.Grad(y, x, m.Lookup("bn.scale"), m.Lookup("fc1.w"))
	train, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: y})
	if err != nil {
		t.Fatal(err)
	}
	f := ampc.Feed{"x": make([]float32, n*c), "target": make([]float32, n*c)}
	xs := f["x"].([]float32)
	for i := range xs {
		xs[i] = float32(math.Sin(float64(3 * i)))
	}
	for range 3 { // statistics of their own
		run(t, train, f)
	}
	step, err := m.Infer(ampc.InferConfig{}, append([]ampc.Tensor{y}, grads...)...)
	if err != nil {
		t.Fatal(err)
	}
	at := func() float64 {
		v, err := run(t, step, f).Value(y)
		if err != nil {
			t.Fatal(err)
		}
		return v.At(0)
	}
	check := func(name string, got, want float64) {
		if math.Abs(got-want) > 2e-3*(math.Abs(want)+0.05) {
			t.Errorf("%s: gradient %g, differences say %g", name, got, want)
		}
	}
	const eps = 1.0 / 128
	for i := range xs {
		was := xs[i]
		g, err := run(t, step, f).Value(grads[0])
		if err != nil {
			t.Fatal(err)
		}
		xs[i] = was + eps
		up := at()
		xs[i] = was - eps
		down := at()
		xs[i] = was
		check("x", g.At(i), (up-down)/(2*eps))
	}
	for k, name := range []string{"bn.scale", "fc1.w"} {
		g, err := run(t, step, f).Value(grads[k+1])
		if err != nil {
			t.Fatal(err)
		}
		v, err := m.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		w := make([]float32, v.Len())
		for i := range w {
			w[i] = float32(v.At(i))
		}
		for i, was := range w {
			move := func(d float32) float64 {
				w[i] = was + d
				if err := m.SetVariable(name, w); err != nil {
					t.Fatal(err)
				}
				return at()
			}
			want := (move(eps) - move(-eps)) / (2 * eps)
			move(0)
			check(name, g.At(i), want)
		}
	}
}

// What inference cannot give is refused in one line.
func TestSecondGradientInInference(t *testing.T) {
	m := ampc.New("infer")
	defer m.Close()
	x := m.Input("x", ampc.F32, 4, 3)
	g := m.Grad(m.ReduceSum(m.Square(m.BatchNorm("bn", x))), x)[0]
	second := m.Grad(m.ReduceSum(m.Square(g)), x)[0]
	if _, err := m.Infer(ampc.InferConfig{}, second); err == nil || !strings.Contains(err.Error(), "a gradient of a gradient through %bn computes with the statistics of the batch") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}
