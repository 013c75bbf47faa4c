package ptx

import "fmt"

// Unfold lays the windows of images out as rows, so that a convolution is a product: the fallback
// where cuDNN is absent. Channels of group Group are taken, C/Groups of them.
//
// Forward (im2col): x, then cols of N·OH·OW rows × CG·KH·KW columns, column (c·KH + kh)·KW + kw, or
// with NHWC (kh·KW + kw)·CG + c; positions in the padding give 0.
// Backward (col2im): dcols, then dx; each position of dx adds its columns in a fixed order. Channels
// of other groups are left as they are.
type Unfold struct {
	Pool              // geometry; In is the type of both sides
	Groups, Group int // Groups 0 means 1
}

// channels is how many channels the group has, and its first.
func (s Unfold) channels() (n, first int) {
	n = s.C / max(s.Groups, 1)
	return n, n * s.Group
}

func (s Unfold) check() error {
	if err := s.Pool.check(); err != nil {
		return err
	}
	g := max(s.Groups, 1)
	if s.C%g != 0 || s.Group < 0 || s.Group >= g || s.N*s.OH*s.OW*s.C/g*s.KH*s.KW >= 1<<31 {
		return fmt.Errorf("ptx: %s: group %d of %d over %d channels", s.Name, s.Group, g, s.C)
	}
	return nil
}

// divmod is e div n and e mod n.
func (b *Builder) divmod(e Reg, n int) (q, r Reg) {
	q = b.Do("div.u32", e, I(n))
	return q, b.Do("mad.lo.u32", q, I(-n), e)
}

// Forward generates im2col, one thread for each element of cols.
func (s Unfold) Forward(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	cg, first := s.channels()
	dh, dw := s.dilation()
	b := NewBuilder(fl, s.Name, groupThreads)
	q := params{b: b}
	n := s.N * s.OH * s.OW * cg * s.KH * s.KW
	src, dst := q.in("x", s.In, s.N*s.C*s.H*s.W), q.out("cols", s.In, n)
	grid := s.threads(b, n, func(i Reg) {
		row, col := b.divmod(i, cg*s.KH*s.KW)
		c, kh, kw := s.column(b, col, cg)
		var p place
		row, p.w = b.divmod(row, s.OW)
		p.n, p.h = b.divmod(row, s.OH)
		p.c = b.iadd(c, I(first))
		y := b.iadd(b.Do("mad.lo.u32", p.h, I(s.SH), b.imul(kh, I(dh))), I(-s.PH))
		x := b.iadd(b.Do("mad.lo.u32", p.w, I(s.SW), b.imul(kw, I(dw))), I(-s.PW))
		v := b.zero(s.In)
		inside := b.Do("and.pred", b.Do("setp.lt.u32", y, I(s.H)), b.Do("setp.lt.u32", x, I(s.W)))
		b.If(inside, func() {
			from := b.at(src, s.index(b, p, y, x, s.H, s.W), s.In.Size())
			b.To(v, "mov."+v.Class.String(), b.load(from, 0, s.In, 1)[0])
		})
		b.store(b.at(dst, i, s.In.Size()), 0, s.In, []Reg{v})
	})
	return finish(b, grid, q.list)
}

// column splits a column number into channel and tap.
func (s Unfold) column(b *Builder, col Reg, cg int) (c, kh, kw Reg) {
	if s.NHWC {
		col, c = b.divmod(col, cg)
		kh, kw = b.divmod(col, s.KW)
		return c, kh, kw
	}
	col, kw = b.divmod(col, s.KW)
	c, kh = b.divmod(col, s.KH)
	return c, kh, kw
}

// zero is a register with the stored bits of 0.
func (b *Builder) zero(d DType) Reg {
	r := b.Reg(raw(d))
	switch d {
	case Float32:
		b.To(r, "mov.f32", Fl(0))
	case Float64:
		b.To(r, "mov.f64", Db(0))
	default:
		b.To(r, "mov."+r.Class.String(), I(0))
	}
	return r
}

// Backward generates col2im, one thread for each element of the group's part of dx.
func (s Unfold) Backward(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	cg, first := s.channels()
	dh, dw := s.dilation()
	b := NewBuilder(fl, s.Name, groupThreads)
	q := params{b: b}
	cols := cg * s.KH * s.KW
	src := q.in("dcols", s.In, s.N*s.OH*s.OW*cols)
	dst := q.out("dx", s.Out, s.N*s.C*s.H*s.W)
	part := s.Pool
	part.C = cg
	grid := s.threads(b, s.N*cg*s.H*s.W, func(i Reg) {
		p := part.at(b, i, s.H, s.W)
		acc := b.konst(0)
		b.Loop(I(0), I(s.KH), I(1), B32, func(kh Reg) {
			oh, okH := s.source(b, p.h, kh, s.PH, dh, s.SH, s.OH)
			b.If(okH, func() {
				b.Loop(I(0), I(s.KW), I(1), B32, func(kw Reg) {
					ow, okW := s.source(b, p.w, kw, s.PW, dw, s.SW, s.OW)
					b.If(okW, func() {
						row := b.Do("mad.lo.u32", b.Do("mad.lo.u32", p.n, I(s.OH), oh), I(s.OW), ow)
						at := b.Do("mad.lo.u32", row, I(cols), s.tap(b, p.c, kh, kw, cg))
						b.To(acc, "add.rn.f32", acc, b.loadF(b.at(src, at, s.In.Size()), 0, s.In, 1)[0])
					})
				})
			})
		})
		p.c = b.iadd(p.c, I(first))
		b.storeF(b.at(dst, s.index(b, p, p.h, p.w, s.H, s.W), s.Out.Size()), 0, s.Out, []Reg{acc})
	})
	return finish(b, grid, q.list)
}

// tap is the column of a channel and tap.
func (s Unfold) tap(b *Builder, c, kh, kw Reg, cg int) Reg {
	if s.NHWC {
		return b.Do("mad.lo.u32", b.Do("mad.lo.u32", kh, I(s.KW), kw), I(cg), c)
	}
	return b.Do("mad.lo.u32", b.Do("mad.lo.u32", c, I(s.KH), kh), I(s.KW), kw)
}
