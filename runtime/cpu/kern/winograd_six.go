package kern

// Convolutions of bf16 images with 3 x 3 taps by F(4x4,3x3), in f32: images are covered by tiles of 6 x 6 pixels, four apart,
// and 36 products give sixteen results, which take 144 otherwise (Lavin and Gray, arXiv 1509.09308). That is fewer than half
// of the products of the definition, so that f32 is faster than pairs of bf16. internal/gen/winosix.go has the transforms.
// They amplify rounding errors more than those of winograd.go, which hardly shows beside the rounding of bf16.
//
// Channels are lanes, because images of few tiles would leave most lanes empty otherwise. Tiles are the rows of the products
// and channels of results their columns.

// sixPoints is the number of matrix products, sixSide that of points, or pixels, of a row of a tile, sixStep that of results.
const (
	sixPoints = sixSide * sixSide
	sixSide   = 6
	sixStep   = 4
)

// sixKernels are the transforms of a path.
type sixKernels struct {
	in     sixFunc // 6x6 pixels to points
	three  sixFunc // 3x3 taps to points
	four   sixFunc // 4x4 gradients to points
	pixels sixFunc // points to 4x4 pixels
	taps   sixFunc // points to 3x3 taps
}

// sixFunc transforms count squares of vectors: element i,j of square k is at src[k*sstep + i*srow + j*scol], element i,j of
// its result at dst[k*dstep + i*drow + j*dcol].
type sixFunc func(count int, dst *float32, dstep, drow, dcol int, src *float32, sstep, srow, scol int)

// sixImage is an operand that is transformed tile by tile.
type sixImage struct {
	grid     grid
	channels int
	size, lo [2]int // of the image, and the position of its first pixel on the padded image
	tiles    [2]int // rows and columns of tiles
	edge     int    // rows and columns of the padded image beyond four a tile
	ld       int    // floats between tiles of a point, and between pixels of the padded image
	square   sixFunc
}

// start sets the operand: an image of the size.
func (s *sixImage) start(m *Machine, g grid, channels int, size [3]int, lo, tiles [2]int) {
	*s = sixImage{grid: g, channels: channels, size: [2]int{size[1], size[2]}, lo: lo, tiles: tiles, edge: sixSide - sixStep, ld: roundUp(channels, m.vw) + m.vw, square: m.six.in}
}

// transform transforms n tile rows, from r on among those of all images, to dst, where points are point floats apart.
func (s *sixImage) transform(m *Machine, w *worker, r, n int, dst []float32, point int) {
	for n > 0 {
		image, y := r/s.tiles[0], r%s.tiles[0]
		some := min(n, sixRows, s.tiles[0]-y)
		padded, cols := s.pad(m, w, image, y, some)
		for i := range some * s.tiles[1] {
			from := padded[(i/s.tiles[1]*cols+i%s.tiles[1])*sixStep*s.ld:]
			s.square(ceilDiv(s.channels, m.vw), &dst[i*s.ld], m.vw, sixSide*point, point, &from[0], m.vw, cols*s.ld, s.ld)
		}
		r, n, dst = r+some, n-some, dst[some*s.tiles[1]*s.ld:]
	}
}

// sixRows is the largest number of tile rows that are padded together.
const sixRows = 4

// pad copies what n tile rows of an image read, from row y on, to a padded image with channels last, cols pixels a row.
func (s *sixImage) pad(m *Machine, w *worker, image, y, n int) (padded []float32, cols int) {
	g := &s.grid
	rows, cols := sixStep*n+s.edge, sixStep*s.tiles[1]+s.edge
	row := cols * s.ld
	padded = w.wino.padded.get(rows*row + m.vw)
	first, wide := sixStep*y-s.lo[0], min(s.size[1], cols-s.lo[1])
	r0, r1 := min(rows, max(0, -first)), max(0, min(rows, s.size[0]-first))
	for i := range rows {
		to := padded[i*row:][:row]
		if i < r0 || i >= r1 {
			clear(to)
			continue
		}
		clear(to[:s.lo[1]*s.ld])
		clear(to[(s.lo[1]+wide)*s.ld:])
	}
	some := s.channels
	if g.channel != 1 {
		some = m.tw // rows of a channel follow each other in memory
	}
	for ch := 0; ch < s.channels; ch += some {
		for i := r0; i < r1; i++ {
			from := g.buf.From(image*g.item[0] + ch*g.channel + (first+i)*g.axis[1])
			m.pixelRow(w, g, min(some, s.channels-ch), padded[i*row+s.lo[1]*s.ld+ch:], s.ld, wide, from)
		}
	}
	return padded, cols
}

// sixTask is a running convolution, of an image of depth channels to a result of rows channels.
type sixTask struct {
	m           *Machine
	c           *Conv
	mode        sixMode
	image       sixImage
	depth, rows int
	result      [2]int
	part        Division
	out         output

	weights tableSource
	byTap   bool      // as in winoTask
	turned  bool      // the taps are read backwards
	u       []float32 // nil if each block transforms its weights
	upoint  int       // elements between points of a panel of u
	v       []float32 // the tiles of all images; nil if each block transforms its tiles
	vpoint  int
	ahead   Parts    // tile rows that are transformed for all blocks
	packing Division // of transforming the weights
}

type sixMode uint8

const (
	sixWeightsMode sixMode = iota
	sixImageMode
	sixBlockMode
)

// tileRows is the number of tile rows of all images.
func (t *sixTask) tileRows() int { return t.c.N * t.image.tiles[0] }

// usesSix reports whether c, or its gradient of x, is computed by F(4x4,3x3): from an image of type x with depth channels to
// rows channels, on out pixels.
func (m *Machine) usesSix(c *Conv, x Type, depth, rows int, out [3]int) bool {
	return m.canUseSix(c, x, c.W.Type) && depth <= sumDepth && (m.sixLeast < 0 || depth >= m.sixLeast && m.sixCost(c, depth, rows, out) < directCost(c, depth, rows, out))
}

// canUseSix reports whether a convolution of two operands of these types, or a gradient, can use F(4x4,3x3).
func (m *Machine) canUseSix(c *Conv, a, b Type) bool {
	return m.six != nil && a == BF16 && b == BF16 && m.amx == nil && m.canUseWinograd(c) && c.In[0] == 1 && c.Out[0] == 1
}

// directCost is what the definition costs in pairs of bf16, which are multiplied at twice the rate of f32. The same cost counts
// on a path without instructions for pairs, where the definition takes longer.
func directCost(c *Conv, depth, rows int, out [3]int) int {
	return 9 * c.N * out[1] * out[2] * depth * rows
}

// Costs of transforms: of a point of a tile for each channel of the image, of the results, and of a point of a weight, which
// is written and read or, with few tiles, stays in the cache of the block that transforms it.
const (
	sixInCost     = 12
	sixOutCost    = 16
	sixWeightCost = 16
	sixNearCost   = 10
)

// fewTiles reports whether transformed weights would be larger than the transformed tiles of all images. Then these are
// transformed first, and each block transforms its weights.
func fewTiles(tiles, rows int) bool { return tiles < rows }

// sixCost is what F(4x4,3x3) costs.
func (m *Machine) sixCost(c *Conv, depth, rows int, out [3]int) int {
	tiles := c.N * ceilDiv(out[1], sixStep) * ceilDiv(out[2], sixStep)
	weight := sixWeightCost
	if fewTiles(tiles, rows) {
		weight = sixNearCost
	}
	return sixPoints * (tiles*(2*depth*roundUp(rows, m.nr)+sixInCost*depth+sixOutCost*rows) + weight*depth*rows)
}

// sixForward computes y from x and w.
func (m *Machine) sixForward(c *Conv) {
	m.sixProduct(c, c.dense(c.X, c.C, c.In), c.C, c.In, [2]int{c.Pad[1], c.Pad[2]}, c.Y, c.K, c.Out, false)
}

// sixInputGrad computes the gradient of x: a convolution of that of y with the weights turned by half a turn.
func (m *Machine) sixInputGrad(c *Conv) {
	m.sixProduct(c, c.dense(c.Y, c.K, c.Out), c.K, c.Out, [2]int{2 - c.Pad[1], 2 - c.Pad[2]}, c.X, c.C, c.In, true)
}

func (m *Machine) sixProduct(c *Conv, g grid, depth int, size [3]int, lo [2]int, dst Buf, rows int, result [3]int, turned bool) {
	t := &m.sixRun
	t.m, t.c, t.depth, t.rows, t.turned = m, c, depth, rows, turned
	t.result = [2]int{result[1], result[2]}
	if volume(result) == 0 {
		return
	}
	t.image.start(m, g, depth, size, lo, [2]int{ceilDiv(result[1], sixStep), ceilDiv(result[2], sixStep)})
	t.end(dst, volume(result))
	t.weights, t.byTap = m.tapTable(c, rows, depth, turned)
	t.upoint = depth*m.nr + m.vw
	t.u, t.v = nil, nil
	if n := t.tileRows(); fewTiles(n*t.image.tiles[1], rows) {
		t.transformTiles(n)
	}
	if t.v == nil || c.Fixed.Weights != nil {
		t.transformWeights()
	}
	t.mode = sixBlockMode
	b := t.box()
	t.part = m.divide(b, m.pool.share())
	m.runDivided(&b, t.part, t)
}

// end sets the destination of results, whose pixels are the rows of the products.
func (t *sixTask) end(dst Buf, px int) {
	c, epi := t.c, t.c.Epilogue
	mat, cols := Mat{Buf: dst, LD: t.rows}, colRun{}
	if !c.ChannelsLast {
		mat.LD, cols = px, colRun{n: px, jump: t.rows * px}
		epi.Bias, epi.RowBias = Buf{}, epi.Bias
	}
	epi.Residual.LD = mat.LD
	t.out = output{p: t.m.Path, c: mat, inner: 1, epi: epi, cols: cols, turned: !c.ChannelsLast}
}

// tapTable is the table of the weights of a convolution of 3 x 3 taps with lanes rows: depths are channels by taps, or taps
// by channels if the weights have that order.
func (m *Machine) tapTable(c *Conv, rows, depth int, turned bool) (s tableSource, byTap bool) {
	es := c.W.Type.Size()
	so, si, sx := c.weightStrides()
	ls, ds := so, si
	if turned {
		ls, ds = si, so
	}
	lane, depths := &m.conv.table[2], &m.conv.table[3]
	lane.strided(1, 0, rows, ls*es)
	if byTap = sx != 1; byTap {
		depths.strided(9, sx*es, depth, ds*es)
	} else {
		depths.strided(depth, ds*es, 9, sx*es)
	}
	return tableSource{p: m.Path, buf: c.W, inner: 1, lane: lane.s, depth: depths.s, byLane: ls == 1}, byTap
}

// transformTiles transforms the n tile rows of all images for all blocks.
func (t *sixTask) transformTiles(n int) {
	m, wide := t.m, t.image.tiles[1]
	t.vpoint = n*wide*t.image.ld + m.vw
	t.v, t.mode = m.sixTiles.get(sixPoints*t.vpoint), sixImageMode
	t.ahead = m.Divide(sixPoints*n*wide*t.depth*sixInCost, n, 0)
	m.RunParts(&t.ahead, t)
}

// transformWeights transforms the weights, or finds their transformed form.
func (t *sixTask) transformWeights() {
	m, c := t.m, t.c
	n := ceilDiv(t.rows, m.nr)*sixPoints*t.upoint + m.nr
	l := Layout{Kind: "winograd 6x6", Of: [20]int{t.rows, t.depth, int(c.W.Type), c.Fixed.At, flag(t.turned), int(c.Weights)}}
	t.u = m.transformed(c, &l, n, t)
}

// packAll transforms the weights into dst.
func (t *sixTask) packAll(m *Machine, dst []float32) {
	t.u, t.mode = dst, sixWeightsMode
	b := depthsBox(ceilDiv(t.rows, m.vw), t.depth, sixPoints*sixWeightCost*t.rows*t.depth)
	t.packing = m.divide(b, m.pool.share())
	m.runDivided(&b, t.packing, t)
}

// weightLanes transforms depths [d0,d1) of the weights of the i-th vector of channels of results to their panel. Panels have nr of
// them, which are contiguous.
func (t *sixTask) weightLanes(w *worker, i, d0, d1 int, panel []float32) {
	m := t.m
	vw, r := m.vw, i*m.vw
	flat := w.wino.planes.get(9*(d1-d0)*vw + vw)
	taps := tapRange{&t.weights, t.byTap, t.depth, d0, d1}
	taps.pack(w, flat, r, min(vw, t.rows-r), 0)
	step, tap, first := 9*vw, vw, 0
	if t.byTap {
		step, tap = vw, (d1-d0)*vw
	}
	if t.turned {
		first, tap = 8*tap, -tap
	}
	m.six.three(d1-d0, &panel[d0*m.nr+r%m.nr], m.nr, sixSide*t.upoint, t.upoint, &flat[first], step, 3*tap, tap)
}

// sixFew is the least number of tiles of a block, if there are as many: each block reads all weights.
const sixFew = 28

// box is the work of the products and transforms: a panel of weights and a tile row a cell. Each block transforms its tiles.
func (t *sixTask) box() box {
	nr, wide := t.m.nr, t.image.tiles[1]
	b := box{items: 1, rows: ceilDiv(t.rows, nr), cols: t.tileRows(), task: 4 * taskCost}
	b.cell = sixPoints * nr * wide * (2*t.depth + sixOutCost)
	if t.v == nil {
		b.mostCols = max(1, max(t.m.Caches().inSecond(winoBlock)/(sixPoints*t.depth), sixFew)/wide)
		b.col = sixPoints * wide * t.depth * sixInCost
	}
	if b.row = sixPoints * nr * t.depth * packCost / 4; t.u == nil {
		b.row = sixPoints * nr * t.depth * sixNearCost
	}
	return b
}

// Run is the task of some depths of a vector of weights, or of a block of tiles.
func (t *sixTask) Run(worker, i int) {
	w := t.m.worker[worker]
	switch t.mode {
	case sixWeightsMode:
		lanes, d0, d1 := t.packing.depthsOf(i, t.depth)
		t.weightLanes(w, lanes, d0, d1, t.u[lanes*t.m.vw/t.m.nr*sixPoints*t.upoint:])
		return
	case sixImageMode:
		r0, r1 := t.ahead.Of(i)
		t.image.transform(t.m, w, r0, r1-r0, t.v[r0*t.image.tiles[1]*t.image.ld:], t.vpoint)
		return
	}
	d, panels, rows := &t.part, ceilDiv(t.rows, t.m.nr), t.tileRows()
	r, c := i/d.cols, i%d.cols
	t.block(w, bound(c, d.cols, rows), bound(c+1, d.cols, rows), bound(r, d.rows, panels), bound(r+1, d.rows, panels))
}

// block computes the results of tile rows [r0,r1) and of panels [p0,p1) of channels.
func (t *sixTask) block(w *worker, r0, r1, p0, p1 int) {
	m, x, n := t.m, &w.wino, (r1-r0)*t.image.tiles[1]
	v, vpoint, point := t.v, t.vpoint, n*m.nr+m.vw
	if v == nil {
		vpoint = n*t.image.ld + m.vw
		v = x.v.get(sixPoints * vpoint)
		t.image.transform(m, w, r0, r1-r0, v, vpoint)
	} else {
		v = v[r0*t.image.tiles[1]*t.image.ld:]
	}
	prod := x.prod.get(sixPoints*point + m.nr)
	for p := p0; p < p1; p++ {
		u := t.panel(w, p)
		for k := range sixPoints {
			t.multiply(v[k*vpoint:], u[k*t.upoint:], prod[k*point:], n)
		}
		for r := r0; r < r1; r++ {
			t.store(w, prod[(r-r0)*t.image.tiles[1]*m.nr:], point, r, p)
		}
	}
}

// panel is a panel of transformed weights.
func (t *sixTask) panel(w *worker, p int) []float32 {
	if t.u != nil {
		return t.u[p*sixPoints*t.upoint:]
	}
	m := t.m
	u := w.a.get(sixPoints*t.upoint + m.nr)
	for i := p * m.nr / m.vw; i*m.vw < min(t.rows, (p+1)*m.nr); i++ {
		t.weightLanes(w, i, 0, t.depth, u)
	}
	return u
}

// multiply computes the products of a point, of n tiles and a panel of weights: tiles as high as each other, nearly.
func (t *sixTask) multiply(v, u, prod []float32, n int) {
	m, ld := t.m, t.image.ld
	h := ceilDiv(n, ceilDiv(n, m.mr))
	for at := 0; at < n; {
		panels := max(1, (n-at)/h)
		h = min(h, n-at)
		m.unpacked[h-1](panels, t.depth, bytes(&v[at*ld]), 4*ld, 4, &u[0], m.nr, &prod[at*m.nr], m.nr, 0)
		at += panels * h
	}
}

// store transforms the products of a tile row of a panel of channels and stores the results.
func (t *sixTask) store(w *worker, prod []float32, point, r, panel int) {
	m, nr, wide := t.m, t.m.nr, t.image.tiles[1]
	row := sixStep * wide // pixels
	k0 := panel * nr
	n := min(nr, t.rows-k0)
	tile := w.tile.get(sixStep * row * nr)
	for at := 0; at < n; at += m.vw {
		m.six.pixels(wide, &tile[at], sixStep*nr, row*nr, nr, &prod[at], nr, sixSide*point, point)
	}
	y := r % t.image.tiles[0] * sixStep
	pixel := r/t.image.tiles[0]*t.result[0]*t.result[1] + y*t.result[1]
	rows, count := min(sixStep, t.result[0]-y), t.result[1]
	if row == count {
		rows, count = 1, rows*count // contiguous
	}
	for i := range rows {
		t.out.applyEpilogue(w, tile[i*row*nr:], 0, pixel+i*t.result[1], count, k0, n, nil, 0)
	}
}
