package kern

import (
	"fmt"
	"math"
	"testing"

	"ampc/internal/fp"
)

type gemmCase struct {
	m, n, k, outer, inner int
	ta, tb                bool
	a, b, c               Type
	tf32                  bool
	pad                   int // extra columns between rows
}

func (g gemmCase) String() string {
	return fmt.Sprintf("%dx%dx%d batch %dx%d ta=%v tb=%v %v*%v=%v tf32=%v pad %d", g.m, g.n, g.k, g.outer, g.inner, g.ta, g.tb, g.a, g.b, g.c, g.tf32, g.pad)
}

// operand is a random rows x cols matrix for every batch item, stored transposed if t.
func (g gemmCase) operand(d dice, typ Type, rows, cols int, t bool) Mat {
	if t {
		rows, cols = cols, rows
	}
	ld := cols + g.pad
	return Mat{Buf: d.buf(typ, g.outer*g.inner*rows*ld), LD: ld, Stride: [2]int{g.inner * rows * ld, rows * ld}, T: t}
}

func (m *Mat) elem(item, inner, i, j int) float64 {
	return float64(m.get(m.number(item, inner, i, j)))
}

// number is where the element stands in the buffer.
func (m *Mat) number(item, inner, i, j int) int {
	if m.T {
		i, j = j, i
	}
	return m.item(item, inner) + i*m.LD + j
}

// wide are all elements of the buffer.
func (b Buf) wide() []float64 {
	list := make([]float64, b.Len())
	for i := range list {
		list[i] = float64(b.get(i))
	}
	return list
}

// checkGemm computes g and holds some of its elements against float64.
func checkGemm(t *testing.T, m *Machine, d dice, gc gemmCase, epi func(g *Gemm)) Gemm {
	t.Helper()
	g := Gemm{M: gc.m, N: gc.n, K: gc.k, Batch: [2]int{gc.outer, gc.inner}, TF32: gc.tf32,
		A: gc.operand(d, gc.a, gc.m, gc.k, gc.ta), B: gc.operand(d, gc.b, gc.k, gc.n, gc.tb),
		C: gc.operand(d, gc.c, gc.m, gc.n, false)}
	if epi != nil {
		epi(&g)
	}
	old := append([]byte(nil), g.C.Data...)
	before := g.C
	before.Data = old
	m.Gemm(&g)
	ref := refGemm(&g, &before, gc)
	name, stride := gc.String(), max(1, gc.outer*gc.inner*gc.m*gc.n/3000)
	for e := d.IntN(stride); e < gc.outer*gc.inner*gc.m*gc.n; e += stride {
		item, i, j := e/(gc.m*gc.n), e/gc.n%gc.m, e%gc.n
		want, bound := ref(item, i, j)
		if !near(t, name, gc.c, e, float32(g.C.elem(item, gc.inner, i, j)), want, bound) {
			break
		}
	}
	for item := range gc.outer * gc.inner { // what lies between rows must not change
		for i := range gc.m {
			for j := gc.n; j < g.C.LD; j++ {
				if o := g.C.item(item, gc.inner) + i*g.C.LD + j; g.C.get(o) != before.get(o) {
					t.Fatalf("%v: padding at row %d column %d overwritten", gc, i, j)
				}
			}
		}
	}
	return g
}

// refGemm gives elements of g, whose C was old, by the definition.
func refGemm(g *Gemm, old *Mat, gc gemmCase) func(item, i, j int) (want, bound float64) {
	a, b := g.A.wide(), g.B.wide()
	if gc.tf32 {
		for _, list := range [][]float64{a, b} {
			for i, x := range list {
				list[i] = float64(fp.TF32(float32(x)))
			}
		}
	}
	return func(item, i, j int) (want, bound float64) {
		x, y := g.A.number(item, gc.inner, i, 0), g.B.number(item, gc.inner, 0, j)
		nextX, nextY := g.A.number(item, gc.inner, i, 1)-x, g.B.number(item, gc.inner, 1, j)-y
		for range gc.k {
			p := a[x] * b[y]
			want, bound = want+p, bound+math.Abs(p)
			x, y = x+nextX, y+nextY
		}
		return g.ended(old, gc, item, i, j, want, bound)
	}
}

// ended is element i, j after what follows the sum want.
func (g *Gemm) ended(old *Mat, gc gemmCase, item, i, j int, want, bound float64) (float64, float64) {
	bound *= float64(gc.k) * 0x1p-23
	s := float64(g.Scale)
	if s == 0 {
		s = 1
	}
	want, bound = want*s, bound*math.Abs(s)
	if !g.Bias.absent() {
		want += float64(g.Bias.get(j))
	}
	if !g.RowBias.absent() {
		want += float64(g.RowBias.get(i))
	}
	if g.Act != NoAct {
		want = float64(unaryRows[actOps[g.Act]].f(float32(want)))
		bound = 1.2*bound + 4*0x1p-24*math.Abs(want)
	}
	if !g.Residual.absent() {
		want += g.Residual.elem(item, gc.inner, i, j)
		if g.Last == ActRelu {
			want = max(0, want)
		}
	}
	if g.Accumulate {
		want += old.elem(item, gc.inner, i, j)
	}
	if g.Scale != 0 || !g.Bias.absent() || g.Accumulate || !g.Residual.absent() {
		bound += 8 * 0x1p-24 * (math.Abs(want) + 4)
	}
	return want, bound
}

func TestGemm(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(2)
		sizes := []int{1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 48, 65, 100}
		for range rounds(150) {
			gc := gemmCase{m: sizes[d.IntN(len(sizes))], n: sizes[d.IntN(len(sizes))], k: sizes[d.IntN(len(sizes))],
				outer: 1 + d.IntN(3)/2, inner: 1 + d.IntN(3)/2, ta: d.IntN(2) == 0, tb: d.IntN(2) == 0,
				a: d.typ(), b: d.typ(), c: d.typ(), tf32: d.IntN(5) == 0, pad: d.IntN(2) * d.IntN(5)}
			checkGemm(t, m, d, gc, nil)
			if t.Failed() {
				return
			}
		}
	})
}

func TestGemmDeep(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(3)
		for _, gc := range []gemmCase{
			{m: 40, n: 70, k: 2500, outer: 1, inner: 1, c: F16},
			{m: 40, n: 70, k: 2500, outer: 1, inner: 1, tb: true, a: BF16, b: F16},
			{m: 200, n: 300, k: 64, outer: 1, inner: 1, ta: true, c: BF16},
			{m: 1, n: 300, k: 700, outer: 1, inner: 1, b: F16},
			{m: 2, n: 130, k: 1100, outer: 1, inner: 1, tb: true},
			{m: 11, n: 130, k: 1100, outer: 1, inner: 1, b: BF16, c: F16},
			{m: 16, n: 1234, k: 515, outer: 1, inner: 2, ta: true, b: F16, pad: 3},
			{m: 7, n: 1111, k: 133, outer: 1, inner: 2, tb: true, b: BF16, pad: 3},
			{m: 3, n: 66, k: 17, outer: 2, inner: 1, tb: true, b: F16},
			{m: 1030, n: 34, k: 40, outer: 1, inner: 1, ta: true}, // depths of A are depthsApart
			{m: 2050, n: 34, k: 41, outer: 1, inner: 1, ta: true, a: BF16, b: BF16},
		} {
			checkGemm(t, m, d, gc, nil)
		}
	})
}

func TestGemmEpilogue(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(4)
		for i := range 40 {
			gc := gemmCase{m: 1 + d.IntN(40), n: 1 + d.IntN(80), k: d.IntN(60), outer: 1, inner: 1 + d.IntN(2), tb: i%2 == 0,
				a: d.typ(), b: d.typ(), c: d.typ(), pad: d.IntN(3)}
			checkGemm(t, m, d, gc, func(g *Gemm) { g.Epilogue = gc.epilogue(d) })
			if t.Failed() {
				return
			}
		}
	})
}

// epilogue is a random one for gc.
func (g gemmCase) epilogue(d dice) (e Epilogue) {
	if d.IntN(2) == 0 {
		e.Bias = d.buf(d.typ(), g.n)
	}
	if d.IntN(3) == 0 {
		e.RowBias = d.buf(d.typ(), g.m)
	}
	if d.IntN(3) == 0 {
		e.Scale = 0.37
	}
	if d.IntN(2) == 0 {
		e.Residual = g.operand(d, d.typ(), g.m, g.n, false)
		e.Last = Act(d.IntN(2))
	}
	e.Accumulate = d.IntN(3) == 0
	e.Act = Act(d.IntN(len(actOps)))
	return e
}

// blocksOfChain is p with packed blocks of one chain and three panels: more of them, and the same sums.
func blocksOfChain(p *Path) *Path {
	q := *p
	q.kc, q.mc = p.chain, 3*p.chain*p.mr
	return &q
}

// TestGemmPathsAgree: blocking, workers and vector width leave every bit of a product alone.
func TestGemmPathsAgree(t *testing.T) {
	for _, gc := range []gemmCase{
		{m: 70, n: 90, k: 1300, outer: 1, inner: 1, a: F16, b: BF16},
		{m: 70, n: 96, k: 2600, outer: 1, inner: 1},
		{m: 3, n: 200, k: 600, outer: 1, inner: 1, b: F16},
		{m: 3, n: 200, k: 1700, outer: 1, inner: 1},
		{m: 4, n: 200, k: 9000, outer: 1, inner: 1, tb: true},
	} {
		var first []byte
		var from string
		for _, p := range Paths() {
			if p.lanes == 1 {
				continue // plain Go does not fuse
			}
			for _, workers := range []int{1, 2, 5} {
				for _, p := range []*Path{p, blocksOfChain(p)} {
					m := New(p, workers)
					g := checkGemm(t, m, newDice(5), gc, nil)
					m.Close()
					if first == nil {
						first, from = g.C.Data, p.Name()
					} else if string(first) != string(g.C.Data) {
						t.Errorf("%v: %s with %d workers and blocks of %d differs from %s", gc, p.Name(), workers, p.kc, from)
					}
				}
			}
		}
	}
}

// TestProductBits: fused chains over ascending k, added in order, give the same bits on every vector path of every processor.
func TestProductBits(t *testing.T) {
	const m, n, k = 37, 45, 700
	d := newDice(26)
	fill := func(count int) Buf {
		b := zeros(F32, count)
		for i := range count {
			b.set(i, math.Float32frombits(0x3f800000|d.Uint32()>>9)-1.5)
		}
		return b
	}
	a, b := fill(m*k), fill(k*n)
	want := zeros(F32, m*n)
	for i := range m {
		for j := range n {
			s, chain := float32(0), float32(0)
			for x := range k {
				chain = fma32(a.get(i*k+x), b.get(x*n+j), chain)
				if (x+1)%sumDepth == 0 || x == k-1 {
					s, chain = s+chain, 0
				}
			}
			want.set(i*n+j, s)
		}
	}
	for _, p := range Paths() {
		if p.lanes == 1 {
			continue
		}
		mach := New(p, 1)
		g := &Gemm{M: m, N: n, K: k, A: Mat{Buf: a, LD: k}, B: Mat{Buf: b, LD: n}, C: Mat{Buf: zeros(F32, m*n), LD: n}}
		mach.Gemm(g)
		mach.Close()
		if string(g.C.Data) != string(want.Data) {
			t.Errorf("%s: not the fused chains", p.Name())
		}
	}
}
