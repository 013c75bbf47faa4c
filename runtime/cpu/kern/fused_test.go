package kern

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sumOf is what a kernel adds up: values, or their squares.
type sumOf struct {
	x      []float32
	square bool
}

// stepwise computes a formula by the vector primitives, one after the other, and says what it sums.
func stepwise(p *Path, text string, bufs []Buf, scalars []float32, n int) (summed []sumOf) {
	regs := map[string][]float32{}
	for i, u := range scalars {
		regs[fmt.Sprint("u", i)] = make([]float32, n)
		p.Fill(regs[fmt.Sprint("u", i)], u)
	}
	for _, word := range strings.Fields(text) {
		left, right, assigned := strings.Cut(word, "=")
		name, _, typed := strings.Cut(left, ":")
		if name[0] == 'a' {
			value, _, square := strings.Cut(right, "*")
			summed = append(summed, sumOf{regs[value], square})
			continue
		}
		if !assigned {
			regs[name] = make([]float32, n)
			p.Load(regs[name], bufs[0])
			bufs = bufs[1:]
			continue
		}
		if typed {
			p.Store(bufs[0], regs[right])
			bufs = bufs[1:]
			continue
		}
		op, list, _ := strings.Cut(strings.TrimSuffix(right, ")"), "(")
		var x [][]float32
		for _, a := range strings.Split(list, ",") {
			if bits, constant := strings.CutPrefix(a, "c"); constant && regs[a] == nil {
				n32, _ := strconv.ParseUint(bits, 10, 32)
				regs[a] = make([]float32, n)
				p.Fill(regs[a], math.Float32frombits(uint32(n32)))
			}
			x = append(x, regs[a])
		}
		regs[name] = make([]float32, n)
		switch len(x) {
		case 1:
			p.Unary(named[Unary](op, numUnary), regs[name], x[0])
		case 2:
			p.Binary(named[Binary](op, numBinary), regs[name], x[0], x[1])
		case 3:
			p.Ternary(named[Ternary](op, numTernary), regs[name], x[0], x[1], x[2])
		}
	}
	return summed
}

// named finds a primitive by its name.
func named[T interface {
	~uint8
	fmt.Stringer
}](name string, end T) T {
	for op := T(0); op < end; op++ {
		if op.String() == name {
			return op
		}
	}
	panic("no primitive " + name)
}

// testFormula holds a formula's kernel against its primitives, to the bit: with ordinary and with streaming stores, and in place.
func testFormula(t *testing.T, p *Path, f *Fused, text string, d dice, n int) {
	skip, first := 32, n // elements before the first: they keep results aligned
	if n >= StreamBlock {
		skip, first = 0, 3*StreamUnit // in two parts
	}
	scalars := []float32{0.5, -0.25, 0.75, 0.3, 1.5, 0.1, 2, 1e-8, 0.9, 0, 1, 0, 1, 0}
	if d.IntN(2) == 0 {
		scalars[2], scalars[3] = 0, 1
	}
	var bufs, want []Buf
	for i, typ := range f.types {
		b := Buf{typ, zeros(F32, n+skip+16).Data[:(n+skip)*typ.Size()]}
		for e := range n + skip {
			b.set(e, float32(d.NormFloat64()))
		}
		for e, x := range corners() {
			if n > 100 {
				b.set(skip+(e*7+i)%n, x)
			}
		}
		bufs = append(bufs, b)
		want = append(want, Buf{typ, slices.Clone(b.Data)}.From(skip))
	}
	stepwise(p, text, want, scalars, n)
	place := d.IntN(f.loads)
	if f.types[place] == f.types[f.loads] { // the first result lies over an operand
		bufs[f.loads] = bufs[place]
	}
	f.Run(&Call{}, bufs, scalars, skip, first, true)
	f.Run(&Call{}, bufs, scalars, skip+first, n-first, true)
	p.Fence()
	for i := f.loads; i < len(f.types); i++ {
		for e := range n {
			if got, want := bufs[i].get(skip+e), want[i].get(e); !same(got, want) {
				t.Fatalf("%s: %d elements: result %d has %g at %d, want %g\n%s", p.Name(), n, i-f.loads, got, e, want, text)
			}
		}
	}
}

// testRows holds rows with scalars of their own against the primitives, results and sums to the bit.
func testRows(t *testing.T, p *Path, f *Fused, text string, d dice) {
	const rows = 3
	for _, vectors := range []int{1, 5, 64/f.lanes + 3, 2 * 64 / f.lanes, 64} {
		n, from, runs := vectors*f.lanes, d.IntN(64/f.lanes)*f.lanes, 1
		if f.sums > 0 {
			if runs = 1 + d.IntN(9); d.IntN(2) == 0 {
				from = 0
			}
		}
		apart := (rows + d.IntN(3)) * n
		var bufs, want []Buf
		for _, typ := range f.types {
			b := d.buf(typ, runs*apart)
			bufs, want = append(bufs, b), append(want, Buf{typ, slices.Clone(b.Data)})
		}
		scalars := d.buf(F32, rows*RowScalars).f32()
		chains := d.buf(F32, rows*lanes*f.sums).f32()
		begun := slices.Clone(chains)
		if f.sums > 0 {
			f.SumRows(&Call{}, bufs, scalars, chains, from, 0, rows, n, runs, apart)
		} else {
			f.Rows(&Call{}, bufs, scalars, 0, rows, n)
		}
		for i := range rows * runs {
			r, run := i%rows, i/rows
			var row []Buf
			for _, b := range want {
				row = append(row, Buf{b.Type, b.From(run*apart + r*n).Data[:n*b.Type.Size()]})
			}
			for i, x := range stepwise(p, text, row, scalars[r*RowScalars:], n) {
				x.addTo(begun[(r*f.sums+i)*lanes:][:lanes], from+run*n)
			}
		}
		if !slices.EqualFunc(chains, begun, same) {
			t.Errorf("%s: the chains of %d rows of %d runs of %d elements are %g, want %g\n%s", p.Name(), rows, runs, n, chains, begun, text)
		}
		for i := f.loads; i < len(f.types); i++ {
			for e := range rows * n {
				if got, want := bufs[i].get(e), want[i].get(e); !same(got, want) {
					t.Fatalf("%s: result %d of rows of %d has %g at %d, want %g\n%s", p.Name(), i, n, got, e, want, text)
				}
			}
		}
	}
}

// addTo adds the elements to chains in turn, the first to chain from.
func (s *sumOf) addTo(chains []float32, from int) {
	for i, v := range s.x {
		c := &chains[(from+i)%lanes]
		if s.square {
			*c = fma32(v, v, *c)
		} else {
			*c += v
		}
	}
}
