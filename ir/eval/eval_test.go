package eval

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"ampc/ir"
)

func TestFmaRoundsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		a, b := float32(r.NormFloat64()), float32(r.NormFloat64())
		c := -a * b * (1 + float32(r.IntN(5)-2)*0x1p-23)
		if r.IntN(2) == 0 {
			c = float32(math.Ldexp(r.NormFloat64(), r.IntN(80)-40))
		}
		exact := new(big.Float).SetPrec(300).Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
		exact.Add(exact, big.NewFloat(float64(c)))
		want, _ := exact.Float32()
		if got := float32(fma32(float64(a), float64(b), float64(c), false)); got != want {
			t.Fatalf("fma(%g, %g, %g) = %g, want %g", a, b, c, got, want)
		}
	}
}

func TestBytesComeBack(t *testing.T) {
	for _, x := range []*Tensor{
		Floats(ir.F32, []ir.Dim{2, 2}, 1.5, -0.1, math.Inf(1), 1e-45),
		Floats(ir.F16, []ir.Dim{3}, 65504, 1e-8, -3),
		Floats(ir.BF16, []ir.Dim{1}, 1e38),
		Floats(ir.F64, nil, math.Pi),
		Ints(ir.I32, []ir.Dim{2}, -1, math.MaxInt32),
		Ints(ir.I64, nil, math.MinInt64),
		Ints(ir.U8, nil, 255),
		Ints(ir.Bool, []ir.Dim{2}, 1, 0),
	} {
		y, err := FromBytes(x.Type, x.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.Len() {
			if x.At(i) != y.At(i) {
				t.Errorf("%s: element %d came back as %v, was %v", x.Type, i, y.At(i), x.At(i))
			}
		}
	}
	if _, err := FromBytes(ir.Type{DType: ir.F32, Shape: ir.MakeShape(2)}, make([]byte, 7)); err == nil {
		t.Error("seven bytes were taken for two floats")
	}
}

func TestFloatToIntSaturates(t *testing.T) {
	for _, c := range []struct {
		x    float64
		d    ir.DType
		want int64
	}{
		{math.NaN(), ir.I32, 0}, {1e20, ir.I32, math.MaxInt32}, {-1e20, ir.I32, math.MinInt32},
		{-1.9, ir.I32, -1}, {1e30, ir.I64, math.MaxInt64}, {-3, ir.U8, 0}, {300, ir.U8, 255}, {math.NaN(), ir.Bool, 1},
	} {
		if got := c.d.FromFloat(c.x); got != c.want {
			t.Errorf("%g to %s: %d, want %d", c.x, c.d, got, c.want)
		}
	}
}

func TestRunBroadcastsAndAdvancesVariables(t *testing.T) {
	g, err := ir.Parse("t.ir", []byte(`graph @t {
  input %x : f32[2,3]
  param %w : f32[3] = data(1, 2, 3)
forward:
  %y = mul %x, %w : f32[2,3]
update:
  %w' = add %w, %w
  return %y
}
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(g, map[string]*Tensor{"x": Floats(ir.F32, []ir.Dim{2, 3}, 1, 1, 1, 2, 2, 2)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(got *Tensor, want ...float64) {
		t.Helper()
		for i, x := range want {
			if got.F[i] != x {
				t.Errorf("got %v, want %v", got.F, want)
				return
			}
		}
	}
	check(r.Values["y"], 1, 2, 3, 2, 4, 6)
	check(r.Next["w"], 2, 4, 6)
	if _, err := Run(g, nil, Options{}); err == nil || err.Error() != "input %x is not given" {
		t.Errorf("got %v", err)
	}
}
