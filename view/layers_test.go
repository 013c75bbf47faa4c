package view

import (
	"math/rand/v2"
	"testing"
)

// chain is a random graph as compilers have them: most nodes read one shortly before.
func chain(n int) ([]box, [][2]int) {
	r := rand.New(rand.NewPCG(1, 1))
	boxes := make([]box, n)
	var edges [][2]int
	for i := range n {
		boxes[i] = nodeBox
		for k := range 2 {
			if i > 0 && (k == 0 || r.IntN(2) == 0) {
				edges = append(edges, [2]int{max(0, i-1-int(r.ExpFloat64()*8)), i})
			}
		}
	}
	return boxes, edges
}

// Edges point downwards and boxes of a row do not overlap.
func TestLayers(t *testing.T) {
	boxes, edges := chain(300)
	edges = append(edges, [2]int{200, 10}, [2]int{5, 5}) // against time, and to itself
	d := layers(boxes, edges)
	row := map[int]int{}
	for r, items := range d.rows {
		for k, v := range items {
			row[v] = r
			if k == 0 || v >= len(boxes) || items[k-1] >= len(boxes) {
				continue
			}
			if left := items[k-1]; d.x[v]-d.x[left] < nodeBox.w+gapX-1e-6 {
				t.Errorf("row %d: boxes %d and %d overlap: %g, %g", r, left, v, d.x[left], d.x[v])
			}
		}
	}
	if len(row) < len(boxes) {
		t.Fatalf("%d of %d boxes have a place", len(row), len(boxes))
	}
	for i, e := range edges {
		a, b := ends(e)
		if a == b {
			continue
		}
		if row[a] >= row[b] {
			t.Errorf("edge %v: row %d to row %d", e, row[a], row[b])
		}
		if want := row[b] - row[a] - 1; want < maxBends && len(d.bends[i]) != want {
			t.Errorf("edge %v passes %d rows and has %d bends", e, want, len(d.bends[i]))
		}
	}
}

// A ladder needs no crossing, and the order finds none.
func TestLayersDoNotCross(t *testing.T) {
	boxes := make([]box, 40)
	var edges [][2]int
	for i := range boxes {
		boxes[i] = nodeBox
		if i >= 2 {
			edges = append(edges, [2]int{i - 2, i ^ (i / 2 & 1)}) // rails that swap their numbers
		}
	}
	d := &drawing{boxes: boxes}
	d.rank = ranks(len(boxes), edges)
	d.bend(edges)
	d.order()
	if n := d.crossings(); n != 0 {
		t.Errorf("%d crossings", n)
	}
}

func BenchmarkLayers(b *testing.B) {
	boxes, edges := chain(10_000)
	for b.Loop() {
		layers(boxes, edges)
	}
}
