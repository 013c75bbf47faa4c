package e2e_test

import (
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/optim"
)

// Small steps that the checker once refused, rightly or not, each under the policies that it did.
func TestStepsOnceRefused(t *testing.T) {
	for _, x := range []struct {
		name     string
		policies []string
		make     func(m *ampc.Model) (c ampc.TrainConfig, losses []ampc.Loss)
	}{
		{"the gradient of a weight behind two gathers", []string{"mixed-f16-trunk", "mixed-bf16-trunk"}, gatherTwice},
		{"a pool of a square, both returned", []string{"o2-f16", "o2-bf16", "o3-f16", "o3-bf16"}, returnedPool},
		{"Lion with a scaled loss and another", []string{"o2-bf16", "o2-f16"}, scaledLion},
		{"a concatenation with a weight, returned", []string{"mixed-f16-trunk", "mixed-bf16-trunk"}, returnedConcat},
		{"parts of a returned value in products", []string{"mixed-f16", "mixed-bf16"}, slicedFilters},
		{"a part of an embedding as a bias", []string{"mixed-f16", "mixed-bf16"}, embeddedBias},
		{"a part of an attention as a first state", []string{"tensorflow-f16", "torch-f16", "mixed-f16"}, attendedState},
		{"a norm scaled by a cast of 16 bits", []string{"mixed-f16", "mixed-bf16"}, castScale},
		{"a scatter of 16 bits pinned to them", []string{"mixed-f16", "o1-f16", "o3-bf16"}, pinnedScatter},
		{"a gradient joined with 16 bits", []string{"mixed-f16"}, joinedGradient},
		{"a function and a gradient alike", []string{"oneflow-bf16", "oneflow-f16"}, alikeGradients},
		{"gradients that the source has in the other 16 bits", []string{"oneflow-f16", "mixed-f16"}, otherGradients},
		{"a part of a weight that is cast", []string{"o1-f16", "oneflow-f16"}, castWeight},
		{"parts of a norm in products", []string{"mixed-f16", "mixed-bf16"}, slicedNorm},
		{"a product, and the same in tf32", []string{"mixed-f16", "mixed-bf16"}, twoProducts},
		{"Lion with a clipped gradient in 16 bits", []string{"mixed-bf16", "o2-bf16"}, clippedLion},
		{"the gradient of a weight that is moved", []string{"mixed-f16-trunk", "mixed-bf16-trunk"}, movedWeight},
		{"a returned value, moved for sums", []string{"mixed-f16", "mixed-bf16"}, movedResult},
	} {
		for _, name := range x.policies {
			p, err := ampc.PolicyNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			m := ampc.New("refused", ampc.Seed(1))
			c, losses := x.make(m)
			c.Policy, c.LR = p, ampc.Constant(1e-3)
			if _, err := m.Train(c, losses...); err != nil {
				t.Errorf("%s under %s: %v", x.name, name, err)
			}
			m.Close()
		}
	}
}

func gatherTwice(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	once := m.Gather(m.Param("w", ampc.Fill(1), 6, 4), m.Input("i", ampc.I32, 5), 0)
	twice := m.Gather(once, m.Input("j", ampc.I32, 3), 0)
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: m.ReduceSum(m.Square(twice))}}
}

func returnedPool(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	pool := m.MaxPool(m.Param("w", ampc.Fill(1), 2, 12, 14, 4), []int{2, 2})
	square := m.Mul(pool, pool)
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), Outputs: []ampc.Output{{Tensor: m.MaxPool(square, []int{2, 1})}, {Tensor: square}}}
	return c, []ampc.Loss{{Value: m.ReduceMean(m.Square(square))}}
}

func scaledLion(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	x := m.Linear("fc", m.Input("x", ampc.F32, 4, 4), 4)
	own := ampc.Dynamic()
	losses := []ampc.Loss{{Value: m.ReduceMean(m.Square(x))}, {Value: m.ReduceMean(m.Abs(m.Mul(x, x))), Scaler: &own}}
	return ampc.TrainConfig{Optimizer: optim.Lion(optim.LionOptions{})}, losses
}

func returnedConcat(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	joined := m.Concat(0, m.Linear("fc", m.Input("x", ampc.F32, 4, 3), 3), m.Param("w", ampc.Fill(1), 1, 3))
	return ampc.TrainConfig{Optimizer: ampc.SGD(0), Outputs: []ampc.Output{{Tensor: joined}}}, []ampc.Loss{{Value: m.ReduceMean(m.Square(joined))}}
}

// part is the first elements of x in another shape.
func part(m *ampc.Model, x ampc.Tensor, shape ...int) ampc.Tensor {
	n, all := 1, 1
	for _, d := range shape {
		n *= d
	}
	for _, d := range x.Shape() {
		all *= d
	}
	return m.Reshape(m.Slice(m.Reshape(x, all), []int{0}, []int{0}, []int{n}), shape...)
}

func slicedFilters(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	h := m.Hardswish(m.Param("w", ampc.Fill(1), 4, 33))
	o := ampc.ConvOptions{Strides: []int{2, 2}, Layout: ampc.ChannelsLast}
	y := m.ConvTranspose(m.Input("x", ampc.F32, 1, 3, 3, 4), part(m, h, 4, 2, 2, 3), part(m, h, 3), o)
	return ampc.TrainConfig{Optimizer: ampc.SGD(0), Outputs: []ampc.Output{{Tensor: h}}}, []ampc.Loss{{Value: m.ReduceMean(m.Square(m.Softsign(y)))}}
}

func embeddedBias(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	w := m.Param("w", ampc.Fill(1), 11, 6)
	rows := m.Gather(w, m.Input("i", ampc.I32, 3, 4), 0)
	o := ampc.ConvOptions{Strides: []int{2, 2}, Layout: ampc.ChannelsLast}
	y := m.ConvTranspose(m.Input("x", ampc.F32, 1, 3, 3, 4), part(m, w, 4, 2, 2, 3), part(m, rows, 3), o)
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: m.Add(m.ReduceMean(m.Square(y)), m.ReduceMean(m.Square(w)))}}
}

func attendedState(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	w := m.Param("w", ampc.Fill(1), 2, 2, 3, 4)
	x := m.ScaledDotProductAttention(w, w, w, ampc.SDPAOptions{Mask: m.Param("mask", ampc.Fill(1), 2, 1, 3, 1)})
	b := m.IR()
	out := b.Emit(ir.OpLSTM, []*ir.Value{m.Input("x", ampc.F32, 5, 3, 2, 16).IR(), m.Input("r", ampc.F32, 2, 4, 16).IR(), nil, part(m, x, 2, 3, 4).IR()}, nil)
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: m.ReduceMean(m.Square(m.Lookup(out[0].Name)))}}
}

func castScale(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	scale := m.Cast(m.Input("scale", ampc.BF16, 3), ampc.F32)
	norm := m.InstanceNormWith(m.Param("w", ampc.Fill(1), 2, 3, 40), scale, scale)
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: m.ReduceMean(m.Square(norm))}}
}

func pinnedScatter(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	x := m.LogSumExp(m.Param("w", ampc.Fill(1), 5, 4), ampc.ReduceOptions{Axes: []int{1}})
	y := m.Precision(ampc.PinLow).Scatter(x, m.Input("i", ampc.I32, 2), m.Input("u", ampc.F16, 2), 0)
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: m.ReduceMean(m.Square(y))}}
}

func joinedGradient(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	h := m.RNN("rnn", m.Linear("fc", m.Input("x", ampc.F32, 3, 5, 4), 4), 4)
	y := m.Precision(ampc.PinTF32).Scatter(part(m, h, 5, 4), m.Input("i", ampc.I32, 9, 2), m.Input("u", ampc.F16, 9, 2), 0)
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: m.ReduceMean(m.Square(y))}}
}

func alikeGradients(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	w := m.Param("w", ampc.Fill(1), 9, 7)
	entropy := m.BCEWithLogits(w, m.Affine(m.Sigmoid(w), 0.96, 0.02))
	mish := m.Tanh(m.Mish(w))
	gate := m.Mul(part(m, mish, 1), m.Reshape(entropy, 1))
	own := ampc.Dynamic()
	losses := []ampc.Loss{{Value: m.ReduceMean(m.Square(gate))}, {Value: m.ReduceMean(m.Abs(mish)), Scaler: &own}}
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, losses
}

func otherGradients(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	w, r := m.Param("w", ampc.Fill(1), 5, 3, 1, 16), m.Input("r", ampc.BF16, 1, 4, 16)
	out := m.IR().Emit(ir.OpLSTM, []*ir.Value{w.IR(), r.IR()}, nil)
	cell := m.Lookup(out[1].Name)
	own := ampc.Dynamic()
	losses := []ampc.Loss{{Value: m.ReduceMean(m.Square(cell))}, {Value: m.ReduceMean(m.Abs(cell)), Scaler: &own}}
	return ampc.TrainConfig{Optimizer: optim.Lion(optim.LionOptions{})}, losses
}

func castWeight(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	w := m.Cast(m.Param("w", ampc.Fill(1), 7, 15), ampc.F16)
	sums := m.ReduceL1(part(m, w, 4, 5), ampc.ReduceOptions{Axes: []int{0}})
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: m.ReduceMean(m.Square(sums))}}
}

func slicedNorm(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	norm := m.RMSNorm("norm", m.Param("w", ampc.Fill(1), 6, 33))
	one := m.Linear("one", part(m, norm, 8, 6), 4)
	two := m.Linear("two", m.Tile(part(m, norm, 2, 3), 2, 3), 4)
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: m.Add(m.ReduceMean(m.Square(one)), m.ReduceMean(m.Square(two)))}}
}

func twoProducts(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	w, x := m.Param("w", ampc.Fill(1), 5, 7), m.Input("x", ampc.F32, 7, 9)
	product := m.Matmul(w, x)
	rounded := m.IR().Emit(ir.OpMatmul, []*ir.Value{w.IR(), x.IR()}, ir.Attrs{{Name: "math", Value: "tf32"}})
	sum := m.Add(m.ReduceMean(m.Square(product)), m.ReduceMean(m.Square(m.Lookup(rounded[0].Name))))
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: sum}}
}

func clippedLion(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	tile := m.Precision(ampc.PinLow).Tile(m.Param("w", ampc.Fill(1), 2, 3), 2, 3)
	c := ampc.TrainConfig{Optimizer: optim.Lion(optim.LionOptions{}), Clip: ampc.ClipValue(1)}
	return c, []ampc.Loss{{Value: m.ReduceMean(m.Square(tile))}}
}

func movedWeight(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	x := m.SpaceToDepth(m.Param("w", ampc.Fill(1), 2, 2, 6, 4), 2, "crd")
	y := m.Precision(ampc.PinTF32).Tanh(x)
	return ampc.TrainConfig{Optimizer: ampc.SGD(0)}, []ampc.Loss{{Value: m.Add(m.ReduceMean(m.Square(y)), m.ReduceMean(m.Square(x)))}}
}

func movedResult(m *ampc.Model) (ampc.TrainConfig, []ampc.Loss) {
	h := m.Tanh(m.Sigmoid(m.Linear("fc", m.Input("x", ampc.F32, 36, 4), 3)))
	joined := m.Concat(1, m.Input("wide", ampc.F32, 2, 3), part(m, h, 2, 4))
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), Outputs: []ampc.Output{{Tensor: h}}}
	return c, []ampc.Loss{{Value: m.Add(m.ReduceMean(m.Square(m.Elu(joined, 1))), m.ReduceMean(m.Square(h)))}}
}

// Under o2, which casts weights for every reader, the update reads the f32 weights: steps that are
// too small for 16 bits add up.
func TestUpdatesReadMasterWeights(t *testing.T) {
	for _, p := range []ampc.Policy{ampc.MixedBF16(), ampc.O2(ampc.BF16), ampc.O2(ampc.F16)} {
		m := ampc.New("masters")
		loss := m.ReduceSum(m.Mul(m.Param("w", ampc.Fill(1), 4), m.Input("x", ampc.F32, 4)))
		const lr = 0x1p-14
		s := train(t, m, loss, ampc.TrainConfig{Optimizer: optim.Lion(optim.LionOptions{}), LR: ampc.Constant(lr), Policy: p})
		for range 3 {
			run(t, s, ampc.Feed{"x": []float32{1, 2, 3, 4}})
		}
		w, err := m.Variable("w")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := w.At(0), 1-3*lr; got != want {
			t.Errorf("%s: three steps of %g lead from 1 to %g, want %g", p.Name, lr, got, want)
		}
	}
}
