package ampc_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"ampc"
)

// filled is fill of bench/torch/layers.py.
func filled(n, k int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64((i*37+k*11+i*i*13)%101)/101 - 0.5
	}
	return out
}

// params are the operands of a case's layers: the number that filled takes, by name.
type params map[string]int

// attn numbers the parameters of a layer of attention.
func (p params) attn(name string, k int) params {
	p[name+".qkv.w"], p[name+".qkv.b"], p[name+".out.w"], p[name+".out.b"] = k, k+1, k+2, k+3
	return p
}

// block numbers those of a block but for its attention.
func (p params) block(name string, norms int) params {
	p[name+".fc1.w"], p[name+".fc1.b"], p[name+".fc2.w"], p[name+".fc2.b"] = 20, 21, 22, 23
	for i := range norms {
		norm := name + ".norm" + string(rune('1'+i))
		p[norm+".scale"], p[norm+".bias"] = 30+2*i, 31+2*i
	}
	return p
}

var torchLayers = map[string]struct {
	shape  []int
	build  func(m *ampc.Model, x ampc.Tensor) ampc.Tensor
	params params
}{
	"conv1d": {[]int{2, 4, 9}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.Conv1d("c", x, 6, 3, ampc.Conv1dOptions{Stride: 2, Padding: 1, Dilation: 2, Groups: 2})
	}, params{"c.w": 1, "c.b": 2}},
	"conv3d": {[]int{1, 2, 4, 5, 4}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.Conv3d("c", x, 3, 3, ampc.Conv3dOptions{Stride: 2, Padding: 1})
	}, params{"c.w": 1, "c.b": 2}},
	"max_pool2d": {[]int{2, 2, 7, 8}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.MaxPool2d(x, 3, ampc.Pool2dOptions{Stride: 2, Padding: 1})
	}, nil},
	"avg_pool2d": {[]int{2, 2, 7, 8}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.AvgPool2d(x, 3, ampc.Pool2dOptions{Stride: 2, Padding: 1})
	}, nil},
	"adaptive_avg_pool2d": {[]int{2, 2, 7, 10}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.AdaptiveAvgPool(x, []int{3, 4}) }, nil},
	"adaptive_max_pool2d": {[]int{2, 2, 7, 10}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.AdaptiveMaxPool(x, []int{3, 4}) }, nil},
	"adaptive_max_pool1d": {[]int{2, 2, 8}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.AdaptiveMaxPool(x, []int{4}) }, nil},
	"instance_norm":       {[]int{2, 3, 4, 5}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.InstanceNorm("n", x) }, nil},
	"instance_norm_affine": {[]int{2, 3, 4, 5}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.InstanceNorm("n", x, ampc.InstanceNormOptions{Affine: true})
	}, params{"n.scale": 1, "n.bias": 2}},
	"encoder": {[]int{2, 5, 8}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.EncoderBlock("b", x, 2, ampc.BlockOptions{Hidden: 12})
	}, params{}.attn("b.attn", 1).block("b", 2)},
	"encoder_first_gelu": {[]int{2, 5, 8}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.EncoderBlock("b", x, 2, ampc.BlockOptions{Hidden: 12, NormFirst: true, Gelu: true})
	}, params{}.attn("b.attn", 1).block("b", 2)},
	"decoder": {[]int{2, 5, 8}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.DecoderBlock("b", x, 2, ampc.BlockOptions{Hidden: 12, Memory: fixed(m, "fill9", filled(48, 9), 2, 3, 8)})
	}, params{"b.cross.q.proj.w": 10, "b.cross.q.proj.b": 11, "b.cross.k.proj.w": 12, "b.cross.k.proj.b": 13, "b.cross.v.proj.w": 14, "b.cross.v.proj.b": 15,
		"b.cross.out.w": 16, "b.cross.out.b": 17}.attn("b.attn", 1).block("b", 3)},
	"rope_attention": {[]int{2, 5, 8}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.Attention("a", x, 2, ampc.AttentionOptions{Causal: true, Rope: &ampc.RopeOptions{}})
	}, params{}.attn("a", 1)},
	"cross_entropy_each": {[]int{4, 6}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.CrossEntropyEach(x, m.Cast(fixed(m, "labels", []float64{2, 0, -100, 3}, 4), ampc.I32))
	}, nil},
	"bce_each": {[]int{4, 6}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.BCEWithLogitsEach(m.Affine(x, 9, 0), zeroOne(m))
	}, nil},
	"focal": {[]int{4, 6}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Focal(m.Affine(x, 4, 0), zeroOne(m)) }, nil},
	"focal_plain": {[]int{4, 6}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.Focal(m.Affine(x, 4, 0), zeroOne(m), ampc.FocalOptions{Gamma: new(1.5), Alpha: new(-1.0)})
	}, nil},
	"triplet": {[]int{4, 6}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.Triplet(x, fixed(m, "fill1", filled(24, 1), 4, 6), fixed(m, "fill2", filled(24, 2), 4, 6), ampc.TripletOptions{Margin: new(0.4)})
	}, nil},
	"cosine_similarity": {[]int{4, 6}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.CosineSimilarity(x, fixed(m, "fill1", filled(24, 1), 4, 6), 1)
	}, nil},
	"cosine_embedding": {[]int{4, 6}, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
		return m.CosineEmbedding(x, fixed(m, "fill1", filled(24, 1), 4, 6), fixed(m, "target", []float64{1, -1, -1, 1}, 4), ampc.CosineEmbeddingOptions{Margin: -0.5})
	}, nil},
}

// fixed is a tensor with the given elements, a state that nothing changes.
func fixed(m *ampc.Model, name string, x []float64, dims ...int) ampc.Tensor {
	return m.State("fixed."+name, ampc.Data(x...), dims...)
}

func zeroOne(m *ampc.Model) ampc.Tensor {
	x := filled(24, 3)
	for i := range x {
		x[i] = math.Ceil(x[i])
	}
	return fixed(m, "target", x, 4, 6)
}

// Layers and losses have the values and gradients of PyTorch 2.6 in f64, recorded by
// bench/torch/layers.py, within 1e-6 of the largest; and they train in mixed precision.
func TestLayersArePyTorchs(t *testing.T) {
	text, err := os.ReadFile("testdata/torch_layers.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string]struct{ Result, Gradient []float64 }
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	if len(recorded) != len(torchLayers) {
		t.Errorf("%d cases are recorded, %d are here", len(recorded), len(torchLayers))
	}
	for name, want := range recorded {
		t.Run(name, func(t *testing.T) {
			c := torchLayers[name]
			m := ampc.New("layers")
			defer m.Close()
			x := m.Param("x", ampc.Data(filled(elements(c.shape), 0)...), c.shape...)
			out := c.build(m, x)
			n := len(want.Result)
			loss := m.ReduceSum(m.Mul(m.Reshape(out, n), fixed(m, "fill50", filled(n, 50), n)))
			grad := m.Grad(loss, x)[0]
			step, err := m.Infer(ampc.InferConfig{}, out, grad)
			if err != nil {
				t.Fatal(err)
			}
			set := 0
			for _, v := range m.Variables() {
				k, ok := c.params[v]
				if !ok {
					if v != "x" && !strings.HasPrefix(v, "fixed.") {
						t.Errorf("the case says nothing of %s", v)
					}
					continue
				}
				set++
				old, err := m.Variable(v)
				if err != nil {
					t.Fatal(err)
				}
				value, err := ampc.NewHostTensor(old.Type, filled(old.Len(), k))
				if err != nil {
					t.Fatal(err)
				}
				if err := m.SetVariable(v, value); err != nil {
					t.Fatal(err)
				}
			}
			if set != len(c.params) {
				t.Fatalf("variables %q, the case has %v", m.Variables(), c.params)
			}
			r, err := step.Run(context.Background(), ampc.Feed{})
			if err != nil {
				t.Fatal(err)
			}
			near(t, "result", r, out, want.Result, 1e-6*math.Max(1, largest(want.Result)))
			near(t, "gradient", r, grad, want.Gradient, 1e-6*math.Max(1, largest(want.Gradient)))
			if _, err := m.Train(ampc.TrainConfig{Policy: ampc.MixedF16(), Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}, ampc.Loss{Value: loss}); err != nil {
				t.Error(err)
			}
		})
	}
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func largest(x []float64) (most float64) {
	for _, v := range x {
		most = math.Max(most, math.Abs(v))
	}
	return most
}
