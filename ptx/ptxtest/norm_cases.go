package ptxtest

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"ampc/ptx"
)

func normCases() []Case {
	var cases []Case
	many := residual(162, 256, ptx.Float32, ptx.BFloat16)
	many.Workers = 4
	for _, n := range sizes {
		cases = append(cases, norm(ptx.Norm{Rows: 6, Cols: n, In: ptx.Float16, Out: ptx.Float16, Bias: true}),
			normBack(ptx.Norm{Rows: 7, Cols: n, In: ptx.Float32, Out: ptx.Float32, Bias: true, Workers: 4}),
			norm(residual(6, n, ptx.Float32, ptx.BFloat16)), normBack(trunk(7, n, ptx.Float32, ptx.BFloat16)),
			normBack(summed(trunk(9, n, ptx.Float32, ptx.BFloat16), 2)))
	}
	for _, last := range []bool{false, true} {
		for _, d := range [][4]int{{2, 3, 2, 33}, {2, 2, 8, 64}, {3, 4, 1, 31}} {
			cases = append(cases, norm(grouped(d, last, ptx.Float16, ptx.Float32)), normBack(grouped(d, last, ptx.Float32, ptx.BFloat16)))
		}
	}
	plain := grouped([4]int{3, 2, 3, 17}, true, ptx.Float32, ptx.Float32)
	plain.NoScale, plain.Bias = true, false
	return append(cases, norm(plain), normBack(plain),
		norm(many), norm(residual(6, 768, ptx.Float32, ptx.Float16)),
		norm(residual(6, 640, ptx.BFloat16, ptx.BFloat16)),
		norm(ptx.Norm{Rows: 5, Cols: 512, In: ptx.Float32, Out: ptx.Float16, RMS: true}),
		norm(ptx.Norm{Rows: 321, Cols: 256, In: ptx.BFloat16, Out: ptx.BFloat16, Bias: true, Workers: 4}),
		norm(ptx.Norm{Rows: 162, Cols: 640, In: ptx.Float16, Out: ptx.Float16, RMS: true, Workers: 2}),
		norm(ptx.Norm{Rows: 5, Cols: 4096, In: ptx.Float32, Out: ptx.Float32, Bias: true, Workers: 2}),
		norm(ptx.Norm{Rows: 3, Cols: 20000, In: ptx.BFloat16, Out: ptx.BFloat16, Bias: true}),
		normBack(trunk(257, 256, ptx.BFloat16, ptx.BFloat16)),
		normBack(ptx.Norm{Rows: 130, Cols: 640, In: ptx.Float32, Out: ptx.Float32, RMS: true, Workers: 2}),
		normBack(trunk(11, 768, ptx.Float32, ptx.Float16)),
		normBack(ptx.Norm{Rows: 9, Cols: 2048, In: ptx.BFloat16, Out: ptx.BFloat16, RMS: true, Workers: 2}),
		normBack(ptx.Norm{Rows: 2, Cols: 9000, In: ptx.Float32, Out: ptx.BFloat16, Bias: true}),
		normBack(ptx.Norm{Rows: 2, Cols: 20000, In: ptx.Float32, Out: ptx.BFloat16, Bias: true}),
		normBack(ptx.Norm{Rows: 6, Cols: 96, In: ptx.Float32, Out: ptx.Float16, DX: ptx.Float16, Bias: true}),
		normBack(ptx.Norm{Rows: 130, Cols: 640, In: ptx.BFloat16, Out: ptx.BFloat16, DX: ptx.Float32, RMS: true, Workers: 2}),
		normBack(ptx.Norm{Rows: 5, Cols: 64, In: ptx.Float16, Out: ptx.Float16, RMS: true}),
		normBack(summed(ptx.Norm{Rows: 6, Cols: 96, In: ptx.Float32, Out: ptx.Float16, DX: ptx.Float16, Bias: true}, 0)))
}

// summed is a gradient that also adds up a value of the code behind it.
func summed(s ptx.Norm, value int) ptx.Norm {
	s.Sums = []int{value}
	return s
}

// residual is a norm of trunk + (branch + bias): a product's sum in f32, a bias in out, the trunk in
// in, where it is stored.
func residual(rows, cols int, in, out ptx.DType) ptx.Norm {
	c := append(code(ptx.Float32, out, in), ptx.Instr{Op: "add", Type: ptx.Float32, A: 0, B: 1}, ptx.Instr{Op: "add", Type: ptx.Float32, A: 3, B: 2})
	x := 4
	if in.Low() { // what is normalized is the trunk as it is stored
		c = append(c, ptx.Instr{Op: "round", Type: ptx.Float32, To: in, A: x})
		x++
	}
	return ptx.Norm{Rows: rows, Cols: cols, In: in, Out: out, Bias: true, X: x, Before: &ptx.Elementwise{
		Shape: []int64{int64(rows), int64(cols)}, Code: c,
		Loads:  []ptx.Access{load("sum", ptx.Float32), load("branch_bias", out, 0, 1), load("trunk", in)},
		Stores: []ptx.Output{output("new_trunk", in, x)},
	}}
}

// trunk is a norm whose gradient is added to that of the trunk, stored in in and out.
func trunk(rows, cols int, in, out ptx.DType) ptx.Norm {
	c := append(code(in, in), ptx.Instr{Op: "add", Type: ptx.Float32, A: 0, B: 1})
	s := ptx.Norm{Rows: rows, Cols: cols, In: in, Out: out, Bias: true, Workers: 4, After: &ptx.Elementwise{
		Shape: []int64{int64(rows * cols)}, Code: c,
		Loads:  []ptx.Access{load("dx", in), load("dtrunk", in)},
		Stores: []ptx.Output{output("sum", in, 2)},
	}}
	if in != out {
		s.After.Stores = append(s.After.Stores, output("low", out, 2))
	}
	return s
}

// grouped is a norm over images of groups×per channels, at so many positions each.
func grouped(d [4]int, last bool, in, out ptx.DType) ptx.Norm {
	n, groups, per, positions := int64(d[0]), int64(d[1]), int64(d[2]), int64(d[3])
	s := ptx.Norm{Rows: d[0] * d[1], Cols: d[2] * d[3], In: in, Out: out, Bias: true}
	s.Shape, s.PerRow = []int64{n, groups, per, positions}, []int64{0, per, 1, 0}
	if last {
		s.Shape, s.PerRow = []int64{n, groups, positions, per}, []int64{0, per, 0, 1}
		s.Stride = []int64{positions * groups * per, per, groups * per, 1}
	}
	return s
}

// places lists where the elements of the rows lie in x, and which of scale and bias is theirs.
func places(s ptx.Norm) (at, param []int) {
	for i := range s.Rows * s.Cols {
		if s.Shape == nil {
			at, param = append(at, i), append(param, i%s.Cols)
			continue
		}
		rest, x, p := int64(i), int64(0), int64(0)
		for d := len(s.Shape) - 1; d >= 0; d-- {
			k := rest % s.Shape[d]
			rest /= s.Shape[d]
			p += k * s.PerRow[d]
			if s.Stride != nil {
				x += k * s.Stride[d]
			}
		}
		if s.Stride == nil {
			x = int64(i)
		}
		at, param = append(at, int(x)), append(param, int(p))
	}
	return at, param
}

// params is how many scales there are.
func params(s ptx.Norm) int {
	_, param := places(s)
	return slices.Max(param) + 1
}

// scaleTensor is the scale of every element, 1 where there is none.
func scaleTensor(s ptx.Norm, a *normArgs) Tensor {
	if !s.NoScale {
		return a.next()
	}
	t := New(ptx.Float32, params(s))
	for i := range t.Len() {
		t.Set(i, 1)
	}
	return t
}

func normName(kind string, s ptx.Norm) string {
	if s.RMS {
		kind = "rms_" + kind
	}
	if s.Before != nil || s.After != nil {
		kind += "_res"
	}
	if s.Shape != nil {
		kind += "_groups"
	}
	if s.Stride != nil {
		kind += "_last"
	}
	if len(s.Sums) > 0 {
		kind += "_sums"
	}
	if s.DX != "" {
		kind += "_" + string(s.DX)
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
				if math.Abs(x.At(i)) > subnormal(s.In)*1.1 || x.At(i) == 0 {
					x.Set(i, x.At(i)+5) // a mean that is not an accident of zero
				}
			}
			t := []Tensor{x}
			if s.Before != nil {
				t = []Tensor{fill(r, ptx.Float32, n, 1), fill(r, s.Out, s.Cols, 1), x}
			}
			if !s.NoScale {
				t = append(t, fill(r, ptx.Float32, params(s), 1))
			}
			if s.Bias {
				t = append(t, fill(r, ptx.Float32, params(s), 1))
			}
			if s.Before != nil {
				t = append(t, New(s.In, n))
			}
			t = append(t, New(s.Out, n))
			if !s.RMS {
				t = append(t, New(ptx.Float32, s.Rows))
			}
			return append(t, New(ptx.Float32, s.Rows))
		},
		Check: func(in, out []Tensor) error { return checkNorm(s, in, out) },
	}
}

func checkNorm(s ptx.Norm, in, out []Tensor) error {
	a := &normArgs{t: out}
	a.next()
	row := in[0]
	if s.Before != nil {
		branch, bias, trunk := in[0], in[1], in[2]
		a.k += 2
		row = New(s.In, trunk.Len())
		for i := range row.Len() {
			row.Set(i, float64(branch.F32(i)+bias.F32(i%s.Cols)+trunk.F32(i)))
		}
	}
	at, param := places(s)
	g, bias := scaleTensor(s, a), a.nextIf(s.Bias)
	if s.Before != nil {
		if err := same("new_trunk", a.next(), row); err != nil {
			return err
		}
	}
	y, mean, rstd := a.next(), a.nextIf(!s.RMS), a.next()
	m, inv := make([]float64, s.Rows), make([]float64, s.Rows)
	for r := range s.Rows {
		m[r], inv[r] = statistics(s, func(c int) float64 { return row.At(at[r*s.Cols+c]) })
	}
	exact := func(i int) float64 {
		v := (row.At(at[i]) - m[i/s.Cols]) * inv[i/s.Cols] * g.At(param[i])
		if s.Bias {
			v += bias.At(param[i])
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
	return near("y", byRow(y, at), exact, func(i int) float64 {
		return tol * (10*inv[i/s.Cols] + 8*math.Abs(exact(i)) + 4) * math.Max(1, math.Abs(g.At(param[i])))
	})
}

// byRow is a tensor in the order of the rows.
func byRow(t Tensor, at []int) Tensor {
	out := New(t.DType, t.Len())
	for i, k := range at {
		out.setBits(i, t.Bits(k))
	}
	return out
}

func normBack(s ptx.Norm) Case {
	s.Eps = 1e-5
	s.Name = normName("bwd", s)
	n, parts := s.Rows*s.Cols, s.Partials()
	return Case{
		Name: s.Name, Kernel: "Norm.Backward", Size: s.Cols, Build: s.Backward, Streams: s.Rows > 100,
		Fill: func(r *rand.Rand) []Tensor {
			dy := fill(r, s.Out, n, 1)
			if s.Cols > 30 { // a NaN or infinity takes its row of dx and its column of the sums
				dy = rare(r, s.Out, s.Rows, s.Cols, 1)
			}
			t := []Tensor{dy, fill(r, s.In, n, 2)}
			if !s.NoScale {
				t = append(t, fill(r, ptx.Float32, params(s), 1))
			}
			mean, rstd := fill(r, ptx.Float32, s.Rows, 1), fill(r, ptx.Float32, s.Rows, 1)
			for row := range s.Rows {
				rstd.Set(row, 0.5+math.Abs(rstd.At(row)))
			}
			if !s.RMS {
				t = append(t, mean)
			}
			t = append(t, rstd)
			if s.After != nil {
				t = append(t, fill(r, s.In, n, 1))
			}
			t = append(t, New(cmp.Or(s.DX, s.In), n))
			if s.After != nil && s.In != s.Out {
				t = append(t, New(s.Out, n))
			}
			if parts > 0 {
				t = append(t, New(ptx.Float32, parts*s.Cols))
			}
			if parts > 0 && s.Bias {
				t = append(t, New(ptx.Float32, parts*s.Cols))
			}
			for range s.Sums {
				t = append(t, New(ptx.Float32, parts*s.Cols))
			}
			return t
		},
		Check: func(in, out []Tensor) error { return checkNormBack(s, parts, in, out) },
	}
}

func checkNormBack(s ptx.Norm, parts int, in, out []Tensor) error {
	a := &normArgs{t: out}
	a.next()
	at, param := places(s)
	dy, x := byRow(in[0], at), byRow(a.next(), at)
	g := scaleTensor(s, a)
	mean, rstd := a.nextIf(!s.RMS), a.next()
	dres := a.nextIf(s.After != nil)
	dx, low := a.next(), a.nextIf(s.After != nil && s.In != s.Out)
	hat := func(i int) float64 {
		v := x.At(i)
		if !s.RMS {
			v -= mean.At(i / s.Cols)
		}
		return v * rstd.At(i/s.Cols)
	}
	want, slack := make([]float64, x.Len()), make([]float64, x.Len())
	dg, db, mass := make([]float64, s.Cols), make([]float64, s.Cols), make([]float64, s.Cols)
	sum, sumMass := make([]float64, s.Cols), make([]float64, s.Cols)
	for r := range s.Rows {
		c1, c2, m := 0.0, 0.0, 0.0
		for c := range s.Cols {
			i := r*s.Cols + c
			w := dy.At(i) * g.At(param[i])
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
			want[i] = rstd.At(r) * (dy.At(i)*g.At(param[i]) - c1 - hat(i)*c2)
			slack[i] = eps32 * rstd.At(r) * (math.Abs(dy.At(i)*g.At(param[i]))*4 + m*float64(s.Cols/32+16)*(1+math.Abs(hat(i))))
			if s.After != nil {
				slack[i] += 0.5001 * ulp(s.In, want[i]) // dx is rounded before it is added
				want[i] += dres.At(i)
				slack[i] += eps32 * (math.Abs(want[i]) + math.Abs(dres.At(i)))
			}
			sum[c] += want[i]
			sumMass[c] += math.Abs(want[i]) + (slack[i]+ulp(cmp.Or(s.DX, s.In), want[i]))/eps32/float64(s.Rows+8)
		}
	}
	for i, t := range []Tensor{dx, low} {
		if t.Bytes == nil {
			continue
		}
		name := []string{"dx", "low"}[i]
		if err := near(name, byRow(t, at), func(i int) float64 { return want[i] }, func(i int) float64 { return slack[i] }); err != nil {
			return err
		}
	}
	if parts == 0 {
		return nil
	}
	if err := nearColumns("dscale", a.next(), parts, dg, mass, s.Rows); err != nil {
		return err
	}
	if s.Bias {
		if err := nearColumns("dbias", a.next(), parts, db, mass, s.Rows); err != nil {
			return err
		}
	}
	if len(s.Sums) == 0 {
		return nil
	}
	return nearColumns("sum", a.next(), parts, sum, sumMass, s.Rows)
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
