package passes

import (
	"fmt"
	"testing"
	"time"

	"ampc/ir"
	"ampc/lower"
)

// gptGraph is a decoder with tied embeddings, as the zoo's: pre-norm blocks,
// causal attention over reshaped and transposed heads, a GELU between products.
func gptGraph(layers, batch, seq, dim, heads, vocab int64) *ir.Graph {
	b := ir.NewBuilder("gpt")
	ids := b.Declare(ir.Input, "ids", ir.T(ir.I32, ir.Dim(batch), ir.Dim(seq)), nil, nil)
	next := b.Declare(ir.Input, "next", ir.T(ir.I32, ir.Dim(batch), ir.Dim(seq)), nil, nil)
	small := &ir.Init{Func: "normal", Args: []float64{0, 0.02}}
	ones, zeros := &ir.Init{Func: "ones"}, &ir.Init{Func: "zeros"}
	param := func(b *ir.Builder, name string, init *ir.Init, d ...ir.Dim) *ir.Value {
		return b.Declare(ir.Param, name, ir.T(ir.F32, d...), init, nil)
	}
	linear := func(b *ir.Builder, name string, x *ir.Value, in, out int64) *ir.Value {
		w := param(b, name+".w", small, ir.Dim(in), ir.Dim(out))
		c := param(b, name+".b", zeros, ir.Dim(out))
		return b.Named(name).Linear(x, w, c, false)
	}
	norm := func(b *ir.Builder, name string, x *ir.Value) *ir.Value {
		return b.Named(name).LayerNorm(x, param(b, name+".scale", ones, ir.Dim(dim)), param(b, name+".bias", zeros, ir.Dim(dim)), nil)
	}
	wte := param(b, "wte", small, ir.Dim(vocab), ir.Dim(dim))
	wpe := param(b, "wpe", small, ir.Dim(seq), ir.Dim(dim))
	x := b.Named("emb").Add(b.Named("tok").Embedding(wte, ids), wpe)
	for i := range layers {
		s := b.Scope(fmt.Sprintf("h%d", i))
		n := norm(s, "ln1", x)
		head := func(name string) *ir.Value {
			h := linear(s, "attn."+name, n, dim, dim)
			return s.Transpose(s.Reshape(h, batch, seq, heads, dim/heads), 0, 2, 1, 3)
		}
		a := s.Named("attn.core").Attention(head("q"), head("k"), head("v"), nil, ir.A("causal", true))
		a = s.Reshape(s.Transpose(a, 0, 2, 1, 3), batch, seq, dim)
		x = s.Named("res1").Add(x, linear(s, "attn.proj", a, dim, dim))
		u := s.Named("act").Gelu(linear(s, "up", norm(s, "ln2", x), dim, 4*dim), "tanh")
		x = s.Named("res2").Add(x, linear(s, "down", u, 4*dim, dim))
	}
	logits := b.Named("head").Linear(norm(b, "lnf", x), wte, nil, true)
	b.Return(b.Named("loss").CrossEntropy(logits, next, nil))
	if b.Err() != nil {
		panic(b.Err())
	}
	return b.Graph()
}

// mlpGraph is a perceptron with ReLU.
func mlpGraph(batch, in, hidden, out int64) *ir.Graph {
	b := ir.NewBuilder("mlp")
	x := b.Declare(ir.Input, "x", ir.T(ir.F32, ir.Dim(batch), ir.Dim(in)), nil, nil)
	y := b.Declare(ir.Input, "y", ir.T(ir.I32, ir.Dim(batch)), nil, nil)
	small := &ir.Init{Func: "normal", Args: []float64{0, 0.1}}
	w1 := b.Declare(ir.Param, "fc1.w", ir.T(ir.F32, ir.Dim(in), ir.Dim(hidden)), small, nil)
	b1 := b.Declare(ir.Param, "fc1.b", ir.T(ir.F32, ir.Dim(hidden)), &ir.Init{Func: "zeros"}, nil)
	w2 := b.Declare(ir.Param, "fc2.w", ir.T(ir.F32, ir.Dim(hidden), ir.Dim(out)), small, nil)
	b2 := b.Declare(ir.Param, "fc2.b", ir.T(ir.F32, ir.Dim(out)), &ir.Init{Func: "zeros"}, nil)
	h := b.Named("relu").Relu(b.Named("fc1").Linear(x, w1, b1, false))
	b.Return(b.Named("loss").CrossEntropy(b.Named("fc2").Linear(h, w2, b2, false), y, nil))
	if b.Err() != nil {
		panic(b.Err())
	}
	return b.Graph()
}

// trainConfig trains with AdamW on the loss that the graph returns.
func trainConfig(p Policy) Config {
	return Config{
		Policy: p,
		Train:  true,
		Training: Training{
			Clip:   Clip{Norm: 1},
			Groups: []Group{{Optimizer: AdamW(0.1), LR: Constant(1e-3)}},
		},
	}
}

// BenchmarkPipeline compiles a decoder of GPT-2's largest depth: every pass, no
// verification, as in production; and longer ones, whose cost must grow with
// their length.
func BenchmarkPipeline(b *testing.B) {
	for _, layers := range []int64{48, 480, 4800, 10500} {
		b.Run(fmt.Sprintf("layers=%d", layers), func(b *testing.B) {
			took := map[string]time.Duration{}
			nodes := 0
			for b.Loop() {
				b.StopTimer()
				g := gptGraph(layers, 8, 1024, 1600, 25, 50257)
				c := trainConfig(MixedF16())
				c.NoVerify = true
				c.After = func(e Event) { took[e.Pass] += e.Took }
				b.StartTimer()
				if err := Run(g, c); err != nil {
					b.Fatal(err)
				}
				nodes = g.NumNodes()
			}
			b.ReportMetric(float64(nodes), "nodes")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes), "ns/node")
			for pass, d := range took {
				b.ReportMetric(float64(d.Microseconds())/1000/float64(b.N), "ms-"+pass)
			}
		})
	}
}

// BenchmarkVerify checks the lowered programs of such decoders, which takes as long for each node of
// the longer ones.
func BenchmarkVerify(b *testing.B) {
	for _, layers := range []int64{48, 480, 4800} {
		b.Run(fmt.Sprintf("layers=%d", layers), func(b *testing.B) {
			g := gptGraph(layers, 8, 1024, 1600, 25, 50257)
			c := trainConfig(MixedF16())
			c.NoVerify = true
			if err := Run(g, c); err != nil {
				b.Fatal(err)
			}
			p, err := lower.Unverified(g, lower.CPU)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := lower.Verify(p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(g.NumNodes()), "ns/node")
		})
	}
}
