package ampc_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/trial"
)

func TestSeveralLossesAndWeights(t *testing.T) {
	m := ampc.New("two")
	x := m.Input("x", ampc.F32, 4)
	w := m.Param("w", ampc.Fill(1), 4)
	a := m.Named("a").ReduceSum(m.Mul(w, x))
	b := m.Named("b").ReduceSum(m.Square(w))
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.25)}
	s, err := m.Train(c, ampc.Loss{Value: a, Weight: 2}, ampc.Loss{Value: b})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := run(t, s, ampc.Feed{"x": []float32{1, 2, 3, 4}})
	if metrics(t, r).Loss != 2*10+4 {
		t.Errorf("loss %g, want 24", metrics(t, r).Loss)
	}
	got, _ := m.Variable("w")
	for i, want := range []float64{1 - 0.25*(2+2), 1 - 0.25*(4+2), 1 - 0.25*(6+2), 1 - 0.25*(8+2)} {
		if got.At(i) != want {
			t.Errorf("w[%d] = %g, want %g", i, got.At(i), want)
		}
	}
}

// Class weights by their definition, Σ q·(lse − x) over Σ w[y] with q the weight of
// the class times what label and smoothing ask for, with an ignored label, in one
// batch and in three micro-batches whose weights differ.
func TestClassWeights(t *testing.T) {
	for _, p := range []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()} {
		for _, micro := range []int{1, 3} {
			for _, smoothing := range []float64{0, 0.2} {
				t.Run(fmt.Sprintf("%s, %d micro-batches, smoothing %g", p.Name, micro, smoothing), func(t *testing.T) { checkWeights(t, p, micro, smoothing) })
			}
		}
	}
}

func checkWeights(t *testing.T, p ampc.Policy, micro int, smoothing float64) {
	w := []float32{0.5, 1, 4}
	x := []float32{1, 2, 3, -1, 0, 1, 2, 2, -2, 0.5, 0, 1, 3, -3, 0, 1, 1, 1}
	y := []int32{2, 0, -100, 1, 0, 2}
	sum, mass, grad := 0.0, 0.0, [3]float64{}
	for i, label := range y {
		if label < 0 {
			continue
		}
		z, q, total := 0.0, [3]float64{}, 0.0
		for k := range 3 {
			z += math.Exp(float64(x[3*i+k]))
			if q[k] = smoothing / 3; k == int(label) {
				q[k] += 1 - smoothing
			}
			q[k] *= float64(w[k])
			total += q[k]
		}
		for k := range 3 {
			sum += q[k] * (math.Log(z) - float64(x[3*i+k]))
			grad[k] += total*math.Exp(float64(x[3*i+k]))/z - q[k]
		}
		mass += float64(w[label])
	}
	rows := 6 / micro
	m := ampc.New("weighted")
	defer m.Close()
	in, labels := m.Input("x", ampc.F32, rows, 3), m.Input("y", ampc.I32, rows)
	bias := m.Param("bias", ampc.Zeros(), 3)
	loss := m.CrossEntropy(m.Add(in, bias), labels, ampc.CrossEntropyOptions{Weights: m.State("w", ampc.Zeros(), 3), Smoothing: smoothing})
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Policy: p, Micro: micro}, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetVariable("w", w); err != nil {
		t.Fatal(err)
	}
	var feeds []ampc.Feed
	for k := range micro {
		feeds = append(feeds, ampc.Feed{"x": x[k*rows*3 : (k+1)*rows*3], "y": y[k*rows : (k+1)*rows]})
	}
	r, err := step.Run(t.Context(), feeds...)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := metrics(t, r).Loss, sum/mass; math.Abs(got-want) > 1e-5 {
		t.Errorf("loss %g, want %g", got, want)
	}
	b, err := m.Variable("bias")
	if err != nil {
		t.Fatal(err)
	}
	for k, g := range grad { // one step of rate 1: the gradient with its sign changed
		if math.Abs(b.At(k)+g/mass) > 3e-3 {
			t.Errorf("gradient %d is %g, want %g", k, -b.At(k), g/mass)
		}
	}
}

// What weights cost beside plain cross entropy: a step of logits, loss and gradient.
func BenchmarkCrossEntropy(b *testing.B) {
	const rows, classes = 512, 1000
	for _, c := range []struct {
		name string
		opts func(w ampc.Tensor) ampc.CrossEntropyOptions
	}{
		{"plain", func(ampc.Tensor) ampc.CrossEntropyOptions { return ampc.CrossEntropyOptions{} }},
		{"weights", func(w ampc.Tensor) ampc.CrossEntropyOptions { return ampc.CrossEntropyOptions{Weights: w} }},
		{"smoothing", func(ampc.Tensor) ampc.CrossEntropyOptions { return ampc.CrossEntropyOptions{Smoothing: 0.1} }},
		{"weights and smoothing", func(w ampc.Tensor) ampc.CrossEntropyOptions {
			return ampc.CrossEntropyOptions{Weights: w, Smoothing: 0.1}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := ampc.New("loss")
			defer m.Close()
			x := m.Param("x", ampc.Normal(0, 1), rows, classes)
			loss := m.CrossEntropy(x, m.Input("y", ampc.I32, rows), c.opts(m.State("w", ampc.Normal(1, 0), classes)))
			step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, ampc.Loss{Value: loss})
			if err != nil {
				b.Fatal(err)
			}
			y := make([]int32, rows)
			for i := range y {
				y[i] = int32(i * 7 % classes)
			}
			for b.Loop() {
				if r, err := step.Run(b.Context(), ampc.Feed{"y": y}); err != nil || trial.Metrics(b, r).Skipped {
					b.Fatal("skipped", err)
				}
			}
		})
	}
}

func TestClassWeightsMistakes(t *testing.T) {
	for want, build := range map[string]func(m *ampc.Model, x, y ampc.Tensor){
		"weights %w has type f32[3,1], want shape [3]": func(m *ampc.Model, x, y ampc.Tensor) {
			m.CrossEntropy(x, y, ampc.CrossEntropyOptions{Weights: m.State("w", ampc.Zeros(), 3, 1), Smoothing: 0.1})
		},
		"weights": func(m *ampc.Model, x, y ampc.Tensor) {
			m.CrossEntropy(x, y, ampc.CrossEntropyOptions{Weights: m.State("w", ampc.Zeros(), 4)})
		},
	} {
		m := ampc.New("m")
		build(m, m.Input("x", ampc.F32, 2, 3), m.Input("y", ampc.I32, 2))
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	m := ampc.New("m")
	defer m.Close()
	step, err := m.Infer(ampc.InferConfig{}, m.CrossEntropy(m.Input("x", ampc.F32, 2, 3), m.Input("y", ampc.I32, 2), ampc.CrossEntropyOptions{Weights: m.State("w", ampc.Zeros(), 3)}))
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(t.Context(), ampc.Feed{"x": make([]float32, 6), "y": []int32{0, 3}})
	if err == nil {
		_, err = r.Wait(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "outside 0..2") {
		t.Errorf("a label that is not a class: got %v", err)
	}
}

func TestRNNMistakes(t *testing.T) {
	for want, build := range map[string]func(m *ampc.Model){
		"want [S,B,D,H] and [D,H,H]": func(m *ampc.Model) {
			m.RNNWith(m.Input("x", ampc.F32, 2, 3, 4), m.Param("w", ampc.Zeros(), 4, 5), m.Param("r", ampc.Zeros(), 1, 6, 5))
		},
	} {
		m := ampc.New("m")
		build(m)
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// pos_weight by its definition, with weights that broadcast.
func TestPosWeight(t *testing.T) {
	x, y, w := []float32{3, -200, 200, 0.5}, []float32{1, 1, 0, 0.25}, []float32{2, 8}
	want := 0.0
	for i := range x {
		a, b := math.Log1p(math.Exp(-math.Abs(float64(x[i]))))+math.Max(float64(x[i]), 0), math.Log1p(math.Exp(-math.Abs(float64(x[i]))))+math.Max(-float64(x[i]), 0)
		want += (float64(w[i%2])*float64(y[i])*b + (1-float64(y[i]))*a) / 4
	}
	m := ampc.New("m")
	defer m.Close()
	loss := m.BCEWithLogits(m.Input("x", ampc.F32, 2, 2), m.Input("y", ampc.F32, 2, 2), ampc.BCEWithLogitsOptions{PosWeight: m.State("w", ampc.Zeros(), 2)})
	for _, p := range []ampc.Policy{{}, ampc.Torch(ampc.F16)} {
		step, err := m.Infer(ampc.InferConfig{Policy: p}, loss)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.SetVariable("w", w); err != nil {
			t.Fatal(err)
		}
		r, err := step.Run(t.Context(), ampc.Feed{"x": x, "y": y})
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Value(loss)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.At(0)-want) > 1e-6*want {
			t.Errorf("%s: loss %g, want %g", p.Name, got.At(0), want)
		}
	}
}
