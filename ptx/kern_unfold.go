package ptx

import "fmt"

// Unfold writes the windows of images as rows of a matrix, so that a convolution becomes a matrix
// product (im2col). It is the fallback without cuDNN. It takes the C/Groups channels of group
// Group.
//
// Forward (im2col): x, then cols of N·windows rows × CG·taps columns, column c·taps + tap, or with NHWC
// tap·CG + c; taps count row-major; positions in the padding give 0. x is of type In, cols of Out.
// Backward (col2im): dcols, then dx; each position of dx adds its columns in a fixed order. Channels
// of other groups are left as they are.
type Unfold struct {
	Pool              // geometry and the types of what is read and written
	Groups, Group int // Groups 0 means 1
}

// channels returns the number of channels of the group and the index of its first one.
func (s Unfold) channels() (n, first int) {
	n = s.C / max(s.Groups, 1)
	return n, n * s.Group
}

func (s Unfold) check() error {
	if err := s.Pool.check(); err != nil {
		return err
	}
	g := max(s.Groups, 1)
	if s.C%g != 0 || s.Group < 0 || s.Group >= g || s.N*volume(s.To[:])*s.C/g*volume(s.Kernel[:]) >= maxCount {
		return fmt.Errorf("ptx: %s: group %d of %d over %d channels: it counts to 2^31-1", s.Name, s.Group, g, s.C)
	}
	return nil
}

// divmod is e div n and e mod n.
func (b *builder) divmod(e Reg, n int) (q, r Reg) {
	q = b.Do("div.u32", e, I(n))
	return q, b.Do("mad.lo.u32", q, I(-n), e)
}

// Forward generates im2col, one thread for each element of cols.
func (s Unfold) Forward(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	cg, first := s.channels()
	b := newBuilder(fl, s.Name, elementThreads)
	q := params{b: b}
	taps := volume(s.Kernel[:])
	n := s.N * volume(s.To[:]) * cg * taps
	src, dst := q.in("x", s.In, s.inputs()), q.out("cols", s.Out, n)
	grid := b.perElement(n, func(i Reg) {
		row, col := b.divmod(i, cg*taps)
		c, tap := s.column(b, col, cg)
		var at, window [3]Reg
		var inside Reg
		for d := 2; d >= 0; d-- {
			if s.flat(d) {
				continue
			}
			row, window[d] = b.divmod(row, s.To[d])
			at[d] = b.iadd(b.Do("mad.lo.u32", window[d], I(s.stride(d)), b.imul(tap[d], I(s.dilation(d)))), I(-s.Begin[d]))
			ok := b.Do("setp.lt.u32", at[d], I(s.Size[d]))
			inside = b.both(inside, ok)
		}
		take := func() Reg {
			from := s.index(b, row, b.iadd(c, I(first)), at, s.Size)
			return b.load(b.at(src, from, s.In.Size()), 0, s.In, 1)[0]
		}
		var v Reg
		if inside.Class == NoClass {
			v = take()
		} else {
			v = b.zero(s.In)
			b.when(inside, func() { b.To(v, "mov."+v.Class.String(), take()) })
		}
		to := b.at(dst, i, s.Out.Size())
		if s.In == s.Out {
			b.store(to, 0, s.Out, []Reg{v})
		} else {
			b.storeF(to, 0, s.Out, []Reg{b.widen(v, s.In)})
		}
	})
	return finish(b, grid, q.list)
}

// column splits a column number into channel and taps.
func (s Unfold) column(b *builder, col Reg, cg int) (c Reg, tap [3]Reg) {
	if s.NHWC {
		col, c = b.divmod(col, cg)
	}
	for d := 2; d >= 0; d-- {
		if !s.flat(d) {
			col, tap[d] = b.divmod(col, s.Kernel[d])
		}
	}
	if !s.NHWC {
		c = col
	}
	return c, tap
}

// zero is a register with the stored bits of 0.
func (b *builder) zero(d DType) Reg {
	r := b.reg(raw(d))
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
	b := newBuilder(fl, s.Name, elementThreads)
	q := params{b: b}
	taps := volume(s.Kernel[:])
	src := q.in("dcols", s.In, s.N*volume(s.To[:])*cg*taps)
	dst := q.out("dx", s.Out, s.inputs())
	part := s.Pool
	part.C = cg
	grid := b.perElement(part.inputs(), func(i Reg) {
		p := part.at(b, i, s.Size, 1)
		acc := b.floatConst(0)
		var tap [3]Reg
		s.along(b, 0, [3]Reg{}, func(d int, k Reg) (x, ok Reg) {
			tap[d] = k
			return s.source(b, d, p.at[d], k)
		}, func(window [3]Reg) {
			row := s.position(b, p.n, window, s.To)
			at := b.Do("mad.lo.u32", row, I(cg*taps), s.tapColumn(b, p.c, tap, cg))
			b.To(acc, "add.rn.f32", acc, b.loadF(b.at(src, at, s.In.Size()), 0, s.In, 1)[0])
		})
		to := s.index(b, p.n, b.iadd(p.c, I(first)), p.at, s.Size)
		b.storeF(b.at(dst, to, s.Out.Size()), 0, s.Out, []Reg{acc})
	})
	return finish(b, grid, q.list)
}

// tapColumn is the column of a channel and taps.
func (s Unfold) tapColumn(b *builder, c Reg, tap [3]Reg, cg int) Reg {
	if !s.NHWC {
		return s.position(b, c, tap, s.Kernel)
	}
	return b.Do("mad.lo.u32", s.position(b, b.Do("mov.u32", I(0)), tap, s.Kernel), I(cg), c)
}
