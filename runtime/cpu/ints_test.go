package cpu_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"ampc/internal/trial"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// wholes are the integers of every width and sign.
var wholes = []ir.DType{ir.U8, ir.I8, ir.U16, ir.I16, ir.U32, ir.I32, ir.U64, ir.I64}

// limits are elements at both ends of d and around zero, u64 by its bits.
func limits(d ir.DType, n int) *eval.Tensor {
	lo, hi := d.Limits()
	list := []int64{lo, hi, 0, 1, 2, d.Wrap(hi - 1), d.Wrap(lo + 1), d.Wrap(hi / 2), d.Wrap(-1), 7}
	x := eval.New(ir.T(d, ir.Dim(n)))
	for i := range x.I {
		x.I[i] = list[(i*i+i/3)%len(list)]
	}
	return x
}

// integerGraph computes with elements of d what integers take.
func integerGraph(d ir.DType) *ir.Graph {
	b := ir.NewBuilder("integers")
	x, y := b.Declare(ir.Input, "x", ir.T(d, 40), nil, nil), b.Declare(ir.Input, "y", ir.T(d, 40), nil, nil)
	f := b.Declare(ir.Input, "f", ir.T(ir.F32, 40), nil, nil)
	sum, product := b.Add(x, y), b.Mul(x, y)
	results := []*ir.Value{
		sum, product, b.Sub(x, y), b.Div(x, y), b.Mod(x, y), b.Min(x, y), b.Max(x, y), b.And(x, y), b.Or(x, y), b.Xor(x, y), b.Not(x), b.Abs(x), b.Sign(x), b.Neg(x),
		b.Lt(sum, product), b.Le(x, y), b.Eq(sum, x), b.Div(sum, b.Scalar(d, 3)), // a sum is cut to its bits before it is read
		b.Cast(x, ir.F32), b.Cast(x, ir.F64), b.Cast(x, ir.F16), b.Cast(f, d), b.Cast(x, ir.Bool), b.Where(b.Gt(x, y), x, y),
		b.ReduceSum(x, false, 0), b.ReduceMax(x, false, 0), b.ReduceMin(x, false, 0), b.ReduceProd(x, false, 0), b.Cumsum(x, 0, false, true),
		b.Argmax(x, 0, false), b.Argmin(x, 0, false), b.Slice(x, []int64{0}, []int64{3}, []int64{30}), b.Concat(0, x, y), b.Pad(x, []int64{1}, []int64{2}, 3),
		b.Transpose(b.Reshape(x, 5, 8), 1, 0), b.Tile(x, 2), b.Full(d, 5, 7), b.Iota(d, 0, 300),
	}
	for _, to := range wholes {
		results = append(results, b.Cast(x, to), b.Lt(b.Cast(x, to), b.Cast(y, to)))
	}
	ids := b.Declare(ir.Const, "ids", ir.T(ir.I64, 3), &ir.Init{Func: "data", Args: []float64{2, 39, 0}}, nil)
	results = append(results, b.Gather(x, ids, 0), b.Scatter(x, ids, b.Gather(y, ids, 0), 0))
	values, at := b.TopK(x, 4, 0, false)
	results = append(results, values, at)
	for _, r := range results {
		if r != nil && r.Def != nil && !slices.Contains(b.Graph().Return, r) {
			b.Return(r)
		}
	}
	if b.Err() != nil {
		panic(b.Err())
	}
	return b.Graph()
}

// Integers of every width give on the CPU what they give in the evaluator.
func TestIntegers(t *testing.T) {
	b, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, d := range wholes {
		t.Run(d.String(), func(t *testing.T) {
			g := integerGraph(d)
			x, y := limits(d, 40), limits(d, 40)
			slices.Reverse(y.I)
			f := eval.New(ir.T(ir.F32, 40))
			for i := range f.F {
				f.F[i] = []float64{0.9, -0.9, 1e30, -1e30, math.NaN(), math.Inf(1), math.Inf(-1), 127.5, -128.7, 255.2, 256, 65535.9, 4294967295, 1 << 31, -(1 << 31), 1 << 63, 1 << 40}[i%17]
				f.F[i] = float64(float32(f.F[i]))
			}
			in := map[string]*eval.Tensor{"x": x, "y": y, "f": f}
			want, err := eval.Run(g, in, eval.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := trial.RunOn(b, g, in, passes.F32())
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range g.Return {
				w := want.Value(v)
				if got[i].Type != w.Type || fmt.Sprint(got[i].F, got[i].I) != fmt.Sprint(w.F, w.I) {
					t.Errorf("result %d, %s of %v:\n got %v %v\nwant %v %v", i, v.Def.Def().Name, v.Def.In, got[i].F, got[i].I, w.F, w.I)
				}
			}
		})
	}
}

// Reductions of f64 are computed in f64: to the evaluator's bits.
func TestReductionsOfDoubles(t *testing.T) {
	b, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	x := eval.New(ir.T(ir.F64, 3, 5, 4))
	for i := range x.F {
		x.F[i] = math.Sin(float64(i)) * math.Pow(1.5, float64(i%9)) // far beyond the 24 bits of f32
	}
	g := ir.NewBuilder("doubles")
	v := g.Declare(ir.Input, "x", x.Type, nil, nil)
	for _, axes := range [][]int64{{1}, {0, 2}, nil} {
		for _, f := range []func(x *ir.Value, keep bool, axes ...int64) *ir.Value{g.ReduceSum, g.ReduceMean, g.ReduceMax, g.ReduceMin, g.ReduceProd, g.ReduceL1, g.ReduceL2} {
			g.Return(f(v, false, axes...))
		}
		g.Return(g.ReduceVar(v, 1, true, axes...), g.LogSumExp(v, axes...))
	}
	g.Return(g.Cumsum(v, 1, true, true))
	if g.Err() != nil {
		t.Fatal(g.Err())
	}
	in := map[string]*eval.Tensor{"x": x}
	want, err := eval.Run(g.Graph(), in, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := trial.RunOn(b, g.Graph(), in, passes.F32())
	if err != nil {
		t.Fatal(err)
	}
	for i, y := range g.Graph().Return {
		w := want.Value(y)
		if got[i].Type != w.Type || !slices.Equal(got[i].F, w.F) {
			t.Errorf("%s: got %v, want %v", y.Def.Def().Name, got[i].F, w.F)
		}
	}
}
