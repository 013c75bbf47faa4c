package eval

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
)

// TestSpecialValues spells out what rows do at the edges of their domains.
// NaN is any NaN; zeros are compared with their signs.
func TestSpecialValues(t *testing.T) {
	inf, nan, neg := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	for _, c := range []struct {
		vars, node string
		want       []float64
	}{
		{"f32[4] = data(-1, -0.0, nan, inf)", "relu %x", []float64{0, 0, nan, inf}},
		{"f32[4] = data(-3, -0.0, nan, 0)", "sign %x", []float64{-1, neg, nan, 0}},
		{"f32[3] = data(nan, inf, -inf)", "clip %x {lo=-1.0 hi=2.0}", []float64{nan, 2, -1}},
		{"f32[3] = data(nan, -0.0, 2)|f32[3] = data(1, 0, nan)", "max %x, %y", []float64{nan, 0, nan}},
		{"f32[3] = data(inf, 0, 2)|f32[3] = data(nan, -0.0, 1)", "min %x, %y", []float64{nan, neg, 1}},
		{"f32[2] = data(nan, 1)|f32[2] = data(nan, 1)", "eq %x, %y", []float64{0, 1}},
		{"f32[2] = data(nan, 1)|f32[2] = data(nan, 1)", "ne %x, %y", []float64{1, 0}},
		{"bool[2] = data(1, 0)|f32[2] = data(5, nan)", "where %x, %y", []float64{5, 0}},
		{"i32[3] = data(2147483647, -2147483648, 7)|i32[3] = data(1, -1, -2)", "add %x, %y", []float64{math.MinInt32, math.MaxInt32, 5}},
		{"i32[4] = data(7, -7, 7, -2147483648)|i32[4] = data(2, 2, 0, -1)", "div %x, %y", []float64{3, -3, 0, math.MinInt32}},
		{"i32[4] = data(7, -7, 7, -7)|i32[4] = data(3, 3, -3, -3)", "mod %x, %y", []float64{1, 2, -2, -1}},
		{"f32[2] = data(7, -7)|f32[2] = data(3, 3)", "mod %x, %y", []float64{1, 2}},
		{"f32[6] = data(65504, 65519, 65520, 1e-8, 2.98023224e-8, nan)", "cast %x {to=f16}", []float64{65504, 65504, inf, 0, 0, nan}},
		{"f32[3] = data(1.001953125, 1.005859375, 3.4e38)", "cast %x {to=bf16}", []float64{1, 1.0078125, inf}},
		{"f32[3] = data(1.00390625, 1.01171875, 1.001)", "round %x {to=bf16}", []float64{1, 1.015625, 1}},
		{"f32[5] = data(nan, 3e9, -3e9, -1.9, 1.9)", "cast %x {to=i32}", []float64{0, math.MaxInt32, math.MinInt32, -1, 1}},
		{"f32[5] = data(nan, 300, -5, 254.9, 0.5)", "cast %x {to=u8}", []float64{0, 255, 0, 254, 0}},
		{"i32[3] = data(300, -1, 256)", "cast %x {to=u8}", []float64{44, 255, 0}},
		{"f32[3] = data(nan, 0, -0.5)", "cast %x {to=bool}", []float64{1, 0, 1}},
		{"i32[1] = data(16777217)", "cast %x {to=f32}", []float64{16777216}},
		{"f32[4] = data(-0.0, 0, inf, -inf)", "tanh %x", []float64{neg, 0, 1, -1}},
		{"f32[1] = data(inf)|f32[1] = data(0)", "%, %n = bce_with_logits %x, %y", []float64{inf}},
		{"f32[1] = data(-inf)|f32[1] = data(1)", "%, %n = bce_with_logits %x, %y", []float64{inf}},
		{"f32[2] = data(200, -200)|f32[2] = data(1, 0)", "%, %n = bce_with_logits %x, %y", []float64{0}},
		{"f32[2,3] = zeros()|i32[2] = data(-100, -100)", "%, %n = cross_entropy %x, %y", []float64{0}},
		{"f32[3] = data(-200, 200, 0)", "sigmoid %x", []float64{0, 1, 0.5}},
		{"f32[3] = data(-200, 200, -inf)", "softplus %x", []float64{0, 200, 0}},
		{"f32[2,2] = data(1, nan, 2, 3)", "reduce_max %x {axes=[1]}", []float64{nan, 3}},
		{"f32[0,2]", "reduce_max %x {axes=[0]}", []float64{-inf, -inf}},
		{"f32[0,2]", "reduce_sum %x {axes=[0]}", []float64{0, 0}},
		{"f32[0,2]", "reduce_prod %x {axes=[0]}", []float64{1, 1}},
		{"f32[0,2]", "reduce_mean %x {axes=[0]}", []float64{nan, nan}},
		{"f32[2] = data(-inf, -inf)", "logsumexp %x", []float64{-inf}},
		{"f32[2] = data(1000, 1000)", "logsumexp %x", []float64{1000 + math.Ln2}},
		{"f32[5] = data(1, 3, nan, nan, 3)", "argmax %x", []float64{2}},
		{"f32[5] = data(3, 1, 1, 2, 3)", "argmin %x", []float64{1}},
		{"i32[4] = data(1, 3, 3, -2)", "argmax %x", []float64{1}},
		{"f32[4] = data(1, 3, nan, 3)", "%, %i = topk %x {k=3}", []float64{nan, 3, 3}},
		{"f32[4] = data(1, 3, nan, 3)", "%i, % = topk %x {k=3 smallest}", []float64{0, 1, 3}},
		{"f32[2] = data(0, 0)|i64[3] = data(1, 1, 0)|f32[3] = data(5, 7, 9)", "scatter %x, %y, %z", []float64{9, 7}},
		{"f32[2] = data(1, 0)|i64[3] = data(1, 1, 0)|f32[3] = data(5, 7, 9)", "scatter_add %x, %y, %z", []float64{10, 12}},
		{"f32[1,1,10] = data(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)", "resize %x {sizes=[5]}", []float64{0, 2, 4, 6, 8}},
		{"f32[1,1,10] = data(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)", "resize %x {sizes=[5] ties=up}", []float64{1, 3, 5, 7, 9}}, // nearest-exact
		{"f32[1,1,3] = data(0, 1, 2)", "resize %x {sizes=[6] ties=up}", []float64{0, 0, 1, 1, 2, 2}},
		{"f32[1,1,5] = data(0, 1, 2, 3, 4)", "resize %x {sizes=[3] coords=align_corners ties=up}", []float64{0, 2, 4}},
		{"f32[1,1,4] = data(0, 1, 2, 3)", "resize %x {sizes=[3] coords=align_corners ties=up}", []float64{0, 2, 3}},
		{"f32[1,1,4] = data(0, 1, 2, 3)", "resize %x {sizes=[3] coords=align_corners}", []float64{0, 1, 3}},
		{"i32[3] = data(0, -1, 2)", "one_hot %x {depth=2}", []float64{1, 0, 0, 0, 0, 0}},
		{"f32[0]", "affine %x {scale=2.0}", nil},
		{"f32[4] = data(1, 2, 3, 4)", "reshape %x {shape=[2,-1]}", []float64{1, 2, 3, 4}},
		{"f16[2] = data(60000, 1)", "add %x, %x", []float64{inf, 2}},
		{"f16[2] = data(60000, 1)", "add %x, %x {out=f32}", []float64{120000, 2}},
		{"f16[2] = data(300, 1)", "square %x", []float64{90000, 1}},
		{"f16[2] = data(300, 1)", "square %x {out=f16}", []float64{inf, 1}},
	} {
		y := evalText(t, c.vars, c.node)
		if y.Len() != len(c.want) {
			t.Errorf("%s: %d elements, want %d", c.node, y.Len(), len(c.want))
			continue
		}
		for i, want := range c.want {
			got := y.At(i)
			if y.F != nil {
				want = float64(float32(want))
			}
			sameNaN := got != got && want != want
			if !sameNaN && (got != want || math.Signbit(got) != math.Signbit(want)) {
				t.Errorf("%s of %s: element %d is %v, want %v", c.node, c.vars, i, got, want)
			}
		}
	}
}

// evalText evaluates one node over the constants %x, %y, %z; the result tested
// is named % in the text, the only one unless it is written out.
func evalText(t *testing.T, vars, node string) *Tensor {
	t.Helper()
	src := "graph @t {\n"
	for i, v := range strings.Split(vars, "|") {
		src += "const %" + string("xyz"[i]) + " : " + v + "\n"
	}
	if !strings.HasPrefix(node, "%") {
		node = "% = " + node
	}
	node = strings.NewReplacer("% =", "%r =", "%, ", "%r, ").Replace(node)
	g, err := ir.Parse("t.ir", []byte(src+"forward:\n"+node+"\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	keepSpecial(g, src+"forward:\n"+node)
	r, err := Run(g, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Values["r"]
}

// keepSpecial adds the graph to testdata/ops, with its constants as inputs.
func keepSpecial(g *ir.Graph, src string) {
	if texts["special"] == nil {
		texts["special"] = map[string]string{}
	}
	for _, v := range g.Vars {
		v.Kind = ir.Input
		if v.Init == nil {
			v.Init = &ir.Init{Func: "zeros"}
		}
	}
	g.Return = g.Body[ir.Forward][0].Out
	h := fnv.New32a()
	h.Write([]byte(src))
	texts["special"][fmt.Sprintf("%s_%08x", g.Body[ir.Forward][0].Op, h.Sum32())] = g.String()
}

func TestIdsOutsideTheAxisAreErrors(t *testing.T) {
	for _, node := range []string{"gather %x, %y", "gather_elements %x, %y", "scatter %x, %y, %x", "scatter_add %x, %y, %x"} {
		src := "graph @t {\nconst %x : f32[2] = data(1, 2)\nconst %y : i32[2] = data(0, 2)\nforward:\n%r = " + node + "\n}\n"
		g, err := ir.Parse("t.ir", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(g, nil, Options{}); err == nil || !strings.HasSuffix(err.Error(), "id 2 is outside 0..1") {
			t.Errorf("%s: got %v", node, err)
		}
	}
}

// Every elementwise row of floats goes to testdata/ops at the edges: NaN, both
// zeros and infinities, 3 and -3 where hard activations bend, and, of two
// operands, ties. So every backend is held to the evaluator there.
func TestElementwiseRowsAtEdges(t *testing.T) {
	x := "f32[16] = data(-inf, -4, -3, -1, -0.0, 0, 0.5, 3, 4, inf, nan, 1, inf, -0.0, nan, 2)"
	y := "f32[16] = data(-inf, 1, -3, 0.5, 0, -0.0, 0, 3, 2, inf, 1, nan, -inf, -0.0, nan, 0)"
	rows := 0
	for _, op := range ir.Ops() {
		d := op.Def()
		if d.Elem == nil || len(d.In) > 2 || d.Is(ir.Random) || strings.Contains("cast round add_n where", op.String()) {
			continue
		}
		if slices.ContainsFunc(d.In, func(o ir.Operand) bool { return o.Named || o.Kinds != 0 && o.Kinds&ir.KFloat == 0 }) || slices.ContainsFunc(d.Attrs, func(a ir.AttrDef) bool { return a.Required }) {
			continue
		}
		rows++
		vars, node := x, op.String()+" %x"
		if len(d.In) == 2 {
			vars, node = x+"|"+y, node+", %y"
		}
		if r := evalText(t, vars, node); r.Len() != 16 {
			t.Errorf("%s has %d elements", node, r.Len())
		}
	}
	if rows < 50 {
		t.Errorf("%d elementwise rows were tried", rows)
	}
}

// TestGradientsAtEdges spells out the gradients of %x, and of %y where there is
// one, for a gradient of 1 of the result, where a function has none or is not
// finite. Torch 2.6 gives the same except for what docs/semantics.md lists.
func TestGradientsAtEdges(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		vars, node string
		dx, dy     []float64
	}{
		{"f32[5] = data(1, 0, nan, 1, inf)|f32[5] = data(1, -0.0, 1, nan, inf)", "max %x, %y", []float64{0.5, 0.5, 1, 1, 0.5}, []float64{0.5, 0.5, 1, 1, 0.5}},
		{"f32[4] = data(1, 0, nan, 2)|f32[4] = data(1, -0.0, 1, 3)", "min %x, %y", []float64{0.5, 0.5, 1, 1}, []float64{0.5, 0.5, 1, 0}},
		{"f32[5] = data(-4, -3, 0, 3, nan)", "hardsigmoid %x", []float64{0, 0, 1. / 6, 0, 0}, nil},
		{"f32[6] = data(-4, -3, 0, 3, 4, nan)", "hardswish %x", []float64{0, -0.5, 0.5, 1.5, 1, nan}, nil},
		{"f32[6] = data(0, 0, 0, -2, -2, nan)|f32[6] = data(0, 2, -1, 2, 0, 0)", "pow %x, %y", []float64{0, 0, -inf, -4, 0, 0}, []float64{0, 0, -inf, nan, nan, nan}},
		{"f32[3] = data(-2, 0, 2)|f32[3] = data(3, 1, 0)", "pow %x, %y", []float64{12, 1, 0}, []float64{nan, 0, math.Ln2}},
		{"f32[4] = data(1, 3, 3, 2)", "reduce_max %x", []float64{0, 0.5, 0.5, 0}, nil},
		{"f32[3] = data(1, nan, 3)", "reduce_max %x", []float64{nan, nan, nan}, nil},
		{"f32[3] = data(1, nan, 1)", "reduce_min %x", []float64{nan, nan, nan}, nil},
		{"f32[4] = data(-1, 0, 2, nan)", "relu %x", []float64{0, 0, 1, 0}, nil},
		{"f32[4] = data(-inf, 0, 2, nan)", "elu %x", []float64{0, 1, 1, 1}, nil},
		{"f32[3] = data(-1, 0, nan)|f32[1] = data(0.25)", "prelu %x, %y", []float64{0.25, 0.25, 0.25}, []float64{nan}},
		{"f32[3] = data(-3, 0, 2)", "abs %x", []float64{-1, 0, 1}, nil},
		{"f32[2] = data(0, 0)", "reduce_l2 %x", []float64{0, 0}, nil},
	} {
		src := "graph @t {\n"
		names := []string{"x", "y"}[:1+strings.Count(c.vars, "|")]
		for i, v := range strings.Split(c.vars, "|") {
			src += "param %" + names[i] + " : " + v + "\n"
		}
		g, err := ir.Parse("t.ir", []byte(src+"forward:\n%r = "+c.node+"\n}\n"))
		if err != nil {
			t.Fatal(err)
		}
		b := ir.Edit(g)
		vars := g.Vars[:len(names):len(names)]
		r := g.Body[ir.Forward][0].Out[0]
		seed := b.Full(ir.F32, 1, ir.Sizes(r.Type.Shape)...)
		d := gradsFrom(b, r, seed, vars)
		if err := b.Err(); err != nil {
			t.Fatalf("%s: %v", c.node, err)
		}
		for i, v := range d {
			b.Rename(v, "grad."+names[i])
		}
		g.Return = d
		out, err := Run(g, nil, Options{})
		if err != nil {
			t.Fatalf("%s: %v", c.node, err)
		}
		for i, want := range [][]float64{c.dx, c.dy}[:len(names)] {
			got := out.Values["grad."+names[i]]
			for k, w := range want {
				if x := got.At(k); x != w && math.Abs(x-w) > 1e-6 || (x != x) != (w != w) {
					t.Errorf("%s: gradient of %%%s, element %d is %v, want %v", c.node, names[i], k, x, w)
				}
			}
		}
	}
}
