package bridge

import (
	"slices"
	"testing"

	"github.com/x448/float16"
	"gorgonia.org/tensor"

	"ampc"
	"ampc/ir"
)

func counted(shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(tensor.Range(tensor.Float32, 0, tensor.Shape(shape).TotalSize())))
}

// Every layout gives the elements that At gives, in row-major order.
func TestFromDenseLayouts(t *testing.T) {
	whole := counted(3, 4)
	transposed := counted(3, 4)
	if err := transposed.T(); err != nil {
		t.Fatal(err)
	}
	moved := counted(2, 3, 4)
	if err := moved.T(2, 0, 1); err != nil {
		t.Fatal(err)
	}
	column := func(src *tensor.Dense, s ...tensor.Slice) *tensor.Dense {
		v, err := src.Slice(s...)
		if err != nil {
			t.Fatal(err)
		}
		return v.(*tensor.Dense)
	}
	colMajor := tensor.New(tensor.WithShape(2, 3), tensor.AsFortran([]float32{1, 2, 3, 4, 5, 6}))
	for _, c := range []struct {
		name   string
		t      *tensor.Dense
		shared bool
	}{
		{"whole", whole, true},
		{"transposed", transposed, false},
		{"axes moved", moved, false},
		{"column", column(counted(3, 4), nil, tensor.S(1)), false},
		{"columns", column(counted(3, 4), nil, tensor.S(1, 3)), false},
		{"row", column(counted(3, 4), tensor.S(1)), true},
		{"rows", column(counted(3, 4), tensor.S(1, 3)), true},
		{"stepped", column(counted(6, 2), tensor.S(0, 6, 2)), false},
		{"a plane", column(counted(2, 3, 4), nil, tensor.S(1)), false},
		{"column-major", colMajor, false},
		{"a vector", counted(5), true},
		{"one column", counted(5, 1), true},
	} {
		h, err := FromDense(c.t)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := h.Type.Shape(); !slices.Equal(got, c.t.Shape()) {
			t.Errorf("%s: shape %v, want %v", c.name, got, c.t.Shape())
			continue
		}
		if want := byAt(t, c.t); !slices.Equal(h.Floats(), want) {
			t.Errorf("%s: %v, want %v", c.name, h.Floats(), want)
		}
		raw, _ := memory(c.t.Data())
		if shared := &raw[0] == &h.Bytes[0]; shared != c.shared {
			t.Errorf("%s: shares its memory: %v, want %v", c.name, shared, c.shared)
		}
	}
}

// byAt reads elements one by one, in row-major order.
func byAt(t *testing.T, d *tensor.Dense) (out []float32) {
	t.Helper()
	at := make([]int, d.Dims())
	for range d.Shape().TotalSize() {
		x, err := d.At(at...)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, x.(float32))
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < d.Shape()[i] {
				break
			}
			at[i] = 0
		}
	}
	return out
}

func TestDenseTypes(t *testing.T) {
	half := []float16.Float16{float16.Fromfloat32(1.5), float16.Fromfloat32(-2)}
	for _, c := range []struct {
		backing any
		d       ir.DType
		want    []float32
	}{
		{half, ir.F16, []float32{1.5, -2}},
		{[]float32{1, 2}, ir.F32, []float32{1, 2}},
		{[]float64{1, 2}, ir.F64, []float32{1, 2}},
		{[]int{3, -4}, ir.I64, []float32{3, -4}},
		{[]int64{3, -4}, ir.I64, []float32{3, -4}},
		{[]int32{3, -4}, ir.I32, []float32{3, -4}},
		{[]uint8{3, 4}, ir.U8, []float32{3, 4}},
		{[]bool{true, false}, ir.Bool, []float32{1, 0}},
	} {
		h, err := FromDense(tensor.New(tensor.WithShape(2), tensor.WithBacking(c.backing)))
		if err != nil {
			t.Errorf("%T: %v", c.backing, err)
			continue
		}
		if h.Type.IR().DType != c.d || !slices.Equal(h.Floats(), c.want) {
			t.Errorf("%T: %s %v, want %s %v", c.backing, h.Type, h.Floats(), c.d, c.want)
		}
		back, err := ToDense(h)
		if err != nil {
			t.Errorf("%s: %v", h.Type, err)
			continue
		}
		again, err := FromDense(back)
		if err != nil || again.Type != h.Type || &again.Bytes[0] != &h.Bytes[0] {
			t.Errorf("%s: the way back gives %s in other memory, or %v", h.Type, again.Type, err)
		}
	}
	if _, err := FromDense(tensor.New(tensor.WithShape(2), tensor.WithBacking([]string{"a", "b"}))); err == nil {
		t.Error("strings pass")
	}
	if _, err := FromDense(nil); err == nil {
		t.Error("nil passes")
	}
	if _, err := ToDense(ampc.HostTensor{Type: ampc.TypeOf(ampc.F32, 3), Bytes: make([]byte, 4)}); err == nil {
		t.Error("12 bytes of 4 pass")
	}
	b, err := ToDense(ampc.HostTensor{Type: ampc.TypeOf(ampc.BF16, 1), Bytes: []byte{0x80, 0x3f}})
	if err != nil || b.Float32s()[0] != 1 {
		t.Errorf("bf16 1 becomes %v, %v", b, err)
	}
}
