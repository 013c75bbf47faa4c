package passes

import (
	"math"
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/passes/prove"
)

// convGraph is a convolution of 3 channels into 6, pooled, and a head of 5.
func convGraph() *ir.Graph {
	b := ir.NewBuilder("conv")
	small := &ir.Init{Func: "normal", Args: []float64{0, 0.2}}
	x := b.Declare(ir.Input, "x", ir.T(ir.F32, 4, 3, 8, 8), nil, nil)
	y := b.Declare(ir.Input, "y", ir.T(ir.I32, 4), nil, nil)
	w := b.Declare(ir.Param, "conv.w", ir.T(ir.F32, 6, 3, 3, 3), small, nil)
	c := b.Declare(ir.Param, "conv.b", ir.T(ir.F32, 6), small, nil)
	v := b.Declare(ir.Param, "fc.w", ir.T(ir.F32, 6*6*6, 5), small, nil)
	h := b.Relu(b.Named("conv").Conv(x, w, c, nil))
	b.Return(b.Named("loss").CrossEntropy(b.Named("fc").Linear(b.Reshape(h, 4, -1), v, nil, false), y, nil))
	return b.Graph()
}

func paddedModels() map[string]func() *ir.Graph {
	return map[string]func() *ir.Graph{
		"mlp":  func() *ir.Graph { return mlpGraph(5, 13, 11, 10) },
		"gpt":  func() *ir.Graph { return gptGraph(1, 2, 8, 16, 2, 37) },
		"conv": convGraph,
	}
}

// Zeros change no bit: of the loss, of any weight, moment or counter after the
// step. The policies decide op by op, so that both steps store the same dtypes.
func TestPaddingChangesNoBit(t *testing.T) {
	for name, model := range paddedModels() {
		for _, p := range []Policy{O1(ir.F16), O1(ir.BF16), TF32()} {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				plain, padded := trainConfig(p), trainConfig(p)
				padded.Pad, padded.Check = true, true
				count := 0
				padded.After = func(e Event) { count += e.Counters["padded"] }
				a, b := mustRun(t, model(), plain), mustRun(t, model(), padded)
				if count == 0 {
					t.Fatalf("%d products were padded", count)
				}
				env := inputs(a, rand.New(rand.NewPCG(1, 2)), 5)
				if err := same(results(t, a, env), results(t, b, env)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Under the minimum cut dtypes may differ: the step is as near the f32 one as
// without zeros, the checker finds nothing, the price is the program's to the
// byte, and only what cannot be padded is left to report.
func TestPaddingUnderMincut(t *testing.T) {
	for name, model := range paddedModels() {
		for _, p := range []Policy{MixedF16(), MixedBF16()} {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				cfg := trainConfig(p)
				cfg.Pad, cfg.Check = true, true
				var source *ir.Graph
				cfg.Source = func(t *ir.Graph) { source = t }
				cut, program, err := counted(t, model(), cfg)
				if err != nil || cut != program {
					t.Errorf("the cut says %d bytes, the program moves %d (%v)", cut, program, err)
				}
				step := func(c Config) (*ir.Graph, float64) {
					g := mustRun(t, model(), c)
					env := inputs(g, rand.New(rand.NewPCG(1, 2)), 5)
					return g, results(t, g, env)["result 0"].F[0]
				}
				g, loss := step(cfg)
				if found := prove.Prove(source, g, p.ProofRules(source, ir.Caps{}, false)); len(found) > 0 {
					t.Errorf("%v", found)
				}
				_, plain := step(trainConfig(p))
				_, f32 := step(trainConfig(F32()))
				if d, ulp := math.Abs(loss-f32), math.Ldexp(math.Abs(f32), -8); !(d <= max(ulp, 2*math.Abs(plain-f32))) {
					t.Errorf("loss %g padded, %g plain, %g in f32", loss, plain, f32)
				}
				for _, m := range misaligned(t, g) {
					for _, s := range m.Sizes {
						if name != "gpt" && s.Name != "M" && s.Now < 100 { // positions, and rows of three dimensions, stay
							t.Errorf("left: %s", m)
						}
					}
				}
			})
		}
	}
}

func misaligned(t *testing.T, g *ir.Graph) []lower.Misaligned {
	t.Helper()
	p, err := lower.Lower(g, lower.CPU)
	if err != nil {
		t.Fatal(err)
	}
	return p.Misaligned()
}

// Every product with a size that its dtype does not like is reported, forward
// and backward; f32 without tf32 wants nothing.
func TestMisaligned(t *testing.T) {
	for policy, want := range map[string]int{"f32": 0, "mixed-f16": 3, "mixed-bf16": 3, "tf32": 3} {
		p, err := PolicyNamed(policy)
		if err != nil {
			t.Fatal(err)
		}
		got := misaligned(t, mustRun(t, mlpGraph(8, 16, 8, 10), trainConfig(p)))
		if len(got) != want {
			t.Errorf("%s: %d products, want %d: %v", policy, len(got), want, got)
		}
		for _, m := range got {
			for _, s := range m.Sizes {
				if s.Now != 10 || s.Padded != (s.Now+m.Multiple-1)/m.Multiple*m.Multiple {
					t.Errorf("%s: %s", policy, m)
				}
			}
		}
	}
}

// An infinite activation stays what it is beside zeros: 0·Inf never meets a result.
func TestPaddingKeepsInfinities(t *testing.T) {
	src := "graph @t {\n input %x : f32[3,5]\n param %w : f32[5,3] = 1\nforward:\n %y = matmul %x, %w : f32[3,3]\n return %y\n}\n"
	run := func(pad bool) map[string]*eval.Tensor {
		g, err := ir.Parse("t.ir", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		mustRun(t, g, Config{Policy: O1(ir.F16), Compiling: Compiling{Pad: pad}})
		x := eval.New(ir.T(ir.F32, 3, 5))
		x.F[1], x.F[7] = math.Inf(1), math.NaN()
		return results(t, g, map[string]*eval.Tensor{"x": x})
	}
	if err := same(run(false), run(true)); err != nil {
		t.Error(err)
	}
}
