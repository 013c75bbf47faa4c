package ptx

import (
	"fmt"
	"math/bits"
)

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
	if s.Outer < 1 || s.C < 1 || s.Inner < 1 || s.split() > 65535 || s.split() > s.count() || max(s.count(), s.split()*s.C) >= maxCount {
		return fmt.Errorf("ptx: %s: cannot divide %d×%d×%d into %d parts: it counts to 2^31-1", s.Name, s.Outer, s.C, s.Inner, s.split())
	}
	return nil
}

func (s Channels) split() int { return max(s.Split, 1) }

// count is the number of elements of a channel.
func (s Channels) count() int { return s.Outer * s.Inner }

// Part is the number of elements of a channel in each part except the last: whole vectors.
func (s Channels) Part() int {
	if s.Inner == 1 {
		return ceilDiv(s.count(), s.split())
	}
	return ceilDiv(s.count()/s.vec(), s.split()) * s.vec()
}

// parts is the number of parts that have elements.
func (s Channels) parts() int { return ceilDiv(s.count(), s.Part()) }

// vec is the number of adjacent elements that a thread reads at once: of one channel, or of as many
// channels if these are innermost.
func (s Channels) vec() int {
	if s.Inner == 1 {
		return vecFor(s.C, s.In)
	}
	return vecFor(s.Inner, s.In)
}

// side is the number of adjacent threads that read adjacent channels.
func (s Channels) side() int { return channelSides(s.C, s.vec()) }

// channelSides is a power of two, as many threads as there are vectors of channels or a warp.
func channelSides(channels, vec int) int {
	return min(colLanes, max(channelSide, 1<<bits.Len(uint((channels-1)/vec))))
}

// Blocks is how Moments is launched.
func (s Channels) Blocks() Channeled {
	if s.Inner > 1 {
		return Channeled{s.C, channelThreads * s.vec(), 3}
	}
	return Channeled{ceilDiv(s.C, s.side()*s.vec()), channelThreads / s.side(), 3}
}

// moments is the state while Moments generates a kernel.
type moments struct {
	Channels
	b           *builder
	tid, x      Reg
	first, last Reg // elements of the block's part
	some        Reg // predicate that the part has elements; the zero Reg: it has
}

// Moments generates the mean and the sum of squared deviations of each part of each channel. It
// sums differences from the part's first element, or from 0 if that element is not finite, so that
// the mean is infinite where it must be. Arguments: x, mean f32[Split×C], m2 f32[Split×C].
func (s Channels) Moments(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := newBuilder(fl, s.Name, channelThreads)
	b.k.Blocks = s.Blocks().Resident
	q := params{b: b}
	m := &moments{Channels: s, b: b, x: q.in("x", s.In, s.Outer*s.C*s.Inner)}
	mean, m2 := q.out("mean", Float32, s.split()*s.C), q.out("m2", Float32, s.split()*s.C)
	m.tid = b.special("%tid.x")
	m.first = b.imul(b.special("%ctaid.y"), I(s.Part()))
	m.last = b.Do("min.u32", b.iadd(m.first, I(s.Part())), I(s.count()))
	if s.Part()*(s.split()-1) >= s.count() {
		m.some = b.Do("setp.lt.u32", m.first, m.last)
	}
	store := func(channel Reg, sums []Reg) { m.store(mean, m2, channel, sums) }
	if s.Inner > 1 {
		m.planes(store)
	} else {
		m.rows(store)
	}
	return finish(b, [3]int{s.Blocks().Across, s.split(), 1}, q.list)
}

// element is the address of element j of a channel: the first of a vector of its plane, or of as many
// channels.
func (m *moments) element(channel, j Reg) Reg {
	b, size := m.b, m.In.Size()
	if m.Inner == 1 {
		return b.Do("mad.lo.u64", b.Do("cvt.u64.u32", j), I(m.C*size), b.at(m.x, channel, size))
	}
	image := b.Do("div.u32", j, I(m.Inner))
	at := b.Do("mad.lo.u32", image, I(-m.Inner), j) // position in the plane
	plane := b.Do("mad.wide.u32", image, I(m.C), b.Do("cvt.u64.u32", channel))
	return b.at(b.Do("mad.lo.u64", plane, I(m.Inner*size), m.x), at, size)
}

// origin loads what n channels are compared with.
func (m *moments) origin(channel Reg, n int) []Reg {
	b := m.b
	list := b.loadF(m.element(channel, m.first), 0, m.In, n)
	for i, v := range list {
		list[i] = b.Do("selp.f32", v, Fl(0), b.Do("testp.finite.f32", v))
	}
	return list
}

// add adds the vectors at elements of a channel to the sums of their differences and of the squares.
// All loads precede all sums.
func (m *moments) add(channel Reg, elements, origin []Reg, s1, s2 []Reg) {
	b := m.b
	var raw [][]Reg
	for _, j := range elements {
		raw = append(raw, b.load(m.element(channel, j), 0, m.In, m.vec()))
	}
	for _, vector := range raw {
		for i, v := range vector {
			d := b.sub(b.widen(v, m.In), origin[i%len(origin)])
			b.To(s1[i%len(s1)], "add.rn.f32", s1[i%len(s1)], d)
			b.To(s2[i%len(s2)], "fma.rn.f32", d, d, s2[i%len(s2)])
		}
	}
}

// planes sums one channel per block.
func (m *moments) planes(store func(channel Reg, sums []Reg)) {
	b, channel := m.b, m.b.special("%ctaid.x")
	s1, s2 := []Reg{b.floatConst(0)}, []Reg{b.floatConst(0)}
	b.where(m.some, func() {
		origin := m.origin(channel, 1)
		start := b.Do("mad.lo.u32", m.tid, I(m.vec()), m.first)
		m.each(start, channelThreads*m.vec(), func(j []Reg) { m.add(channel, j, origin, s1, s2) })
	})
	sum := func(x, y Reg) Reg { return b.add(x, y) }
	t1 := b.blockFold(s1[0], m.tid, channelThreads, "sums1", sum)
	t2 := b.blockFold(s2[0], m.tid, channelThreads, "sums2", sum)
	b.when(b.Do("setp.eq.u32", m.tid, I(0)), func() { store(channel, []Reg{t1, t2}) })
}

// rows sums a vector of channels per thread.
func (m *moments) rows(store func(channel Reg, sums []Reg)) {
	b, vec, side := m.b, m.vec(), m.side()
	sums := make([][]Reg, 2)
	for i := range sums {
		for range vec {
			sums[i] = append(sums[i], b.floatConst(0))
		}
	}
	lane := b.Do("and.b32", m.tid, I(side-1))
	group := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(side), lane)
	groups := m.C / vec
	b.where(b.both(m.some, b.below(group, groups, groups%side == 0)), func() {
		channel := b.imul(group, I(vec))
		origin := m.origin(channel, vec)
		row := b.Do("shr.u32", m.tid, I(bits.TrailingZeros(uint(side))))
		m.each(b.iadd(m.first, row), channelThreads/side, func(j []Reg) { m.add(channel, j, origin, sums[0], sums[1]) })
	})
	b.foldColumns(m.tid, side, vec, m.C, sums, store)
}

// unrolled is the number of vectors that a thread of Moments loads before it uses them.
const unrolled = 4

// each runs body for every step-th element of the part from start on, several at a time.
func (m *moments) each(start Reg, step int, body func(j []Reg)) {
	b := m.b
	if m.Part() <= step {
		b.when(b.Do("setp.lt.u32", start, m.last), func() { body([]Reg{start}) })
		return
	}
	together, always, rest := m.trips(step)
	several := func(i Reg) {
		list := []Reg{i}
		for k := 1; k < unrolled; k++ {
			list = append(list, b.iadd(i, I(k*step)))
		}
		body(list)
	}
	full := func() Reg { return b.Do("sub.u32", m.last, I((unrolled-1)*step)) }
	switch { // the rest begins where these end
	case together > 1:
		b.loop(start, full(), I(unrolled*step), B32, func(i Reg) { start = i; several(i) })
	case always:
		several(start)
		start = b.iadd(start, I(unrolled*step))
	case together == 1:
		next := b.Do("mov.u32", start)
		b.when(b.Do("setp.lt.u32", start, full()), func() {
			several(start)
			b.To(next, "add.u32", start, I(unrolled*step))
		})
		start = next
	}
	if one := func(i Reg) { body([]Reg{i}) }; rest > 1 {
		b.loop(start, m.last, I(step), B32, one)
	} else if rest == 1 {
		b.when(b.Do("setp.lt.u32", start, m.last), func() { one(start) })
	}
}

// trips are the largest number of times that a thread adds several vectors together, whether all
// threads do so once, and the largest number of vectors that are left.
func (m *moments) trips(step int) (together int, always bool, rest int) {
	sizes := []int{m.Part()}
	if last := m.count() % m.Part(); last > 0 {
		sizes = append(sizes, last)
	}
	always = true
	for _, size := range sizes {
		for _, n := range []int{size / step, ceilDiv(size, step)} {
			together, rest = max(together, n/unrolled), max(rest, n%unrolled)
			always = always && n/unrolled == 1
		}
	}
	return together, always, rest
}

// store writes the moments of one channel from its sums.
func (m *moments) store(mean, m2, channel Reg, sums []Reg) {
	b := m.b
	origin := b.reg(F32)
	if m.some.Class == Pred {
		b.To(origin, "mov.f32", Fl(0))
	}
	b.where(m.some, func() { b.To(origin, "mov.f32", m.origin(channel, 1)[0]) })
	shift := b.div(sums[0], b.Do("cvt.rn.f32.s32", b.Do("sub.s32", m.last, m.first)))
	slot := b.Do("mad.lo.u32", b.special("%ctaid.y"), I(m.C), channel)
	b.Do("st.global.f32", Addr{Base: b.at(mean, slot, 4)}, b.add(origin, shift))
	b.Do("st.global.f32", Addr{Base: b.at(m2, slot, 4)}, b.Do("max.f32", b.sub(sums[1], b.mul(sums[0], shift)), b.mul(sums[0], Fl(0))))
}

// Merge joins the partial moments of all parts into the statistics of batch normalization: the mean,
// then the squares around it. A block has eight channels; its threads share their parts. Arguments:
// mean, m2 (of Moments), with Running running_mean, running_var, then mean f32[C], rstd f32[C], with
// Running new_mean f32[C] and new_var f32[C] = old + momentum·(batch − old), the variance unbiased.
type Merge struct {
	Channels
	Eps, Momentum float32
	Running       bool
}

const mergeLanes = 8 // channels of a block, 32 bytes of each part

// merge is the state while Merge generates a kernel.
type merge struct {
	Merge
	b               *builder
	tid, channel    Reg
	inside          Reg // predicate that the thread's channel exists; the zero Reg: all do
	warps, together int // of a block; groups of threads that read different parts
}

// Build generates the kernel.
func (s Merge) Build(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	groups := 32 / mergeLanes // of a warp
	m := &merge{Merge: s, warps: min(channelThreads/32, ceilDiv(s.parts(), groups))}
	m.together = m.warps * groups
	b := newBuilder(fl, s.Name, 32*m.warps)
	m.b = b
	q := params{b: b}
	pm, p2 := q.in("part_mean", Float32, s.split()*s.C), q.in("part_m2", Float32, s.split()*s.C)
	var oldM, oldV, newM, newV Reg
	if s.Running {
		oldM, oldV = q.in("running_mean", Float32, s.C), q.in("running_var", Float32, s.C)
	}
	mean, rstd := q.out("mean", Float32, s.C), q.out("rstd", Float32, s.C)
	if s.Running {
		newM, newV = q.out("new_mean", Float32, s.C), q.out("new_var", Float32, s.C)
	}
	m.tid = b.special("%tid.x")
	m.channel = b.Do("mad.lo.u32", b.special("%ctaid.x"), I(mergeLanes), b.Do("and.b32", m.tid, I(mergeLanes-1)))
	m.inside = b.below(m.channel, s.C, s.C%mergeLanes == 0)
	at := func(p, slot Reg) Reg { return b.Do("ld.global.f32", Addr{Base: b.at(p, slot, 4)}) }
	n := Fl(float32(s.count()))
	centre := b.div(m.sum("means", func(slot, size, acc Reg) { b.To(acc, "fma.rn.f32", size, at(pm, slot), acc) }), n)
	squares := m.sum("squares", func(slot, size, acc Reg) {
		d := b.sub(at(pm, slot), centre)
		b.To(acc, "add.rn.f32", acc, b.fma(b.mul(d, d), size, at(p2, slot)))
	})
	b.where(b.both(m.inside, b.below(m.tid, mergeLanes, false)), func() {
		put := func(p, v Reg) { b.Do("st.global.f32", Addr{Base: b.at(p, m.channel, 4)}, v) }
		drift := func(old, batch Reg) Reg { return b.add(old, b.mul(b.sub(batch, old), Fl(s.Momentum))) }
		put(mean, centre)
		put(rstd, b.Do("rcp.rn.f32", b.Do("sqrt.rn.f32", b.add(b.div(squares, n), Fl(s.Eps)))))
		if s.Running {
			put(newM, drift(at(oldM, m.channel), centre))
			put(newV, drift(at(oldV, m.channel), b.div(squares, Fl(float32(max(s.count()-1, 1))))))
		}
	})
	return finish(b, [3]int{ceilDiv(s.C, mergeLanes), 1, 1}, q.list)
}

// sum adds up a value of every part: term adds that of the part at slot, which has size elements. All
// threads get the sum of their channel.
func (m *merge) sum(name string, term func(slot, size, acc Reg)) Reg {
	b, parts := m.b, m.parts()
	acc := b.floatConst(0)
	b.where(m.inside, func() {
		b.strided(b.Do("shr.u32", m.tid, I(bits.TrailingZeros(mergeLanes))), m.together, parts, func(i Reg) {
			size := b.floatConst(float32(m.Part()))
			if parts*m.Part() > m.count() {
				left := b.Do("sub.u32", I(m.count()), b.imul(i, I(m.Part())))
				size = b.Do("cvt.rn.f32.u32", b.Do("min.u32", left, I(m.Part())))
			}
			term(b.Do("mad.lo.u32", i, I(m.C), m.channel), size, acc)
		})
	})
	for d := mergeLanes; d < 32 && d < mergeLanes*parts; d *= 2 {
		acc = b.add(acc, b.neighbour(acc, d))
	}
	if m.warps == 1 {
		return acc
	}
	sh := b.shared(name, 4, 4*32*m.warps)
	b.Do("st.shared.f32", Addr{Base: b.iadd(sh, b.Do("shl.b32", m.tid, I(2)))}, acc)
	b.Do("bar.sync", I(0))
	mine := b.iadd(sh, b.Do("shl.b32", b.Do("and.b32", m.tid, I(mergeLanes-1)), I(2)))
	total := b.Do("ld.shared.f32", Addr{Base: mine})
	for w := 1; w < m.warps; w++ {
		total = b.add(total, b.Do("ld.shared.f32", Addr{Base: mine, Off: int64(4 * 32 * w)}))
	}
	return total
}
