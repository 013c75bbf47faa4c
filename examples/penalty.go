package main

import (
	"context"
	"fmt"
	"io"

	"ampc"
)

// penalty keeps the slope of a classifier's output by its input small
// (Drucker and Le Cun 1992): the gradient is a value, the loss depends on it.
func penalty(w io.Writer) error {
	for _, strength := range []float64{0, 0.1} {
		m := ampc.New("penalty")
		x, y := m.Input("x", ampc.F32, 64, 2), m.Input("y", ampc.I32, 64)
		h := m.Tanh(m.Linear("fc1", x, 32))
		fit := m.Named("fit").CrossEntropy(m.Linear("fc2", h, 2), y)
		// The mean over 64 points makes each point's slope small: scaled, it survives f16.
		slope := m.ScaledGrad(1024, fit, x)[0]
		size := m.Named("slope").ReduceSum(m.Square(m.Affine(slope, 64, 0)))
		loss := m.Named("loss").Add(fit, m.Affine(size, strength/64, 0))
		step, err := m.Train(ampc.TrainConfig{
			Optimizer: ampc.Adam(), LR: ampc.Constant(1e-2), Policy: ampc.MixedF16(),
			Outputs: []ampc.Output{{Tensor: fit}, {Tensor: size}},
		}, ampc.Loss{Value: loss})
		if err != nil {
			return err
		}
		var r *ampc.Result
		for i := range 200 {
			if r, err = step.Run(context.Background(), spirals(uint64(i), 64)); err != nil {
				return err
			}
		}
		slopes, err := r.Value(size)
		if err != nil {
			return err
		}
		got, err := r.Wait(context.Background())
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "penalty %.1f  loss %.4f  mean squared slope %.4f\n", strength, got.Loss, slopes.At(0)/64)
		m.Close()
	}
	return nil
}
