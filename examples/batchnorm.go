package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"ampc"
)

// batchNorm normalizes a channel around 30 with a deviation of 1 twice: by the
// op, which reads f16 and computes in f32, and spelled out with its mean squares
// stored in f16. The variance is a difference of numbers near 900, which f16
// holds to a half; then the same at 300, whose squares f16 does not hold at all.
func batchNorm(w io.Writer) error {
	for _, centre := range []float64{3, 30, 300} {
		x := channel(centre)
		fmt.Fprintf(w, "-- activations around %g\n", centre)
		for _, spelled := range []bool{false, true} {
			if err := normalize(w, x, spelled); err != nil {
				return err
			}
		}
	}
	return nil
}

const images, channels = 64, 8

// channel draws a batch of images of 4 by 4.
func channel(centre float64) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, images*channels*16)
	for i := range x {
		x[i] = float32(centre + r.NormFloat64())
	}
	return x
}

// normalize trains one step and prints how far the deviation of what batch norm
// yields is from 1.
func normalize(w io.Writer, x []float32, spelled bool) error {
	m := ampc.New("bn")
	in := m.Precision(ampc.PinLow).Affine(m.Input("x", ampc.F32, images, channels, 4, 4), 1, 0)
	name, y := "batch_norm          ", in
	if spelled {
		name, y = "spelled out in f16  ", inHalf(m.Scope("bn"), in)
	} else {
		y = m.BatchNorm("bn", in)
	}
	step, err := m.Train(ampc.TrainConfig{
		Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.MixedF16(), Outputs: []ampc.Output{{Tensor: y}}, Compile: ampc.CompileOptions{Disable: []string{"recognize"}},
	}, ampc.Loss{Value: m.ReduceMean(m.Square(m.Conv2d("conv", y, 4, 1)))})
	if err != nil {
		return err
	}
	defer m.Close()
	r, err := step.Run(context.Background(), ampc.Feed{"x": x})
	if err != nil {
		return err
	}
	out, err := r.Value(y)
	if err != nil {
		return err
	}
	got, err := r.Wait(context.Background())
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s worst channel's deviation %.3f, skipped %t\n", name, worstDeviation(out.Floats()), got.Skipped)
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

// inHalf is batch norm as E[x²] − E[x]², the statistics in the low dtype.
func inHalf(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
	low := m.Precision(ampc.PinLow)
	mean := low.Named("mean").ReduceMean(x, ampc.ReduceOptions{Axes: []int{0, 2, 3}, Keep: true})
	square := low.Named("square").ReduceMean(low.Named("squares").Square(x), ampc.ReduceOptions{Axes: []int{0, 2, 3}, Keep: true})
	variance := m.Named("variance").Sub(square, low.Named("mean2").Square(mean))
	return m.Div(m.Sub(x, mean), m.Named("deviation").Sqrt(m.Affine(variance, 1, 1e-5)))
}

// worstDeviation is that of the channel whose deviation is farthest from 1.
func worstDeviation(y []float32) float64 {
	worst := 1.0
	for c := range channels {
		sum, sq := 0.0, 0.0
		for i := range images {
			for k := range 16 {
				v := float64(y[(i*channels+c)*16+k])
				sum, sq = sum+v, sq+v*v
			}
		}
		n := float64(images * 16)
		if d := math.Sqrt(sq/n - sum*sum/n/n); math.IsNaN(d) || math.Abs(d-1) > math.Abs(worst-1) {
			worst = d
		}
	}
	return worst
}
