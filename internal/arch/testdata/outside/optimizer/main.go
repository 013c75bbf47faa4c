// Command optimizer trains with an optimizer that ampc does not have: AMSGrad (Reddi et al.,
// 2018), Adam that divides by the largest second moment so far. It is a rule of ops in the graph,
// under the same loss scale, skips and checkpoints as the built-in ones: optimizer STEPS OUT.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strconv"

	"ampc"
)

const beta1, beta2, eps = 0.9, 0.999, 1e-8

// amsgrad has three states of the parameter's shape.
func amsgrad() ampc.Optimizer {
	return ampc.WithRule(ampc.UpdateRule{Name: "amsgrad", Next: func(u *ampc.Update, p ampc.Param) ampc.Tensor {
		shape := p.Weight.Type()
		m, v, top := u.State("m", shape, ampc.Fill(0)), u.State("v", shape, ampc.Fill(0)), u.State("top", shape, ampc.Fill(0))
		m1 := u.Add(u.Affine(m, beta1, 0), u.Affine(p.Grad, 1-beta1, 0))
		v1 := u.Add(u.Affine(v, beta2, 0), u.Affine(u.Square(p.Grad), 1-beta2, 0))
		most := u.Max(top, v1)
		u.Set(m, m1)
		u.Set(v, v1)
		u.Set(top, most)
		left := func(beta float64) ampc.Tensor { return u.Affine(u.Pow(u.Full(ampc.F32, beta), p.Step), -1, 1) } // 1 - beta^step
		mean, root := u.Div(m1, left(beta1)), u.Affine(u.Sqrt(u.Div(most, left(beta2))), 1, eps)
		return u.Sub(p.Weight, u.Mul(p.LR, u.Div(mean, root)))
	}})
}

func main() {
	m := ampc.New("rule", ampc.Seed(1))
	defer m.Close()
	x, y := m.Input("x", ampc.F32, 32, 8), m.Input("y", ampc.F32, 32, 1)
	loss := m.MSE(m.Linear("fc2", m.Tanh(m.Linear("fc1", x, 32)), 1), y)
	step := must(m.Train(ampc.TrainConfig{Optimizer: amsgrad(), LR: ampc.Constant(1e-2), Policy: ampc.MixedF16(), Clip: ampc.ClipNorm(1)}, ampc.Loss{Value: loss}))
	r := rand.New(rand.NewPCG(1, 2))
	var got ampc.Metrics
	for range must(strconv.Atoi(os.Args[1])) {
		xs, ys := make([]float32, 32*8), make([]float32, 32)
		for i := range xs {
			xs[i] = float32(r.NormFloat64())
			ys[i/8] += xs[i] / 4
		}
		got = must(must(step.Run(context.Background(), ampc.Feed{"x": xs, "y": ys})).Wait(context.Background()))
	}
	must(0, m.SaveFile(os.Args[2]))
	fmt.Printf("loss %.4f scale %g\n", got.Loss, got.Scale)
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
