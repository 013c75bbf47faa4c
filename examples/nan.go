package main

import (
	"context"
	"fmt"
	"io"

	"ampc"
)

// findNaN trains a model that divides by a deviation of zero. The step is
// skipped, the weights stay as they are, and the doctor says where it began and
// that no precision would have helped.
func findNaN(w io.Writer) error {
	m := ampc.New("nan")
	x := m.Input("x", ampc.F32, 4, 8)
	h := m.Linear("fc1", x, 8)
	centred := m.Named("centred").Sub(h, m.ReduceMean(h, ampc.ReduceOptions{Axes: []int{1}, Keep: true}))
	variance := m.Named("variance").ReduceMean(m.Square(centred), ampc.ReduceOptions{Axes: []int{1}, Keep: true})
	scaled := m.Named("scaled").Div(centred, m.Sqrt(variance)) // no epsilon
	out := m.Linear("fc2", scaled, 1)
	loss := m.Named("loss").ReduceMean(m.Square(out))

	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16()}, ampc.Loss{Value: loss})
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
	return tell(w, step, ampc.Feed{"x": make([]float32, 32)})
}

// tell runs a step, prints what came of it and, where it was skipped, what the
// doctor says.
func tell(w io.Writer, step *ampc.Step, f ampc.Feed) error {
	r, err := step.Run(context.Background(), f)
	if err != nil {
		return err
	}
	got, err := r.Wait(context.Background())
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "loss %.5g, skipped %t\n", got.Loss, got.Skipped)
	if !got.Skipped {
		return nil
	}
	d, err := step.Diagnose(context.Background())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, d)
	return err
}
