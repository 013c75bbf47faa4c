package ampc_test

import (
	"testing"

	"ampc"
	"ampc/ir"
)

// The numbers of the root's types are the compiler's: they convert by value.
func TestTypesAreTheCompilers(t *testing.T) {
	for d, want := range map[ampc.DType]ir.DType{ampc.F32: ir.F32, ampc.F16: ir.F16, ampc.BF16: ir.BF16, ampc.F64: ir.F64, ampc.I32: ir.I32, ampc.I64: ir.I64, ampc.U8: ir.U8, ampc.Bool: ir.Bool,
		ampc.I8: ir.I8, ampc.I16: ir.I16, ampc.U16: ir.U16, ampc.U32: ir.U32, ampc.U64: ir.U64} {
		if ir.DType(d) != want || d.String() != want.String() || d.Size() != int(want.Size()) {
			t.Errorf("%s is the compiler's %s", d, ir.DType(d))
		}
	}
	for p, want := range map[ampc.Pin]ir.Pin{ampc.PinF32: ir.PinF32, ampc.PinTF32: ir.PinTF32, ampc.PinLow: ir.PinLow} {
		if ir.Pin(p) != want || p.String() != want.String() {
			t.Errorf("pin %s is the compiler's %s", p, ir.Pin(p))
		}
	}
	for k, want := range map[ampc.Kind]ir.Kinds{ampc.KindFloat: ir.KFloat, ampc.KindInt: ir.KInt, ampc.KindBool: ir.KBool} {
		if ir.Kinds(k) != want {
			t.Errorf("kind %d is the compiler's %s", k, want)
		}
	}
}

// A tensor tells its type, with -1 for dimensions that have names; the zero
// Tensor is absent and answers everything.
func TestTensorTellsItsType(t *testing.T) {
	m := ampc.New("m")
	x := m.Input("x", ampc.BF16, ampc.Dim("n"), 3)
	if x.Name() != "x" || x.DType() != ampc.BF16 || x.Rank() != 2 || x.Dim(0) != -1 || x.Dim(-1) != 3 || x.Dim(2) != 0 || x.String() != "%x bf16[n,3]" || x.Pos() != "types_test.go:34" {
		t.Errorf("%s at %s: rank %d, dims %v", x, x.Pos(), x.Rank(), x.Shape())
	}
	if m.Lookup("x") != x || m.FromIR(x.IR()) != x {
		t.Error("one value is two tensors")
	}
	var none ampc.Tensor
	if !none.Absent() || none.Name() != "" || none.DType() != 0 || none.Rank() != 0 || none.String() != "no tensor" || m.Lookup("y") != none {
		t.Errorf("the zero Tensor is %s", none)
	}
}
