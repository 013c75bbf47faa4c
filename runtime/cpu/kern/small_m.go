package kern

// smallMRows is the largest number of rows of A for which B is not packed: packing it would cost more than the product.
const smallMRows = 16

// smallMTiles is smallMRows for tile registers, which multiply up to 16 rows in the time of one.
const smallMTiles = smallMRows / 2

// way is the algorithm of a product.
type way uint8

const (
	packed   way = iota // both operands in panels
	gemvRows            // B row-major, read in groups of 8 rows
	gemvDots            // B column-major, four dot products at a time
)

// choose selects the way for t by its shape alone, so that the way does not depend on the number of
// workers or the vector width.
func (t *gemmTask) choose(m *Machine, g *Gemm) way {
	switch {
	case m.gemv[0][0] == nil || g.TF32 || g.M > smallMRows || g.N < 64 || g.K < 2*gemvDepth:
		return packed
	case m.amx != nil && m.usesVNNI(g.A.Type, g.B.Type) && g.M > smallMTiles:
		return packed
	case !g.B.T:
		return gemvRows
	case !g.A.T && g.M <= smallMRows/2:
		return gemvDots
	}
	return packed
}

const gemvDepth = 8 // rows of B that one call of a gemvFunc multiplies

// smallMTask is a product with few rows: tasks are strips of columns.
type smallMTask struct {
	g     *gemmTask
	way   way
	units int // of columns
	part  Division
}

// stripUnit is the columns that strips have a whole number of. The last one includes up to 16 columns that fill none.
const stripUnit = 32

// callCost is what a call of a gemvFunc costs beside its products: rows of B are far apart.
const callCost = 1 << 10

func (m *Machine) smallM(t *gemmTask, how way) {
	s := &m.smallMRun
	s.g, s.way = t, how
	t.plan(m)
	s.units = max(1, ceilDiv(t.cols-16, stripUnit))
	b := s.box()
	s.part = m.divide(b, m.pool.share())
	m.runDivided(&b, s.part, s)
}

// box is the work in units of columns. A strip of results stays in the first-level cache during a call of the kernel.
func (s *smallMTask) box() box {
	t := s.g
	perProduct := 2*t.rows + 2*t.b.typ().Size()
	return box{items: t.items, rows: 1, cols: s.units, mostCols: max(2, 8192/t.rows/stripUnit), cell: stripUnit * t.depth * perProduct,
		task: taskCost + packCost*t.rows*t.depth + callCost*ceilDiv(t.depth, gemvDepth)}
}

func (s *smallMTask) Run(worker, i int) {
	t := s.g
	w := t.m.worker[worker]
	strips := s.part.cols
	item, j0 := i/strips, bound(i%strips, strips, s.units)*stripUnit
	n := bound(i%strips+1, strips, s.units)*stripUnit - j0
	if i%strips == strips-1 {
		n = t.cols - j0
	}
	if s.way == gemvDots {
		s.dots(w, item, j0, n)
		return
	}
	whole := n / t.p.lanes * t.p.lanes
	if whole > 0 {
		s.gemvColumns(w, item, j0, whole)
	}
	if whole < n {
		t.strip(w, item, 0, t.panels, j0+whole, j0+n)
	}
}

// gemvColumns computes n columns from j0, a whole number of vectors.
func (s *smallMTask) gemvColumns(w *worker, item, j0, n int) {
	t, b := s.g, &s.g.mats[1].m
	ld := n + 16 // rows of sums a page apart would share a set of the cache
	y := w.c.get(t.rows * ld)
	clear(y)
	x := w.a.get(t.rows * t.depth)
	for r := 0; r < t.rows; {
		h := group(t.rows - r)
		if a := &s.g.mats[0].m; h == 1 && !a.T { // one row is already packed
			t.p.Load(x[r*t.depth:(r+1)*t.depth], a.From(a.item(item, t.out.inner)+r*a.LD))
		} else {
			t.a.pack(w, x[r*t.depth:], h, item, r, h, 0, t.depth)
		}
		r += h
	}
	base := b.item(item, t.out.inner) + j0
	for k := 0; k < t.depth; k += t.p.chain {
		to := y
		if k > 0 {
			to = w.b.get(t.rows * ld)
			clear(to)
		}
		s.gemvPart(w, base, n, k, min(k+t.p.chain, t.depth), x, to, ld)
		if k > 0 {
			t.p.Binary(Add, y, y, to)
		}
	}
	t.storeRows(w, y, ld, item, j0, n)
}

// gemvPart adds the products of depths [k,end) to rows of n columns of y, ld apart.
func (s *smallMTask) gemvPart(w *worker, base, n, k, end int, x, y []float32, ld int) {
	t, b := s.g, &s.g.mats[1].m
	for ; k+gemvDepth <= end; k += gemvDepth {
		for r := 0; r < t.rows; {
			h := group(t.rows - r)
			t.p.gemv[b.Type][log2(h)](n/t.p.lanes, &y[r*ld], ld, &x[r*t.depth+k*h], b.at(base+k*b.LD), b.LD)
			r += h
		}
	}
	for ; k < end; k++ {
		row := w.row[2].get(n)
		t.p.Load(row, b.From(base+k*b.LD))
		for r := range t.rows {
			h0 := groupStart(t.rows, r)
			h := group(t.rows - h0)
			t.p.axpy(n, &y[r*ld], &row[0], &y[r*ld], x[h0*t.depth+k*h+r-h0])
		}
	}
}

// group is the number of rows, of n remaining ones, that one call of a gemvFunc processes: 8, 4, 2 or 1.
func group(n int) int {
	h := 8
	for h > n {
		h /= 2
	}
	return h
}

// groupStart is the first row of the group of row r of n.
func groupStart(n, r int) int {
	start := 0
	for start+group(n-start) <= r {
		start += group(n - start)
	}
	return start
}

// log2 is the index of 1, 2, 4 and 8.
func log2(h int) int { return [...]int{1: 0, 2: 1, 4: 2, 8: 3}[h] }

// storeRows applies the epilogue to rows of n columns from j0, ld apart, and stores them.
func (t *gemmTask) storeRows(w *worker, y []float32, ld, item, j0, n int) {
	p := t.p
	for r := 0; r < t.rows; r += p.mr {
		h := min(p.mr, t.rows-r)
		for j := 0; j < n; j += p.nr {
			wide := min(p.nr, n-j)
			tile := w.tile.get(h * p.nr)
			p.rows[F32](h, wide, &tile[0], p.nr, bytes(&y[r*ld+j]), ld)
			t.out.applyEpilogue(w, tile, item, r, h, j0+j, wide, nil, 0)
		}
	}
}

// dots computes n columns from j0 as dot products of contiguous rows.
func (s *smallMTask) dots(w *worker, item, j0, n int) {
	t, a, b := s.g, &s.g.mats[0].m, &s.g.mats[1].m
	y := w.c.get(t.rows * n)
	depth := roundUp(t.depth, 16)
	x := w.a.get(t.rows * depth)
	for r := range t.rows {
		row := x[r*depth : (r+1)*depth]
		t.p.Load(row[:t.depth], a.From(a.item(item, t.out.inner)+r*a.LD))
		clear(row[t.depth:])
	}
	whole := t.depth &^ 15
	base := b.item(item, t.out.inner) + j0*b.LD
	tail := zeroTail{buf: Buf{b.Type, w.tailOf(b.Type)}}
	for j := 0; j < n; j += 4 {
		j := min(j, n-4) // the last group overlaps the previous one
		s.dot4(x, depth, min(whole, 16*t.p.chain), b.at(base+j*b.LD), b.LD, b.Type, y[j:], n)
		for k := 16 * t.p.chain; k < whole; k += 16 * t.p.chain {
			sum := w.row[2].get(4 * t.rows)
			s.dot4(x[k:], depth, min(whole-k, 16*t.p.chain), b.at(base+j*b.LD+k), b.LD, b.Type, sum, 4)
			addFours(y[j:], n, sum)
		}
		if whole < t.depth {
			tail.fill(b, base+j*b.LD+whole, t.depth-whole)
			sum := w.row[2].get(4 * t.rows)
			s.dot4(x[whole:], depth, 16, tail.buf.at(0), 16, b.Type, sum, 4)
			addFours(y[j:], n, sum)
		}
	}
	t.storeRows(w, y, n, item, j0, n)
}

// addFours adds sums of four columns a row to rows of y, ld apart.
func addFours(y []float32, ld int, sum []float32) {
	for i, v := range sum {
		y[i/4*ld+i%4] += v
	}
}

// dot4 computes four columns of every row, out[r*ldo+j].
func (s *smallMTask) dot4(x []float32, ldx, k int, w *byte, ldw int, typ Type, out []float32, ldo int) {
	t := s.g
	if k == 0 {
		for r := range t.rows {
			clear(out[r*ldo : r*ldo+4])
		}
		return
	}
	for r := 0; r < t.rows; {
		h := 1
		if t.rows-r > 1 && t.p.dots[typ][1] != nil {
			h = 2
		}
		t.p.dots[typ][h-1](k, &x[r*ldx], ldx, w, ldw, &out[r*ldo], ldo)
		r += h
	}
}

// zeroTail is a copy of the last few elements of four rows, 16 apart, with zeros behind them.
type zeroTail struct{ buf Buf }

func (z *zeroTail) fill(b *Mat, at, n int) {
	size := b.Type.Size()
	clear(z.buf.Data)
	for r := range 4 {
		copy(z.buf.Data[r*16*size:(r*16+n)*size], b.From(at+r*b.LD).Data)
	}
}

// tailOf is memory for four rows of 16 elements.
func (w *worker) tailOf(t Type) []byte {
	return Floats(w.row[3].get(64)).Data[:64*t.Size()]
}
