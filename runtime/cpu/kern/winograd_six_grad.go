package kern

// The gradient of the weights of bf16 convolutions by F(3x3,4x4), with the tiles of winograd_six.go: 36 products of a tile of
// the image with a tile of 4 x 4 gradients give what they add to 3 x 3 taps. The depth of the products are the tiles, of which
// a block is transformed at a time.

// sixGrad is a weights' gradient in progress.
type sixGrad struct {
	m    *Machine
	c    *Conv
	mode sixGradMode

	x, dy          sixImage
	xpoint, ypoint int // floats between points
	chain          int // tile rows whose products are added up one by one
	block          int // tile rows of a block, at most
	row, rows      int // of the block
	group          int // tile rows that a task transforms, at most
	panels         int // of output channels
	lanes          int // panels of input channels
	part           Division

	v, y floats
	sum  []float32
}

type sixGradMode uint8

const (
	sixTilesMode sixGradMode = iota
	sixSumMode
	sixTapsMode
	sixWholeMode
)

// sixChain is the number of tiles whose products are added up one by one.
const sixChain = 128

// usesSixForWeights reports whether the gradient of the weights is computed by F(3x3,4x4).
func (m *Machine) usesSixForWeights(c *Conv) bool {
	if !m.canUseSix(c, c.X.Type, c.Y.Type) || !c.Epilogue.plain() || c.Weights == XIO {
		return false
	}
	tiles := c.N * ceilDiv(c.Out[1], sixStep) * ceilDiv(c.Out[2], sixStep)
	cost := sixPoints * (tiles*(2*roundUp(c.C, m.nr)*c.K+sixInCost*(c.C+c.K)) + sixWeightCost*c.C*c.K)
	if tiles > sixChain {
		cost += cost / 4 // of several blocks
	}
	return m.sixLeast < 0 || min(c.C, c.K) >= m.sixLeast && cost < directCost(c, c.C, c.K, c.Out)
}

func (m *Machine) sixWeightGrad(c *Conv) {
	t := &m.sixGradRun
	t.m, t.c = m, c
	tiles := [2]int{ceilDiv(c.Out[1], sixStep), ceilDiv(c.Out[2], sixStep)}
	t.x.start(m, c.dense(c.X, c.C, c.In), c.C, c.In, [2]int{c.Pad[1], c.Pad[2]}, tiles)
	t.dy.start(m, c.dense(c.Y, c.K, c.Out), c.K, c.Out, [2]int{}, tiles)
	t.dy.edge, t.dy.square = 0, m.six.four
	all := c.N * tiles[0]
	t.chain = ceilDiv(sixChain, tiles[1])
	t.block = min(all, t.chain*max(1, m.pool.Workers()/2))
	t.group = min(ceilDiv(4*sixRows, tiles[1]), sixRows, t.block)
	n := t.block * tiles[1]
	t.xpoint, t.ypoint = n*t.x.ld+m.nr, n*t.dy.ld+m.nr
	t.v.get(sixPoints * t.xpoint)
	t.y.get(sixPoints * t.ypoint)
	t.panels, t.lanes = ceilDiv(c.K, m.mr), ceilDiv(c.C, m.nr)
	apart := t.block < all || t.pointsApart(n)
	if apart {
		t.sum = m.winoMem.get(t.panels * sixPoints * t.sumPoint())
	}
	for t.row = 0; t.row < all; t.row = m.next(t.row, t.block, all) {
		t.rows = min(t.block, all-t.row)
		n := t.rows * tiles[1]
		t.run(sixTilesMode, box{items: 2, rows: t.rows, cols: 1, mostRows: t.group, cell: sixInCost * sixPoints * tiles[1] * (c.C + c.K) / 2})
		if !apart {
			t.run(sixWholeMode, t.whole(n))
			return
		}
		t.run(sixSumMode, t.sums(n))
	}
	t.run(sixTapsMode, t.results(sixPoints*sixWeightCost, 0))
}

// pointsApart reports whether it is clearly faster that a task of n tiles computes sums of one point, of which others then make taps.
func (t *sixGrad) pointsApart(n int) bool {
	time := func(b box) int {
		d := t.m.divide(b, t.m.pool.share())
		return d.Time
	}
	whole := time(t.whole(n))
	return time(t.sums(n))+time(t.results(sixPoints*sixWeightCost, 0)) < whole-whole/16
}

// whole is the work of the products of n tiles and their taps.
func (t *sixGrad) whole(n int) box {
	return t.results(sixPoints*(2*n+sixWeightCost), sixPoints*n*packCost/4)
}

// sums is the work of the products of n tiles, point by point.
func (t *sixGrad) sums(n int) box {
	b := t.results(2*n, n*packCost/4)
	b.items = sixPoints
	return b
}

// results are panels of output by panels of input channels, for so much work of an element, and as much to read what it is computed
// from. A task has one panel of output channels.
func (t *sixGrad) results(work, reading int) box {
	h := ceilDiv(t.c.K, t.panels)
	return box{items: 1, rows: t.panels, cols: t.lanes, mostRows: 1, cell: work * h * t.m.nr, row: reading * h, col: reading * t.m.nr, task: taskCost}
}

// run divides the work of a mode and runs it.
func (t *sixGrad) run(mode sixGradMode, b box) {
	t.mode, t.part = mode, t.m.divide(b, t.m.pool.share())
	t.m.runDivided(&b, t.part, t)
}

// sumPoint is the distance of points of a panel of sums: blocks of mr x nr.
func (t *sixGrad) sumPoint() int { return t.lanes*t.m.mr*t.m.nr + t.m.vw }

// panel returns the output channels of the i-th panel.
func (t *sixGrad) panel(i int) (r0, r1 int) { return i * t.c.K / t.panels, (i + 1) * t.c.K / t.panels }

// Run is the task of some tile rows, of a panel of one point, or of a panel of the result.
func (t *sixGrad) Run(worker, i int) {
	w, d := t.m.worker[worker], &t.part
	if t.mode == sixTilesMode { // rows of the image and of the gradient in turn
		t.transform(w, i%2 == 0, bound(i/2, d.rows, t.rows), bound(i/2+1, d.rows, t.rows))
		return
	}
	k, p, c := i/(d.rows*d.cols), i/d.cols%d.rows, i%d.cols
	b0, b1, size := bound(c, d.cols, t.lanes), bound(c+1, d.cols, t.lanes), t.m.mr*t.m.nr
	switch t.mode {
	case sixSumMode:
		t.products(w, k, p, b0, b1, t.sum[(p*sixPoints+k)*t.sumPoint()+b0*size:])
	case sixTapsMode:
		t.taps(w, p, b0, b1, t.sum[p*sixPoints*t.sumPoint()+b0*size:], t.sumPoint())
	default:
		point := (b1-b0)*size + t.m.vw
		sum := w.wino.prod.get(sixPoints * point)
		for k := range sixPoints {
			t.products(w, k, p, b0, b1, sum[k*point:])
		}
		t.taps(w, p, b0, b1, sum, point)
	}
}

// transform transforms tile rows [r0,r1) of the block, of the image or of the gradient.
func (t *sixGrad) transform(w *worker, image bool, r0, r1 int) {
	at := r0 * t.x.tiles[1]
	if image {
		t.x.transform(t.m, w, t.row+r0, r1-r0, t.v.s[at*t.x.ld:], t.xpoint)
	} else {
		t.dy.transform(t.m, w, t.row+r0, r1-r0, t.y.s[at*t.dy.ld:], t.ypoint)
	}
}

// products adds a block's products of one point for a panel of output channels and panels [b0,b1) of input channels. Chains do not
// depend on the blocks.
func (t *sixGrad) products(w *worker, k, panel, b0, b1 int, sum []float32) {
	m, size := t.m, t.m.mr*t.m.nr
	r0, r1 := t.panel(panel)
	tile := m.unpacked[r1-r0-1]
	part := w.tile.get(size)
	for b := b0; b < b1; b++ {
		to := sum[(b-b0)*size:][:(r1-r0)*m.nr]
		for r := 0; r < t.rows; r += t.chain {
			n, at := min(t.chain, t.rows-r)*t.x.tiles[1], r*t.x.tiles[1]
			y, v := &t.y.s[k*t.ypoint+at*t.dy.ld+r0], &t.v.s[k*t.xpoint+at*t.x.ld+b*m.nr]
			if t.row+r == 0 {
				tile(1, n, bytes(y), 4, 4*t.dy.ld, v, t.x.ld, &to[0], m.nr, 0)
				continue
			}
			tile(1, n, bytes(y), 4, 4*t.dy.ld, v, t.x.ld, &part[0], m.nr, 0)
			m.binary[Add](len(to), &to[0], &to[0], &part[0])
		}
	}
}

// taps transforms the sums of a panel, for panels [b0,b1) of input channels, to taps and stores them.
func (t *sixGrad) taps(w *worker, panel, b0, b1 int, sum []float32, point int) {
	m := t.m
	r0, r1 := t.panel(panel)
	c0, c1 := b0*m.nr, min(b1*m.nr, t.c.C)
	h, row := r1-r0, (b1-b0)*m.nr
	flat := w.wino.planes.get(9*h*row + m.nr)
	for ch := 0; ch < c1-c0; ch += m.vw {
		m.six.taps(h, &flat[ch], row, 3*h*row, h*row, &sum[ch/m.nr*m.mr*m.nr+ch%m.nr], m.nr, sixSide*point, point)
	}
	for i := range h {
		m.storeTaps(w, t.c, r0+i, c0, c1, flat[i*row:], h*row, 0)
	}
}
