package ptxtest

import (
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

func imageCases() []Case {
	square := ptx.Pool{N: 2, C: 3, Size: [3]int{1, 9, 7}, Kernel: [3]int{1, 3, 3}, Stride: [3]int{1, 2, 2}, Begin: [3]int{0, 1, 1}, End: [3]int{0, 1, 1}, To: [3]int{1, 5, 4}, In: ptx.Float16, Out: ptx.Float16}
	line := ptx.Pool{N: 3, C: 5, Size: [3]int{1, 1, 33}, Kernel: [3]int{1, 1, 4}, Stride: [3]int{1, 1, 3}, Dilation: [3]int{1, 1, 2}, Begin: [3]int{0, 0, 2}, To: [3]int{1, 1, 10}, NHWC: true, CountPad: true, In: ptx.Float32, Out: ptx.Float32}
	solid := ptx.Pool{N: 2, C: 2, Size: [3]int{5, 4, 6}, Kernel: [3]int{2, 3, 2}, Stride: [3]int{2, 1, 2}, Begin: [3]int{1, 1, 0}, End: [3]int{0, 1, 0}, To: [3]int{3, 4, 3}, In: ptx.BFloat16, Out: ptx.Float32}
	nhwc := square
	nhwc.NHWC, nhwc.C = true, 33
	apart := ptx.Pool{N: 2, C: 5, Size: [3]int{1, 8, 6}, Kernel: [3]int{1, 2, 2}, Stride: [3]int{1, 2, 2}, To: [3]int{1, 4, 3}, In: ptx.Float16, Out: ptx.Float16}
	pools := []ptx.Pool{square, line, nhwc, solid, apart}
	channels := []ptx.Channels{
		{Outer: 3, C: 5, Inner: 331, In: ptx.Float16, Split: 2},
		{Outer: 1023, C: 33, Inner: 1, In: ptx.BFloat16, Split: 4},
		{Outer: 5, C: 4, Inner: 2, In: ptx.Float32, Split: 7},
		{Outer: 31, C: 64, Inner: 1, In: ptx.Float32},
		{Outer: 10, C: 3, Inner: 1, In: ptx.Float32, Split: 7},
	}
	for _, n := range sizes {
		pools = append(pools, ptx.Pool{N: 2, C: 3, Size: [3]int{1, 1, n}, Kernel: [3]int{1, 1, 3}, Stride: [3]int{1, 1, 2}, Begin: [3]int{0, 0, 1}, End: [3]int{0, 0, 1}, To: [3]int{1, 1, (n-1)/2 + 1}, In: ptx.Float32, Out: ptx.Float32})
		channels = append(channels, ptx.Channels{Outer: 2, C: 5, Inner: n, In: ptx.Float32}, ptx.Channels{Outer: n, C: 9, Inner: 1, In: ptx.Float16})
	}
	var cases []Case
	for _, s := range pools {
		cases = append(cases, maxPool(s), avgPool(s), maxPoolBack(s), avgPoolBack(s))
	}
	for _, s := range channels {
		cases = append(cases, moments(s), channelSums(s), merge(s, true))
	}
	for _, n := range sizes {
		parts := ptx.Channels{Outer: 2, C: n, Inner: 3, Split: 3, In: ptx.Float32}
		cases = append(cases, merge(parts, true), merge(parts, false))
	}
	return cases
}

func poolName(kind string, s ptx.Pool) string {
	layout := "nchw"
	if s.NHWC {
		layout = "nhwc"
	}
	size := caseName("%dx%d", s.Size[1], s.Size[2])
	if s.Size[0] > 1 {
		size = caseName("%dx%s", s.Size[0], size)
	}
	return caseName("%s_%s_%dx%dx%s", kind, layout, s.N, s.C, size)
}

// place splits a row-major index over dims.
func place(i int, dims [3]int) [3]int {
	return [3]int{i / (dims[1] * dims[2]), i / dims[2] % dims[1], i % dims[2]}
}

// flat is the row-major index of at in dims.
func flat(at, dims [3]int) int { return (at[0]*dims[1]+at[1])*dims[2] + at[2] }

func volume(d [3]int) int { return d[0] * d[1] * d[2] }

// index is where element at of image n, channel c lies in images of dims.
func index(s ptx.Pool, n, c int, at, dims [3]int) int {
	if s.NHWC {
		return (n*volume(dims)+flat(at, dims))*s.C + c
	}
	return (n*s.C+c)*volume(dims) + flat(at, dims)
}

// reached is the position of the image under a tap of window o along dimension d.
func reached(s ptx.Pool, d, o, tap int) int {
	return o*max(s.Stride[d], 1) - s.Begin[d] + tap*max(s.Dilation[d], 1)
}

// windows calls f for each output of each image with the covered positions of x, and how many
// positions the mean divides by.
func windows(s ptx.Pool, f func(n, c, o int, cells [][3]int, count float64)) {
	outs := volume(s.To)
	for i := range s.N * s.C * outs {
		n, c, o := i/(s.C*outs), i/outs%s.C, place(i%outs, s.To)
		var cells [][3]int
		padded := 0
		for t := range volume(s.Kernel) {
			var at [3]int
			inside, counts := true, true
			for d, tap := range place(t, s.Kernel) {
				at[d] = reached(s, d, o[d], tap)
				inside = inside && at[d] >= 0 && at[d] < s.Size[d]
				counts = counts && at[d] < s.Size[d]+s.End[d]
			}
			if inside {
				cells = append(cells, at)
			}
			if counts {
				padded++
			}
		}
		count := float64(len(cells))
		if s.CountPad {
			count = float64(padded)
		}
		f(n, c, index(s, n, c, o, s.To), cells, count)
	}
}

func maxPool(s ptx.Pool) Case {
	s.Name = poolName("maxpool", s)
	in, outs := s.N*s.C*volume(s.Size), s.N*s.C*volume(s.To)
	return Case{
		Name: s.Name, Kernel: "Pool.Max", Size: s.Size[2], Build: s.Max, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			x := special(r, s.In, in, 1)
			for i := 0; i < in/2; i++ { // ties
				x.Set(i, float64(r.IntN(4)))
			}
			return []Tensor{x, New(s.Out, outs), New(ptx.Int32, outs)}
		},
		Check: func(in, out []Tensor) error {
			y, at := New(s.Out, outs), New(ptx.Int32, outs)
			windows(s, func(n, c, o int, cells [][3]int, _ float64) {
				best, where := math.Inf(-1), -1
				for _, p := range cells {
					v := in[0].At(index(s, n, c, p, s.Size))
					if where < 0 || v > best || v != v && best == best {
						best, where = v, flat(p, s.Size)
					}
				}
				y.Set(o, best)
				at.Set(o, float64(where))
			})
			if err := same("y", out[1], y); err != nil {
				return err
			}
			return same("index", out[2], at)
		},
	}
}

func avgPool(s ptx.Pool) Case {
	s.Name = poolName("avgpool", s)
	outs := s.N * s.C * volume(s.To)
	return Case{
		Name: s.Name, Kernel: "Pool.Avg", Size: s.Size[2], Build: s.Avg,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{strew(r, fill(r, s.In, s.N*s.C*volume(s.Size), 1), 29), New(s.Out, outs)}
		},
		Check: func(in, out []Tensor) error {
			y := make([]float64, outs)
			windows(s, func(n, c, o int, cells [][3]int, count float64) {
				for _, p := range cells {
					y[o] += in[0].At(index(s, n, c, p, s.Size))
				}
				y[o] /= count
			})
			return near("y", out[1], func(i int) float64 { return y[i] }, func(int) float64 { return 1e-5 })
		},
	}
}

func maxPoolBack(s ptx.Pool) Case {
	s.Name = poolName("maxpool_bwd", s)
	in, outs := s.N*s.C*volume(s.Size), s.N*s.C*volume(s.To)
	return Case{
		Name: s.Name, Kernel: "Pool.MaxBackward", Size: s.Size[2], Build: s.MaxBackward, Trials: 4,
		Fill: func(r *rand.Rand) []Tensor {
			at := New(ptx.Int32, outs)
			windows(s, func(_, _, o int, cells [][3]int, _ float64) {
				p := cells[r.IntN(len(cells))]
				if at.Set(o, float64(flat(p, s.Size))); r.IntN(9) == 0 {
					at.Set(o, -1) // nowhere
				}
			})
			return []Tensor{strew(r, fill(r, s.In, outs, 1), 13), at, New(s.Out, in)}
		},
		Check: func(b, out []Tensor) error {
			dx := make([]float64, in)
			windows(s, func(n, c, o int, _ [][3]int, _ float64) {
				p := int(b[1].At(o))
				if p < 0 {
					return
				}
				dx[index(s, n, c, place(p, s.Size), s.Size)] += b[0].At(o)
			})
			return near("dx", out[2], func(i int) float64 { return dx[i] }, func(int) float64 { return 1e-5 })
		},
	}
}

func avgPoolBack(s ptx.Pool) Case {
	s.Name = poolName("avgpool_bwd", s)
	in, outs := s.N*s.C*volume(s.Size), s.N*s.C*volume(s.To)
	return Case{
		Name: s.Name, Kernel: "Pool.AvgBackward", Size: s.Size[2], Build: s.AvgBackward,
		Fill: func(r *rand.Rand) []Tensor { return []Tensor{strew(r, fill(r, s.In, outs, 1), 13), New(s.Out, in)} },
		Check: func(b, out []Tensor) error {
			dx := make([]float64, in)
			windows(s, func(n, c, o int, cells [][3]int, count float64) {
				for _, p := range cells {
					dx[index(s, n, c, p, s.Size)] += b[0].At(o) / count
				}
			})
			return near("dx", out[1], func(i int) float64 { return dx[i] }, func(int) float64 { return 1e-5 })
		},
	}
}

// channelAt is where element j of channel c lies.
func channelAt(s ptx.Channels, c, j int) int { return (j/s.Inner*s.C+c)*s.Inner + j%s.Inner }

// partOf gives the elements of part p.
func partOf(s ptx.Channels, p int) (lo, hi int) {
	n, parts := s.Outer*s.Inner, max(s.Split, 1)
	size := (n + parts - 1) / parts
	return min(p*size, n), min((p+1)*size, n)
}

// spread is the mean and the summed squared deviations of a range of a channel.
func spread(s ptx.Channels, x Tensor, c, lo, hi int) (mean, m2 float64) {
	for j := lo; j < hi; j++ {
		mean += x.At(channelAt(s, c, j)) / float64(hi-lo)
	}
	for j := lo; j < hi; j++ {
		d := x.At(channelAt(s, c, j)) - mean
		m2 += d * d
	}
	return mean, m2
}

func channelName(kind string, s ptx.Channels) string {
	return caseName("%s_%dx%dx%d", kind, s.Outer, s.C, s.Inner)
}

// shifted is noise around 40: squares without a shift would lose all digits.
func shifted(r *rand.Rand, s ptx.Channels) Tensor {
	x := fill(r, s.In, s.Outer*s.C*s.Inner, 1)
	for i := range x.Len() {
		x.Set(i, x.At(i)+40)
	}
	return x
}

// oddChannels puts an infinity of either sign, a NaN and a subnormal into a channel of x each, in turn as the
// first element, to which the others may be compared, and behind it.
func oddChannels(r *rand.Rand, s ptx.Channels, x Tensor) Tensor {
	for c, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), subnormal(s.In)} {
		lo, hi := partOf(s, 0)
		if c%2 == 1 {
			lo++
		}
		if c < s.C-1 && lo < hi {
			x.Set(channelAt(s, c, lo+c%2*r.IntN(hi-lo)), v)
		}
	}
	return x
}

func moments(s ptx.Channels) Case {
	s.Name = channelName("moments", s)
	parts := max(s.Split, 1)
	return Case{
		Name: s.Name, Kernel: "Channels.Moments", Size: s.Outer * s.Inner, Build: s.Moments,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{oddChannels(r, s, shifted(r, s)), New(ptx.Float32, parts*s.C), New(ptx.Float32, parts*s.C)}
		},
		Check: func(in, out []Tensor) error {
			mean, m2 := make([]float64, parts*s.C), make([]float64, parts*s.C)
			for i := range mean {
				lo, hi := partOf(s, i/s.C)
				if mean[i], m2[i] = spread(s, in[0], i%s.C, lo, hi); lo == hi {
					mean[i], m2[i] = out[1].At(i), out[2].At(i)
				}
			}
			if err := near("mean", out[1], func(i int) float64 { return mean[i] }, func(int) float64 { return 2e-5 }); err != nil {
				return err
			}
			return near("m2", out[2], func(i int) float64 { return m2[i] }, func(i int) float64 { return 1e-4 * (1 + m2[i]) })
		},
	}
}

func channelSums(s ptx.Channels) Case {
	s.Name = channelName("bnsums", s)
	parts, n := max(s.Split, 1), s.Outer*s.C*s.Inner
	return Case{
		Name: s.Name, Kernel: "Channels.Sums", Size: s.Outer * s.Inner, Build: s.Sums,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{oddChannels(r, s, fill(r, s.In, n, 1)), fill(r, s.In, n, 1), fill(r, ptx.Float32, s.C, 1), fill(r, ptx.Float32, s.C, 1),
				New(ptx.Float32, parts*s.C), New(ptx.Float32, parts*s.C)}
		},
		Check: func(in, out []Tensor) error {
			bias, scale, mass := make([]float64, parts*s.C), make([]float64, parts*s.C), make([]float64, parts*s.C)
			for i := range bias {
				c := i % s.C
				lo, hi := partOf(s, i/s.C)
				for j := lo; j < hi; j++ {
					g, x := in[0].At(channelAt(s, c, j)), in[1].At(channelAt(s, c, j))
					hat := (x - in[2].At(c)) * in[3].At(c)
					bias[i] += g
					scale[i] += g * hat
					mass[i] += math.Abs(g) * (1 + math.Abs(hat))
				}
			}
			tol := func(i int) float64 { return mass[i] * eps32 * float64(s.Outer*s.Inner/8+16) }
			if err := near("dbias", out[4], func(i int) float64 { return bias[i] }, tol); err != nil {
				return err
			}
			return near("dscale", out[5], func(i int) float64 { return scale[i] }, tol)
		},
	}
}

// merge joins random moments of parts: the mean of all, and all squares around it. Means of first parts are
// infinite or NaN in some channels.
func merge(s ptx.Channels, running bool) Case {
	s.Name = channelName("bnmerge", s)
	if !running {
		s.Name = channelName("bnstats", s)
	}
	const eps, momentum = 1e-5, 0.1
	parts, n := max(s.Split, 1), s.Outer*s.Inner
	joined := func(in []Tensor, c int) (mean, m2 float64) {
		for p := range parts {
			lo, hi := partOf(s, p)
			mean += in[0].At(p*s.C+c) * float64(hi-lo) / float64(n)
		}
		for p := range parts {
			if lo, hi := partOf(s, p); lo < hi {
				d := in[0].At(p*s.C+c) - mean
				m2 += in[1].At(p*s.C+c) + d*d*float64(hi-lo)
			}
		}
		return mean, m2
	}
	return Case{
		Name: s.Name, Kernel: "Merge.Build", Size: s.C, Build: ptx.Merge{Channels: s, Eps: eps, Momentum: momentum, Running: running}.Build,
		Fill: func(r *rand.Rand) []Tensor {
			mean, m2 := fill(r, ptx.Float32, parts*s.C, 1), fill(r, ptx.Float32, parts*s.C, 1)
			for i := range m2.Len() {
				m2.Set(i, math.Abs(m2.At(i))*float64(n))
			}
			for c, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
				if 2*c+1 < s.C {
					mean.Set(2*c+1, v)
				}
			}
			out := []Tensor{mean, m2}
			results := 2
			if running {
				out = append(out, strew(r, fill(r, ptx.Float32, s.C, 1), 3), strew(r, fill(r, ptx.Float32, s.C, 1), 4))
				results = 4
			}
			for range results {
				out = append(out, New(ptx.Float32, s.C))
			}
			return out
		},
		Check: func(in, out []Tensor) error {
			var err error
			check := func(name string, got Tensor, want func(c int, mean, m2 float64) float64) {
				if err == nil {
					err = near(name, got, func(c int) float64 {
						m, v := joined(in, c)
						return want(c, m, v)
					}, func(c int) float64 {
						m, v := joined(in, c)
						return eps32 * 32 * (1 + math.Abs(want(c, m, v)))
					})
				}
			}
			stats := 2
			if running {
				stats = 4
			}
			check("mean", out[stats], func(_ int, m, _ float64) float64 { return m })
			check("rstd", out[stats+1], func(_ int, _, v float64) float64 { return 1 / math.Sqrt(v/float64(n)+eps) })
			if !running {
				return err
			}
			check("new_mean", out[6], func(c int, m, _ float64) float64 { return in[2].At(c) + momentum*(m-in[2].At(c)) })
			check("new_var", out[7], func(c int, _, v float64) float64 {
				return in[3].At(c) + momentum*(v/float64(max(n-1, 1))-in[3].At(c))
			})
			return err
		},
	}
}
