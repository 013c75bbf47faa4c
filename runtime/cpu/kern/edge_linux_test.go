package kern

import (
	"fmt"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"unsafe"
)

// cliff is memory that ends where nothing may be read or written: a buffer from its end backwards.
type cliff struct{ mem []byte }

func newCliff(t *testing.T) *cliff {
	t.Helper()
	const size = 1 << 16 // whole pages
	mem, err := syscall.Mmap(-1, 0, 2*size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mprotect(mem[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(mem) })
	return &cliff{mem[:size]}
}

// buf is the last n elements before the edge, filled with numbers that every type holds.
func (c *cliff) buf(typ Type, n int) Buf {
	b := Buf{typ, c.mem[len(c.mem)-n*typ.Size():]}
	for i := range n {
		b.set(i, float32(i%97)-40)
	}
	return b
}

// TestEdges: kernels that move part of a vector touch nothing outside it, and do what plain Go does.
func TestEdges(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	edge, plain := newCliff(t), goPath()
	for _, p := range Paths() {
		for typ := range numTypes {
			for n := 1; n <= 2*p.vw; n++ {
				what := fmt.Sprintf("%s %v, %d elements", p.Name(), typ, n)
				packEdges(t, what, p, plain, edge.buf(typ, 3*n), n)
				storeEdges(t, what, p, plain, edge, typ, n)
			}
		}
	}
}

// packEdges packs three rows of n elements by rows, at places, and transposed.
func packEdges(t *testing.T, what string, p, plain *Path, src Buf, n int) {
	offs := make([]int, 3)
	for i := range offs {
		offs[i] = i * n * src.Type.Size()
	}
	ld := roundUp(max(n, 3), p.nr)
	pack := func(how string, rows, cols int, f func(p *Path, dst *float32)) {
		got, want := make([]float32, (n+3)*ld), make([]float32, (n+3)*ld)
		f(p, &got[0])
		f(plain, &want[0])
		for i := range rows * ld {
			if i%ld < cols && got[i] != want[i] {
				t.Fatalf("%s, %s: row %d, column %d is %g, want %g", what, how, i/ld, i%ld, got[i], want[i])
			}
		}
	}
	pack("rows", 3, n, func(p *Path, dst *float32) { p.rows[src.Type](3, n, dst, ld, src.at(0), n) })
	panelEdges(t, what, p, plain, src, n)
	pack("pick", 3, ld, func(p *Path, dst *float32) { p.pick[src.Type](3, n, dst, ld, src.at(0), &offs[0]) })
	pack("trans", n, 3, func(p *Path, dst *float32) { p.trans[src.Type](n, 3, dst, ld, src.at(0), &offs[0]) })
}

// panelEdges packs three rows of n elements in panels, as packPanels does.
func panelEdges(t *testing.T, what string, p, plain *Path, src Buf, n int) {
	if p.panels[src.Type] == nil {
		return
	}
	size, panels := src.Type.Size(), ceilDiv(n, p.mr)
	row := func(q int) int { return q * n / panels }
	places := make([]panelPlace, panels)
	most, last := 0, 0
	for q := range places {
		last = row(q+1) - row(q)
		most = max(most, last)
		places[q] = panelPlace{row(q) * size, 4 * (3*row(q) + q*aheadGap), 4 * last}
	}
	got, want := make([]float32, 3*n+panels*aheadGap+p.lanes), make([]float32, 3*n+p.lanes)
	p.panels[src.Type](3, panels, most, last, (*byte)(unsafe.Pointer(&places[0])), &got[0], src.at(0), n, rowsAhead)
	for q := range panels {
		h := row(q+1) - row(q)
		plain.rows[src.Type](3, h, &want[0], h, src.at(row(q)), n)
		at := 3*row(q) + q*aheadGap
		if !slices.Equal(got[at:at+3*h], want[:3*h]) {
			t.Fatalf("%s, panel %d of %d: %g, want %g", what, q, panels, got[at:at+3*h], want[:3*h])
		}
	}
}

// storeEdges stores three rows of a tile, and a row of n elements in every way there is.
func storeEdges(t *testing.T, what string, p, plain *Path, edge *cliff, typ Type, n int) {
	tile := make([]float32, 3*p.nr)
	for i := range tile {
		tile[i] = float32(i) * 1.001
	}
	same := func(how string, rows int, f func(b Buf)) {
		got, want := edge.buf(typ, rows*n+1), zeros(typ, rows*n+1)
		want.set(0, got.get(0))
		for i := range rows * n {
			want.set(i+1, tile[i/n*p.nr+i%n])
		}
		f(got.From(1))
		for i := range got.Len() {
			if got.get(i) != want.get(i) {
				t.Fatalf("%s, %s: element %d is %g, want %g", what, how, i-1, got.get(i), want.get(i))
			}
		}
	}
	same("put", 3, func(b Buf) { p.put[typ](3, n, b.at(0), n, &tile[0]) })
	same("narrow", 1, func(b Buf) { p.narrow[typ](n, b.at(0), &tile[0]) })
	wide := make([]float32, n)
	for _, p := range []*Path{p, plain} {
		src := edge.buf(typ, n)
		p.widen[typ](n, &wide[0], src.at(0))
		if src.get(n-1) != wide[n-1] {
			t.Fatalf("%s, widen: the last is %g, want %g", what, wide[n-1], src.get(n-1))
		}
	}
}

// TestFedOperands: products and convolutions read nothing behind an operand, which may lie where a caller has it.
func TestFedOperands(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	edges := [2]*cliff{newCliff(t), newCliff(t)}
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(31)
		for range 60 {
			typ, trans := d.typ(), d.IntN(4)
			g := &Gemm{M: 1 + d.IntN(30), N: 1 + d.IntN(34), K: 1 + d.IntN(30)}
			if d.IntN(2) == 0 { // few rows
				g.M, g.N, g.K = 1+d.IntN(9), 64+d.IntN(40), 16+d.IntN(60)
			}
			g.A, g.B = Mat{Buf: edges[0].buf(typ, g.M*g.K), LD: g.K, T: trans&1 != 0}, Mat{Buf: edges[1].buf(typ, g.K*g.N), LD: g.N, T: trans&2 != 0}
			if g.A.T {
				g.A.LD = g.M
			}
			if g.B.T {
				g.B.LD = g.K
			}
			g.C = Mat{Buf: zeros(F32, g.M*g.N), LD: g.N}
			m.Gemm(g)
			c := &Conv{N: 1, C: 1 + d.IntN(3), K: 1 + d.IntN(40), Groups: 1, In: [3]int{1, 4 + d.IntN(6), 4 + d.IntN(14)}, Kernel: [3]int{1, 3, 3},
				Stride: [3]int{1, 1, 1 + d.IntN(2)}, Dilation: [3]int{1, 1, 1}, Weights: OIX}
			c.Out = [3]int{1, c.In[1] - 2, (c.In[2]-3)/c.Stride[2] + 1}
			c.X, c.W, c.Y = edges[0].buf(typ, c.C*volume(c.In)), d.buf(typ, c.K*c.C*9), d.buf(typ, c.K*volume(c.Out))
			m.Conv(c)
			m.ConvWeightGrad(c)
			c = turnedConv(d, typ, typ, 1)
			c.X, c.W = edges[0].buf(typ, c.X.Len()), d.buf(typ, c.W.Len())
			c.Y = edges[1].buf(typ, c.Y.Len())
			m.ConvWeightGrad(c)
			c.W = edges[0].buf(typ, c.W.Len())
			c.X = d.buf(typ, c.X.Len())
			m.ConvInputGrad(c)
		}
	})
}
