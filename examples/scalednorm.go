package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"ampc"
	"ampc/ir"
)

// scaledNorm reads the gradients' norm three times: under a loss scale that the
// compiler knows; with the loss multiplied by hand, which nothing takes off; and
// from the scaled gradients, by editing the compiled step, which is refused.
func scaledNorm(w io.Writer) error {
	norm := func(by float64, s ampc.Scaler) (float64, *ampc.Step, error) {
		m, loss := classifier(64, 32)
		if by != 1 {
			loss = m.Affine(loss, by, 0)
		}
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Clip: ampc.ClipNorm(1e9), Policy: ampc.MixedF16(), Scaler: s}, ampc.Loss{Value: loss})
		if err != nil {
			return 0, nil, err
		}
		r, err := step.Run(context.Background(), spirals(1, 64))
		if err != nil {
			return 0, nil, err
		}
		got, err := r.Wait(context.Background())
		if err != nil {
			return 0, nil, err
		}
		all, err := got.GradNorm()
		return all, step, err
	}
	right, step, err := norm(1, ampc.Static(65536))
	if err != nil {
		return err
	}
	wrong, _, err := norm(65536, ampc.Unscaled())
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "loss scale of the compiler: norm %.5f\n", right)
	fmt.Fprintf(w, "loss multiplied by hand:    norm %.1f, %.0f times as large: a clip at 1 would take all of it away\n", wrong, wrong/right)
	text := step.Graph().String()
	edited := strings.Replace(text, "global_norm %mul,", "global_norm _,", 1)
	g, err := ir.Parse("edited.ir", []byte(edited))
	if err != nil {
		return err
	}
	if err := ir.InferUnits(g); err != nil {
		fmt.Fprintf(w, "norm of scaled gradients:   %v\n", err)
		return nil
	}
	return fmt.Errorf("a norm of scaled gradients was accepted")
}
