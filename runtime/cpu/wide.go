package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"ampc/internal/fp"
	"ampc/ir"
)

// slice views bytes as elements.
func slice[T any](b []byte) []T {
	var x T
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(x)))
}

func narrow(d ir.DType, x float32) uint16 {
	if d == ir.F16 {
		return fp.F16(x)
	}
	return fp.BF16(x)
}

func widen(d ir.DType, h uint16) float32 {
	if d == ir.F16 {
		return fp.F16ToF32(h)
	}
	return fp.BF16ToF32(h)
}

// wide compiles an instruction whose operands are integers or doubles. Comparisons give 0 or 1 as
// float32, like all bools.
func (c *clusterCompiler) wide(r int) vop {
	i := &c.g.Code[r]
	dst, a, b, d := c.reg(ir.Reg(r)), c.reg(i.A), c.reg(i.A), c.reg(i.A)
	switch ir.Prims[i.Op].Args {
	case 3:
		b, d = c.reg(i.B), c.reg(i.C)
	case 2:
		b = c.reg(i.B)
	}
	from := c.g.Code[i.A].Type
	integer := classOf(from) == ints
	if i.Type == ir.Bool {
		if integer {
			f := intTests[i.Op]
			if from == ir.U64 && unsignedTests[i.Op] != nil {
				f = unsignedTests[i.Op]
			}
			return func(l *registerFile, _, n int) { test(f, dst.f(l, n), a.i(l, n), b.i(l, n)) }
		}
		f := doubleTests[i.Op]
		return func(l *registerFile, _, n int) { test(f, dst.f(l, n), a.d(l, n), b.d(l, n)) }
	}
	if integer {
		f, wrap := intOps[i.Op], i.Type == ir.I32
		if i.Type == ir.U64 && unsignedOps[i.Op] != nil {
			f = unsignedOps[i.Op]
		}
		must(f != nil, i.Op)
		return func(l *registerFile, _, n int) {
			z := dst.i(l, n)
			f(z, a.i(l, n), b.i(l, n))
			if wrap {
				for e, v := range z {
					z[e] = int64(int32(v))
				}
			}
		}
	}
	if f := doubleOps[i.Op]; f != nil {
		return func(l *registerFile, _, n int) {
			w, x, y, z := dst.d(l, n), a.d(l, n), b.d(l, n), d.d(l, n)
			for e := range w {
				w[e] = f(x[e], y[e], z[e])
			}
		}
	}
	panic(fmt.Sprintf("cpu: no form of primitive %s for doubles", i.Op))
}

func must(ok bool, p ir.Prim) {
	if !ok {
		panic(fmt.Sprintf("cpu: no form of primitive %s for integers", p)) // a table of ops is incomplete
	}
}

func test[T any](f func(x, y T) bool, dst []float32, a, b []T) {
	for e := range dst {
		dst[e] = 0
		if f(a[e], b[e]) {
			dst[e] = 1
		}
	}
}

// If a row of the tables below has one operand only, its function gets that operand twice.
var intTests = map[ir.Prim]func(x, y int64) bool{
	ir.PLt: func(x, y int64) bool { return x < y }, ir.PLe: func(x, y int64) bool { return x <= y },
	ir.PEq: func(x, y int64) bool { return x == y }, ir.PNe: func(x, y int64) bool { return x != y },
	ir.PIsNaN: func(x, y int64) bool { return false }, ir.PIsInf: func(x, y int64) bool { return false },
}

var doubleTests = map[ir.Prim]func(x, y float64) bool{
	ir.PLt: func(x, y float64) bool { return x < y }, ir.PLe: func(x, y float64) bool { return x <= y },
	ir.PEq: func(x, y float64) bool { return x == y }, ir.PNe: func(x, y float64) bool { return x != y },
	ir.PIsNaN: func(x, _ float64) bool { return x != x }, ir.PIsInf: func(x, _ float64) bool { return math.IsInf(x, 0) },
}

// intOps contain a loop, because random numbers pass through them and speed matters.
var intOps = map[ir.Prim]func(z, x, y []int64){
	ir.PAnd: func(z, x, y []int64) {
		for e := range z {
			z[e] = x[e] & y[e]
		}
	},
	ir.PAdd: loop(func(x, y int64) int64 { return x + y }), ir.PSub: loop(func(x, y int64) int64 { return x - y }),
	ir.PMul: loop(func(x, y int64) int64 { return x * y }),
	ir.PDiv: loop(func(x, y int64) int64 {
		if y == 0 {
			return 0
		}
		return x / y
	}),
	ir.PMin: loop(func(x, y int64) int64 { return min(x, y) }), ir.PMax: loop(func(x, y int64) int64 { return max(x, y) }),
	ir.POr: loop(func(x, y int64) int64 { return x | y }), ir.PXor: loop(func(x, y int64) int64 { return x ^ y }),
	ir.PNot: loop(func(x, _ int64) int64 { return ^x }), ir.PNeg: loop(func(x, _ int64) int64 { return -x }),
	ir.PAbs: loop(func(x, _ int64) int64 { return max(x, -x) }),
}

// unsignedTests and unsignedOps list the ops whose result differs for u64, which is stored in int64
// with the same bits.
var unsignedTests = map[ir.Prim]func(x, y int64) bool{
	ir.PLt: func(x, y int64) bool { return uint64(x) < uint64(y) }, ir.PLe: func(x, y int64) bool { return uint64(x) <= uint64(y) },
}

var unsignedOps = map[ir.Prim]func(z, x, y []int64){
	ir.PDiv: loop(func(x, y int64) int64 {
		if y == 0 {
			return 0
		}
		return int64(uint64(x) / uint64(y))
	}),
	ir.PMin: loop(func(x, y int64) int64 { return int64(min(uint64(x), uint64(y))) }),
	ir.PMax: loop(func(x, y int64) int64 { return int64(max(uint64(x), uint64(y))) }),
	ir.PAbs: loop(func(x, _ int64) int64 { return x }),
}

func loop(f func(x, y int64) int64) func(z, x, y []int64) {
	return func(z, x, y []int64) {
		for e := range z {
			z[e] = f(x[e], y[e])
		}
	}
}

func of1(f func(float64) float64) func(x, y, z float64) float64 {
	return func(x, _, _ float64) float64 { return f(x) }
}

var doubleOps = map[ir.Prim]func(x, y, z float64) float64{
	ir.PAdd: func(x, y, _ float64) float64 { return x + y }, ir.PSub: func(x, y, _ float64) float64 { return x - y },
	ir.PMul: func(x, y, _ float64) float64 { return x * y }, ir.PDiv: func(x, y, _ float64) float64 { return x / y },
	ir.PMin: func(x, y, _ float64) float64 { return min(x, y) }, ir.PMax: func(x, y, _ float64) float64 { return max(x, y) },
	ir.PFma: math.FMA, ir.PPow: func(x, y, _ float64) float64 { return math.Pow(x, y) },
	ir.PNeg: of1(func(x float64) float64 { return -x }), ir.PAbs: of1(math.Abs), ir.PSqrt: of1(math.Sqrt),
	ir.PFloor: of1(math.Floor), ir.PCeil: of1(math.Ceil), ir.PRint: of1(math.RoundToEven),
	ir.PExp: of1(math.Exp), ir.PExpm1: of1(math.Expm1), ir.PLog: of1(math.Log), ir.PLog1p: of1(math.Log1p),
	ir.PSin: of1(math.Sin), ir.PCos: of1(math.Cos), ir.PTan: of1(math.Tan), ir.PAtan: of1(math.Atan),
	ir.PErf: of1(math.Erf), ir.PTanh: of1(math.Tanh),
}

// convert compiles a conversion between register types.
func (c *clusterCompiler) convert(r int) vop {
	i := &c.g.Code[r]
	dst, a, to, from := c.reg(ir.Reg(r)), c.reg(i.A), i.Type, c.g.Code[i.A].Type
	type pair struct{ to, from class }
	switch (pair{classOf(to), classOf(from)}) {
	case pair{floats, floats}:
		if to == ir.Bool {
			return func(l *registerFile, _, n int) {
				each(dst.f(l, n), a.f(l, n), func(x float32) float32 { return boolFloat(x != 0) })
			}
		}
		return func(l *registerFile, _, n int) { copy(dst.f(l, n), a.f(l, n)) }
	case pair{floats, ints}:
		if to == ir.Bool {
			return func(l *registerFile, _, n int) {
				each(dst.f(l, n), a.i(l, n), func(x int64) float32 { return boolFloat(x != 0) })
			}
		}
		if from == ir.U64 {
			return func(l *registerFile, _, n int) {
				each(dst.f(l, n), a.i(l, n), func(x int64) float32 { return float32(uint64(x)) })
			}
		}
		return func(l *registerFile, _, n int) {
			x, y := a.i(l, n), dst.f(l, n)
			for e := range y {
				y[e] = float32(x[e])
			}
		}
	case pair{floats, doubles}:
		if to == ir.Bool {
			return func(l *registerFile, _, n int) {
				each(dst.f(l, n), a.d(l, n), func(x float64) float32 { return boolFloat(x != 0) })
			}
		}
		return func(l *registerFile, _, n int) {
			each(dst.f(l, n), a.d(l, n), func(x float64) float32 { return float32(x) })
		}
	case pair{ints, floats}:
		return func(l *registerFile, _, n int) {
			each(dst.i(l, n), a.f(l, n), func(x float32) int64 { return to.FromFloat(float64(x)) })
		}
	case pair{ints, ints}:
		return func(l *registerFile, _, n int) { each(dst.i(l, n), a.i(l, n), to.Wrap) }
	case pair{ints, doubles}:
		return func(l *registerFile, _, n int) { each(dst.i(l, n), a.d(l, n), to.FromFloat) }
	case pair{doubles, floats}:
		return func(l *registerFile, _, n int) {
			each(dst.d(l, n), a.f(l, n), func(x float32) float64 { return float64(x) })
		}
	case pair{doubles, ints}:
		return func(l *registerFile, _, n int) { each(dst.d(l, n), a.i(l, n), from.Number) }
	}
	return func(l *registerFile, _, n int) { copy(dst.d(l, n), a.d(l, n)) }
}

func each[A, B any](dst []A, src []B, f func(B) A) {
	for e, x := range src {
		dst[e] = f(x)
	}
}

func boolFloat(b bool) float32 {
	if b {
		return 1
	}
	return 0
}
