package main

import (
	"math"
	"math/rand/v2"

	"ampc"
)

// spirals draws n points from two interleaved spirals, with their class.
func spirals(seed uint64, n int) ampc.Feed {
	r := rand.New(rand.NewPCG(seed, 7))
	x, y := make([]float32, 0, 2*n), make([]int32, 0, n)
	for i := range n {
		class := i % 2
		t := 0.5 + 3*r.Float64()
		a := 2*t + math.Pi*float64(class)
		x = append(x, float32(t*math.Cos(a)/3+0.02*r.NormFloat64()), float32(t*math.Sin(a)/3+0.02*r.NormFloat64()))
		y = append(y, int32(class))
	}
	return ampc.Feed{"x": x, "y": y}
}

// classifier builds a two-layer perceptron over points of the plane.
func classifier(batch, hidden int) (m *ampc.Model, loss ampc.Tensor) {
	m = ampc.New("classifier")
	x, y := m.Input("x", ampc.F32, batch, 2), m.Input("y", ampc.I32, batch)
	h := m.Tanh(m.Linear("fc1", x, hidden))
	h = m.Tanh(m.Linear("fc2", h, hidden))
	return m, m.Named("loss").CrossEntropy(m.Linear("out", h, 2), y)
}
