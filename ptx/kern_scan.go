package ptx

import "fmt"

// Scan is the running sum along the middle dimension of Outer×N×Inner, in f32. With Exclusive, an
// element is not part of its own sum. With Reverse, the sum runs from the end. Arguments: x, y.
type Scan struct {
	Name               string
	Outer, N, Inner    int
	Exclusive, Reverse bool
	In, Out            DType
}

// Build generates the kernel: a warp processes 32 elements at a time, in order.
func (s Scan) Build(fl Flavour) (*Launch, error) {
	if s.Outer < 1 || s.N < 1 || s.Inner < 1 || s.Outer*s.N*s.Inner >= maxCount {
		return nil, fmt.Errorf("ptx: %s: cannot scan %d×%d×%d: it counts to 2^31-1", s.Name, s.Outer, s.N, s.Inner)
	}
	r := startRows(fl, s.Name, s.N, 32, 1, 0)
	b := r.b
	p := params{b: b}
	n := s.Outer * s.N * s.Inner
	x, y := p.in("x", s.In, n), p.out("y", s.Out, n)
	r.begin()
	r.alone(s.Outer*s.Inner, func(row Reg) {
		o, in := b.divmod(row, s.Inner)
		total := b.floatConst(0)
		b.loop(I(0), I(ceilDiv(s.N, 32)*32), I(32), B32, func(first Reg) {
			i := b.iadd(first, r.lane)
			inside := b.below(i, s.N, s.N%32 == 0)
			at := i
			if s.Reverse {
				at = b.Do("sub.u32", I(s.N-1), i)
			}
			at = b.Do("mad.lo.u32", b.Do("mad.lo.u32", o, I(s.N), at), I(s.Inner), in)
			v := b.reg(F32)
			if s.N < 32 { // later rounds read values of earlier elements there, and nothing adds to them
				b.To(v, "mov.f32", Fl(0))
			}
			b.where(inside, func() { b.To(v, "mov.f32", b.loadF(b.at(x, at, s.In.Size()), 0, s.In, 1)[0]) })
			sum := b.prefix(v, r.lane)
			out := b.add(total, sum)
			if s.Exclusive {
				out = b.add(total, b.before(sum, r.lane))
			}
			b.where(inside, func() { b.storeF(b.at(y, at, s.Out.Size()), 0, s.Out, []Reg{out}) })
			if s.N > 32 {
				last := b.reg(F32)
				b.To(last, "shfl.sync.idx.b32", sum, I(31), I(31), I(0xffffffff))
				b.To(total, "add.rn.f32", total, last)
			}
		})
	})
	return finish(b, r.grid(s.Outer*s.Inner), p.list)
}

// CumMax is the largest element so far along the middle dimension of Outer×N×Inner, or the smallest, and its
// position: the last of equal ones. NaN wins. Arguments: x, values, index (i64).
type CumMax struct {
	Name            string
	Outer, N, Inner int
	In              DType
	Min             bool
}

// Build generates the kernel: one thread for each line along the middle dimension.
func (s CumMax) Build(fl Flavour) (*Launch, error) {
	if s.Outer < 1 || s.N < 1 || s.Inner < 1 || s.Outer*s.N*s.Inner >= maxCount {
		return nil, fmt.Errorf("ptx: %s: cannot scan %d×%d×%d: it counts to 2^31-1", s.Name, s.Outer, s.N, s.Inner)
	}
	b := newBuilder(fl, s.Name, elementThreads)
	p := params{b: b}
	n, size := s.Outer*s.N*s.Inner, s.In.Size()
	x, y, index := p.in("x", s.In, n), p.out("values", s.In, n), p.out("index", Int64, n)
	class := keyClass(s.In)
	e := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(elementThreads), b.special("%tid.x"))
	b.guarded(e, int64(s.Outer*s.Inner), func() {
		o, in := b.divmod(e, s.Inner)
		element := func(i Reg) Reg { return b.Do("mad.lo.u32", b.Do("mad.lo.u32", o, I(s.N), i), I(s.Inner), in) }
		save := func(at, last Reg) {
			b.store(b.at(y, at, size), 0, s.In, b.load(b.at(x, element(last), size), 0, s.In, 1))
			b.Do("st.global.u64", Addr{Base: b.at(index, at, 8)}, b.Do("cvt.u64.u32", last))
		}
		if s.N == 1 {
			save(e, b.Do("mov.u32", I(0)))
			return
		}
		best, last := b.reg(class), b.reg(B32)
		b.To(best, "mov."+class.String(), I(0)) // no key is smaller
		b.loop(I(0), I(s.N), I(1), B32, func(i Reg) {
			at := element(i)
			key := b.orderKey(b.load(b.at(x, at, size), 0, s.In, 1)[0], s.In, s.Min, false)
			b.when(b.Do("setp.ge."+unsignedType(class), key, best), func() {
				b.To(best, "mov."+class.String(), key)
				b.To(last, "mov.u32", i)
			})
			save(at, last)
		})
	})
	return finish(b, [3]int{ceilDiv(s.Outer*s.Inner, elementThreads), 1, 1}, p.list)
}

// LinearScan is y[i] = a[i]·y[i-1] + x[i] along the middle dimension of Outer×N×Inner, in f32 and in
// order, from y = 0. Reverse runs from the end. Arguments: x, a, y.
type LinearScan struct {
	Name            string
	Outer, N, Inner int
	Reverse         bool
	In, Factor, Out DType // of x, a, y
}

// Build generates the kernel: one thread for each line along the middle dimension.
func (s LinearScan) Build(fl Flavour) (*Launch, error) {
	if s.Outer < 1 || s.N < 1 || s.Inner < 1 || s.Outer*s.N*s.Inner >= maxCount {
		return nil, fmt.Errorf("ptx: %s: cannot scan %d×%d×%d: it counts to 2^31-1", s.Name, s.Outer, s.N, s.Inner)
	}
	b := newBuilder(fl, s.Name, elementThreads)
	p := params{b: b}
	n := s.Outer * s.N * s.Inner
	x, a, y := p.in("x", s.In, n), p.in("a", s.Factor, n), p.out("y", s.Out, n)
	e := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(elementThreads), b.special("%tid.x"))
	b.guarded(e, int64(s.Outer*s.Inner), func() {
		o, in := b.divmod(e, s.Inner)
		last := b.floatConst(0)
		b.loop(I(0), I(s.N), I(1), B32, func(i Reg) {
			if s.Reverse {
				i = b.Do("sub.u32", I(s.N-1), i)
			}
			at := b.Do("mad.lo.u32", b.Do("mad.lo.u32", o, I(s.N), i), I(s.Inner), in)
			factor := b.loadF(b.at(a, at, s.Factor.Size()), 0, s.Factor, 1)[0]
			b.To(last, "fma.rn.f32", factor, last, b.loadF(b.at(x, at, s.In.Size()), 0, s.In, 1)[0])
			b.storeF(b.at(y, at, s.Out.Size()), 0, s.Out, []Reg{last})
		})
	})
	return finish(b, [3]int{ceilDiv(s.Outer*s.Inner, elementThreads), 1, 1}, p.list)
}

// prefix adds the values of its predecessors to each lane, for floats or integers.
func (b *builder) prefix(v, lane Reg) Reg {
	add, class := "add.rn.f32", v.Class
	if class == B32 {
		add = "add.u32"
	}
	for d := 1; d < 32; d *= 2 {
		other := b.reg(class)
		b.To(other, "shfl.sync.up.b32", v, I(d), I(0), I(0xffffffff))
		v = b.Do("selp."+class.String(), b.Do(add, v, other), v, b.Do("setp.ge.u32", lane, I(d)))
	}
	return v
}

// before returns the value of the previous lane, 0 in the first lane.
func (b *builder) before(v, lane Reg) Reg {
	other := b.reg(F32)
	b.To(other, "shfl.sync.up.b32", v, I(1), I(0), I(0xffffffff))
	return b.Do("selp.f32", Fl(0), other, b.Do("setp.eq.u32", lane, I(0)))
}

// RowStat computes one number for each row of Rows×Cols, which is held in registers: LogSumExp, or
// the variance Σ(x-mean)²/(Cols-Correction). Arguments: x, y.
type RowStat struct {
	Name       string
	Rows, Cols int
	LogSumExp  bool
	Correction int
	In, Out    DType
}

// Build generates the kernel.
func (s RowStat) Build(fl Flavour) (*Launch, error) {
	r, err := newRows(fl, s.Name, s.Cols, s.In)
	if err != nil {
		return nil, err
	}
	b := r.b
	p := params{b: b}
	x, y := p.in("x", s.In, s.Rows*s.Cols), p.out("y", s.Out, s.Rows)
	r.begin()
	r.alone(s.Rows, func(row Reg) {
		v := r.load(r.rowAddr(x, row, s.In), s.In)
		stat := s.variance
		if s.LogSumExp {
			stat = s.logSumExp
		}
		out := stat(r, v)
		b.when(b.Do("setp.eq.u32", r.lane, I(0)), func() {
			b.storeF(b.at(y, row, s.Out.Size()), 0, s.Out, []Reg{out})
		})
	})
	return finish(b, r.grid(s.Rows), p.list)
}

func (s RowStat) variance(r *rows, v [][]Reg) Reg {
	b := r.b
	mean := b.div(r.sum(func(c, i int) Reg { return v[c][i] }), Fl(float32(s.Cols)))
	sq := r.sum(func(c, i int) Reg {
		d := b.sub(v[c][i], mean)
		return b.mul(d, d)
	})
	return b.div(sq, Fl(float32(s.Cols-s.Correction)))
}

// logSumExp of infinite maxima is the maximum itself
func (s RowStat) logSumExp(r *rows, v [][]Reg) Reg {
	b := r.b
	top := r.fold(float32(-posInf), func(acc Reg, c, i int) Reg { return b.maxNaN(acc, v[c][i]) }, b.maxNaN)
	sum := r.sum(func(c, i int) Reg { return b.expTerm(b.sub(v[c][i], top)) })
	return b.Do("selp.f32", b.add(top, b.log(sum)), top, b.Do("testp.finite.f32", top))
}
