package kern

// Convolutions of 3 x 3 taps with fewer products: Winograd's F(2x2,3x3), after Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks" (arXiv 1509.09308). Images are covered by tiles of 4 x 4 pixels, two apart. In one
// dimension, with pixels d and taps g,
//
//	m0 = (d0-d2) g0    m1 = (d1+d2) (g0+g1+g2)/2    m2 = (d2-d1) (g0-g1+g2)/2    m3 = (d1-d3) g2
//	y0 = m0 + m1 + m2  y1 = m1 - m2 - m3
//
// and in two dimensions that along columns and rows: 16 products give four results, which take 36 otherwise. The sum over
// channels comes before the last transform, so there is a matrix product for each of the 16 points, of the transformed
// weights with the transformed tiles. A result depends on no pixel that its taps do not meet.
//
// A convolution of volumes is one of their slices: the slices that a slice of the result meets are so many times the
// channels of an image, which meet the taps of one depth each. With three taps along the depth, that is transformed, too:
// see winograd_cubes.go.

// winoPoints is the number of matrix products of a transformed convolution.
const winoPoints = 16

// winoKernels are the transforms of a path.
type winoKernels struct {
	in     squareFunc // 4x4 pixels to points
	three  squareFunc // 3x3 taps to points
	two    squareFunc // 2x2 gradients to points
	taps   squareFunc // points to 3x3 taps
	pixels pixelsFunc // points to 2x2 pixels
}

// squareFunc transforms count squares, each of which is a vector wide: element i,j of square k, lane l, is at
// src[k*sstep + i*srow + j%2*odd + j/2*two + l], point i,j at dst[k*dstep + (i*side+j)*dpoint + l] for side points a row.
// It writes the first lanes of each vector.
type squareFunc func(count, lanes int, dst *float32, dstep, dpoint int, src *float32, sstep, srow, odd, two int)

// pixelsFunc transforms the points of count squares, at src[k*sstep + point*spoint + l], to two rows of pixels, those of
// lane l at dst[k*dstep + i*drow + 2*l + j], cols of them each. With drow 0 the second row is lost.
type pixelsFunc func(count, cols int, dst *float32, dstep, drow int, src *float32, sstep, spoint int)

// winoTask is a running convolution of that kind from an image of depth channels to a result of rows channels. Images are
// slices of volumes.
type winoTask struct {
	m           *Machine
	c           *Conv
	mode        winoMode
	image       grid
	depth, rows int
	channels    int    // channels of a slice
	cubes       bool   // tiles are cubes of two slices of the result; images are pairs of slices
	images      int    // of a volume of the result
	sets        int    // of winoPoints points: cubeSets, or 1
	deep        int    // slices side by side that one of the result meets: depth is so many times channels
	slices      [2]int // of a volume, of a result
	first       int    // slice z of a result uses slices z+first, z+first+sign, ... of the image
	sign        int    // 1 or -1
	size, lo    [2]int // size of the image, and the position of its first pixel on the padded image
	out         output
	result      [2]int // size of the result
	tiles       [2]int // rows and columns of tiles of an image
	total       int    // tiles
	panels      int    // of rows
	part        Division
	weightPart  Division // of transforming the weights
	plain       bool     // results are stored directly, in their place or in the worker's part

	weights tableSource
	byTap   bool // depths of the weights are taps of channels, not channels of taps
	flip    bool // the taps are read backwards
	u       []float32
	upoint  int // elements between points of a panel of u
}

type winoMode uint8

const (
	winoWeightsMode winoMode = iota
	winoTilesMode
)

// winoWorker is the memory of one worker: padded rows, transformed tiles, products, two tiles of results, results that are
// not stored.
type winoWorker struct {
	bands                               []winoBand
	rows, segs                          []winoSeg // whole runs, and runs cut to vectors
	runs                                []winoRun
	planes, padded, v, prod, tile, part floats
}

// Convolutions with fewer than winoDepth channels, winoRows channels of results or winoTiles tiles are computed
// directly, except those of images of winoShallow channels or more with at least winoDepth channels of results. The
// transforms mix taps and pixels that the definition never multiplies; their rounding errors must stay within the
// bound of a chain of multiply-adds, which grows with the number of channels. And the transforms must be worth their
// cost.
const (
	winoDepth   = 64
	winoShallow = 16
	winoRows    = 16
	winoTiles   = 32
)

// usesWinograd reports whether c, or its gradient of x, is computed by Winograd's algorithm: from
// an image of type x with depth channels to rows channels. Direct convolutions of bf16 in the VNNI
// layout are as fast.
func (m *Machine) usesWinograd(c *Conv, x Type, depth, rows int) bool {
	enough := depth*c.Kernel[0] >= m.winoLeast.depth || c.Kernel[0] == 1 && depth >= winoShallow && rows >= winoDepth
	return m.canUseWinograd(c) && !m.usesVNNI(x, c.W.Type) && enough && rows >= m.winoLeast.rows && c.tiles() >= m.winoLeast.tiles
}

// tiles is the number of tiles of the results of c, which is about that of its image.
func (c *Conv) tiles() int { return c.N * c.Out[0] * ceilDiv(c.Out[1], 2) * ceilDiv(c.Out[2], 2) }

// canUseWinograd reports whether Winograd's algorithm can compute c and its gradients.
func (m *Machine) canUseWinograd(c *Conv) bool {
	ones := [3]int{1, 1, 1}
	return m.wino != nil && c.Groups == 1 && !c.TF32 && !c.Direct && !c.Epilogue.Accumulate &&
		c.Kernel[1] == 3 && c.Kernel[2] == 3 && c.Stride == ones && c.Dilation == ones && max(c.Pad[1], c.Pad[2]) <= 2
}

// winoForward computes y from x and w.
func (m *Machine) winoForward(c *Conv) {
	t := &m.winoRun
	t.image, t.channels, t.first, t.sign = c.dense(c.X, c.C, c.In), c.C, -c.Pad[0], 1
	m.winoProduct(c, c.In, c.Pad, c.Y, c.K, c.Out, false)
}

// winoInputGrad computes the gradient of x: a convolution of that of y with the weights turned by half a turn.
func (m *Machine) winoInputGrad(c *Conv) {
	t := &m.winoRun
	t.image, t.channels, t.first, t.sign = c.dense(c.Y, c.K, c.Out), c.K, c.Pad[0], -1
	m.winoProduct(c, c.Out, [3]int{0, 2 - c.Pad[1], 2 - c.Pad[2]}, c.X, c.C, c.In, true)
}

func (m *Machine) winoProduct(c *Conv, size, lo [3]int, dst Buf, rows int, result [3]int, turned bool) {
	t := &m.winoRun
	t.m, t.c, t.slices, t.rows = m, c, [2]int{size[0], result[0]}, rows
	t.images, t.sets, t.deep = result[0], 1, c.Kernel[0]
	if t.cubes = m.usesCubes(c, c.N, result); t.cubes {
		t.startCubes(turned)
	}
	t.depth = t.deep * t.channels
	t.size, t.lo, t.result = [2]int{size[1], size[2]}, [2]int{lo[1], lo[2]}, [2]int{result[1], result[2]}
	t.tiles = [2]int{ceilDiv(result[1], 2), ceilDiv(result[2], 2)}
	t.total = c.N * t.images * t.tiles[0] * t.tiles[1]
	if t.total == 0 {
		return
	}
	t.end(dst, volume(result))
	t.plan()
	t.weightTable(turned)
	t.transformWeights()
	t.mode = winoTilesMode
	b := t.box()
	m.runDivided(&b, t.part, t)
}

// points is the number of products of matrices.
func (t *winoTask) points() int { return t.sets * winoPoints }

// volume is the number of results of a channel of a volume.
func (t *winoTask) volume() int { return t.slices[1] * t.result[0] * t.result[1] }

// slice is the number, among those of all volumes, of slice i of the result that an image stands for.
func (t *winoTask) slice(image, i int) int {
	if !t.cubes {
		return image
	}
	return image/t.images*t.slices[1] + image%t.images*2 + i
}

// halves is the number of slices of the result that an image stands for.
func (t *winoTask) halves(image int) int {
	if !t.cubes {
		return 1
	}
	return min(2, t.slices[1]-image%t.images*2)
}

// base is the position of the results of a slice.
func (t *winoTask) base(slice int) int {
	return slice/t.slices[1]*t.rows*t.volume() + slice%t.slices[1]*t.result[0]*t.result[1]
}

// end sets the destination of results.
func (t *winoTask) end(dst Buf, px int) {
	c, epi := t.c, t.c.Epilogue
	mat, cols := Mat{Buf: dst, LD: px}, colRun{n: px, jump: t.rows * px}
	if c.ChannelsLast {
		mat.LD, cols = t.rows, colRun{}
	} else {
		epi.Bias, epi.RowBias = Buf{}, epi.Bias
	}
	epi.Residual.LD = mat.LD
	t.out = output{p: t.m.Path, c: mat, inner: 1, epi: epi, cols: cols}
	t.plain = !c.ChannelsLast && dst.Type == F32 && epi.plain()
}

// A block has about winoBlock floats of transformed tiles, which stay in the second-level cache. If
// those are fewer than winoFew tiles, a block has twice that many tiles or cubes, because it does
// not stay in the cache anyway and each block reads all weights.
const (
	winoBlock = 1 << 17
	winoFew   = 32
)

// plan divides the work into blocks of tiles and, if there are few, into parts of the rows. This does not affect the
// result.
func (t *winoTask) plan() {
	try := func(panels int) offer {
		t.panels = panels
		t.part = t.m.divide(t.box(), t.m.pool.share())
		return offer{panels, t.part.Time, t.part.Workers, t.part.balance()}
	}
	if t.panels = ceilDiv(t.rows, t.m.mr); t.c.Fixed.Weights != nil { // may be transformed already
		try(t.panels)
	} else {
		t.m.evenPanels(t.box(), t.rows, t.m.pool.share(), try)
	}
}

// box is the work of the products and transforms, a panel of tiles and a panel of weights a cell. Each block reads and
// transforms its tiles, of four pixels each that are not another's.
func (t *winoTask) box() box {
	nr, tiles := t.m.nr, t.m.Caches().inSecond(winoBlock)/(t.points()*t.depth)
	if tiles < winoFew {
		tiles = (2 - flag(t.cubes)) * winoFew
	}
	b := box{items: 1, rows: t.panels, cols: ceilDiv(t.total, nr), mostCols: max(1, tiles/nr), task: 4 * taskCost}
	h := ceilDiv(t.rows, b.rows)
	low := t.depth * (t.panels - ceilDiv(t.rows, t.m.mr)) / t.panels // see gemmTask.lowCost
	b.cell = t.points() * nr * (h*(2*t.depth+packCost) + low)
	b.col, b.row = nr*t.depth*(t.points()*packCost/2+4*pixelCost*t.image.buf.Type.Size()), t.points()*h*t.depth*packCost/4
	return b
}

// Run is the task of some depths of a panel of weights, or of a block of tiles.
func (t *winoTask) Run(worker, i int) {
	w := t.m.worker[worker]
	if t.mode == winoWeightsMode {
		panel, d0, d1 := t.weightPart.depthsOf(i, t.depth)
		t.weightPanel(w, panel, d0, d1)
		return
	}
	d, nr := &t.part, t.m.nr
	r, c := i/d.cols, i%d.cols
	t.block(w, bound(c, d.cols, ceilDiv(t.total, nr))*nr, min(bound(c+1, d.cols, ceilDiv(t.total, nr))*nr, t.total), bound(r, d.rows, t.panels), bound(r+1, d.rows, t.panels))
}

// panel returns the rows of the i-th panel of weights.
func (t *winoTask) panel(i int) (r0, r1 int) {
	return i * t.rows / t.panels, (i + 1) * t.rows / t.panels
}

// block computes the results of tiles [t0,t1), of the rows of panels [p0,p1).
func (t *winoTask) block(w *worker, t0, t1, p0, p1 int) {
	p, x, n := t.m.Path, &w.wino, t1-t0
	t.divide(x, t0, t1)
	t.transformTiles(w)
	ldm := roundUp(n, p.nr)
	point := p.mr*ldm + 16
	x.prod.get(2*winoPoints*point + 16)
	x.part.get(p.mr * t.partRow(x))
	for i := p0; i < p1; i++ {
		r0, r1 := t.panel(i)
		if t.cubes {
			t.multiplyCubes(x, i, r1-r0, n, ldm, point)
		} else {
			t.multiply(x, i, 0, 0, r1-r0, n, ldm, point, 0)
		}
		for k := range x.segs {
			s := &x.segs[k]
			for half := range t.halves(s.image) {
				if t.plain {
					t.store(x, s, half, r0, r1-r0, ldm, point)
				} else {
					t.applyEpilogue(w, s, half, r0, r1-r0, ldm, point)
				}
			}
		}
		if t.out.epi.PostOp != nil {
			t.applyPostOp(w, r0, r1)
		}
	}
}

// partRow is the number of results of a channel in a worker's part: whole rows of its bands, those
// of the first slices before those of the second.
func (t *winoTask) partRow(x *winoWorker) int {
	if !t.out.c.absent() {
		return 0
	}
	return (1 + flag(t.cubes)) * x.partRows() * t.result[1]
}

// parts is a worker's part from an element on; nil if results are stored.
func (t *winoTask) parts(x *winoWorker, at int) []float32 {
	if !t.out.c.absent() {
		return nil
	}
	return x.part.s[at:]
}

// applyPostOp runs the post-op on the results of rows [r0,r1).
func (t *winoTask) applyPostOp(w *worker, r0, r1 int) {
	x, px, ld := &w.wino, t.volume(), t.partRow(&w.wino)
	for r := r0; r < r1; r++ {
		for i := range x.runs {
			run := &x.runs[i]
			at := t.base(run.slice) + r*px + run.pixel
			c := t.parts(x, (r-r0)*ld+run.part)
			if c == nil {
				c = floatsAt(t.out.c.at(at), run.n)
			}
			t.out.epi.PostOp.Apply(w.id, at, c[:run.n])
		}
	}
}

// multiply computes the products of a set of points, of a panel of h rows of weights with n tiles,
// into one half of the products; it adds to the values there if acc is 1.
func (t *winoTask) multiply(x *winoWorker, panel, set, half, h, n, ldm, point, acc int) {
	p, vpoint := t.m.Path, t.vpoint()
	u := t.u[(panel*t.points()+t.flipped(set)*winoPoints)*t.upoint:]
	prod := x.prod.s[half*winoPoints*point:]
	for k := range winoPoints {
		from := k
		if t.flip {
			from = winoFlip[k]
		}
		for at := 0; at < n; at += p.nr {
			cols, a, b := p.width(min(p.nr, n-at)), u[from*t.upoint:], x.v.s[(at/p.nr*t.points()+set*winoPoints+k)*vpoint:]
			for d := 0; d < t.depth; d += p.chain {
				p.tile[cols/p.nr][h-1](min(p.chain, t.depth-d), &a[d*h], &b[d*p.nr], p.nr, &prod[k*point+at], ldm, cols, max(acc, min(1, d)), still(&prod[k*point+at]), 0)
			}
		}
	}
}

// store transforms the products of h rows, from r0 on, and stores the results of a segment.
func (t *winoTask) store(x *winoWorker, s *winoSeg, half, r0, h, ldm, point int) {
	px, width, ld := t.volume(), t.result[1], t.partRow(x)
	to := t.parts(x, (half*x.partRows()+s.part)*width+2*s.x)
	if to == nil {
		ld, to = px, t.out.c.From(t.base(t.slice(s.image, half))+r0*px+2*s.y*width+2*s.x).f32()
	}
	t.m.wino.pixels(h, min(2*s.n, width-2*s.x), &to[0], ld, t.below(s, width), &x.prod.s[half*winoPoints*point+s.at], ldm, point)
}

// below is the distance of the second row of a segment's results, 0 if there is none.
func (t *winoTask) below(s *winoSeg, row int) int {
	if 2*s.y+1 < t.result[0] {
		return row
	}
	return 0
}

// applyEpilogue is store through an epilogue: the two rows of results are tiles of h rows.
func (t *winoTask) applyEpilogue(w *worker, s *winoSeg, half, r0, h, ldm, point int) {
	p, x := t.m.Path, &w.wino
	width, cols := t.result[1], min(2*s.n, t.result[1]-2*s.x)
	size := p.mr * p.nr
	tile := x.tile.get(2*size + p.nr*p.nr)
	second := t.below(s, size)
	p.wino.pixels(h, cols, &tile[0], p.nr, second, &x.prod.s[half*winoPoints*point+s.at], ldm, point)
	for i := range 1 + second/size {
		rows, at := tile[i*size:][:size], (t.slice(s.image, half)*t.result[0]+2*s.y+i)*width+2*s.x
		if t.c.ChannelsLast {
			t.turn(w, tile[2*size:], rows, h, cols)
			t.out.applyEpilogue(w, tile[2*size:], 0, at, cols, r0, h, nil, 0)
			continue
		}
		t.out.applyEpilogue(w, rows, 0, r0, h, at, cols, t.parts(x, (half*x.partRows()+s.part+i)*width+2*s.x), t.partRow(x))
	}
}

// turn makes a tile of cols pixels of one of h channels.
func (t *winoTask) turn(w *worker, dst, rows []float32, h, cols int) {
	p := t.m.Path
	w.offs = getInts(&w.offs, p.tw)
	for r := range h {
		w.offs[r] = 4 * r * p.nr
	}
	p.trans[F32](cols, h, &dst[0], p.nr, bytes(&rows[0]), &w.offs[0])
}
