package main

import (
	"context"
	"fmt"
	"io"

	"ampc"
)

// quarters cuts a batch of 64 into four of 16.
func quarters(f ampc.Feed) (parts []ampc.Feed) {
	x, y := f["x"].([]float32), f["y"].([]int32)
	for i := range 4 {
		parts = append(parts, ampc.Feed{"x": x[i*32 : (i+1)*32], "y": y[i*16 : (i+1)*16]})
	}
	return parts
}

// micro trains once on batches of 64 and once on four micro-batches of 16.
func micro(w io.Writer) error {
	config := ampc.TrainConfig{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.1), Policy: ampc.MixedBF16()}
	whole, lossOfWhole := classifier(64, 32)
	large, err := whole.Train(config, ampc.Loss{Value: lossOfWhole})
	if err != nil {
		return err
	}
	defer whole.Close()

	parts, lossOfParts := classifier(16, 32)
	config.Micro = 4
	small, err := parts.Train(config, ampc.Loss{Value: lossOfParts})
	if err != nil {
		return err
	}
	defer parts.Close()
	for i := range 20 {
		batch := spirals(uint64(i), 64)
		a, err := large.Run(context.Background(), batch)
		if err != nil {
			return err
		}
		b, err := small.Run(context.Background(), quarters(batch)...)
		if err != nil {
			return err
		}
		if i%5 == 0 {
			one, err := a.Wait(context.Background())
			if err != nil {
				return err
			}
			four, err := b.Wait(context.Background())
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "step %2d  one batch %.5f  four micro-batches %.5f\n", i, one.Loss, four.Loss)
		}
	}
	return nil
}

func accumulate(w io.Writer) error {
	m, loss := classifier(16, 32)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.1), Micro: 4}, ampc.Loss{Value: loss})
	if err != nil {
		return err
	}
	defer m.Close()
	ctx := context.Background()
	for i := range 3 {
		for _, part := range quarters(spirals(uint64(i), 64)) {
			if err := step.Accumulate(ctx, part); err != nil {
				return err
			}
		}
		r, err := step.Apply(ctx)
		if err != nil {
			return err
		}
		got, err := r.Wait(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "step %d  loss %.4f\n", i, got.Loss)
	}
	return nil
}
