package interp

import (
	"testing"

	"ampc/ptx"
)

// update is p' = p - rate·g with a bf16 copy of p', over tensors of these sizes.
func update(sizes ...int64) ptx.Batch {
	return ptx.Batch{Sizes: sizes, Elementwise: ptx.Elementwise{
		Name:  "k",
		Loads: []ptx.Access{walk("p", ptx.Float32), walk("g", ptx.Float16), {Name: "rate", DType: ptx.Float32, Stride: []int64{0}}},
		Code: []ptx.Instr{
			in(0), in(1), in(2), {Op: "mul", Type: ptx.Float32, A: 2, B: 1}, {Op: "sub", Type: ptx.Float32, A: 0, B: 3},
		},
		Stores: []ptx.Output{{Access: walk("p'", ptx.Float32), Value: 4}, {Access: walk("copy", ptx.BFloat16), Value: 4}},
	}}
}

func in(i int64) ptx.Instr { return ptx.Instr{Op: "in", Type: ptx.Float32, Int: i} }

func walk(name string, d ptx.DType) ptx.Access { return ptx.Access{Name: name, DType: d} }

// TestBatchRefuses code that depends on the place, and accesses that are neither.
func TestBatchRefuses(t *testing.T) {
	for what, change := range map[string]func(*ptx.Batch){
		"index":  func(b *ptx.Batch) { b.Code[3] = ptx.Instr{Op: "index", Type: ptx.Int64} },
		"stride": func(b *ptx.Batch) { b.Loads[0].Stride = []int64{2} },
		"offset": func(b *ptx.Batch) { b.Loads[0].Offset = 1 },
		"empty":  func(b *ptx.Batch) { b.Sizes[0] = 0 },
		"store":  func(b *ptx.Batch) { b.Stores[0].Stride = []int64{0} },
	} {
		b := update(8)
		change(&b)
		if _, err := b.Build(ptx.SM90); err == nil {
			t.Errorf("%s: built", what)
		}
	}
}
