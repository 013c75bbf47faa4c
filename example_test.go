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
	step, err := ampc.Train(m, loss, ampc.Config{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.05), Policy: ampc.MixedF16()})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	feed := ampc.Feed{"x": []float32{1, 0, 0, 1, 1, 1, 2, 1}, "y": []float32{1, 1, 2, 3}}
	var r ampc.Result
	for range 300 {
		if r, err = step.Run(context.Background(), feed); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Printf("loss %.3f, scale %g\n", r.Loss(), r.Scale())
	// Output: loss 0.000, scale 65536
}

// A mistake is reported once, with the line that made it.
func Example_mistake() {
	m := ampc.New("wrong")
	x := m.Input("x", ampc.F32, 4, 2)
	h := m.Linear("fc", x, 8)
	h = m.Linear("fc", h, 8)
	_, err := ampc.Train(m, m.ReduceMean(h, false), ampc.Config{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1)})
	fmt.Println(err)
	// Output: example_test.go:37: linear "fc": the name is taken by the layer at example_test.go:36: choose another, or apply one layer many times with Shared
}
