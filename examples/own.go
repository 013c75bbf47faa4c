package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"ampc"
)

// ranker is a model with two losses and a batch whose size is bound later.
func ranker() (m *ampc.Model, fit, spread ampc.Tensor) {
	m = ampc.New("ranker")
	x, y := m.Input("x", ampc.F32, ampc.Dim("batch"), 16), m.Input("y", ampc.I32, ampc.Dim("batch"))
	h := m.Gelu(m.Linear("fc1", x, 64))
	scores := m.Linear("head", h, 8)
	fit = m.Named("fit").CrossEntropy(scores, y)
	spread = m.Named("spread").ReduceMean(m.Square(scores))
	return m, fit, spread
}

// export writes the model's text, which every command that takes a MODEL reads.
func export(w io.Writer) error {
	m, _, _ := ranker()
	return m.WriteIR(w)
}

// explain asks a compiled step of one's own: why a value has its dtype, what
// precision costs, whether the step is proved.
func explain(w io.Writer) error {
	m, fit, spread := ranker()
	step, err := m.Train(ampc.TrainConfig{
		Optimizer: ampc.AdamW(0.01), LR: ampc.Constant(1e-3), Policy: ampc.MixedF16(), Sizes: ampc.Sizes{"batch": 64},
	}, ampc.Loss{Value: fit}, ampc.Loss{Value: spread, Weight: 0.5})
	if err != nil {
		return err
	}
	defer m.Close()
	why, err := step.Why(m.Lookup("gelu"))
	if err != nil {
		return err
	}
	fmt.Fprint(w, why)
	if err := step.Report(w); err != nil {
		return err
	}
	found, err := step.Prove()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d findings\n", len(found))
	return nil
}

// replay saves a step that was skipped, for `ampc doctor` on another machine, to
// the file that the environment names.
func replay(w io.Writer) error {
	m, fit, _ := ranker()
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16(), Sizes: ampc.Sizes{"batch": 4}}, ampc.Loss{Value: fit})
	if err != nil {
		return err
	}
	defer m.Close()
	x := make([]float32, 4*16)
	for i := range x {
		x[i] = 1e5 // beyond f16
	}
	r, err := step.Run(context.Background(), ampc.Feed{"x": x, "y": make([]int32, 4)})
	if err != nil {
		return err
	}
	got, err := r.Wait(context.Background())
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "skipped %t\n", got.Skipped)
	if path := os.Getenv("REPLAY"); path != "" {
		return step.SaveReplay(path)
	}
	return nil
}
