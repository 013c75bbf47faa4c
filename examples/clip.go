package main

import (
	"context"
	"fmt"
	"io"

	"ampc"
)

func clip(w io.Writer) error {
	for _, c := range []struct {
		name string
		clip ampc.Clip
	}{{"norm 0.05", ampc.ClipNorm(0.05)}, {"value 0.001", ampc.ClipValue(0.001)}} {
		m, loss := classifier(64, 32)
		step, err := m.Train(ampc.TrainConfig{
			Optimizer: ampc.SGD(0),
			LR:        ampc.Constant(1),
			Clip:      c.clip,
			Policy:    ampc.MixedF16(), // gradients are scaled; clipping and the norm see them unscaled
			Grads:     []ampc.Tensor{m.Lookup("fc2.w")},
		}, ampc.Loss{Value: loss})
		if err != nil {
			return err
		}
		before, err := m.Variable("fc2.w")
		if err != nil {
			return err
		}
		r, err := step.Run(context.Background(), spirals(1, 64))
		if err != nil {
			return err
		}
		after, err := m.Variable("fc2.w")
		if err != nil {
			return err
		}
		g, err := r.Grad(m.Lookup("fc2.w"))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "clip at %s: largest gradient of fc2.w %.5f, largest step %.5f", c.name, largest(g.Floats(), nil), largest(before.Floats(), after.Floats()))
		if c.clip.Norm > 0 {
			got, err := r.Wait(context.Background())
			if err != nil {
				return err
			}
			norm, err := got.GradNorm()
			if err != nil {
				return err
			}
			fmt.Fprintf(w, ", norm of all gradients %.4f", norm)
		}
		fmt.Fprintln(w)
		m.Close()
	}
	return nil
}

// largest is the largest magnitude in a, or of the differences to b.
func largest(a, b []float32) (top float32) {
	for i, x := range a {
		if b != nil {
			x -= b[i]
		}
		top = max(top, x, -x)
	}
	return top
}
