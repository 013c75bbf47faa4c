//go:build amd64 || arm64

package kern

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// rareOperands are operands that the kernels of powers, sines or cosines do not cover, and some next to them.
var rareOperands = []float32{0, float32(math.Copysign(0, -1)), -1.5, -2, -3, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
	1e5, math.Nextafter32(1e5, 0), -1e5, 3e38, math.MaxFloat32, 1e-45, -1e-45, 1e-40, 1, 2, 3, math.Nextafter32(2, 0), math.Nextafter32(3, 4), -1, 1e9, -7e20}

// rareFormulas have primitives that do not cover all operands, also of each other's results.
var rareFormulas = []string{
	"l0:f32 l1:f32 r0=pow(l0,l1) s0:f32=r0",
	"l0:f32 r0=sin(l0) s0:f32=r0",
	"l0:f16 l1:bf16 r0=cos(l0) r1=pow(l1,r0) r2=sin(r1) s0:f16=r1 s1:bf16=r2 s2:f32=r0",
	"l0:f32 l1:f32 r0=sin(l0) r1=cos(l0) r2=pow(l0,l1) r3=pow(r2,r2) r4=fma(r0,r1,r3) s0:f32=r4 s1:f32=l0",
	"l0:f32 l1:f32 r0=pow(l0,c1077936128) r1=pow(l1,c1073741824) r2=pow(l0,c1056964608) r3=add(r0,r1) s0:f32=r2 s1:f32=r3",
	"l0:f32 l1:f32 r0=pow(l0,u0) r1=pow(u1,l1) r2=sub(r0,r1) s0:f32=r2",
	"l0:f32 l1:f32 r0=pow(c1065353216,l1) r1=pow(l0,c2139095040) r2=add(r0,r1) s0:f32=r2",
}

// TestRareOperands compares kernels with primitives that do not cover all operands with the primitives, to the bit: with few,
// some and many such operands, also alternately, of all lengths up to 200 and of several blocks, in place and not.
func TestRareOperands(t *testing.T) {
	for _, p := range composing(t) {
		d := newDice(51)
		for _, text := range rareFormulas {
			k := compose(t, p, parseFormula(text))
			if k.composed.passes == nil {
				t.Errorf("%s: the kernel claims to cover all operands\n%s", p.Name(), text)
			}
			for n := 1; n <= 200; n += 1 + d.IntN(4) {
				testRare(t, p, k, text, d, n)
			}
			for range 4 {
				testRare(t, p, k, text, d, 400+d.IntN(40*passesBlock))
			}
		}
		for range 60 {
			if f := randomFormula(p, d, 30); f.checked() {
				testRare(t, p, compose(t, p, f), f.String(), d, 1+d.IntN(3000))
			}
		}
	}
}

// testRare holds a formula's kernel against its primitives for operands of which a random share is rare.
func testRare(t *testing.T, p *Path, f *Fused, text string, d dice, n int) {
	t.Helper()
	shares := []float64{0, 0.001, 0.02, 0.2, 0.5, 1}
	scalars := []float32{1.5, 0.5, 2, 3, -1, 0.25, 7, 1e-8, 0.9, 0, 1, 1.1, 1, 0}
	if d.IntN(4) == 0 {
		scalars[0] = rareOperands[d.IntN(len(rareOperands))]
	}
	var bufs, want []Buf
	for _, typ := range f.types {
		b, share := Buf{typ, zeros(F32, n+1).Data[:n*typ.Size()]}, shares[d.IntN(len(shares))]
		for e := range n {
			x := float32(math.Exp(d.NormFloat64()))
			if e%(4*passesBlock) == 0 {
				share = shares[d.IntN(len(shares))]
			}
			if d.Float64() < share {
				x = rareOperands[d.IntN(len(rareOperands))]
			}
			b.set(e, x)
		}
		bufs, want = append(bufs, b), append(want, Buf{typ, slices.Clone(b.Data)})
	}
	stepwise(p, text, want, scalars, n)
	for i := f.loads; i < len(f.types); i++ { // results lie over operands, each over another
		if over := i - f.loads; over < f.loads && f.types[over] == f.types[i] && d.IntN(2) == 0 {
			bufs[i] = bufs[over]
		}
	}
	f.Run(&Call{}, bufs, scalars, 0, n, false)
	for i := f.loads; i < len(f.types); i++ {
		for e := range n {
			if got, want := bufs[i].get(e), want[i].get(e); !same(got, want) {
				t.Fatalf("%s: %d elements: result %d has %g at %d, want %g\n%s", p.Name(), n, i-f.loads, got, e, want, text)
			}
		}
	}
}

// TestOthersAreGo holds powers, sines and cosines that kernels do not cover against Go's, to the bit, among others that they
// cover, whose bits are those of a call of their own.
func TestOthersAreGo(t *testing.T) {
	for _, p := range composing(t) {
		d := newDice(52)
		for _, n := range []int{1, 2, 7, 16, 33, othersBlock + 1, 3*othersBlock - 5} {
			x, y := make([]float32, n), make([]float32, n)
			for i := range n {
				x[i], y[i] = float32(math.Exp(d.NormFloat64())), float32(d.NormFloat64())
				if d.IntN(3) == 0 {
					x[i] = rareOperands[d.IntN(len(rareOperands))]
				}
				if d.IntN(3) == 0 {
					y[i] = rareOperands[d.IntN(len(rareOperands))]
				}
			}
			got, one := make([]float32, n), make([]float32, 1)
			hold := func(name string, i int, covered bool, by float32) {
				want := by
				if covered {
					want = one[0]
				}
				if !same(got[i], want) {
					t.Errorf("%s: %s of %g, %g, number %d of %d: %g, want %g", p.Name(), name, x[i], y[i], i, n, got[i], want)
				}
			}
			p.Binary(Pow, got, x, y)
			for i := range n {
				p.Binary(Pow, one, x[i:i+1], y[i:i+1])
				covered := x[i] > 0 && x[i] <= math.MaxFloat32 && math.Abs(float64(y[i])) <= math.MaxFloat32 && y[i] != 2 && y[i] != 3
				hold("pow", i, covered, powerOf(x[i], y[i]))
			}
			for _, op := range []Unary{Sin, Cos} {
				p.Unary(op, got, x)
				for i := range n {
					p.Unary(op, one, x[i:i+1])
					hold(op.String(), i, math.Abs(float64(x[i])) < 1e5, unaryRows[op].f(x[i]))
				}
			}
		}
	}
}

// FuzzRareOperands compares kernels of random formulas with such primitives with the primitives, to the bit.
func FuzzRareOperands(f *testing.F) {
	paths := composing(f)
	f.Add(uint64(1), uint16(700))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16) {
		for _, p := range paths {
			d := newDice(seed)
			formula := randomFormula(p, d, 40)
			formula.Code = append(formula.Code, FormulaOp{"pow", []Operand{{Loaded, 0}, {Loaded, len(formula.Loads) - 1}}})
			formula.Results = append(formula.Results, FormulaResult{F32, Operand{Computed, len(formula.Code) - 1}})
			testRare(t, p, compose(t, p, formula), formula.String(), d, 1+int(n))
		}
	})
}

// TestFewRareOperands holds that a block with a few rare operands runs passes for these only, and that blocks of rare ones
// run without the code.
func TestFewRareOperands(t *testing.T) {
	for _, p := range composing(t) {
		k := compose(t, p, parseFormula("l0:f32 r0=sin(l0) s0:f32=r0"))
		var lengths []string
		for i := range k.composed.passes.ops {
			apply := k.composed.passes.ops[i].apply
			k.composed.passes.ops[i].apply = func(dst []float32, args [3][]float32) {
				lengths = append(lengths, fmt.Sprint(len(dst)))
				apply(dst, args)
			}
		}
		x, y := make([]float32, 4*passesBlock), make([]float32, 4*passesBlock)
		x[3], x[passesBlock-1] = 1e6, 1e7
		for i := range x[passesBlock:] {
			x[passesBlock+i] = 1e5
		}
		k.Run(&Call{}, []Buf{Floats(x), Floats(y)}, nil, 0, len(x), false)
		if got := strings.Join(lengths, " "); got != "2 512 512 512" {
			t.Errorf("%s: passes compute %s elements", p.Name(), got)
		}
	}
}
