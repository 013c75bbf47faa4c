package prove_test

import (
	"testing"

	"ampc/ir"
	"ampc/passes"
	"ampc/passes/prove"
)

// everything builds a step that has one of everything the rules look at: shared
// weights, a residual trunk, norms, attention, two losses, a frozen parameter.
func everything(t *testing.T) *ir.Graph {
	t.Helper()
	b := ir.NewBuilder("all")
	param := func(name string, d ...ir.Dim) *ir.Value {
		return b.Declare(ir.Param, name, ir.T(ir.F32, d...), &ir.Init{Func: "normal", Args: []float64{0, 0.1}}, nil)
	}
	ids := b.Declare(ir.Input, "ids", ir.T(ir.I32, 2, 8), nil, nil)
	next := b.Declare(ir.Input, "next", ir.T(ir.I32, 2, 8), nil, nil)
	target := b.Declare(ir.Input, "target", ir.T(ir.F32, 2, 8, 16), nil, nil)
	wte := param("wte", 32, 16)
	x := b.Named("wte").Embedding(wte, ids)
	for _, name := range []string{"h0", "h1"} {
		h := b.Scope(name)
		p := func(n string, d ...ir.Dim) *ir.Value { return param(name+"."+n, d...) }
		n1 := h.Named("ln1").LayerNorm(x, p("ln1.s", 16), p("ln1.b", 16), ir.A("eps", 1e-5))
		qkv := h.Named("qkv").Linear(n1, p("qkv.w", 16, 48), p("qkv.b", 48), false)
		parts := h.Split(qkv, -1, 16, 16, 16)
		for i, v := range parts {
			parts[i] = h.Transpose(h.Reshape(v, 2, 8, 2, 8), 0, 2, 1, 3)
		}
		y := h.Named("attn").Attention(parts[0], parts[1], parts[2], nil, ir.A("causal", true, "scale", 0.35))
		y = h.Reshape(h.Transpose(y, 0, 2, 1, 3), 2, 8, 16)
		x = h.Named("mid").Add(x, h.Named("proj").Linear(y, p("proj.w", 16, 16), p("proj.b", 16), false))
		u := h.Named("up").Linear(h.Named("ln2").LayerNorm(x, p("ln2.s", 16), p("ln2.b", 16), ir.A("eps", 1e-5)), p("up.w", 16, 64), p("up.b", 64), false)
		x = h.Named("res").Add(x, h.Named("down").Linear(h.Gelu(u, "tanh"), p("down.w", 64, 16), nil, false))
	}
	logits := b.Named("head").Linear(x, wte, nil, true)
	b.Return(b.Rename(b.CrossEntropy(logits, next, nil), "loss"), b.Rename(b.MSE(x, target), "aux"))
	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
	return b.Graph()
}

// config trains everything with everything that adds to the update.
func config(t *testing.T, policy string) passes.Config {
	t.Helper()
	p, err := passes.PolicyNamed(policy)
	if err != nil {
		t.Fatal(err)
	}
	return passes.Config{
		Policy:    p,
		Train:     true,
		Debugging: passes.Debugging{Check: true},
		Training: passes.Training{
			EMA:   0.99,
			Clip:  passes.Clip{Norm: 1},
			Micro: 2,
			Groups: []passes.Group{
				{Pattern: "h0.ln1", Freeze: true},
				{Pattern: "h1", Optimizer: passes.SGD(0.9), LR: passes.Constant(0.1)},
				{Optimizer: passes.AdamW(0.1), LR: passes.Cosine(1e-3, 10, 100)},
			},
		},
	}
}

// compiled is the graph before layout, the finished step and what the policy allows.
func compiled(t *testing.T, policy string, edit func(*passes.Config)) (source, step *ir.Graph, r prove.Rules) {
	t.Helper()
	cfg, g := config(t, policy), everything(t)
	aux := passes.Dynamic()
	cfg.Losses = []passes.Loss{{Value: g.Value("loss")}, {Value: g.Value("aux"), Weight: 0.5, Scaler: &aux}}
	if edit != nil {
		edit(&cfg)
	}
	cfg.Source = func(t *ir.Graph) { source = t }
	if err := passes.Run(g, cfg); err != nil {
		t.Fatal(err)
	}
	return source, g, cfg.Policy.ProofRules(source, cfg.Caps, cfg.NoSkip)
}

func TestPipelineIsProved(t *testing.T) {
	for _, policy := range []string{"f32", "tf32", "mixed-f16", "mixed-bf16", "o1-f16", "o2-f16", "o3-f16", "o1-bf16", "o2-bf16", "torch-f16", "torch-bf16"} {
		for _, c := range []struct {
			name string
			edit func(*passes.Config)
		}{
			{"full", nil},
			{"one micro-batch", func(c *passes.Config) { c.Micro = 1 }},
			{"one loss, no clip", func(c *passes.Config) { c.Losses, c.Clip = c.Losses[:1], passes.Clip{} }},
			{"value clip, dropped micro-batches", func(c *passes.Config) { c.Clip, c.BadMicro = passes.Clip{Value: 0.5}, passes.DropMicro }},
		} {
			t.Run(policy+"/"+c.name, func(t *testing.T) {
				source, g, r := compiled(t, policy, c.edit)
				for _, f := range prove.Prove(source, g, r) {
					t.Error(f)
				}
				if t.Failed() && testing.Verbose() {
					g.Print(t.Output(), ir.Reasons)
				}
			})
		}
	}
}
