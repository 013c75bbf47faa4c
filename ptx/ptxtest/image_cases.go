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
	side, pair := square, line // channels that one thread has side by side
	side.NHWC, side.C, side.N = true, 16, 1
	pair.C, pair.N = 6, 1
	pools := []ptx.Pool{square, line, nhwc, solid, apart, side, pair}
	var lines []ptx.Pool
	for _, n := range sizes {
		lines = append(lines, ptx.Pool{N: 2, C: 3, Size: [3]int{1, 1, n}, Kernel: [3]int{1, 1, 3}, Stride: [3]int{1, 1, 2}, Begin: [3]int{0, 0, 1}, End: [3]int{0, 0, 1}, To: [3]int{1, 1, (n-1)/2 + 1}, In: ptx.Float32, Out: ptx.Float32})
	}
	pools = append(pools, lines...)
	var cases []Case
	for _, s := range pools {
		cases = append(cases, maxPool(s), avgPool(s), maxPoolBack(s), avgPoolBack(s))
	}
	for _, s := range []ptx.Pool{nhwc, solid} {
		value, index := s, s
		value.NoIndex, index.NoMax = true, true
		taps := s
		taps.Taps = true
		cases = append(cases, maxPool(value), maxPool(index), maxPool(taps))
	}
	scaled := nhwc
	scaled.C, scaled.Taps = 24, true
	wide := scaled
	wide.Size, wide.To, wide.Taps = [3]int{1, 6, 33}, [3]int{1, 3, 17}, false
	few := solid
	few.NHWC, few.NoIndex = true, true
	bare := scaled
	bare.NoMax = true
	cases = append(cases, maxPoolOf(scaled), maxPoolOf(wide), maxPoolOf(few), maxPoolOf(bare))
	for _, s := range lines {
		s.NHWC, s.Taps = true, true
		cases = append(cases, maxPoolOf(s))
	}
	return append(cases, spreadCases()...)
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

// coords splits a row-major index over dims.
func coords(i int, dims [3]int) [3]int {
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
		n, c, o := i/(s.C*outs), i/outs%s.C, coords(i%outs, s.To)
		var cells [][3]int
		padded := 0
		for t := range volume(s.Kernel) {
			var at [3]int
			inside, counts := true, true
			for d, tap := range coords(t, s.Kernel) {
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
	if s.NoMax {
		s.Name += "_index"
	}
	if s.NoIndex {
		s.Name += "_max"
	}
	indexType := ptx.Int32
	if s.Taps {
		s.Name += "_taps"
		indexType = ptx.Uint8
	}
	in, outs := s.N*s.C*volume(s.Size), s.N*s.C*volume(s.To)
	return Case{
		Name: s.Name, Kernel: "Pool.Max", Size: s.Size[2], Build: s.Max, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			x := special(r, s.In, in, 1)
			for i := 0; i < in/2; i++ { // ties
				x.Set(i, float64(r.IntN(4)))
			}
			bufs := []Tensor{x}
			if !s.NoMax {
				bufs = append(bufs, New(s.Out, outs))
			}
			if !s.NoIndex {
				bufs = append(bufs, New(indexType, outs))
			}
			return bufs
		},
		Check: func(in, out []Tensor) error {
			y, at := New(s.Out, outs), New(indexType, outs)
			windows(s, func(n, c, o int, cells [][3]int, _ float64) {
				best, where := math.Inf(-1), -1
				for _, p := range cells {
					v := in[0].At(index(s, n, c, p, s.Size))
					if where < 0 || v > best || v != v && best == best {
						if best, where = v, flat(p, s.Size); s.Taps {
							where = tapOf(s, n, c, o, p)
						}
					}
				}
				y.Set(o, best)
				at.setBits(o, uint64(where))
			})
			if !s.NoMax {
				if err := same("y", out[1], y); err != nil {
					return err
				}
			}
			if s.NoIndex {
				return nil
			}
			return same("index", out[len(out)-1], at)
		},
	}
}

// maxPoolOf is a pool of images times a number for each channel.
func maxPoolOf(s ptx.Pool) Case {
	plain, n := maxPool(s), s.N*s.C*volume(s.Size)
	e := &expr{ins: code(s.In, ptx.Float32)}
	of := ptx.PoolOf{Pool: s, X: e.f("mul", 0, 1)}
	of.Name = plain.Name + "_of"
	of.Of = ptx.Elementwise{Shape: []int64{int64(n / s.C), int64(s.C), 1}, Code: e.ins, Loads: []ptx.Access{load("x", s.In), load("scale", ptx.Float32, 0, 1, 0)}}
	return Case{
		Name: of.Name, Kernel: "PoolOf.Max", Size: s.Size[2], Build: of.Max, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			bufs, scale := plain.Fill(r), New(ptx.Float32, s.C)
			for c := range s.C {
				scale.Set(c, []float64{1, -1, 0.5, -2}[r.IntN(4)])
			}
			return append([]Tensor{bufs[0], scale}, bufs[1:]...)
		},
		Check: func(in, out []Tensor) error {
			x := New(ptx.Float32, n)
			for i := range n {
				x.Set(i, in[0].At(i)*in[1].At(i%s.C))
			}
			return plain.Check([]Tensor{x}, append([]Tensor{x}, out[2:]...))
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
				dx[index(s, n, c, coords(p, s.Size), s.Size)] += b[0].At(o)
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
