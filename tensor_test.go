package ampc_test

import (
	"encoding/binary"
	"math"
	"runtime"
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
	if x.Name() != "x" || x.DType() != ampc.BF16 || x.Rank() != 2 || x.Dim(0) != -1 || x.Dim(-1) != 3 || x.Dim(2) != 0 || x.String() != "%x bf16[n,3]" || x.Pos() != "tensor_test.go:37" {
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

// A tensor read from a model with parameters in 16 bits can be written into
// one with parameters in f32, and the other way round; shapes must be equal.
func TestHostTensorsConvert(t *testing.T) {
	build := func(p ampc.Policy, width int) *ampc.Model {
		m := ampc.New("convert")
		x, y := m.Input("x", ampc.F32, 4, 3), m.Input("y", ampc.I32, 4)
		loss := m.CrossEntropy(m.Linear("fc", x, width), y)
		if _, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Policy: p}, ampc.Loss{Value: loss}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	low, wide := build(ampc.O3(ampc.BF16), 2), build(ampc.F32Only(), 2)
	h, err := low.Variable("fc.w")
	if err != nil {
		t.Fatal(err)
	}
	if h.Type.DType() != ampc.BF16 {
		t.Fatalf("o3 stores %s", h.Type)
	}
	if err := wide.SetVariable("fc.w", h); err != nil {
		t.Fatal(err)
	}
	got, err := wide.Variable("fc.w")
	if err != nil {
		t.Fatal(err)
	}
	for i := range h.Len() {
		if got.At(i) != h.At(i) {
			t.Errorf("element %d is %g, want %g", i, got.At(i), h.At(i))
		}
	}
	if err := low.SetVariable("fc.w", got); err != nil {
		t.Error(err)
	}
	if err := build(ampc.F32Only(), 5).SetVariable("fc.w", h); err == nil {
		t.Error("a tensor of another shape was taken")
	}
}

// A fed slice of the input's own type is read where it is: a step over a large batch allocates little. What waits for Apply
// is a copy, whatever it was fed as.
func TestFeedsInPlace(t *testing.T) {
	const rows, cols = 256, 1024
	m := ampc.New("feeds")
	x, y := m.Input("x", ampc.F32, rows, cols), m.Input("y", ampc.I32, rows)
	loss := m.CrossEntropy(m.Linear("fc", x, 2), y)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0)}, ampc.Loss{Value: loss})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	images := make([]float32, rows*cols)
	for i := range images {
		images[i] = float32(i%13) - 6
	}
	feed := ampc.Feed{"x": images, "y": make([]int32, rows)}
	run := func() float64 {
		r, err := step.Run(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		return metrics(t, r).Loss
	}
	want := run()
	least := uint64(math.MaxUint64) // of some steps: a worker allocates its memory in the first step that it joins
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if least > 4*rows*cols/2 {
		t.Errorf("a step allocates %d bytes for a batch of %d", least, 4*rows*cols)
	}
	for name, x := range map[string]any{"slice": images, "host": ampc.HostTensor{Type: ampc.TypeOf(ampc.F32, rows, cols), Bytes: hostBytes(images)}} {
		feed["x"] = x
		if err := step.Accumulate(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		if h, ok := x.(ampc.HostTensor); ok {
			clear(h.Bytes)
		} else {
			clear(images)
		}
		r, err := step.Apply(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if metrics(t, r).Loss != want {
			t.Errorf("%s: the loss is %g, not %g: what was accumulated changed with what was fed", name, metrics(t, r).Loss, want)
		}
		for i := range images {
			images[i] = float32(i%13) - 6
		}
	}
}

func hostBytes(x []float32) (b []byte) {
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
