package kern

// smallMRows is the largest number of rows of A for which B is not packed: packing it would cost more than the product.
const smallMRows = 16

// way is the algorithm of a product.
type way uint8

const (
	packed   way = iota // both operands in panels
	gemvRows            // B row-major, read in groups of 8 rows
	turnedB             // B column-major, squares of it are transposed in registers
)

// choose selects the way for t by its shape alone, so that the way does not depend on the number of
// workers. All ways compute the same bits. Tile registers multiply few rows as fast as they read panels. Panels that are
// packed once are read faster than a transposed matrix, unless widening has made them larger; see readRows.
func (t *gemmTask) choose(m *Machine, g *Gemm) way {
	switch {
	case m.gemv[0][0] == nil || g.TF32 || g.M > smallMRows || g.N < 64 || g.K < 2*gemvDepth:
		return packed
	case m.amx != nil && m.usesVNNI(g.A.Type, g.B.Type):
		return packed
	case !g.B.T:
		return gemvRows
	case g.B.Fixed.Weights != nil && (g.B.Type == F32 || m.usesVNNI(g.A.Type, g.B.Type)):
		return packed
	case g.M <= smallMRows/2:
		return turnedB
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
	item, c := i/strips, i%strips
	if t.m.dry() {
		c = strips - 1 // it requests the most
	}
	j0 := bound(c, strips, s.units) * stripUnit
	n := bound(c+1, strips, s.units)*stripUnit - j0
	if c == strips-1 {
		n = t.cols - j0
	}
	whole := n
	if s.way == gemvRows {
		whole = n / t.p.lanes * t.p.lanes
	}
	if whole > 0 && !s.columns(w, item, j0, whole) {
		whole = 0
	}
	if whole < n {
		t.strip(w, item, 0, t.panels, j0+whole, j0+n)
	}
}

// columns computes n columns from j0, a whole number of vectors of a B that is not transposed. It returns false, and stores
// nothing, if only tiles compute them: see vnniKernels.
func (s *smallMTask) columns(w *worker, item, j0, n int) bool {
	x, subnormal := s.packRows(w, item)
	if subnormal != 0 {
		return false
	}
	if s.way == turnedB {
		return s.turnedColumns(w, x, item, j0, n)
	}
	return s.gemvColumns(w, x, item, j0, n)
}

// packRows packs the rows of an item, group after group, and says whether some have subnormal elements that matter.
func (s *smallMTask) packRows(w *worker, item int) (x []float32, subnormal uint64) {
	t, a := s.g, &s.g.mats[0].m
	deep := t.packedDepth(t.depth)
	x = w.a.get(t.rows * deep)
	for r := 0; r < t.rows; {
		h := s.group(t.rows - r)
		if h == 1 && !a.T && !t.vnni { // one row is already packed
			t.p.Load(x[r*deep:(r+1)*deep], a.From(a.item(item, t.out.inner)+r*a.LD))
		} else {
			subnormal |= t.pack(t.a, w, x[r*deep:], h, item, r, h, 0, t.depth)
		}
		r += h
	}
	return x, subnormal
}

// gemvColumns is columns for a B that is not transposed.
func (s *smallMTask) gemvColumns(w *worker, x []float32, item, j0, n int) bool {
	t, b := s.g, &s.g.mats[1].m
	ld := n + 16 // rows of sums a page apart would share a set of the cache
	y := w.c.get(t.rows * ld)
	clear(y)
	base := b.item(item, t.out.inner) + j0
	for k := 0; k < t.depth; k += t.p.chain {
		to := y
		if k > 0 {
			to = w.b.get(t.rows * ld)
			clear(to)
		}
		if end := min(k+t.p.chain, t.depth); t.vnni {
			if s.wordsPart(w, base, n, k, end, x, to, ld) != 0 {
				return false
			}
		} else {
			s.gemvPart(w, base, n, k, end, x, to, ld)
		}
		if k > 0 {
			t.p.Binary(Add, y, y, to)
		}
	}
	t.storeRows(w, y, ld, item, j0, n)
	return true
}

// gemvPart adds the products of depths [k,end) to rows of n columns of y, ld apart.
func (s *smallMTask) gemvPart(w *worker, base, n, k, end int, x, y []float32, ld int) {
	t, b := s.g, &s.g.mats[1].m
	for ; k+gemvDepth <= end; k += gemvDepth {
		for r := 0; r < t.rows; {
			h := s.group(t.rows - r)
			t.p.gemv[b.Type][log2(h)](n/t.p.lanes, &y[r*ld], ld, &x[r*t.depth+k*h], b.at(base+k*b.LD), b.LD)
			r += h
		}
	}
	for ; k < end; k++ {
		row := w.row[2].get(n)
		t.p.Load(row, b.From(base+k*b.LD))
		for r := range t.rows {
			h0 := s.groupStart(t.rows, r)
			h := s.group(t.rows - h0)
			t.p.axpy(n, &y[r*ld], &row[0], &y[r*ld], x[h0*t.depth+k*h+r-h0])
		}
	}
}

// wordsPart is gemvPart in the VNNI layout; k is even. Its result is not 0 if elements of B are subnormal.
func (s *smallMTask) wordsPart(w *worker, base, n, k, end int, x, y []float32, ld int) (subnormal uint64) {
	t, b := s.g, &s.g.mats[1].m
	deep := t.packedDepth(t.depth)
	for k < end {
		kernels, depth, from, ldb := t.p.vnni.gemv, gemvDepth, b.at(base+k*b.LD), b.LD
		if k+depth > end {
			kernels, depth = t.p.vnni.gemvWord, 2
		}
		if k+1 == end { // the last row, and zeros
			both := Floats(w.row[2].get(n)).Data
			copy(both, b.From(base + k*b.LD).Data[:2*n])
			clear(both[2*n : 4*n])
			from, ldb = &both[0], n
		}
		for r := 0; r < t.rows; {
			h := s.group(t.rows - r)
			subnormal |= kernels[log2(h)](n/t.p.lanes, &y[r*ld], ld, &x[r*deep+k/2*h], from, ldb)
			r += h
		}
		k += depth
	}
	return subnormal
}

// turnedColumns is columns for a transposed B: as many at a time as turnedFuncs compute. The last ones may be computed twice.
func (s *smallMTask) turnedColumns(w *worker, x []float32, item, j0, n int) bool {
	t, b := s.g, &s.g.mats[1].m
	wide := max(n, t.p.nr)
	first := j0 + n - wide // of another strip, if there are fewer columns than a kernel computes
	ld := wide + 16
	y, at := w.c.get(t.rows*ld), b.item(item, t.out.inner)+first*b.LD
	for j := 0; j < wide; j += t.p.nr {
		j = min(j, wide-t.p.nr)
		for k := 0; k < t.depth; k += t.p.chain {
			if s.turnedPart(x, at+j*b.LD, k, y[j:], ld) != 0 {
				return false
			}
		}
	}
	t.storeRows(w, y[wide-n:], ld, item, j0, n)
	return true
}

// turnedPart adds the products of a part of the sum, from depth k on, of the columns that begin at an element of B. Its result
// is not 0 if elements of B are subnormal, which matters in the VNNI layout.
func (s *smallMTask) turnedPart(x []float32, at, k int, y []float32, ld int) (subnormal uint64) {
	t, b := s.g, &s.g.mats[1].m
	kc, next := min(t.p.chain, t.depth-k), at+t.nextTurned(k)
	deep, from, ahead := t.packedDepth(t.depth), b.at(at+k), b.at(min(next, b.Len()-1))
	for r := 0; r < t.rows; {
		h := s.group(t.rows - r)
		if words := &x[r*deep+t.packedDepth(k)*h]; t.vnni {
			subnormal |= t.p.vnni.turned[log2(h)](kc, words, from, b.LD, &y[r*ld], ld, k, ahead)
		} else {
			t.p.turned[b.Type][log2(h)](kc, words, from, b.LD, &y[r*ld], ld, k, ahead)
		}
		r += h
	}
	return subnormal
}

// nextTurned is what is prefetched during the part of the sum from depth k on: an element of the same columns, or of the next ones.
// Each part prefetches as much as it reads. So that all is prefetched once, it is as far ahead as the last part is long, or a part
// more where that would be too late for memory.
func (t *gemmTask) nextTurned(k int) int {
	ahead := (t.depth-1)%t.p.chain + 1
	if ahead < turnedAhead && ahead < t.depth {
		ahead += t.p.chain
	}
	if k += ahead; k < t.depth {
		return k
	}
	return t.p.nr*t.mats[1].m.LD + k - t.depth
}

// turnedAhead is the least number of depths from what is read to what is prefetched.
const turnedAhead = 128

// group is the number of rows, of n remaining ones, that one call of a kernel processes: 8, 4, 2 or 1.
func (s *smallMTask) group(n int) int {
	h := 8
	if s.way == turnedB {
		h = 1 << (len(s.g.p.turned[s.g.b.typ()]) - 1)
	}
	for h > n {
		h /= 2
	}
	return h
}

// groupStart is the first row of the group of row r of n.
func (s *smallMTask) groupStart(n, r int) int {
	start := 0
	for start+s.group(n-start) <= r {
		start += s.group(n - start)
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
