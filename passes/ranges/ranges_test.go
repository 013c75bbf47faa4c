package ranges_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/passes"
	"ampc/passes/ranges"
)

func parse(t *testing.T, src string) *ir.Graph {
	t.Helper()
	g, err := ir.Parse("t.ir", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const block = `graph @block {
  input %x : f32[4,16]
  input %y : i32[4]
  param %ln.s : f32[16] = 1
  param %ln.b : f32[16] = 0
  param %w1 : f32[16,32] = normal(0, 0.2)
  param %b1 : f32[32] = uniform(-0.1, 0.1)
  param %w2 : f32[32,16] = xavier(32, 16)
forward:
  %ln, %ln.mean, %ln.rstd = layer_norm %x, %ln.s, %ln.b : f32[4,16], f32[4], f32[4]
  %fc1 = linear %ln, %w1, %b1 : f32[4,32]
  %gelu = gelu %fc1 : f32[4,32]
  %fc2 = matmul %gelu, %w2 : f32[4,16]
  %res = add %x, %fc2 : f32[4,16]
  %p = softmax %res : f32[4,16]
  %sq = square %p : f32[4,16]
  %t = tanh %res : f32[4,16]
  %e = exp %t : f32[4,16]
  %mix = mul %e, %sq : f32[4,16]
  %logits = sub %mix, %res : f32[4,16]
  %ce, %n = cross_entropy %logits, %y : f32[], f32[]
  %loss = div %ce, %n : f32[]
  return %loss
}
`

func trained(t *testing.T, src, policy string) *ir.Graph {
	t.Helper()
	g := parse(t, src)
	p, err := passes.PolicyNamed(policy)
	if err != nil {
		t.Fatal(err)
	}
	cfg := passes.Config{Policy: p, Train: true, Training: passes.Training{Clip: passes.Clip{Norm: 1}, Groups: []passes.Group{{Optimizer: passes.AdamW(0.1), LR: passes.Constant(1e-3)}}}}
	if err := passes.Run(g, cfg); err != nil {
		t.Fatal(err)
	}
	return g
}

func environment(t *testing.T, g *ir.Graph, seed int64) map[string]*eval.Tensor {
	t.Helper()
	env := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		w := *v
		if v.Kind == ir.Input && v.Type.DType.Float() {
			w.Init = &ir.Init{Func: "uniform", Args: []float64{-3, 3}}
		}
		x, err := eval.InitVar(&w, seed)
		if err != nil {
			t.Fatal(err)
		}
		env[v.Name] = x
	}
	return env
}

// Every value computed from inputs within their ranges lies in its interval:
// forward, backward and update, in f32 and in 16 bits.
func TestIntervalsAreSound(t *testing.T) {
	for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16", "o2-f16"} {
		g := trained(t, block, policy)
		r := ranges.Static(g, ranges.Options{Inputs: map[string]ir.Interval{"x": {Lo: -3, Hi: 3}}})
		bounded := 0
		for seed := range int64(5) {
			res, err := eval.Run(g, environment(t, g, seed), eval.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range g.Nodes {
				for _, v := range n.Out {
					if v.Next == nil && check(t, policy, v, r.Stored(v), res.Value(v)) {
						bounded++
					}
				}
			}
		}
		if bounded == 0 {
			t.Errorf("%s: no value has a bounded interval", policy)
		}
	}
}

func check(t *testing.T, policy string, v *ir.Value, iv ir.Interval, x *eval.Tensor) (bounded bool) {
	t.Helper()
	slack := 1e-5 * (1 + max(math.Abs(iv.Lo), math.Abs(iv.Hi))) // rounding of long sums
	for i := range x.F {
		if e := x.F[i]; math.IsNaN(e) && !iv.NaN || e < iv.Lo-slack || e > iv.Hi+slack {
			t.Errorf("%s: %s element %d is %g, outside [%g, %g]", policy, v, i, e, iv.Lo, iv.Hi)
			return false
		}
	}
	return !math.IsInf(iv.Lo, 0) && !math.IsInf(iv.Hi, 0)
}

func TestFindings(t *testing.T) {
	head := "graph @f {\n  input %x : f16[4,8]\n  input %m : bool[4,8]\n"
	for _, c := range []struct{ name, body, want string }{
		{"epsilon before a division", "  const %eps : f32[] = 1e-8\nforward:\n  %s = add %x, %eps {out=f16} : f16[4,8]\n  %y = div %x, %s : f16[4,8]\n",
			"t.ir:6: epsilon: %s: adds 1e-08, which is 0 in f16 where the sum is stored, and %y follows; keep %s in f32"},
		{"epsilon behind a root", "forward:\n  %a = abs %x : f16[4,8]\n  %s = affine %a {shift=1e-12} : f16[4,8]\n  %q = sqrt %s : f16[4,8]\n  %y = reciprocal %q {out=f16} : f16[4,8]\n",
			"epsilon: %s: adds 1e-12"},
		{"epsilon behind a product and a magnitude", "  input %k : f16[4,8]\nforward:\n  %s = affine %x {shift=1e-12} : f16[4,8]\n  %p = mul %s, %k : f16[4,8]\n  %a = abs %p : f16[4,8]\n  %y = log %a {out=f16} : f16[4,8]\n",
			"epsilon: %s: adds 1e-12, which is 0 in f16 where the sum is stored, and %y follows"},
		{"epsilon before a remainder", "forward:\n  %s = affine %x {shift=1e-12} : f16[4,8]\n  %y = mod %x, %s : f16[4,8]\n", "epsilon: %s: adds 1e-12"},
		{"epsilon before a sum", "  input %k : f16[4,8]\nforward:\n  %s = affine %x {shift=1e-12} : f16[4,8]\n  %p = add %s, %k : f16[4,8]\n  %y = div %x, %p : f16[4,8]\n", ""},
		{"epsilon stored in f32", "forward:\n  %s = affine %x {shift=1e-8 out=f32} : f32[4,8]\n  %y = div %x, %s : f32[4,8]\n", ""},
		{"epsilon where the sum cannot be zero", "forward:\n  %e = sigmoid %x {out=f32} : f32[4,8]\n  %a = affine %e {shift=1} : f32[4,8]\n  %s = affine %a {shift=1e-8 out=f16} : f16[4,8]\n  %y = div %x, %s : f16[4,8]\n", ""},
		{"mask", "  const %neg : f32[] = -1e9\nforward:\n  %y = where %m, %x, %neg {out=f16} : f16[4,8]\n",
			"mask: %neg: -1e+09 is beyond f16; clamp it to -32752"},
		{"reciprocal", "  const %k : f32[] = 1e-7\nforward:\n  %y = div %x, %k {out=f16} : f16[4,8]\n", "reciprocal: %k: 1/1e-07 overflows f16"},
		{"certain overflow", "  const %k : f32[] = 3e5\nforward:\n  %e = sigmoid %x {out=f32} : f32[4,8]\n  %a = affine %e {shift=1} : f32[4,8]\n  %y = mul %a, %k {out=f16} : f16[4,8]\n",
			"overflow: %y: lies in [3e+05, 6e+05], beyond f16"},
		{"possible overflow", "  const %k : f32[] = 1e5\nforward:\n  %e = sigmoid %x {out=f32} : f32[4,8]\n  %y = mul %e, %k {out=f16} : f16[4,8]\n",
			"overflow: %y: may reach 1e+05, the largest f16 is 65504"},
		{"underflow", "  const %k : f32[] = 1e-9\nforward:\n  %e = sigmoid %x {out=f32} : f32[4,8]\n  %y = mul %e, %k {out=f16} : f16[4,8]\n",
			"underflow: %y: lies in [0, 1e-09] and is 0 in f16"},
		{"possible underflow", "forward:\n  %t = tanh %x {out=f32} : f32[4,8]\n  %a = affine %t {scale=20} : f32[4,8]\n  %y = exp %a {out=f16} : f16[4,8]\n",
			"underflow: %y: may be as small as 2.061e-09, which is 0 in f16"},
		{"nothing", "forward:\n  %e = softmax %x {out=f16} : f16[4,8]\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := c.body
			last := body[strings.LastIndex(body, "  %")+2:]
			g := parse(t, head+body+"  return "+strings.Fields(last)[0]+"\n}\n")
			var got []string
			for _, f := range ranges.Static(g, ranges.Options{}).Findings() {
				got = append(got, f.String())
			}
			all := strings.Join(got, "\n")
			if c.want == "" && all != "" || !strings.Contains(all, c.want) {
				t.Errorf("got %q, want %q", all, c.want)
			}
		})
	}
}

func TestLostUpdates(t *testing.T) {
	g := trained(t, block, "o3-bf16")
	found := false
	for _, f := range ranges.Static(g, ranges.Options{}).Findings() {
		found = found || f.Kind == ranges.LostUpdate && f.Value == "%w1"
	}
	if found {
		t.Error("steps of 1e-3 over weights around 0.2 in bf16 (half an ulp is 4.9e-4) are not lost")
	}
	g = trained(t, strings.Replace(block, "normal(0, 0.2)", "normal(0, 20)", 1), "o3-bf16")
	for _, f := range ranges.Static(g, ranges.Options{}).Findings() {
		found = found || f.Kind == ranges.LostUpdate && f.Value == "%w1"
	}
	if !found {
		t.Error("steps of 1e-3 over weights around 20 in bf16 are lost, and nothing says so")
	}
}

// The predicted scale lies in the safe interval: a step there does not
// overflow, and twice the largest does.
func TestLossScalePrediction(t *testing.T) {
	g := trained(t, block, "mixed-f16")
	rec := ranges.NewRecorder(g)
	env := environment(t, g, 1)
	if err := rec.Run(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	at := env["amp.scale"].F[0]
	s, err := ranges.LossScale(g, "amp.scale", at, rec.Ranges())
	if err != nil {
		t.Fatal(err)
	}
	if s.Start < 1 || s.Start > s.Largest || s.Smallest > s.Start {
		t.Fatalf("start %g, safe from %g to %g", s.Start, s.Smallest, s.Largest)
	}
	overflows := func(scale float64) bool {
		env["amp.scale"].F[0] = scale
		res, err := eval.Run(g, env, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return res.Value(g.Value("found_inf")).I[0] != 0
	}
	if overflows(s.Largest) {
		t.Errorf("scale %g overflows, it was said to be safe (%s limits)", s.Largest, s.Limit)
	}
	if s.Largest < 1<<24 && !overflows(4*s.Largest) {
		t.Errorf("scale %g does not overflow, %g was said to be the largest (%s limits)", 4*s.Largest, s.Largest, s.Limit)
	}
}

// Steps of SGD under half an ulp of a 16-bit weight are lost too, where the
// gradient's range is known.
func TestLostUpdatesOfSGD(t *testing.T) {
	const text = `graph @sgd {
  input %g : f16[4]
  param %w : f16[4] = normal(0, 1)
  state %lr : f32[] = 0.001
update:
  %w' = sgd %w, %g {lr=%lr momentum=0 decay=0}
}
`
	for _, c := range []struct {
		reach float64
		lost  bool
	}{{0.1, true}, {10, false}} {
		g := parse(t, text)
		found := ranges.Static(g, ranges.Options{Inputs: map[string]ir.Interval{"g": {Lo: -c.reach, Hi: c.reach}}}).Findings()
		if lost := len(found) == 1 && found[0].Kind == ranges.LostUpdate; lost != c.lost {
			t.Errorf("gradients up to %g, rate 0.001, weights around 1 in f16 (half an ulp is 4.9e-4): %v", c.reach, found)
		}
	}
}

// A recording ends between two nodes, and keeps nothing of the run it was at.
func TestRecorderStops(t *testing.T) {
	g := trained(t, block, "f32")
	rec := ranges.NewRecorder(g)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rec.Run(ctx, environment(t, g, 1)); !errors.Is(err, context.Canceled) || len(rec.Ranges()) > 0 {
		t.Errorf("%v, with %d ranges", err, len(rec.Ranges()))
	}
}
