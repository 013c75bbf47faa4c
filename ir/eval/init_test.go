package eval_test

import (
	"hash/fnv"
	"math"
	"testing"

	"ampc/internal/philox"
	"ampc/ir"
	"ampc/ir/eval"
)

// Element k of a variable takes word k of the stream of its name, however many goroutines
// initialize it.
func TestElementsHaveTheirWords(t *testing.T) {
	v := &ir.Value{Name: "w", Type: ir.T(ir.F32, 3, 1<<16+7), Kind: ir.Param, Init: &ir.Init{Func: "uniform", Args: []float64{-1, 1}}}
	got, err := eval.InitVar(v, 5)
	if err != nil {
		t.Fatal(err)
	}
	name := fnv.New64a()
	name.Write([]byte(v.Name))
	draw := philox.Draw{Seed: 5 ^ int64(name.Sum64()), Site: math.MaxUint32}
	for k, x := range got.F {
		if want := float64(float32(2*(float64(draw.Word(int64(k)))*0x1p-32) - 1)); x != want {
			t.Fatalf("element %d is %v, want %v", k, x, want)
		}
	}
}
