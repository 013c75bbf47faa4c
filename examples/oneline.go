package main

import (
	"context"
	"fmt"
	"io"

	"ampc"
)

func oneLine(w io.Writer) error {
	for _, policy := range []ampc.Policy{
		ampc.F32Only(),
		ampc.MixedF16(), // the changed line
	} {
		m, loss := classifier(64, 64)
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.Adam(), LR: ampc.Constant(5e-3), Policy: policy}, ampc.Loss{Value: loss})
		if err != nil {
			return err
		}
		var r *ampc.Result
		for i := range 200 {
			if r, err = step.Run(context.Background(), spirals(uint64(i), 64)); err != nil {
				return err
			}
		}
		got, err := r.Wait(context.Background())
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%-9s  loss %.4f  scale %g\n", policy.Name, got.Loss, got.Scale)
		m.Close()
	}
	return nil
}
