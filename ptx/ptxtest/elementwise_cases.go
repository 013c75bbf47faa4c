package ptxtest

import (
	"errors"
	"math"
	"math/rand/v2"

	"ampc/internal/fp"
	"ampc/internal/philox"
	"ampc/ptx"
)

func load(name string, d ptx.DType, stride ...int64) ptx.Access {
	return ptx.Access{Name: name, DType: d, Stride: stride}
}

func output(name string, d ptx.DType, value int, stride ...int64) ptx.Output {
	return ptx.Output{Access: load(name, d, stride...), Value: value}
}

// elements is the number of elements of g.
func elements(g ptx.Elementwise) int {
	n := 1
	for _, d := range g.Shape {
		n *= int(d)
	}
	return n
}

// valueType is the type an element of d is computed in.
func valueType(d ptx.DType) ptx.DType {
	switch d {
	case ptx.Float16, ptx.BFloat16:
		return ptx.Float32
	case ptx.Uint8:
		return ptx.Int32
	}
	return d
}

// code is a list of instructions that begins with the loads.
func code(loads ...ptx.DType) []ptx.Instr {
	var c []ptx.Instr
	for i, d := range loads {
		c = append(c, ptx.Instr{Op: "in", Type: valueType(d), Int: int64(i)})
	}
	return c
}

func elementwiseCases() []Case {
	cases := []Case{biasGelu(64, 96), biasGelu(33, 31), strided(), offsets(), indexed(), broadcastRows(), merged(), doubles(), integers(), logic()}
	for _, n := range sizes {
		cases = append(cases, castCase(ptx.Float32, ptx.Float16, n), castCase(ptx.Float32, ptx.BFloat16, n), dropoutCase(ptx.Float16, n))
	}
	cases = append(cases, castCase(ptx.Float32, ptx.BFloat16, 1<<13), dropoutCase(ptx.BFloat16, 1<<13))
	for _, pair := range [][2]ptx.DType{
		{ptx.Float16, ptx.Float32}, {ptx.BFloat16, ptx.Float32}, {ptx.Float16, ptx.BFloat16}, {ptx.BFloat16, ptx.Float16},
		{ptx.Float32, ptx.Float32}, {ptx.Float32, ptx.Int32}, {ptx.Float32, ptx.Int64}, {ptx.Float32, ptx.Uint8}, {ptx.Float32, ptx.Bool},
		{ptx.Int32, ptx.Float32}, {ptx.Int64, ptx.BFloat16}, {ptx.Uint8, ptx.Float16}, {ptx.Bool, ptx.Float32}, {ptx.Int32, ptx.Bool},
		{ptx.Float64, ptx.Float32}, {ptx.Float32, ptx.Float64}, {ptx.Float64, ptx.Int64}, {ptx.Int64, ptx.Uint8},
	} {
		cases = append(cases, castCase(pair[0], pair[1], 1003))
	}
	cases = append(cases, signs(33, 8), signs(1, 1024), signs(17, 64))
	return append(cases, everyHalf(ptx.Float16), everyHalf(ptx.BFloat16))
}

// signs stores, as bits, where x plus a row is above zero, and x where bits of another tensor are
// set.
func signs(rows, cols int) Case {
	n := rows * cols
	e := &expr{ins: append(code(ptx.Float16, ptx.Float32), ptx.Instr{Op: "in", Type: ptx.Bool, Int: 2})}
	zero := e.num(0)
	above := e.op("lt", ptx.Bool, zero, e.f("add", 0, 1))
	g := ptx.Elementwise{Name: caseName("signs_%dx%d", rows, cols), Shape: []int64{int64(rows), int64(cols)}, Code: e.ins,
		Loads:  []ptx.Access{load("x", ptx.Float16), load("row", ptx.Float32, 0, 1), {Name: "mask", DType: ptx.Uint8, Bits: true}},
		Stores: []ptx.Output{{Access: ptx.Access{Name: "above", DType: ptx.Uint8, Bits: true}, Value: above}, output("y", ptx.Float16, e.f("select", 2, 0, zero))}}
	g.Code = e.ins
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: n, Build: g.Build, Exact: true, Trials: 3,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{special(r, ptx.Float16, n, 1), fill(r, ptx.Float32, cols, 1), ids(r, ptx.Uint8, n/8, 256), New(ptx.Uint8, n/8), New(ptx.Float16, n)}
		},
		Check: func(in, out []Tensor) error {
			above, y, mask := New(ptx.Uint8, n), New(ptx.Float16, n), bitsOf(in[2])
			for i := range n {
				if in[0].F32(i)+in[1].F32(i%cols) > 0 {
					above.setBits(i, 1)
				}
				if mask.Bits(i) == 1 {
					y.setBits(i, in[0].Bits(i))
				}
			}
			return errors.Join(same("above", bitsOf(out[3]), above), same("y", out[4], y))
		},
	}
}

// Cast converts n elements.
func Cast(from, to ptx.DType, n int) ptx.Elementwise {
	return ptx.Elementwise{
		Name: caseName("cast_%s_%s_%d", from, to, n), Shape: []int64{int64(n)},
		Loads: []ptx.Access{load("x", from)}, Code: code(from), Stores: []ptx.Output{output("y", to, 0)},
	}
}

func castCase(from, to ptx.DType, n int) Case {
	g := Cast(from, to, n)
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true, Streams: n >= 4096,
		Fill: func(r *rand.Rand) []Tensor {
			if valueType(from) != from && from == ptx.Uint8 || from == ptx.Int32 || from == ptx.Int64 {
				return []Tensor{ids(r, from, n, 200), New(to, n)}
			}
			if from == ptx.Bool {
				return []Tensor{ids(r, from, n, 2), New(to, n)}
			}
			return []Tensor{special(r, from, n, 100), New(to, n)}
		},
		Check: func(in, out []Tensor) error {
			want := New(to, n)
			for i := range n {
				want.setBits(i, convert(in[0].At(i), to))
			}
			return same("y", out[1], want)
		},
	}
}

// convert is the cast rule: floats round to nearest even, integers truncate and saturate, NaN is 0.
func convert(x float64, to ptx.DType) uint64 {
	lo, hi := math.Inf(-1), math.Inf(1)
	switch to {
	case ptx.Float32:
		return uint64(math.Float32bits(float32(x)))
	case ptx.Float16, ptx.BFloat16, ptx.Float64:
		return encode(to, x)
	case ptx.Bool:
		if x != 0 {
			return 1
		}
		return 0
	case ptx.Int32:
		lo, hi = math.MinInt32, math.MaxInt32
	case ptx.Uint8:
		lo, hi = 0, 255
	case ptx.Int64:
		if x >= 0x1p63 {
			return math.MaxInt64
		}
		lo = math.MinInt64
	}
	if x != x {
		return 0
	}
	return encode(to, math.Trunc(min(max(x, lo), hi))) & (1<<(8*to.Size()-1)<<1 - 1)
}

// everyHalf widens all 65536 patterns of a 16-bit float.
func everyHalf(d ptx.DType) Case {
	g := Cast(d, ptx.Float32, 1<<16)
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true, Streams: true,
		Fill: func(*rand.Rand) []Tensor {
			x := New(d, 1<<16)
			for i := range 1 << 16 {
				x.setBits(i, uint64(i))
			}
			return []Tensor{x, New(ptx.Float32, 1<<16)}
		},
		Check: func(in, out []Tensor) error {
			want := New(ptx.Float32, 1<<16)
			for i := range 1 << 16 {
				want.Set(i, in[0].At(i))
			}
			return same("y", out[1], want)
		},
	}
}

// BiasGelu is y = gelu(x + bias) by erf, a broadcast over rows.
func BiasGelu(rows, cols int) ptx.Elementwise {
	const x, bias, sum, c, t, e, one, u, half, w, y = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
	return ptx.Elementwise{
		Name: caseName("bias_gelu_%dx%d", rows, cols), Shape: []int64{int64(rows), int64(cols)},
		Loads: []ptx.Access{load("x", ptx.BFloat16), load("bias", ptx.Float32, 0, 1)},
		Code: append(code(ptx.BFloat16, ptx.Float32),
			ptx.Instr{Op: "add", Type: ptx.Float32, A: x, B: bias},
			ptx.Instr{Op: "const", Type: ptx.Float32, Imm: math.Sqrt(0.5)},
			ptx.Instr{Op: "mul", Type: ptx.Float32, A: sum, B: c},
			ptx.Instr{Op: "erf", Type: ptx.Float32, A: t},
			ptx.Instr{Op: "const", Type: ptx.Float32, Imm: 1},
			ptx.Instr{Op: "add", Type: ptx.Float32, A: e, B: one},
			ptx.Instr{Op: "const", Type: ptx.Float32, Imm: 0.5},
			ptx.Instr{Op: "mul", Type: ptx.Float32, A: sum, B: half},
			ptx.Instr{Op: "mul", Type: ptx.Float32, A: w, B: u}),
		Stores: []ptx.Output{output("y", ptx.BFloat16, y)},
	}
}

func biasGelu(rows, cols int) Case {
	n := rows * cols
	g := BiasGelu(rows, cols)
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{fill(r, ptx.BFloat16, n, 2), fill(r, ptx.Float32, cols, 1), New(ptx.BFloat16, n)}
		},
		Check: func(in, out []Tensor) error {
			return near("y", out[2], func(i int) float64 {
				v := float64(in[0].F32(i) + in[1].F32(i%cols))
				return 0.5 * v * (1 + math.Erf(v*math.Sqrt(0.5)))
			}, func(i int) float64 { return 4e-7 })
		},
	}
}

// strided copies a permuted, sliced view: y[i,j,k] = x[k,i,j+2].
func strided() Case {
	const a, b, c = 5, 7, 9
	g := ptx.Elementwise{
		Name: "permute", Shape: []int64{a, b, c},
		Loads:  []ptx.Access{{Name: "x", DType: ptx.Float16, Stride: []int64{b + 3, 1, a * (b + 3)}, Offset: 2}},
		Code:   code(ptx.Float16),
		Stores: []ptx.Output{output("y", ptx.Float16, 0)},
	}
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{special(r, ptx.Float16, c*a*(b+3), 1), New(ptx.Float16, a*b*c)}
		},
		Check: func(in, out []Tensor) error {
			want := New(ptx.Float16, a*b*c)
			for i := range want.Len() {
				x, y, z := i/(b*c), i/c%b, i%c
				want.setBits(i, in[0].Bits(z*a*(b+3)+x*(b+3)+y+2))
			}
			return same("y", out[1], want)
		},
	}
}

// offsets writes a window of a larger buffer, as concat does.
func offsets() Case {
	const rows, cols, wide, at = 6, 16, 40, 8
	g := ptx.Elementwise{
		Name: "concat_part", Shape: []int64{rows, cols},
		Loads:  []ptx.Access{load("x", ptx.Float32)},
		Code:   code(ptx.Float32),
		Stores: []ptx.Output{{Access: ptx.Access{Name: "y", DType: ptx.Float32, Stride: []int64{wide, 1}, Offset: at}}},
	}
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true, Partial: true,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{fill(r, ptx.Float32, rows*cols, 1), New(ptx.Float32, (rows-1)*wide+cols+at)}
		},
		Check: func(in, out []Tensor) error {
			want := copyOf(out)[1]
			for i := range rows * cols {
				want.setBits(i/cols*wide+i%cols+at, in[0].Bits(i))
			}
			return same("y", out[1], want)
		},
	}
}

// indexed stores each element's index plus its row.
func indexed() Case {
	const rows, cols = 12, 20
	g := ptx.Elementwise{
		Name: "index", Shape: []int64{rows, cols},
		Loads: []ptx.Access{load("row", ptx.Int64, 1, 0)},
		Code: append(code(ptx.Int64), ptx.Instr{Op: "index", Type: ptx.Int64},
			ptx.Instr{Op: "add", Type: ptx.Int64, A: 0, B: 1}),
		Stores: []ptx.Output{output("y", ptx.Int64, 2)},
	}
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{ids(r, ptx.Int64, rows, 1000), New(ptx.Int64, rows*cols)}
		},
		Check: func(in, out []Tensor) error {
			want := New(ptx.Int64, rows*cols)
			for i := range rows * cols {
				want.setBits(i, in[0].Bits(i/cols)+uint64(i))
			}
			return same("y", out[1], want)
		},
	}
}

// broadcastRows multiplies each row by its own number and clips at zero: y = max(x·s[row], 0).
func broadcastRows() Case {
	const rows, cols = 17, 64
	g := ptx.Elementwise{
		Name: "row_scale_relu", Shape: []int64{rows, cols},
		Loads: []ptx.Access{load("x", ptx.Float16), load("s", ptx.Float32, 1, 0)},
		Code: append(code(ptx.Float16, ptx.Float32),
			ptx.Instr{Op: "mul", Type: ptx.Float32, A: 0, B: 1},
			ptx.Instr{Op: "const", Type: ptx.Float32},
			ptx.Instr{Op: "max", Type: ptx.Float32, A: 2, B: 3}),
		Stores: []ptx.Output{output("y", ptx.Float16, 4)},
	}
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{special(r, ptx.Float16, rows*cols, 1), special(r, ptx.Float32, rows, 1), New(ptx.Float16, rows*cols)}
		},
		Check: func(in, out []Tensor) error {
			want := New(ptx.Float16, rows*cols)
			for i := range rows * cols {
				p := in[0].F32(i) * in[1].F32(i/cols)
				switch {
				case p != p:
					want.Set(i, math.NaN())
				case p > 0:
					want.setBits(i, uint64(fp.F16(p)))
				}
			}
			return same("y", out[2], want)
		},
	}
}

// merged is y = x + 1 over three dimensions of which two are one, x being every second plane of a larger
// tensor of bytes.
func merged() Case {
	const a, b, c = 3, 5, 6
	g := ptx.Elementwise{
		Name: "planes", Shape: []int64{a, b, c},
		Loads:  []ptx.Access{load("x", ptx.Uint8, 2*b*c, c, 1)},
		Code:   append(code(ptx.Uint8), ptx.Instr{Op: "const", Type: ptx.Int32, Int: 1}, ptx.Instr{Op: "add", Type: ptx.Int32, A: 0, B: 1}),
		Stores: []ptx.Output{output("y", ptx.Uint8, 2)},
	}
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{ids(r, ptx.Uint8, (2*a-1)*b*c, 256), New(ptx.Uint8, a*b*c)}
		},
		Check: func(in, out []Tensor) error {
			want := New(ptx.Uint8, a*b*c)
			for i := range want.Len() {
				want.setBits(i, in[0].Bits(i/(b*c)*2*b*c+i%(b*c))+1)
			}
			return same("y", out[1], want)
		},
	}
}

// dropoutCase keeps elements whose 24-bit uniform is at least p and scales them.
func dropoutCase(d ptx.DType, n int) Case {
	const p, site = 0.25, 77
	keep := float32(1 / (1 - p))
	g := ptx.Elementwise{
		Name: caseName("dropout_%d", n), Shape: []int64{int64(n)},
		Loads: []ptx.Access{load("x", d), load("seed", ptx.Int64, 0), load("attempt", ptx.Int64, 0), load("micro", ptx.Int64, 0)},
		Code: append(code(d, ptx.Int64, ptx.Int64, ptx.Int64),
			ptx.Instr{Op: "philox", Type: ptx.Int64, A: 1, B: 2, C: 3, Int: site},
			ptx.Instr{Op: "const", Type: ptx.Int64, Int: int64(p * (1 << 32))},
			ptx.Instr{Op: "lt", Type: ptx.Bool, A: 4, B: 5},
			ptx.Instr{Op: "const", Type: ptx.Float32, Imm: float64(keep)},
			ptx.Instr{Op: "mul", Type: ptx.Float32, A: 0, B: 7},
			ptx.Instr{Op: "const", Type: ptx.Float32},
			ptx.Instr{Op: "select", Type: ptx.Float32, A: 6, B: 9, C: 8}),
		Stores: []ptx.Output{output("y", d, 10)},
	}
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true, Streams: n == 1<<13,
		Fill: func(r *rand.Rand) []Tensor {
			one := func(v uint64) Tensor { t := New(ptx.Int64, 1); t.setBits(0, v); return t }
			return []Tensor{special(r, d, n, 3), one(0xdeadbeefcafef00d), one(12), one(3), New(d, n)}
		},
		Check: func(in, out []Tensor) error {
			draw := philox.Draw{Seed: int64(in[1].Bits(0)), Site: site, Micro: uint32(in[3].Bits(0)), Attempt: uint32(in[2].Bits(0))}
			want := New(d, n)
			for i := range n {
				if draw.Word(int64(i)) >= 1<<30 {
					want.Set(i, float64(in[0].F32(i)*keep))
				}
			}
			return same("y", out[4], want)
		},
	}
}
