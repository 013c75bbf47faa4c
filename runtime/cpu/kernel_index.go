package cpu

import (
	"slices"

	"ampc/ir"
)

// indexKernels move elements by index or number them. An id outside its axis is bad data, and the
// step fails.
var indexKernels = map[ir.Op]binder{
	ir.OpEmbedding:      bindEmbedding,
	ir.OpEmbeddingGrad:  bindEmbeddingGrad,
	ir.OpGather:         bindGather,
	ir.OpGatherElements: bindGatherElements,
	ir.OpScatter:        bindScatter,
	ir.OpScatterAdd:     bindScatter,
	ir.OpOneHot:         bindOneHot,
	ir.OpIota:           bindIota,
	ir.OpTril:           bindTriangle,
	ir.OpTriu:           bindTriangle,
	ir.OpTopK:           bindTopK,
	ir.OpPad:            bindPad,
	ir.OpConcat:         bindConcat,
	ir.OpResize:         bindResize,
	ir.OpResizeGrad:     bindResize,
}

// checkIds fails the step if an id is outside 0..n-1. It reports whether all are inside.
func (c *call) checkIds(ids view, n int) bool {
	for i := range ids.len() {
		if id := ids.int(i); id < 0 || id >= int64(n) {
			c.fail("id %d at place %d is outside 0..%d", id, i, n-1)
			return false
		}
	}
	return true
}

func bindEmbedding(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	d, post := c.in[0].dims(), c.postOp()
	return func() {
		if c.checkIds(c.in[1], d[0]) {
			c.m.Gather(c.out[0].buf(), c.in[0].buf(), c.in[1].index(), d[1], post)
		}
	}, nil
}

func bindEmbeddingGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	d := c.out[0].dims()
	return func() {
		if c.checkIds(c.in[1], d[0]) {
			c.m.ScatterAdd(c.out[0].buf(), c.in[0].buf(), c.in[1].index(), d[1], true)
		}
	}, nil
}

// bytes returns the part of v that holds n elements from element i on.
func (v view) bytes(i, n int) []byte {
	s := int(v.t.DType.Size())
	return v.mem[i*s : (i+n)*s]
}

func bindGather(c *call) (func(), error) {
	x, ids, y := c.in[0], c.in[1], c.out[0]
	outer, size, inner := around(x.dims(), c.Axis())
	picks := ids.len()
	run := c.parallel(outer*picks, max(inner, 1), func(_, i int) {
		from := i/picks*size + int(ids.int(i%picks))
		copy(y.bytes(i*inner, inner), x.bytes(from*inner, inner))
	})
	return func() {
		if c.checkIds(ids, size) {
			run()
		}
	}, nil
}

// indexer iterates over a tensor of ids and the tensor that they index along an axis.
type indexer struct {
	dims, strides []int // sizes of the ids; strides of the indexed tensor
	axis          int
}

func newIndexer(ids, x view, axis int) indexer {
	p := indexer{dims: ids.dims(), strides: make([]int, x.t.Shape.Rank()), axis: axis}
	st := 1
	d := x.dims()
	for i := len(d) - 1; i >= 0; i-- {
		p.strides[i] = st
		st *= d[i]
	}
	return p
}

// place returns the element that id number i, of value id, selects.
func (p *indexer) place(i int, id int64) int {
	at := int(id) * p.strides[p.axis]
	for d := len(p.dims) - 1; d >= 0; d-- {
		if d != p.axis {
			at += i % p.dims[d] * p.strides[d]
		}
		i /= p.dims[d]
	}
	return at
}

func bindGatherElements(c *call) (func(), error) {
	x, ids, y := c.in[0], c.in[1], c.out[0]
	axis := c.Axis()
	p := newIndexer(ids, x, axis)
	run := c.chunks(y.len(), 1<<12, 1, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			copy(y.bytes(i, 1), x.bytes(p.place(i, ids.int(i)), 1))
		}
	})
	size := x.dims()[axis]
	return func() {
		if c.checkIds(ids, size) {
			run()
		}
	}, nil
}

// assign converts element j of src to element i of v.
func (v view) assign(i int, src view, j int) {
	switch {
	case v.t.DType == src.t.DType:
		copy(v.bytes(i, 1), src.bytes(j, 1))
	case v.t.DType == ir.F64 && src.t.DType.Float():
		slice[float64](v.mem)[i] = float64(src.float(j))
	case v.t.DType.Float():
		v.set(i, src.float(j))
	default:
		v.setInt(i, src.int(j))
	}
}

// bindScatter replaces or adds single elements. One worker does this in order, because ids may
// repeat. Sums are kept in f32 and rounded once.
func bindScatter(c *call) (func(), error) {
	x, ids, u, y := c.in[0], c.in[1], c.in[2], c.out[0]
	p := newIndexer(ids, x, c.Axis())
	size := x.dims()[c.Axis()]
	if c.Op == ir.OpScatterAdd {
		if err := c.onlyFloats(); err != nil {
			return nil, err
		}
		sum := c.mem.whole(y.len())
		return func() {
			if !c.checkIds(ids, size) {
				return
			}
			c.m.Load(sum, x.buf())
			for i := range u.len() {
				sum[p.place(i, ids.int(i))] += u.float(i)
			}
			c.m.Store(y.buf(), sum)
		}, nil
	}
	return func() {
		if !c.checkIds(ids, size) {
			return
		}
		for i := range y.len() {
			y.assign(i, x, i)
		}
		for i := range u.len() {
			y.assign(p.place(i, ids.int(i)), u, i)
		}
	}, nil
}

// number stores x in any dtype.
func (v view) number(i int, x int64) {
	if v.t.DType.Float() {
		v.set(i, float32(x))
	} else {
		v.setInt(i, v.t.DType.Wrap(x))
	}
}

func bindOneHot(c *call) (func(), error) {
	ids, y := c.in[0], c.out[0]
	axis := int(c.Int("axis"))
	if axis < 0 {
		axis += y.t.Shape.Rank()
	}
	_, depth, inner := around(y.dims(), axis)
	return func() {
		clear(y.mem)
		for i := range ids.len() {
			if id := ids.int(i); id >= 0 && id < int64(depth) {
				y.number((i/inner*depth+int(id))*inner+i%inner, 1)
			}
		}
	}, nil
}

func bindIota(c *call) (func(), error) {
	y := c.out[0]
	axis := int(c.Int("axis"))
	if axis < 0 {
		axis += y.t.Shape.Rank()
	}
	_, n, inner := around(y.dims(), axis)
	return c.chunks(y.len(), 1<<14, 1, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			y.number(i, int64(i/inner%n))
		}
	}), nil
}

// bindTriangle copies the part of each row inside the triangle and clears the rest.
func bindTriangle(c *call) (func(), error) {
	x, y, k := c.in[0], c.out[0], int(c.Int("k"))
	d := x.dims()
	rows, cols := d[len(d)-2], d[len(d)-1]
	total := 0
	if cols > 0 {
		total = x.len() / cols
	}
	return c.parallel(total, cols, func(_, i int) {
		cut := min(max(i%rows+k, -1)+1, cols) // tril keeps columns below cut
		lo, hi := 0, cut
		if c.Op == ir.OpTriu {
			lo, hi = min(max(i%rows+k, 0), cols), cols
		}
		clear(y.bytes(i*cols, lo))
		copy(y.bytes(i*cols+lo, hi-lo), x.bytes(i*cols+lo, hi-lo))
		clear(y.bytes(i*cols+hi, cols-hi))
	}), nil
}

// before reports whether x[i] precedes x[j] in descending (or ascending) order. NaN is the largest
// value.
func (v view) before(i, j int, ascending bool) bool {
	if !v.t.DType.Float() {
		a, b := v.t.DType.Order(v.int(i)), v.t.DType.Order(v.int(j))
		return a != b && a < b == ascending
	}
	a, b := v.float(i), v.float(j)
	switch {
	case a != a:
		return b == b && !ascending
	case b != b:
		return ascending
	case ascending:
		return a < b
	}
	return a > b
}

// sortPiece is about how many elements of a line are sorted, or searched, at a time.
const sortPiece = 1 << 12

// piecesOf is how many such pieces a line of n elements has.
func piecesOf(n int) int { return max(1, (n+sortPiece-1)/sortPiece) }

// topK finds the first k of n elements of lines along an axis, in order, and their places.
type topK struct {
	x, y, index view
	n, inner, k int
	smallest    bool
}

// sort sorts places of a line.
func (t *topK) sort(line int, order []int) {
	base := lineAt(line, t.n, t.inner)
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case t.x.before(base+a*t.inner, base+b*t.inner, t.smallest):
			return -1
		case t.x.before(base+b*t.inner, base+a*t.inner, t.smallest):
			return 1
		}
		return a - b
	})
}

// store stores the first k elements of sorted places.
func (t *topK) store(line int, order []int) {
	from, to := lineAt(line, t.n, t.inner), lineAt(line, t.k, t.inner)
	for i, at := range order[:t.k] {
		t.y.assign(to+i*t.inner, t.x, from+at*t.inner)
		t.index.setInt(to+i*t.inner, int64(at))
	}
}

// bindTopK sorts pieces of a line, then the first k elements of each piece.
func bindTopK(c *call) (func(), error) {
	t := &topK{x: c.in[0], y: c.out[0], index: c.out[1], smallest: c.Flag("smallest")}
	outer, n, inner := around(t.x.dims(), c.Axis())
	t.n, t.inner, t.k = n, inner, t.y.dims()[c.Axis()]
	k, pieces := t.k, piecesOf(n)
	if k > sortPiece/4 {
		pieces = 1
	}
	orders := perWorker(c.mem, func() []int { return make([]int, max((n+pieces-1)/pieces, pieces*k)) })
	piece := func(w, line, p int) []int {
		order := orders[w][:0]
		for at := p * n / pieces; at < (p+1)*n/pieces; at++ {
			order = append(order, at)
		}
		t.sort(line, order)
		return order
	}
	if pieces == 1 {
		return c.parallel(outer*inner, 8*max(n, 1), func(w, line int) { t.store(line, piece(w, line, 0)) }), nil
	}
	first := make([][]int, outer*inner*pieces) // of each piece
	best := slice[int](c.mem.bytes(int64(8 * len(first) * k)))
	sort := c.parallel(len(first), 8*(n/pieces), func(w, i int) {
		first[i] = best[i*k : i*k+copy(best[i*k:(i+1)*k], piece(w, i/pieces, i%pieces))]
	})
	merge := c.parallel(outer*inner, 8*pieces*k, func(w, line int) {
		order := orders[w][:0]
		for _, list := range first[line*pieces : (line+1)*pieces] {
			order = append(order, list...)
		}
		t.sort(line, order)
		t.store(line, order)
	})
	return func() {
		sort()
		merge()
	}, nil
}

// bindPad repeats the edge or reflects. A table for each axis gives the source of each element.
func bindPad(c *call) (func(), error) {
	x, y := c.in[0], c.out[0]
	d, out, lo := x.dims(), y.dims(), c.Ints("lo")
	reflect := c.Str("mode") == "reflect"
	from := make([][]int, len(d))
	st := 1
	for a := len(d) - 1; a >= 0; a-- {
		for i := range out[a] {
			p := i - int(lo[a])
			switch {
			case !reflect:
				p = min(max(p, 0), d[a]-1)
			case p < 0:
				p = -p
			case p >= d[a]:
				p = 2*(d[a]-1) - p
			}
			from[a] = append(from[a], p*st)
		}
		st *= d[a]
	}
	return c.chunks(y.len(), 1<<12, 1, func(_, start, end int) {
		for i := start; i < end; i++ {
			src, rest := 0, i
			for a := len(out) - 1; a >= 0; a-- {
				src += from[a][rest%out[a]]
				rest /= out[a]
			}
			copy(y.bytes(i, 1), x.bytes(src, 1))
		}
	}), nil
}

// bindConcat concatenates operands and converts each element to the dtype of the result.
func bindConcat(c *call) (func(), error) {
	y := c.out[0]
	outer, size, inner := around(y.dims(), c.Axis())
	var all []func()
	first := 0
	for _, x := range c.in {
		k, at := x.dims()[c.Axis()]*inner, first
		all = append(all, c.chunks(outer*k, 1<<12, 1, func(_, lo, hi int) {
			for i := lo; i < hi; i++ {
				y.assign(i/k*size*inner+at+i%k, x, i)
			}
		}))
		first += k
	}
	return func() {
		for _, run := range all {
			run()
		}
	}, nil
}

// bindResize samples positions of planes of the last spatial axes. The gradient distributes the
// values over the source positions. Sums are in float64, in the order of the sampled positions.
func bindResize(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	from, to := c.in[0], c.out[0]
	gradient := c.Op == ir.OpResizeGrad
	sampled, source := to, from
	if gradient {
		sampled, source = from, to
	}
	r := newResizer(c, sampled.dims(), source.dims())
	if !gradient {
		return c.overLines(r.planes, r.sampledPlane, r.sampledPlane*4, func(_, k, i0, i1 int) {
			for i := i0; i < i1; i++ {
				sum := 0.0
				r.taps(i, func(j int, w float64) { sum += w * float64(from.float(r.source(k, j))) })
				to.set(r.sampled(k, i), float32(sum))
			}
		}), nil
	}
	sums := perWorker(c.mem, func() []float64 { return make([]float64, r.sourcePlane) })
	return c.overLines(r.planes, r.sourcePlane/max(1, r.sourceSt[0]), r.sampledPlane*4, func(w, k, l0, l1 int) {
		lo, hi := l0*r.sourceSt[0], l1*r.sourceSt[0]
		clear(sums[w][lo:hi])
		i0, i1 := r.reaching(l0, l1)
		for i := i0; i < i1; i++ {
			x := float64(from.float(r.sampled(k, i)))
			r.taps(i, func(j int, weight float64) {
				if j >= lo && j < hi {
					sums[w][j] += weight * x
				}
			})
		}
		for j := lo; j < hi; j++ {
			to.set(r.source(k, j), float32(sums[w][j]))
		}
	}), nil
}

// resizer has the planes, one per index of the axes that are not spatial. It knows which source
// positions contribute to each sampled position.
type resizer struct {
	planes                    int
	sampledPlane, sourcePlane int
	tables                    [][]ir.Tap
	sizes, sourceSt           []int // spatial sizes of the sampled plane, strides of the source plane
	inner                     int   // distance between elements of a plane (more than 1 for channels last)
}

func newResizer(c *call, sampled, source []int) *resizer {
	r := &resizer{planes: 1, sampledPlane: 1, sourcePlane: 1, inner: 1}
	axes := c.SpatialAxes()
	for a := range sampled {
		if !slices.Contains(axes, a) {
			r.planes *= sampled[a]
		}
	}
	for a := axes[len(axes)-1] + 1; a < len(sampled); a++ {
		r.inner *= sampled[a]
	}
	for _, a := range axes {
		r.tables = append(r.tables, c.ResizeTaps(source[a], sampled[a]))
		r.sizes = append(r.sizes, sampled[a])
		r.sampledPlane *= sampled[a]
	}
	r.sourceSt = make([]int, len(axes))
	for i := len(axes) - 1; i >= 0; i-- {
		r.sourceSt[i] = r.sourcePlane
		r.sourcePlane *= source[axes[i]]
	}
	return r
}

func (r *resizer) sampled(plane, i int) int {
	return (plane/r.inner*r.sampledPlane+i)*r.inner + plane%r.inner
}

func (r *resizer) source(plane, j int) int {
	return (plane/r.inner*r.sourcePlane+j)*r.inner + plane%r.inner
}

// reaching are the sampled positions to which lines [l0,l1) of the first spatial axis of the source contribute, and perhaps others
// between them.
func (r *resizer) reaching(l0, l1 int) (i0, i1 int) {
	lines, rest := r.tables[0], r.sampledPlane/max(1, r.sizes[0])
	touches := func(t ir.Tap) bool { return t.Lo >= l0 && t.Lo < l1 || t.Hi >= l0 && t.Hi < l1 }
	for i0 < len(lines) && !touches(lines[i0]) {
		i0++
	}
	for i1 = len(lines); i1 > i0 && !touches(lines[i1-1]); i1-- {
	}
	return i0 * rest, i1 * rest
}

// taps calls f with every source position that contributes to sampled position i, and its weight.
func (r *resizer) taps(i int, f func(j int, w float64)) {
	var at [3]int
	for a := len(r.sizes) - 1; a >= 0; a-- {
		at[a] = i % r.sizes[a]
		i /= r.sizes[a]
	}
	for corner := range 1 << len(r.sizes) {
		w, j := 1.0, 0
		for a := range r.sizes {
			t := r.tables[a][at[a]]
			if corner>>a&1 == 1 {
				w, j = w*t.W, j+t.Hi*r.sourceSt[a]
			} else {
				w, j = w*(1-t.W), j+t.Lo*r.sourceSt[a]
			}
		}
		if w != 0 {
			f(j, w)
		}
	}
}
