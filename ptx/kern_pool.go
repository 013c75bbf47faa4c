package ptx

import "fmt"

// Pool slides a window over images of up to three dimensions: depth, height, width. Absent
// dimensions have size 1 and a kernel of 1. Positions of a window outside the image are padding:
// the maximum ignores them, and the mean counts them only with CountPad.
type Pool struct {
	Name             string
	N, C             int
	Size, To, Kernel [3]int // sizes of the image, of the output, of the window
	Stride, Dilation [3]int // 0 means 1
	Begin, End       [3]int // padding; End counts only for CountPad's divisor
	NHWC, CountPad   bool
	NoMax, NoIndex   bool // results of Max that nothing reads
	Taps             bool // Max's index is the number of the window's tap, row-major, in u8; 255 if it has none
	In, Out          DType
}

func (s Pool) check() error {
	for d := range 3 {
		if min(s.Size[d], s.To[d], s.Kernel[d]) < 1 {
			return fmt.Errorf("ptx: %s: cannot pool %v with windows of %v to %v", s.Name, s.Size, s.Kernel, s.To)
		}
	}
	if n := s.N * s.C * max(volume(s.Size[:]), volume(s.To[:])); n < 1 || n >= maxCount {
		return fmt.Errorf("ptx: %s: cannot pool %d elements: it counts to 2^31-1", s.Name, n)
	}
	return nil
}

// flat reports whether a dimension has one position and one window.
func (s Pool) flat(d int) bool { return s.Size[d] == 1 && s.To[d] == 1 && s.Kernel[d] == 1 }

func (s Pool) stride(d int) int { return max(s.Stride[d], 1) }

func (s Pool) dilation(d int) int { return max(s.Dilation[d], 1) }

// inputs and outputs are the numbers of elements of both sides.
func (s Pool) inputs() int  { return s.N * s.C * volume(s.Size[:]) }
func (s Pool) outputs() int { return s.N * s.C * volume(s.To[:]) }

// lanes is the number of adjacent channels of a thread.
func (s Pool) lanes() int {
	n := 1
	if s.NHWC {
		n = min(8, 16/min(s.In.Size(), s.Out.Size()))
	}
	for s.C%n != 0 {
		n /= 2
	}
	return n
}

// coords is an element's coordinates; those of flat dimensions are the zero Reg.
type coords struct {
	n, c Reg
	at   [3]Reg
}

// at splits the linear index of a thread that has so many adjacent channels over images of dims. The
// channel is the first of them.
func (s Pool) at(b *builder, i Reg, dims [3]int, lanes int) coords {
	var p coords
	if s.NHWC {
		i, p.c = b.divmod(i, s.C/lanes)
		if lanes > 1 {
			p.c = b.imul(p.c, I(lanes))
		}
	}
	for d := 2; d >= 0; d-- {
		if !s.flat(d) {
			i, p.at[d] = b.divmod(i, dims[d])
		}
	}
	if p.n = i; !s.NHWC {
		p.n, p.c = b.divmod(i, s.C)
	}
	return p
}

// index is the linear index of position at of image n, channel c, in images of dims.
func (s Pool) index(b *builder, n, c Reg, at [3]Reg, dims [3]int) Reg {
	if !s.NHWC {
		n = b.Do("mad.lo.u32", n, I(s.C), c)
	}
	n = s.position(b, n, at, dims)
	if s.NHWC {
		n = b.Do("mad.lo.u32", n, I(s.C), c)
	}
	return n
}

// position continues from image index i to position at in it.
func (s Pool) position(b *builder, i Reg, at [3]Reg, dims [3]int) Reg {
	for d, x := range at {
		if !s.flat(d) {
			i = b.Do("mad.lo.u32", i, I(dims[d]), x)
		}
	}
	return i
}

// covered reports whether no window extends beyond the image along dimension d.
func (s Pool) covered(d int) bool {
	return s.Begin[d] <= 0 && (s.To[d]-1)*s.stride(d)-s.Begin[d]+(s.Kernel[d]-1)*s.dilation(d) < s.Size[d]
}

// along runs body for every tap of dimensions d and higher. step returns the position of a tap, or
// that it lies outside.
func (s Pool) along(b *builder, d int, at [3]Reg, step func(d int, tap Reg) (x, ok Reg), body func(at [3]Reg)) {
	switch {
	case d == 3:
		body(at)
	case s.flat(d):
		s.along(b, d+1, at, step, body)
	default:
		b.loop(I(0), I(s.Kernel[d]), I(1), B32, func(tap Reg) {
			x, ok := step(d, tap)
			at[d] = x
			b.where(ok, func() { s.along(b, d+1, at, step, body) })
		})
	}
}

// window runs body over the image positions of output p's window, in order.
func (s Pool) window(b *builder, p coords, body func(at [3]Reg)) {
	var first [3]Reg
	for d := range first {
		if !s.flat(d) {
			first[d] = b.Do("mad.lo.u32", p.at[d], I(s.stride(d)), b.Do("mov.u32", I(-s.Begin[d])))
		}
	}
	s.along(b, 0, [3]Reg{}, func(d int, tap Reg) (x, ok Reg) {
		x = b.Do("mad.lo.u32", tap, I(s.dilation(d)), first[d])
		return x, b.below(x, s.Size[d], s.covered(d)) // negative numbers wrap to large ones
	}, body)
}

// Max generates the largest element of each window, NaN if there is one, and its first position,
// counted row-major in the image. Arguments: x, then y unless NoMax, index unless NoIndex: i32, with
// Taps u8.
func (s Pool) Max(fl Flavour) (*Launch, error) {
	if err := s.checkMax(); err != nil {
		return nil, err
	}
	b := newBuilder(fl, s.Name, elementThreads)
	q := params{b: b}
	src := q.in("x", s.In, s.inputs())
	store := s.results(&q)
	n := s.lanes()
	grid := b.perElement(s.outputs()/n, func(i Reg) {
		p := s.at(b, i, s.To, n)
		store(i, n, p, func(at [3]Reg) []Reg {
			return b.loadF(b.at(src, s.index(b, p.n, p.c, at, s.Size), s.In.Size()), 0, s.In, n)
		})
	})
	return finish(b, grid, q.list)
}

// checkMax reports why there is no kernel of a maximum.
func (s Pool) checkMax() error {
	if s.Taps && (volume(s.Kernel[:]) > 255 || s.Dilation != [3]int{} && s.Dilation != [3]int{1, 1, 1}) {
		return fmt.Errorf("ptx: %s: taps of windows of %v, %v apart", s.Name, s.Kernel, s.Dilation)
	}
	if s.NoMax && s.NoIndex {
		return fmt.Errorf("ptx: %s: a pool without results", s.Name)
	}
	return s.check()
}

// results declares what Max stores. It returns code that stores the maxima of output p and the n-1
// channels after it, of vector i, from the values at each position.
func (s Pool) results(q *params) (store func(i Reg, n int, p coords, values func(at [3]Reg) []Reg)) {
	b, d := q.b, Int32
	var dst, index Reg
	if !s.NoMax {
		dst = q.out("y", s.Out, s.outputs())
	}
	if s.Taps {
		d = Uint8
	}
	if !s.NoIndex {
		index = q.out("index", d, s.outputs())
	}
	return func(i Reg, n int, p coords, values func(at [3]Reg) []Reg) {
		best, where := s.largest(b, n, p, values)
		if !s.NoMax {
			b.storeF(b.at(dst, i, n*s.Out.Size()), 0, s.Out, best)
		}
		if s.NoIndex {
			return
		}
		for l, x := range where {
			if s.Taps {
				where[l] = b.Do("cvt.u16.u32", x)
			}
		}
		b.store(b.at(index, i, n*d.Size()), 0, d, where)
	}
}

// largest finds the largest element of output p's window and its index, in n lanes. Of equal
// elements the first counts. NaN counts as larger than everything except an earlier NaN.
func (s Pool) largest(b *builder, n int, p coords, values func(at [3]Reg) []Reg) (best, where []Reg) {
	for range n {
		best = append(best, b.floatConst(float32(-posInf)))
		where = append(where, b.Do("mov.u32", I(-1)))
	}
	s.window(b, p, func(at [3]Reg) {
		var here, first Reg
		if !s.NoIndex { // −∞ is not larger than the initial value, but it has a position
			here = s.numbered(b, p, at)
			first = b.Do("setp.eq.u32", where[0], I(-1))
		}
		for l, v := range values(at) {
			better := b.Do("setp.gtu.f32", v, best[l])
			if !s.NoIndex {
				better = b.Do("or.pred", better, first)
			}
			better = b.Do("and.pred", better, b.Do("setp.num.f32", best[l], best[l]))
			b.To(best[l], "selp.f32", v, best[l], better)
			if !s.NoIndex {
				b.To(where[l], "selp.b32", here, where[l], better)
			}
		}
	})
	return best, where
}

// numbered is the index of position at in the window of output p.
func (s Pool) numbered(b *builder, p coords, at [3]Reg) Reg {
	if !s.Taps {
		return s.position(b, b.Do("mov.u32", I(0)), at, s.Size)
	}
	for d, x := range at {
		if !s.flat(d) { // how far the position is from the window's first
			at[d] = b.Do("sub.u32", x, b.Do("mad.lo.u32", p.at[d], I(s.stride(d)), b.Do("mov.u32", I(-s.Begin[d]))))
		}
	}
	return s.position(b, b.Do("mov.u32", I(0)), at, s.Kernel)
}

// MaxBackward generates dx: each position sums dy of the windows over it whose index names it.
// Arguments: dy, index i32, dx.
func (s Pool) MaxBackward(fl Flavour) (*Launch, error) {
	return s.backward(fl, true, func(b *builder, acc []Reg, dy, index, mine, from Reg, _ [3]Reg) {
		winners := b.load(b.at(index, from, 4), 0, Int32, len(acc))
		load := func() []Reg { return b.loadF(b.at(dy, from, s.In.Size()), 0, s.In, len(acc)) }
		if len(acc) == 1 {
			b.when(b.Do("setp.eq.u32", winners[0], mine), func() { b.To(acc[0], "add.rn.f32", acc[0], load()[0]) })
			return
		}
		for l, v := range load() {
			b.When(b.Do("setp.eq.u32", winners[l], mine), true, func() { b.To(acc[l], "add.rn.f32", acc[l], v) })
		}
	})
}

// AvgBackward generates dx: each position sums dy over the windows it belongs to, divided by their
// counts. Arguments: dy, dx.
func (s Pool) AvgBackward(fl Flavour) (*Launch, error) {
	return s.backward(fl, false, func(b *builder, acc []Reg, dy, _, _, from Reg, window [3]Reg) {
		v, count := b.loadF(b.at(dy, from, s.In.Size()), 0, s.In, len(acc)), s.divisor(b, window)
		for l := range acc {
			b.To(acc[l], "add.rn.f32", acc[l], b.div(v[l], count))
		}
	})
}

// backward visits, for every position of dx, the outputs whose window covers it; In is the type of
// dy, Out that of dx.
func (s Pool) backward(fl Flavour, indexed bool, take func(b *builder, acc []Reg, dy, index, mine, from Reg, window [3]Reg)) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := newBuilder(fl, s.Name, elementThreads)
	q := params{b: b}
	dy := q.in("dy", s.In, s.outputs())
	var index Reg
	if indexed {
		index = q.in("index", Int32, s.outputs())
	}
	dx := q.out("dx", s.Out, s.inputs())
	n := s.lanes()
	grid := b.perElement(s.inputs()/n, func(i Reg) {
		p := s.at(b, i, s.Size, n)
		var mine Reg
		if indexed {
			mine = s.position(b, b.Do("mov.u32", I(0)), p.at, s.Size)
		}
		acc := b.zeros(n)
		s.sources(b, p, func(window [3]Reg) {
			take(b, acc, dy, index, mine, s.index(b, p.n, p.c, window, s.To), window)
		})
		b.storeF(b.at(dx, i, n*s.Out.Size()), 0, s.Out, acc)
	})
	return finish(b, grid, q.list)
}

// zeros makes n registers for sums.
func (b *builder) zeros(n int) []Reg {
	out := make([]Reg, n)
	for i := range out {
		out[i] = b.floatConst(0)
	}
	return out
}

// sources runs body over the windows that cover position p, tap by tap.
func (s Pool) sources(b *builder, p coords, body func(window [3]Reg)) {
	s.along(b, 0, [3]Reg{}, func(d int, tap Reg) (x, ok Reg) { return s.source(b, d, p.at[d], tap) }, body)
}

// source finds the window along dimension d of which the given tap reads position x, if there is
// one. Window o does if o·stride = x + begin - tap·dilation.
func (s Pool) source(b *builder, d int, x, tap Reg) (o, ok Reg) {
	t := b.Do("sub.u32", b.iadd(x, I(s.Begin[d])), b.imul(tap, I(s.dilation(d)))) // negative numbers wrap to large ones
	o = b.Do("div.u32", t, I(s.stride(d)))
	whole := b.Do("setp.eq.u32", b.imul(o, I(s.stride(d))), t)
	return o, b.Do("and.pred", whole, b.Do("setp.lt.u32", o, I(s.To[d])))
}

// Avg generates the mean of each window. Arguments: x, y.
func (s Pool) Avg(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := newBuilder(fl, s.Name, elementThreads)
	q := params{b: b}
	src, dst := q.in("x", s.In, s.inputs()), q.out("y", s.Out, s.outputs())
	n := s.lanes()
	grid := b.perElement(s.outputs()/n, func(i Reg) {
		p := s.at(b, i, s.To, n)
		acc := b.zeros(n)
		s.window(b, p, func(at [3]Reg) {
			for l, v := range b.loadF(b.at(src, s.index(b, p.n, p.c, at, s.Size), s.In.Size()), 0, s.In, n) {
				b.To(acc[l], "add.rn.f32", acc[l], v)
			}
		})
		count := s.divisor(b, p.at)
		for l := range acc {
			acc[l] = b.div(acc[l], count)
		}
		b.storeF(b.at(dst, i, n*s.Out.Size()), 0, s.Out, acc)
	})
	return finish(b, grid, q.list)
}

// divisor is the number of positions of a window that count: those inside the image, or inside the
// padded image.
func (s Pool) divisor(b *builder, window [3]Reg) Reg {
	n := b.Do("mov.u32", I(1))
	for d, o := range window {
		if !s.flat(d) {
			n = b.imul(n, s.taps(b, d, o))
		}
	}
	return b.Do("cvt.rn.f32.u32", n)
}

// taps counts the k with lo <= o·stride - begin + k·dilation < hi.
func (s Pool) taps(b *builder, d int, o Reg) Reg {
	lo, hi := 0, s.Size[d]
	if s.CountPad {
		lo, hi = -s.Begin[d], s.Size[d]+s.End[d]
	}
	n := b.Do("mov.u32", I(0))
	start := b.Do("mad.lo.u32", o, I(s.stride(d)), b.Do("mov.u32", I(-s.Begin[d]-lo))) // distance from lo
	b.loop(I(0), I(s.Kernel[d]), I(1), B32, func(k Reg) {
		in := b.Do("setp.lt.u32", b.Do("mad.lo.u32", k, I(s.dilation(d)), start), I(hi-lo))
		b.To(n, "add.u32", n, b.Do("selp.b32", I(1), I(0), in))
	})
	return n
}
