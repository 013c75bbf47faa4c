package kern

import (
	"fmt"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"
)

// cliff is memory that ends where nothing may be read or written: a buffer from its end backwards.
type cliff struct{ mem []byte }

func newCliff(t *testing.T) *cliff {
	t.Helper()
	page := syscall.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mprotect(mem[page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(mem) })
	return &cliff{mem[:page]}
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
	pack("pick", 3, ld, func(p *Path, dst *float32) { p.pick[src.Type](3, n, dst, ld, src.at(0), &offs[0]) })
	pack("trans", n, 3, func(p *Path, dst *float32) { p.trans[src.Type](n, 3, dst, ld, src.at(0), &offs[0]) })
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
		at := (*byte)(unsafe.Pointer(&wide[0]))
		if bad := p.scaleCheck[typ](n, at, src.at(0), 2); bad != 0 || wide[n-1] != 2*src.get(n-1) {
			t.Fatalf("%s, scaleCheck: %d, the last is %g, want %g", what, bad, wide[n-1], 2*src.get(n-1))
		}
		src.set(n-1, -negInf)
		if p.scaleCheck[typ](n, at, src.at(0), 2) == 0 {
			t.Fatalf("%s, scaleCheck: does not see the last", what)
		}
	}
}
