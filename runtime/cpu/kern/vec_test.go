package kern

import (
	goflag "flag"
	"math"
	"slices"
	"testing"
)

// corners are values that primitives treat specially.
func corners() []float32 {
	x := []float32{0, 1, 2, 0.5, 1.5, 2.5, 3, 0.625, 1e-3, 1e10, 1e38, math.MaxFloat32, math.SmallestNonzeroFloat32,
		0x1p-126, 0x1p-127, 0x1p-24, 0x1p23, 0x1p24, 65504, 65520, 65519.996, 88.7, 89, 104, 1e-30, 0x1p-25, 0x1p-14,
		float32(math.Inf(1)), float32(math.NaN()), 8388608.5, 4194304.5, 1e5, 3e5}
	for _, v := range x {
		x = append(x, -v)
	}
	return x
}

// sample is every corner, then random bit patterns, then ordinary values.
func sample(d dice, n int) []float32 {
	x := corners()
	for len(x) < n/2 {
		x = append(x, math.Float32frombits(d.Uint32()))
	}
	for len(x) < n {
		x = append(x, float32(d.NormFloat64()*3))
	}
	return x
}

func same(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b }

// operandPairs are the corners in all combinations, then random patterns.
func operandPairs(d dice, n int) (a, b []float32) {
	for _, x := range corners() {
		for _, y := range corners() {
			a, b = append(a, x), append(b, y)
		}
	}
	return append(a, sample(d, n)...), append(b, sample(d, n)[:n]...)
}

func TestExactUnary(t *testing.T) {
	for _, p := range Paths() {
		x := sample(newDice(20), 50003)
		y := make([]float32, len(x))
		for op := Neg; op <= RoundTF32; op++ {
			p.Unary(op, y, x)
			for i := range x {
				if want := unaryRows[op].f(x[i]); !same(y[i], want) {
					t.Errorf("%s: %v(%x) = %x, want %x", p.Name(), op, x[i], y[i], want)
					break
				}
			}
		}
	}
}

func TestExactBinary(t *testing.T) {
	for _, p := range Paths() {
		a, b := operandPairs(newDice(21), 20001)
		y := make([]float32, len(a))
		for op := Add; op <= ReluGrad; op++ {
			p.Binary(op, y, a, b)
			for i := range a {
				if want := binaryRows[op].f(a[i], b[i]); !same(y[i], want) {
					t.Errorf("%s: %v(%x, %x) = %x, want %x", p.Name(), op, a[i], b[i], y[i], want)
					break
				}
			}
		}
	}
}

func TestExactTernary(t *testing.T) {
	for _, p := range Paths() {
		d := newDice(22)
		a, b := operandPairs(d, 20001)
		c := sample(d, len(a))
		y := make([]float32, len(a))
		for op := FMA; op < numTernary; op++ {
			p.Ternary(op, y, a, b, c)
			for i := range a {
				if want := ternaryRows[op].f(a[i], b[i], c[i]); !same(y[i], want) {
					t.Errorf("%s: %v(%x, %x, %x) = %x, want %x", p.Name(), op, a[i], b[i], c[i], y[i], want)
					break
				}
			}
		}
	}
}

// TestLengths: every length writes its elements and nothing behind them, also in place.
func TestLengths(t *testing.T) {
	for _, p := range Paths() {
		for n := range 150 {
			x := make([]float32, n+20)
			for i := range x {
				x[i] = float32(i) - 7
			}
			y := append([]float32(nil), x...)
			p.Unary(Square, y[3:3+n], x[3:3+n])
			p.Unary(Exp, y[3:3+n], y[3:3+n])
			p.Binary(Add, y[3:3+n], y[3:3+n], x[3:3+n])
			p.Ternary(FMA, y[3:3+n], y[3:3+n], x[3:3+n], x[3:3+n])
			for i := range x {
				inside := i >= 3 && i < 3+n
				if !inside && y[i] != x[i] {
					t.Fatalf("%s: length %d changed element %d", p.Name(), n, i-3)
				}
				e := float32(math.Exp(float64(x[i] * x[i])))
				if want := fma32(e+x[i], x[i], x[i]); inside && math.Abs(float64(y[i]-want)) > 1e-6*math.Abs(float64(want)) {
					t.Fatalf("%s: length %d, element %d is %g, want %g", p.Name(), n, i-3, y[i], want)
				}
			}
			for _, typ := range []Type{F32, F16, BF16} {
				h := zeros(typ, n+9)
				p.Store(h, x[:n])
				back := make([]float32, n+2)
				p.Load(back[:n], h)
				for i := range n {
					if back[i] != x[i] && typ != BF16 {
						t.Fatalf("%s %v: length %d, element %d is %g", p.Name(), typ, n, i, back[i])
					}
				}
				if back[n] != 0 || h.get(n) != 0 {
					t.Fatalf("%s %v: length %d overwrote what follows", p.Name(), typ, n)
				}
			}
		}
	}
}

// TestReductionsAgree: the reductions of all paths see the same partial sums; exactly summable values show it.
func TestReductionsAgree(t *testing.T) {
	d := newDice(23)
	for n := range 300 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(d.NormFloat64())
		}
		ref := goPath()
		for _, p := range Paths() {
			if got, want := p.Sum(x), ref.Sum(x); got != want {
				t.Fatalf("%s: sum of %d is %x, want %x", p.Name(), n, got, want)
			}
			if got, want := p.MaxOf(x), ref.MaxOf(x); got != want {
				t.Fatalf("%s: max of %d is %g, want %g", p.Name(), n, got, want)
			}
			if got, want := p.MinOf(x), ref.MinOf(x); got != want {
				t.Fatalf("%s: min of %d is %g, want %g", p.Name(), n, got, want)
			}
			if got, want := p.Dot(x, x), ref.Dot(x, x); math.Abs(float64(got-want)) > 1e-6*float64(n) {
				t.Fatalf("%s: dot of %d is %g, want %g", p.Name(), n, got, want)
			}
			if n > 0 {
				y := append([]float32(nil), x...)
				y[d.IntN(n)] = float32(math.NaN())
				if m, l := p.MaxOf(y), p.MinOf(y); m == m || l == l {
					t.Fatalf("%s: NaN among %d lost", p.Name(), n)
				}
				clear(y)
				y[d.IntN(n)] = float32(math.Copysign(0, -1))
				if n > 1 && math.Signbit(float64(p.MaxOf(y))) || !math.Signbit(float64(p.MinOf(y))) {
					t.Fatalf("%s: zeros of %d out of order", p.Name(), n)
				}
			}
		}
	}
}

// Every path counts what the plain loop counts, at every length and place of a vector.
func TestCount(t *testing.T) {
	d := newDice(24)
	inf := float32(math.Inf(1))
	special := []float32{inf, -inf, float32(math.NaN()), -float32(math.NaN()), 0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, 1e-45, -1e-45}
	for n := range 200 {
		for _, rare := range []int{1, 3, 50} {
			x := make([]float32, n)
			for i := range x {
				if x[i] = float32(d.NormFloat64()); d.IntN(rare) == 0 {
					x[i] = special[d.IntN(len(special))]
				}
			}
			want := Counts{Lo: inf, Hi: -inf}
			want.add(x)
			for _, p := range Paths() {
				if got := p.Count(x); got != want {
					t.Fatalf("%s: %d elements: %+v, want %+v", p.Name(), n, got, want)
				}
			}
		}
	}
}

// ulps is the distance of got from the exact value in units of float32 at that value.
func ulps(got float32, want float64) float64 {
	w := float32(want)
	switch {
	case want != want:
		if got != got {
			return 0
		}
		return math.Inf(1)
	case got == w || math.IsInf(float64(w), 0) && float64(got) == math.MaxFloat32:
		return 0
	case got != got || math.IsInf(float64(got), 0) != math.IsInf(float64(w), 0):
		return math.Inf(1)
	}
	e := max(math.Ilogb(want), -126)
	return math.Abs(float64(got)-want) / math.Ldexp(1, e-23)
}

// smooth states the errors of the smooth unary primitives between lo and hi, in ulp of the result.
var smooth = []struct {
	op     Unary
	f      func(float64) float64
	ulp    float64
	lo, hi float64
}{
	{Exp, math.Exp, 2, math.Inf(-1), math.Inf(1)},
	{Expm1, math.Expm1, 2, math.Inf(-1), math.Inf(1)},
	{Log, math.Log, 2, math.Inf(-1), math.Inf(1)},
	{Log1p, math.Log1p, 2, math.Inf(-1), math.Inf(1)},
	{Tanh, math.Tanh, 2, math.Inf(-1), math.Inf(1)},
	{Erf, math.Erf, 2, math.Inf(-1), math.Inf(1)},
	{Sigmoid, sigmoid, 2.5, math.Inf(-1), math.Inf(1)},
	{Sin, math.Sin, 2, -1e5, 1e5},
	{Cos, math.Cos, 2, -1e5, 1e5},
	{Softplus, func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }, 3, math.Inf(-1), math.Inf(1)},
	{GeluTanh, func(x float64) float64 { return x * sigmoid(geluArg(x)) }, 4, -1, math.MaxFloat32},
	{GeluErf, func(x float64) float64 { return x * normCDF(x) }, 4, -1, math.MaxFloat32},
	{Silu, func(x float64) float64 { return x * sigmoid(x) }, 4, -80, math.MaxFloat32},
	{Rsqrt, func(x float64) float64 { return 1 / math.Sqrt(x) }, 1.5, math.Inf(-1), math.Inf(1)},
}

// TestSmoothOfHalves takes every f16 and every bf16 number through the smooth primitives of every path. Where the
// result falls to zero (GELU and SiLU below lo) its error is in ulp of the operand.
func TestSmoothOfHalves(t *testing.T) {
	halves, x, y := make([]uint16, 1<<16), make([]float32, 1<<16), make([]float32, 1<<16)
	for i := range halves {
		halves[i] = uint16(i)
	}
	for _, p := range Paths() {
		for _, format := range []Type{F16, BF16} {
			p.Load(x, bufOf(format, halves))
			for _, c := range smooth {
				p.Unary(c.op, y, x)
				for i, v := range x {
					want, e := c.f(float64(v)), 0.0
					switch {
					case float64(v) < c.lo && math.IsInf(float64(v), 0) || c.hi < math.MaxFloat32 && math.Abs(float64(v)) > c.hi:
						continue // 0 times Inf; angles of more turns than a float32 tells apart
					case float64(v) < c.lo:
						e = math.Abs(float64(y[i])-want) / math.Abs(math.Ldexp(float64(v), -23))
					default:
						e = ulps(y[i], want)
					}
					if !(e <= c.ulp) {
						t.Errorf("%s: %v of %v %#04x (%g) is %g, want %g: off by %.2f ulp, allowed %g", p.Name(), c.op, format, halves[i], v, y[i], want, e, c.ulp)
						break
					}
				}
			}
		}
	}
}

var smoothStep = goflag.Uint64("smooth-step", 401, "TestSmooth looks at one of so many float32 patterns")

// TestSmooth sweeps the smooth unary primitives over float32 patterns, on the first path with vectors; the others agree with it.
func TestSmooth(t *testing.T) {
	paths := slices.DeleteFunc(Paths(), func(p *Path) bool { return p.lanes == 1 })
	if len(paths) == 0 {
		t.Skip("no path with vectors on this processor")
	}
	step := *smoothStep
	if testing.Short() {
		step = 20011
	}
	for _, c := range smooth {
		x, y, other := make([]float32, 4096), make([]float32, 4096), make([]float32, 4096)
		worst, at := 0.0, float32(0)
		for b := uint64(0); b < 1<<32; b += step * 4096 {
			for i := range x {
				x[i] = math.Float32frombits(uint32(b + uint64(i)*step))
			}
			paths[0].Unary(c.op, y, x)
			for i, v := range x {
				if !(float64(v) >= c.lo && float64(v) <= c.hi) && v == v {
					continue
				}
				if e := ulps(y[i], c.f(float64(v))); e > worst {
					worst, at = e, v
				}
			}
			for _, p := range paths[1:] {
				p.Unary(c.op, other, x)
				if i := firstDifference(other, y); i >= 0 {
					t.Fatalf("%v(%x) = %x on %s, %x on %s", c.op, x[i], other[i], p.Name(), y[i], paths[0].Name())
				}
			}
		}
		t.Logf("%v: %.2f ulp at %g", c.op, worst, at)
		if worst > c.ulp {
			t.Errorf("%v is off by %.2f ulp at %x (%g), allowed %g", c.op, worst, at, at, c.ulp)
		}
	}
}

// firstDifference is where a and b, of one length, first differ in more than the bits of a NaN; -1: nowhere.
func firstDifference(a, b []float32) int {
	for i := range a {
		if !same(a[i], b[i]) {
			return i
		}
	}
	return -1
}

// TestSmoothAgree: the vector paths compute the smooth primitives alike, whatever the width.
func TestSmoothAgree(t *testing.T) {
	var first [numUnary][]float32
	x := sample(newDice(24), 30007)
	for _, p := range Paths() {
		if p.lanes == 1 {
			continue
		}
		for op := Exp; op < numUnary; op++ {
			y := make([]float32, len(x))
			p.Unary(op, y, x)
			if first[op] == nil {
				first[op] = y
			}
			for i := range x {
				if !same(y[i], first[op][i]) {
					t.Errorf("%v(%x) = %x on %s, %x before", op, x[i], y[i], p.Name(), first[op][i])
					break
				}
			}
		}
	}
}

// TestGradRows holds the smooth gradients against the formulas in float64.
func TestGradRows(t *testing.T) {
	d := newDice(25)
	for _, p := range Paths() {
		for op := GeluErfGrad; op < numBinary; op++ {
			x, dy, y := make([]float32, 3001), make([]float32, 3001), make([]float32, 3001)
			for i := range x {
				x[i], dy[i] = float32(d.NormFloat64()*4), float32(d.NormFloat64())
			}
			p.Binary(op, y, x, dy)
			for i := range x {
				want := float64(binaryRows[op].f(x[i], dy[i]))
				if !near(t, p.Name()+" "+op.String(), F32, i, y[i], want, 1e-6*math.Abs(float64(dy[i]))) {
					t.Fatalf("x %g dy %g", x[i], dy[i])
				}
			}
		}
	}
}

func TestScalarRows(t *testing.T) {
	d := newDice(29)
	for _, p := range Paths() {
		for n := range 70 {
			x, y, got := sample(d, 100)[100-n:], sample(d, 100)[100-n:], make([]float32, n+1)
			p.Fill(got[:n], 3)
			for i, v := range got {
				if (v == 3) != (i < n) {
					t.Fatalf("%s: fill of %d, element %d is %g", p.Name(), n, i, v)
				}
			}
			p.Axpb(got[:n], x, 1.7, -0.3)
			for i := range n {
				if want := fma32(1.7, x[i], -0.3); !same(got[i], want) {
					t.Fatalf("%s: axpb of %g is %x, want %x", p.Name(), x[i], got[i], want)
				}
			}
			p.Axpy(got[:n], x, y, 1.7)
			for i := range n {
				if want := fma32(1.7, x[i], y[i]); !same(got[i], want) {
					t.Fatalf("%s: axpy of %g, %g is %x, want %x", p.Name(), x[i], y[i], got[i], want)
				}
			}
			sum := 0.0
			for _, v := range x {
				sum += (float64(v) - 0.5) * (float64(v) - 0.5)
			}
			near(t, "sumsq", F32, n, p.sumSqDev(x, 0.5), sum, 1e-5*sum)
		}
	}
}

// TestPow: powers are within 4 ulp, special operands are math.Pow's, and no element's power depends on those beside it.
func TestPow(t *testing.T) {
	d := newDice(30)
	for _, p := range Paths() {
		const n = 200003
		a, b, y := make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range a {
			a[i] = math.Float32frombits(d.Uint32() % 0x7f800000)
			b[i] = float32(d.NormFloat64() * 90 / max(1, math.Abs(math.Log(float64(a[i])))))
			if i%3 == 0 {
				a[i], b[i] = 1+float32(d.NormFloat64()*0.01), float32(d.NormFloat64()*1000)
			}
		}
		p.Binary(Pow, y, a, b)
		for i := range a {
			if want := math.Pow(float64(a[i]), float64(b[i])); ulps(y[i], want) > 4 && want < math.MaxFloat32 {
				t.Fatalf("%s: %x^%x = %x, want %x: %.1f ulp", p.Name(), a[i], b[i], y[i], want, ulps(y[i], want))
			}
		}
		x := corners()
		for _, e := range append(corners(), -1, 4, 1.0/3) {
			c := make([]float32, len(x))
			p.Fill(c, e)
			p.Binary(Pow, y[:len(x)], x, c)
			for i := range x {
				exact := math.Pow(float64(x[i]), float64(e))
				ordinary := x[i] > 0 && x[i] <= math.MaxFloat32 && math.Abs(float64(e)) <= math.MaxFloat32
				if want := float32(exact); !same(y[i], want) && (!ordinary || ulps(y[i], exact) > 4) {
					t.Fatalf("%s: %g^%g = %g, want %g", p.Name(), x[i], e, y[i], want)
				}
				var alone [1]float32
				if p.Binary(Pow, alone[:], x[i:i+1], c[i:i+1]); !same(alone[0], y[i]) {
					t.Fatalf("%s: %g^%g = %g among others and %g alone", p.Name(), x[i], e, y[i], alone[0])
				}
			}
		}
	}
}
