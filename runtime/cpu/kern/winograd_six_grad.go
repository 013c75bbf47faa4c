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
	group          int // tile rows that a task transforms
	panels         int // of output channels
	lanes          int // panels of input channels

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
	if t.block < all {
		t.sum = m.winoMem.get(t.panels * sixPoints * t.sumPoint())
	}
	for t.row = 0; t.row < all; t.row = m.next(t.row, t.block, all) {
		t.rows = min(t.block, all-t.row)
		n := t.rows * tiles[1]
		t.mode = sixTilesMode
		m.run(sixInCost*sixPoints*n*(c.C+c.K), 2*ceilDiv(t.rows, t.group), t)
		if t.block == all {
			t.mode = sixWholeMode
			m.run(sixPoints*(2*n+sixWeightCost)*c.C*c.K, t.panels, t)
			return
		}
		t.mode = sixSumMode
		m.run(2*sixPoints*n*c.C*c.K, sixPoints*t.panels, t)
	}
	t.mode = sixTapsMode
	m.run(sixWeightCost*sixPoints*c.C*c.K, t.panels, t)
}

// sumPoint is the distance of points of a panel of sums: blocks of mr x nr.
func (t *sixGrad) sumPoint() int { return t.lanes*t.m.mr*t.m.nr + t.m.vw }

// panel returns the output channels of the i-th panel.
func (t *sixGrad) panel(i int) (r0, r1 int) { return i * t.c.K / t.panels, (i + 1) * t.c.K / t.panels }

// Run is the task of some tile rows, of a panel of one point, or of a panel of the result.
func (t *sixGrad) Run(worker, i int) {
	w := t.m.worker[worker]
	switch t.mode {
	case sixTilesMode:
		r := i / 2 * t.group
		n, at := min(t.group, t.rows-r), r*t.x.tiles[1]
		if i%2 == 0 {
			t.x.transform(t.m, w, t.row+r, n, t.v.s[at*t.x.ld:], t.xpoint)
		} else {
			t.dy.transform(t.m, w, t.row+r, n, t.y.s[at*t.dy.ld:], t.ypoint)
		}
	case sixSumMode:
		k, p := i/t.panels, i%t.panels
		t.products(w, k, p, t.sum[(p*sixPoints+k)*t.sumPoint():])
	case sixTapsMode:
		t.taps(w, i, t.sum[i*sixPoints*t.sumPoint():])
	default:
		sum := w.wino.prod.get(sixPoints * t.sumPoint())
		for k := range sixPoints {
			t.products(w, k, i, sum[k*t.sumPoint():])
		}
		t.taps(w, i, sum)
	}
}

// products adds a block's products of one point for a panel of output channels. Chains do not depend on the blocks.
func (t *sixGrad) products(w *worker, k, panel int, sum []float32) {
	m, size := t.m, t.m.mr*t.m.nr
	r0, r1 := t.panel(panel)
	tile := m.unpacked[r1-r0-1]
	part := w.tile.get(size)
	for b := range t.lanes {
		to := sum[b*size:][:(r1-r0)*m.nr]
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

// taps transforms the sums of a panel to taps and stores them.
func (t *sixGrad) taps(w *worker, panel int, sum []float32) {
	m, point := t.m, t.sumPoint()
	r0, r1 := t.panel(panel)
	h, row := r1-r0, t.lanes*m.nr
	flat := w.wino.planes.get(9*h*row + m.nr)
	for ch := 0; ch < t.c.C; ch += m.vw {
		m.six.taps(h, &flat[ch], row, 3*h*row, h*row, &sum[ch/m.nr*m.mr*m.nr+ch%m.nr], m.nr, sixSide*point, point)
	}
	for i := range h {
		m.storeTaps(w, t.c, r0+i, flat[i*row:], h*row, 0)
	}
}
