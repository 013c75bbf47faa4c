package ptx

import (
	"fmt"
	"math/bits"
	"slices"
)

// ChannelSum is elementwise code over images that also sums values of the code for every channel,
// in f32. The gradient of a batch norm needs such sums, Σ dy and Σ dy·x̂; the code may compute and
// store dy in the same kernel.
//
// Shape is {Outer, C, Inner} as in Channels, or {Outer, Positions, C, 1}. The code must not read the
// index. A thread reads an access with strides {0, 1, 0} or {0, 0, 1, 0} once. Parameters: loads,
// stores, then for each value of Sums its partial sums f32[Split×C]; those of a part without elements
// are 0.
type ChannelSum struct {
	Elementwise
	Split int
	Sums  []int
}

// Channeled is how a pass over channels is launched: the blocks side by side in one part, the elements
// of a channel that a block reads at a time, and the blocks that a multiprocessor holds, to which
// registers are limited.
type Channeled struct{ Across, Step, Resident int }

const (
	channelShared = 32 << 10 // bytes of shared memory that a block may use for its sums
	channelSide   = 8        // smallest number of adjacent threads
)

// Build generates the kernel.
func (s ChannelSum) Build(fl Flavour) (*Launch, error) {
	w, err := s.generate(fl)
	if err != nil {
		return nil, fmt.Errorf("ptx: channel sum %s: %w", s.Name, err)
	}
	for k, a := range w.accesses() {
		w.bases = append(w.bases, w.param(a, k >= len(w.Loads)))
	}
	var outs []Reg
	for i := range s.Sums {
		out := Access{Name: fmt.Sprintf("sums%d", i), DType: Float32, Offset: int64(w.split*w.channels) - 1}
		outs = append(outs, w.param(out, true))
	}
	w.b.k.Blocks = s.resident()
	w.tid = w.b.special("%tid.x")
	if w.planes {
		w.sumPlanes(s.Sums, outs)
	} else {
		w.sumRows(s.Sums, outs)
	}
	return finish(w.b, [3]int{w.across(), w.split, 1}, w.args)
}

// Blocks is how the pass is launched.
func (s ChannelSum) Blocks(fl Flavour) (Channeled, error) {
	w, err := s.generate(fl)
	if err != nil {
		return Channeled{}, err
	}
	if w.planes {
		return Channeled{w.across(), elementThreads * w.vec, s.resident()}, nil
	}
	return Channeled{w.across(), elementThreads / w.side(), s.resident()}, nil
}

// resident is 2 if the registers of three sums, or of outputs of several windows, would not suffice
// for more blocks.
func (s ChannelSum) resident() int {
	if len(s.Sums) > 2 || slices.ContainsFunc(s.Loads, func(a Access) bool { return a.Spread != nil && a.Spread.Taps }) {
		return 2
	}
	return 3
}

func (w *channelSum) across() int {
	if w.planes {
		return w.channels
	}
	return ceilDiv(w.channels, w.side()*w.vec)
}

// channelSum is the state while one kernel is generated.
type channelSum struct {
	*elementwiseGen
	channels, split int
	planes          bool // channels are not innermost: a block processes one channel
	tid             Reg
}

func (s ChannelSum) generate(fl Flavour) (*channelSum, error) {
	last := len(s.Shape) - 1
	if last != 2 && (last != 3 || s.Shape[3] != 1) || product(s.Shape) < 1 || product(s.Shape)/s.Shape[last-1] >= maxCount || s.Shape[last-1] >= maxCount || s.Split > 65535 || s.Split < 1 {
		return nil, fmt.Errorf("cannot divide %v into %d parts: it counts to 2^31-1", s.Shape, s.Split)
	}
	w := &channelSum{channels: int(s.Shape[last-1]), split: s.Split, planes: s.Shape[last] > 1}
	g := s.Elementwise
	if !w.planes { // without dimensions of size 1, the innermost dimension is that of channels
		g.Shape = s.Shape[:last]
	}
	g.Loads, g.Stores = append([]Access(nil), s.Loads...), append([]Output(nil), s.Stores...)
	for i := range g.Loads {
		g.Loads[i].Stride = strideOf(&g.Loads[i], s.Shape)[:len(g.Shape)]
	}
	for i := range g.Stores {
		g.Stores[i].Stride = strideOf(&g.Stores[i].Access, s.Shape)[:len(g.Shape)]
	}
	for _, in := range g.Code {
		if in.Op == "index" || in.Op == "philox" {
			return nil, fmt.Errorf("%s depends on the place in the images", in.Op)
		}
	}
	w.elementwiseGen = &elementwiseGen{Elementwise: g, n: product(g.Shape), b: newBuilder(fl, g.Name, elementThreads)}
	if err := w.check(); err != nil {
		return nil, err
	}
	for _, v := range s.Sums {
		if v < 0 || v >= len(g.Code) || g.Code[v].Type != Float32 {
			return nil, fmt.Errorf("sum of value %d of %d", v, len(g.Code))
		}
	}
	for w.vec = w.width(); !w.planes && 4*elementThreads*w.vec*len(s.Sums) > channelShared; w.vec /= 2 {
	}
	return w, w.checkAccesses()
}

// strideOf is the strides of an access over shape; nil strides are contiguous.
func strideOf(a *Access, shape []int64) []int64 {
	if a.Stride == nil {
		return contiguous(shape)
	}
	return a.Stride
}

// steady computes the values that are constant within a channel, before the loop over its elements.
func (w *channelSum) steady(coords []Reg, lanes int) {
	w.fixed, w.vals, w.lanes, w.coords = make([][]Reg, len(w.Code)), make([][]Reg, len(w.Code)), lanes, coords
	for i, in := range w.Code {
		ok := true
		if in.Op == "in" {
			a := w.Loads[in.Int].Stride
			ok = a[0] == 0 && (!w.planes && (len(a) == 2 || a[1] == 0) || w.planes && a[2] == 0)
		}
		args := [3]int{in.A, in.B, in.C}
		for _, k := range args[:prims[in.Op].args] {
			ok = ok && w.fixed[k] != nil
		}
		if ok {
			w.vals[i] = w.value(i, in)
			w.fixed[i] = w.vals[i]
		}
	}
}

// part emits the block's share of n elements: the index of the first element and the index after
// the last.
func (w *channelSum) part(n int) (first, last Reg) {
	b, size := w.b, ceilDiv(n, w.split)
	if w.split == 1 {
		return b.Do("mov.u32", I(0)), b.Do("mov.u32", I(n))
	}
	first = b.imul(b.special("%ctaid.y"), I(size))
	return first, b.Do("min.u32", b.iadd(first, I(size)), I(n))
}

// each runs body for every step-th of n elements from start below last.
func (w *channelSum) each(start, last Reg, step, n int, body func(j Reg)) {
	b := w.b
	switch {
	case n == step*w.split:
		body(start)
	case ceilDiv(n, w.split) <= step:
		b.when(b.Do("setp.lt.u32", start, last), func() { body(start) })
	default:
		b.loop(start, last, I(step), B32, body)
	}
}

// add adds the values of the elements at coords to the sums. If sums has several lanes, each lane
// is added to its own.
func (w *channelSum) add(coords []Reg, values []int, sums [][]Reg) {
	w.coords = coords
	w.compute(Reg{}, w.vec)
	w.putAll()
	for i, v := range values {
		for l := range w.vec {
			to := sums[i][l%len(sums[i])]
			w.b.To(to, "add.rn.f32", to, w.lane(v, l))
		}
	}
}

func (w *channelSum) zeros(values []int, lanes int) [][]Reg {
	sums := make([][]Reg, len(values))
	for i := range sums {
		for range lanes {
			sums[i] = append(sums[i], w.b.floatConst(0))
		}
	}
	return sums
}

// sumPlanes sums one channel per block.
func (w *channelSum) sumPlanes(values []int, outs []Reg) {
	b, wide := w.b, func(r Reg) Reg { return w.b.Do("cvt.u64.u32", r) }
	plane := int(w.Shape[2]) / w.vec
	n := int(w.Shape[0]) * plane
	sums := w.zeros(values, 1)
	channel := b.special("%ctaid.x")
	first, last := w.part(n)
	c := wide(channel)
	w.steady([]Reg{{}, c, {}}, 1)
	w.each(b.iadd(first, w.tid), last, elementThreads, n, func(j Reg) {
		image := b.Do("div.u32", j, I(plane))
		at := b.Do("mad.lo.u32", image, I(-plane), j)
		w.add([]Reg{wide(image), c, b.Do("mul.wide.u32", at, I(w.vec))}, values, sums)
	})
	var totals []Reg
	for i := range values {
		totals = append(totals, b.blockFold(sums[i][0], w.tid, elementThreads, fmt.Sprintf("fold%d", i), func(x, y Reg) Reg { return b.add(x, y) }))
	}
	b.when(b.Do("setp.eq.u32", w.tid, I(0)), func() { w.store(outs, totals, channel) })
}

// store writes the sums of one channel.
func (w *channelSum) store(outs, totals []Reg, channel Reg) {
	slot := channel
	if w.split > 1 {
		slot = w.b.Do("mad.lo.u32", w.b.special("%ctaid.y"), I(w.channels), channel)
	}
	for i, out := range outs {
		w.b.Do("st.global.f32", Addr{Base: w.b.at(out, slot, 4)}, totals[i])
	}
}

// side is the number of threads in a row of the block.
func (w *channelSum) side() int { return channelSides(w.channels, w.vec) }

// sumRows sums rows of channels. Threads in one row of the block have adjacent channels; threads in
// one column have the same channel.
func (w *channelSum) sumRows(values []int, outs []Reg) {
	b, side := w.b, w.side()
	rows := elementThreads / side
	n := int(w.n) / w.channels
	sums := w.zeros(values, w.vec)
	lane := b.Do("and.b32", w.tid, I(side-1))
	group := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(side), lane)
	groups := w.channels / w.vec
	b.where(b.below(group, groups, groups%side == 0), func() {
		first, last := w.part(n)
		c := b.Do("mul.wide.u32", group, I(w.vec))
		w.steady(append(make([]Reg, len(w.Shape)-1), c), w.vec)
		row := b.Do("shr.u32", w.tid, I(bits.TrailingZeros(uint(side))))
		w.each(b.iadd(first, row), last, rows, n, func(j Reg) {
			w.add(append(w.outer(j), c), values, sums)
		})
	})
	b.foldColumns(w.tid, side, w.vec, w.channels, sums, func(channel Reg, totals []Reg) { w.store(outs, totals, channel) })
}

// outer splits row j into the image index and the position in the image.
func (w *channelSum) outer(j Reg) []Reg {
	b := w.b
	if len(w.Shape) == 2 {
		return []Reg{b.Do("cvt.u64.u32", j)}
	}
	position, image := w.divide("u32", j, w.Shape[1])
	return []Reg{b.Do("cvt.u64.u32", image), b.Do("cvt.u64.u32", position)}
}

// foldColumns adds up the values of the threads in each column of a block, of which side threads are a
// row and have vec channels each. It runs store in one thread for each channel.
func (b *builder) foldColumns(tid Reg, side, vec, channels int, sums [][]Reg, store func(channel Reg, totals []Reg)) {
	sh := b.shared("sums", 4, 4*elementThreads*vec*len(sums))
	mine := b.iadd(sh, b.Do("shl.b32", tid, I(2)))
	at := func(i, l int) int64 { return int64(4 * elementThreads * (i*vec + l)) }
	for i, list := range sums {
		for l, s := range list {
			b.Do("st.shared.f32", Addr{Base: mine, Off: at(i, l)}, s)
		}
	}
	b.Do("bar.sync", I(0))
	// thread t has lane t mod side and element t div side of its vector
	lane := b.Do("and.b32", tid, I(side-1))
	element := b.Do("shr.u32", tid, I(bits.TrailingZeros(uint(side))))
	group := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(side), lane)
	channel := b.Do("mad.lo.u32", group, I(vec), element)
	inside := b.below(tid, side*vec, side*vec == elementThreads)
	inside = b.both(inside, b.below(channel, channels, channels%(side*vec) == 0))
	b.where(inside, func() {
		from := b.iadd(sh, b.Do("shl.b32", b.Do("mad.lo.u32", element, I(elementThreads), lane), I(2)))
		var totals []Reg
		for i := range sums {
			total := b.Do("ld.shared.f32", Addr{Base: from, Off: at(i, 0)})
			for r := 1; r < elementThreads/side; r++ {
				total = b.add(total, b.Do("ld.shared.f32", Addr{Base: from, Off: at(i, 0) + int64(4*side*r)}))
			}
			totals = append(totals, total)
		}
		store(channel, totals)
	})
}
