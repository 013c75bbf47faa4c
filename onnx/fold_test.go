package onnx_test

import (
	"slices"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
)

// A graph in which a node was folded serves no import for which the node's row reads other elements.
func TestFoldsForOtherElements(t *testing.T) {
	seven := onnx.MakeTensor("seven", []int64{1}, func() ([]byte, error) { return eval.Floats(ir.F32, []ir.Dim{1}, 7).Bytes(), nil })
	nodes := []*onnx.Node{
		{Op: "Shape", In: []string{"x"}, Out: []string{"size"}},
		{Op: "Tile", In: []string{"seven", "size"}, Out: []string{"y"}}, // reads size while it is imported
		{Op: "Neg", In: []string{"y"}, Out: []string{"z"}},
	}
	folds := onnx.Folds{}
	for _, n := range []int{2, 3, 2, 5} {
		p, err := new(onnx.Model).ImportPart(onnx.Part{
			Nodes: nodes, Opsets: map[string]int64{"": 17}, Want: []string{"z"}, Folds: folds,
			Given: func(name string) *onnx.Given {
				if name == "seven" {
					return &onnx.Given{Name: name, Tensor: seven}
				}
				return &onnx.Given{Name: name, Type: ir.T(ir.F32, ir.Dim(n))}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Wanted[0].Known; got == nil || !slices.Equal(got.F, slices.Repeat([]float64{-7}, n)) {
			t.Errorf("size %d: %v, want %d times -7", n, got, n)
		}
	}
	if len(folds) != 2 {
		t.Errorf("%d nodes are kept, want Tile and Neg", len(folds))
	}
}
