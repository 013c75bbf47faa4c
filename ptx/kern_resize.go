package ptx

import (
	"fmt"
	"slices"
)

// perElement runs body in one thread for each of n elements.
func (b *builder) perElement(n int, body func(i Reg)) [3]int {
	i := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(elementThreads), b.special("%tid.x"))
	b.guarded(i, int64(n), func() { body(i) })
	return [3]int{ceilDiv(n, elementThreads), 1, 1}
}

func volume(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// Pad extends a tensor from shape In to Out, with Lo elements before the first of each dimension,
// by repeating the element at the edge or by reflection. Arguments: x, y. Elements are moved as
// bits.
type Pad struct {
	Name        string
	In, Out, Lo []int
	Reflect     bool
	DType       DType
}

// Build generates the kernel, one thread for each element of y.
func (s Pad) Build(fl Flavour) (*Launch, error) {
	n := volume(s.Out)
	if len(s.In) != len(s.Out) || len(s.Lo) != len(s.Out) || volume(s.In) < 1 || n < 1 || max(n, volume(s.In)) >= maxCount {
		return nil, fmt.Errorf("ptx: %s: cannot pad %v to %v: it counts to 2^31-1", s.Name, s.In, s.Out)
	}
	s = s.merged()
	b := newBuilder(fl, s.Name, elementThreads)
	p := params{b: b}
	x, y := p.in("x", s.DType, volume(s.In)), p.out("y", s.DType, n)
	grid := b.perElement(n, func(i Reg) {
		from, rest, stride := b.Do("mov.u32", I(0)), i, 1
		for d := len(s.Out) - 1; d >= 0; d-- {
			at := rest
			if d > 0 {
				rest, at = b.divmod(rest, s.Out[d])
			}
			from = b.Do("mad.lo.u32", s.source(b, d, at), I(stride), from)
			stride *= s.In[d]
		}
		b.store(b.at(y, i, s.DType.Size()), 0, s.DType, b.load(b.at(x, from, s.DType.Size()), 0, s.DType, 1))
	})
	return finish(b, grid, p.list)
}

// source is the index in x along dimension d for index at in y.
func (s Pad) source(b *builder, d int, at Reg) Reg {
	last := s.In[d] - 1
	switch {
	case s.In[d] == s.Out[d]:
		return at
	case s.Reflect:
		at = b.Do("abs.s32", b.Do("sub.s32", at, I(s.Lo[d])))
		return b.Do("min.s32", at, b.Do("sub.s32", I(2*last), at))
	}
	return b.Do("min.s32", b.Do("max.s32", b.Do("sub.s32", at, I(s.Lo[d])), I(0)), I(last))
}

// merged merges adjacent dimensions that are not padded.
func (s Pad) merged() Pad {
	m := Pad{Name: s.Name, Reflect: s.Reflect, DType: s.DType}
	for d := range s.Out {
		if k := len(m.Out) - 1; k >= 0 && m.In[k] == m.Out[k] && s.In[d] == s.Out[d] {
			m.In[k] *= s.In[d]
			m.Out[k] *= s.Out[d]
			continue
		}
		m.In, m.Out, m.Lo = append(m.In, s.In[d]), append(m.Out, s.Out[d]), append(m.Lo, s.Lo[d])
	}
	return m
}

// Resize samples images of shape Outer×In×Inner to shape Outer×Out×Inner, by the nearest element or
// linearly (in f32, with weights computed in f64). Coords maps position i of n outputs to m inputs:
// half_pixel (i+½)·m/n-½, asymmetric i·m/n (nearest rounds down), align_corners i·(m-1)/(n-1),
// TiesUp takes the later of two equally near elements. Absent dimensions have size 1.
//
// Forward arguments: x, y. Backward arguments: dy, dx; each element of dx adds, in order, the
// elements of dy that sampled it. An element with weight zero is not read, so its NaN has no
// effect.
type Resize struct {
	Name         string
	Outer, Inner int
	In, Out      [3]int
	Linear       bool
	Coords       string
	TiesUp       bool
	X, Y         DType // of x and y, or dx and dy
}

func (s Resize) check() (in, out int, err error) {
	in, out = s.Outer*volume(s.In[:])*s.Inner, s.Outer*volume(s.Out[:])*s.Inner
	if in < 1 || out < 1 || max(in, out) >= maxCount || !slices.Contains([]string{"half_pixel", "asymmetric", "align_corners"}, s.Coords) {
		return 0, 0, fmt.Errorf("ptx: %s: cannot resize %v to %v by %s: it counts to 2^31-1", s.Name, s.In, s.Out, s.Coords)
	}
	return in, out, nil
}

// tap is an element from which a sampled element is computed, with its weight (the zero Reg: one).
// above says whether the weight is known to be above zero.
type tap struct {
	at, weight Reg
	above      bool
}

// position is the coordinate at which element i of dimension d is sampled, in f64 and clamped to
// the image.
func (s Resize) position(b *builder, d int, i Reg) Reg {
	x, m, n := b.Do("cvt.rn.f64.u32", i), float64(s.In[d]), float64(s.Out[d])
	switch s.Coords {
	case "half_pixel":
		x = b.Do("div.rn.f64", b.Do("mul.rn.f64", b.Do("add.rn.f64", x, Db(0.5)), Db(m)), Db(n))
		x = b.Do("sub.rn.f64", x, Db(0.5))
	case "asymmetric":
		x = b.Do("div.rn.f64", b.Do("mul.rn.f64", x, Db(m)), Db(n))
	default:
		x = b.Do("div.rn.f64", b.Do("mul.rn.f64", x, Db(m-1)), Db(max(n-1, 1)))
	}
	return b.Do("min.f64", b.Do("max.f64", x, Db(0)), Db(m-1))
}

// taps returns the elements along dimension d from which element i is computed.
func (s Resize) taps(b *builder, d int, i Reg) []tap {
	if s.In[d] == 1 {
		return []tap{{at: b.Do("mov.u32", I(0)), above: true}}
	}
	x := s.position(b, d, i)
	if !s.Linear {
		if s.Coords == "asymmetric" {
			return []tap{{at: b.Do("cvt.rzi.u32.f64", x), above: true}}
		}
		if s.TiesUp {
			return []tap{{at: b.Do("cvt.rzi.u32.f64", b.Do("add.rn.f64", x, Db(0.5))), above: true}}
		}
		return []tap{{at: b.Do("cvt.rpi.u32.f64", b.Do("sub.rn.f64", x, Db(0.5))), above: true}}
	}
	lo := b.Do("cvt.rzi.u32.f64", x)
	w := b.Do("sub.rn.f64", x, b.Do("cvt.rn.f64.u32", lo))
	rest := b.Do("cvt.rn.f32.f64", b.Do("sub.rn.f64", Db(1), w))
	return []tap{{lo, rest, true}, {at: b.Do("min.u32", b.iadd(lo, I(1)), I(s.In[d]-1)), weight: b.Do("cvt.rn.f32.f64", w)}}
}

// times multiplies weights, either of which may be the zero Reg (one).
func (b *builder) times(x, y Reg) Reg {
	switch {
	case x.Class == NoClass:
		return y
	case y.Class == NoClass:
		return x
	}
	return b.mul(x, y)
}

// weighted adds w·v() to acc if w is above zero.
func (b *builder) weighted(acc, w Reg, above bool, v func() Reg) {
	var some Reg
	switch {
	case w.Class == NoClass:
		b.To(acc, "add.rn.f32", acc, v())
		return
	case !above:
		some = b.Do("setp.gt.f32", w, Fl(0))
	}
	b.where(some, func() { b.To(acc, "fma.rn.f32", w, v(), acc) })
}

// split splits the linear index of an element of images of dims into coordinates.
func (s Resize) split(b *builder, i Reg, dims [3]int) (outer, inner Reg, at [3]Reg) {
	i, inner = b.divmod(i, s.Inner)
	for d := 2; d >= 0; d-- {
		i, at[d] = b.divmod(i, dims[d])
	}
	return i, inner, at
}

// join is the inverse of split.
func (s Resize) join(b *builder, outer, inner Reg, at [3]Reg, dims [3]int) Reg {
	for d, a := range at {
		outer = b.Do("mad.lo.u32", outer, I(dims[d]), a)
	}
	return b.Do("mad.lo.u32", outer, I(s.Inner), inner)
}

// Forward generates the sampling, one thread for each element of y.
func (s Resize) Forward(fl Flavour) (*Launch, error) {
	in, out, err := s.check()
	if err != nil {
		return nil, err
	}
	b := newBuilder(fl, s.Name, elementThreads)
	p := params{b: b}
	x, y := p.in("x", s.X, in), p.out("y", s.Y, out)
	grid := b.perElement(out, func(i Reg) {
		outer, inner, at := s.split(b, i, s.Out)
		var all [3][]tap
		for d := range all {
			all[d] = s.taps(b, d, at[d])
		}
		acc := b.floatConst(0)
		for _, t0 := range all[0] {
			for _, t1 := range all[1] {
				for _, t2 := range all[2] {
					w := b.times(b.times(t0.weight, t1.weight), t2.weight)
					b.weighted(acc, w, t0.above && t1.above && t2.above, func() Reg {
						from := s.join(b, outer, inner, [3]Reg{t0.at, t1.at, t2.at}, s.In)
						return b.loadF(b.at(x, from, s.X.Size()), 0, s.X, 1)[0]
					})
				}
			}
		}
		b.storeF(b.at(y, i, s.Y.Size()), 0, s.Y, []Reg{acc})
	})
	return finish(b, grid, p.list)
}

// Backward generates the transpose, one thread for each element of dx.
func (s Resize) Backward(fl Flavour) (*Launch, error) {
	in, out, err := s.check()
	if err != nil {
		return nil, err
	}
	b := newBuilder(fl, s.Name, elementThreads)
	p := params{b: b}
	dy, dx := p.in("dy", s.Y, out), p.out("dx", s.X, in)
	grid := b.perElement(in, func(i Reg) {
		outer, inner, mine := s.split(b, i, s.In)
		acc := b.floatConst(0)
		s.samples(b, 0, mine, [3]Reg{}, Reg{}, func(at [3]Reg, w Reg) {
			b.weighted(acc, w, false, func() Reg {
				from := s.join(b, outer, inner, at, s.Out)
				return b.loadF(b.at(dy, from, s.Y.Size()), 0, s.Y, 1)[0]
			})
		})
		b.storeF(b.at(dx, i, s.X.Size()), 0, s.X, []Reg{acc})
	})
	return finish(b, grid, p.list)
}

// samples runs body for the elements that may have been sampled from mine, with their weights,
// along dimensions d and higher.
func (s Resize) samples(b *builder, d int, mine, at [3]Reg, w Reg, body func(at [3]Reg, w Reg)) {
	if d == 3 {
		body(at, w)
		return
	}
	first, end := s.reach(b, d, mine[d])
	b.loop(first, end, I(1), B32, func(i Reg) {
		at[d] = i
		s.samples(b, d+1, mine, at, b.times(w, s.share(b, d, i, mine[d])), body)
	})
}

// share is the weight of element mine in element i along dimension d.
func (s Resize) share(b *builder, d int, i, mine Reg) Reg {
	if s.In[d] == 1 {
		return Reg{}
	}
	total := Reg{}
	for _, t := range s.taps(b, d, i) {
		w := Arg(Fl(1))
		if t.weight.Class != NoClass {
			w = t.weight
		}
		v := b.Do("selp.f32", w, Fl(0), b.Do("setp.eq.u32", t.at, mine))
		if total.Class != NoClass {
			v = b.add(total, v)
		}
		total = v
	}
	return total
}

// reach bounds the elements along dimension d that are sampled less than one position from j, with
// a margin of one on either side. The first and the last also include elements beyond the ends.
func (s Resize) reach(b *builder, d int, j Reg) (first, end Arg) {
	if s.In[d] == 1 {
		return I(0), I(s.Out[d])
	}
	step, shift := float64(s.In[d])/float64(s.Out[d]), 0.0
	switch s.Coords {
	case "half_pixel":
		shift = 0.5*step - 0.5
	case "align_corners":
		step = float64(s.In[d]-1) / float64(max(s.Out[d]-1, 1))
	}
	x := b.Do("cvt.rn.f64.u32", j)
	edge := func(by float64) Reg {
		at := b.Do("div.rn.f64", b.Do("add.rn.f64", x, Db(by-shift)), Db(step))
		return b.Do("cvt.rmi.s32.f64", at)
	}
	lo := b.Do("max.s32", b.Do("add.s32", edge(-1), I(-1)), I(0))
	hi := b.Do("min.s32", b.Do("add.s32", edge(1), I(3)), I(s.Out[d]))
	return b.Do("selp.b32", I(0), lo, b.Do("setp.eq.u32", j, I(0))),
		b.Do("selp.b32", I(s.Out[d]), hi, b.Do("setp.eq.u32", j, I(s.In[d]-1)))
}
