package ampc_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
)

// Every layer with its options builds, has the shape it promises, and passes a
// gradient to every one of its parameters under mixed precision.
func TestLayers(t *testing.T) {
	image := []any{2, 4, 8, 8}
	volume := []any{2, 4, 5, 6, 7}
	sequence := []any{2, 6, 8}
	for name, c := range map[string]struct {
		in    []any
		build func(m *ampc.Model, x ampc.Tensor) ampc.Tensor
		shape ir.Shape
	}{
		"linear": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Linear("l", x, 5, ampc.LinearOptions{Init: ampc.Normal(0, 1)})
		}, ir.MakeShape(2, 6, 5)},
		"conv2d": {image, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Conv2d("l", x, 6, 3, ampc.Conv2dOptions{Stride: 2, Padding: 1, Groups: 2})
		}, ir.MakeShape(2, 6, 4, 4)},
		"conv2d dilated": {image, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Conv2d("l", x, 6, 3, ampc.Conv2dOptions{Dilation: 2, NoBias: true})
		}, ir.MakeShape(2, 6, 4, 4)},
		"conv_transpose2d": {image, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.ConvTranspose2d("l", x, 3, 2, ampc.ConvTranspose2dOptions{Stride: 2})
		}, ir.MakeShape(2, 3, 16, 16)},
		"conv3d": {volume, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Conv3d("l", x, 6, 3, ampc.Conv3dOptions{Stride: 2, Padding: 1, Groups: 2})
		}, ir.MakeShape(2, 6, 3, 3, 4)},
		"conv_transpose3d": {volume, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.ConvTranspose3d("l", x, 3, 2, ampc.ConvTranspose3dOptions{Stride: 2, OutputPadding: [3]int{1, 0, 1}})
		}, ir.MakeShape(2, 3, 11, 12, 15)},
		"layer_norm": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.LayerNorm("l", x, ampc.LayerNormOptions{Eps: new(1e-3)})
		}, ir.MakeShape(2, 6, 8)},
		"rms_norm":   {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.RMSNorm("l", x) }, ir.MakeShape(2, 6, 8)},
		"group_norm": {image, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.GroupNorm("l", x, 2) }, ir.MakeShape(2, 4, 8, 8)},
		"batch_norm": {image, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.BatchNorm("l", x, ampc.BatchNormOptions{Momentum: new(0.2)})
		}, ir.MakeShape(2, 4, 8, 8)},
		"attention": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Attention("l", x, 2, ampc.AttentionOptions{Causal: true})
		}, ir.MakeShape(2, 6, 8)},
		"attention grouped": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Attention("l", x, 4, ampc.AttentionOptions{KVHeads: 2, NoBias: true})
		}, ir.MakeShape(2, 6, 8)},
		"attention crossed": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			memory := m.Reshape(m.Slice(x, []int{1}, []int{0}, []int{3}), 2, 3, 8)
			return m.Attention("l", x, 2, ampc.AttentionOptions{Memory: memory})
		}, ir.MakeShape(2, 6, 8)},
		"attention masked": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Attention("l", x, 2, ampc.AttentionOptions{Mask: m.Full(ampc.F32, -1, 6, 6)})
		}, ir.MakeShape(2, 6, 8)},
		"lstm": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.LSTM("l", x, 5) }, ir.MakeShape(2, 6, 5)},
		"lstm both ways": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.LSTM("l", x, 5, ampc.LSTMOptions{Bidirectional: true})
		}, ir.MakeShape(2, 6, 10)},
		"gru": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.GRU("l", x, 5, ampc.GRUOptions{H0: m.Full(ampc.F32, 0.5, 1, 2, 5)})
		}, ir.MakeShape(2, 6, 5)},
		"rnn": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.RNN("l", x, 5, ampc.RNNOptions{H0: m.Full(ampc.F32, 0.5, 1, 2, 5)})
		}, ir.MakeShape(2, 6, 5)},
		"rnn both ways": {sequence, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.RNN("l", x, 5, ampc.RNNOptions{Bidirectional: true, Relu: true})
		}, ir.MakeShape(2, 6, 10)},
		"pools": {image, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Linear("l", m.Flatten(m.Add(m.MaxPool2d(x, 2), m.AvgPool2d(x, 2))), 3)
		}, ir.MakeShape(2, 3)},
		"global pool": {image, func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Linear("l", m.GlobalAvgPool(x), 3)
		}, ir.MakeShape(2, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			m := ampc.New("layer")
			x := m.Input("x", ampc.F32, c.in...)
			y := c.build(m, x)
			if err := m.Err(); err != nil {
				t.Fatal(err)
			}
			if y.IR().Type.Shape != c.shape {
				t.Errorf("result is %s, want %s", y, ir.Type{DType: ir.F32, Shape: c.shape})
			}
			var params []ampc.Tensor
			for _, v := range m.Graph().Vars {
				if v.Kind == ir.Param {
					params = append(params, m.FromIR(v))
				}
			}
			n := 1
			for _, d := range c.in {
				n *= d.(int)
			}
			data := make([]float64, n)
			for i := range data {
				data[i] = math.Sin(float64(i * i))
			}
			weights := m.Input("weights", ampc.F32, int(c.shape.Elements()))
			loss := m.ReduceSum(m.Mul(m.Reshape(y, -1), weights)) // no symmetry that cancels gradients
			s := train(t, m, loss, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1e-3), Policy: ampc.MixedF16(), Grads: params})
			w := make([]float64, c.shape.Elements())
			for i := range w {
				w[i] = math.Cos(float64(3 * i))
			}
			feed := ampc.Feed{"x": data, "weights": w}
			r := run(t, s, feed)
			for metrics(t, r).Skipped { // the scale finds its place
				r = run(t, s, feed)
			}
			for _, p := range params {
				g, err := r.Grad(p)
				if err != nil {
					t.Fatal(err)
				}
				if largestOf(g) == 0 && !strings.HasSuffix(p.Name(), "qkv.b") { // a bias of keys shifts all scores of a row alike
					t.Errorf("%s has no gradient", p)
				}
			}
		})
	}
}

func largestOf(h ampc.HostTensor) (top float64) {
	for i := range h.Len() {
		top = max(top, math.Abs(h.At(i)))
	}
	return top
}

// A pinned region beats the policy; the innermost pin counts.
func TestPrecisionRegions(t *testing.T) {
	m := ampc.New("regions")
	x := m.Input("x", ampc.F32, 8, 16)
	a := m.Linear("free", x, 16)
	f := m.Precision(ampc.PinF32)
	b := f.Linear("exact", a, 16)
	c := f.Precision(ampc.PinLow).Linear("low", b, 16)
	d := f.Scope("in").Precision(ampc.PinTF32).Linear("tf32", c, 16)
	loss := m.ReduceMean(m.Square(d))
	s := train(t, m, loss, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16()})
	for name, want := range map[string]struct {
		operand ir.DType
		math    string
	}{"free": {ir.F16, ""}, "exact": {ir.F32, ""}, "low": {ir.F16, ""}, "in.tf32": {ir.F32, "tf32"}} {
		v := s.Graph().Value(name)
		if v == nil {
			t.Errorf("%s is gone", name)
			continue
		}
		if got := v.Def.In[0].Type.DType; got != want.operand || v.Def.Str("math") != want.math {
			t.Errorf("%s reads %s with math %q, want %s with %q", name, got, v.Def.Str("math"), want.operand, want.math)
		}
	}
}

// Dropout draws anew every step, keeps its share, and is off in evaluation.
func TestDropout(t *testing.T) {
	m := ampc.New("dropout")
	x := m.Input("x", ampc.F32, 4000)
	y := m.Dropout("drop", m.Mul(x, m.Param("w", ampc.Fill(1), 1)), 0.25)
	loss := m.ReduceSum(y)
	s := train(t, m, loss, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0), Outputs: []ampc.Output{{Tensor: y}}})
	ones := make([]float32, 4000)
	for i := range ones {
		ones[i] = 1
	}
	var masks [2]string
	for k := range masks {
		h, err := run(t, s, ampc.Feed{"x": ones}).Value(y)
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, v := range h.Floats() {
			if v != 0 {
				kept++
				if math.Abs(float64(v)-4.0/3) > 1e-6 {
					t.Fatalf("a kept element is %g, want 4/3", v)
				}
			}
		}
		if kept < 2880 || kept > 3120 { // 3000 ± 4.4 deviations
			t.Errorf("kept %d of 4000, want about 3000", kept)
		}
		masks[k] = string(h.Bytes)
	}
	if masks[0] == masks[1] {
		t.Error("two steps drew the same mask")
	}
	eval, err := s.Eval(y)
	if err != nil {
		t.Fatal(err)
	}
	h, err := run(t, eval, ampc.Feed{"x": ones}).Value(y)
	if err != nil || h.At(0) != 1 || h.At(3999) != 1 {
		t.Errorf("evaluation drops elements (%v)", err)
	}
}

// A norm's epsilon and momentum may be 0; nil is the default.
func TestNormOptionsMayBeZero(t *testing.T) {
	m := ampc.New("zero")
	x := m.Input("x", ampc.F32, 4, 6, 2)
	m.LayerNorm("a", x)
	m.LayerNorm("b", x, ampc.LayerNormOptions{Eps: new(0.0)})
	m.RMSNorm("c", x, ampc.RMSNormOptions{Eps: new(0.0)})
	m.GroupNorm("d", x, 2, ampc.GroupNormOptions{Eps: new(0.0)})
	m.BatchNorm("e", x, ampc.BatchNormOptions{Momentum: new(0.0), Eps: new(0.0)})
	m.BatchNorm("f", x)
	if err := m.Err(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]float64{"a": {1e-5}, "b": {}, "c": {}, "d": {}, "e": {}, "f": {1e-5, 0.1}} {
		n := m.Lookup(name).IR().Def
		got := [2]float64{n.Float("eps")}
		if n.Op == ir.OpBatchNorm {
			got[1] = n.Float("momentum")
		}
		if got != want {
			t.Errorf("%s: eps and momentum %v, want %v", name, got, want)
		}
	}
}

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

// block numbers those of a block except for its attention.
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

// The weight of a shared layer gets the gradients of all its applications.
func TestSharedWeights(t *testing.T) {
	m := ampc.New("shared")
	x := m.Input("x", ampc.F32, 1, 1)
	f := m.Shared("f", func(m *ampc.Model, x ...ampc.Tensor) ampc.Tensor {
		return m.Linear("fc", x[0], 1, ampc.LinearOptions{NoBias: true, Init: ampc.Fill(3)})
	})
	loss := m.ReduceSum(f(f(x))) // w²·x
	s := train(t, m, loss, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5), Grads: []ampc.Tensor{m.Lookup("f.fc.w")}})
	r := run(t, s, ampc.Feed{"x": []float32{2}})
	if g, err := r.Grad(m.Lookup("f.fc.w")); err != nil || g.At(0) != 12 {
		t.Errorf("gradient %v (%v), want 12", g, err)
	}
	if w, _ := m.Variable("f.fc.w"); w.At(0) != 3-6 {
		t.Errorf("weight %g, want -3", w.At(0))
	}
	if got := len(m.Variables()); got == 0 || strings.Count(strings.Join(m.Variables(), " "), "fc.w") != 1 {
		t.Errorf("variables %v, want one weight", m.Variables())
	}
}
