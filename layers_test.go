package ampc_test

import (
	"math"
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
