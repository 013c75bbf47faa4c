package main

import (
	"context"
	"fmt"
	"io"

	"ampc"
)

func mlp(w io.Writer) error {
	m := ampc.New("mlp")
	x, y := m.Input("x", ampc.F32, 64, 2), m.Input("y", ampc.I32, 64)
	h := m.Relu(m.Linear("fc1", x, 64))
	h = m.Relu(m.Linear("fc2", h, 64))
	loss := m.CrossEntropy(m.Linear("fc3", h, 2), y)

	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.Adam(), LR: ampc.Constant(5e-3)}, ampc.Loss{Value: loss})
	if err != nil {
		return err
	}
	defer m.Close()
	for i := range 201 {
		r, err := step.Run(context.Background(), spirals(uint64(i), 64))
		if err != nil {
			return err
		}
		if i%50 == 0 {
			got, err := r.Wait(context.Background())
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "step %3d  loss %.4f\n", i, got.Loss)
		}
	}
	return nil
}
