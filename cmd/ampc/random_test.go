package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"ampc/ir"
)

// Random integers fit the dtype of the input.
func TestRandomBytes(t *testing.T) {
	list, ok := randomElements(rand.New(rand.NewPCG(1, 2)), ir.T(ir.I8, 1000), 256).([]int64)
	if !ok || slices.Max(list) > 127 || slices.Max(list) < 100 {
		t.Errorf("a %T up to %d", list, slices.Max(list))
	}
}
