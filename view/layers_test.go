package view

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// chain is a random graph as compilers have them: most nodes read one shortly before.
func chain(n int, seed uint64) ([]box, [][2]int) {
	r := rand.New(rand.NewPCG(seed, 1))
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
	sizes := []box{nodeBox, varBox, castBox, scopeBox}
	for seed := range uint64(40) {
		boxes, edges := chain(2+int(seed)%maxItems, seed)
		for i := range boxes {
			boxes[i] = sizes[(i+int(seed))%len(sizes)]
		}
		edges = append(edges, [2]int{len(boxes) - 1, 0}, [2]int{1, 1}) // against time, and to itself
		d, err := layers(boxes, edges)
		if err != nil {
			t.Fatal(err)
		}
		checkRows(t, boxes, edges, d)
		for range 3 {
			if again, err := layers(boxes, edges); err != nil || !reflect.DeepEqual(again, d) {
				t.Fatalf("seed %d: a second layout differs: %v", seed, err)
			}
		}
	}
}

// checkRows looks at a drawing: every box has a place, none overlaps another, edges lead downwards
// and have their bends in the rows between.
func checkRows(t *testing.T, boxes []box, edges [][2]int, d placed) {
	t.Helper()
	row := map[int]int{}
	for r, items := range d.rows {
		for k, v := range items {
			if _, twice := row[v]; twice {
				t.Errorf("%d has two places", v)
			}
			row[v] = r
			if k == 0 || v >= len(boxes) || items[k-1] >= len(boxes) {
				continue
			}
			if left := items[k-1]; d.x[v]-d.x[left] < (boxes[v].w+boxes[left].w)/2+gapX-1e-6 {
				t.Errorf("row %d: boxes %d and %d overlap: %g, %g", r, left, v, d.x[left], d.x[v])
			}
		}
	}
	if len(row) != len(d.x) {
		t.Fatalf("%d of %d boxes and bends have a place", len(row), len(d.x))
	}
	for i, e := range edges {
		a, b := ends(e)
		if a == b {
			continue
		}
		if row[a] >= row[b] {
			t.Errorf("edge %v: row %d to row %d", e, row[a], row[b])
		}
		for k, bend := range d.bends[i] {
			if row[bend] != row[a]+1+k || len(d.bends[i]) != row[b]-row[a]-1 {
				t.Errorf("edge %v from row %d to %d: bend %d of %d is in row %d", e, row[a], row[b], k, len(d.bends[i]), row[bend])
			}
		}
	}
}

// Boxes without edges are in rows of their own, and a graph may have nothing but them.
func TestLayersWithoutEdges(t *testing.T) {
	boxes := slices.Repeat([]box{varBox}, 30)
	for _, edges := range [][][2]int{nil, {{3, 4}}} {
		d, err := layers(boxes, edges)
		if err != nil {
			t.Fatal(err)
		}
		checkRows(t, boxes, edges, d)
		if len(d.rows[len(d.rows)-2]) != 5 {
			t.Errorf("rows %v", d.rows)
		}
	}
	if d, err := layers(nil, nil); err != nil || len(d.rows) != 0 {
		t.Errorf("nothing: %v, %v", d, err)
	}
}

// Where each box reads all before it, a picture has few bends, and edges still point downwards.
func TestLayersOfManyEdges(t *testing.T) {
	boxes := slices.Repeat([]box{nodeBox}, maxItems)
	var edges [][2]int
	for b := range boxes {
		for a := range b {
			edges = append(edges, [2]int{a, b})
		}
	}
	d, err := layers(boxes, edges)
	if err != nil {
		t.Fatal(err)
	}
	checkRows(t, boxes, edges, d)
	if n := len(d.x) - len(boxes); n > bendsPerItem*maxItems {
		t.Errorf("%d bends", n)
	}
	if len(d.rows) != len(boxes) {
		t.Errorf("%d rows", len(d.rows))
	}
}

// Scopes of one form are laid out once.
func TestLayoutsAreKept(t *testing.T) {
	boxes, edges := chain(40, 1)
	f, other := form{boxes, edges}, form{boxes, edges[1:]}
	var l Layouts
	first, err := l.place([]form{f, other, f})
	if err != nil {
		t.Fatal(err)
	}
	second, err := l.place([]form{f})
	if err != nil {
		t.Fatal(err)
	}
	if &first[0].x[0] != &first[2].x[0] || &first[0].x[0] != &second[0].x[0] || &first[0].x[0] == &first[1].x[0] {
		t.Error("a form is laid out twice, or two forms are one")
	}
}

// A ladder needs no crossing, and the order finds none.
func TestLayersDoNotCross(t *testing.T) {
	boxes := slices.Repeat([]box{nodeBox}, 40)
	var edges [][2]int
	for i := range boxes {
		if i >= 2 {
			edges = append(edges, [2]int{i - 2, i ^ (i / 2 & 1)}) // rails that swap their numbers
		}
	}
	d, err := layers(boxes, edges)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range edges {
		for _, f := range edges[:i] {
			if e[0]/2 == f[0]/2 && (d.x[e[0]]-d.x[f[0]])*(d.x[e[1]]-d.x[f[1]]) < 0 {
				t.Errorf("edges %v and %v cross", e, f)
			}
		}
	}
}

func BenchmarkLayers(b *testing.B) {
	for _, n := range []int{10, 20, 40, 60} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			boxes, edges := chain(n, 1)
			for b.Loop() {
				if _, err := layers(boxes, edges); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
