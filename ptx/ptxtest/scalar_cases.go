package ptxtest

import (
	"math"
	"math/rand/v2"

	"ampc/ptx"
)

// doubles is arithmetic in f64: y = (x·x + 1) / 3.
func doubles() Case {
	const n = 257
	g := ptx.Elementwise{
		Name: "f64_arith", Shape: []int64{n},
		Loads: []ptx.Access{load("x", ptx.Float64)},
		Code: append(code(ptx.Float64),
			ptx.Instr{Op: "const", Type: ptx.Float64, Imm: 1},
			ptx.Instr{Op: "fma", Type: ptx.Float64, A: 0, B: 0, C: 1},
			ptx.Instr{Op: "const", Type: ptx.Float64, Imm: 3},
			ptx.Instr{Op: "div", Type: ptx.Float64, A: 2, B: 3}),
		Stores: []ptx.Output{output("y", ptx.Float64, 4)},
	}
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{special(r, ptx.Float64, n, 1), New(ptx.Float64, n)}
		},
		Check: func(in, out []Tensor) error {
			want := New(ptx.Float64, n)
			for i := range n {
				want.Set(i, math.FMA(in[0].At(i), in[0].At(i), 1)/3)
			}
			return same("y", out[1], want)
		},
	}
}

// integers is y = a/b + a·b in i32, a quotient by zero being zero.
func integers() Case {
	const n = 515
	g := ptx.Elementwise{
		Name: "i32_arith", Shape: []int64{n},
		Loads: []ptx.Access{load("a", ptx.Int32), load("b", ptx.Int32)},
		Code: append(code(ptx.Int32, ptx.Int32),
			ptx.Instr{Op: "div", Type: ptx.Int32, A: 0, B: 1},
			ptx.Instr{Op: "mul", Type: ptx.Int32, A: 0, B: 1},
			ptx.Instr{Op: "add", Type: ptx.Int32, A: 2, B: 3}),
		Stores: []ptx.Output{output("y", ptx.Int32, 4)},
	}
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			a, b := New(ptx.Int32, n), New(ptx.Int32, n)
			for i := range n {
				a.setBits(i, uint64(r.Uint32()))
				b.Set(i, float64(r.IntN(7)-3))
			}
			return []Tensor{a, b, New(ptx.Int32, n)}
		},
		Check: func(in, out []Tensor) error {
			want := New(ptx.Int32, n)
			for i := range n {
				a, b := int32(in[0].Bits(i)), int32(in[1].Bits(i))
				q := int32(0)
				if b != 0 {
					q = a / b
				}
				want.setBits(i, uint64(uint32(q+a*b)))
			}
			return same("y", out[2], want)
		},
	}
}

// logic is select(isnan x or (x < y and not isinf y), floor x, min(x, y)).
func logic() Case {
	const n = 1029
	const x, y, nan, lt, inf, fin, both, cond, fl, mn, res = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
	g := ptx.Elementwise{
		Name: "logic", Shape: []int64{n},
		Loads: []ptx.Access{load("x", ptx.Float32), load("y", ptx.Float32)},
		Code: append(code(ptx.Float32, ptx.Float32),
			ptx.Instr{Op: "isnan", Type: ptx.Bool, A: x},
			ptx.Instr{Op: "lt", Type: ptx.Bool, A: x, B: y},
			ptx.Instr{Op: "isinf", Type: ptx.Bool, A: y},
			ptx.Instr{Op: "not", Type: ptx.Bool, A: inf},
			ptx.Instr{Op: "and", Type: ptx.Bool, A: lt, B: fin},
			ptx.Instr{Op: "or", Type: ptx.Bool, A: nan, B: both},
			ptx.Instr{Op: "floor", Type: ptx.Float32, A: x},
			ptx.Instr{Op: "min", Type: ptx.Float32, A: x, B: y},
			ptx.Instr{Op: "select", Type: ptx.Float32, A: cond, B: fl, C: mn}),
		Stores: []ptx.Output{output("z", ptx.Float32, res), output("cond", ptx.Bool, cond)},
	}
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			return []Tensor{special(r, ptx.Float32, n, 2), special(r, ptx.Float32, n, 2), New(ptx.Float32, n), New(ptx.Bool, n)}
		},
		Check: func(in, out []Tensor) error {
			z, c := New(ptx.Float32, n), New(ptx.Bool, n)
			for i := range n {
				a, b := in[0].At(i), in[1].At(i)
				switch {
				case a != a || a < b && !math.IsInf(b, 0):
					c.setBits(i, 1)
					z.Set(i, math.Floor(a))
				case b != b:
					z.Set(i, b)
				default:
					z.Set(i, math.Min(a, b))
				}
			}
			if err := same("z", out[2], z); err != nil {
				return err
			}
			return same("cond", out[3], c)
		},
	}
}

// updateCases are the optimizer and scaler updates as elementwise code.
func updateCases() []Case {
	var cases []Case
	for _, n := range sizes {
		cases = append(cases, adamw(n))
	}
	return append(cases, adamw(1<<14), scaler(1), scaler(0))
}

// expr writes element code in order; helpers return the value's number.
type expr struct{ ins []ptx.Instr }

func (e *expr) op(name string, t ptx.DType, args ...int) int {
	var a [3]int
	copy(a[:], args)
	e.ins = append(e.ins, ptx.Instr{Op: name, Type: t, A: a[0], B: a[1], C: a[2]})
	return len(e.ins) - 1
}

func (e *expr) f(name string, args ...int) int { return e.op(name, ptx.Float32, args...) }

func (e *expr) num(x float64) int {
	e.ins = append(e.ins, ptx.Instr{Op: "const", Type: ptx.Float32, Imm: x})
	return len(e.ins) - 1
}

// Constants of the AdamW cases.
const b1, b2, eps, decay = 0.9, 0.999, 1e-8, 0.01

// AdamW is one fused update of n f32 weights with f16 gradients, a device-side learning rate,
// multiplier and skip flag, and a bf16 copy of the new weights.
func AdamW(n int) ptx.Elementwise {
	const w, g, m, v, lr, mult, skip = 0, 1, 2, 3, 4, 5, 6
	e := &expr{code(ptx.Float32, ptx.Float16, ptx.Float32, ptx.Float32, ptx.Float32, ptx.Float32, ptx.Bool)}
	grad := e.f("mul", g, mult)
	m1 := e.f("add", e.f("mul", m, e.num(b1)), e.f("mul", grad, e.num(1-b1)))
	v1 := e.f("add", e.f("mul", v, e.num(b2)), e.f("mul", e.f("mul", grad, grad), e.num(1-b2)))
	step := e.f("div", m1, e.f("add", e.f("sqrt", v1), e.num(eps)))
	w1 := e.f("sub", w, e.f("mul", lr, e.f("add", step, e.f("mul", w, e.num(decay)))))
	newW, newM, newV := e.f("select", skip, w, w1), e.f("select", skip, m, m1), e.f("select", skip, v, v1)
	return ptx.Elementwise{
		Name: caseName("adamw_%d", n), Shape: []int64{int64(n)},
		Loads: []ptx.Access{load("w", ptx.Float32), load("g", ptx.Float16), load("m", ptx.Float32), load("v", ptx.Float32),
			load("lr", ptx.Float32, 0), load("mult", ptx.Float32, 0), load("skip", ptx.Bool, 0)},
		Code: e.ins,
		Stores: []ptx.Output{output("w1", ptx.Float32, newW), output("m1", ptx.Float32, newM),
			output("v1", ptx.Float32, newV), output("low", ptx.BFloat16, newW)},
	}
}

func adamw(n int) Case {
	group := AdamW(n)
	return Case{
		Name: group.Name, Kernel: "Elementwise.Build", Size: n, Build: group.Build, Exact: true, Streams: n >= 1<<14,
		Fill:  func(r *rand.Rand) []Tensor { return adamState(r, n) },
		Check: checkAdam,
	}
}

// adamState makes the buffers of an AdamW update over n weights.
func adamState(r *rand.Rand, n int) []Tensor {
	one := func(x float64) Tensor { t := New(ptx.Float32, 1); t.Set(0, x); return t }
	v := fill(r, ptx.Float32, n, 1e-3)
	for i := range n {
		v.Set(i, math.Abs(v.At(i)))
	}
	return []Tensor{fill(r, ptx.Float32, n, 1), special(r, ptx.Float16, n, 300), fill(r, ptx.Float32, n, 0.1), v,
		one(1e-3), one(0x1p-10), New(ptx.Bool, 1),
		New(ptx.Float32, n), New(ptx.Float32, n), New(ptx.Float32, n), New(ptx.BFloat16, n)}
}

// checkAdam compares the buffers of an AdamW update bit for bit.
func checkAdam(in, out []Tensor) error {
	n := in[0].Len()
	want := []Tensor{New(ptx.Float32, n), New(ptx.Float32, n), New(ptx.Float32, n), New(ptx.BFloat16, n)}
	lr, mult, skip := in[4].F32(0), in[5].F32(0), in[6].Bits(0) != 0
	for i := range n {
		w, m, v := in[0].F32(i), in[2].F32(i), in[3].F32(i)
		if !skip {
			g := float32(in[1].F32(i) * mult)
			m = float32(m*float32(b1)) + float32(g*float32(1-b1))
			v = float32(v*float32(b2)) + float32(float32(g*g)*float32(1-b2))
			step := m / (float32(math.Sqrt(float64(v))) + float32(eps))
			w = w - float32(lr*(step+float32(w*float32(decay))))
		}
		for k, x := range []float32{w, m, v, w} {
			want[k].Set(i, float64(x))
		}
	}
	for k := range want {
		if err := same(want[k].label(k), out[7+k], want[k]); err != nil {
			return err
		}
	}
	return nil
}

// label names an output in messages.
func (t Tensor) label(k int) string { return caseName("output %d (%s)", k, t.DType) }

// scaler is the dynamic loss scale rule on one element: halve and restart on overflow, double after
// an interval of good steps.
func scaler(found int) Case {
	const interval = 2000
	const scale, good, bad = 0, 1, 2
	e := &expr{code(ptx.Float32, ptx.Int32, ptx.Bool)}
	num := func(x int64) int {
		e.ins = append(e.ins, ptx.Instr{Op: "const", Type: ptx.Int32, Int: x})
		return len(e.ins) - 1
	}
	next := e.op("add", ptx.Int32, good, num(1))
	grow := e.op("eq", ptx.Bool, next, num(interval))
	up := e.f("select", grow, e.f("mul", scale, e.num(2)), scale)
	down := e.f("max", e.f("mul", scale, e.num(0.5)), e.num(1))
	newScale := e.f("select", bad, down, up)
	count := e.op("select", ptx.Int32, bad, num(0), e.op("select", ptx.Int32, grow, num(0), next))
	g := ptx.Elementwise{
		Name: caseName("scaler_%d", found), Shape: nil,
		Loads:  []ptx.Access{load("scale", ptx.Float32), load("good", ptx.Int32), load("found", ptx.Bool)},
		Code:   e.ins,
		Stores: []ptx.Output{output("scale1", ptx.Float32, newScale), output("good1", ptx.Int32, count)},
	}
	return Case{
		Name: g.Name, Kernel: "Elementwise.Build", Size: elements(g), Build: g.Build, Exact: true,
		Fill: func(r *rand.Rand) []Tensor {
			s, n, f := New(ptx.Float32, 1), New(ptx.Int32, 1), New(ptx.Bool, 1)
			s.Set(0, 65536)
			n.Set(0, interval-1)
			f.setBits(0, uint64(found))
			return []Tensor{s, n, f, New(ptx.Float32, 1), New(ptx.Int32, 1)}
		},
		Check: func(in, out []Tensor) error {
			s, n := New(ptx.Float32, 1), New(ptx.Int32, 1)
			s.Set(0, 131072)
			if found == 1 {
				s.Set(0, 32768)
			}
			if err := same("scale", out[3], s); err != nil {
				return err
			}
			return same("good", out[4], n)
		},
	}
}
