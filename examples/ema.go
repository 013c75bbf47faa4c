package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"ampc"
)

// ema trains on labels of which a quarter are wrong, so that the weights jump
// about, keeps running averages of them, and evaluates both on clean data.
func ema(w io.Writer) error {
	m, loss := spiralModel()
	defer m.Close()
	step, err := m.Train(ampc.TrainConfig{
		Optimizer: ampc.Adam(), LR: ampc.Constant(5e-2), Policy: ampc.MixedF16(),
		EMA: 0.98,
	}, ampc.Loss{Value: loss})
	if err != nil {
		return err
	}
	live, err := m.Infer(ampc.InferConfig{Policy: ampc.MixedF16()}, loss)
	if err != nil {
		return err
	}
	averaged, err := m.Infer(ampc.InferConfig{Policy: ampc.MixedF16(), Weights: ampc.EMA}, loss)
	if err != nil {
		return err
	}
	for i := range 801 {
		if _, err := step.Run(context.Background(), mislabelled(uint64(i))); err != nil {
			return err
		}
		if i%200 == 0 {
			a, b, err := heldOut(live, averaged, loss)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "step %3d  held out: weights %.4f  averages %.4f\n", i, a, b)
		}
	}
	dir, err := os.MkdirTemp("", "ema")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")
	if err := m.SaveFile(path); err != nil {
		return err
	}
	return served(w, path, averaged, loss)
}

// mislabelled is a batch in which a quarter of the labels are wrong.
func mislabelled(seed uint64) ampc.Feed {
	f := spirals(seed, 64)
	r := rand.New(rand.NewPCG(seed, 9))
	y := f["y"].([]int32)
	for i := range y {
		if r.IntN(4) == 0 {
			y[i] = 1 - y[i]
		}
	}
	return f
}

func spiralModel() (m *ampc.Model, loss ampc.Tensor) {
	m = ampc.New("ema")
	x, y := m.Input("x", ampc.F32, 64, 2), m.Input("y", ampc.I32, 64)
	logits := m.Linear("fc2", m.Tanh(m.Linear("fc1", x, 64)), 2)
	return m, m.Named("loss").CrossEntropy(logits, y)
}

func heldOut(live, averaged *ampc.Step, loss ampc.Tensor) (a, b float64, err error) {
	if a, err = lossOf(live, loss); err == nil {
		b, err = lossOf(averaged, loss)
	}
	return a, b, err
}

// lossOf is the mean loss over held-out batches.
func lossOf(s *ampc.Step, loss ampc.Tensor) (float64, error) {
	sum := 0.0
	for i := range 20 {
		r, err := s.Run(context.Background(), spirals(uint64(1000+i), 64))
		if err != nil {
			return 0, err
		}
		h, err := r.Value(loss)
		if err != nil {
			return 0, err
		}
		sum += h.At(0) / 20
	}
	return sum, nil
}

// served loads the checkpoint into a new model that infers from the averages.
func served(w io.Writer, path string, averaged *ampc.Step, loss ampc.Tensor) error {
	m, again := spiralModel()
	defer m.Close()
	if _, err := m.Train(ampc.TrainConfig{Optimizer: ampc.Adam(), LR: ampc.Constant(5e-2), Policy: ampc.MixedF16(), EMA: 0.98}, ampc.Loss{Value: again}); err != nil {
		return err
	}
	if err := m.LoadFile(path); err != nil {
		return err
	}
	s, err := m.Infer(ampc.InferConfig{Policy: ampc.MixedF16(), Weights: ampc.EMA}, again)
	if err != nil {
		return err
	}
	a, err := lossOf(averaged, loss)
	if err != nil {
		return err
	}
	b, err := lossOf(s, again)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "averages from the checkpoint: the same loss: %t\n", a == b)
	return nil
}
