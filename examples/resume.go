package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ampc"
)

// resume trains 40 steps in one go, and 20 steps, a save, and 20 more in a new
// model: every byte of state is the same.
func resume(w io.Writer) error {
	dir, err := os.MkdirTemp("", "resume")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "half.safetensors")

	whole, err := trainFrom("", 0, 40, "")
	if err != nil {
		return err
	}
	defer whole.Close()
	half, err := trainFrom("", 0, 20, path)
	if err != nil {
		return err
	}
	defer half.Close()
	rest, err := trainFrom(path, 20, 40, "")
	if err != nil {
		return err
	}
	defer rest.Close()

	same := 0
	for _, name := range whole.Variables() {
		a, err := whole.Variable(name)
		if err != nil {
			return err
		}
		b, err := rest.Variable(name)
		if err != nil {
			return err
		}
		if !bytes.Equal(a.Bytes, b.Bytes) {
			return fmt.Errorf("%s differs after resuming", name)
		}
		same++
	}
	fmt.Fprintf(w, "40 steps and 20+20 steps: all %d variables agree bit for bit\n", same)
	return nil
}

// trainFrom trains steps from to to, starting from a checkpoint and leaving
// one where paths are given.
func trainFrom(load string, from, to int, save string) (*ampc.Model, error) {
	m := ampc.New("resume", ampc.Seed(7))
	x, y := m.Input("x", ampc.F32, 32, 2), m.Input("y", ampc.I32, 32)
	h := m.Dropout("drop", m.Tanh(m.Linear("fc1", x, 32)), 0.2)
	loss := m.CrossEntropy(m.Linear("fc2", h, 2), y)
	step, err := m.Train(ampc.TrainConfig{
		Optimizer: ampc.AdamW(0.01), LR: ampc.Cosine(1e-2, 5, 40), Policy: ampc.MixedF16(), EMA: 0.99, Micro: 2,
	}, ampc.Loss{Value: loss})
	if err != nil {
		return nil, err
	}
	if load != "" {
		if err := m.LoadFile(load); err != nil {
			return nil, err
		}
	}
	for i := from; i < to; i++ {
		a, b := spirals(uint64(2*i), 32), spirals(uint64(2*i+1), 32)
		if _, err := step.Run(context.Background(), a, b); err != nil {
			return nil, err
		}
	}
	if save != "" {
		return m, m.SaveFile(save)
	}
	return m, nil
}
