package view

import (
	"cmp"
	"math"
	"slices"
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

// distances in pixels; assets/layout.js reads them from the page
const (
	gapX      = 18.0
	gapY      = 34.0
	bendWidth = 8.0
	maxBends  = 40 // an edge over more rows is drawn without bends
	sweeps    = 6
)

// layers places boxes so that edges point downwards. It follows Sugiyama, Tagawa and Toda (1981):
// ranks are longest paths, the order within a row follows barycenters, and centers come from
// isotonic regression towards the neighbors. Boxes are numbered in topological order. An edge to a
// lower number counts as reversed, so there are no cycles.
func layers(boxes []box, edges [][2]int) placed {
	d := &drawing{boxes: slices.Clone(boxes)}
	d.rank = ranks(len(boxes), edges)
	d.bend(edges)
	d.order()
	d.centre()
	return placed{d.rows, d.x, d.bends}
}

// drawing is the state of the layout.
type drawing struct {
	boxes    []box // including bends
	rank     []int
	up, down [][]int // neighbors in the row above and below
	rows     [][]int
	at       []float64 // index of an item in its row
	x        []float64
	bends    [][]int
}

// ends returns the upper and the lower end of an edge.
func ends(e [2]int) (int, int) { return min(e[0], e[1]), max(e[0], e[1]) }

// ranks assigns a row to every box: the one below the lowest box with an edge to it. A box without
// incoming edges is placed directly above its first reader. Boxes without edges are placed in rows
// below the others.
func ranks(n int, edges [][2]int) []int {
	rank, below := make([]int, n), make([][]int, n)
	pointed := make([]bool, n)
	for _, e := range edges {
		if a, b := ends(e); a != b {
			below[a] = append(below[a], b)
			pointed[b] = true
		}
	}
	for a := range n { // indices are a topological order
		for _, b := range below[a] {
			rank[b] = max(rank[b], rank[a]+1)
		}
	}
	for a := range n {
		if pointed[a] || len(below[a]) == 0 {
			continue
		}
		first := math.MaxInt
		for _, b := range below[a] {
			first = min(first, rank[b])
		}
		rank[a] = first - 1
	}
	loners(rank, below, pointed)
	return rank
}

func loners(rank []int, below [][]int, pointed []bool) {
	var alone []int
	last := -1
	for a := range rank {
		if !pointed[a] && len(below[a]) == 0 {
			alone = append(alone, a)
		} else {
			last = max(last, rank[a])
		}
	}
	line := max(4, int(math.Sqrt(float64(len(alone)))))
	for i, a := range alone {
		rank[a] = last + 1 + i/line
	}
}

// bend inserts an item in each row that a long edge passes through. Edges with the same upper end
// share these items.
func (d *drawing) bend(edges [][2]int) {
	n := len(d.boxes)
	d.up, d.down, d.bends = make([][]int, n), make([][]int, n), make([][]int, len(edges))
	chain := map[int][]int{} // by upper end
	for i, e := range edges {
		a, b := ends(e)
		span := d.rank[b] - d.rank[a]
		if a == b || span > maxBends {
			continue
		}
		c := chain[a]
		for len(c) < span-1 {
			above := a
			if len(c) > 0 {
				above = c[len(c)-1]
			}
			k := len(d.boxes)
			d.boxes = append(d.boxes, box{bendWidth, 0})
			d.rank = append(d.rank, d.rank[a]+len(c)+1)
			d.up, d.down = append(d.up, nil), append(d.down, nil)
			d.join(above, k)
			c = append(c, k)
		}
		chain[a] = c
		last := a
		if span > 1 {
			last = c[span-2]
			d.bends[i] = c[: span-1 : span-1]
		}
		d.join(last, b)
	}
}

func (d *drawing) join(above, below int) {
	d.down[above] = append(d.down[above], below)
	d.up[below] = append(d.up[below], above)
}

// order sorts each row by the barycenters of its neighbors, alternating downwards and upwards, and
// keeps the order with the fewest crossings.
func (d *drawing) order() {
	d.at = make([]float64, len(d.boxes))
	for i, r := range d.rank {
		for len(d.rows) <= r {
			d.rows = append(d.rows, nil)
		}
		d.at[i] = float64(len(d.rows[r]))
		d.rows[r] = append(d.rows[r], i)
	}
	best, fewest := d.copyRows(), d.crossings()
	for s := 0; s < sweeps && fewest > 0; s++ {
		for i := range d.rows {
			if s%2 == 0 {
				d.sortRow(i, d.up)
			} else {
				d.sortRow(len(d.rows)-1-i, d.down)
			}
		}
		if n := d.crossings(); n < fewest {
			best, fewest = d.copyRows(), n
		}
	}
	d.rows = best
}

func (d *drawing) copyRows() [][]int {
	out := make([][]int, len(d.rows))
	for i, r := range d.rows {
		out[i] = slices.Clone(r)
	}
	return out
}

func (d *drawing) sortRow(i int, neighbours [][]int) {
	row := d.rows[i]
	centre := make(map[int]float64, len(row))
	for _, v := range row {
		centre[v] = d.at[v]
		if len(neighbours[v]) > 0 {
			sum := 0.0
			for _, u := range neighbours[v] {
				sum += d.at[u]
			}
			centre[v] = sum / float64(len(neighbours[v]))
		}
	}
	slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(centre[a], centre[b]) })
	for k, v := range row {
		d.at[v] = float64(k)
	}
}

// crossings counts the pairs of edges that cross between two rows, with a Fenwick tree (Barth,
// Jünger and Mutzel 2002).
func (d *drawing) crossings() int {
	total := 0
	for i := 0; i+1 < len(d.rows); i++ {
		tree, seen := make([]int, len(d.rows[i+1])+1), 0
		for _, v := range d.rows[i] {
			to := make([]int, 0, len(d.down[v]))
			for _, u := range d.down[v] {
				to = append(to, int(d.at[u]))
			}
			for _, p := range to {
				left := 0
				for k := p + 1; k > 0; k -= k & -k {
					left += tree[k]
				}
				total += seen - left
			}
			for _, p := range to {
				seen++
				for k := p + 1; k < len(tree); k += k & -k {
					tree[k]++
				}
			}
		}
	}
	return total
}

// centre computes x. It moves each row in turn as close to the means of its neighbors as the widths
// allow.
func (d *drawing) centre() {
	d.x = make([]float64, len(d.boxes))
	for _, row := range d.rows {
		d.spread(row, func(int) float64 { return 0 })
	}
	for s := range sweeps {
		for i := range d.rows {
			row, near := d.rows[i], d.up
			if s%2 == 1 {
				row, near = d.rows[len(d.rows)-1-i], d.down
			}
			d.spread(row, func(v int) float64 {
				if len(near[v]) == 0 {
					return d.x[v]
				}
				sum := 0.0
				for _, u := range near[v] {
					sum += d.x[u]
				}
				return sum / float64(len(near[v]))
			})
		}
	}
	left := math.Inf(1)
	for v, b := range d.boxes {
		left = min(left, d.x[v]-b.w/2)
	}
	for v := range d.x {
		d.x[v] -= left
	}
}

// spread places the centers of a row. It minimizes the sum of squared distances to the wanted
// positions with minimum gaps, by pooling adjacent violators.
func (d *drawing) spread(row []int, want func(v int) float64) {
	type block struct {
		sum   float64
		count int
	}
	var blocks []block
	offset := make([]float64, len(row))
	for k, v := range row {
		if k > 0 {
			offset[k] = offset[k-1] + (d.boxes[row[k-1]].w+d.boxes[v].w)/2 + gapX
		}
		blocks = append(blocks, block{want(v) - offset[k], 1})
		for n := len(blocks); n > 1; n = len(blocks) {
			a, b := blocks[n-2], blocks[n-1]
			if a.sum/float64(a.count) <= b.sum/float64(b.count) {
				break
			}
			blocks = append(blocks[:n-2], block{a.sum + b.sum, a.count + b.count})
		}
	}
	k := 0
	for _, b := range blocks {
		for range b.count {
			d.x[row[k]] = b.sum/float64(b.count) + offset[k]
			k++
		}
	}
}
