package view

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"

	"github.com/d2lang/dagro"
)

// box is an item to be placed: its width and height in pixels.
type box struct{ w, h float64 }

// placed is a layered drawing: rows from top to bottom, each with its items from left to right.
// Items from index len(boxes) on are bends, where a long edge passes through a row.
type placed struct {
	rows  [][]int
	x     []float64 // center of every item
	bends [][]int   // points of every edge, from its upper to its lower end
}

// distances in pixels; assets/layout.js has the same
const (
	gapX      = 18.0
	gapY      = 34.0
	bendWidth = 8.0
)

// bendsPerItem limits the bends of a drawing to that many per item on average, without those of
// edges that alone keep their ends in order. The time that a layout takes grows with its bends.
const bendsPerItem = 4

// layers places at most maxItems boxes so that edges point downwards. Package dagro computes the
// drawing as Dagre does: rows by network simplex (Gansner, Koutsofios, North and Vo 1993), the order
// within rows by barycenters, centers by Brandes and Köpf (2001). Boxes are numbered in topological
// order. An edge to a lower number counts as reversed, so there are no cycles. Boxes without edges
// are placed in rows below the others.
func layers(boxes []box, edges [][2]int) (placed, error) {
	kept := drawn(len(boxes), edges)
	g := dagro.NewGraph().SetGraph(dagro.Attrs{"nodesep": gapX, "edgesep": gapX + bendWidth, "ranksep": gapY})
	for _, e := range kept {
		for _, i := range e {
			if !g.HasNode(strconv.Itoa(i)) {
				g.SetNode(strconv.Itoa(i), dagro.Attrs{"width": boxes[i].w, "height": boxes[i].h})
			}
		}
		g.SetEdge(strconv.Itoa(e[0]), strconv.Itoa(e[1]), dagro.Attrs{})
	}
	if err := run(g); err != nil {
		return placed{}, err
	}
	d := &drawing{g: g, boxes: boxes, placed: placed{x: make([]float64, len(boxes)), bends: make([][]int, len(edges))}}
	d.nodes()
	d.route(edges)
	for _, row := range d.rows {
		slices.SortFunc(row, func(a, b int) int { return cmp.Or(cmp.Compare(d.x[a], d.x[b]), cmp.Compare(a, b)) })
	}
	d.isolated()
	return d.placed, nil
}

// run computes a layout. A panic of the library is an error; it does so for no boxes.
func run(g *dagro.Graph) (err error) {
	if g.NodeCount() == 0 {
		return nil
	}
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("layout of a scope: %v", fault)
		}
	}()
	return dagro.Layout(g)
}

// ends returns the upper and the lower end of an edge.
func ends(e [2]int) (int, int) { return min(e[0], e[1]), max(e[0], e[1]) }

// drawn chooses the edges that the layout knows, by their upper and lower ends. An edge whose ends
// other edges connect does not change the order of rows; such edges are chosen by length, the
// shortest first, up to the limit of bends.
func drawn(n int, edges [][2]int) [][2]int {
	depth, below := make([]int, n), make([]uint64, n)
	known := map[[2]int]bool{}
	var list [][2]int
	for _, e := range edges {
		if a, b := ends(e); a != b && !known[[2]int{a, b}] {
			known[[2]int{a, b}] = true
			list = append(list, [2]int{a, b})
			below[a] |= 1 << b
		}
	}
	reach := slices.Clone(below) // everything that paths lead to
	for a := n - 1; a >= 0; a-- {
		for rest := below[a]; rest != 0; rest &= rest - 1 {
			reach[a] |= reach[bits.TrailingZeros64(rest)]
		}
	}
	slices.SortFunc(list, byEnds)
	for _, e := range list { // by their upper ends, which are final
		depth[e[1]] = max(depth[e[1]], depth[e[0]]+1)
	}
	rows := func(e [2]int) int { return depth[e[1]] - depth[e[0]] }
	slices.SortStableFunc(list, func(e, f [2]int) int { return cmp.Compare(rows(e), rows(f)) })
	left := bendsPerItem * n
	list = slices.DeleteFunc(list, func(e [2]int) bool {
		for rest := below[e[0]] &^ (1 << e[1]); rest != 0; rest &= rest - 1 {
			if reach[bits.TrailingZeros64(rest)]&(1<<e[1]) != 0 { // another path
				left -= rows(e) - 1
				return left < 0
			}
		}
		return false
	})
	slices.SortFunc(list, byEnds)
	return list
}

// byEnds orders edges by their upper, then by their lower end.
func byEnds(e, f [2]int) int { return cmp.Or(cmp.Compare(e[0], f[0]), cmp.Compare(e[1], f[1])) }

// drawing turns a layout into rows.
type drawing struct {
	placed
	g     *dagro.Graph
	boxes []box
	y     []float64 // of rows, in order
}

// nodes fills in the rows of boxes.
func (d *drawing) nodes() {
	at := map[int]float64{}
	for i := range d.boxes {
		if label, ok := d.g.Node(strconv.Itoa(i)).(dagro.Attrs); ok {
			at[i], d.x[i] = label["y"].(float64), label["x"].(float64)
			d.y = append(d.y, at[i])
		}
	}
	slices.Sort(d.y)
	d.y = slices.CompactFunc(d.y, same)
	d.rows = make([][]int, len(d.y))
	for i := range d.boxes {
		if y, ok := at[i]; ok {
			r, _ := d.row(y)
			d.rows[r] = append(d.rows[r], i)
		}
	}
}

// same reports whether two places are in one row.
func same(a, b float64) bool { return math.Abs(a-b) < 0.5 }

// row finds the row of a place.
func (d *drawing) row(y float64) (int, bool) {
	r := slices.IndexFunc(d.y, func(other float64) bool { return same(y, other) })
	return r, r >= 0
}

// route adds a bend where an edge passes through a row between its ends. Points between two rows
// are left out.
func (d *drawing) route(edges [][2]int) {
	drawn := map[[2]int][]int{}
	for i, e := range edges {
		a, b := ends(e)
		if list, ok := drawn[[2]int{a, b}]; ok {
			d.bends[i] = list
			continue
		}
		label, ok := d.g.EdgeByArgs(strconv.Itoa(a), strconv.Itoa(b)).(dagro.Attrs)
		if !ok {
			continue // drawn without bends
		}
		points := label["points"].([]dagro.Point)
		for _, p := range points[1 : len(points)-1] { // the first and the last are on the boxes
			if r, ok := d.row(p.Y); ok {
				k := len(d.x)
				d.x, d.rows[r] = append(d.x, p.X), append(d.rows[r], k)
				d.bends[i] = append(d.bends[i], k)
			}
		}
		drawn[[2]int{a, b}] = d.bends[i]
	}
}

// isolated places boxes without edges in rows of about equal width.
func (d *drawing) isolated() {
	var alone []int
	for i := range d.boxes {
		if !d.g.HasNode(strconv.Itoa(i)) {
			alone = append(alone, i)
		}
	}
	for row := range slices.Chunk(alone, max(4, int(math.Sqrt(float64(len(alone)))))) {
		x := 0.0
		for _, i := range row {
			d.x[i] = x + d.boxes[i].w/2
			x += d.boxes[i].w + gapX
		}
		d.rows = append(d.rows, row)
	}
}
