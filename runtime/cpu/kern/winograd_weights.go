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
	m.run(2*t.points()*t.rows*t.depth, t.panels, t)
}

// weightPanel transforms the weights of a panel of rows: the rows of a channel are contiguous, as
// tiles read them.
func (t *winoTask) weightPanel(w *worker, i int) {
	p, x := t.m.Path, &w.wino
	r0, r1 := t.panel(i)
	all, set := 9*t.depth, 9*t.depth*p.vw // depths of a set of points, and their floats
	flat := x.planes.get((1+t.sets)*set + p.vw)
	if t.cubes {
		t.weights.pack(w, flat, p.vw, 0, r0, r1-r0, 0, 3*all)
		p.winoDepthTaps(flat, set)
	} else {
		t.weights.pack(w, flat, p.vw, 0, r0, r1-r0, 0, all)
	}
	step, tap := 9*p.vw, p.vw
	if t.byTap {
		step, tap = p.vw, t.depth*p.vw
	}
	for k := range t.sets {
		to := &t.u[(i*t.points()+k*winoPoints)*t.upoint]
		p.wino.three(t.depth, p.vw, to, r1-r0, t.upoint, &flat[k*set], step, 3*tap, tap, 2*tap)
	}
}
