package ptxtest

import (
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

func resizeCases() []Case {
	var cases []Case
	for _, n := range sizes {
		for i, coords := range []string{"half_pixel", "asymmetric", "align_corners"} {
			s := ptx.Resize{Outer: 2, Inner: 3, In: [3]int{1, 1, n}, Out: [3]int{1, 1, n*3/2 + 1}, Linear: i != 1, Coords: coords, X: ptx.Float32, Y: ptx.Float32}
			cases = append(cases, resize(s), resizeBack(s))
		}
		a := ptx.AdaptivePool{Outer: 2, Inner: 2, In: [3]int{1, 1, n}, Out: [3]int{1, 1, n/3 + 1}, X: ptx.Float32, Y: ptx.Float16}
		p := ptx.Pad{In: []int{3, n}, Out: []int{4, n + 2}, Lo: []int{1, 1}, DType: ptx.Float32}
		cases = append(cases, adaptive(a), adaptiveBack(a), pad(p))
		if p.Reflect = n > 1; p.Reflect {
			cases = append(cases, pad(p))
		}
	}
	square := ptx.Resize{Outer: 3, Inner: 1, In: [3]int{1, 5, 7}, Out: [3]int{1, 9, 5}, Linear: true, Coords: "half_pixel", X: ptx.Float16, Y: ptx.Float32}
	solid := ptx.Resize{Outer: 1, Inner: 2, In: [3]int{4, 3, 5}, Out: [3]int{3, 6, 10}, Coords: "half_pixel", X: ptx.BFloat16, Y: ptx.BFloat16}
	up := ptx.Resize{Outer: 2, Inner: 1, In: [3]int{1, 6, 10}, Out: [3]int{1, 3, 5}, Coords: "half_pixel", TiesUp: true, X: ptx.Float32, Y: ptx.Float32}
	boxes := ptx.AdaptivePool{Outer: 3, Inner: 1, In: [3]int{3, 5, 7}, Out: [3]int{2, 3, 10}, X: ptx.BFloat16, Y: ptx.Float32}
	return append(cases,
		resize(square), resizeBack(square), resize(solid), resizeBack(solid), resize(up), resizeBack(up), adaptive(boxes), adaptiveBack(boxes),
		pad(ptx.Pad{In: []int{2, 3, 4, 5}, Out: []int{2, 7, 4, 9}, Lo: []int{0, 2, 0, 3}, Reflect: true, DType: ptx.Float16}),
		pad(ptx.Pad{In: []int{2, 3, 4}, Out: []int{2, 3, 32}, Lo: []int{0, 0, 11}, DType: ptx.Float64}),
		pad(ptx.Pad{In: []int{4, 60}, Out: []int{4, 64}, Lo: []int{0, 4}, DType: ptx.Int64}))
}

func size(d [3]int) string { return caseName("%dx%dx%d", d[0], d[1], d[2]) }

func pad(s ptx.Pad) Case {
	s.Name = identifier(caseName("pad_%v%v_%v", s.Reflect, s.Out, s.DType))
	n := func(dims []int) int {
		v := 1
		for _, d := range dims {
			v *= d
		}
		return v
	}
	return Case{
		Name: s.Name, Kernel: "Pad.Build", Size: s.In[len(s.In)-1], Build: s.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			x := ids(r, s.DType, n(s.In), 1<<20)
			if isFloat(s.DType) {
				x = special(r, s.DType, n(s.In), 1)
			}
			return []Tensor{x, New(s.DType, n(s.Out))}
		},
		Check: func(in, out []Tensor) error {
			want := New(s.DType, n(s.Out))
			for i := range want.Len() {
				rest, from, step := i, 0, 1
				for d := len(s.Out) - 1; d >= 0; d-- {
					at, last := rest%s.Out[d]-s.Lo[d], s.In[d]-1
					rest /= s.Out[d]
					if s.Reflect && at < 0 {
						at = -at
					} else if s.Reflect && at > last {
						at = 2*last - at
					}
					from += min(max(at, 0), last) * step
					step *= s.In[d]
				}
				want.setBits(i, in[0].Bits(from))
			}
			return same("y", out[1], want)
		},
	}
}

// sampled are the elements of a dimension of m that element i of n is made of, with their weights.
func sampled(s ptx.Resize, d, i int) map[int]float64 {
	m, n := float64(s.In[d]), float64(s.Out[d])
	x := 0.0
	switch s.Coords {
	case "half_pixel":
		x = (float64(i)+0.5)*m/n - 0.5
	case "asymmetric":
		x = float64(i) * m / n
	default:
		x = float64(i) * (m - 1) / max(n-1, 1)
	}
	x = min(max(x, 0), m-1)
	switch {
	case s.Linear:
		w := x - math.Floor(x)
		if w == 0 {
			return map[int]float64{int(x): 1}
		}
		return map[int]float64{int(x): 1 - w, int(x) + 1: w}
	case s.Coords == "asymmetric":
		return map[int]float64{int(x): 1}
	case s.TiesUp:
		return map[int]float64{int(x + 0.5): 1}
	}
	return map[int]float64{int(math.Ceil(x - 0.5)): 1}
}

// samples calls f for each pair of an element of y and one of x that it is made of.
func samples(s ptx.Resize, f func(y, x int, w float64)) {
	outs, ins := volume(s.Out), volume(s.In)
	for i := range s.Outer * outs * s.Inner {
		outer, in, at := i/(outs*s.Inner), i%s.Inner, coords(i/s.Inner%outs, s.Out)
		for a, wa := range sampled(s, 0, at[0]) {
			for b, wb := range sampled(s, 1, at[1]) {
				for c, wc := range sampled(s, 2, at[2]) {
					f(i, (outer*ins+flat([3]int{a, b, c}, s.In))*s.Inner+in, wa*wb*wc)
				}
			}
		}
	}
}

// pairs takes pairs of an element that is summed up and one that goes into it, with its weight.
type pairs func(to, from int, w float64)

func (f pairs) turned() pairs { return func(to, from int, w float64) { f(from, to, w) } }

// weighted is a case of sums of weighted elements, which list lists, over batch
// volumes from of x to volumes to of y; one in every specials of x is special.
func weighted(kernel, result string, x, y ptx.DType, batch int, from, to [3]int, specials int, list func(pairs)) Case {
	n := batch * volume(to)
	return Case{
		Kernel: kernel,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{strew(r, fill(r, x, batch*volume(from), 1), specials), New(y, n)}
		},
		Check: func(in, out []Tensor) error {
			want, mass := make([]float64, n), make([]float64, n)
			list(func(to, from int, w float64) {
				want[to] += w * in[0].At(from)
				mass[to] += math.Abs(w * in[0].At(from))
			})
			return near(result, out[1], func(i int) float64 { return want[i] }, func(i int) float64 { return mass[i] * eps32 * 8 })
		},
	}
}

func resizeName(kind string, s ptx.Resize) string {
	if s.Linear {
		kind += "_linear"
	}
	if s.TiesUp {
		kind += "_up"
	}
	return caseName("%s_%s_%dx%sx%d", kind, s.Coords, s.Outer, size(s.Out), s.Inner)
}

func resize(s ptx.Resize) Case {
	s.Name = resizeName("resize", s)
	c := weighted("Resize.Forward", "y", s.X, s.Y, s.Outer*s.Inner, s.In, s.Out, 7, func(f pairs) { samples(s, f) })
	c.Name, c.Size, c.Build, c.Trials = s.Name, s.In[2], s.Forward, 6
	return c
}

func resizeBack(s ptx.Resize) Case {
	s.Name = resizeName("resize_bwd", s)
	c := weighted("Resize.Backward", "dx", s.Y, s.X, s.Outer*s.Inner, s.Out, s.In, 23, func(f pairs) { samples(s, f.turned()) })
	c.Name, c.Size, c.Build = s.Name, s.In[2], s.Backward
	return c
}

// covered calls f for each pair of a part and an element of it, with one over the part's size.
func covered(s ptx.AdaptivePool, f func(y, x int, w float64)) {
	outs, ins := volume(s.Out), volume(s.In)
	for i := range s.Outer * outs * s.Inner {
		outer, in, at := i/(outs*s.Inner), i%s.Inner, coords(i/s.Inner%outs, s.Out)
		var lo, hi [3]int
		w := 1.0
		for d, p := range at {
			lo[d], hi[d] = p*s.In[d]/s.Out[d], ((p+1)*s.In[d]+s.Out[d]-1)/s.Out[d]
			w /= float64(hi[d] - lo[d])
		}
		for a := lo[0]; a < hi[0]; a++ {
			for b := lo[1]; b < hi[1]; b++ {
				for c := lo[2]; c < hi[2]; c++ {
					f(i, (outer*ins+flat([3]int{a, b, c}, s.In))*s.Inner+in, w)
				}
			}
		}
	}
}

func adaptiveName(kind string, s ptx.AdaptivePool) string {
	return caseName("%s_%dx%sx%d_of_%s", kind, s.Outer, size(s.Out), s.Inner, size(s.In))
}

func adaptive(s ptx.AdaptivePool) Case {
	s.Name = adaptiveName("adaptive", s)
	c := weighted("AdaptivePool.Forward", "y", s.X, s.Y, s.Outer*s.Inner, s.In, s.Out, 23, func(f pairs) { covered(s, f) })
	c.Name, c.Size, c.Build = s.Name, s.In[2], s.Forward
	return c
}

func adaptiveBack(s ptx.AdaptivePool) Case {
	s.Name = adaptiveName("adaptive_bwd", s)
	c := weighted("AdaptivePool.Backward", "dx", s.Y, s.X, s.Outer*s.Inner, s.Out, s.In, 23, func(f pairs) { covered(s, f.turned()) })
	c.Name, c.Size, c.Build = s.Name, s.In[2], s.Backward
	return c
}
