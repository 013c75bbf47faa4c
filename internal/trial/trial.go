// Package trial holds the models, feeds and checks that tests of whole steps
// share.
package trial

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"ampc"
)

// Small is a two-layer classifier of 4 numbers into 3 classes.
func Small(batch int) (*ampc.Model, ampc.Tensor) {
	m := ampc.New("small")
	x, y := m.Input("x", ampc.F32, batch, 4), m.Input("y", ampc.I32, batch)
	h := m.Gelu(m.Linear("fc1", x, 16))
	return m, m.Named("loss").CrossEntropy(m.Linear("fc2", h, 3), y)
}

// Points draws n labelled points; label -100 is ignored by losses.
func Points(seed uint64, n int) ampc.Feed {
	r := rand.New(rand.NewPCG(seed, 1))
	x, y := make([]float32, 4*n), make([]int32, n)
	for i := range y {
		y[i] = int32(r.IntN(3))
		for k := range 4 {
			x[4*i+k] = float32(r.NormFloat64())
		}
		x[4*i+int(y[i])] += 2
	}
	return ampc.Feed{"x": x, "y": y}
}

// Adam is AdamW at 1e-2 under mixed-f16.
func Adam() ampc.TrainConfig {
	return ampc.TrainConfig{Optimizer: ampc.AdamW(0.01), LR: ampc.Constant(1e-2), Policy: ampc.MixedF16()}
}

// Train compiles a training step, fails the test on an error and closes the
// model at the test's end.
func Train(t *testing.T, m *ampc.Model, loss ampc.Tensor, c ampc.TrainConfig) *ampc.Step {
	t.Helper()
	s, err := m.Train(c, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return s
}

// Run runs one step and fails the test on an error.
func Run(t *testing.T, s *ampc.Step, feeds ...ampc.Feed) *ampc.Result {
	t.Helper()
	r, err := s.Run(context.Background(), feeds...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Metrics waits for a step and fails the test where its numbers cannot be read.
func Metrics(t testing.TB, r *ampc.Result) ampc.Metrics {
	t.Helper()
	m, err := r.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// WantError checks that err is one line holding every part.
func WantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error is more than one line: %q", err)
	}
}

// SameBits checks that two models hold the same bits in every variable but those
// that live within a step.
func SameBits(t *testing.T, a, b *ampc.Model) {
	t.Helper()
	if got, want := b.Variables(), a.Variables(); len(got) != len(want) {
		t.Fatalf("variables %v and %v", want, got)
	}
	for _, name := range a.Variables() {
		if strings.HasPrefix(name, "amp.acc") {
			continue // overwritten by the next step's first micro-batch
		}
		x, err := a.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x.Bytes, y.Bytes) {
			t.Errorf("%s differs", name)
		}
	}
}

// FollowsF32 holds the weights that a number of steps under mixed-f16 left against
// those of plain f32 steps. An element of a gradient passes at
// most four roundings to 16 bits on its way (weight, activation, dy, dx), half an
// ulp each, and sums bring the largest element's to all: so many steps times the
// rate times the largest move times 4·2^-11, and a factor of 2 because both the
// operands of a product are rounded.
func FollowsF32(t *testing.T, low, wide *ampc.Model, steps int, names ...string) {
	t.Helper()
	for _, name := range names {
		a, err := low.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := wide.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		largest := 0.0
		for i := range b.Len() {
			largest = max(largest, math.Abs(b.At(i)))
		}
		for i := range a.Len() {
			if x, y := a.At(i), b.At(i); !(math.Abs(x-y) <= float64(steps)*8*0x1p-11*largest) {
				t.Errorf("%s[%d] = %g in f16, %g in f32", name, i, x, y)
			}
		}
	}
}

// Boost is an op of a user's that is x times 1e5.
func Boost() *ampc.CustomOp {
	return &ampc.CustomOp{
		Name: "boost", Doc: "x times 100,000.", Operands: []ampc.CustomOperand{{Name: "x"}}, Results: []ampc.CustomResult{{Name: "y"}},
		Class: ampc.ClassPromote, Why: "takes what it is given", Scaling: ampc.ScaleSame,
		Infer: func(c *ampc.CustomCall) ([]ampc.Type, error) { return []ampc.Type{c.Operand(0).Type()}, nil },
		Grad: func(b *ampc.Backward, _ *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor {
			return []ampc.Tensor{b.Affine(d[0], 1e5, 0)}
		},
		Kernel: func(_ *ampc.CustomCall, in, out []any) error {
			x, y := in[0].([]float32), out[0].([]float32)
			for i, v := range x {
				y[i] = 1e5 * v
			}
			return nil
		},
	}
}

// WriteFile writes text to a file and fails the test on an error.
func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
