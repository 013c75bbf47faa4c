package ptxtest

import (
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

func softmaxCases() []Case {
	var cases []Case
	for _, n := range sizes {
		cases = append(cases, softmax(ptx.Softmax{Rows: 21, Cols: n, In: ptx.Float16, Out: ptx.Float16}),
			softmaxBack(ptx.Softmax{Rows: 6, Cols: n, In: ptx.Float32, Out: ptx.Float32}))
	}
	return append(cases,
		softmax(ptx.Softmax{Rows: 20, Cols: 1024, In: ptx.BFloat16, Out: ptx.BFloat16, Scale: 0.125}),
		softmax(ptx.Softmax{Rows: 2 * 96, Cols: 96, In: ptx.Float16, Out: ptx.Float16, Causal: true, Queries: 96}),
		softmax(ptx.Softmax{Rows: 7, Cols: 80, In: ptx.Float32, Out: ptx.Float32, Log: true}),
		softmaxBack(ptx.Softmax{Rows: 4, Cols: 1024, In: ptx.Float32, Out: ptx.Float32, Log: true}),
		softmaxBack(ptx.Softmax{Rows: 9, Cols: 640, In: ptx.BFloat16, Out: ptx.BFloat16, Scale: 0.25}),
		softmaxBack(ptx.Softmax{Rows: 3, Cols: 100, In: ptx.Float32, Out: ptx.Float32, Log: true}))
}

func softmaxName(kind string, s ptx.Softmax) string {
	if s.Log {
		kind += "_log"
	}
	if s.Causal {
		kind += "_causal"
	}
	return caseName("softmax_%s_%dx%d_%s", kind, s.Rows, s.Cols, s.In)
}

// visible is how many columns a row attends to.
func visible(s ptx.Softmax, row int) int {
	if !s.Causal {
		return s.Cols
	}
	return row%s.Queries + s.Cols - s.Queries + 1
}

func scaleOf(s ptx.Softmax) float64 {
	if s.Scale == 0 {
		return 1
	}
	return float64(s.Scale)
}

// peaks is rare with rows after the fourth that each have one element far above the others, at places
// spread over the columns: whoever overlooks it overflows.
func peaks(r *rand.Rand, d ptx.DType, rows, cols int) Tensor {
	x := rare(r, d, rows, cols, 3)
	for i := range rows - 5 {
		x.Set((i+5)*cols+i*(cols-1)/max(rows-6, 1), 1000)
	}
	return x
}

func softmax(s ptx.Softmax) Case {
	s.Name = softmaxName("fwd", s)
	n := s.Rows * s.Cols
	return Case{
		Name: s.Name, Kernel: "Softmax.Forward", Size: s.Cols, Build: s.Forward, Streams: s.Cols == 1024,
		Fill: func(r *rand.Rand) []Tensor { return []Tensor{peaks(r, s.In, s.Rows, s.Cols), New(s.Out, n)} },
		Check: func(in, out []Tensor) error {
			want := make([]float64, n)
			for row := range s.Rows {
				top, sum := math.Inf(-1), 0.0
				seen := visible(s, row)
				at := func(c int) float64 { return in[0].At(row*s.Cols+c) * scaleOf(s) }
				for c := range seen {
					top = nanOr(top, at(c), math.Max)
				}
				for c := range seen {
					sum += math.Exp(at(c) - top)
				}
				for c := range s.Cols {
					y := 0.0
					if c < seen {
						y = math.Exp(at(c)-top) / sum
					} else if top != top {
						y = math.NaN()
					}
					if s.Log {
						y = at(c) - top - math.Log(sum)
					}
					want[row*s.Cols+c] = y
				}
			}
			return near("y", out[1], func(i int) float64 { return want[i] }, func(i int) float64 {
				if s.Log {
					return 1e-5
				}
				return want[i] * eps32 * (40 + math.Sqrt(float64(s.Cols)))
			})
		},
	}
}

func softmaxBack(s ptx.Softmax) Case {
	s.Name = softmaxName("bwd", s)
	n := s.Rows * s.Cols
	return Case{
		Name: s.Name, Kernel: "Softmax.Backward", Size: s.Cols, Build: s.Backward, Streams: s.Cols%8 == 0 && s.Cols >= 640,
		Fill: func(r *rand.Rand) []Tensor {
			y := New(s.Out, n)
			for i := range n {
				y.Set(i, r.Float64()/float64(s.Cols))
				if s.Log {
					y.Set(i, -r.ExpFloat64()-math.Log(float64(s.Cols)))
				}
			}
			return []Tensor{rare(r, s.In, s.Rows, s.Cols, 2), y, New(s.In, n)}
		},
		Check: func(in, out []Tensor) error {
			want, slack := make([]float64, n), make([]float64, n)
			for row := range s.Rows {
				dot, mass := 0.0, 0.0
				for c := range s.Cols {
					i := row*s.Cols + c
					y := in[1].At(i)
					if s.Log {
						y = 1
					}
					dot += in[0].At(i) * y
					mass += math.Abs(in[0].At(i) * y)
				}
				for c := range s.Cols {
					i := row*s.Cols + c
					g, y := in[0].At(i), in[1].At(i)
					if s.Log {
						want[i] = (g - math.Exp(y)*dot) * scaleOf(s)
						slack[i] = eps32 * (math.Abs(g) + math.Exp(y)*mass*float64(s.Cols/32+16))
					} else {
						want[i] = y * (g - dot) * scaleOf(s)
						slack[i] = eps32 * math.Abs(y) * (math.Abs(g)*4 + mass*float64(s.Cols/32+16))
					}
				}
			}
			return near("dx", out[2], func(i int) float64 { return want[i] }, func(i int) float64 { return slack[i] })
		},
	}
}

func normCases() []Case {
	var cases []Case
	for _, n := range sizes {
		cases = append(cases, norm(ptx.Norm{Rows: 6, Cols: n, In: ptx.Float16, Out: ptx.Float16, Bias: true}),
			normBack(ptx.Norm{Rows: 7, Cols: n, In: ptx.Float32, Out: ptx.Float32, Bias: true, Workers: 4}))
	}
	return append(cases,
		norm(ptx.Norm{Rows: 6, Cols: 768, In: ptx.BFloat16, Out: ptx.BFloat16, Bias: true, Residual: true}),
		norm(ptx.Norm{Rows: 5, Cols: 512, In: ptx.Float32, Out: ptx.Float16, RMS: true}),
		norm(ptx.Norm{Rows: 321, Cols: 256, In: ptx.BFloat16, Out: ptx.BFloat16, Bias: true, Workers: 4}),
		norm(ptx.Norm{Rows: 162, Cols: 640, In: ptx.Float16, Out: ptx.Float16, RMS: true, Residual: true, Workers: 2}),
		norm(ptx.Norm{Rows: 5, Cols: 4096, In: ptx.Float32, Out: ptx.Float32, Bias: true, Workers: 2}),
		norm(ptx.Norm{Rows: 3, Cols: 32768, In: ptx.BFloat16, Out: ptx.BFloat16, Bias: true, Workers: 2}),
		normBack(ptx.Norm{Rows: 257, Cols: 256, In: ptx.BFloat16, Out: ptx.BFloat16, Bias: true, Residual: true, Workers: 4}),
		normBack(ptx.Norm{Rows: 130, Cols: 640, In: ptx.Float32, Out: ptx.Float32, RMS: true, Workers: 2}),
		normBack(ptx.Norm{Rows: 11, Cols: 768, In: ptx.BFloat16, Out: ptx.BFloat16, Bias: true, Residual: true, Workers: 2}),
		normBack(ptx.Norm{Rows: 9, Cols: 2048, In: ptx.BFloat16, Out: ptx.BFloat16, RMS: true, Workers: 2}),
		normBack(ptx.Norm{Rows: 5, Cols: 64, In: ptx.Float16, Out: ptx.Float16, RMS: true}))
}

func normName(kind string, s ptx.Norm) string {
	if s.RMS {
		kind = "rms_" + kind
	}
	if s.Residual {
		kind += "_res"
	}
	return caseName("norm_%s_%dx%d_%s", kind, s.Rows, s.Cols, s.In)
}

// statistics are mean and rstd of a row in float64.
func statistics(s ptx.Norm, at func(c int) float64) (mean, rstd float64) {
	if !s.RMS {
		for c := range s.Cols {
			mean += at(c)
		}
		mean /= float64(s.Cols)
	}
	v := 0.0
	for c := range s.Cols {
		v += (at(c) - mean) * (at(c) - mean)
	}
	return mean, 1 / math.Sqrt(v/float64(s.Cols)+float64(s.Eps))
}

// normArgs walks argument positions, which depend on the options.
type normArgs struct {
	t []Tensor
	k int
}

func (a *normArgs) next() Tensor { a.k++; return a.t[a.k-1] }

func (a *normArgs) nextIf(ok bool) Tensor {
	if !ok {
		return Tensor{}
	}
	return a.next()
}

func norm(s ptx.Norm) Case {
	s.Eps = 1e-5
	s.Name = normName("fwd", s)
	n := s.Rows * s.Cols
	return Case{
		Name: s.Name, Kernel: "Norm.Forward", Size: s.Cols, Build: s.Forward, Streams: s.Rows > 100,
		Fill: func(r *rand.Rand) []Tensor {
			x := rare(r, s.In, s.Rows, s.Cols, 2)
			for i := range n {
				if x.At(i) != subnormal(s.In) {
					x.Set(i, x.At(i)+5) // a mean that is no accident of zero
				}
			}
			t := []Tensor{x}
			if s.Residual {
				t = append(t, fill(r, s.In, n, 1))
			}
			t = append(t, fill(r, ptx.Float32, s.Cols, 1))
			if s.Bias {
				t = append(t, fill(r, ptx.Float32, s.Cols, 1))
			}
			t = append(t, New(s.Out, n))
			if s.Residual {
				t = append(t, New(s.In, n))
			}
			if !s.RMS {
				t = append(t, New(ptx.Float32, s.Rows))
			}
			return append(t, New(ptx.Float32, s.Rows))
		},
		Check: func(in, out []Tensor) error { return checkNorm(s, out) },
	}
}

func checkNorm(s ptx.Norm, out []Tensor) error {
	a := &normArgs{t: out}
	x, res := a.next(), a.nextIf(s.Residual)
	g, bias := a.next(), a.nextIf(s.Bias)
	y, sum := a.next(), a.nextIf(s.Residual)
	mean, rstd := a.nextIf(!s.RMS), a.next()
	row := x
	if s.Residual {
		want := New(s.In, x.Len())
		for i := range want.Len() {
			want.Set(i, float64(x.F32(i)+res.F32(i)))
		}
		if err := same("sum", sum, want); err != nil {
			return err
		}
		row = want
	}
	m, inv := make([]float64, s.Rows), make([]float64, s.Rows)
	for r := range s.Rows {
		m[r], inv[r] = statistics(s, func(c int) float64 { return row.At(r*s.Cols + c) })
	}
	exact := func(i int) float64 {
		v := (row.At(i) - m[i/s.Cols]) * inv[i/s.Cols] * g.At(i%s.Cols)
		if s.Bias {
			v += bias.At(i % s.Cols)
		}
		return v
	}
	tol := eps32 * float64(s.Cols/32+16)
	if !s.RMS {
		if err := near("mean", mean, func(r int) float64 { return m[r] }, func(int) float64 { return 10 * tol }); err != nil {
			return err
		}
	}
	if err := near("rstd", rstd, func(r int) float64 { return inv[r] }, func(r int) float64 { return 8 * tol * inv[r] }); err != nil {
		return err
	}
	return near("y", y, exact, func(i int) float64 {
		return tol * (10*inv[i/s.Cols] + 8*math.Abs(exact(i)) + 4) * math.Max(1, math.Abs(g.At(i%s.Cols)))
	})
}

func normBack(s ptx.Norm) Case {
	s.Eps = 1e-5
	s.Name = normName("bwd", s)
	n := s.Rows * s.Cols
	parts, err := s.Partials()
	if err != nil {
		panic(err) // a case of this file is wrong
	}
	return Case{
		Name: s.Name, Kernel: "Norm.Backward", Size: s.Cols, Build: s.Backward, Streams: s.Rows > 100,
		Fill: func(r *rand.Rand) []Tensor {
			dy := fill(r, s.Out, n, 1)
			if s.Cols > 30 { // a NaN or infinity takes its row of dx and its column of the sums
				dy = rare(r, s.Out, s.Rows, s.Cols, 1)
			}
			t := []Tensor{dy, fill(r, s.In, n, 2), fill(r, ptx.Float32, s.Cols, 1)}
			mean, rstd := fill(r, ptx.Float32, s.Rows, 1), fill(r, ptx.Float32, s.Rows, 1)
			for row := range s.Rows {
				rstd.Set(row, 0.5+math.Abs(rstd.At(row)))
			}
			if !s.RMS {
				t = append(t, mean)
			}
			t = append(t, rstd)
			if s.Residual {
				t = append(t, fill(r, s.In, n, 1))
			}
			t = append(t, New(s.In, n), New(ptx.Float32, parts*s.Cols))
			if s.Bias {
				t = append(t, New(ptx.Float32, parts*s.Cols))
			}
			return t
		},
		Check: func(in, out []Tensor) error { return checkNormBack(s, parts, out) },
	}
}

func checkNormBack(s ptx.Norm, parts int, out []Tensor) error {
	a := &normArgs{t: out}
	dy, x, g := a.next(), a.next(), a.next()
	mean, rstd := a.nextIf(!s.RMS), a.next()
	dres := a.nextIf(s.Residual)
	dx, dscale := a.next(), a.next()
	dbias := a.nextIf(s.Bias)
	hat := func(i int) float64 {
		v := x.At(i)
		if !s.RMS {
			v -= mean.At(i / s.Cols)
		}
		return v * rstd.At(i/s.Cols)
	}
	want, slack := make([]float64, x.Len()), make([]float64, x.Len())
	dg, db, mass := make([]float64, s.Cols), make([]float64, s.Cols), make([]float64, s.Cols)
	for r := range s.Rows {
		c1, c2, m := 0.0, 0.0, 0.0
		for c := range s.Cols {
			i := r*s.Cols + c
			w := dy.At(i) * g.At(c)
			c1 += w
			c2 += w * hat(i)
			m += math.Abs(w) * (1 + math.Abs(hat(i)))
			dg[c] += dy.At(i) * hat(i)
			db[c] += dy.At(i)
			mass[c] += math.Abs(dy.At(i)) * (1 + math.Abs(hat(i)))
		}
		c1, c2, m = c1/float64(s.Cols), c2/float64(s.Cols), m/float64(s.Cols)
		if s.RMS {
			c1 = 0
		}
		for c := range s.Cols {
			i := r*s.Cols + c
			want[i] = rstd.At(r) * (dy.At(i)*g.At(c) - c1 - hat(i)*c2)
			slack[i] = eps32 * rstd.At(r) * (math.Abs(dy.At(i)*g.At(c))*4 + m*float64(s.Cols/32+16)*(1+math.Abs(hat(i))))
			if s.Residual {
				want[i] += dres.At(i)
				slack[i] += eps32 * (math.Abs(want[i]) + math.Abs(dres.At(i)))
			}
		}
	}
	if err := near("dx", dx, func(i int) float64 { return want[i] }, func(i int) float64 { return slack[i] }); err != nil {
		return err
	}
	if err := nearColumns("dscale", dscale, parts, dg, mass, s.Rows); err != nil || !s.Bias {
		return err
	}
	return nearColumns("dbias", dbias, parts, db, mass, s.Rows)
}

// nearColumns checks the column sums of partial results.
func nearColumns(name string, got Tensor, parts int, want, mass []float64, rows int) error {
	sums := New(ptx.Float64, len(want))
	for c := range want {
		total := 0.0
		for p := range parts {
			total += got.At(p*len(want) + c)
		}
		sums.Set(c, total)
	}
	return near(name, sums, func(c int) float64 { return want[c] }, func(c int) float64 { return mass[c] * eps32 * float64(rows+8) })
}
