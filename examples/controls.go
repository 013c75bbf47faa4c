package main

import (
	"context"
	"fmt"
	"io"
	"math"

	"ampc"
)

// scalerOff trains on a loss so small that its gradients lie below what f16
// holds. Adam divides the size of gradients out, so f32 does not mind.
func scalerOff(w io.Writer) error {
	for _, c := range []struct {
		name   string
		policy ampc.Policy
		scaler ampc.Scaler
	}{
		{"f32", ampc.F32Only(), ampc.Scaler{}},
		{"f16, loss scaled", ampc.MixedF16(), ampc.Dynamic()},
		{"f16, not scaled", ampc.MixedF16(), ampc.Unscaled()},
	} {
		m, plain := classifier(64, 64)
		tiny := m.Named("tiny").Affine(plain, 0x1p-20, 0)
		adam := ampc.Adam()
		adam.Eps = 1e-12 // below the second moments of such gradients
		step, err := m.Train(ampc.TrainConfig{
			Optimizer: adam, LR: ampc.Constant(5e-3), Policy: c.policy, Scaler: c.scaler, Outputs: []ampc.Output{{Tensor: plain}},
		}, ampc.Loss{Value: tiny})
		if err != nil {
			return err
		}
		var r *ampc.Result
		for i := range 300 {
			if r, err = step.Run(context.Background(), spirals(uint64(i), 64)); err != nil {
				return err
			}
		}
		loss, err := r.Value(plain)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%-17s loss %.3f\n", c.name, loss.At(0))
		m.Close()
	}
	return nil
}

// pureHalf fits a line through points whose gradient passes f16's largest
// number. Mixed precision keeps weights and their gradients in f32; pure half
// stores both in 16 bits, and without the check the infinity reaches the weight.
func pureHalf(w io.Writer) error {
	for _, c := range []struct {
		policy ampc.Policy
		noSkip bool
	}{{ampc.MixedF16(), false}, {ampc.O3(ampc.F16), true}} {
		m := ampc.New("line")
		x, y := m.Input("x", ampc.F32, 64, 1), m.Input("y", ampc.F32, 64, 1)
		loss := m.MSE(m.Linear("fit", x, 1), y)
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(2e-5), Policy: c.policy, NoSkip: c.noSkip}, ampc.Loss{Value: loss})
		if err != nil {
			return err
		}
		xs, ys := make([]float32, 64), make([]float32, 64)
		for i := range xs {
			xs[i] = float32(i) * 4
			ys[i] = 5 * xs[i]
		}
		skipped := 0
		for range 60 {
			r, err := step.Run(context.Background(), ampc.Feed{"x": xs, "y": ys})
			if err != nil {
				return err
			}
			got, err := r.Wait(context.Background())
			if err != nil {
				return err
			}
			if got.Skipped {
				skipped++
			}
		}
		slope, err := m.Variable("fit.w")
		if err != nil {
			return err
		}
		verdict := "trained"
		if math.IsNaN(slope.At(0)) || math.IsInf(slope.At(0), 0) {
			verdict = "destroyed"
		}
		fmt.Fprintf(w, "%-9s  slope %.3f after 60 steps, %d skipped: %s\n", c.policy.Name, slope.At(0), skipped, verdict)
		m.Close()
	}
	return nil
}

// lowState asks for Adam's moments in 16 bits.
func lowState(w io.Writer) error {
	for _, d := range []ampc.DType{ampc.F16, ampc.BF16} {
		m, loss := classifier(64, 32)
		adam := ampc.Adam()
		adam.StateDType = d
		_, err := m.Train(ampc.TrainConfig{Optimizer: adam, LR: ampc.Constant(1e-3), Policy: ampc.O3(ampc.F16)}, ampc.Loss{Value: loss})
		if err == nil {
			return fmt.Errorf("adam with state in %s was accepted", d)
		}
		fmt.Fprintf(w, "refused: %v\n", err)
		m.Close()
	}
	return nil
}
