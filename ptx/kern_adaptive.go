package ptx

import "fmt"

// AdaptivePool averages images of shape Outer×In×Inner, In being up to three spatial dimensions, to
// shape Outer×Out×Inner. Position i of n outputs averages the inputs from floor(i·m/n) to before
// ceil((i+1)·m/n) of m. Absent dimensions have size 1. Forward arguments: x, y. Backward arguments:
// dy, dx.
type AdaptivePool struct {
	Name         string
	Outer, Inner int
	In, Out      [3]int
	X, Y         DType // of x and y, or dx and dy
}

func (s AdaptivePool) check() (in, out int, err error) {
	in, out = s.Outer*volume(s.In[:])*s.Inner, s.Outer*volume(s.Out[:])*s.Inner
	if in < 1 || out < 1 || max(in, out) >= maxCount {
		return 0, 0, fmt.Errorf("ptx: %s: cannot pool %v to %v: it counts to 2^31-1", s.Name, s.In, s.Out)
	}
	for d := range s.In {
		if s.In[d]*(s.Out[d]+1) >= maxCount || s.Out[d]*(s.In[d]+1) >= maxCount {
			return 0, 0, fmt.Errorf("ptx: %s: cannot pool %v to %v: more than 2^31 steps", s.Name, s.In, s.Out)
		}
	}
	return in, out, nil
}

// cover is the range of coarse parts, or positions, that overlap element i: from floor(i·m/n) to
// ceil((i+1)·m/n), for n elements over m. Overlap is symmetric, so one formula serves both
// directions.
func (b *builder) cover(i Reg, m, n int) (first, end Reg) {
	first = b.Do("div.u32", b.imul(i, I(m)), I(n))
	end = b.Do("div.u32", b.Do("mad.lo.u32", i, I(m), I(m+n-1)), I(n))
	return first, end
}

// within runs body for every position that overlaps an element, along each dimension. If n is a
// multiple of m, there is exactly one.
func (b *builder) within(lo, hi, at [3]Reg, m, n []int, body func(at [3]Reg)) {
	d := 3 - len(m)
	if len(m) == 0 {
		body(at)
		return
	}
	inner := func(i Reg) {
		at[d] = i
		b.within(lo, hi, at, m[1:], n[1:], body)
	}
	if n[0]%m[0] == 0 {
		inner(lo[d])
		return
	}
	b.loop(lo[d], hi[d], I(1), B32, inner)
}

func (s AdaptivePool) geometry() Resize { return Resize{Outer: s.Outer, Inner: s.Inner} }

// Forward generates the means, one thread for each element of y.
func (s AdaptivePool) Forward(fl Flavour) (*Launch, error) {
	in, out, err := s.check()
	if err != nil {
		return nil, err
	}
	b := newBuilder(fl, s.Name, elementThreads)
	p := params{b: b}
	x, y := p.in("x", s.X, in), p.out("y", s.Y, out)
	g := s.geometry()
	grid := b.perElement(out, func(i Reg) {
		outer, inner, at := g.split(b, i, s.Out)
		var lo, hi [3]Reg
		size := b.Do("mov.u32", I(1))
		for d := range at {
			lo[d], hi[d] = b.cover(at[d], s.In[d], s.Out[d])
			size = b.imul(size, b.Do("sub.u32", hi[d], lo[d]))
		}
		acc := b.floatConst(0)
		b.within(lo, hi, [3]Reg{}, s.In[:], s.Out[:], func(at [3]Reg) {
			from := g.join(b, outer, inner, at, s.In)
			b.To(acc, "add.rn.f32", acc, b.loadF(b.at(x, from, s.X.Size()), 0, s.X, 1)[0])
		})
		b.storeF(b.at(y, i, s.Y.Size()), 0, s.Y, []Reg{b.div(acc, b.Do("cvt.rn.f32.u32", size))})
	})
	return finish(b, grid, p.list)
}

// Backward generates dx, one thread for each element: the sum of dy over the outputs that read it,
// each divided by the number of its inputs.
func (s AdaptivePool) Backward(fl Flavour) (*Launch, error) {
	in, out, err := s.check()
	if err != nil {
		return nil, err
	}
	b := newBuilder(fl, s.Name, elementThreads)
	p := params{b: b}
	dy, dx := p.in("dy", s.Y, out), p.out("dx", s.X, in)
	g := s.geometry()
	grid := b.perElement(in, func(i Reg) {
		outer, inner, mine := g.split(b, i, s.In)
		var lo, hi [3]Reg
		for d := range mine {
			lo[d], hi[d] = b.cover(mine[d], s.Out[d], s.In[d])
		}
		acc := b.floatConst(0)
		b.within(lo, hi, [3]Reg{}, s.Out[:], s.In[:], func(at [3]Reg) {
			size := b.Do("mov.u32", I(1))
			for d := range at {
				first, end := b.cover(at[d], s.In[d], s.Out[d])
				size = b.imul(size, b.Do("sub.u32", end, first))
			}
			from := g.join(b, outer, inner, at, s.Out)
			v := b.loadF(b.at(dy, from, s.Y.Size()), 0, s.Y, 1)[0]
			b.To(acc, "add.rn.f32", acc, b.div(v, b.Do("cvt.rn.f32.u32", size)))
		})
		b.storeF(b.at(dx, i, s.X.Size()), 0, s.X, []Reg{acc})
	})
	return finish(b, grid, p.list)
}
