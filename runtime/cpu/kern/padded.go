package kern

import "unsafe"

// pad returns the images of g with zeros around and between their pixels: pixel i of an axis moves to position lo + i*step
// of size. Channels-first rows are split into phases, so that every phases-th pixel of a row is contiguous.
// An image that already has this layout is returned without a copy. A padded image has type typ, that of the image or F32. Where
// rows are read together, gap apart, they are split into phases, too.
func (m *Machine) pad(g grid, channels int, in, lo, step, size [3]int, phases int, typ Type, gap int) grid {
	c, t := m.conv.c, &m.conv
	if c.ChannelsLast {
		phases = 1
	}
	if in == size && phases == 1 && typ == g.buf.Type {
		return g
	}
	d := grid{channel: 1, phases: phases, gap: gap}
	px := channels
	row := roundUp(size[2], phases)
	if !c.ChannelsLast {
		px = 1
		d.channel = size[0] * size[1] * row
	}
	d.phase = row / phases * px
	d.axis = [3]int{size[1] * row * px, row * px, px}
	if gap > 0 && phases == 2 {
		half := ceilDiv(size[1], 2)
		d.rows, d.phase, d.rowPhase = 2, half*row/2, half*row
		d.axis[0], d.axis[1] = 2*half*row, row/2
		d.channel = size[0] * d.axis[0]
	}
	d.item = [2]int{channels * d.channel, channels / c.Groups * d.channel}
	if c.ChannelsLast {
		d.item[0] *= size[0] * size[1] * row
	}
	if c.N == 0 {
		return d
	}
	if step != [3]int{1, 1, 1} {
		typ = g.buf.Type
	}
	d.buf = t.padded.bytes(typ, c.N*d.item[0]+padSlack)
	clear(d.buf.From(c.N * d.item[0]).Data)
	d.buf.Data = d.buf.Data[:c.N*d.item[0]*typ.Size()]
	t.m, t.mode = m, padMode
	t.src, t.dst, t.size, t.lo, t.step, t.channels = g, d, in, lo, step, channels
	units, _ := t.planes(channels)
	if t.padsRows() {
		units = t.size[0] * t.size[1]
	}
	t.runParts(units, 2*len(d.buf.Data), 0)
	return d
}

// padsRows reports whether the units of the padded image are rows: channels lie last, and a row is
// longer than what kernels copy with others, or not adjacent in the padded image.
func (t *convTask) padsRows() bool {
	return t.c.ChannelsLast && (t.spreads() || t.size[2]*t.channels > t.m.nr)
}

// spreads reports whether pixels that are adjacent in the image are not in the padded one.
func (t *convTask) spreads() bool { return t.step != [3]int{1, 1, 1} || t.dst.phases > 1 }

// padSlack is the number of elements after a padded image that a tile may read: zeros after a row
// that are shared with the next row, and a tile's last columns.
const padSlack = 64

// runParts runs the task in so many units of each image, such as planes: a task is some of them, and costs something beside.
func (t *convTask) runParts(units, work, beside int) {
	if t.c.N == 0 {
		return
	}
	m := t.m
	t.units = max(1, units)
	b := box{items: t.c.N, rows: t.units, cols: 1, cell: work / (t.c.N * t.units), task: taskCost + beside}
	t.share = m.divide(b, m.pool.share())
	m.runDivided(&b, t.share, t)
}

// part returns the image of a task, and the task's part of the image's units.
func (t *convTask) part(i int) (image, u0, u1 int) {
	k := i % t.share.rows
	return i / t.share.rows, bound(k, t.share.rows, t.units), bound(k+1, t.share.rows, t.units)
}

// paddedType is the type of the padded image for results of the given size: F32 where tiles read it without packing.
func (m *Machine) paddedType(t Type, size [3]int, gap int) Type {
	if c := m.conv.c; m.indirect != nil && !m.usesVNNI(t, c.W.Type) && !c.ChannelsLast && !c.TF32 && !c.depthwise() && (size[2]%m.vw == 0 || gap > 0) {
		return F32
	}
	return t
}

// bytes is get for n elements of another format.
func (f *floats) bytes(t Type, n int) Buf {
	mem := f.get(max(1, ceilDiv(n*t.Size(), 4)))
	return Buf{t, unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), n*t.Size())}
}

// Run is the task of image n, or of a part of its planes.
func (t *convTask) Run(worker, n int) {
	switch t.mode {
	case padMode:
		t.copyImage(t.m.worker[worker], n)
	case thinMode:
		t.thinImage(t.m.worker[worker], n)
	case phaseMode:
		t.phaseImage(t.m.worker[worker], n)
	case scatterMode:
		t.scatterImage(worker, n)
	case depthMode:
		t.depthImage(t.m.worker[worker], n)
	case depthWeightMode:
		t.depthWeightImage(t.m.worker[worker], n)
	case turnMode:
		t.turnImage(t.m.worker[worker], n)
	case turnBackMode:
		t.turnBack(t.m.worker[worker], n)
	case weightMode:
		t.interleaveWeights(t.m.worker[worker], n)
	case vnniMode:
		t.interleaveImage(t.m.worker[worker], n)
	}
}

// planes returns the number of planes of an image, and the number of contiguous elements of a pixel.
func (t *convTask) planes(channels int) (planes, run int) {
	if t.c.ChannelsLast {
		return 1, channels
	}
	return channels, 1
}

// copyImage copies planes, or rows, of an image into its padded image.
func (t *convTask) copyImage(w *worker, task int) {
	planes, run := t.planes(t.channels)
	n, p0, p1 := t.part(task)
	if t.padsRows() {
		t.copyPixels(n, p0, p1)
		return
	}
	spread := t.spreads()
	if spread {
		es, plane := t.dst.buf.Type.Size(), t.dst.item[0]/planes
		clear(t.dst.buf.Data[(n*t.dst.item[0]+p0*plane)*es : (n*t.dst.item[0]+p1*plane)*es])
	}
	for p := p0; p < p1; p++ {
		s, d := n*t.src.item[0]+p*t.src.channel, n*t.dst.item[0]+p*t.dst.channel
		if spread {
			t.spreadPlane(w, s, d)
		} else {
			behind := (p1 - 1 - p) * t.dst.channel // elements of the task
			t.copyPlane(s, d, run, behind*t.dst.buf.Type.Size() < 4*t.m.nr)
		}
	}
}

// copyPixels copies rows [r0,r1) of image n, whose channels lie last, and clears what lies before each
// of them, between their pixels, and after the last one of the image.
func (t *convTask) copyPixels(n, r0, r1 int) {
	es, rows := t.dst.buf.Type.Size(), t.size[0]*t.size[1]
	apart := t.step[2] * t.channels
	w := (t.size[2]-1)*apart + t.channels
	s, d := n*t.src.item[0], n*t.dst.item[0]
	place := func(r int) int {
		return d + t.dst.at(t.lo[0]+r/t.size[1]*t.step[0], t.lo[1]+r%t.size[1]*t.step[1], t.lo[2])
	}
	clean := d // everything before is another task's, or done
	if r0 > 0 {
		clean = place(r0-1) + w
	}
	for r := r0; r < min(r1, rows); r++ {
		to, from := place(r), s+t.src.at(r/t.size[1], r%t.size[1], 0)
		if t.step[2] == 1 {
			t.copyRow(to, from, w)
			clear(t.dst.buf.Data[clean*es : to*es])
		} else {
			clear(t.dst.buf.Data[clean*es : (to+w)*es])
			for x := range t.size[2] {
				t.copyRow(to+x*apart, from+x*t.channels, t.channels)
			}
		}
		clean = to + w
	}
	if r1 >= rows {
		clear(t.dst.buf.Data[clean*es : (d+t.dst.item[0])*es])
	}
}

// copyPlane copies a plane and clears what lies between its rows. The last planes of a task, less than a vector
// together, may not touch what follows them.
func (t *convTask) copyPlane(s, d, run int, last bool) {
	dst, es := t.dst.buf, t.dst.buf.Type.Size()
	w, row := t.size[2]*run, t.dst.axis[1]
	end := d + t.dst.item[0]/t.channels
	if run > 1 {
		end = d + t.dst.item[0]
	}
	clean := d // everything before is done
	for z := range t.size[0] {
		from, to := s+z*t.src.axis[0], d+(t.lo[0]+z)*t.dst.axis[0]+t.lo[1]*row+t.lo[2]*run
		together := !last && t.copyRows(to, from, w, row)
		for y := range t.size[1] {
			if !together {
				t.copyRow(to+y*row, from+y*w, w)
			}
			clear(dst.Data[clean*es : (to+y*row)*es])
			clean = to + y*row + w
		}
	}
	clear(dst.Data[clean*es : end*es])
}

// copyRows copies the rows of a plane, w elements each, by one call of a kernel; false if there is
// no such kernel. It may write up to a vector past each row.
func (t *convTask) copyRows(to, from, w, row int) bool {
	src, dst, rows := t.src.buf, t.dst.buf, t.m.rows[t.src.buf.Type]
	if dst.Type == src.Type && src.Type != F32 { // two halves move as one word
		if w%2+row%2 > 0 {
			return false
		}
		w, row, rows = w/2, row/2, t.m.rows[F32]
	}
	if w > t.m.nr {
		return false
	}
	rows(t.size[1], w, (*float32)(ptr(dst.at(to))), row, src.at(from), w)
	return true
}

// copyRow copies n contiguous elements.
func (t *convTask) copyRow(to, from, n int) {
	src, dst := t.src.buf, t.dst.buf
	if es := src.Type.Size(); dst.Type == src.Type {
		copy(dst.Data[to*es:(to+n)*es], src.Data[from*es:])
		return
	}
	t.m.Load(floatsAt(dst.at(to), n), src.From(from))
}

// spreadPlane copies the pixels of a plane, whose channels lie first, to positions that are not adjacent.
func (t *convTask) spreadPlane(worker *worker, s, d int) {
	src, dst, es := t.src.buf, t.dst.buf, t.dst.buf.Type.Size()
	split := t.step[2] == 1
	for z := range t.size[0] {
		if split && dst.Type == src.Type && t.m.unzips(src.Type) && t.dst.phases == 2 {
			by := max(1, t.dst.rows)
			for y := range by {
				from, to := s+t.src.at(z, y, 0), d+t.dst.at(t.lo[0]+z*t.step[0], t.lo[1]+y, 0)
				t.unzipPlane(ceilDiv(t.size[1]-y, by), dst.From(to), t.step[1]*t.dst.axis[1], src.From(from), by*t.src.axis[1])
			}
			continue
		}
		for y := range t.size[1] {
			from := s + t.src.at(z, y, 0)
			to := d + t.dst.at(t.lo[0]+z*t.step[0], t.lo[1]+y*t.step[1], 0)
			if split {
				t.splitRow(worker, from, to)
				continue
			}
			for x := range t.size[2] {
				o := to + t.dst.at(0, 0, t.lo[2]+x*t.step[2])
				copy(dst.Data[o*es:(o+1)*es], src.Data[(from+x)*es:])
			}
		}
	}
}

// unzipPlane copies rows of a plane, lds apart, to a padded image of two phases.
func (t *convTask) unzipPlane(rows int, dst Buf, ldd int, src Buf, lds int) {
	even, odd := t.dst.at(0, 0, t.lo[2]), t.dst.at(0, 0, t.lo[2]+1)
	t.m.unzipTyped(rows, t.size[2], dst.From(even), dst.From(odd), ldd, src, lds)
}

// splitRow copies a row phase by phase.
func (t *convTask) splitRow(w *worker, from, to int) {
	ph, src, dst := t.dst.phases, t.src.buf.From(from), t.dst.buf
	if dst.Type != src.Type {
		row := w.row[0].get(t.size[2])
		t.m.Load(row, src)
		src = Floats(row)
	}
	for x := range min(ph, t.size[2]) {
		o := to + t.dst.at(0, 0, t.lo[2]+x)
		n := ceilDiv(t.size[2]-x, ph)
		if dst.Type == F32 {
			gather(floatsAt(dst.at(o), n), floatsAt(src.at(x), (n-1)*ph+1), ph)
		} else {
			gather(halvesAt(dst.at(o), n), halvesAt(src.at(x), (n-1)*ph+1), ph)
		}
	}
}

// gather takes every step-th element of src.
func gather[T any](dst, src []T, step int) {
	for i := range dst {
		dst[i] = src[i*step]
	}
}

// scatter stores src at every step-th element of dst.
func scatter[T any](dst, src []T, step int) {
	for i, x := range src {
		dst[i*step] = x
	}
}

// thin replaces a strided convolution with a 1 x 1 filter by one without stride, on an image of only those pixels that
// are read.
func (m *Machine) thin(c *Conv) *Conv {
	ones := [3]int{1, 1, 1}
	if volume(c.Kernel) > 1 || c.Stride == ones || c.Pad != [3]int{} || c.N == 0 || c.Groups > 1 {
		return c
	}
	t := &m.conv
	t.thinned = *c
	d := &t.thinned
	d.In, d.Stride = c.Out, ones
	d.X = t.thinMem.bytes(c.X.Type, c.N*c.C*volume(c.Out))
	t.m, t.c, t.mode = m, c, thinMode
	t.src, t.dst = c.dense(c.X, c.C, c.In), d.dense(d.X, c.C, d.In)
	units := c.C
	if c.ChannelsLast {
		units = c.Out[0] * c.Out[1]
	}
	t.runParts(units, 2*len(d.X.Data), 0)
	return d
}

// thinImage copies those pixels of planes, or rows, of an image that are read.
func (t *convTask) thinImage(w *worker, task int) {
	c := t.c
	n, p0, p1 := t.part(task)
	if c.ChannelsLast {
		for r := p0; r < p1; r++ {
			z, y := r/c.Out[1], r%c.Out[1]
			t.thinRow(n*t.src.item[0]+t.src.at(z*c.Stride[0], y*c.Stride[1], 0), n*t.dst.item[0]+t.dst.at(z, y, 0), c.C)
		}
		return
	}
	unzip := c.Stride[2] == 2 && t.m.unzips(c.X.Type)
	for p := p0; p < p1; p++ {
		for z := range c.Out[0] {
			from := n*t.src.item[0] + p*t.src.channel + t.src.at(z*c.Stride[0], 0, 0)
			to := n*t.dst.item[0] + p*t.dst.channel + t.dst.at(z, 0, 0)
			if unzip {
				rest := w.row[0].bytes(c.X.Type, c.Out[1]*c.Out[2])
				t.m.unzipTyped(c.Out[1], min(2*c.Out[2], c.In[2]), t.dst.buf.From(to), rest, c.Out[2], t.src.buf.From(from), c.Stride[1]*c.In[2])
				continue
			}
			for y := range c.Out[1] {
				t.thinRow(from+t.src.at(0, y*c.Stride[1], 0), to+t.dst.at(0, y, 0), 1)
			}
		}
	}
}

// thinRow copies the pixels of a row that are read, run elements each.
func (t *convTask) thinRow(from, to, run int) {
	w, step, es := t.c.Out[2], t.c.Stride[2], t.dst.buf.Type.Size()
	switch {
	case run > 1:
		for x := range w {
			copy(t.dst.buf.Data[(to+x*run)*es:(to+x*run+run)*es], t.src.buf.Data[(from+x*step*run)*es:])
		}
	case t.dst.buf.Type == F32:
		gather(floatsAt(t.dst.buf.at(to), w), floatsAt(t.src.buf.at(from), (w-1)*step+1), step)
	default:
		gather(halvesAt(t.dst.buf.at(to), w), halvesAt(t.src.buf.at(from), (w-1)*step+1), step)
	}
}
