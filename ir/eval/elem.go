package eval

import (
	"math"

	"ampc/internal/philox"
	"ampc/ir"
)

// elementwise runs a row's straight-line code, a block of elements at a time.
func elementwise(c *call) {
	code, results := ir.NodeCode(c.Node)
	shape := c.out[0].dims()
	m := &machine{code: code.Ins, exact: c.opt.Float64, regs: make([]reg, len(code.Ins)), walks: make([]walk, len(c.in))}
	for i, t := range c.in {
		if t != nil {
			if m.walks[i] = (walk{t: t, shape: shape, dense: t.Type.Shape == c.out[0].Type.Shape}); !m.walks[i].dense {
				m.walks[i].strides = broadcastStrides(t.dims(), shape)
			}
		}
	}
	n := c.out[0].Len()
	m.room(min(blockSize, n))
	for start := 0; start < n; start += blockSize {
		m.block(start, min(blockSize, n-start))
		for k, r := range results {
			c.out[k].store(&m.regs[r], start)
		}
	}
}

// blockSize is the number of elements that one primitive processes at a time.
const blockSize = 512

// reg holds a register's values for the block: f for floats, i for the others.
type reg struct {
	f []float64
	i []int64
}

// machine runs elementwise code. Float registers hold f32 values in float64:
// computing in float64 and rounding once to f32 is the same as computing in
// f32 for + - * / and sqrt, since 53 >= 2·24+2; fma needs care (see fma32).
type machine struct {
	code  []ir.Instr
	exact bool // round nothing
	regs  []reg
	walks []walk
}

// walk reads an operand under a broadcast shape.
type walk struct {
	t       *Tensor
	strides []int
	shape   []int
	dense   bool // no broadcasting
}

// broadcastStrides are the strides that walk a tensor of shape d as if it had
// shape to: 0 along broadcast dimensions.
func broadcastStrides(d, to []int) []int {
	s := make([]int, len(to))
	step := 1
	for i := len(d) - 1; i >= 0; i-- {
		if d[i] != 1 {
			s[i+len(to)-len(d)] = step
		}
		step *= d[i]
	}
	return s
}

// offset is the operand's position for element i of the iteration space.
func (w *walk) offset(i int) int {
	if w.dense {
		return i
	}
	at := 0
	for k := len(w.shape) - 1; k >= 0; k-- {
		at += i % w.shape[k] * w.strides[k]
		i /= w.shape[k]
	}
	return at
}

// room makes registers of size elements.
func (m *machine) room(size int) {
	floats := 0
	for k := range m.code {
		if m.code[k].Type.Float() {
			floats += size
		}
	}
	f, i := make([]float64, floats), make([]int64, size*len(m.code)-floats)
	for k := range m.code {
		if m.code[k].Type.Float() {
			m.regs[k].f, f = f[:size:size], f[size:]
		} else {
			m.regs[k].i, i = i[:size:size], i[size:]
		}
	}
}

func (m *machine) block(start, size int) {
	for k := range m.code {
		i := &m.code[k]
		out := &m.regs[k]
		if i.Type.Float() {
			out.f = out.f[:size]
		} else {
			out.i = out.i[:size]
		}
		switch {
		case i.Op == ir.PIn:
			m.load(out, &m.walks[i.Int], start)
		case i.Op == ir.PIndex:
			for e := range out.i {
				out.i[e] = int64(start + e)
			}
		case i.Op == ir.PPhilox:
			m.draw(out, i, start)
		case i.Type.Float():
			m.float(out.f, i)
		default:
			m.integer(out.i, i)
		}
	}
}

func (m *machine) load(out *reg, w *walk, start int) {
	for e := range max(len(out.f), len(out.i)) {
		if out.f != nil {
			out.f[e] = w.t.F[w.offset(start+e)]
		} else {
			out.i[e] = w.t.I[w.offset(start+e)]
		}
	}
}

// draw gives each element its word; seed, attempt and micro are the same for all.
func (m *machine) draw(out *reg, i *ir.Instr, start int) {
	micro := m.regs[i.C].i[0]
	d := philox.Draw{Seed: m.regs[i.A].i[0], Attempt: uint32(m.regs[i.B].i[0]), Micro: uint32(micro), First: uint32(micro >> 32), Site: uint32(i.Int)}
	for e := range out.i {
		out.i[e] = int64(d.Word(int64(start + e)))
	}
}

// float computes a float register.
func (m *machine) float(out []float64, i *ir.Instr) {
	wide := m.exact || i.Type == ir.F64
	f := m.scalar(i, wide)
	for e := range out {
		if out[e] = f(e); !wide {
			out[e] = float64(float32(out[e]))
		}
	}
}

// scalar is the function of an element that a float instruction computes,
// before it is rounded.
func (m *machine) scalar(i *ir.Instr, wide bool) func(e int) float64 {
	a, b, c := m.regs[i.A], m.regs[i.B], m.regs[i.C]
	switch i.Op {
	case ir.PConst:
		return func(int) float64 { return i.Imm }
	case ir.PSelect:
		return func(e int) float64 {
			if a.i[e] != 0 {
				return b.f[e]
			}
			return c.f[e]
		}
	case ir.PConv:
		if a.f != nil {
			return func(e int) float64 { return a.f[e] }
		}
		from := m.code[i.A].Type
		return func(e int) float64 { return intToFloat(a.i[e], from, wide) }
	case ir.PFma:
		return func(e int) float64 { return fma32(a.f[e], b.f[e], c.f[e], wide) }
	case ir.PRound:
		return func(e int) float64 { return m.rounded(a.f[e], func(x float64) float64 { return Round(x, i.To) }) }
	}
	if f := binaryPrim[i.Op]; f != nil {
		return func(e int) float64 { return f(a.f[e], b.f[e]) }
	}
	f := unaryPrim[i.Op]
	return func(e int) float64 { return f(a.f[e]) }
}

// rounded applies f unless nothing is to be rounded.
func (m *machine) rounded(x float64, f func(float64) float64) float64 {
	if m.exact {
		return x
	}
	return f(x)
}

var unaryPrim = map[ir.Prim]func(float64) float64{
	ir.PSqrt: math.Sqrt, ir.PNeg: func(x float64) float64 { return -x }, ir.PAbs: math.Abs,
	ir.PFloor: math.Floor, ir.PCeil: math.Ceil, ir.PRint: math.RoundToEven,
	ir.PExp: math.Exp, ir.PExpm1: math.Expm1, ir.PLog: math.Log, ir.PLog1p: math.Log1p,
	ir.PSin: math.Sin, ir.PCos: math.Cos, ir.PTan: math.Tan, ir.PAtan: math.Atan, ir.PErf: math.Erf, ir.PTanh: math.Tanh,
}

var binaryPrim = map[ir.Prim]func(x, y float64) float64{
	ir.PAdd: func(x, y float64) float64 { return x + y },
	ir.PSub: func(x, y float64) float64 { return x - y },
	ir.PMul: func(x, y float64) float64 { return x * y },
	ir.PDiv: func(x, y float64) float64 { return x / y },
	ir.PMin: minimum, ir.PMax: maximum, ir.PPow: math.Pow,
}

// minimum and maximum propagate NaN and order -0 below +0, as math.Min and
// math.Max do except that those let an infinity beat NaN.
func minimum(x, y float64) float64 {
	if x != x || y != y {
		return math.NaN()
	}
	return math.Min(x, y)
}

func maximum(x, y float64) float64 {
	if x != x || y != y {
		return math.NaN()
	}
	return math.Max(x, y)
}

// fma32 is a·b+c rounded once to f32. The product of two f32 is exact in
// float64; the sum is rounded to odd there, so that the rounding to f32 sees
// on which side of a tie the exact sum lies.
func fma32(a, b, c float64, wide bool) float64 {
	if wide {
		return math.FMA(a, b, c)
	}
	p := a * b
	s := p + c
	t := s - p
	lost := (p - (s - t)) + (c - t)
	if bits := math.Float64bits(s); lost != 0 && lost == lost && bits&1 == 0 && !math.IsInf(s, 0) {
		if (lost > 0) == (s > 0) {
			return math.Float64frombits(bits + 1)
		}
		return math.Float64frombits(bits - 1)
	}
	return s
}

// intToFloat rounds once.
func intToFloat(x int64, d ir.DType, wide bool) float64 {
	switch {
	case wide:
		return d.Number(x)
	case d == ir.U64:
		return float64(float32(uint64(x)))
	}
	return float64(float32(x))
}

// integer computes an integer or bool register; integers wrap.
func (m *machine) integer(out []int64, i *ir.Instr) {
	a, b, c := m.regs[i.A], m.regs[i.B], m.regs[i.C]
	for e := range out {
		var y int64
		switch i.Op {
		case ir.PConst:
			y = i.Int
		case ir.PConv:
			if a.f != nil {
				y = i.Type.FromFloat(a.f[e])
			} else {
				y = a.i[e]
			}
		case ir.PSelect:
			y = b.i[e]
			if a.i[e] == 0 {
				y = c.i[e]
			}
		case ir.PNeg:
			y = -a.i[e]
		case ir.PAbs:
			y = a.i[e]
			if i.Type.Order(y) < i.Type.Order(0) {
				y = -y
			}
		case ir.PRound:
			y = i.To.Wrap(a.i[e])
		case ir.PNot:
			y = ^a.i[e]
			if i.Type == ir.Bool {
				y = 1 - a.i[e]
			}
		case ir.PIsNaN:
			y = truth(a.f != nil && a.f[e] != a.f[e])
		case ir.PIsInf:
			y = truth(a.f != nil && math.IsInf(a.f[e], 0))
		case ir.PLt, ir.PLe, ir.PEq, ir.PNe:
			y = truth(compare(i.Op, m.code[i.A].Type, a, b, e))
		default:
			y = intPrim[i.Op](i.Type, a.i[e], b.i[e])
		}
		out[e] = i.Type.Wrap(y)
	}
}

// intPrim are the binary primitives on integers; logic is bitwise, which on
// bools is logical.
var intPrim = map[ir.Prim]func(d ir.DType, x, y int64) int64{
	ir.PAdd: func(_ ir.DType, x, y int64) int64 { return x + y },
	ir.PSub: func(_ ir.DType, x, y int64) int64 { return x - y },
	ir.PMul: func(_ ir.DType, x, y int64) int64 { return x * y },
	ir.PDiv: divide, ir.PMin: smaller, ir.PMax: larger,
	ir.PAnd: func(_ ir.DType, x, y int64) int64 { return x & y },
	ir.POr:  func(_ ir.DType, x, y int64) int64 { return x | y },
	ir.PXor: func(_ ir.DType, x, y int64) int64 { return x ^ y },
}

// divide truncates towards zero; a quotient by zero is zero.
func divide(d ir.DType, x, y int64) int64 {
	switch {
	case y == 0:
		return 0
	case d == ir.U64:
		return int64(uint64(x) / uint64(y))
	}
	return x / y
}

func smaller(d ir.DType, x, y int64) int64 {
	if d.Order(y) < d.Order(x) {
		return y
	}
	return x
}

func larger(d ir.DType, x, y int64) int64 {
	if d.Order(y) > d.Order(x) {
		return y
	}
	return x
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func compare(p ir.Prim, d ir.DType, a, b reg, e int) bool {
	if a.f != nil {
		return ordered(p, a.f[e], b.f[e])
	}
	return ordered(p, d.Order(a.i[e]), d.Order(b.i[e]))
}

func ordered[T float64 | int64](p ir.Prim, x, y T) bool {
	switch p {
	case ir.PLt:
		return x < y
	case ir.PLe:
		return x <= y
	case ir.PEq:
		return x == y
	}
	return x != y
}

// store puts a block of a register into the tensor's elements from start on,
// converting where the register is of another kind. The caller rounds.
func (t *Tensor) store(r *reg, start int) {
	switch {
	case t.F != nil && r.f != nil:
		copy(t.F[start:], r.f)
	case t.F != nil:
		for e, x := range r.i {
			t.F[start+e] = float64(x)
		}
	case r.i != nil:
		copy(t.I[start:], r.i)
	default:
		for e, x := range r.f {
			t.I[start+e] = t.Type.DType.FromFloat(x)
		}
	}
}
