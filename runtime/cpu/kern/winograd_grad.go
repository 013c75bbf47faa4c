package kern

// The gradient of the weights by Winograd's F(3x3,2x2), which has the same tiles of pixels: 16 products of a tile of the
// image with a tile of 2 x 2 gradients, transformed like taps, give what they add to 3 x 3 taps. The sum over tiles and
// images comes before the last transform, so there is a product of matrices for each point whose depth is the tiles. Tiles
// are transformed block after block, and a block's products are added to what the blocks before left. Of volumes, images
// are slices, and the slices of x that one of y meets lie beside each other as so many times the channels; or, with three taps
// along the depth, pairs of slices, whose depth is transformed, too (see winograd_cubes.go).

// winoGrad is a weights' gradient in progress.
type winoGrad struct {
	m      *Machine
	c      *Conv
	mode   winoGradMode
	cubes  bool   // of two slices of y, four of x
	sets   int    // of winoPoints points: cubeSets, or 1
	images int    // of a volume
	tiles  [2]int // rows and columns of tiles of an image
	block  int    // tile rows of a block, at most
	chain  int    // tile rows whose products are added up one by one, see sumDepth
	group  int    // tile rows that a task transforms, at most
	row    int    // first tile row of the block
	rows   int    // number of tile rows of the block
	part   Division

	v, y  floats
	sum   []float32
	x, dy winoSide
}

// winoSide is an operand of the products: panels of lanes, points, tiles.
type winoSide struct {
	image    grid
	channels int
	lanes    int    // channels of all slices side by side; if there are several, each slice's are filled up to whole vectors
	deep     int    // slices beside each other
	meets    int    // slices that an image's tile uses; of cubes, one for each set of points
	slices   int    // of a volume
	first    int    // slice z of y uses slice z+first and those after it
	size     [2]int // of the image
	lo       [2]int // where its first pixel is on the padded image
	edge     int    // rows and columns of the padded image beyond two a tile
	panels   int
	point    int // elements between points of a panel
}

type winoGradMode uint8

const (
	winoImageMode winoGradMode = iota
	winoGradientMode
	winoSumMode
	winoTapsMode
)

// winoGradTiles is the smallest number of tiles of a block; with many workers a block has half as
// many for each worker.
const winoGradTiles = 128

// usesWinogradForWeights reports whether the gradient of the weights of c is computed by Winograd's
// algorithm: for the same convolutions, if they have as many tiles as channels. Direct gradients of
// bf16 in the VNNI layout are faster if tiles or channels are few, and always with tile registers.
func (m *Machine) usesWinogradForWeights(c *Conv) bool {
	least := m.winoLeast.depth
	if !m.canUseWinograd(c) || min(c.C*c.Kernel[0], c.K, c.tiles()) < least || !c.Epilogue.plain() || c.Weights == XIO {
		return false
	}
	return !m.usesVNNI(c.X.Type, c.Y.Type) || m.amx == nil && min(c.C, c.K) >= 2*least && c.tiles() >= max(c.C, c.K)
}

func (m *Machine) winoWeightGrad(c *Conv) {
	t := &m.winoGradRun
	t.m, t.c = m, c
	t.tiles = [2]int{ceilDiv(c.Out[1], 2), ceilDiv(c.Out[2], 2)}
	t.images, t.sets = c.Out[0], 1
	if t.cubes = m.usesCubes(c, c.N, c.Out); t.cubes {
		t.images, t.sets = ceilDiv(c.Out[0], 2), cubeSets
	}
	all := c.N * t.images * t.tiles[0]
	t.group = ceilDiv(2*m.vw, t.tiles[1])
	t.chain = ceilDiv(winoGradTiles, t.tiles[1])
	t.block = max(winoGradTiles, winoGradTiles/2*m.pool.Workers())
	t.block = min(all, roundUp(ceilDiv(t.block, t.tiles[1]), t.chain))
	depth := t.block * t.tiles[1]
	t.x = winoSide{image: c.dense(c.X, c.C, c.In), channels: c.C, lanes: c.C, deep: c.Kernel[0], meets: c.Kernel[0], slices: c.In[0], first: -c.Pad[0],
		size: [2]int{c.In[1], c.In[2]}, lo: [2]int{c.Pad[1], c.Pad[2]}, edge: 2, point: depth*m.nr + 16}
	if t.cubes {
		t.x.deep, t.x.meets = 1, cubeSets
	} else if t.x.deep > 1 {
		t.x.lanes = t.x.deep * roundUp(c.C, m.tw)
	}
	t.x.panels = ceilDiv(t.x.lanes, m.nr)
	t.dy = winoSide{image: c.dense(c.Y, c.K, c.Out), channels: c.K, lanes: c.K, deep: 1, meets: 1 + flag(t.cubes), slices: c.Out[0],
		size: [2]int{c.Out[1], c.Out[2]}, panels: ceilDiv(c.K, m.mr), point: depth*m.mr + 16}
	points := t.sets * winoPoints
	t.v.get(t.x.panels * points * t.x.point)
	t.y.get(t.dy.panels * points * t.dy.point)
	t.sum = m.winoMem.get(t.dy.panels * points * t.sumPoint())
	for t.row = 0; t.row < all; t.row = m.next(t.row, t.block, all) {
		t.rows = min(t.block, all-t.row)
		t.run(winoImageMode, t.bands(t.x.lanes))
		t.run(winoGradientMode, t.bands(c.K))
		t.run(winoSumMode, t.results(points, 2*t.rows*t.tiles[1], t.rows*t.tiles[1]*packCost/4))
	}
	taps := t.results(1, 8*points, 0)
	if t.x.deep > 1 || t.cubes { // slices of a filter are stored together
		taps.cols, taps.cell = 1, taps.cell*taps.cols
	}
	t.run(winoTapsMode, taps)
}

// bands are the tile rows of a block, whose pixels have so many lanes. A task reads some rows of pixels that others read, too.
func (t *winoGrad) bands(lanes int) box {
	work := 8 * t.sets * winoPoints * t.tiles[1] * lanes
	return box{items: 1, rows: t.rows, cols: 1, mostRows: t.group, cell: work, task: taskCost + work/4}
}

// results are panels of output by panels of input channels, for so much work of an element, and as much to read what it is computed
// from. A task has one panel of output channels.
func (t *winoGrad) results(items, work, reading int) box {
	h := ceilDiv(t.c.K, t.dy.panels)
	return box{items: items, rows: t.dy.panels, cols: t.x.panels, mostRows: 1, cell: work * h * t.m.nr, row: reading * h, col: reading * t.m.nr, task: taskCost}
}

// run divides the work of a mode and runs it.
func (t *winoGrad) run(mode winoGradMode, b box) {
	t.mode, t.part = mode, t.m.divide(b, t.m.pool.share())
	t.m.runDivided(&b, t.part, t)
}

// Run is the task of some tile rows, of a panel of one point, or of a panel of the result.
func (t *winoGrad) Run(worker, i int) {
	w, d := t.m.worker[worker], &t.part
	item, r, c := i/(d.rows*d.cols), i/d.cols%d.rows, i%d.cols
	if t.mode == winoImageMode || t.mode == winoGradientMode {
		t.eachBand(w, bound(r, d.rows, t.rows), bound(r+1, d.rows, t.rows))
		return
	}
	b0, b1 := bound(c, d.cols, t.x.panels), bound(c+1, d.cols, t.x.panels)
	if t.mode == winoSumMode {
		t.products(item, r, b0, b1)
		return
	}
	t.taps(w, r, b0, b1)
}

// eachBand transforms tile rows [r0,r1) of the block, those of an image together.
func (t *winoGrad) eachBand(w *worker, r0, r1 int) {
	for r := r0; r < r1; {
		image, y := (t.row+r)/t.tiles[0], (t.row+r)%t.tiles[0]
		n := min(r1-r, t.tiles[0]-y)
		if t.mode == winoImageMode {
			t.imageBand(w, image, y, r, n)
		} else {
			t.gradientBand(w, image, y, r, n, r1-r-n)
		}
		r += n
	}
}

// imageBand transforms n tile rows of an image from y on, the block's from r on: channels are lanes.
func (t *winoGrad) imageBand(w *worker, image, y, r, n int) {
	m, s := t.m, &t.x
	padded, set, cols, px := t.pad(w, s, image, y, n)
	if t.cubes {
		m.winoDepth(padded, set)
	}
	for k := range t.sets {
		for ch := 0; ch < s.lanes; ch += m.vw {
			to := t.v.s[(ch/m.nr*t.sets+k)*winoPoints*s.point+ch%m.nr:]
			for i := range n {
				m.wino.in(t.tiles[1], m.vw, &to[(r+i)*t.tiles[1]*m.nr], m.nr, s.point, &padded[k*set+2*i*cols*px+ch], 2*px, cols*px, px, 2*px)
			}
		}
	}
}

// gradientBand is imageBand for the gradient, whose panels are as wide as tiles of the product are high. Whole vectors are
// stored, into the next tiles, except where they are another task's: behind tile rows of the task follow.
func (t *winoGrad) gradientBand(w *worker, image, y, r, n, behind int) {
	s := &t.dy
	padded, set, cols, px := t.pad(w, s, image, y, n)
	if t.cubes {
		t.m.winoDepthTwo(padded, set)
	}
	for p := range s.panels {
		for k := range t.sets {
			t.gradientPanel(p, k, padded[k*set:], cols, px, r, n, behind)
		}
	}
}

// gradientPanel transforms a panel of gradients of padded images to a set of points.
func (t *winoGrad) gradientPanel(p, set int, padded []float32, cols, px, r, n, behind int) {
	m, s, wide := t.m, &t.dy, t.tiles[1]
	r0, r1 := t.panel(p)
	h := r1 - r0
	to := t.y.s[(p*t.sets+set)*winoPoints*s.point:]
	for i := range n {
		count, at := wide, (r+i)*wide
		from := padded[2*i*cols*px+r0:]
		if spilling := ceilDiv(m.vw, h) - 1 - (n-1-i+behind)*wide; spilling > 0 { // tiles whose vectors reach beyond the task
			count = max(0, wide-spilling)
		}
		if count > 0 {
			m.wino.two(count, m.vw, &to[at*h], h, s.point, &from[0], 2*px, cols*px, px, 0)
		}
		if count < wide {
			m.wino.two(wide-count, h, &to[(at+count)*h], h, s.point, &from[2*count*px], 2*px, cols*px, px, 0)
		}
	}
}

// panel returns the output channels of the i-th panel.
func (t *winoGrad) panel(i int) (r0, r1 int) {
	n := t.dy.panels
	return i * t.c.K / n, (i + 1) * t.c.K / n
}

// pad copies n tile rows of an image, from y on, to a padded image with channels last: cols pixels a row, px
// elements a pixel. Of cubes it copies every slice to a padded image of its own, set elements apart, with room for the
// transform of the depth.
func (t *winoGrad) pad(w *worker, s *winoSide, image, y, n int) (padded []float32, set, cols, px int) {
	m, g := t.m, &s.image
	cols, px = 2*t.tiles[1]+s.edge, roundUp(s.lanes, m.tw)
	rows := 2*n + s.edge
	set = rows * cols * px
	padded = w.wino.padded.get((1+t.sets)*set + 2*m.nr)
	clear(padded)
	first, wide := 2*y-s.lo[0], min(s.size[1], cols-s.lo[1])
	for i := range s.meets {
		slice, at := image%t.images+s.first+i, i*s.lanes/s.deep
		if t.cubes {
			slice, at = 2*(image%t.images)+s.first+i, i*set
		}
		if slice < 0 || slice >= s.slices {
			continue
		}
		from := image/t.images*g.item[0] + slice*g.axis[0]
		for row := max(0, first); row < min(s.size[0], first+rows); row++ {
			m.pixelRow(w, g, s.channels, padded[at+((row-first)*cols+s.lo[1])*px:], px, wide, g.buf.From(from+row*g.axis[1]))
		}
	}
	return padded, set, cols, px
}

// pixelRow stores n pixels of an image in f32 with their channels beside each other, px elements apart.
func (m *Machine) pixelRow(w *worker, g *grid, channels int, dst []float32, px, n int, src Buf) {
	if g.channel == 1 {
		if px == channels {
			m.Load(dst[:n*px], src)
			return
		}
		for i := range n {
			m.Load(dst[i*px:][:channels], src.From(i*channels))
		}
		return
	}
	w.offs = getInts(&w.offs, m.tw)
	for r := range w.offs {
		w.offs[r] = r * g.channel * src.Type.Size()
	}
	for ch := 0; ch < channels; ch += m.tw {
		m.trans[src.Type](n, min(m.tw, channels-ch), &dst[ch], px, src.at(ch*g.channel), &w.offs[0])
	}
}

// sumPoint is the distance of points of a panel of sums: blocks of mr x nr.
func (t *winoGrad) sumPoint() int { return t.x.panels*t.m.mr*t.m.nr + 16 }

// products adds a block's products of one point for a panel of output channels and panels [b0,b1) of input channels. Chains do not
// depend on the blocks.
func (t *winoGrad) products(point, panel, b0, b1 int) {
	p, points := t.m.Path, t.sets*winoPoints
	r0, r1 := t.panel(panel)
	a := t.y.s[(panel*points+point)*t.dy.point:]
	sum := t.sum[(panel*points+point)*t.sumPoint():]
	for b := b0; b < b1; b++ {
		cols, v := p.width(min(p.nr, t.x.lanes-b*p.nr)), t.v.s[(b*points+point)*t.x.point:]
		for row := 0; row < t.rows; row += t.chain {
			n, at := min(t.chain, t.rows-row)*t.tiles[1], row*t.tiles[1]
			p.tile[cols/p.nr][r1-r0-1](n, &a[at*(r1-r0)], &v[at*p.nr], p.nr, &sum[b*p.mr*p.nr], p.nr, cols, min(1, t.row+row), still(&sum[b*p.mr*p.nr]), 0)
		}
	}
}

// taps transforms the sums of a panel, for panels [b0,b1) of input channels, to taps and stores them.
func (t *winoGrad) taps(w *worker, panel, b0, b1 int) {
	m, point := t.m, t.sumPoint()
	r0, r1 := t.panel(panel)
	h, slice := r1-r0, (b1-b0)*m.nr
	sum := t.sum[panel*t.sets*winoPoints*point:][:t.sets*winoPoints*point]
	slices, apart := 1, t.x.lanes/t.x.deep // transformed one by one; taps of slices in flat
	if t.cubes {
		m.winoDepthSums(sum, winoPoints*point)
		slices, apart = 3, slice
	}
	row := slices * slice
	flat := w.wino.planes.get(9*h*row + m.nr)
	for k := range slices {
		for ch := b0 * m.nr; ch < min(b1*m.nr, t.x.lanes); ch += m.vw {
			from := sum[k*winoPoints*point+ch/m.nr*m.mr*m.nr+ch%m.nr:]
			m.wino.taps(h, m.vw, &flat[k*slice+ch-b0*m.nr], row, h*row, &from[0], m.nr, 4*point, point, 2*point)
		}
	}
	c0, c1 := min(b0*m.nr, t.c.C), min(b1*m.nr, t.c.C)
	for i := range h {
		m.storeTaps(w, t.c, r0+i, c0, c1, flat[i*row:], h*row, apart)
	}
}

// storeTaps stores channels [c0,c1) of the weights of output channel k, whose taps of a slice lie tap elements apart, those of slices
// apart, in their order. All channels of filters of several slices are stored together.
func (m *Machine) storeTaps(w *worker, c *Conv, k, c0, c1 int, flat []float32, tap, apart int) {
	deep, n := c.Kernel[0], c1-c0
	if n == 0 {
		return
	}
	if c.Weights == OXI {
		for i := range 9 * deep {
			m.Store(c.W.From((9*deep*k+i)*c.C+c0), flat[i%9*tap+i/9*apart:][:n])
		}
		return
	}
	row := w.row[0].get(9*n + m.vw)
	if deep == 1 {
		m.turnTaps(w, n, row, flat, tap)
		m.Store(c.W.From(9*(k*c.C+c0)), row[:9*n])
		return
	}
	all := w.row[1].get(9 * deep * n)
	for i := range deep {
		m.turnTaps(w, n, row, flat[i*apart:], tap)
		for ch := range n {
			copy(all[9*(ch*deep+i):][:9], row[9*ch:])
		}
	}
	m.Store(c.W.From(9*deep*k*c.C), all)
}

// turnTaps transposes taps by channels to channels by taps.
func (m *Machine) turnTaps(w *worker, channels int, row, flat []float32, tap int) {
	lanes := min(9, m.tw)
	w.offs = getInts(&w.offs, m.tw)
	for i := range lanes {
		w.offs[i] = 4 * i * tap
	}
	m.trans[F32](channels, lanes, &row[0], 9, bytes(&flat[0]), &w.offs[0])
	for i := lanes; i < 9; i++ {
		scatter(row[i:], flat[i*tap:][:channels], 9)
	}
}
