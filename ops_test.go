package ampc_test

import (
	"context"
	"math"
	"testing"

	"ampc"
)

// composition is an op made of others, applied to x[2,3] and y[2,3], and what it is by hand.
type composition struct {
	build func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor
	want  func(x, y []float64) []float64
}

var compositions = map[string]composition{
	"stack": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor { return m.Stack(1, x, y) },
		func(x, y []float64) []float64 {
			return []float64{x[0], x[1], x[2], y[0], y[1], y[2], x[3], x[4], x[5], y[3], y[4], y[5]}
		}},
	"stack at the end": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor { return m.Stack(-1, x, y) },
		func(x, y []float64) (out []float64) {
			for i := range x {
				out = append(out, x[i], y[i])
			}
			return out
		}},
	"masked_fill": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor { return m.MaskedFill(x, m.Named("").Gt(y, x), -7) },
		elementwise(func(x, y float64) float64 {
			if y > x {
				return -7
			}
			return x
		})},
	"smooth_l1": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor { return m.SmoothL1(x, y, 0.5) },
		mean(func(d float64) float64 {
			if d < 0.5 {
				return d * d
			}
			return d - 0.25
		})},
	"smooth_l1 without beta": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor { return m.SmoothL1(x, y, 0) },
		mean(func(d float64) float64 { return d })},
	"normalize": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor { return m.Normalize(x, -1) },
		func(x, _ []float64) (out []float64) {
			for i := range x {
				row := x[i/3*3 : i/3*3+3]
				out = append(out, x[i]/math.Sqrt(row[0]*row[0]+row[1]*row[1]+row[2]*row[2]))
			}
			return out
		}},
	"normalize by epsilon": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor {
			return m.Normalize(x, 0, ampc.NormalizeOptions{Eps: new(100.0)})
		},
		elementwise(func(x, _ float64) float64 { return x / 100 })},
	"reduce_std": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor { return m.ReduceStd(x, 1, ampc.Axes(0)) },
		func(x, _ []float64) (out []float64) {
			for i := range 3 {
				out = append(out, math.Abs(x[i]-x[i+3])/math.Sqrt2)
			}
			return out
		}},
	"swap_axes": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor { return m.SwapAxes(x, 0, -1) },
		func(x, _ []float64) []float64 { return []float64{x[0], x[3], x[1], x[4], x[2], x[5]} }},
	"sort": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor { v, _ := m.Sort(x, 1); return v },
		func(x, _ []float64) []float64 { return []float64{x[2], x[1], x[0], x[4], x[5], x[3]} }},
	"sort descending": {
		func(m *ampc.Model, x, y ampc.Tensor) ampc.Tensor {
			v, _ := m.Sort(x, 1, ampc.SortOptions{Descending: true})
			return v
		},
		func(x, _ []float64) []float64 { return []float64{x[0], x[1], x[2], x[3], x[5], x[4]} }},
}

func elementwise(f func(x, y float64) float64) func(x, y []float64) []float64 {
	return func(x, y []float64) (out []float64) {
		for i := range x {
			out = append(out, f(x[i], y[i]))
		}
		return out
	}
}

func mean(f func(d float64) float64) func(x, y []float64) []float64 {
	return func(x, y []float64) []float64 {
		sum := 0.0
		for i := range x {
			sum += f(math.Abs(x[i] - y[i]))
		}
		return []float64{sum / float64(len(x))}
	}
}

// A composed op has the values of its definition, the gradients of that by
// differences, and the name that Named gave; and it trains in mixed precision.
func TestComposedOps(t *testing.T) {
	x, y := []float64{0.9, 0.4, -0.8, 1.5, -0.6, 0.2}, []float64{0.7, 1.6, -0.9, 0.1, 0.3, 1.4}
	for name, c := range compositions {
		t.Run(name, func(t *testing.T) {
			m := ampc.New("composed")
			defer m.Close()
			a, b := m.Param("a", ampc.Data(x...), 2, 3), m.Param("b", ampc.Data(y...), 2, 3)
			out := c.build(m.Named("result"), a, b)
			weights := m.Affine(m.Iota(ampc.F32, 0, c.size(x, y)), 0.25, 0.5) // each element counts differently
			loss := m.ReduceSum(m.Mul(m.Reshape(out, c.size(x, y)), weights))
			grad := m.Grad(loss, a)[0]
			if out.Name() != "result" {
				t.Errorf("the result is called %q (%v)", out.Name(), m.Err())
			}
			step, err := m.Infer(ampc.InferConfig{}, out, grad)
			if err != nil {
				t.Fatal(err)
			}
			r, err := step.Run(context.Background(), ampc.Feed{})
			if err != nil {
				t.Fatal(err)
			}
			near(t, "values", r, out, c.want(x, y), 1e-6)
			near(t, "gradient", r, grad, c.slope(x, y), 1e-4)
			if _, err := m.Train(ampc.TrainConfig{Policy: ampc.MixedF16(), Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, ampc.Loss{Value: loss}); err != nil {
				t.Error(err)
			}
		})
	}
}

func (c composition) size(x, y []float64) int { return len(c.want(x, y)) }

// slope is the gradient by x of the weighted sum of the results, by central differences.
func (c composition) slope(x, y []float64) []float64 {
	loss := func() (sum float64) {
		for i, v := range c.want(x, y) {
			sum += v * (0.25*float64(i) + 0.5)
		}
		return sum
	}
	out := make([]float64, len(x))
	for i, was := range x {
		const h = 1e-5
		x[i] = was + h
		up := loss()
		x[i] = was - h
		out[i] = (up - loss()) / (2 * h)
		x[i] = was
	}
	return out
}

func near(t *testing.T, what string, r *ampc.Result, of ampc.Tensor, want []float64, bound float64) {
	t.Helper()
	h, err := r.Value(of)
	if err != nil {
		t.Fatal(err)
	}
	got := h.Floats()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !(math.Abs(float64(got[i])-want[i]) <= bound) {
			t.Errorf("%s: element %d is %g, want %g", what, i, got[i], want[i])
		}
	}
}

// A zero vector stays zero when it is normalized, and its gradient is finite.
func TestNormalizeOfZero(t *testing.T) {
	m := ampc.New("zero")
	defer m.Close()
	x := m.Param("x", ampc.Zeros(), 4)
	out := m.Normalize(x, 0)
	grad := m.Grad(m.ReduceSum(m.Affine(out, 1e-12, 0)), x)[0]
	step, err := m.Infer(ampc.InferConfig{}, out, grad)
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(t.Context(), ampc.Feed{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "values", r, out, make([]float64, 4), 0)
	near(t, "gradient", r, grad, []float64{1, 1, 1, 1}, 1e-5)
}
