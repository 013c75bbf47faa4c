package cpu

import (
	"math"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

// The sum with a product, and its ReLU, are seen whichever way the code writes them, and nothing else
// is taken for one.
func TestSumsWithProductsAreSeen(t *testing.T) {
	in := func(i int64) ir.Instr { return ir.Instr{Op: ir.PIn, Type: ir.F32, Int: i} }
	constant := func(x float64) ir.Instr { return ir.Instr{Op: ir.PConst, Type: ir.F32, Imm: x} }
	op := func(p ir.Prim, a, b ir.Reg) ir.Instr { return ir.Instr{Op: p, Type: ir.F32, A: a, B: b} }
	rows := []int64{5, 1}
	product, f32, bf16 := lower.Access{DType: ir.F32, Strides: rows}, lower.Access{Buffer: 3, DType: ir.F32, Strides: rows}, lower.Access{Buffer: 3, DType: ir.BF16, Strides: rows}
	product.Buffer = lower.None
	column := lower.Access{Buffer: 3, DType: ir.F32, Strides: []int64{1, 3}}
	for _, c := range []struct {
		name     string
		loads    []lower.Access
		code     []ir.Instr
		reg      ir.Reg
		as       ir.DType
		relu, ok bool
	}{
		{"product and term", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), op(ir.PAdd, 0, 1)}, 2, ir.F32, false, true},
		{"term and product", []lower.Access{f32, product}, []ir.Instr{in(0), in(1), op(ir.PAdd, 0, 1)}, 2, ir.F32, false, true},
		{"the second read first", []lower.Access{product, f32}, []ir.Instr{in(1), in(0), op(ir.PAdd, 1, 0)}, 2, ir.F32, false, true},
		{"the term added first", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), op(ir.PAdd, 1, 0)}, 2, ir.F32, false, true},
		{"16 bits", []lower.Access{product, bf16}, []ir.Instr{in(0), in(1), op(ir.PAdd, 0, 1)}, 2, ir.BF16, false, true},
		{"ReLU", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), op(ir.PAdd, 0, 1), constant(0), op(ir.PMax, 2, 3)}, 4, ir.F32, true, true},
		{"ReLU with zero first", []lower.Access{product, f32}, []ir.Instr{constant(0), in(0), in(1), op(ir.PAdd, 2, 1), op(ir.PMax, 0, 3)}, 4, ir.F32, true, true},
		{"an instruction that nothing reads", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), op(ir.PMul, 0, 1), op(ir.PAdd, 0, 1)}, 3, ir.F32, false, true},

		{"a product stored alone", []lower.Access{product, f32}, []ir.Instr{in(0), in(1)}, 0, ir.F32, false, false},
		{"another result type", []lower.Access{product, bf16}, []ir.Instr{in(0), in(1), op(ir.PAdd, 0, 1)}, 2, ir.F32, false, false},
		{"a term in another order", []lower.Access{product, column}, []ir.Instr{in(0), in(1), op(ir.PAdd, 0, 1)}, 2, ir.F32, false, false},
		{"a difference", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), op(ir.PSub, 0, 1)}, 2, ir.F32, false, false},
		{"the product twice", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), op(ir.PAdd, 0, 0)}, 2, ir.F32, false, false},
		{"without the product", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), op(ir.PAdd, 1, 1)}, 2, ir.F32, false, false},
		{"a constant term", []lower.Access{product, f32}, []ir.Instr{in(0), constant(2), op(ir.PAdd, 0, 1)}, 2, ir.F32, false, false},
		{"a computed term", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), op(ir.PMul, 1, 1), op(ir.PAdd, 0, 2)}, 3, ir.F32, false, false},
		{"-0 in place of 0", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), op(ir.PAdd, 0, 1), constant(math.Copysign(0, -1)), op(ir.PMax, 2, 3)}, 4, ir.F32, false, false},
		{"a smaller one", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), op(ir.PAdd, 0, 1), constant(0), op(ir.PMin, 2, 3)}, 4, ir.F32, false, false},
		{"the ReLU of a product", []lower.Access{product, f32}, []ir.Instr{in(0), in(1), constant(0), op(ir.PMax, 0, 2)}, 3, ir.F32, false, false},
	} {
		g := &lower.Cluster{Shape: []int64{3, 5}, Loads: c.loads, Code: c.code, Stores: []lower.Access{{Buffer: 4, DType: c.as, Strides: rows, Reg: c.reg}}}
		term, relu, ok := sumWithProduct(g)
		if ok != c.ok || ok && (relu != c.relu || term.Buffer != 3) {
			t.Errorf("%s: seen as a sum %t, with ReLU %t, want %t and %t", c.name, ok, relu, c.ok, c.relu)
		}
		two := *g
		two.Stores = append(two.Stores, two.Stores[0])
		if _, _, ok := sumWithProduct(&two); ok {
			t.Errorf("%s: seen where two results are stored", c.name)
		}
	}
}
