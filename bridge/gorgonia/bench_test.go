//go:build !windows

package bridge

import (
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"ampc"
)

// BenchmarkStep times one training step, its data bound anew: on the tape
// machine with Gorgonia's solver, as shipped and with OpenBLAS, on ours with the
// same solver, and on ours with the optimizer inside.
func BenchmarkStep(b *testing.B) {
	shipped := tensor.WhichBLAS()
	defer tensor.Use(shipped)
	fast, missing := openOpenBLAS()
	for _, c := range []struct {
		name string
		make func() *net
	}{
		{"mlp-784-512-512-10-batch128", func() *net { return mlp(128, 784, 512, 512, 10) }},
		{"lenet-batch32", func() *net { return leNet(32) }},
	} {
		const rate = 0.001
		tape := func(m *net) G.VM { return G.NewTapeMachine(m.g, G.BindDualValues(m.params...)) }
		sgd := WithOptimizer(ampc.SGD(0), ampc.Constant(rate))
		for _, v := range []struct {
			name   string
			make   func(m *net) G.VM
			solver bool
		}{
			{"tape", tape, true},
			{"tape-openblas", tape, true},
			{"ampc-f32", func(m *net) G.VM { return machine(b, m.g) }, true},
			{"ampc-f32-inside", func(m *net) G.VM { return machine(b, m.g, sgd) }, false},
			{"ampc-bf16-inside", func(m *net) G.VM { return machine(b, m.g, sgd, WithPolicy(ampc.MixedBF16())) }, false},
		} {
			b.Run(c.name+"/"+v.name, func(b *testing.B) {
				tensor.Use(shipped)
				if v.name == "tape-openblas" {
					if missing != nil {
						b.Skip("no OpenBLAS: ", missing)
					}
					tensor.Use(fast)
				}
				m := c.make()
				vm, s := v.make(m), G.NewVanillaSolver(G.WithLearnRate(rate))
				defer vm.Close()
				for b.Loop() {
					m.run(b, vm)
					if v.solver {
						if err := s.Step(G.NodesToValueGrads(m.params)); err != nil {
							b.Fatal(err)
						}
					}
					vm.Reset()
				}
			})
		}
	}
}
