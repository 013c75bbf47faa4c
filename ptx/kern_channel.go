package ptx

import "fmt"

// Channels views a tensor as Outer×C×Inner for work on each channel. NCHW images have Outer = N and
// Inner = H·W, NHWC images Outer = N·H·W and Inner = 1. Split > 1 divides the elements of each
// channel into contiguous parts, each with its own results; the results of a part without elements
// are undefined.
type Channels struct {
	Name            string
	Outer, C, Inner int
	Split           int
	In              DType
}

const channelThreads = 256

func (s Channels) check() error {
	if s.Outer < 1 || s.C < 1 || s.Inner < 1 || s.split() > 65535 || s.split() > s.count() || s.count() >= 1<<31 {
		return fmt.Errorf("ptx: %s: cannot divide %d×%d×%d into %d parts", s.Name, s.Outer, s.C, s.Inner, s.split())
	}
	return nil
}

func (s Channels) split() int { return max(s.Split, 1) }

// count is the number of elements of a channel.
func (s Channels) count() int { return s.Outer * s.Inner }

// part is the number of elements of a channel in each part except the last.
func (s Channels) part() int { return ceilDiv(s.count(), s.split()) }

// channelPass is a kernel in which a block processes one part of one channel, or of 32 adjacent
// channels if channels are innermost.
type channelPass struct {
	Channels
	b            *Builder
	tid, channel Reg
	first, last  Reg // elements of the part
	inside       Reg // predicate that the thread's channel exists; the zero Reg: all do
	start        Reg // the thread's first element in the part
	step         int // step from there to its next element
	folds        int
}

func (s Channels) pass(b *Builder) *channelPass {
	p := &channelPass{Channels: s, b: b, tid: b.special("%tid.x")}
	p.first = b.imul(b.special("%ctaid.y"), I(s.part()))
	p.last = b.Do("min.u32", b.iadd(p.first, I(s.part())), I(s.count()))
	if s.Inner == 1 {
		lane := b.Do("and.b32", p.tid, I(31))
		p.channel = b.Do("mad.lo.u32", b.special("%ctaid.x"), I(colLanes), lane)
		p.inside = b.below(p.channel, s.C, s.C%colLanes == 0)
		p.start, p.step = b.iadd(p.first, b.Do("shr.u32", p.tid, I(5))), colRows
	} else {
		p.channel = b.special("%ctaid.x")
		p.start, p.step = b.iadd(p.first, p.tid), channelThreads
	}
	return p
}

func (s Channels) grid() [3]int {
	if s.Inner == 1 {
		return [3]int{ceilDiv(s.C, colLanes), s.split(), 1}
	}
	return [3]int{s.C, s.split(), 1}
}

// element is the index of element j of the thread's channel.
func (p *channelPass) element(j Reg) Reg {
	b := p.b
	if p.Inner == 1 {
		return b.Do("mad.wide.u32", j, I(p.C), b.Do("cvt.u64.u32", p.channel))
	}
	n := b.Do("div.u32", j, I(p.Inner))
	at := b.Do("mad.lo.u32", n, I(-p.Inner), j) // position in the plane
	plane := b.Do("mad.wide.u32", n, I(p.C), b.Do("cvt.u64.u32", p.channel))
	return b.Do("mad.lo.u64", plane, I(p.Inner), b.Do("cvt.u64.u32", at))
}

func (p *channelPass) load(base, element Reg) Reg {
	return p.b.loadF(p.b.Do("mad.lo.u64", element, I(p.In.Size()), base), 0, p.In, 1)[0]
}

// each runs body over the thread's elements.
func (p *channelPass) each(body func(element Reg)) {
	b, one := p.b, func(j Reg) { body(p.element(j)) }
	if p.part() <= p.step {
		b.when(b.Do("setp.lt.u32", p.start, p.last), func() { one(p.start) })
		return
	}
	b.Loop(p.start, p.last, I(p.step), B32, one)
}

// sum adds one value of each thread of the channel; every thread that writes gets it.
func (p *channelPass) sum(x Reg) Reg {
	b := p.b
	p.folds++
	name := fmt.Sprintf("sums%d", p.folds)
	if p.Inner > 1 {
		return b.blockFold(x, p.tid, channelThreads, name, func(x, y Reg) Reg { return b.add(x, y) })
	}
	sh := b.Shared(name, 4, 4*colLanes*colRows)
	b.Do("st.shared.f32", Addr{Base: b.iadd(sh, b.Do("shl.b32", p.tid, I(2)))}, x)
	b.Do("bar.sync", I(0))
	mine := b.iadd(sh, b.Do("shl.b32", b.Do("and.b32", p.tid, I(31)), I(2)))
	total := b.Do("ld.shared.f32", Addr{Base: mine})
	for w := 1; w < colRows; w++ {
		total = b.add(total, b.Do("ld.shared.f32", Addr{Base: mine, Off: int64(4 * colLanes * w)}))
	}
	return total
}

// write runs body in one thread of each channel with the index of its partial result.
func (p *channelPass) write(body func(slot Reg)) {
	b := p.b
	lead := b.Do("setp.eq.u32", p.tid, I(0))
	if p.Inner == 1 {
		lead = b.both(p.inside, b.Do("setp.lt.u32", p.tid, I(colLanes)))
	}
	b.when(lead, func() { body(b.Do("mad.lo.u32", b.special("%ctaid.y"), I(p.C), p.channel)) })
}

// Moments generates the mean and the sum of squared deviations of each part of each channel. It
// sums differences from the part's first element, or from 0 if that element is not finite, so that
// the mean is infinite where it must be. Arguments: x, mean f32[Split×C], m2 f32[Split×C].
func (s Channels) Moments(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := NewBuilder(fl, s.Name, channelThreads)
	q := params{b: b}
	x := q.in("x", s.In, s.Outer*s.C*s.Inner)
	mean, m2 := q.out("mean", Float32, s.split()*s.C), q.out("m2", Float32, s.split()*s.C)
	p := s.pass(b)
	origin, s1, s2 := b.Reg(F32), b.floatConst(0), b.floatConst(0)
	n := b.Do("cvt.rn.f32.s32", b.Do("sub.s32", p.last, p.first))
	b.where(p.inside, func() {
		some := Reg{}
		if s.part()*(s.split()-1) >= s.count() { // some parts are empty
			b.To(origin, "mov.f32", Fl(0))
			some = b.Do("setp.lt.u32", p.first, p.last)
		}
		b.where(some, func() {
			v := p.load(x, p.element(p.first))
			b.To(origin, "selp.f32", v, Fl(0), b.Do("testp.finite.f32", v))
		})
		p.each(func(e Reg) {
			d := b.sub(p.load(x, e), origin)
			b.To(s1, "add.rn.f32", s1, d)
			b.To(s2, "fma.rn.f32", d, d, s2)
		})
	})
	t1, t2 := p.sum(s1), p.sum(s2)
	p.write(func(slot Reg) {
		shift := b.div(t1, n)
		b.Do("st.global.f32", Addr{Base: b.at(mean, slot, 4)}, b.add(origin, shift))
		b.Do("st.global.f32", Addr{Base: b.at(m2, slot, 4)}, b.Do("max.f32", b.sub(t2, b.mul(t1, shift)), b.mul(t1, Fl(0))))
	})
	return finish(b, s.grid(), q.list)
}

// Merge joins the partial moments of Parts parts (Chan, Golub, LeVeque 1979) into the statistics of
// batch normalization, one thread for each channel. Arguments: mean, m2 (of Moments), with Running
// running_mean, running_var, then mean f32[C], rstd f32[C], with Running new_mean f32[C] and
// new_var f32[C] = old + momentum·(batch − old), the variance unbiased.
type Merge struct {
	Channels
	Eps, Momentum float32
	Running       bool
}

// Build generates the kernel.
func (s Merge) Build(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := NewBuilder(fl, s.Name, channelThreads)
	q := params{b: b}
	parts := s.split()
	pm, p2 := q.in("part_mean", Float32, parts*s.C), q.in("part_m2", Float32, parts*s.C)
	var oldM, oldV, newM, newV Reg
	if s.Running {
		oldM, oldV = q.in("running_mean", Float32, s.C), q.in("running_var", Float32, s.C)
	}
	mean, rstd := q.out("mean", Float32, s.C), q.out("rstd", Float32, s.C)
	if s.Running {
		newM, newV = q.out("new_mean", Float32, s.C), q.out("new_var", Float32, s.C)
	}
	c := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(channelThreads), b.special("%tid.x"))
	b.guarded(c, int64(s.C), func() {
		m, m2, n := b.floatConst(0), b.floatConst(0), b.floatConst(0)
		b.Loop(I(0), I(ceilDiv(s.count(), s.part())), I(1), B32, func(i Reg) { s.merge(b, pm, p2, c, i, m, m2, n) })
		variance := b.div(m2, n)
		get := func(p Reg) Reg { return b.Do("ld.global.f32", Addr{Base: b.at(p, c, 4)}) }
		put := func(p, v Reg) { b.Do("st.global.f32", Addr{Base: b.at(p, c, 4)}, v) }
		drift := func(old, batch Reg) Reg { return b.add(old, b.mul(b.sub(batch, old), Fl(s.Momentum))) }
		put(mean, m)
		put(rstd, b.Do("rcp.rn.f32", b.Do("sqrt.rn.f32", b.add(variance, Fl(s.Eps)))))
		if !s.Running {
			return
		}
		put(newM, drift(get(oldM), m))
		put(newV, drift(get(oldV), b.div(m2, Fl(float32(max(s.count()-1, 1))))))
	})
	return finish(b, [3]int{ceilDiv(s.C, channelThreads), 1, 1}, q.list)
}

// merge adds part i to the running mean, squares and count. The mean is a weighted sum of both
// means, not a difference, because after an infinite mean a difference would be NaN.
func (s Merge) merge(b *Builder, pm, p2, c, i, m, m2, n Reg) {
	slot := b.Do("mad.lo.u32", i, I(s.C), c)
	size := b.Do("min.u32", b.Do("sub.u32", I(s.count()), b.imul(i, I(s.part()))), I(s.part()))
	k := b.Do("cvt.rn.f32.u32", size)
	total := b.add(n, k)
	part := b.Do("ld.global.f32", Addr{Base: b.at(pm, slot, 4)})
	delta, share := b.sub(part, m), b.div(k, total)
	b.To(m2, "add.rn.f32", m2, b.fma(b.mul(delta, delta), b.mul(n, share), b.Do("ld.global.f32", Addr{Base: b.at(p2, slot, 4)})))
	b.To(m, "fma.rn.f32", part, share, b.mul(m, b.div(n, total)))
	b.To(n, "mov.f32", total)
}
