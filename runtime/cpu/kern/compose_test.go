//go:build amd64 || arm64

package kern

import (
	_ "embed"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// composing are the paths of this processor that compose kernels, one of each set of instructions.
func composing(t testing.TB) (list []*Path) {
	t.Helper()
	for _, p := range Paths() {
		if p.composes && !slices.ContainsFunc(list, func(q *Path) bool { return q.set() == p.set() }) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		t.Skip("no path of this processor or build composes kernels")
	}
	return list
}

// formulaList are a name and the text of formulas: those of updates, activations and norms over channels.
//
//go:embed testdata/formulas.txt
var formulaList string

// eachFormula calls do for each of them.
func eachFormula(do func(name string, f *Formula)) {
	for line := range strings.Lines(formulaList) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		do(name, parseFormula(text))
	}
}

// parseFormula reads what Formula.String writes.
func parseFormula(text string) *Formula {
	text, rows := strings.CutPrefix(text, "rows ")
	f := &Formula{Rows: rows}
	types := map[string]Type{"f32": F32, "f16": F16, "bf16": BF16}
	operand := func(s string) Operand {
		n, err := strconv.Atoi(s[1:])
		if err != nil {
			panic(text)
		}
		o := Operand{OperandKind(s[0]), n}
		if o.Kind == Scalar {
			f.Scalars = max(f.Scalars, n+1)
		}
		return o
	}
	for _, word := range strings.Fields(text) {
		left, right, assigned := strings.Cut(word, "=")
		_, kind, typed := strings.Cut(left, ":")
		switch {
		case left[0] == 'a':
			value, _, square := strings.Cut(right, "*")
			f.Sums = append(f.Sums, FormulaSum{operand(value), square})
		case !assigned:
			f.Loads = append(f.Loads, types[kind])
		case typed:
			f.Results = append(f.Results, FormulaResult{types[kind], operand(right)})
		default:
			name, args, _ := strings.Cut(strings.TrimSuffix(right, ")"), "(")
			op := FormulaOp{Name: name}
			for _, a := range strings.Split(args, ",") {
				op.Args = append(op.Args, operand(a))
			}
			f.Code = append(f.Code, op)
		}
	}
	return f
}

// compose is p.Compose, which must succeed.
func compose(t testing.TB, p *Path, f *Formula) *Fused {
	t.Helper()
	k := p.Compose(f)
	if k == nil {
		t.Fatalf("%s: no kernel of %v", p.Name(), f)
	}
	t.Cleanup(k.Close)
	return k
}

// TestComposed composes every formula of the list and compares it with the primitives, to the bit.
func TestComposed(t *testing.T) {
	for _, p := range composing(t) {
		d := newDice(32)
		eachFormula(func(name string, f *Formula) {
			k, sizes, text := compose(t, p, f), []int{1, 16, 77, 5 * 77}, strings.TrimPrefix(f.String(), "rows ")
			if f.Rows {
				testRows(t, p, k, text, d)
			}
			if len(f.Results) == 0 {
				return
			}
			if k.Streams() != (p.fence != nil && f.streams()) {
				t.Errorf("%s: %s streams: %t", p.Name(), name, k.Streams())
			}
			if k.Streams() && len(f.Code) == 2 {
				sizes = append(sizes, StreamBlock+77)
			}
			for _, n := range sizes {
				testFormula(t, p, k, text, d, n)
			}
		})
	}
}

// TestRandomRows compares kernels of random formulas over rows, with sums or results, with the primitives, to the bit.
func TestRandomRows(t *testing.T) {
	for _, p := range composing(t) {
		d := newDice(41)
		for range 100 {
			f := randomFormula(p, d, 12)
			if f.checked() { // these have no kernels of rows
				continue
			}
			f.Rows, f.Loads, f.Scalars = true, f.Loads[:min(3, len(f.Loads))], min(f.Scalars, RowScalars)
			clip := func(o *Operand) {
				switch {
				case o.Kind == Loaded:
					o.N %= len(f.Loads)
				case o.Kind == Scalar:
					o.N %= RowScalars
				}
			}
			for i := range f.Code {
				for k := range f.Code[i].Args {
					clip(&f.Code[i].Args[k])
				}
			}
			for _, r := range f.Results {
				clip(&r.Value)
				f.Sums = append(f.Sums, FormulaSum{r.Value, d.IntN(2) == 0})
			}
			if f.Sums = f.Sums[:min(d.IntN(3), len(f.Sums))]; len(f.Sums) > 0 {
				f.Results = nil
			}
			f.Results = f.Results[:min(2, len(f.Results))]
			for i := range f.Results {
				clip(&f.Results[i].Value)
			}
			testRows(t, p, compose(t, p, f), strings.TrimPrefix(f.String(), "rows "), d)
		}
	}
}

// TestPrimitivesComposed composes every primitive by itself, for operands and results of every type.
func TestPrimitivesComposed(t *testing.T) {
	for _, p := range composing(t) {
		d := newDice(31)
		for name := range p.set().bodies {
			for load := range numTypes {
				f := &Formula{Loads: []Type{load, F32}, Code: []FormulaOp{{Name: name}}}
				for i := range arguments(name) {
					f.Code[0].Args = append(f.Code[0].Args, Operand{Loaded, i % 2})
				}
				for typ := range numTypes {
					f.Results = append(f.Results, FormulaResult{typ, Operand{Computed, 0}})
				}
				if len(f.Code[0].Args) > 0 {
					testFormula(t, p, compose(t, p, f), f.String(), d, 333)
				}
			}
		}
	}
}

// TestConstants composes primitives of a constant, for which the composer takes other instructions, and of two: zeros of both
// signs and NaN among the constants, and each of them among the operands.
func TestConstants(t *testing.T) {
	for _, p := range composing(t) {
		d := newDice(34)
		for _, name := range []string{"max", "min", "mul", "add", "sub", "div", "pow"} {
			for _, a := range constants {
				f := &Formula{Loads: []Type{F32}, Code: []FormulaOp{{name, []Operand{{Loaded, 0}, ConstantOf(a)}}, {name, []Operand{ConstantOf(a), {Loaded, 0}}}}}
				for _, b := range constants {
					f.Code = append(f.Code, FormulaOp{name, []Operand{ConstantOf(a), ConstantOf(b)}})
				}
				for i := range f.Code {
					f.Results = append(f.Results, FormulaResult{F32, Operand{Computed, i}})
				}
				testFormula(t, p, compose(t, p, f), f.String(), d, 333)
			}
		}
	}
}

// TestIntervals composes log1p of what the composer knows to be from 0 to 1, and of what it does not, for any bits.
func TestIntervals(t *testing.T) {
	const n = 1 << 16
	for _, p := range composing(t) {
		for _, text := range []string{
			"l0:f32 r0=abs(l0) r1=neg(r0) r2=exp(r1) r3=log1p(r2) s0:f32=r3",
			"l0:f32 r0=neg(l0) r1=neg(r0) r2=exp(r1) r3=log1p(r2) s0:f32=r3",
		} {
			x, y, want := sample(newDice(36), n), make([]float32, n), make([]float32, n)
			for i := range x[n/2:] { // most bits are huge or tiny
				x[n/2+i] *= float32(i) / 1024
			}
			stepwise(p, text, []Buf{Floats(x), Floats(want)}, nil, n)
			compose(t, p, parseFormula(text)).Run(&Call{}, []Buf{Floats(x), Floats(y)}, nil, 0, n, false)
			for i := range y {
				if !same(y[i], want[i]) {
					t.Fatalf("%s: %g of %g, want %g\n%s", p.Name(), y[i], x[i], want[i], text)
				}
			}
		}
	}
}

// arguments is the number of operands of a primitive, 0 for bodies that only the composer uses.
func arguments(name string) int {
	switch {
	case name == "bfloat" || strings.HasPrefix(name, "low") || strings.HasPrefix(name, "outside ") || strings.HasSuffix(name, "number") || strings.HasSuffix(name, "unit"):
		return 0
	case slices.Contains(ternaryNames(), name):
		return 3
	}
	for o := range binaryRows {
		if Binary(o).String() == name {
			return 2
		}
	}
	return 1
}

// constants are those of random formulas, for some of which the composer takes other instructions.
var constants = []float32{0, float32(math.Copysign(0, -1)), 1, 2, 3, -2, 0.5, 6, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}

// randomFormula has up to so many primitives.
func randomFormula(p *Path, d dice, most int) *Formula {
	f := &Formula{}
	for range 1 + d.IntN(8) {
		f.Loads = append(f.Loads, Type(d.IntN(int(numTypes))))
	}
	names := slices.Sorted(maps.Keys(p.set().bodies))
	for i := range 1 + d.IntN(most) {
		op := FormulaOp{Name: names[d.IntN(len(names))]}
		args := arguments(op.Name)
		if args == 0 {
			continue
		}
		for range args {
			a := Operand{Loaded, d.IntN(len(f.Loads))}
			switch n := d.IntN(8); {
			case n == 0 && f.Scalars < 14:
				a = Operand{Scalar, f.Scalars}
				f.Scalars++
			case n == 1:
				a = ConstantOf(constants[d.IntN(len(constants))])
			case n < 6 && i > 0 && len(f.Code) > 0:
				a = Operand{Computed, max(0, len(f.Code)-1-d.IntN(1+d.IntN(len(f.Code))))}
			}
			op.Args = append(op.Args, a)
		}
		f.Code = append(f.Code, op)
	}
	for range 1 + d.IntN(4) {
		v := Operand{Loaded, d.IntN(len(f.Loads))}
		if n := len(f.Code); n > 0 && d.IntN(6) > 0 {
			v = Operand{Computed, max(0, n-1-d.IntN(3))}
		}
		f.Results = append(f.Results, FormulaResult{Type(d.IntN(int(numTypes))), v})
	}
	return f
}

// TestComposedStreams compares kernels of short random formulas with the primitives on blocks that are written past the caches.
func TestComposedStreams(t *testing.T) {
	for _, p := range composing(t) {
		if p.fence == nil {
			t.Skip(p.Name(), "has no streaming stores")
		}
		d, streams := newDice(39), 0
		for range 20 {
			f := randomFormula(p, d, 2)
			k := compose(t, p, f)
			if k.Streams() {
				streams++
				testFormula(t, p, k, f.String(), d, 2*StreamBlock+100)
			}
		}
		if streams < 6 {
			t.Errorf("%s: %d of 20 short formulas have streaming stores", p.Name(), streams)
		}
	}
}

func ternaryNames() (list []string) {
	for o := range ternaryRows {
		list = append(list, Ternary(o).String())
	}
	return list
}

// TestRandomFormulas compares composed kernels of random formulas with the primitives, to the bit.
func TestRandomFormulas(t *testing.T) {
	for _, p := range composing(t) {
		d := newDice(33)
		for range 300 {
			f := randomFormula(p, d, 60)
			testFormula(t, p, compose(t, p, f), f.String(), d, 1+d.IntN(500))
		}
	}
}

// TestSpills has more values that are still needed than there are registers.
func TestSpills(t *testing.T) {
	for _, p := range composing(t) {
		d := newDice(35)
		last := func(n int) Operand { return Operand{Computed, n} }
		for _, values := range []int{8, 20, 31, 32, 40, 100} {
			f := &Formula{Loads: []Type{F32, BF16}, Scalars: 1, Code: []FormulaOp{{"add", []Operand{{Loaded, 0}, {Scalar, 0}}}}}
			for i := range values {
				f.Code = append(f.Code, FormulaOp{[]string{"add", "sub", "max"}[i%3], []Operand{last(i), {Loaded, i % 2}}})
			}
			for i := range values {
				f.Code = append(f.Code, FormulaOp{"fma", []Operand{last(i), last(len(f.Code) - 1), last(len(f.Code) - 1)}})
			}
			f.Results = []FormulaResult{{F32, last(len(f.Code) - 1)}, {F16, last(values)}}
			k := compose(t, p, f)
			if (k.composed.spills > 0) != (values > p.set().registers-2) {
				t.Errorf("%s: %d values: %d are spilled", p.Name(), values, k.composed.spills)
			}
			testFormula(t, p, k, f.String(), d, 333)
		}
	}
}

// TestCallsAreShort holds that calls of kernels with long bodies compute fewer elements, and that several calls compute all.
func TestCallsAreShort(t *testing.T) {
	for _, p := range composing(t) {
		for name, most := range map[string]int{"add": 4096, "div": 256} {
			f := &Formula{Loads: []Type{F32}, Scalars: 1, Code: []FormulaOp{{name, []Operand{{Loaded, 0}, {Scalar, 0}}}}}
			for i := range 300 {
				f.Code = append(f.Code, FormulaOp{name, []Operand{{Computed, i}, {Loaded, 0}}})
			}
			f.Results = []FormulaResult{{F32, Operand{Computed, 300}}}
			k := compose(t, p, f)
			if k.composed.most > most || k.composed.most%p.lanes != 0 {
				t.Errorf("%s: a call computes %d elements of 300 %ss, want at most %d", p.Name(), k.composed.most, name, most)
			}
			testFormula(t, p, k, f.String(), newDice(38), 777)
		}
	}
}

// TestLongBodies holds that a kernel of a long chain computes several vectors in turn, as the instructions of one wait for each
// other, however many they are.
func TestLongBodies(t *testing.T) {
	for _, p := range composing(t) {
		d := newDice(39)
		for name, most := range map[string]int{"exp": 100, "tanh": 40, "sqrt": 300} {
			for _, n := range []int{10, most} {
				f := &Formula{Loads: []Type{F32}, Code: []FormulaOp{{"neg", []Operand{{Loaded, 0}}}}}
				for i := range n {
					f.Code = append(f.Code, FormulaOp{name, []Operand{{Computed, i}}})
				}
				f.Results = []FormulaResult{{F32, Operand{Computed, n}}}
				testFormula(t, p, compose(t, p, f), f.String(), d, 777)
				c := composer{f: f, set: p.set()}
				seq, _ := c.lanes()
				if l, ok := c.plan(seq, c.sizes()...); !ok || l.unroll < 3 {
					t.Errorf("%s: a kernel of %d %ss computes %d vectors in turn", p.Name(), n, name, l.unroll)
				}
			}
		}
	}
}

// FuzzComposed compares the composed kernel of a random formula with the primitives, to the bit.
func FuzzComposed(f *testing.F) {
	paths := composing(f)
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		for _, p := range paths {
			d := newDice(seed)
			formula := randomFormula(p, d, 200)
			testFormula(t, p, compose(t, p, formula), formula.String(), d, 1+d.IntN(300))
		}
	})
}
