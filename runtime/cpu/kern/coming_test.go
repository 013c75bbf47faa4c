package kern

import (
	"maps"
	"testing"
	"unsafe"
)

// TestHeadComes: tiles prefetch every cache line of what the next head reads and writes, no other, and nothing after the last
// head.
func TestHeadComes(t *testing.T) {
	for _, p := range Paths() {
		if p.fetching[1] == nil {
			continue
		}
		m := New(p, 1)
		defer m.Close()
		d, some := newDice(81), 0
		for round := range rounds(60) {
			a := &Attention{Batch: 1 + d.IntN(2), KVHeads: 1 + d.IntN(3), S: 1 + d.IntN(70), T: 1 + d.IntN(70), D: 32 * (1 + d.IntN(3)), DV: 32 * (1 + d.IntN(3))}
			a.Heads = a.KVHeads * (1 + d.IntN(4)/3)
			q, k, y, v := [2]int{a.S, a.D}, [2]int{a.T, a.D}, [2]int{a.S, a.DV}, [2]int{a.T, a.DV}
			list, sizes := []*View{&a.Q, &a.K, &a.V, &a.Y, &a.DY, &a.GradQ, &a.GradK, &a.GradV}, [][2]int{q, k, v, y, y, q, k, v}
			for i, v := range list { // rows of heads side by side, or head after head
				rows, width := sizes[i][0], sizes[i][1]
				v.Stride = [3]int{rows * a.Heads * width, width, a.Heads * width}
				if d.IntN(2) == 0 {
					v.Stride = [3]int{rows * a.Heads * width, rows * width, width}
				}
				typ := Type(d.IntN(int(numTypes)))
				v.Buf = Buf{typ, Alloc(int64(a.Batch * v.Stride[0] * typ.Size()))}
			}
			x := &attnHead{t: m.attention(a), p: p, mem: &m.worker[0].attn}
			x.t.mode = attnMode(round % 2)
			b, head := d.IntN(a.Batch+1), d.IntN(a.KVHeads)
			x.headComes(b, head)
			fetched := map[uintptr]bool{}
			var c float32
			for n := 1 + d.IntN(200); ; {
				next, ahead, last := x.fetches(n, &c)
				if next == still(&c) {
					break
				}
				for range n {
					fetched[next/cacheLine] = true
					next = min(next+uintptr(ahead), last)
				}
			}
			if b == a.Batch || a.KVHeads < a.Heads {
				if len(fetched) > 0 {
					t.Errorf("%s: %d lines although no head comes that needs them", p.Name(), len(fetched))
				}
				continue
			}
			some++
			if x.t.mode == attnForward {
				list = list[:4]
			}
			needed := map[uintptr]bool{}
			for i, v := range list {
				for r := range sizes[i][0] {
					row := v.mat(b, head, r)
					from := uintptr(unsafe.Pointer(&row.Data[0]))
					for at := range uintptr(sizes[i][1] * v.Type.Size()) {
						needed[(from+at)/cacheLine] = true
					}
				}
			}
			if !maps.Equal(fetched, needed) {
				t.Fatalf("%s: %d lines, want %d: %+v", p.Name(), len(fetched), len(needed), *a)
			}
		}
		if some == 0 {
			t.Errorf("%s: no head came", p.Name())
		}
	}
}
