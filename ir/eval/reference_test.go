package eval

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"ampc/ir"
)

// evalOp builds one node, verifies its graph and evaluates it.
func evalOp(t *testing.T, op ir.Op, a ir.Attrs, in ...*Tensor) []*Tensor {
	t.Helper()
	b := ir.NewBuilder("t")
	vs := make([]*ir.Value, len(in))
	for i, x := range in {
		if x != nil {
			vs[i] = b.Declare(ir.Input, fmt.Sprintf("in%d", i), x.Type, nil, nil)
		}
	}
	out := b.Emit(op, vs, a)
	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
	if err := ir.Verify(b.Graph(), ir.Source); err != nil {
		t.Fatal(err)
	}
	r, err := Node(out[0].Def, in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// near compares a result with numbers written down here.
func near(t *testing.T, what string, got *Tensor, tol float64, want ...float64) {
	t.Helper()
	if got.Len() != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, got.Len(), len(want))
	}
	for i, w := range want {
		g := got.At(i)
		if !(math.Abs(g-w) <= tol*(1+math.Abs(w))) && !(g != g && w != w) && g != w {
			t.Errorf("%s: element %d is %v, want %v", what, i, g, w)
		}
	}
}

func f32(dims []ir.Dim, v ...float64) *Tensor { return Floats(ir.F32, dims, v...) }

// dims is a shape for Floats and Ints.
func dims(d ...ir.Dim) []ir.Dim { return d }

// TestConvByHand: one row of numbers, padded by one zero, under 1, 0, −1.
func TestConvByHand(t *testing.T) {
	x, w := f32(dims(1, 1, 5), 1, 2, 4, 8, 16), f32(dims(1, 1, 3), 1, 0, -1)
	near(t, "conv", evalOp(t, ir.OpConv, ir.A("pads", []int{1, 1}), x, w)[0], 0, -2, -3, -6, -12, 8)
	near(t, "stride", evalOp(t, ir.OpConv, ir.A("pads", []int{1, 1}, "strides", []int{2}), x, w)[0], 0, -2, -6, 8)
	near(t, "dilation", evalOp(t, ir.OpConv, ir.A("dilations", []int{2}), x, w, f32(dims(1), 100))[0], 0, 85)
	near(t, "transpose", evalOp(t, ir.OpConvTranspose, ir.A("strides", []int{2}), f32(dims(1, 1, 2), 1, 10), w)[0], 0, 1, 0, 9, 0, -10)
	two := f32(dims(1, 2, 2), 1, 2, 3, 4)
	near(t, "groups", evalOp(t, ir.OpConv, ir.A("groups", 2), two, f32(dims(2, 1, 1), 10, 100))[0], 0, 10, 20, 300, 400)
	near(t, "channels", evalOp(t, ir.OpConv, nil, two, f32(dims(1, 2, 1), 10, 100))[0], 0, 310, 420)
}

// TestConvLayouts: NHWC is NCHW with the axes moved.
func TestConvLayouts(t *testing.T) {
	a := ir.A("strides", []int{2, 1}, "pads", []int{1, 0, 0, 2}, "groups", 2)
	x, w := normal(2, 4, 5, 6), normal(6, 2, 3, 2)
	x.round()
	w.round()
	want := evalOp(t, ir.OpConv, a, x, w)[0]
	toLast := ir.A("perm", []int{0, 2, 3, 1})
	last := func(v *Tensor) *Tensor { return evalOp(t, ir.OpTranspose, toLast, v)[0] }
	got := evalOp(t, ir.OpConv, a.With("layout", "NHWC"), last(x), last(w))[0]
	near(t, "nhwc", got, 0, last(want).F...)
}

func TestPoolsByHand(t *testing.T) {
	nan := math.NaN()
	x := f32(dims(1, 1, 6), 3, 3, 1, nan, -4, -5)
	y := evalOp(t, ir.OpMaxPool, ir.A("kernel", []int{2}, "strides", []int{2}), x)
	near(t, "max_pool", y[0], 0, 3, nan, -4)
	near(t, "first of equals wins, NaN above all", y[1], 0, 0, 3, 4)
	dx := evalOp(t, ir.OpMaxPoolGrad, ir.A("size", []int{4}), f32(dims(1, 1, 3), 1, 2, 4), Ints(ir.I32, dims(1, 1, 3), 0, 2, 2))
	near(t, "max_pool_grad", dx[0], 0, 1, 0, 6, 0)

	x = f32(dims(1, 1, 4), 1, 2, 3, 6)
	pool := ir.A("kernel", []int{3}, "strides", []int{2}, "pads", []int{1, 0})
	near(t, "avg", evalOp(t, ir.OpAvgPool, pool, x)[0], 1e-7, 1.5, 11./3)
	near(t, "avg with padding", evalOp(t, ir.OpAvgPool, pool.With("count_include_pad", true), x)[0], 1e-7, 1, 11./3)
	over := ir.A("kernel", []int{3}, "strides", []int{2}, "ceil", true, "count_include_pad", true)
	near(t, "ceil: what lies beyond counts for nothing", evalOp(t, ir.OpAvgPool, over, x)[0], 1e-7, 2, 4.5)
	near(t, "adaptive", evalOp(t, ir.OpAdaptiveAvgPool, ir.A("size", []int{3}), x)[0], 1e-7, 1.5, 2.5, 4.5)
}

func TestNormsByHand(t *testing.T) {
	y := evalOp(t, ir.OpLayerNorm, ir.A("eps", 0.0), f32(dims(2, 2), 1, 3, -2, 2), f32(dims(2), 10, 20), f32(dims(2), 1, 2))
	near(t, "layer_norm", y[0], 1e-7, -9, 22, -9, 22)
	near(t, "mean", y[1], 0, 2, 0)
	near(t, "rstd", y[2], 1e-7, 1, 0.5)
	y = evalOp(t, ir.OpRMSNorm, ir.A("eps", 0.0), f32(dims(1, 2), 1, 7))
	near(t, "rms_norm", y[0], 1e-7, 0.2, 1.4)
	x := f32(dims(2, 1, 2), 0, 2, 4, 6) // mean 3, variance 5, unbiased 20/3
	y = evalOp(t, ir.OpBatchNorm, ir.A("momentum", 0.5, "eps", 0.0), x, nil, nil, f32(dims(1), 1), f32(dims(1), 2))
	near(t, "batch mean", y[1], 0, 3)
	near(t, "running mean", y[3], 0, 2)
	near(t, "running variance", y[4], 1e-7, 1+10./3)
	y = evalOp(t, ir.OpGroupNorm, ir.A("groups", 2, "eps", 0.0), f32(dims(1, 4, 1), 1, 3, 0, 8))
	near(t, "group_norm", y[0], 1e-7, -1, 1, -1, 1)
}

func TestLossesByHand(t *testing.T) {
	logits := f32(dims(2, 2), 0, math.Log(3), 5, 5)
	labels := Ints(ir.I64, dims(2), 1, -100)
	y := evalOp(t, ir.OpCrossEntropy, nil, logits, labels)
	near(t, "sum", y[0], 1e-7, math.Log(4./3))
	near(t, "count", y[1], 0, 1)
	y = evalOp(t, ir.OpCrossEntropyGrad, nil, logits, labels, f32(nil, 8))
	near(t, "gradient", y[0], 1e-7, 2, -2, 0, 0)
	y = evalOp(t, ir.OpHuber, ir.A("delta", 1.0), f32(dims(3), 0.5, 3, -2), f32(dims(3), 0, 0, 0))
	near(t, "huber", y[0], 0, 0.125+2.5+1.5)
	y = evalOp(t, ir.OpBCEWithLogits, nil, f32(dims(2), 200, -200), f32(dims(2), 1, 1))
	near(t, "bce_with_logits far out", y[0], 0, 200)
	y = evalOp(t, ir.OpKLDiv, nil, f32(dims(1, 2), math.Log(0.5), math.Log(0.5)), f32(dims(1, 2), 1, 0))
	near(t, "kl_div", y[0], 1e-6, math.Log(2))
}

// TestOutsideIndices: a wrong label or id is an error that says so.
func TestOutsideIndices(t *testing.T) {
	for _, c := range []struct {
		op   ir.Op
		want string
	}{{ir.OpCrossEntropy, "label 3 is outside 0..2"}, {ir.OpEmbedding, "id 3 is outside 0..1"}} {
		b := ir.NewBuilder("t")
		x := b.Declare(ir.Input, "x", ir.T(ir.F32, 2, 3), nil, nil)
		i := b.Declare(ir.Input, "i", ir.T(ir.I32, 2), nil, nil)
		n := b.Emit(c.op, []*ir.Value{x, i}, nil)[0].Def
		_, err := Node(n, []*Tensor{normal(2, 3), Ints(ir.I32, dims(2), 0, 3)}, Options{})
		if err == nil || !strings.HasSuffix(err.Error(), ": "+c.want) {
			t.Errorf("got %v, want ... %s", err, c.want)
		}
	}
}

// TestProductsRoundOnce: f16 operands, one rounding of an exact sum.
func TestProductsRoundOnce(t *testing.T) {
	a := Floats(ir.F16, dims(1, 3), 2048, 1, 1)
	ones := Floats(ir.F16, dims(3, 1), 1, 1, 1)
	near(t, "f16", evalOp(t, ir.OpMatmul, nil, a, ones)[0], 0, 2050)
	a.F[2] = 0
	near(t, "ties to even", evalOp(t, ir.OpMatmul, nil, a, ones)[0], 0, 2048)
	near(t, "stored f32", evalOp(t, ir.OpMatmul, ir.A("out", ir.F32), a, ones)[0], 0, 2049)
	x := f32(dims(1, 1), 1+0x1p-12)
	near(t, "tf32 drops 13 bits", evalOp(t, ir.OpMatmul, ir.A("math", "tf32"), x, f32(dims(1, 1), 1))[0], 0, 1)
}

func TestRope(t *testing.T) {
	x := f32(dims(1, 2, 2), 1, 0, 1, 0)
	y := evalOp(t, ir.OpRope, nil, x, nil)[0]
	near(t, "position 1 turns by one radian", y, 1e-7, 1, 0, math.Cos(1), math.Sin(1))
	back := evalOp(t, ir.OpRope, ir.A("inverse", true), y, nil)[0]
	near(t, "inverse", back, 1e-6, 1, 0, 1, 0)
}

// TestRecurrentBuilders: the builders' shapes, and a step by hand: with zero
// weights every sigmoid is ½ and every tanh 0, so c = c0/2 after one step.
func TestRecurrentBuilders(t *testing.T) {
	b := ir.NewBuilder("t")
	in := func(name string, d ...ir.Dim) *ir.Value {
		return b.Declare(ir.Input, name, ir.T(ir.F32, d...), nil, nil)
	}
	y, h, c := b.Named("out").LSTM(in("x", 3, 2, 4), in("w", 4, 16), in("r", 2, 2, 8), in("b", 16), nil, in("c0", 2, 2, 2), nil)
	z, last := b.GRU(in("x2", 3, 2, 4), in("w2", 4, 6), in("r2", 1, 2, 6), nil, nil, nil, ir.A("reverse", true))
	b.Return(y, h, c, z, last)
	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
	if y.Name != "out" {
		t.Errorf("y is called %s", y)
	}
	env := map[string]*Tensor{}
	for _, v := range b.Graph().Vars {
		env[v.Name] = New(v.Type)
	}
	for i := range env["c0"].F {
		env["c0"].F[i] = 1
	}
	r, err := Run(b.Graph(), env, Options{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "c", r.Value(c), 0, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125)
	first := math.Tanh(0.5) / 2
	near(t, "y", evalSlice(r.Value(y), 0, 4), 1e-7, first, first, math.Tanh(0.125)/2, math.Tanh(0.125)/2)
	for _, s := range []struct {
		v    *ir.Value
		want string
	}{{y, "f32[3,2,4]"}, {h, "f32[2,2,2]"}, {c, "f32[2,2,2]"}, {z, "f32[3,2,2]"}, {last, "f32[1,2,2]"}} {
		if s.v.Type.String() != s.want {
			t.Errorf("%s has type %s, want %s", s.v, s.v.Type, s.want)
		}
	}
}

func evalSlice(x *Tensor, from, to int) *Tensor { return &Tensor{Type: x.Type, F: x.F[from:to]} }

// TestEinsum compares with the sum over all letters.
func TestEinsum(t *testing.T) {
	size := map[rune]ir.Dim{'a': 2, 'b': 3, 'c': 4, 'd': 2, 'e': 3}
	for _, spec := range []string{"ab,bc->ac", "ab,cb->ca", "abc,acd->abd", "abc,dcb->da", "ab,ab->", "ab->ba", "abc->b", "a,b->ab",
		"ab,bc,cd->ad", "abe,cbe->bac", "ab,cd", "abcd,cdae->be", "ba,bc->ca", "ab,b->a", "abc,d->ca", "aa->a", "aab->ba", "abac,c->ab", "aaa->", "aabb->ab"} {
		t.Run(spec, func(t *testing.T) { checkEinsum(t, spec, spec, size) })
	}
	for _, x := range [][2]string{{"...aa->...a", "bcaa->bca"}, {"a...b,...bc->...ac", "adeb,debc->deac"}, {"...a,a", "bca,a->bc"}, {"a...->...", "abc->bc"}, {"...->...", "acb->acb"}, {"...a,...c->a...c", "eda,dc->aedc"}} {
		spec, letters := x[0], x[1]
		t.Run(spec, func(t *testing.T) { checkEinsum(t, spec, letters, size) })
	}
}

// checkEinsum compares spec with what a specification without "..." says.
func checkEinsum(t *testing.T, spec, letters string, size map[rune]ir.Dim) {
	b := ir.NewBuilder("t")
	left, result, arrow := strings.Cut(letters, "->")
	if !arrow {
		result = "abcd"
	}
	terms := strings.Split(left, ",")
	env, seen := map[string]*Tensor{}, ""
	var xs []*ir.Value
	for i, term := range terms {
		var d []ir.Dim
		for _, l := range term {
			d = append(d, size[l])
			if !strings.ContainsRune(seen, l) {
				seen += string(l)
			}
		}
		name := fmt.Sprint("x", i)
		env[name] = normal(d...)
		xs = append(xs, b.Declare(ir.Input, name, env[name].Type, nil, nil))
	}
	y := b.Einsum(spec, xs...)
	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
	r, err := Run(b.Graph(), env, Options{Float64: true})
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float64, r.Value(y).Len())
	total := 1
	for _, l := range seen {
		total *= int(size[l])
	}
	for i := range total {
		at, rest := map[rune]int{}, i
		for _, l := range seen {
			at[l] = rest % int(size[l])
			rest /= int(size[l])
		}
		index := func(term string) (k int) {
			for _, l := range term {
				k = k*int(size[l]) + at[l]
			}
			return k
		}
		p := 1.0
		for k, term := range terms {
			p *= env[fmt.Sprint("x", k)].F[index(term)]
		}
		want[index(result)] += p
	}
	near(t, spec, r.Value(y), 1e-12, want...)
}
