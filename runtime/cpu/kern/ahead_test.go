package kern

import (
	"slices"
	"testing"
)

// twice runs f with and without forms of the operand that at holds, twice each, and wants the same bits in out. It
// returns the bytes of the forms.
func twice(t *testing.T, what string, at *Fixed, out []byte, f func()) int64 {
	t.Helper()
	clear(out)
	f()
	want := slices.Clone(out)
	at.Weights = NewWeights(nil, NewBlock)
	defer func() { at.Weights = nil }()
	for call := range 2 {
		clear(out)
		if f(); !slices.Equal(out, want) {
			t.Errorf("%s: call %d with weights packed ahead gives other bits", what, call)
		}
	}
	return at.Weights.Bytes()
}

// TestPackedAhead: a result has the same bits whether its weights were packed ahead, as A or B of a product.
func TestPackedAhead(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(91)
		for range rounds(60) {
			gc := gemmCase{m: 1 + d.IntN(90), n: 1 + d.IntN(150), k: 1 + d.IntN(200), outer: 1 + d.IntN(2), inner: 1 + d.IntN(3),
				ta: d.IntN(2) == 0, tb: d.IntN(2) == 0, a: d.typ(), b: d.typ(), c: d.typ(), tf32: d.IntN(4) == 0, pad: d.IntN(3)}
			g := Gemm{M: gc.m, N: gc.n, K: gc.k, Batch: [2]int{gc.outer, gc.inner}, TF32: gc.tf32,
				A: gc.operand(d, gc.a, gc.m, gc.k, gc.ta), B: gc.operand(d, gc.b, gc.k, gc.n, gc.tb), C: gc.operand(d, gc.c, gc.m, gc.n, false)}
			for _, side := range []*Mat{&g.A, &g.B} {
				for l := range side.Stride {
					if d.IntN(2) == 0 {
						side.Stride[l] = 0
					}
				}
				twice(t, gc.String(), &side.Fixed, g.C.Data, func() { m.Gemm(&g) })
			}
		}
	})
}

// TestConvPackedAhead is TestPackedAhead for the weights of convolutions, transformed ones as well.
func TestConvPackedAhead(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(92)
		check := func(c *Conv) {
			twice(t, c.String(), &c.Fixed, c.Y.Data, func() { m.Conv(c) })
			twice(t, c.String()+" input gradient", &c.Fixed, c.X.Data, func() { m.ConvInputGrad(c) })
		}
		for range rounds(60) {
			check(randomConv(d))
		}
		for _, last := range []bool{false, true} {
			check(benchConv(F32, 2, winoDepth, winoDepth+3, 9, 3, 1, last))
			check(benchConv(BF16, 1, winoDepth, winoDepth+3, 16, 3, 1, last)) // the tiles of all images are transformed first
			check(benchConv(BF16, 2, winoShallow, winoDepth, 32, 3, 1, last))
		}
	})
}

// TestSubnormalAhead: subnormal elements of words packed ahead, in rows or columns and in one part of the depth, change
// no bits.
func TestSubnormalAhead(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		g := benchGemm(70, 90, 3*sumDepth+7, BF16)
		for _, at := range []int{5, 5*g.K + 600, 40*g.K + g.K - 1} {
			g.A.set(at, 0x1p-130)
			g.B.set(at%g.K*g.N+at/g.K, -0x1p-131)
		}
		for _, side := range []*Mat{&g.A, &g.B} {
			twice(t, "product", &side.Fixed, g.C.Data, func() { m.Gemm(g) })
		}
		c := benchConv(BF16, 1, 130, 96, 7, 3, 2, false)
		c.W.set(20*9*c.C+7, 0x1p-130)
		twice(t, "convolution", &c.Fixed, c.Y.Data, func() { m.Conv(c) })
	})
}

// TestWeightsStale: forms follow the operand when it is written, in the same memory.
func TestWeightsStale(t *testing.T) {
	m := New(Paths()[0], 1)
	defer m.Close()
	g := benchGemm(20, 70, 30, F32)
	conv, low := benchConv(F32, 2, winoDepth, winoDepth, 9, 3, 1, false), benchConv(BF16, 1, 16, 24, 9, 3, 2, false)
	for _, f := range []*Fixed{&g.B.Fixed, &conv.Fixed, &low.Fixed} {
		f.Weights = NewWeights(nil, NewBlock)
	}
	for _, c := range []struct {
		name   string
		fixed  *Fixed
		weight Buf
		result []byte
		run    func()
	}{
		{"product", &g.B.Fixed, g.B.Buf, g.C.Data, func() { m.Gemm(g) }},
		{"convolution", &conv.Fixed, conv.W, conv.Y.Data, func() { m.Conv(conv) }},
		{"convolution of bf16", &low.Fixed, low.W, low.Y.Data, func() { m.Conv(low) }},
	} {
		c.run()
		old, size := slices.Clone(c.result), c.fixed.Weights.Bytes()
		if size == 0 {
			t.Errorf("%s: nothing was packed ahead", c.name)
		}
		c.weight.set(5, 3)
		if c.run(); !slices.Equal(c.result, old) {
			t.Errorf("%s: the weights were packed again, though they have not changed", c.name)
		}
		c.fixed.Stale()
		c.run()
		got := slices.Clone(c.result)
		if slices.Equal(got, old) {
			t.Errorf("%s: old weights were read", c.name)
		}
		if c.fixed.Weights.Bytes() != size {
			t.Errorf("%s: the forms have %d bytes, had %d", c.name, c.fixed.Weights.Bytes(), size)
		}
		c.fixed.Weights = nil
		if c.run(); !slices.Equal(got, c.result) {
			t.Errorf("%s: other bits than without packed weights", c.name)
		}
	}
}

// TestPixelsAsRows: products that turn their tiles, because there are few pixels, have the bits of those that do not, for
// any number of workers.
func TestPixelsAsRows(t *testing.T) {
	for _, p := range tested() {
		d := newDice(41)
		for i, of := range [][5]int{{1, 70, 64, 7, 3}, {1, 600, 96, 7, 1}, {2, 40, 128, 5, 3}, {1, 1100, 32, 7, 3}, {1, 64, 128, 9, 1}} {
			n, channels, rows, side, taps := of[0], of[1], of[2], of[3], of[4]
			c := Conv{N: n, C: channels, K: rows, Groups: 1 + i%2, In: [3]int{1, side, side}, Out: [3]int{1, side, side}, Kernel: [3]int{1, taps, taps},
				Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, taps / 2, taps / 2}, Direct: true}
			for _, typ := range []Type{F32, BF16} {
				c.X, c.W = d.buf(typ, n*channels*side*side), d.buf(typ, rows*channels/c.Groups*taps*taps)
				c.Bias, c.Act, c.Residual.Buf, c.Last = d.buf(F32, rows), ActRelu, d.buf(F32, n*rows*side*side), ActRelu
				var want []float32
				for _, workers := range []int{1, 4} {
					m := New(p, workers)
					for _, fixed := range []bool{false, true} {
						c := c
						if c.Y = zeros(F32, c.Residual.Len()); fixed {
							c.Fixed.Weights = NewWeights(nil, NewBlock)
						}
						if m.Conv(&c); want == nil {
							want = c.Y.f32()
						} else if !slices.Equal(c.Y.f32(), want) {
							t.Errorf("%s: %v, %v, %d workers, weights packed ahead %t: other results", p.Name(), typ, of, workers, fixed)
						}
					}
					m.Close()
				}
			}
		}
	}
}

// TestSharedOperands: a result has the same bits whether blocks pack their operands or share packed ones.
func TestSharedOperands(t *testing.T) {
	for _, p := range tested() {
		one, many := New(p, 1), New(p, 24)
		d, shared := newDice(93), 0
		for range rounds(12) {
			gc := gemmCase{m: 90 + d.IntN(90), n: 300 + d.IntN(300), k: 300 + d.IntN(600), outer: 1, inner: 1 + d.IntN(2),
				ta: d.IntN(2) == 0, tb: d.IntN(2) == 0, a: d.typ(), b: d.typ(), c: F32, tf32: d.IntN(4) == 0, pad: d.IntN(3)}
			g := Gemm{M: gc.m, N: gc.n, K: gc.k, Batch: [2]int{gc.outer, gc.inner}, TF32: gc.tf32,
				A: gc.operand(d, gc.a, gc.m, gc.k, gc.ta), B: gc.operand(d, gc.b, gc.k, gc.n, gc.tb), C: gc.operand(d, gc.c, gc.m, gc.n, false)}
			clear(g.C.Data)
			one.Gemm(&g)
			want := slices.Clone(g.C.Data)
			clear(g.C.Data)
			many.Gemm(&g)
			for _, s := range many.gemm.shares {
				shared += flag(s)
			}
			if !slices.Equal(g.C.Data, want) {
				t.Errorf("%s: %v: shared operands give other bits", p.Name(), gc.String())
			}
		}
		one.Close()
		if many.Close(); shared == 0 {
			t.Errorf("%s: no operand was shared", p.Name())
		}
	}
}

// TestDividedPacking: a result has the same bits whether a worker packs a panel of weights, or several workers some of its depths
// each, also where elements are subnormal.
func TestDividedPacking(t *testing.T) {
	for _, p := range tested() {
		forced := *p
		forced.winoLeast.depth, forced.winoLeast.rows, forced.winoLeast.tiles, forced.winoLeast.cubes = 10, 1, 1, 1
		forced.sixLeast = -1
		one, machines, d := New(&forced, 1), []*Machine{New(&forced, 3), New(&forced, 7)}, newDice(93)
		divided := [3]int{}
		same := func(what string, weights *Fixed, out []byte, run func(*Machine)) {
			want := packedBy(one, weights, out, run)
			for _, m := range machines {
				m.winoRun.weightPart, m.sixRun.packing = Division{}, Division{}
				for range rounds(3) {
					if packedBy(m, weights, out, run) != want {
						t.Errorf("%s, %s: what several workers pack gives other bits", p.Name(), what)
					}
				}
				divided[1] += flag(m.winoRun.weightPart.rows > 1)
				divided[2] += flag(m.sixRun.packing.rows > 1)
			}
		}
		for i := range rounds(24) {
			if p.lanes == 1 && i > 1 {
				break
			}
			typ := []Type{F32, BF16, F16}[i%3]
			gc := gemmCase{m: 2 + d.IntN(30), n: 2 + d.IntN(70), k: 600 + d.IntN(500), outer: 1, inner: 1 + d.IntN(2), ta: i/2%2 > 0, tb: i/4%2 > 0, a: typ, b: typ, tf32: i%5 == 0}
			g := Gemm{M: gc.m, N: gc.n, K: gc.k, Batch: [2]int{gc.outer, gc.inner}, TF32: gc.tf32,
				A: gc.operand(d, typ, gc.m, gc.k, gc.ta), B: gc.operand(d, typ, gc.k, gc.n, gc.tb), C: gc.operand(d, gc.c, gc.m, gc.n, false)}
			side := []*Mat{&g.A, &g.B}[i%2]
			side.set(d.IntN(side.Len()), 0x1p-130)
			same(gc.String(), &side.Fixed, g.C.Data, func(m *Machine) { m.Gemm(&g) })
			for _, m := range machines {
				part := m.divide(m.gemm.packingBox(i%2, gc.inner), m.pool.Workers())
				divided[0] += flag(part.rows > 1)
			}
		}
		for i := range 12 {
			if p.lanes == 1 && i > 0 {
				break
			}
			c, typ := winoConv(d, i), []Type{F32, BF16}[i/2%2]
			c.C, c.K = c.C+99, c.K+20*(i%3)
			c.X, c.W, c.Y = d.buf(typ, c.N*c.C*volume(c.In)), d.buf(typ, c.K*c.C*volume(c.Kernel)), d.buf(typ, c.N*c.K*volume(c.Out))
			same(c.String(), &c.Fixed, c.Y.Data, func(m *Machine) { m.Conv(c) })
			same(c.String()+" input gradient", &c.Fixed, c.X.Data, func(m *Machine) { m.ConvInputGrad(c) })
		}
		for i, needs := range [3]bool{p.lanes > 1, p.lanes > 1 && p.wino != nil, p.six != nil} {
			if needs && divided[i] == 0 {
				t.Errorf("%s: no panels were divided: of products, of transforms, and of those of bf16 %d", p.Name(), divided)
			}
		}
		one.Close()
		for _, m := range machines {
			m.Close()
		}
	}
}

// packedBy is what run writes to out when it packs weights ahead.
func packedBy(m *Machine, weights *Fixed, out []byte, run func(*Machine)) string {
	weights.Weights = NewWeights(nil, NewBlock)
	defer func() {
		weights.Drop()
		weights.Weights = nil
	}()
	clear(out)
	run(m)
	return string(out)
}
