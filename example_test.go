package ampc_test

import (
	"context"
	"fmt"
	"log"

	"ampc"
)

// A model that learns to add, trained in mixed precision.
func Example() {
	m := ampc.New("adder")
	x, y := m.Input("x", ampc.F32, 4, 2), m.Input("y", ampc.F32, 4, 1)
	loss := m.MSE(m.Linear("fc", x, 1), y)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.05), Policy: ampc.MixedF16()}, ampc.Loss{Value: loss})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	feed := ampc.Feed{"x": []float32{1, 0, 0, 1, 1, 1, 2, 1}, "y": []float32{1, 1, 2, 3}}
	var r *ampc.Result
	for range 300 {
		if r, err = step.Run(context.Background(), feed); err != nil {
			log.Fatal(err)
		}
	}
	got, err := r.Wait(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("loss %.3f, scale %g\n", got.Loss, got.Scale)
	// Output: loss 0.000, scale 65536
}

// A mistake is reported once, with the line that made it.
func Example_mistake() {
	m := ampc.New("wrong")
	x := m.Input("x", ampc.F32, 4, 2)
	h := m.Linear("fc", x, 8)
	h = m.Linear("fc", h, 8)
	_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1)}, ampc.Loss{Value: m.ReduceMean(h)})
	fmt.Println(err)
	// Output: example_test.go:41: linear "fc": the name is taken by the layer at example_test.go:40: choose another, or apply one layer many times with Shared
}

// A data set of 20 rows in batches of 8: the last one has 4, and is a step of the
// same training.
func ExampleStep_For() {
	m := ampc.New("adder")
	x, y := m.Input("x", ampc.F32, ampc.Dim("N"), 2), m.Input("y", ampc.F32, ampc.Dim("N"), 1)
	loss := m.MSE(m.Linear("fc", x, 1), y)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0.9), LR: ampc.StepDecay(0.05, 0.5, 2), Sizes: ampc.Sizes{"N": 8}}, ampc.Loss{Value: loss})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for epoch := range 2 {
		for start := 0; start < 20; start += 8 {
			n := min(8, 20-start)
			feed := ampc.Feed{"x": make([]float32, 2*n), "y": make([]float32, n)}
			sized, err := step.For(ampc.Sizes{"N": int64(n)}) // compiled once for each size
			if err != nil {
				log.Fatal(err)
			}
			r, err := sized.Run(context.Background(), feed)
			if err != nil {
				log.Fatal(err)
			}
			got, err := r.Wait(context.Background())
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("epoch %d, %d rows, rate %.4f\n", epoch, n, got.LR)
		}
	}
	// Output:
	// epoch 0, 8 rows, rate 0.0500
	// epoch 0, 8 rows, rate 0.0500
	// epoch 0, 4 rows, rate 0.0250
	// epoch 1, 8 rows, rate 0.0250
	// epoch 1, 8 rows, rate 0.0125
	// epoch 1, 4 rows, rate 0.0125
}
