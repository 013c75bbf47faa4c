package ptxtest

import (
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

// channelCases are the kernels of batch norms.
func channelCases() []Case {
	channels := []ptx.Channels{
		{Outer: 3, C: 5, Inner: 331, In: ptx.Float16, Split: 2},
		{Outer: 1023, C: 33, Inner: 1, In: ptx.BFloat16, Split: 4},
		{Outer: 5, C: 4, Inner: 2, In: ptx.Float32, Split: 7},
		{Outer: 31, C: 64, Inner: 1, In: ptx.Float32},
		{Outer: 10, C: 3, Inner: 1, In: ptx.Float32, Split: 7},
		{Outer: 200, C: 64, Inner: 1, In: ptx.BFloat16},
		{Outer: 3, C: 2, Inner: 3072, In: ptx.Float16},
	}
	cases := []Case{
		gradientSums([3]int{100, 256, 1}, 3, ptx.Float16, true), gradientSums([3]int{1200, 64, 1}, 1, ptx.BFloat16, false), gradientSums([3]int{4, 3, 1024}, 2, ptx.Float16, true),
		signedSums([3]int{100, 256, 1}, 3, ptx.Float16, true), signedSums([3]int{33, 8, 1}, 1, ptx.BFloat16, false), signedSums([3]int{4, 3, 1024}, 2, ptx.Float32, false),
		imageSums(3, 33, 9, 2), imageSums(2, 50, 64, 1),
	}
	for _, n := range sizes {
		channels = append(channels, ptx.Channels{Outer: 2, C: 5, Inner: n, In: ptx.Float32}, ptx.Channels{Outer: n, C: 9, Inner: 1, In: ptx.Float16})
		cases = append(cases, gradientSums([3]int{2, 5, n}, 1, ptx.BFloat16, false), gradientSums([3]int{n, 9, 1}, min(n, 3), ptx.Float16, n == 33), gradientSums([3]int{3, n, 1}, 2, ptx.Float32, false))
	}
	for _, s := range channels {
		cases = append(cases, moments(s), merge(s, true))
	}
	for _, n := range sizes {
		parts := ptx.Channels{Outer: 2, C: n, Inner: 3, Split: 3, In: ptx.Float32}
		cases = append(cases, merge(parts, true), merge(parts, false))
	}
	return cases
}

// channelAt is where element j of channel c lies.
func channelAt(s ptx.Channels, c, j int) int { return (j/s.Inner*s.C+c)*s.Inner + j%s.Inner }

// partOf gives the elements of part p.
func partOf(s ptx.Channels, p int) (lo, hi int) {
	n, size := s.Outer*s.Inner, s.Part()
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

// gradientSums is what the gradient of batch norm adds up: the mask of a ReLU on the sum of two
// gradients, which is stored, and its products with one or two images of unit spread.
func gradientSums(shape [3]int, split int, low ptx.DType, beside bool) Case {
	g, s := gradientSum(shape, split, low, beside, false)
	return gradientCase(g, s, low)
}

// signedSums are gradientSums with the mask in bits.
func signedSums(shape [3]int, split int, low ptx.DType, beside bool) Case {
	g, s := gradientSum(shape, split, low, beside, true)
	g.Name += "_bits"
	c := gradientCase(g, s, low)
	plain := c
	n := s.Outer * s.C * s.Inner
	c.Fill = func(r *rand.Rand) []Tensor {
		in := plain.Fill(r)
		in[2] = ids(r, ptx.Uint8, n/8, 256)
		return in
	}
	c.Check = func(in, out []Tensor) error {
		in = append([]Tensor(nil), in...)
		in[2] = bitsOf(in[2])
		return plain.Check(in, out)
	}
	return c
}

// bitsOf are the bits of bytes, the lowest of each first.
func bitsOf(t Tensor) Tensor {
	bits := New(ptx.Uint8, 8*t.Len())
	for i := range bits.Len() {
		bits.setBits(i, t.Bits(i/8)>>(i%8)&1)
	}
	return bits
}

// gradientSum is the kernel of gradientSums. With signs, bits say where y is above zero.
func gradientSum(shape [3]int, split int, low ptx.DType, beside, signs bool) (ptx.ChannelSum, ptx.Channels) {
	s := ptx.Channels{Outer: shape[0], C: shape[1], Inner: shape[2], Split: split, In: low}
	each, perChannel := []int64(nil), []int64{0, 1, 0}
	loads := []ptx.Access{load("a", low, each...), load("b", ptx.Float32, each...), load("y", low, each...), load("x", low, each...),
		load("mean", ptx.Float32, perChannel...), load("rstd", ptx.Float32, perChannel...)}
	if beside {
		loads = append(loads, load("x2", ptx.Float32, each...), load("mean2", ptx.Float32, perChannel...), load("rstd2", ptx.Float32, perChannel...))
	}
	e := &expr{}
	for i, l := range loads {
		e.ins = append(e.ins, ptx.Instr{Op: "in", Type: valueType(l.DType), Int: int64(i)})
	}
	zero, mask := e.num(0), 2
	if signs {
		loads[2] = ptx.Access{Name: "signs", DType: ptx.Uint8, Bits: true}
		e.ins[2].Type = ptx.Bool
	} else {
		mask = e.op("lt", ptx.Bool, zero, 2)
	}
	dy := e.f("select", mask, e.f("add", 0, 1), zero)
	values := []int{dy}
	for at := 3; at < len(loads); at += 3 {
		values = append(values, e.f("mul", dy, e.f("mul", e.f("sub", at, at+1), at+2)))
	}
	g := ptx.ChannelSum{Split: max(split, 1), Sums: values, Elementwise: ptx.Elementwise{Shape: []int64{int64(s.Outer), int64(s.C), int64(s.Inner)},
		Loads: loads, Code: e.ins, Stores: []ptx.Output{output("dy", ptx.Float32, dy)}}}
	g.Name = channelName(caseName("bnsums_%s_%d", low, len(values)), s)
	return g, s
}

func gradientCase(g ptx.ChannelSum, s ptx.Channels, low ptx.DType) Case {
	n, loads := s.Outer*s.C*s.Inner, g.Loads
	return Case{
		Name: g.Name, Kernel: "ChannelSum.Build", Size: along(s.Outer*s.Inner, s.C), Build: g.Build, Trials: 3, Streams: s.C == 256,
		Fill: func(r *rand.Rand) []Tensor {
			in := []Tensor{oddChannels(r, s, fill(r, low, n, 1)), fill(r, ptx.Float32, n, 1), fill(r, low, n, 1)}
			for at := 3; at < len(loads); at += 3 {
				in = append(in, fill(r, loads[at].DType, n, 1), fill(r, ptx.Float32, s.C, 1), fill(r, ptx.Float32, s.C, 1))
			}
			in = append(in, New(ptx.Float32, n))
			for range g.Sums {
				in = append(in, New(ptx.Float32, g.Split*s.C))
			}
			return in
		},
		Check: func(in, out []Tensor) error { return checkGradientSums(g, s, in, out) },
	}
}

// checkGradientSums compares dy bit for bit and the sums of all parts of a channel.
func checkGradientSums(g ptx.ChannelSum, s ptx.Channels, in, out []Tensor) error {
	stored := len(g.Loads)
	dy := New(ptx.Float32, s.Outer*s.C*s.Inner)
	sums, mass := make([][]float64, len(g.Sums)), make([][]float64, len(g.Sums))
	for k := range sums {
		sums[k], mass[k] = make([]float64, s.C), make([]float64, s.C)
	}
	for c := range s.C {
		for j := range s.Outer * s.Inner {
			at := channelAt(s, c, j)
			if in[2].At(at) > 0 {
				dy.Set(at, float64(in[0].F32(at)+in[1].F32(at)))
			}
			d := dy.At(at)
			sums[0][c] += d
			mass[0][c] += math.Abs(d)
			for k := 1; k < len(sums); k++ {
				hat := (in[3*k].At(at) - in[3*k+1].At(c)) * in[3*k+2].At(c)
				sums[k][c] += d * hat
				mass[k][c] += math.Abs(d) * (1 + math.Abs(hat))
			}
		}
	}
	if err := same("dy", out[stored], dy); err != nil {
		return err
	}
	for k := range sums {
		total := New(ptx.Float64, s.C)
		for c := range s.C {
			sum := 0.0
			for p := range g.Split {
				sum += out[stored+1+k].At(p*s.C + c)
			}
			total.Set(c, sum)
		}
		tol := func(c int) float64 { return mass[k][c] * eps32 * float64(s.Outer*s.Inner/8+32) }
		if err := near(caseName("sum %d", k), total, func(c int) float64 { return sums[k][c] }, tol); err != nil {
			return err
		}
	}
	return nil
}

// imageSums is what the gradient of a norm over groups adds up of images with channels last: the products
// of dy and of x less the mean of the image's channel.
func imageSums(images, positions, channels, split int) Case {
	n := images * positions * channels
	each, stat := []int64{int64(positions * channels), int64(channels), 1, 1}, []int64{int64(channels), 0, 1, 0}
	e := &expr{ins: code(ptx.BFloat16, ptx.Float32, ptx.Float32)}
	g := ptx.ChannelSum{Split: split, Sums: []int{e.f("mul", 0, e.f("sub", 1, 2))}}
	g.Elementwise = ptx.Elementwise{Name: caseName("imagesums_%dx%dx%d", images, positions, channels), Shape: []int64{int64(images), int64(positions), int64(channels), 1},
		Loads: []ptx.Access{load("dy", ptx.BFloat16, each...), load("x", ptx.Float32, each...), load("mean", ptx.Float32, stat...)}, Code: e.ins}
	return Case{
		Name: g.Name, Kernel: "ChannelSum.Build", Size: positions, Build: g.Build,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{fill(r, ptx.BFloat16, n, 1), fill(r, ptx.Float32, n, 1), fill(r, ptx.Float32, images*channels, 1), New(ptx.Float32, split*channels)}
		},
		Check: func(in, out []Tensor) error {
			sums, mass, total := make([]float64, channels), make([]float64, channels), New(ptx.Float64, channels)
			for i := range n {
				c := i % channels
				v := in[0].At(i) * (in[1].At(i) - in[2].At(i/(positions*channels)*channels+c))
				sums[c] += v
				mass[c] += math.Abs(v)
			}
			for c := range channels {
				sum := 0.0
				for p := range split {
					sum += out[3].At(p*channels + c)
				}
				total.Set(c, sum)
			}
			return near("sums", total, func(c int) float64 { return sums[c] }, func(c int) float64 { return mass[c] * eps32 * float64(images*positions/8+32) })
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
