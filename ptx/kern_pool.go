package ptx

import "fmt"

// Pool slides a window over images of H×W. One-dimensional data has H = KH = 1. A window position
// outside the image is padding: it is no candidate for the maximum and counts for the mean only with
// CountPad.
type Pool struct {
	Name           string
	N, C, H, W     int
	OH, OW         int
	KH, KW, SH, SW int
	DH, DW         int // dilation; 0 means 1
	PH, PW         int // padding before
	EndH, EndW     int // padding after, for CountPad's divisor
	NHWC, CountPad bool
	In, Out        DType
}

func (s Pool) check() error {
	if s.N < 1 || s.C < 1 || s.H < 1 || s.W < 1 || s.OH < 1 || s.OW < 1 || s.KH < 1 || s.KW < 1 || s.SH < 1 || s.SW < 1 {
		return fmt.Errorf("ptx: %s: cannot pool %d×%d×%d×%d with windows of %d×%d", s.Name, s.N, s.C, s.H, s.W, s.KH, s.KW)
	}
	if s.N*s.C*max(s.H*s.W, s.OH*s.OW) >= 1<<31 {
		return fmt.Errorf("ptx: %s: more than 2^31 elements", s.Name)
	}
	return nil
}

func (s Pool) dilation() (h, w int) { return max(s.DH, 1), max(s.DW, 1) }

// place is an element's coordinates; plane is n·C+c.
type place struct{ n, c, h, w Reg }

// at splits a linear index over images of h×w.
func (s Pool) at(b *Builder, i Reg, h, w int) place {
	split := func(e Reg, n int) (q, r Reg) {
		q = b.Do("div.u32", e, I(n))
		return q, b.Do("mad.lo.u32", q, I(-n), e)
	}
	var p place
	if s.NHWC {
		i, p.c = split(i, s.C)
	}
	i, p.w = split(i, w)
	i, p.h = split(i, h)
	if s.NHWC {
		p.n = i
		return p
	}
	p.n, p.c = split(i, s.C)
	return p
}

// index is the linear index of (p.n, p.c, y, x) in images of h×w.
func (s Pool) index(b *Builder, p place, y, x Reg, h, w int) Reg {
	mad := func(a Reg, n int, c Reg) Reg { return b.Do("mad.lo.u32", a, I(n), c) }
	if s.NHWC {
		return mad(mad(mad(p.n, h, y), w, x), s.C, p.c)
	}
	return mad(mad(mad(p.n, s.C, p.c), h, y), w, x)
}

// threads runs body for each of n elements, one thread each.
func (s Pool) threads(b *Builder, n int, body func(i Reg)) [3]int {
	i := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(groupThreads), b.special("%tid.x"))
	b.If(b.Do("setp.lt.u32", i, I(n)), func() { body(i) })
	return [3]int{ceilDiv(n, groupThreads), 1, 1}
}

// window runs body over the image positions of output p's window, row by row.
func (s Pool) window(b *Builder, p place, body func(y, x Reg)) {
	dh, dw := s.dilation()
	y0 := b.Do("mad.lo.u32", p.h, I(s.SH), b.Do("mov.u32", I(-s.PH)))
	x0 := b.Do("mad.lo.u32", p.w, I(s.SW), b.Do("mov.u32", I(-s.PW)))
	b.Loop(I(0), I(s.KH), I(1), B32, func(kh Reg) {
		y := b.Do("mad.lo.u32", kh, I(dh), y0)
		b.If(b.Do("setp.lt.u32", y, I(s.H)), func() { // negative wraps high
			b.Loop(I(0), I(s.KW), I(1), B32, func(kw Reg) {
				x := b.Do("mad.lo.u32", kw, I(dw), x0)
				b.If(b.Do("setp.lt.u32", x, I(s.W)), func() { body(y, x) })
			})
		})
	})
}

// Max generates the largest element of each window, NaN if there is one, and its first position
// y·W+x. Arguments: x, y, index i32.
func (s Pool) Max(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := NewBuilder(fl, s.Name, groupThreads)
	q := params{b: b}
	in, outs := s.N*s.C*s.H*s.W, s.N*s.C*s.OH*s.OW
	src, dst, at := q.in("x", s.In, in), q.out("y", s.Out, outs), q.out("index", Int32, outs)
	grid := s.threads(b, outs, func(i Reg) {
		p := s.at(b, i, s.OH, s.OW)
		best, where := b.konst(float32(-posInf)), b.Do("mov.u32", I(-1))
		s.window(b, p, func(y, x Reg) {
			v := b.loadF(b.at(src, s.index(b, p, y, x, s.H, s.W), s.In.Size()), 0, s.In, 1)[0]
			// The first position counts, and a NaN beats all but an earlier NaN.
			better := b.Do("or.pred", b.Do("setp.gtu.f32", v, best), b.Do("setp.eq.u32", where, I(-1)))
			better = b.Do("and.pred", better, b.Do("setp.num.f32", best, best))
			b.To(best, "selp.f32", v, best, better)
			b.To(where, "selp.b32", b.Do("mad.lo.u32", y, I(s.W), x), where, better)
		})
		b.storeF(b.at(dst, i, s.Out.Size()), 0, s.Out, []Reg{best})
		b.Do("st.global.b32", Addr{Base: b.at(at, i, 4)}, where)
	})
	return finish(b, grid, q.list)
}

// MaxBackward generates dx: each position sums dy of the windows whose index names it, in order.
// Arguments: dy, index i32, dx.
func (s Pool) MaxBackward(fl Flavour) (*Launch, error) {
	return s.backward(fl, true, func(b *Builder, acc, dy, index, mine, p Reg, _ place) {
		hit := b.Do("setp.eq.u32", b.Do("ld.global.b32", Addr{Base: b.at(index, p, 4)}), mine)
		b.If(hit, func() {
			b.To(acc, "add.rn.f32", acc, b.loadF(b.at(dy, p, s.In.Size()), 0, s.In, 1)[0])
		})
	})
}

// AvgBackward generates dx: each position sums dy over the windows it belongs to, divided by their
// counts. Arguments: dy, dx.
func (s Pool) AvgBackward(fl Flavour) (*Launch, error) {
	return s.backward(fl, false, func(b *Builder, acc, dy, _, _, p Reg, w place) {
		v := b.loadF(b.at(dy, p, s.In.Size()), 0, s.In, 1)[0]
		b.To(acc, "add.rn.f32", acc, b.div(v, s.divisor(b, w)))
	})
}

// backward visits, for every position of dx, the outputs whose window covers it; In is the type of
// dy, Out that of dx.
func (s Pool) backward(fl Flavour, indexed bool, take func(b *Builder, acc, dy, index, mine, p Reg, w place)) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := NewBuilder(fl, s.Name, groupThreads)
	q := params{b: b}
	in, outs := s.N*s.C*s.H*s.W, s.N*s.C*s.OH*s.OW
	dy := q.in("dy", s.In, outs)
	var index Reg
	if indexed {
		index = q.in("index", Int32, outs)
	}
	dx := q.out("dx", s.Out, in)
	dh, dw := s.dilation()
	grid := s.threads(b, in, func(i Reg) {
		p := s.at(b, i, s.H, s.W)
		var mine Reg
		if indexed {
			mine = b.Do("mad.lo.u32", p.h, I(s.W), p.w)
		}
		acc := b.konst(0)
		// Output o covers h with tap k when o·S = h + P - k·D.
		b.Loop(I(0), I(s.KH), I(1), B32, func(kh Reg) {
			oh, okH := s.source(b, p.h, kh, s.PH, dh, s.SH, s.OH)
			b.If(okH, func() {
				b.Loop(I(0), I(s.KW), I(1), B32, func(kw Reg) {
					ow, okW := s.source(b, p.w, kw, s.PW, dw, s.SW, s.OW)
					b.If(okW, func() {
						w := place{n: p.n, c: p.c, h: oh, w: ow}
						take(b, acc, dy, index, mine, s.index(b, p, oh, ow, s.OH, s.OW), w)
					})
				})
			})
		})
		b.storeF(b.at(dx, i, s.Out.Size()), 0, s.Out, []Reg{acc})
	})
	return finish(b, grid, q.list)
}

// source is the output along one dimension that reaches position h with tap k, if there is one.
func (s Pool) source(b *Builder, h, k Reg, pad, dilation, stride, outs int) (o, ok Reg) {
	t := b.Do("sub.u32", b.iadd(h, I(pad)), b.imul(k, I(dilation))) // negative wraps high
	o = b.Do("div.u32", t, I(stride))
	whole := b.Do("setp.eq.u32", b.imul(o, I(stride)), t)
	return o, b.Do("and.pred", whole, b.Do("setp.lt.u32", o, I(outs)))
}

// Avg generates the mean of each window. Arguments: x, y.
func (s Pool) Avg(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := NewBuilder(fl, s.Name, groupThreads)
	q := params{b: b}
	src, dst := q.in("x", s.In, s.N*s.C*s.H*s.W), q.out("y", s.Out, s.N*s.C*s.OH*s.OW)
	grid := s.threads(b, s.N*s.C*s.OH*s.OW, func(i Reg) {
		p := s.at(b, i, s.OH, s.OW)
		acc := b.konst(0)
		s.window(b, p, func(y, x Reg) {
			b.To(acc, "add.rn.f32", acc, b.loadF(b.at(src, s.index(b, p, y, x, s.H, s.W), s.In.Size()), 0, s.In, 1)[0])
		})
		b.storeF(b.at(dst, i, s.Out.Size()), 0, s.Out, []Reg{b.div(acc, s.divisor(b, p))})
	})
	return finish(b, grid, q.list)
}

// divisor is how many positions of output w's window count: those inside the image, or inside the
// padded image.
func (s Pool) divisor(b *Builder, w place) Reg {
	dh, dw := s.dilation()
	h := s.taps(b, w.h, s.KH, s.SH, dh, s.PH, s.H, s.EndH)
	v := s.taps(b, w.w, s.KW, s.SW, dw, s.PW, s.W, s.EndW)
	return b.Do("cvt.rn.f32.u32", b.imul(h, v))
}

// taps counts the k with lo <= o·stride - pad + k·dilation < hi.
func (s Pool) taps(b *Builder, o Reg, kernel, stride, dilation, pad, size, end int) Reg {
	lo, hi := 0, size
	if s.CountPad {
		lo, hi = -pad, size+end
	}
	n := b.Do("mov.u32", I(0))
	start := b.Do("mad.lo.u32", o, I(stride), b.Do("mov.u32", I(-pad-lo))) // distance from lo
	b.Loop(I(0), I(kernel), I(1), B32, func(k Reg) {
		in := b.Do("setp.lt.u32", b.Do("mad.lo.u32", k, I(dilation), start), I(hi-lo))
		b.To(n, "add.u32", n, b.Do("selp.b32", I(1), I(0), in))
	})
	return n
}
