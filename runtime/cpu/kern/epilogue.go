package kern

import (
	"math"
	"slices"
)

// output is the destination of a product: the matrix and the epilogue.
type output struct {
	p     *Path
	c     Mat
	inner int
	epi   Epilogue

	perGroup int // bias elements that an inner batch item moves on
	cols     colRun
	turned   bool // the product is the transpose of C: its rows are C's columns
}

// colRun describes columns that cover the images of a channels-first batch: column j of C is column j%n of image j/n,
// and images are jump elements apart. An image's columns are its pixels; where gap is not 0, they are row pixels and gap
// columns that are no pixels in turn, and end with pixels. If n is 0, columns are contiguous.
type colRun struct{ n, jump, row, gap int }

// at returns the offset of column j in C, how many of the n columns from it are contiguous there,
// and after how many columns the next ones begin: the columns between are not in C.
func (r *colRun) at(j, n int) (off, same, step int) {
	if r.n == 0 {
		return j, n, n
	}
	image, x := j/r.n, j%r.n
	n = min(n, r.n-x)
	if r.gap == 0 {
		return image*r.jump + x, n, n
	}
	y, x := x/(r.row+r.gap), x%(r.row+r.gap)
	return image*r.jump + y*r.row + min(x, r.row), max(0, min(n, r.row-x)), min(n, r.row+r.gap-x)
}

// touch prefetches the memory that the epilogue of a tile of h rows of n will read or write, while the tile is
// computed.
func (o *output) touch(item, i, h, j, n int) {
	if o.p.touch == nil {
		return
	}
	if o.turned {
		i, h, j, n = j, n, i, h
	}
	at, n, _ := o.cols.at(j, n)
	for _, m := range [...]*Mat{&o.c, &o.epi.Residual} {
		if size := m.Type.Size(); !m.absent() && n > 0 {
			o.p.touch(h, m.at(m.item(item, o.inner)+i*m.LD+at), m.LD*size, n*size)
		}
	}
}

// applyEpilogue applies the epilogue to a complete tile (h rows of n, nr apart) and stores it at row i, column j. If C
// is absent it stores the tile in rows of part.
func (o *output) applyEpilogue(w *worker, tile []float32, item, i, h, j, n int, part []float32, ldp int) {
	if o.turned {
		o.turn(w, tile, item, i, h, j, n)
		return
	}
	o.toRows(w, tile, item, i, h, j, n, part, ldp)
}

// turn is toRows for the transpose of a tile.
func (o *output) turn(w *worker, tile []float32, item, i, h, j, n int) {
	p := o.p
	w.offs = getInts(&w.offs, p.tw)
	for r := range w.offs[:p.tw] {
		w.offs[r] = 4 * r * p.nr
	}
	turned := w.turned.get(p.nr * p.nr)
	for r := 0; r < h; r += p.nr {
		some := min(p.nr, h-r)
		for k := 0; k < some; k += p.tw {
			p.trans[F32](n, min(p.tw, some-k), &turned[k], p.nr, bytes(&tile[(r+k)*p.nr]), &w.offs[0])
		}
		o.toRows(w, turned, item, j, n, i+r, some, nil, 0)
	}
}

// toRows is applyEpilogue for a tile of rows of C.
func (o *output) toRows(w *worker, tile []float32, item, i, h, j, n int, part []float32, ldp int) {
	p, e := o.p, &o.epi
	if o.finishes() {
		o.finish(w, tile, item, i, h, j, n, part, ldp)
		return
	}
	tile = tile[:h*p.nr]
	if e.Scale != 0 && e.Scale != 1 {
		p.axpb(len(tile), &tile[0], &tile[0], e.Scale, 0)
	}
	if !e.Bias.absent() {
		row := w.row[0].get(p.nr)
		p.Load(row[:n], e.Bias.From(item%o.inner*o.perGroup+j))
		p.tileBias(h, &tile[0], &row[0])
	}
	if !e.RowBias.absent() {
		shift := w.row[0].get(h)
		p.Load(shift, e.RowBias.From(item%o.inner*o.perGroup+i))
		p.tileShift(h, &tile[0], &shift[0])
	}
	if e.Act != NoAct {
		p.unary[actOps[e.Act]](len(tile), &tile[0], &tile[0])
	}
	for done := 0; done < n; {
		at, same, step := o.cols.at(j+done, n-done)
		o.put(w, tile[done:], item, i, h, at, same)
		if o.c.absent() {
			o.p.put[F32](h, same, bytes(&part[done]), ldp, &tile[done])
		}
		done += step
	}
}

// finishes reports whether the path applies the whole epilogue by a finishFunc.
func (o *output) finishes() bool { return o.epi.Bias.absent() && o.onePass() }

// onePass reports whether the path applies the whole epilogue, apart from Bias, in one pass.
func (o *output) onePass() bool {
	e, t := &o.epi, o.stored()
	return o.p.finish[t] != nil && (e.Scale == 0 || e.Scale == 1) && e.Act <= ActRelu && e.Last <= ActRelu && !e.Accumulate &&
		(e.Residual.absent() || e.Residual.Type == t)
}

// stored is the type in which rows of tiles are stored.
func (o *output) stored() Type {
	if o.c.absent() {
		return F32
	}
	return o.c.Type
}

var (
	minusZeros = slices.Repeat([]float32{float32(math.Copysign(0, -1))}, 16)
	// limitsOf are a finishFunc's for Act and Last.
	limitsOf = [2][2][4]float32{
		{{negInf, minusZeros[0], negInf, minusZeros[0]}, {negInf, minusZeros[0], 0, 0}},
		{{0, 0, negInf, minusZeros[0]}, {0, 0, 0, 0}},
	}
)

// finish is applyEpilogue by a finishFunc.
func (o *output) finish(w *worker, tile []float32, item, i, h, j, n int, part []float32, ldp int) {
	p, e := o.p, &o.epi
	shift := w.row[0].get(h)
	if e.RowBias.absent() {
		for r := 0; r < h; r += len(minusZeros) {
			copy(shift[r:], minusZeros)
		}
	} else {
		p.Load(shift, e.RowBias.From(item%o.inner*o.perGroup+i))
	}
	limits := &limitsOf[e.Act][e.Last]
	for done := 0; done < n; {
		at, same, step := o.cols.at(j+done, n-done)
		dst, ldd := (*byte)(nil), ldp
		if o.c.absent() {
			dst = bytes(&part[done])
		} else {
			dst, ldd = o.c.at(o.c.item(item, o.inner)+i*o.c.LD+at), o.c.LD
		}
		add, r := (*byte)(nil), &e.Residual
		if !r.absent() {
			add = r.at(r.item(item, o.inner) + i*r.LD + at)
		}
		p.finish[o.stored()](h, same, dst, ldd, &tile[done], &shift[0], add, r.LD, &limits[0])
		done += step
	}
}

// put adds the old values, if required, and stores n contiguous columns at offset at of a row, unless C is absent.
func (o *output) put(w *worker, tile []float32, item, i, h, at, n int) {
	p := o.p
	if !o.epi.Residual.absent() {
		o.add(w, tile, &o.epi.Residual, item, i, h, at, n)
		if o.epi.Last != NoAct {
			for r := range h {
				p.unary[actOps[o.epi.Last]](n, &tile[r*p.nr], &tile[r*p.nr])
			}
		}
	}
	if o.epi.Accumulate {
		o.add(w, tile, &o.c, item, i, h, at, n)
	}
	if o.c.absent() {
		return
	}
	at += o.c.item(item, o.inner) + i*o.c.LD
	p.put[o.c.Type](h, n, o.c.at(at), o.c.LD, &tile[0])
}

// add adds the same columns of m.
func (o *output) add(w *worker, tile []float32, m *Mat, item, i, h, at, n int) {
	p := o.p
	old := w.row[1].get(h * p.nr)
	p.rows[m.Type](h, n, &old[0], p.nr, m.at(m.item(item, o.inner)+i*m.LD+at), m.LD)
	if o.cols.n == 0 { // what is added past n is not stored
		p.binary[Add](len(old), &tile[0], &tile[0], &old[0])
		return
	}
	for r := range h {
		p.binary[Add](n, &tile[r*p.nr], &tile[r*p.nr], &old[r*p.nr])
	}
}
