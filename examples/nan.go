package main

import (
	"context"
	"fmt"
	"io"
	"math"

	"ampc"
)

// findNaN trains a model that divides by a deviation of zero. The step is
// skipped, the weights stay as they are, and the results of the layers, asked
// for as outputs, show where the first bad number appeared.
func findNaN(w io.Writer) error {
	m := ampc.New("nan")
	x := m.Input("x", ampc.F32, 4, 8)
	h := m.Linear("fc1", x, 8)
	centred := m.Named("centred").Sub(h, m.ReduceMean(h, true, 1))
	variance := m.Named("variance").ReduceMean(m.Square(centred), true, 1)
	scaled := m.Named("scaled").Div(centred, m.Sqrt(variance)) // no epsilon
	out := m.Linear("fc2", scaled, 1)
	loss := m.Named("loss").ReduceMean(m.Square(out), false)

	layers := []ampc.Tensor{h, centred, variance, scaled, out}
	step, err := ampc.Train(m, loss, ampc.Config{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16(), Outputs: layers})
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.SetVariable("fc1.w", make([]float32, 64)); err != nil { // a dead layer: all outputs equal its bias
		return err
	}
	if err := m.SetVariable("fc1.b", make([]float32, 8)); err != nil {
		return err
	}
	r, err := step.Run(context.Background(), ampc.Feed{"x": make([]float32, 32)})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "loss %g, skipped %t\n", r.Loss(), r.Skipped())
	for _, t := range layers {
		h, err := r.Value(t)
		if err != nil {
			return err
		}
		for _, v := range h.Floats() {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				fmt.Fprintf(w, "first bad value: %s, computed by %s at %s\n", t, t.Def.Def().Name, t.Def.Pos)
				return nil
			}
		}
	}
	return nil
}
