package gputest

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"ampc/cuda"
)

// layer is a linear layer of GPT-2 124M: out features of in, for every token.
type layer struct {
	name    string
	in, out int64
	act     bool // a GELU follows
	after   bool // a GELU stands before
	bias    bool
}

var gpt2 = []layer{
	{name: "qkv", in: 768, out: 2304, bias: true}, {name: "proj", in: 768, out: 768, bias: true},
	{name: "up", in: 768, out: 3072, bias: true, act: true}, {name: "down", in: 3072, out: 768, bias: true, after: true},
	{name: "head", in: 768, out: 50304},
}

// shape is one of a layer's three products, as programs call it, and what it may end in.
type shape struct {
	name string
	m    cuda.Matmul
	ends []cuda.Epilogue
}

// shapes are forward, the gradient of the input, and that of the filter in f32. Weights are [in, out].
func (l layer) shapes(tokens int64, d cuda.DataType) []shape {
	at := func(ld int64) cuda.Matrix { return cuda.Matrix{Type: d, Ld: ld} }
	wide := cuda.Matrix{Type: cuda.R32F, Ld: l.out}
	forward := cuda.RowMajor(tokens, l.out, l.in, false, false, at(l.in), at(l.out), at(l.out), cuda.Compute32F)
	data := cuda.RowMajor(tokens, l.in, l.out, false, true, at(l.out), at(l.out), at(l.in), cuda.Compute32F)
	filter := cuda.RowMajor(l.in, l.out, tokens, true, false, at(l.in), at(l.out), wide, cuda.Compute32F)
	list := []shape{{l.name + " forward", forward, nil}, {l.name + " input", data, nil}, {l.name + " filter", filter, nil}}
	if l.bias {
		list[0].ends = append(list[0].ends, cuda.EpilogueBias)
		list[2].ends = append(list[2].ends, cuda.EpilogueBgradA)
	}
	if l.act {
		list[0].ends = append(list[0].ends, cuda.EpilogueGeluAuxBias)
	}
	if l.after {
		list[1].ends = append(list[1].ends, cuda.EpilogueDGelu, cuda.EpilogueDGeluBgrad)
	}
	return list
}

var epilogueNames = map[cuda.Epilogue]string{cuda.EpilogueNone: "plain", cuda.EpilogueBias: "bias", cuda.EpilogueGeluAuxBias: "gelu aux bias",
	cuda.EpilogueDGelu: "dgelu", cuda.EpilogueDGeluBgrad: "dgelu bgrad", cuda.EpilogueBgradA: "bgrad"}

// TestGemmSpeed times the 15 products of GPT-2 124M at 16·1024 tokens, plain and with what they may end
// in, over the library's first eight algorithms each. Numbers are for reading, not for judging.
func TestGemmSpeed(t *testing.T) {
	g := open(t)
	b := g.openBlas(t)
	if g.simulated() && testing.Short() {
		t.Skip("without -short every product runs once on the simulator, in small")
	}
	for _, d := range []cuda.DataType{cuda.R16BF, cuda.R16F} {
		for _, l := range gpt2 {
			if g.simulated() {
				l.in, l.out = l.in/48, min(l.out/48, 128)
			}
			for _, s := range l.shapes(g.of(16*1024, 32), d) {
				for _, e := range append([]cuda.Epilogue{cuda.EpilogueNone}, s.ends...) {
					g.timeProduct(t, b, s, e, d)
				}
			}
		}
	}
}

// timeProduct prints the time of every algorithm, the fastest as a rate.
func (g *gpu) timeProduct(t *testing.T, b cuda.Blas, s shape, e cuda.Epilogue, d cuda.DataType) {
	t.Helper()
	const workspace, candidates = 32 << 20, 8
	m := s.m
	m.Epilogue, m.BiasType, m.AuxLd, m.AuxType = e, m.D.Type, m.M, d
	plan, err := b.Plan(m)
	g.must(t, err)
	defer func() { g.must(t, plan.Close()) }()
	algos, err := plan.Algos(workspace, candidates)
	if errors.Is(err, cuda.ErrNotSupported) {
		fmt.Printf("gemm %-4s %-12s %-13s %v\n", dtypes[d], s.name, epilogueNames[e], err)
		return
	}
	g.must(t, err)
	var owned []cuda.Ptr
	own := func(p cuda.Ptr) cuda.Ptr { owned = append(owned, p); return p }
	defer func() {
		for _, p := range owned {
			g.must(t, g.Free(p))
		}
	}()
	space, err := g.Alloc(workspace)
	g.must(t, err)
	o := cuda.Operands{A: own(g.draw(t, d, m.M*m.K)), B: own(g.draw(t, d, m.K*m.N)), D: own(g.draw(t, m.D.Type, m.M*m.N)),
		Bias: own(g.draw(t, m.D.Type, max(m.M, m.N))), Aux: own(g.draw(t, d, m.M*m.N)), Workspace: own(space), WorkspaceBytes: workspace}
	o.C = o.D
	best, all := math.Inf(1), ""
	for _, a := range algos {
		sec := g.seconds(t, func() error { return plan.Run(a, 1, 0, o, g.s) })
		best = min(best, sec)
		all += fmt.Sprintf(" %.3f", sec*1e3)
	}
	flop := 2 * float64(m.M) * float64(m.N) * float64(m.K)
	fmt.Printf("gemm %-4s %-12s %-13s %5dx%5dx%5d %6.1f TFLOP/s, ms:%s\n", dtypes[d], s.name, epilogueNames[e], m.N, m.M, m.K, flop/best/1e12, all)
}
