package kern

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// storedWidths are widths of heads, multiples of vectors and panels and others.
var storedWidths = []int{1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 80, 96, 97, 128}

// spaced is a view of a buffer from element first on, with gaps between rows and between items, and the whole buffer. Each
// byte of it is 0x5a.
func spaced(t Type, batch, heads, rows, width, first, gap int) (v View, whole Buf) {
	row := heads*width + gap
	whole = zeros(t, first+batch*(rows*row+gap)+gap)
	for i := range whole.Data {
		whole.Data[i] = 0x5a
	}
	return View{whole.From(first), [3]int{rows*row + gap, width, row}}, whole
}

// awkward are numbers, some of which the 16-bit types round to even, overflow or underflow.
func awkward(d dice, n int) []float32 {
	list := []float32{0, float32(math.Copysign(0, -1)), 1 + 0x1p-8, 1 + 0x1p-9, 1 + 3*0x1p-9, 1 + 0x1p-11, 1 + 3*0x1p-11, 65504, 65519, 65520, -70000, 0x1p-24, 0x1p-25, 0x1.8p-25, -0x1p-15,
		0x1p-130, math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1))}
	x := Buf{F32, Alloc(int64(4*n + 256))}.f32()[:n] // a kernel may read a vector more
	for i := range x {
		if x[i] = float32(d.NormFloat64()); d.IntN(3) == 0 {
			x[i] = list[d.IntN(len(list))]
		}
	}
	return x
}

// TestAttentionStores: results are stored in the bytes that a loop over elements writes, whatever their type, the width of a
// head, the number of rows and the place of each, and nothing beside them is written.
func TestAttentionStores(t *testing.T) {
	for _, p := range Paths() {
		m := New(p, 1)
		defer m.Close()
		d, round := newDice(31), 0
		for _, width := range storedWidths {
			for _, rows := range []int{1, 2, 3, p.tw - 1, p.tw + 1, p.queries - 1, p.queries} {
				for _, across := range []bool{true, false} {
					typ, heads, first, gap := Type(round%int(numTypes)), 1+d.IntN(3), d.IntN(4), d.IntN(6)
					round++
					rows := max(rows, 1)
					got, all := spaced(typ, 2, heads, rows+3, width, first, gap)
					want, whole := spaced(typ, 2, heads, rows+3, width, first, gap)
					x := &attnHead{t: m.attention(&Attention{Heads: heads}), w: m.worker[0], p: p, mem: &m.worker[0].attn, b: 1, head: heads - 1}
					src := awkward(d, max(rows, p.queries)*roundUp(width, p.nr))
					for r := range rows {
						for c := range width {
							at := c/p.nr*p.nr*rows + r*p.nr + c%p.nr
							if across {
								at = c*p.queries + r
							}
							want.set(x.b*want.Stride[0]+x.head*want.Stride[1]+(r+2)*want.Stride[2]+c, src[at])
						}
					}
					if across {
						x.putAcross(&got, 2, rows, width, src)
					} else {
						x.putColumns(&got, x.head, 2, rows, width, src)
					}
					if !slices.Equal(all.Data, whole.Data) {
						t.Errorf("%s: %d rows of %d of %v, %d heads, from element %d, %d apart, across %t: other bytes than a loop writes", p.Name(), rows, width, typ, heads, first, gap, across)
					}
				}
			}
		}
	}
}

// attentionOf is an attention of contiguous rows with random operands and results that are not written yet.
func attentionOf(d dice, typ Type) *Attention {
	kv := 1 + d.IntN(2)
	a := &Attention{Batch: 1 + d.IntN(2), KVHeads: kv, Heads: kv * (1 + d.IntN(2)), S: 1 + d.IntN(40), T: 1 + d.IntN(150), D: storedWidths[d.IntN(17)], DV: storedWidths[d.IntN(17)], Scale: 0.3}
	if d.IntN(4) == 0 {
		a.S = 1
	}
	a.Causal, a.Offset = d.IntN(2) == 0, a.T-a.S
	q, k := func(width int) View { return d.view(typ, a.Batch, a.Heads, a.S, width) }, func(width int) View { return d.view(typ, a.Batch, kv, a.T, width) }
	a.Q, a.K, a.V, a.Y, a.DY = q(a.D), k(a.D), k(a.DV), q(a.DV), q(a.DV)
	a.GradQ, a.GradK, a.GradV = q(a.D), k(a.D), k(a.DV)
	a.LSE = make([]float32, a.Batch*a.Heads*a.S)
	return a
}

// rowsOf are the results of a, or its operands, with the number of heads, rows and elements in each.
func (a *Attention) rowsOf(results bool) (list []*View, sizes [][3]int) {
	q, y, k, v := [3]int{a.Heads, a.S, a.D}, [3]int{a.Heads, a.S, a.DV}, [3]int{a.KVHeads, a.T, a.D}, [3]int{a.KVHeads, a.T, a.DV}
	if results {
		return []*View{&a.Y, &a.GradQ, &a.GradK, &a.GradV}, [][3]int{y, q, k, v}
	}
	return []*View{&a.Q, &a.K, &a.V, &a.DY}, [][3]int{q, k, v, y}
}

// copyRows copies the rows of all heads.
func copyRows(to, from *View, batch int, n [3]int) {
	for b := range batch {
		for h := range n[0] {
			for r := range n[1] {
				x, y := to.mat(b, h, r), from.mat(b, h, r)
				copy(x.Data[:n[2]*to.Type.Size()], y.Data)
			}
		}
	}
}

// TestAttentionAnywhere: results and gradients have the bytes of those of contiguous rows, wherever rows of whatever width and
// type are, and nothing beside them is written.
func TestAttentionAnywhere(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(32)
		for round := range rounds(24) {
			typ := Type(round % int(numTypes))
			a := attentionOf(d, typ)
			first, gap := 1+d.IntN(3), 2*(1+d.IntN(4))
			if typ != BF16 { // whether strides are even decides in which layout bf16 is multiplied
				gap += d.IntN(2)
			}
			there := *a
			there.LSE = make([]float32, len(a.LSE))
			list, sizes := there.rowsOf(false)
			for i, n := range sizes {
				old := *list[i]
				*list[i], _ = spaced(typ, a.Batch, n[0], n[1], n[2], first, gap)
				copyRows(list[i], &old, a.Batch, n)
			}
			results, sizes := there.rowsOf(true)
			var all []Buf
			for i, n := range sizes {
				var whole Buf
				*results[i], whole = spaced(typ, a.Batch, n[0], n[1], n[2], first, gap)
				all = append(all, whole)
			}
			for _, x := range []*Attention{a, &there} {
				m.Attention(x)
				m.AttentionGrad(x)
			}
			what := fmt.Sprint([...]any{a.Batch, a.Heads, a.KVHeads, a.S, a.T, a.D, a.DV, a.Causal, typ, first, gap})
			if !slices.Equal(there.LSE, a.LSE) {
				t.Fatalf("%s: other LSE", what)
			}
			contiguous, _ := a.rowsOf(true)
			for i, n := range sizes {
				want, whole := spaced(typ, a.Batch, n[0], n[1], n[2], first, gap)
				copyRows(&want, contiguous[i], a.Batch, n)
				if !slices.Equal(all[i].Data, whole.Data) {
					t.Fatalf("%s: result %d has other bytes than contiguous rows, or bytes beside it were written", what, i)
				}
			}
		}
	})
}
