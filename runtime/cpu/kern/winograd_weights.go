package kern

// winoFlip are the points of the taps read backwards: the first and the last point of a line change
// places.
var winoFlip = [winoPoints]int{15, 13, 14, 12, 7, 5, 6, 4, 11, 9, 10, 8, 3, 1, 2, 0}

// weightTable describes the weights. Rows of the product are lanes; depths are channels by taps, or
// taps by channels if the weights have that order. The taps of a slice follow those of the previous
// one; of cubes, those of all channels. If turned is set, the product reduces over K and its
// results are channels C, by taps read backwards.
func (t *winoTask) weightTable(turned bool) {
	m, c := t.m, t.c
	es := c.W.Type.Size()
	so, si, sx := c.weightStrides()
	ls, ds := so, si
	if turned {
		ls, ds = si, so
	}
	t.flip, t.byTap = turned, sx != 1
	lane, depth := &m.conv.table[2], &m.conv.table[3]
	lane.strided(1, 0, t.rows, ls*es)
	deep := t.c.Kernel[0]
	switch {
	case t.byTap && t.cubes:
		depth.nested([3]int{deep, 9, t.channels}, [3]int{9 * sx * es, sx * es, ds * es})
	case t.byTap:
		depth.nested([3]int{9, t.deep, t.channels}, [3]int{sx * es, 9 * sx * es, ds * es})
	default:
		depth.nested([3]int{deep, t.channels, 9}, [3]int{9 * sx * es, ds * es, sx * es})
	}
	t.weights = tableSource{p: m.Path, buf: c.W, inner: 1, lane: lane.s, depth: depth.s, byLane: ls == 1}
	t.upoint = t.depth*ceilDiv(t.rows, t.panels) + m.vw
}

// transformWeights transforms the weights, or finds their transformed form.
func (t *winoTask) transformWeights() {
	m, c := t.m, t.c
	n := t.panels*t.points()*t.upoint + m.vw
	l := Layout{Kind: "winograd", Of: [20]int{t.rows, t.depth, int(c.W.Type), c.Fixed.At, flag(t.flip), int(c.Weights), t.deep, t.sets}}
	t.u = m.transformed(c, &l, n, t)
}

// transformed is the n floats of the transformed weights of c, in layout l, which p writes.
func (m *Machine) transformed(c *Conv, l *Layout, n int, p packer) []float32 {
	if c.Fixed.Weights != nil {
		if u := c.Fixed.form(m, l, n, p); u != nil {
			return u
		}
	}
	u := m.winoMem.get(n)
	p.packAll(m, u)
	return u
}

// packAll transforms the weights into dst.
func (t *winoTask) packAll(m *Machine, dst []float32) {
	t.u, t.mode = dst, winoWeightsMode
	b := depthsBox(t.panels, t.depth, 2*t.points()*t.rows*t.depth)
	t.weightPart = m.divide(b, m.pool.share())
	m.runDivided(&b, t.weightPart, t)
}

// transformedDepths is how many depths of a panel of weights are transformed as one, at least.
const transformedDepths = 32

// depthsBox is the work of transforming panels of weights: groups of depths.
func depthsBox(panels, depth, work int) box {
	units := ceilDiv(depth, transformedDepths)
	return box{items: panels, rows: units, cols: 1, cell: ceilDiv(work, panels*units), task: taskCost}
}

// depthsOf are the depths of task i of a division of a depthsBox, and its panel.
func (d *Division) depthsOf(i, depth int) (panel, d0, d1 int) {
	part, units := i%d.rows, ceilDiv(depth, transformedDepths)
	return i / d.rows, bound(part, d.rows, units) * transformedDepths, min(bound(part+1, d.rows, units)*transformedDepths, depth)
}

// weightPanel transforms depths [d0,d1) of the weights of a panel of rows: the rows of a channel are contiguous, as
// tiles read them.
func (t *winoTask) weightPanel(w *worker, i, d0, d1 int) {
	p, x, n := t.m.Path, &w.wino, d1-d0
	r0, r1 := t.panel(i)
	set := 9 * n * p.vw // floats of a set of points
	flat := x.planes.get((1+t.sets)*set + p.vw)
	taps := tapRange{&t.weights, t.byTap, t.depth, d0, d1}
	taps.pack(w, flat, r0, r1-r0, 0)
	if t.cubes {
		taps.pack(w, flat[set:], r0, r1-r0, 1)
		taps.pack(w, flat[2*set:], r0, r1-r0, 2)
		p.winoDepthTaps(flat, set)
	}
	step, tap := 9*p.vw, p.vw
	if t.byTap {
		step, tap = p.vw, n*p.vw
	}
	last := n
	if d1 < t.depth { // another worker may transform what follows now, see gemmTask.packDepths
		last -= ceilDiv(p.vw, r1-r0)
	}
	for k := range t.sets {
		to := t.u[(i*t.points()+k*winoPoints)*t.upoint+d0*(r1-r0):]
		p.wino.three(last, p.vw, &to[0], r1-r0, t.upoint, &flat[k*set], step, 3*tap, tap, 2*tap)
		if last < n {
			t.transformEdge(w, to[last*(r1-r0):], n-last, r1-r0, flat[k*set+last*step:], step, tap)
		}
	}
}

// transformEdge transforms n depths of rows weights without writing behind them.
func (t *winoTask) transformEdge(w *worker, to []float32, n, rows int, from []float32, step, tap int) {
	p, point := t.m.Path, t.m.mr+2*t.m.vw
	edge := w.edge.get(winoPoints * point)
	p.wino.three(n, p.vw, &edge[0], rows, point, &from[0], step, 3*tap, tap, 2*tap)
	for i := range winoPoints {
		copy(to[i*t.upoint:][:n*rows], edge[i*point:])
	}
}

// tapRange is depths [d0,d1) of weights with nine taps: taps of channels, or channels of taps.
type tapRange struct {
	s             *tableSource
	byTap         bool
	depth, d0, d1 int
}

// pack packs n lanes of a slice, a vector wide.
func (r *tapRange) pack(w *worker, dst []float32, l0, n, slice int) {
	vw, from, some := r.s.p.vw, 9*slice*r.depth, r.d1-r.d0
	if !r.byTap || some == r.depth {
		r.s.pack(w, dst, vw, 0, l0, n, from+9*r.d0, 9*some)
		return
	}
	for tap := range 9 {
		r.s.pack(w, dst[tap*some*vw:], vw, 0, l0, n, from+tap*r.depth+r.d0, some)
	}
}
