package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"ampc"
)

// gan learns to draw numbers around 3 from noise.
func gan(w io.Writer) error {
	const batch = 64
	m := ampc.New("gan")
	real, noise := m.Input("real", ampc.F32, batch, 1), m.Input("noise", ampc.F32, batch, 4)
	g := m.Scope("gen")
	made := g.Linear("fc2", g.Tanh(g.Linear("fc1", noise, 16)), 1)
	judge := m.Shared("dis", func(m *ampc.Model, x ...ampc.Tensor) ampc.Tensor {
		return m.Linear("fc2", m.LeakyRelu(m.Linear("fc1", x[0], 32), 0.2), 1)
	})
	onReal, onMade := judge(real), judge(made)
	one, zero := m.Full(ampc.F32, 1, batch, 1), m.Full(ampc.F32, 0, batch, 1)
	lossOfDis := m.Add(m.BCEWithLogits(onReal, one), m.BCEWithLogits(onMade, zero))
	lossOfGen := m.BCEWithLogits(onMade, one)

	config := func(scope string) ampc.TrainConfig {
		adam := ampc.Adam()
		adam.Beta1 = 0.5
		return ampc.TrainConfig{Name: scope, Groups: []ampc.Group{{Pattern: scope, Optimizer: adam, LR: ampc.Constant(5e-3)}}, Policy: ampc.MixedF16(), Outputs: []ampc.Output{{Tensor: made}}}
	}
	dis, err := m.Train(config("dis"), ampc.Loss{Value: lossOfDis})
	if err != nil {
		return err
	}
	gen, err := m.Train(config("gen"), ampc.Loss{Value: lossOfGen}) // another step over the same variables
	if err != nil {
		return err
	}
	defer m.Close()
	r := rand.New(rand.NewPCG(1, 2))
	normal := func(n int, mean, deviation float64) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = mean + deviation*r.NormFloat64()
		}
		return x
	}
	for i := range 401 {
		feed := ampc.Feed{"real": normal(batch, 3, 0.5), "noise": normal(4*batch, 0, 1)}
		d, err := dis.Run(context.Background(), feed)
		if err != nil {
			return err
		}
		g, err := gen.Run(context.Background(), feed)
		if err != nil {
			return err
		}
		if i%100 == 0 {
			x, err := g.Value(made)
			if err != nil {
				return err
			}
			sum := float32(0)
			for _, v := range x.Floats() {
				sum += v
			}
			ofDis, err := d.Wait(context.Background())
			if err != nil {
				return err
			}
			ofGen, err := g.Wait(context.Background())
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "step %3d  discriminator %.3f  generator %.3f  mean drawn %.2f\n", i, ofDis.Loss, ofGen.Loss, sum/batch)
		}
	}
	return nil
}
