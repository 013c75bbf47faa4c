package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// pick draws an index with probability softmax(logits/temperature).
func pick(r *rand.Rand, logits []float32, temperature float64) int32 {
	top := float64(slices.Max(logits))
	weights := make([]float64, len(logits))
	sum := 0.0
	for i, x := range logits {
		weights[i] = math.Exp((float64(x) - top) / temperature)
		sum += weights[i]
	}
	at := r.Float64() * sum
	for i, w := range weights {
		if at -= w; at < 0 {
			return int32(i)
		}
	}
	return int32(len(logits) - 1)
}
