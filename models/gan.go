package models

import "ampc"

// gan is Goodfellow et al. 2014 with the loss that does not saturate. The
// discriminator is one set of weights applied to real and made images; each
// step trains one side and leaves the other as it is.
func gan(z *Zoo, o Options) {
	m := z.Model
	real := m.Input("x", ampc.F32, o.Int("batch"), o.Int("in"))
	noise := m.Input("noise", ampc.F32, o.Int("batch"), o.Int("noise"))
	judge := m.Shared("dis", func(m *ampc.Model, x ...ampc.Tensor) ampc.Tensor {
		h := m.LeakyRelu(m.Linear("fc1", x[0], o.Int("hidden")), 0.2)
		return m.Linear("fc2", h, 1)
	})
	g := m.Scope("gen")
	made := g.Tanh(g.Linear("fc2", g.Relu(g.Linear("fc1", noise, o.Int("hidden"))), o.Int("in")))
	onReal, onMade := judge(real), judge(made)
	batch := o.Int("batch")
	one, zero := m.Full(ampc.F32, 1, batch, 1), m.Full(ampc.F32, 0, batch, 1)
	disLoss := m.Named("dis.loss").Add(m.BCEWithLogits(onReal, one), m.BCEWithLogits(onMade, zero))
	genLoss := m.Named("gen.loss").BCEWithLogits(onMade, one)
	z.Output = made
	z.Steps = []Step{
		{"dis", []ampc.Loss{{Value: disLoss}}, only("dis")},
		{"gen", []ampc.Loss{{Value: genLoss}}, only("gen")},
	}
}

func only(scope string) ampc.TrainConfig {
	adam := ampc.Adam()
	adam.Beta1 = 0.5
	return ampc.TrainConfig{Name: scope, Groups: []ampc.Group{{Pattern: scope, Optimizer: adam, LR: ampc.Constant(2e-4)}}}
}
