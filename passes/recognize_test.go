package passes

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/ir"
	"ampc/ir/eval"
)

// Every graph of the goldens computes the same before and after: its results,
// and the gradients that autodiff finds through the spelled-out form. Both run
// in f32 on the evaluator, so what differs is rounding: a few ulp of the largest
// number on the way for each of the roundings that one element sees.
func TestRecognizedComputesTheSame(t *testing.T) {
	const roundings = 64
	files, err := filepath.Glob("../testdata/passes/recognize/*.txtar")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d goldens: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := golden.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			step := func(disable ...string) *ir.Graph {
				g, err := ir.Parse(file, []byte(c.Section("in")))
				if err != nil {
					t.Fatal(err)
				}
				return mustRun(t, withGradients(g), Config{
					Train: true,
					Training: Training{
						NoSkip: true,
						Losses: []Loss{{Value: named("test.loss")}},
						Scaler: Scaler{Mode: NoScale},
						Groups: []Group{{Optimizer: SGD(0), LR: Constant(1)}},
					},
					Compiling: Compiling{Disable: disable},
				})
			}
			plain, rewritten := step("recognize"), step()
			env := inputs(plain, rand.New(rand.NewPCG(5, 6)), 2)
			a, b := results(t, plain, env), results(t, rewritten, env)
			for name, x := range a {
				y := b[name]
				if y == nil || len(x.F) != len(y.F) {
					t.Fatalf("%s: %v and %v", name, x, y)
				}
				largest := 1.0
				for _, f := range x.F {
					largest = max(largest, math.Abs(f))
				}
				for i := range x.F {
					if d := math.Abs(x.F[i] - y.F[i]); !(d <= roundings*largest*0x1p-24) {
						t.Errorf("%s[%d]: %g spelled out, %g rewritten", name, i, x.F[i], y.F[i])
					}
				}
			}
		})
	}
}

// withGradients makes parameters of g's float inputs and a loss of its results,
// each weighted by fixed numbers so that nothing cancels.
func withGradients(g *ir.Graph) *ir.Graph {
	for _, v := range g.Vars {
		if v.Kind == ir.Input && v.Type.DType == ir.F32 {
			v.Kind, v.Init = ir.Param, &ir.Init{Func: "uniform", Args: []float64{0.1, 0.9}}
		}
	}
	b := ir.Edit(g)
	loss := b.Scalar(ir.F32, 0)
	for i, v := range g.Return {
		if v.Type.DType != ir.F32 {
			continue
		}
		w := eval.New(v.Type)
		init := &ir.Init{Func: "data"}
		for k := range w.F {
			init.Args = append(init.Args, math.Sin(float64(k+i+1)))
		}
		weight := b.Declare(ir.Const, "test.weight"+v.Name, v.Type, init, nil)
		all := b.Mul(v, weight)
		for all.Type.Shape.Rank() > 0 {
			all = b.ReduceSum(all, false, 0)
		}
		loss = b.Add(loss, all)
	}
	b.Return(b.Named("test.loss").Affine(loss, 1, 0))
	return g
}

// What the rewrites are for: in f16 the spelled-out forms overflow or lose
// everything, the rewritten ones stay near the f32 result. Where a product's
// kernel continues with the scale, scores are not stored before it.
func TestRewritesHoldInF16(t *testing.T) {
	for _, c := range []struct {
		name, body, ret string
		reach           float64 // of the operands
		limit           float64 // largest error against f32: half an ulp of f16 at the largest score, times its readers
	}{
		{"scores beyond 65504", "%s = matmul %x, %y {tb} : f32[8,8]\n%a = affine %s {scale=0.125} : f32[8,8]\n%p = softmax %a : f32[8,8]\n", "%p", 60, 0.5},
		{"log of a softmax of 0", "%s = matmul %x, %y {tb pin=low} : f32[8,8]\n%p = softmax %s {axis=1 pin=low} : f32[8,8]\n%l = log %p {pin=low} : f32[8,8]\n", "%l", 4, 1.5},
		{"a probability of 1", "%s = matmul %x, %y {tb pin=low} : f32[8,8]\n%p = sigmoid %s {pin=low} : f32[8,8]\n%l, %n = bce %p, %t {pin=low} : f32[], f32[]\n", "%l", 4, 64 * 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func(p Policy, disable ...string) []float64 {
				g, err := ir.Parse("t.ir", []byte("graph @t {\n input %x : f32[8,64]\n input %y : f32[8,64]\n input %t : f32[8,8]\nforward:\n"+c.body+" return "+c.ret+"\n}\n"))
				if err != nil {
					t.Fatal(err)
				}
				mustRun(t, g, Config{Policy: p, Compiling: Compiling{Disable: disable, Caps: ir.Caps{SingleStore: true}}})
				env := map[string]*eval.Tensor{}
				for _, v := range g.Vars {
					if v.Kind == ir.Input {
						x := eval.New(v.Type)
						for i := range x.F {
							x.F[i] = c.reach * math.Cos(float64(i/64*7))
							if v.Name == "t" {
								x.F[i] = float64(i % 2)
							}
						}
						env[v.Name] = x
					}
				}
				return results(t, g, env)["result 0"].F
			}
			want, spelled, rewritten := run(F32()), run(MixedF16(), "recognize"), run(MixedF16())
			worst := func(x []float64) (d float64) {
				for i := range x {
					if e := math.Abs(x[i] - want[i]); e > d || e != e {
						d = e
					}
					if math.IsNaN(x[i]) || math.IsInf(x[i], 0) {
						return math.Inf(1)
					}
				}
				return d
			}
			t.Logf("largest error: %g spelled out, %g rewritten", worst(spelled), worst(rewritten))
			if d := worst(rewritten); !(d <= c.limit) {
				t.Errorf("rewritten: %g from f32, want at most %g", d, c.limit)
			}
			if d := worst(spelled); d <= c.limit {
				t.Errorf("spelled out: %g from f32: the rewrite does nothing here", d)
			}
		})
	}
}

// Scores that cannot overflow keep their scale where it stands.
func TestBoundedScoresStay(t *testing.T) {
	src := "graph @t {\n input %x : f32[8,64]\n input %y : f32[8,64]\nforward:\n%s = matmul %x, %y {tb} : f32[8,8]\n%a = affine %s {scale=0.125} : f32[8,8]\n%p = softmax %a : f32[8,8]\n return %p\n}\n"
	for reach, want := range map[float64]int{8: 0, 40: 1} { // 64·8² = 4096, 64·40² = 102400
		g, err := ir.Parse("t.ir", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Policy: MixedF16()}
		cfg.Ranges.Inputs = map[string]ir.Interval{"x": {Lo: -reach, Hi: reach}, "y": {Lo: -reach, Hi: reach}}
		got := 0
		cfg.After = func(e Event) { got += e.Counters["score_scale"] }
		mustRun(t, g, cfg)
		if got != want {
			t.Errorf("operands within %g: %d scales moved, want %d", reach, got, want)
		}
	}
}

// A formula of which any part is pinned differently from the rest stays spelled
// out: the fused row would compute in f32 what the pin says to compute in 16 bits.
func TestPinnedPartsStay(t *testing.T) {
	for op, lines := range map[ir.Op][]string{
		ir.OpRMSNorm: {
			"%q = square %x {PIN} : f32[4,16]",
			"%v = reduce_mean %q {axes=[-1] keepPIN} : f32[4,1]",
			"%s = affine %v {shift=1e-3PIN} : f32[4,1]",
			"%d = sqrt %s {PIN} : f32[4,1]",
			"%y = div %x, %d {PIN} : f32[4,16]",
		},
		ir.OpGelu: {
			"%a = affine %x {scale=0.7071067811865476PIN} : f32[4,16]",
			"%e = erf %a {PIN} : f32[4,16]",
			"%h = affine %e {scale=0.5 shift=0.5PIN} : f32[4,16]",
			"%y = mul %x, %h {PIN} : f32[4,16]",
		},
	} {
		for pinned := -1; pinned < len(lines); pinned++ {
			text := "graph @n {\n  input %x : f32[4,16]\nforward:\n"
			for i, line := range lines {
				pin := ""
				if i == pinned {
					pin = " pin=low"
				}
				text += "  " + strings.ReplaceAll(line, "PIN", pin) + "\n"
			}
			g, err := ir.Parse("pinned.ir", []byte(text+"  return %y\n}"))
			if err != nil {
				t.Fatal(err)
			}
			g = mustRun(t, g, Config{Policy: MixedF16()})
			fused := false
			for _, n := range g.Nodes {
				fused = fused || n.Op == op
			}
			if fused != (pinned < 0) {
				t.Errorf("%v with part %d pinned: fused %t", op, pinned, fused)
			}
		}
	}
}
