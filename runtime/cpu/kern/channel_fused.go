package kern

import "fmt"

// normFormula identifies the formula of the last pass of a norm or its gradient: operands and results with their types.
type normFormula struct {
	gradient, terms, sum, relu, copy bool // terms are those of a gradient's sums
	first, rows                      bool // the sums of rows: of a norm's first image, of all or of a gradient
	in, other, out, low              Type
}

// leastPlane is the number of contiguous elements of a plane from which a specialized kernel is faster.
const leastPlane = 32

// choose searches for the kernel that reads and writes whole planes as they are stored.
func (t *channelTask) choose(gradient bool) {
	n := &t.n
	t.whole, t.terms, t.firstRows, t.sumRows = nil, nil, nil, nil
	if n.ChannelsLast || n.Space < leastPlane && (n.Groups > 0 || n.Space%t.m.vw > 0) {
		return
	}
	t.bufs = append(t.bufs[:0], n.X)
	f := normFormula{gradient: gradient, in: n.X.Type, out: n.Y.Type}
	if gradient {
		f.other, f.out, f.relu = n.DY.Type, n.DX.Type, !n.Sign.absent()
		if t.bufs = append(t.bufs, n.DY); f.relu {
			t.bufs, f.low = append(t.bufs, n.Sign), n.Sign.Type
		}
		t.bufs = append(t.bufs, n.DX)
	} else {
		if f.sum, f.relu = !n.Residual.absent(), n.Relu; f.sum {
			t.bufs, f.other = append(t.bufs, n.Residual), n.Residual.Type
		}
		if t.bufs = append(t.bufs, n.Y); !n.Copy.absent() {
			t.bufs, f.copy, f.low = append(t.bufs, n.Copy), true, n.Copy.Type
		}
	}
	t.whole = t.kernel(f)
	if gradient {
		f.terms, f.out = true, F32
		t.terms = t.kernel(f)
		f.rows = true
		if t.sumRows, t.widen = t.kernel(f), false; t.sumRows == nil {
			t.sumRows, t.widen = t.kernel(normFormula{gradient: true, rows: true, in: F32, other: F32, out: F32}), true
		}
		return
	}
	t.widen = false
	t.firstRows = t.kernel(normFormula{rows: true, first: true, in: n.X.Type})
	t.sumRows = t.kernel(normFormula{rows: true, in: n.X.Type})
}

// kernel finds the kernel of a formula and caches it, because composing the text of a formula allocates.
func (t *channelTask) kernel(f normFormula) *Fused {
	k, known := t.fused[f]
	if !known {
		if t.fused == nil {
			t.fused = map[normFormula]*Fused{}
		}
		k = t.m.Fused(f.text())
		t.fused[f] = k
	}
	return k
}

// text is the formula as internal/gen writes it.
func (f normFormula) text() string {
	loads, last := fmt.Sprintf("l0:%v", f.in), "r1"
	if f.sum || f.gradient {
		loads += fmt.Sprintf(" l1:%v", f.other)
	}
	body := "r0=sub(l0,u0) r1=fma(r0,u1,u2)"
	switch {
	case f.first:
		return loads + " a0=l0"
	case f.rows && !f.gradient:
		return loads + " r0=sub(l0,u0) r1=mul(r0,r0) a0=r0 a1=r1"
	case f.rows && f.relu:
		return loads + fmt.Sprintf(" l2:%v r0=sub(l0,u0) r1=lt(u1,l2) r2=select(r1,l1,u2) r3=mul(r2,r0) a0=r3 a1=r2", f.low)
	case f.rows:
		return loads + " r0=sub(l0,u0) r1=mul(l1,r0) a0=r1 a1=l1"
	case f.terms && f.relu:
		return loads + fmt.Sprintf(" l2:%v r0=sub(l0,u0) r1=lt(u1,l2) r2=select(r1,l1,u2) r3=mul(r2,r0) s0:f32=r2 s1:f32=r3", f.low)
	case f.terms:
		return loads + " r0=sub(l0,u0) r1=mul(l1,r0) s0:f32=l1 s1:f32=r1"
	case f.gradient && f.relu:
		loads += fmt.Sprintf(" l2:%v", f.low)
		body, last = body+" r2=lt(u3,l2) r3=select(r2,l1,u4) r4=fma(r3,u5,r1)", "r4"
	case f.gradient:
		body, last = body+" r2=fma(l1,u3,r1)", "r2"
	case f.sum && f.relu:
		body, last = body+" r2=add(r1,l1) r3=max(r2,u3)", "r3"
	case f.sum:
		body, last = body+" r2=add(r1,l1)", "r2"
	case f.relu:
		body, last = body+" r2=max(r1,u3)", "r2"
	}
	stores := fmt.Sprintf("s0:%v=%s", f.out, last)
	if f.copy {
		stores += fmt.Sprintf(" s1:%v=%s", f.low, last)
	}
	return loads + " " + body + " " + stores
}

// planes runs the kernel over the channel at offset at in all images that share its statistics.
func (t *channelTask) planes(w *worker, at int, scalars ...float32) {
	n, images := &t.n, t.n.Images
	if n.Groups > 0 {
		images = 1
	}
	k := copy(w.scalars[:], scalars)
	for i := range images {
		t.whole.Run(&w.call, t.bufs, w.scalars[:k], at+i*n.Channels*n.Space, n.Space, false)
	}
}

// termsOf computes products row by row of a block.
func (t *channelTask) termsOf(w *worker, at int, b piece, mean float32) (dy, product []float32) {
	n := &t.n
	dy, product = w.row[1].get(b.rows*b.cols), w.row[2].get(b.rows*b.cols)
	w.scalars = [8]float32{mean}
	for r := range b.rows {
		from, to := at+b.at+r*n.Channels*n.Space, r*b.cols
		bufs := append(w.bufs[:0], n.X.From(from), n.DY.From(from))
		if !n.Sign.absent() {
			bufs = append(bufs, n.Sign.From(from))
		}
		bufs = append(bufs, Floats(dy[to:]), Floats(product[to:]))
		t.terms.Run(&w.call, bufs, w.scalars[:3], 0, b.cols, false)
	}
	return dy, product
}
