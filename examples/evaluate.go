package main

import (
	"context"
	"fmt"
	"io"

	"ampc"
)

func evaluate(w io.Writer) error {
	m := ampc.New("evaluate")
	x, y := m.Input("x", ampc.F32, ampc.Dim("batch"), 2), m.Input("y", ampc.I32, ampc.Dim("batch"))
	h := m.Dropout("drop", m.Tanh(m.Linear("fc1", x, 64)), 0.1)
	loss := m.Named("loss").CrossEntropy(m.Linear("fc2", h, 2), y)
	step, err := m.Train(ampc.TrainConfig{
		Optimizer: ampc.Adam(), LR: ampc.Constant(1e-2), Policy: ampc.MixedF16(), Sizes: ampc.Sizes{"batch": 64},
	}, ampc.Loss{Value: loss})
	if err != nil {
		return err
	}
	defer m.Close()
	full, err := step.Eval(loss) // dropout is off, the weights and their 16-bit copies are shared
	if err != nil {
		return err
	}
	short, err := full.For(ampc.Sizes{"batch": 10}) // the last batch of an epoch
	if err != nil {
		return err
	}
	for i := range 101 {
		r, err := step.Run(context.Background(), spirals(uint64(i), 64))
		if err != nil {
			return err
		}
		if i%50 != 0 {
			continue
		}
		a, err := full.Run(context.Background(), spirals(1000, 64))
		if err != nil {
			return err
		}
		b, err := short.Run(context.Background(), spirals(1001, 10))
		if err != nil {
			return err
		}
		held, err := a.Value(loss)
		if err != nil {
			return err
		}
		rest, err := b.Value(loss)
		if err != nil {
			return err
		}
		got, err := r.Wait(context.Background())
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "step %3d  training %.4f  held out %.4f  short batch %.4f\n", i, got.Loss, held.At(0), rest.At(0))
	}
	return nil
}
