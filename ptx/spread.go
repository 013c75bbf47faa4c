package ptx

import "fmt"

// Spread is how an access over images with channels last reads a smaller tensor, the outputs of
// windows over these images: an element of the images is the f32 sum of the outputs that come from
// it. Without Taps these are the outputs whose window begins at its position, of windows with one
// tap: the images are the outputs, apart, and zeros. With Taps the next load is a u8 tensor of
// the shape of the outputs with the number of the tap that each output comes from: the images are
// the gradient of a maximum. No code reads that load.
type Spread struct {
	Pool
	Taps bool
}

// windowsAcross is the largest number of windows along dimension d that cover a position.
func (s Spread) windowsAcross(d int) int { return ceilDiv(s.Kernel[d], s.stride(d)) }

// check reports why outputs cannot be spread over shape.
func (s Spread) check(a Access, shape []int64) error {
	n := 1
	for d := range 3 {
		n *= s.windowsAcross(d)
		if s.dilation(d) != 1 || !s.Taps && s.Kernel[d] != 1 {
			return fmt.Errorf("%s: outputs of windows of %v, %v apart", a.Name, s.Kernel, s.Dilation)
		}
	}
	if rows := s.N * volume(s.Size[:]); !s.NHWC || volume(s.Kernel[:]) > 255 || len(shape) != 2 || shape[0] != int64(rows) || shape[1] != int64(s.C) {
		return fmt.Errorf("%s: %d outputs over images of %v", a.Name, n, shape)
	}
	return s.Pool.check()
}

// candidate is a window that may cover a position along one dimension: its number, its tap at the
// position, and whether it covers it; the zero Reg means that it does.
type candidate struct{ o, tap, ok Reg }

// candidates lists the windows along dimension d that may cover position x, the last first. outer
// says that no dimension comes before d.
func (s Spread) candidates(b *builder, d int, x Reg, outer bool) (list []candidate) {
	step := s.stride(d)
	at := x
	if s.Begin[d] != 0 {
		at = b.iadd(x, I(s.Begin[d]))
	}
	first, rest := at, b.Do("mov.u32", I(0))
	if step > 1 {
		first, rest = b.divmod(at, step)
	}
	for k := range s.windowsAcross(d) {
		w := candidate{o: first, tap: rest}
		if k > 0 {
			w.o, w.tap = b.iadd(first, I(-k)), b.iadd(rest, I(k*step)) // negative numbers wrap to large ones
		}
		if s.Begin[d]/step < k || (s.Size[d]-1+s.Begin[d])/step-k >= s.To[d] {
			w.ok = b.Do("setp.lt.u32", w.o, I(s.To[d]))
			w.o = b.Do("min.u32", w.o, I(s.To[d]-1))
		}
		if (k+1)*step > s.Kernel[d] && !(s.Taps && outer) { // a tap beyond the first dimension is none of the window
			w.ok = b.both(w.ok, b.Do("setp.lt.u32", w.tap, I(s.Kernel[d])))
		}
		list = append(list, w)
	}
	return list
}

// spread is the value of load k in every lane. It loads all outputs that may come from the
// position before it adds any.
func (c *elementwiseGen) spread(k int) []Reg {
	s, b := c.Loads[k].Spread, c.b
	image, channel := b.Do("cvt.u32.u64", c.coords[0]), b.Do("cvt.u32.u64", c.coords[1])
	var across [3][]candidate
	for d := 2; d >= 0; d-- {
		if s.flat(d) {
			continue
		}
		var x Reg
		image, x = b.divmod(image, s.Size[d])
		across[d] = s.candidates(b, d, x, d == 0 || s.flat(d-1))
	}
	var found []spreadSource
	var visit func(d int, at candidate)
	visit = func(d int, at candidate) {
		switch {
		case d == 3:
			found = append(found, c.sourceAt(k, at, channel))
		case s.flat(d):
			visit(d+1, at)
		default:
			for _, w := range across[d] {
				next := candidate{b.Do("mad.lo.u32", at.o, I(s.To[d]), w.o), w.tap, b.both(at.ok, w.ok)}
				if at.tap.Class != NoClass {
					next.tap = b.Do("mad.lo.u32", at.tap, I(s.Kernel[d]), w.tap)
				}
				visit(d+1, next)
			}
		}
	}
	visit(0, candidate{o: image})
	sum := make([]Reg, c.lanes)
	for l := range sum {
		if !s.Taps {
			sum[l] = found[0].take(b, l)
			continue
		}
		sum[l] = b.floatConst(0)
		for _, f := range found {
			sum[l] = b.add(sum[l], f.take(b, l))
		}
	}
	return sum
}

// spreadSource is an output that may come from a position, in every lane.
type spreadSource struct {
	values []Reg
	taps   []Reg // nil: all lanes take the output if ok
	tap    Reg
	ok     Reg
}

// sourceAt loads output at.o of load k.
func (c *elementwiseGen) sourceAt(k int, at candidate, channel Reg) spreadSource {
	b, a := c.b, c.Loads[k]
	e := b.Do("mad.lo.u32", at.o, I(a.Spread.C), channel)
	f := spreadSource{values: b.loadF(b.at(c.bases[k], e, a.DType.Size()), 0, a.DType, c.lanes), ok: at.ok}
	if !a.Spread.Taps {
		return f
	}
	f.taps = b.load(b.at(c.bases[k+1], e, 1), 0, Uint8, c.lanes)
	if at.ok.Class != NoClass {
		at.tap = b.Do("selp.b32", at.tap, I(0xffff), at.ok) // no output has it
	}
	f.tap = b.Do("cvt.u16.u32", at.tap)
	return f
}

// take is the output in a lane, or 0 if it comes from elsewhere.
func (f *spreadSource) take(b *builder, lane int) Reg {
	ok := f.ok
	if f.taps != nil {
		ok = b.Do("setp.eq.u16", f.taps[lane], f.tap)
	}
	if ok.Class == NoClass {
		return f.values[lane]
	}
	return b.Do("selp.f32", f.values[lane], Fl(0), ok)
}
