package kern

// WeightOrder is the order of a convolution's weights: O output channels, I input channels of a group, X taps.
type WeightOrder uint8

// The weight orders: PyTorch and ONNX use OIX, channels-last libraries OXI, TensorFlow XIO.
const (
	OIX WeightOrder = iota
	OXI
	XIO
)

// Conv describes a convolution of one, two or three spatial dimensions (depth, height, width; absent leading ones are
// 1) and, with the same fields, its two gradients.
//
//	y[n,k,o] = sum over c, t of w[k,c,t] * x[n, c, o*Stride - Pad + t*Dilation]
//
// Groups split C and K evenly. Pad is the zero padding before the image; the padding after it follows from Out.
type Conv struct {
	N, C, K, Groups       int
	In, Out, Kernel       [3]int
	Stride, Dilation, Pad [3]int
	ChannelsLast          bool // x and y are [N, spatial, channels] rather than [N, channels, spatial]
	Weights               WeightOrder
	X, W, Y               Buf
	Fixed                 Fixed // the packed forms of W, if it has some
	TF32                  bool
	Direct                bool // computed by the definition, never by transforms
	Epilogue                   // of the result; Bias has one element an output channel, RowBias is not used
}

func volume(d [3]int) int { return d[0] * d[1] * d[2] }

// grid describes the pixels of a padded image in memory, the operand of a convolution, by strides.
type grid struct {
	buf      Buf
	item     [2]int // elements between images, between groups
	channel  int    // elements between channels
	axis     [3]int // elements between pixels along each axis
	vnni     bool   // the elements are words of two channels in bf16; see padVNNI
	clean    bool   // none of them is subnormal
	phases   int    // along the last axis pixel x is at (x%phases)*phase + x/phases*axis[2]
	phase    int
	rows     int // if 2, row y is at (y%2)*rowPhase + y/2*axis[1] in the same way
	rowPhase int
	gap      int // pixels of a row after the results, if tiles read rows together; see gapped
}

// at is the offset of a pixel in the padded image.
func (g *grid) at(z, y, x int) int {
	if x = x%g.phases*g.phase + x/g.phases*g.axis[2]; g.rows == 2 {
		x, y = x+y%2*g.rowPhase, y/2
	}
	return z*g.axis[0] + y*g.axis[1] + x
}

// dense is the grid of an image as the caller stores it.
func (c *Conv) dense(b Buf, channels int, size [3]int) grid {
	g := grid{buf: b, phases: 1, item: [2]int{channels * volume(size), channels / c.Groups}}
	px := channels
	if !c.ChannelsLast {
		px, g.channel = 1, volume(size)
		g.item[1] *= g.channel
	} else {
		g.channel = 1
	}
	g.axis = [3]int{size[1] * size[2] * px, size[2] * px, px}
	return g
}

// convMode is the kind of work of an image's task.
type convMode uint8

const (
	padMode convMode = iota
	thinMode
	phaseMode
	scatterMode
	depthMode
	depthWeightMode
	turnMode
	turnBackMode
	vnniMode
	weightMode
)

// convTask holds the tables of a convolution in progress and writes padded images.
type convTask struct {
	m        *Machine
	mode     convMode
	deep     depthRun
	c        *Conv
	src, dst grid
	size     [3]int // of an image
	lo, step [3]int // where its pixels go
	channels int
	units    int // of an image, that tasks have some of
	share    Division
	padded   floats

	withoutPostOp Conv // without what follows
	thinned       Conv
	thinMem       floats
	phases        []phase
	phaseMem      floats
	turned        floats // the transposed gradient of weights, taps before channels
	subnormal     []bool // images with subnormal elements
	interleave    []int  // offsets of the rows to interleave, in pairs
	weights       floats // interleaved weights
	swapped       bool   // they are in the order of the input gradient
	weightsVNNI   bool   // they are words

	table        [4]offsets
	kept         keptTables
	sources      [2]tableSource
	patch, pixel *offsets
}

// tableSource is an operand whose element (lane, depth) is at base + lane[l] + depth[k], all in bytes. Elements are
// contiguous in runs along the lanes (byLane) or along the depths.
type tableSource struct {
	p           *Path
	buf         Buf
	item        [2]int // elements
	inner       int
	lane, depth []int
	byLane      bool
	tf32        bool

	vnni  bool // the elements are words of two depths in bf16, see vnniKernels; depth has one place a word
	clean bool // none of them is subnormal
	zip   bool // runs along the depths take every second depth: they are the halves of words

	slack bool         // a tile may read past its end
	due   bool         // the elements do not exist before makeWords
	fixed fixedOperand // the operand as it is packed ahead
}

// run is the length, at most n, of the run of contiguous elements of size es at the start of o.
func run(o []int, n, es int) int { return runBy(o, 1, n, es) }

// runBy is run over every step-th entry; n counts entries.
func runBy(o []int, step, n, es int) int {
	r := 1
	for r*step < n && o[r*step] == o[(r-1)*step]+es {
		r++
	}
	return r
}

func (s *tableSource) pack(w *worker, dst []float32, ld, item, l0, n, k0, kc int) {
	base := s.base(item)
	if s.byLane {
		s.packLanes(dst, ld, base, l0, n, k0, kc)
	} else {
		s.packDepths(dst, ld, base, l0, n, k0, kc)
	}
	if s.tf32 {
		s.p.Unary(RoundTF32, dst[:(kc-1)*ld+n], dst[:(kc-1)*ld+n])
	}
}

func (s *tableSource) typ() Type {
	if s.vnni {
		return BF16
	}
	return s.buf.Type
}

func (s *tableSource) base(item int) int {
	return (item/s.inner*s.item[0] + item%s.inner*s.item[1]) * s.buf.Type.Size()
}

// indirect returns s if tiles can read its lanes in memory by offsets, without packing, else nil.
func (s *tableSource) indirect() *tableSource {
	p := s.p
	if p.indirect == nil || !s.byLane || s.tf32 || s.buf.Type != F32 || s.vnni && !s.clean {
		return nil
	}
	for l := 0; l+p.nr <= len(s.lane) && !s.slack; l += p.nr {
		if !s.contiguous(l, p.nr) {
			return nil
		}
	}
	return s
}

// contiguous reports whether lanes [l0,l0+n) fill a tile, or both halves of one in part where what follows may be read, and
// each half of them is contiguous. Then they need no packing.
func (s *tableSource) contiguous(l0, n int) bool {
	p := s.p
	return (n == p.nr || s.slack && n > p.vw) && s.lane[l0+p.vw-1]-s.lane[l0] == 4*(p.vw-1) && s.lane[l0+n-1]-s.lane[l0+p.vw] == 4*(n-p.vw-1)
}

// ends returns the start of each of the two halves of n columns of a tile, from lane l0 on.
func (s *tableSource) ends(l0, n int) (b0, b1 int) {
	return s.lane[l0], s.lane[l0+min(n-1, s.p.vw)]
}

// packedAtOnce is the number of depths of all lanes that are packed before the next ones. The
// elements that are read and those that are written then stay in the first-level cache from one run
// of lanes to the next.
const packedAtOnce = 128

func (s *tableSource) packLanes(dst []float32, ld, base, l0, n, k0, kc int) {
	es := s.buf.Type.Size()
	for k := 0; k < kc; k += packedAtOnce {
		for l := 0; l < n; {
			r := run(s.lane[l0+l:], n-l, es)
			s.p.pick[s.buf.Type](min(packedAtOnce, kc-k), r, &dst[k*ld+l], ld, s.buf.byteAt(base+s.lane[l0+l]), &s.depth[k0+k])
			l += r
		}
	}
}

func (s *tableSource) packDepths(dst []float32, ld, base, l0, n, k0, kc int) {
	t, es, step := s.buf.Type, s.buf.Type.Size(), 1
	if s.zip {
		step = 2 // rows are wider than lanes, see gemmTask.pack: what is written past the lanes of one spoils no other
	}
	for first := range min(step, kc) {
		for k := first; k < kc; {
			r := runBy(s.depth[k0+k:], step, kc-k, es)
			for g := 0; g < n; g += s.p.tw {
				h := min(s.p.tw, n-g)
				s.p.trans[t](r, h, &dst[k*ld+g], step*ld, s.buf.byteAt(base+s.depth[k0+k]), &s.lane[l0+g])
			}
			k += r * step
		}
	}
}

// Conv computes y from x and w.
func (m *Machine) Conv(c *Conv) {
	if c.N == 0 {
		return
	}
	usesWinograd, usesSix := m.usesWinograd(c, c.X.Type, c.C, c.K), m.usesSix(c, c.X.Type, c.C, c.K, c.Out)
	if c.PostOp != nil && (c.depthwise() || usesSix || usesWinograd && c.ChannelsLast) {
		bare := m.withoutPostOp(c)
		whole := m.wholeResult(&bare.Y, c.PostOp, c.N*c.K*volume(c.Out))
		m.Conv(bare)
		m.postOpAll(c.PostOp, whole)
		return
	}
	if usesSix {
		m.sixForward(c)
		return
	}
	if usesWinograd {
		m.winoForward(c)
		return
	}
	t := &m.conv
	c = m.thin(c)
	t.c = c
	x, size := c.dense(c.X, c.C, c.In), c.extent()
	t.patch, t.pixel = &t.table[0], &t.table[1]
	if m.padsToVNNI(c.X.Type, c.C) {
		g := m.padVNNI(x, c.C, c.In, c.Pad, size, c.Stride[2])
		t.patch.taps(&g, c.C/c.Groups/2, c.Kernel, [3]int{}, c.Dilation, false)
		m.convProduct(&g, c.Y, c.K, c.Out, c.Stride, m.weights(c.K/c.Groups, c.C/c.Groups, false, true))
		return
	}
	size, gap := m.gapped(c, size)
	g := m.pad(x, c.C, c.In, c.Pad, [3]int{1, 1, 1}, size, c.Stride[2], m.paddedType(c.X.Type, c.Out, gap), gap)
	t.patch.taps(&g, c.C/c.Groups, c.Kernel, [3]int{}, c.Dilation, c.ChannelsLast)
	if c.depthwise() {
		m.depthForward(g, c.dense(c.Y, c.K, c.Out), c.Out, c.Stride)
		return
	}
	weights := m.weights(c.K/c.Groups, c.C/c.Groups, false, false)
	m.convProduct(&g, c.Y, c.K, c.Out, c.Stride, weights)
}

// ConvInputGrad computes the gradient of x, into X, from the gradient of y, in Y, and w.
func (m *Machine) ConvInputGrad(c *Conv) {
	if c.N == 0 {
		return
	}
	usesWinograd, usesSix := m.usesWinograd(c, c.Y.Type, c.K, c.C), m.usesSix(c, c.Y.Type, c.K, c.C, c.In)
	if c.PostOp != nil && (c.phased() || c.scatters() || c.depthwise() || usesSix || usesWinograd && c.ChannelsLast) {
		bare := m.withoutPostOp(c)
		whole := m.wholeResult(&bare.X, c.PostOp, c.N*c.C*volume(c.In))
		m.ConvInputGrad(bare)
		m.postOpAll(c.PostOp, whole)
		return
	}
	if usesSix {
		m.sixInputGrad(c)
		return
	}
	if usesWinograd {
		m.winoInputGrad(c)
		return
	}
	t := &m.conv
	t.c = c
	if c.phased() {
		m.phasedGrad(c)
		return
	}
	if c.scatters() {
		m.scatterGrad(c)
		return
	}
	var lo, size, from, by [3]int
	for a := range 3 {
		// Pixel i of x meets tap t at position i + Pad - t*Dilation of y spread Stride apart.
		reach := (c.Kernel[a] - 1) * c.Dilation[a]
		lo[a] = max(0, reach-c.Pad[a])
		from[a], by[a] = lo[a]+c.Pad[a], -c.Dilation[a]
		size[a] = max(lo[a]+(c.Out[a]-1)*c.Stride[a]+1, from[a]+c.In[a])
	}
	t.patch, t.pixel = &t.table[0], &t.table[1]
	if m.padsToVNNI(c.Y.Type, c.K) && c.Stride == [3]int{1, 1, 1} {
		g := m.padVNNI(c.dense(c.Y, c.K, c.Out), c.K, c.Out, lo, size, 1)
		t.patch.taps(&g, c.K/c.Groups/2, c.Kernel, from, by, false)
		m.convProduct(&g, c.X, c.C, c.In, [3]int{1, 1, 1}, m.weights(c.C/c.Groups, c.K/c.Groups, true, true))
		return
	}
	g := m.pad(c.dense(c.Y, c.K, c.Out), c.K, c.Out, lo, c.Stride, size, 1, m.paddedType(c.Y.Type, c.In, 0), 0)
	t.patch.taps(&g, c.K/c.Groups, c.Kernel, from, by, c.ChannelsLast)
	if c.depthwise() {
		m.depthForward(g, c.dense(c.X, c.C, c.In), c.In, [3]int{1, 1, 1})
		return
	}
	weights := m.weights(c.C/c.Groups, c.K/c.Groups, true, false)
	m.convProduct(&g, c.X, c.C, c.In, [3]int{1, 1, 1}, weights)
}

// convProduct multiplies the patches of g with the weights: out has the given channels and size, its pixels read
// step apart. The weights are the rows of a channels-first product, the columns of a channels-last one. The images of
// a batch are one product, unless channels-first pixels are many and would not fill whole tiles.
func (m *Machine) convProduct(g *grid, out Buf, channels int, size, step [3]int, weights tableSource) {
	t, c, gt := &m.conv, m.conv.c, &m.gemm
	per, px := channels/c.Groups, volume(size)
	images, item := c.N, g.item
	merge := c.ChannelsLast || px%m.nr == 0 || px < 512
	if merge {
		item[0] = 0
	} else {
		images = 1
	}
	t.pixel.pixels(g, images, size, step)
	cols := colRun{n: len(t.pixel.s) / images, jump: channels * px, row: size[2], gap: g.gap}
	all := images * cols.n
	patches := tableSource{p: m.Path, buf: g.buf, item: item, inner: c.Groups, lane: t.pixel.s, depth: t.patch.s, byLane: !c.ChannelsLast, tf32: c.TF32,
		vnni: g.vnni, clean: g.clean, slack: g.gap > 0}
	dst := Mat{Buf: out, LD: px, Stride: [2]int{channels * px, per * px}}
	gt.depth = len(t.patch.s)
	if g.vnni {
		gt.depth *= 2
	}
	epi, turned := c.Epilogue, false
	pixel, weight := pixelCost*c.X.Type.Size(), weightCost*c.W.Type.Size()
	if !merge && g.gap == 0 {
		cols = colRun{}
	}
	if c.ChannelsLast {
		dst.LD, dst.Stride = channels, [2]int{0, per}
		t.sources, gt.fixed[1], cols = [2]tableSource{patches, weights}, weights.fixed, colRun{}
		gt.rows, gt.cols, gt.items, gt.reading = c.N*px, per, c.Groups, [2]int{}
	} else if epi.Bias, epi.RowBias = (Buf{}), epi.Bias; m.pixelsAsRows(c, per, images*px) {
		t.sources, gt.fixed[1] = [2]tableSource{patches, weights}, weights.fixed
		gt.rows, gt.cols, gt.items, turned = all, per, c.N/images*c.Groups, true
		gt.reading = [2]int{pixel, weight}
	} else {
		t.sources, gt.fixed[0] = [2]tableSource{weights, patches}, weights.fixed
		gt.rows, gt.cols, gt.items = per, all, c.N/images*c.Groups
		gt.reading = [2]int{weight, pixel}
	}
	epi.Residual.LD, epi.Residual.Stride = dst.LD, dst.Stride
	gt.a, gt.b, gt.indirect, gt.prefetch, gt.endings = &t.sources[0], &t.sources[1], t.sources[1].indirect(), true, true
	gt.out = output{p: m.Path, c: dst, inner: c.Groups, epi: epi, perGroup: per, cols: cols, turned: turned}
	m.multiply(gt)
}

// pixelsAsRows reports whether the pixels of a channels-first product are its rows, and its tiles
// are transposed before they are stored. That is so if weights packed ahead fill whole tiles, and
// pixels as columns would leave a sixth of the last tiles empty.
func (m *Machine) pixelsAsRows(c *Conv, per, pixels int) bool {
	rest := pixels % m.nr
	if rest > 0 {
		rest = m.width(rest) - rest
	}
	return c.Fixed.Weights != nil && c.PostOp == nil && !(m.amx != nil && m.usesVNNI(c.X.Type, c.W.Type)) && per%m.nr == 0 && 6*rest > pixels && pixels > m.mr
}

// weights is the table of the weights as an operand: lanes are output channels of the product,
// depths are its patch. If swapped is set, the product reduces over K and its results are channels
// C; if zip is set, the other operand consists of words.
func (m *Machine) weights(lanes, depths int, swapped, zip bool) tableSource {
	t, c := &m.conv, m.conv.c
	if zip && c.Weights == OIX {
		return m.vnniWeights(swapped)
	}
	es, taps := c.W.Type.Size(), volume(c.Kernel)
	so, si, sx := c.weightStrides()
	group := c.K / c.Groups * so
	ls, ds := so, si
	if swapped {
		ls, ds = si, so
	}
	lane, depth := &t.table[2], &t.table[3]
	lane.strided(1, 0, lanes, ls*es)
	switch {
	case c.ChannelsLast:
		depth.strided(taps, sx*es, depths, ds*es)
	case zip:
		depth.zipped(depths, ds*es, taps, sx*es)
	default:
		depth.strided(depths, ds*es, taps, sx*es)
	}
	return tableSource{p: m.Path, buf: c.W, item: [2]int{0, group}, inner: c.Groups, lane: lane.s, depth: depth.s, byLane: ls == 1, tf32: c.TF32, zip: zip, fixed: c.fixed(swapped, zip)}
}

// weightStrides are the distances, in elements, between output channels, input channels and taps.
func (c *Conv) weightStrides() (o, i, x int) {
	in, taps := c.C/c.Groups, volume(c.Kernel)
	switch c.Weights {
	case OXI:
		return in * taps, 1, in
	case XIO:
		return 1, c.K, in * c.K
	default:
		return in * taps, taps, 1
	}
}

// extent is the size of the padded image that the taps of a convolution reach.
func (c *Conv) extent() (e [3]int) {
	for a := range 3 {
		e[a] = max((c.Out[a]-1)*c.Stride[a]+(c.Kernel[a]-1)*c.Dilation[a]+1, c.Pad[a]+c.In[a])
	}
	return e
}
