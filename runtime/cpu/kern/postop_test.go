package kern

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
)

// negate stores the negatives of a result and counts how often it got each element.
type negate struct {
	m   *Machine
	out []float32
	got []atomic.Int32
}

func (f *negate) Apply(worker, at int, c []float32) {
	if worker < 0 || worker >= f.m.Pool().Workers() {
		panic("no such worker")
	}
	for i, x := range c {
		f.got[at+i].Add(1)
		f.out[at+i] = -x
	}
}

// withPostOp runs f, which computes n elements to c, alone, then with a post-op, with and without storing the result.
func withPostOp(t *testing.T, m *Machine, what string, c *Buf, n int, postOp *PostOp, f func()) {
	t.Helper()
	f()
	want, stored := slices.Clone(c.f32()), *c
	for _, keep := range []bool{true, false} {
		neg := &negate{m: m, out: make([]float32, n), got: make([]atomic.Int32, n)}
		clear(stored.Data)
		if *postOp = neg; !keep {
			c.Data = nil
		}
		f()
		*postOp, *c = nil, stored
		for i := range n {
			if got := neg.got[i].Load(); got != 1 || neg.out[i] != -want[i] || keep && c.f32()[i] != want[i] {
				t.Fatalf("%s, %s with %d workers, stored %t: element %d was given to the post-op %d times, as %g, want %g", m.Name(), what, m.Pool().Workers(), keep, i, got, -neg.out[i], want[i])
			}
		}
	}
}

// What follows a product gets every element once, whatever way the product goes.
func TestPostOpGetsEveryElementOnce(t *testing.T) {
	d := newDice(77)
	onPaths(t, func(t *testing.T, m *Machine) {
		for i, size := range [][5]int{{1, 1, 1, 1, 1}, {150, 700, 40, 1, 1}, {37, 65, 1300, 1, 1}, {9, 31, 17, 2, 3}, {3, 300, 400, 1, 1}, {5, 100, 40, 2, 1},
			{470, 300, 8, 1, 1}, {4, 7, 0, 1, 1}, {40, 600, 2100, 1, 1}} {
			typ := Type(i % 3)
			gc := gemmCase{m: size[0], n: size[1], k: size[2], outer: size[3], inner: size[4], a: typ, b: typ, c: F32, tb: i%2 == 1}
			for _, bias := range []bool{false, true} {
				g := checkGemm(t, m, d, gc, func(g *Gemm) {
					if bias {
						g.Bias, g.Act, g.Residual = d.buf(F32, gc.n), ActTanh, gc.operand(d, F16, gc.m, gc.n, false)
					}
				})
				withPostOp(t, m, gc.String(), &g.C.Buf, g.C.Len(), &g.PostOp, func() { m.Gemm(&g) })
			}
		}
	})
}

func TestPostOpAfterConv(t *testing.T) {
	d := newDice(78)
	onPaths(t, func(t *testing.T, m *Machine) {
		list := manyConvs(d)
		for i := 0; i < len(list); i += 1 + d.IntN(5) {
			c := list[i]
			what := fmt.Sprint(c)
			c.X, c.Y = d.buf(c.X.Type, c.N*c.C*volume(c.In)), zeros(F32, c.N*c.K*volume(c.Out))
			withPostOp(t, m, what, &c.Y, c.Y.Len(), &c.PostOp, func() { m.Conv(c) })
			c.X, c.Y = zeros(F32, c.N*c.C*volume(c.In)), d.buf(c.W.Type, c.N*c.K*volume(c.Out))
			withPostOp(t, m, what+" input gradient", &c.X, c.X.Len(), &c.PostOp, func() { m.ConvInputGrad(c) })
		}
	})
}
