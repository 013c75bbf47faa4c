package kern

// winoBand is the tile rows of one image in a block. Its padded image has two rows for each tile
// row, and two more.
type winoBand struct {
	image, y0, y1 int // tile rows
	x0, x1        int // tiles of a row: all of them, unless the band has only one row
	row           int // first row on the padded image
	part          int // first row of its results among those of a block
}

// winoSeg is a run of tiles, up to a vector, in one tile row and one panel.
type winoSeg struct {
	image, y, x, n int // tiles x to x+n of tile row y
	at             int // number of the first in its block
	row, col       int // of the padded image, in tiles along it
	part           int // row of the block's results
}

// winoRun is a stretch of a channel's results of a block.
type winoRun struct {
	slice, pixel, n int
	part            int // position in the block's results
}

// divide lists the bands and the segments of tiles [t0,t1), and the runs of their results.
func (t *winoTask) divide(x *winoWorker, t0, t1 int) {
	x.bands, x.rows, x.segs, x.runs = x.bands[:0], x.rows[:0], x.segs[:0], x.runs[:0]
	per, row, part := t.tiles[0]*t.tiles[1], 0, 0
	for at := t0; at < t1; {
		image := at / per
		end := min(t1, (image+1)*per)
		b := winoBand{image, at % per / t.tiles[1], (end-1)%per/t.tiles[1] + 1, 0, t.tiles[1], row, part}
		if b.y1-b.y0 == 1 {
			b.x0, b.x1 = at%t.tiles[1], (end-1)%t.tiles[1]+1
		}
		x.bands = append(x.bands, b)
		row, part = row+2*(b.y1-b.y0)+2, part+2*(b.y1-b.y0)
		for at < end {
			s := winoSeg{image: image, y: at % per / t.tiles[1], x: at % t.tiles[1], at: at - t0}
			s.n, s.col = min(t.tiles[1]-s.x, end-at), s.x-b.x0
			s.row, s.part = b.row+2*(s.y-b.y0), b.part+2*(s.y-b.y0)
			x.rows = append(x.rows, s)
			t.cut(x, s)
			at += s.n
		}
	}
	for half := range 1 + flag(t.cubes) {
		for i := range x.rows {
			if half < t.halves(x.rows[i].image) {
				t.addRun(x, &x.rows[i], half)
			}
		}
	}
}

// partRows is the number of rows of results of one slice in the bands.
func (x *winoWorker) partRows() int {
	b := &x.bands[len(x.bands)-1]
	return b.part + 2*(b.y1-b.y0)
}

// cut lists a run of tiles of one row in segments.
func (t *winoTask) cut(x *winoWorker, s winoSeg) {
	for left := s.n; left > 0; {
		s.n = min(t.m.vw, left, t.m.nr-s.at%t.m.nr)
		x.segs = append(x.segs, s)
		s.at, s.x, s.col, left = s.at+s.n, s.x+s.n, s.col+s.n, left-s.n
	}
}

// addRun lists the results of a run of tiles of one row. It extends the previous run if the two are
// contiguous.
func (t *winoTask) addRun(x *winoWorker, s *winoSeg, half int) {
	width := t.result[1]
	for i := range 1 + t.below(s, 1) {
		r := winoRun{t.slice(s.image, half), (2*s.y+i)*width + 2*s.x, min(2*s.n, width-2*s.x), (half*x.partRows()+s.part+i)*width + 2*s.x}
		if k := len(x.runs) - 1; k >= 0 && x.runs[k].slice == r.slice && x.runs[k].pixel+x.runs[k].n == r.pixel {
			x.runs[k].n += r.n
		} else {
			x.runs = append(x.runs, r)
		}
	}
}

// paddedSize is the number of rows of the padded image of the bands, and the number of even, or odd, pixels of a row.
func (x *winoWorker) paddedSize() (rows, half int) {
	for i := range x.bands {
		b := &x.bands[i]
		rows, half = b.row+2*(b.y1-b.y0)+2, max(half, b.x1-b.x0+1)
	}
	return rows, half
}

// vpoint is the distance of points of a panel of transformed tiles, in which channels have nr tiles
// each. It is not a power of two, so that points do not share a set of the cache.
func (t *winoTask) vpoint() int { return t.depth*t.m.nr + 16 }

// winoPadded is the approximate number of floats of a padded image that are in use at a time; they stay in the
// first-level cache.
const winoPadded = 4 << 10

// transformTiles transforms the tiles of the block. Some channels at a time are copied to a padded image, whose rows have
// their even pixels first and their odd pixels after them; for cubes there is such an image for every set of points.
func (t *winoTask) transformTiles(w *worker) {
	x, vp := &w.wino, t.vpoint()
	rows, odd := x.paddedSize()
	plane := 2*odd*rows + 8
	group := max(1, min(t.channels, winoPadded/(plane*t.sets)))
	if t.image.channel == 1 || t.image.buf.Type != F32 {
		group = min(t.channels, roundUp(group, t.m.tw))
	}
	size := group * plane
	padded := x.padded.get((1+t.sets)*size + 2*t.m.nr)
	clear(padded)
	last := &x.segs[len(x.segs)-1]
	x.v.get(ceilDiv(last.at+last.n, t.m.nr)*t.points()*vp + 16)
	for first := 0; first < t.depth; first += t.channels {
		for ch := 0; ch < t.channels; ch += group {
			n := min(group, t.channels-ch)
			for i := range t.sets {
				for b := range x.bands {
					t.padBand(w, &x.bands[b], first/t.channels+i, ch, n, padded[i*size:], plane, odd)
				}
			}
			if t.cubes {
				t.m.winoDepth(padded, size)
			}
			for set := range t.sets {
				t.transformSet(x, set, first+ch, n, padded[set*size:], plane, odd)
			}
		}
	}
}

// transformSet transforms n channels of padded images to the tiles of a set of points, from channel ch of the product on.
func (t *winoTask) transformSet(x *winoWorker, set, ch, n int, padded []float32, plane, odd int) {
	nr, vp := t.m.nr, t.vpoint()
	for i := range x.segs {
		s := &x.segs[i]
		lane, lanes := s.at%nr, t.m.vw
		if lane+lanes > nr {
			lanes = s.n // the next channel's lanes are already there
		}
		to := x.v.s[(s.at/nr*t.points()+set*winoPoints)*vp+ch*nr+lane:]
		t.m.wino.in(n, lanes, &to[0], nr, vp, &padded[s.row*2*odd+s.col], plane, 2*odd, odd, 1)
	}
}

// slicePlace is the position, in its volume, of the k-th of the image's slices that a tile of it
// uses.
func (t *winoTask) slicePlace(image, k int) int {
	if t.cubes {
		return image%t.images*2 + t.first + k
	}
	return image%t.images + t.first + k*t.sign
}

// padBand copies n channels, from ch on, of the k-th slice that a band uses to the padded image.
// The odd pixels of a row are the given distance after the even ones.
func (t *winoTask) padBand(w *worker, b *winoBand, k, ch, n int, padded []float32, plane, odd int) {
	slice := t.slicePlace(b.image, k)
	if slice < 0 || slice >= t.slices[0] {
		for i := range n {
			clear(padded[i*plane+b.row*2*odd:][:(2*(b.y1-b.y0)+2)*2*odd])
		}
		return
	}
	first := 2*b.y0 - t.lo[0] // row of the image that is the first of the padded image
	y0, y1 := max(0, first), min(t.size[0], first+2*(b.y1-b.y0)+2)
	lo := t.lo[1] - 2*b.x0 // where the image's first pixel would be on the padded image
	x0, lo := max(0, -lo), max(0, lo)
	cols := min(t.size[1]-x0, 2*(b.x1-b.x0+1)-lo)
	if y1 <= y0 || cols <= 0 {
		return
	}
	even, other := lo/2, odd+lo/2
	if lo%2 > 0 {
		even, other = odd+lo/2, lo/2+1
	}
	src, apart := t.flat(w, b.image/t.images, slice, y0, y1, ch, n)
	for i := range n {
		to := padded[i*plane+(b.row+y0-first)*2*odd:]
		t.m.unzipRows(y1-y0, cols, to[even:], to[other:], 2*odd, src[i*apart+x0:], t.size[1])
	}
}

// flat is rows [y0,y1) of n channels of a slice in f32, as contiguous planes: in place if possible,
// otherwise copied.
func (t *winoTask) flat(w *worker, volume, slice, y0, y1, ch, n int) (src []float32, apart int) {
	g, rows := &t.image, (y1-y0)*t.size[1]
	from := g.buf.From(volume*g.item[0] + ch*g.channel + slice*g.axis[0] + y0*g.axis[1])
	if g.channel != 1 && from.Type == F32 {
		return from.f32(), g.channel
	}
	apart = roundUp(rows, 16) + 16
	flat := w.wino.planes.get(n * apart)
	if g.channel != 1 {
		for i := range n {
			t.m.Load(flat[i*apart:][:rows], from.From(i*g.channel))
		}
		return flat, apart
	}
	p := t.m.Path
	w.offs = getInts(&w.offs, p.tw)
	for r := range p.tw {
		w.offs[r] = r * g.axis[2] * from.Type.Size()
	}
	for px := 0; px < rows; px += p.tw {
		p.trans[from.Type](n, min(p.tw, rows-px), &flat[px], apart, from.at(px*g.axis[2]), &w.offs[0])
	}
	return flat, apart
}
