package kern

import (
	gobytes "bytes"
	"fmt"
	"testing"
)

// endingConv is a convolution whose tiles may apply its epilogue: rows of whole vectors, rows that are read together, and
// pixels that are not padded.
func endingConv(d dice, typ Type, i int) *Conv {
	c := &Conv{N: 1 + i%3, C: 1 + d.IntN(6), K: 1 + d.IntN(70), Groups: 1 + i%7/6, In: [3]int{1 + i%2, 4 + d.IntN(12), []int{16, 55, 27, 13, 9 + d.IntN(60)}[i%5]},
		Kernel: [3]int{1, 1 + 2*(i%2), 1 + 2*(i%4/2)}, Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}}
	c.C, c.K = c.C*c.Groups, c.K*c.Groups
	for a := range 3 {
		if c.Kernel[a] > 1 {
			c.Pad[a] = i / 4 % 3
		}
		c.Out[a] = c.In[a] + 2*c.Pad[a] - c.Kernel[a] + 1
	}
	if i%5 == 3 || i%11 == 0 {
		c.Stride[1], c.Stride[2] = 2, 2
		c.Out[1], c.Out[2] = (c.Out[1]-1)/2+1, (c.Out[2]-1)/2+1
	}
	n := c.N * c.K * volume(c.Out)
	c.X, c.W, c.Y = d.buf(typ, c.N*c.C*volume(c.In)), d.buf(typ, c.K*c.C/c.Groups*volume(c.Kernel)), zeros(typ, n)
	switch i % 4 {
	case 0:
		c.Bias, c.Act = d.buf(typ, c.K), ActRelu
	case 1:
		c.Residual.Buf, c.Last = d.buf(typ, n), ActRelu
	case 2:
		c.Bias, c.Residual.Buf, c.Act = d.buf(typ, c.K), d.buf(typ, n), ActRelu
	default:
		c.Bias = d.buf(typ, c.K)
	}
	if i%3 == 0 {
		c.Fixed = Fixed{Weights: NewWeights(nil, NewBlock)}
	}
	return c
}

// TestEndings: tiles that apply the epilogue, and that read rows together, give the same bits as tiles that do not, with parts of
// sums and without.
func TestEndings(t *testing.T) {
	for _, p := range Paths() {
		if p.ending != nil {
			testEndings(t, p, F32, []int{sumDepth, 7})
		}
		if p.vnni != nil {
			testEndings(t, p, BF16, []int{sumDepth, 8})
		}
	}
}

// withoutEndings is p whose tiles apply no epilogues.
func withoutEndings(p *Path) Path {
	bare := *p
	if bare.ending = nil; p.vnni != nil {
		words := *p.vnni
		words.ending, bare.vnni = nil, &words
	}
	return bare
}

func testEndings(t *testing.T, p *Path, typ Type, chains []int) {
	for _, chain := range chains {
		with, without := *p, withoutEndings(p)
		with.chain, without.chain = chain, chain
		a, b := New(&with, 2), New(&without, 1)
		defer a.Close()
		defer b.Close()
		d, joined := newDice(9), 0
		for i := range 140 {
			c := endingConv(d, typ, i)
			_, gap := a.gapped(c, c.extent())
			joined += flag(gap > 0)
			run := func(m *Machine) Buf {
				c.Y = d.buf(typ, c.Y.Len())
				m.Conv(c)
				return c.Y
			}
			if got, want := run(a), run(b); !gobytes.Equal(got.Data, want.Data) {
				for k := range c.Y.Len() {
					if g, w := got.get(k), want.get(k); g != w {
						t.Fatalf("%s, %v, chains of %d: %v: element %d is %g, want %g", p.Name(), typ, chain, c, k, g, w)
					}
				}
			}
		}
		if joined == 0 && typ == F32 {
			t.Errorf("%s, %v: no rows were read together", p.Name(), typ)
		}
	}
}

// endingGemm is a product whose tiles may apply its epilogue.
func endingGemm(d dice, typ Type, i int) *Gemm {
	g := &Gemm{M: 1 + d.IntN(90), N: 1 + d.IntN(130), K: 1 + d.IntN(40+i%7/6*210), Batch: [2]int{1 + i%3/2, 1 + i%5/4}}
	at, n := g.Batch[0]*g.Batch[1], g.M*g.N
	g.A = Mat{Buf: d.buf(typ, at*g.M*g.K), LD: g.K, Stride: [2]int{g.Batch[1] * g.M * g.K, g.M * g.K}, T: i%4 == 1}
	g.B = Mat{Buf: d.buf(typ, at*g.K*g.N), LD: g.N, Stride: [2]int{g.Batch[1] * g.K * g.N, g.K * g.N}, T: i%4 == 2}
	if g.A.T {
		g.A.LD = g.M
	}
	if g.B.T {
		g.B.LD = g.K
	}
	g.C = Mat{Buf: zeros(typ, at*n), LD: g.N, Stride: [2]int{g.Batch[1] * n, n}}
	switch i % 5 {
	case 0:
		g.Bias, g.Act = d.buf(typ, g.N), ActRelu
	case 1:
		g.Bias, g.Residual = d.buf(typ, g.N), g.C
		g.Residual.Buf, g.Last = d.buf(typ, at*n), ActRelu
	case 2:
		g.RowBias = d.buf(typ, g.M)
	case 3:
		g.Bias, g.RowBias = d.buf(typ, g.N), d.buf(typ, g.M)
	default:
		g.Bias = d.buf(F32, g.N)
	}
	return g
}

// TestEndingsOfProducts is TestEndings for products of matrices.
func TestEndingsOfProducts(t *testing.T) {
	for _, p := range Paths() {
		if p.ending == nil {
			continue
		}
		for _, chain := range []int{sumDepth, 8} {
			bare := withoutEndings(p)
			with, without := smallBlocks(p), smallBlocks(&bare)
			with.chain, without.chain = chain, chain
			a, b := New(with, 2), New(without, 1)
			defer a.Close()
			defer b.Close()
			d := newDice(10)
			for i := range 120 {
				g := endingGemm(d, Type(i/5%2*int(BF16)), i)
				run := func(m *Machine) []byte {
					g.C.Buf = d.buf(g.C.Type, g.C.Len())
					m.Gemm(g)
					return g.C.Data
				}
				if got, want := run(a), run(b); !gobytes.Equal(got, want) {
					t.Fatalf("%s, chains of %d, case %d: %d x %d x %d differs", p.Name(), chain, i, g.M, g.N, g.K)
				}
			}
		}
	}
}

// TestColumnsOfRows: columns that are no pixels have no place in C.
func TestColumnsOfRows(t *testing.T) {
	r := colRun{n: 11, jump: 100, row: 3, gap: 1} // three rows of three pixels
	got := ""
	for j := 0; j < 2*r.n; {
		off, same, step := r.at(j, 2*r.n-j)
		got += fmt.Sprint(off, same, step, " ")
		j += step
	}
	if want := "0 3 4 3 3 4 6 3 3 100 3 4 103 3 4 106 3 3 "; got != want {
		t.Errorf("runs %q, want %q", got, want)
	}
}
