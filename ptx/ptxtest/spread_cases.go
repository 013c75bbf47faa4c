package ptxtest

import (
	"math/rand/v2"

	"ampc/ptx"
)

// spreadCases read the outputs of windows as the images that they come from.
func spreadCases() []Case {
	pools := []ptx.Pool{
		{N: 2, C: 8, Size: [3]int{1, 5, 33}, To: [3]int{1, 3, 17}, Kernel: [3]int{1, 3, 3}, Stride: [3]int{1, 2, 2}, Begin: [3]int{0, 1, 1}, In: ptx.Float16},
		{N: 2, C: 16, Size: [3]int{1, 6, 8}, To: [3]int{1, 3, 3}, Kernel: [3]int{1, 2, 3}, Stride: [3]int{1, 2, 2}, In: ptx.BFloat16},
		{N: 3, C: 3, Size: [3]int{1, 1, 33}, To: [3]int{1, 1, 15}, Kernel: [3]int{1, 1, 3}, Stride: [3]int{1, 1, 2}, In: ptx.Float32},
		{N: 1, C: 4, Size: [3]int{5, 4, 3}, To: [3]int{2, 2, 2}, Kernel: [3]int{2, 2, 2}, Stride: [3]int{2, 2, 1}, In: ptx.Float32},
	}
	var cases []Case
	for _, s := range pools {
		s.NHWC = true
		cases = append(cases, spreadImages(s, true))
	}
	for _, s := range []ptx.Pool{
		{N: 2, C: 8, Size: [3]int{1, 7, 33}, To: [3]int{1, 4, 17}, Kernel: [3]int{1, 1, 1}, Stride: [3]int{1, 2, 2}, In: ptx.Float16},
		{N: 2, C: 16, Size: [3]int{1, 6, 9}, To: [3]int{1, 2, 3}, Kernel: [3]int{1, 1, 1}, Stride: [3]int{1, 2, 3}, In: ptx.Float32},
	} {
		s.NHWC = true
		cases = append(cases, spreadImages(s, false))
	}
	return append(cases, spreadSums(pools[0]))
}

// tapOf is the number of the tap of output o, the linear index of one of image n and channel c, that
// reads position p.
func tapOf(s ptx.Pool, n, c, o int, p [3]int) int {
	at := o - (n*s.C+c)*volume(s.To)
	if s.NHWC {
		at = (o-c)/s.C - n*volume(s.To)
	}
	var tap [3]int
	for d, k := range coords(at, s.To) {
		tap[d] = p[d] - reached(s, d, k, 0)
	}
	return flat(tap, s.Kernel)
}

// fillTaps draws the tap that each output comes from; none for some.
func fillTaps(r *rand.Rand, s ptx.Pool) Tensor {
	taps := New(ptx.Uint8, s.N*s.C*volume(s.To))
	windows(s, func(n, c, o int, cells [][3]int, _ float64) {
		taps.setBits(o, 255)
		if r.IntN(9) > 0 {
			taps.setBits(o, uint64(tapOf(s, n, c, o, cells[r.IntN(len(cells))])))
		}
	})
	return taps
}

// images adds the outputs up at the positions that they come from.
func images(s ptx.Pool, outputs Tensor, taps *Tensor) []float64 {
	x := make([]float64, s.N*s.C*volume(s.Size))
	windows(s, func(n, c, o int, cells [][3]int, _ float64) {
		for _, p := range cells {
			if taps == nil || int(taps.Bits(o)) == tapOf(s, n, c, o, p) {
				x[index(s, n, c, p, s.Size)] += outputs.At(o)
			}
		}
	})
	return x
}

// spreadLoads are the loads of outputs and, if there are any, taps.
func spreadLoads(s ptx.Pool, taps bool) []ptx.Access {
	how := &ptx.Spread{Pool: s, Taps: taps}
	list := []ptx.Access{{Name: "outputs", DType: s.In, Spread: how}}
	if taps {
		list = append(list, ptx.Access{Name: "taps", DType: ptx.Uint8, Spread: how})
	}
	return list
}

// spreadImages multiplies images by a number for each channel and adds another image.
func spreadImages(s ptx.Pool, taps bool) Case {
	rows, loads := s.N*volume(s.Size), spreadLoads(s, taps)
	n := len(loads)
	loads = append(loads, load("scale", ptx.Float32, 0, 1), load("more", ptx.Float32))
	e := &expr{}
	for i := range loads {
		e.ins = append(e.ins, ptx.Instr{Op: "in", Type: ptx.Float32, Int: int64(i)})
	}
	if taps {
		e.ins[1] = ptx.Instr{Op: "const", Type: ptx.Float32}
	}
	v := e.f("add", e.f("mul", 0, n), n+1)
	g := ptx.Elementwise{Name: poolName("spread", s), Shape: []int64{int64(rows), int64(s.C)}, Code: e.ins, Loads: loads, Stores: []ptx.Output{output("y", ptx.Float32, v)}}
	outs := s.N * s.C * volume(s.To)
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: s.Size[2], Build: g.Build, Trials: 4,
		Fill: func(r *rand.Rand) []Tensor {
			in := []Tensor{strew(r, fill(r, s.In, outs, 1), 13)}
			if taps {
				in = append(in, fillTaps(r, s))
			}
			return append(in, fill(r, ptx.Float32, s.C, 1), fill(r, ptx.Float32, rows*s.C, 1), New(ptx.Float32, rows*s.C))
		},
		Check: func(in, out []Tensor) error {
			var by *Tensor
			if taps {
				by = &in[1]
			}
			x := images(s, in[0], by)
			return near("y", out[n+2], func(i int) float64 { return x[i]*in[n].At(i%s.C) + in[n+1].At(i) }, func(int) float64 { return 1e-5 })
		},
	}
}

// spreadSums sums images for every channel.
func spreadSums(s ptx.Pool) Case {
	s.NHWC = true
	rows, loads := s.N*volume(s.Size), spreadLoads(s, true)
	outs := s.N * s.C * volume(s.To)
	g := ptx.ChannelSum{Split: 2, Sums: []int{0}, Elementwise: ptx.Elementwise{Name: poolName("spread_sums", s), Shape: []int64{int64(rows), int64(s.C), 1},
		Loads: loads, Code: []ptx.Instr{{Op: "in", Type: ptx.Float32}}}}
	return Case{
		Name: g.Name, Kernel: "ChannelSum.Build", Size: s.Size[2], Build: g.Build, Trials: 4,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{fill(r, s.In, outs, 1), fillTaps(r, s), New(ptx.Float32, g.Split*s.C)}
		},
		Check: func(in, out []Tensor) error {
			sums, total := make([]float64, s.C), New(ptx.Float64, s.C)
			for i, x := range images(s, in[0], &in[1]) {
				sums[i%s.C] += x
			}
			for c := range s.C {
				for p := range g.Split {
					total.Set(c, total.At(c)+out[2].At(p*s.C+c))
				}
			}
			return near("sums", total, func(c int) float64 { return sums[c] }, func(int) float64 { return 1e-3 })
		},
	}
}
