package passes

import (
	"math"
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// What a norm's readers compute again is what the norm stored, up to the
// roundings of one product and one sum.
func TestNormAgain(t *testing.T) {
	checked := 0
	rowCases(t, func(t *testing.T, name, text string) {
		g, err := ir.Parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		body := g.Body[ir.Forward]
		n := body[len(body)-1]
		switch n.Op {
		case ir.OpLayerNorm, ir.OpRMSNorm, ir.OpBatchNorm, ir.OpGroupNorm, ir.OpInstanceNorm:
		default:
			t.Skip("no norm")
		}
		b := ir.Edit(g)
		g.Return = []*ir.Value{n.Out[0], b.NormAgain(n)}
		if b.Err() != nil {
			t.Fatal(b.Err())
		}
		r, err := eval.Run(g, nil, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		checked++
		want, got := r.Value(g.Return[0]), r.Value(g.Return[1])
		if want.Type != got.Type {
			t.Fatalf("has type %s, want %s", got.Type, want.Type)
		}
		for i, w := range want.F {
			if math.Abs(got.F[i]-w) > 1e-6*(1+math.Abs(w)) {
				t.Errorf("element %d is %g, want %g", i, got.F[i], w)
			}
		}
	})
	if checked < 8 {
		t.Errorf("%d norms, want at least 8", checked)
	}
}

// Positions that are looked for again are the same ones: under every policy no
// gradient behind a max pool changes a bit, in windows that overlap and tie.
func TestPoolsAgainChangeNoBit(t *testing.T) {
	for _, p := range []Policy{F32(), MixedF16(), MixedBF16()} {
		kept, searching := trainConfig(p), trainConfig(p)
		searching.Caps.RecomputesPools = true
		a, again := mustRun(t, pooling(t), kept), mustRun(t, pooling(t), searching)
		if na, nb := nodesOf(a, ir.OpMaxPool), nodesOf(again, ir.OpMaxPool); na != 1 || nb != 2 {
			t.Errorf("%s: %d pools, and %d where gradients search, want 1 and 2", p.Name, na, nb)
		}
		env := inputs(a, rand.New(rand.NewPCG(1, 2)), 5)
		if err := same(results(t, a, env), results(t, again, env)); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func pooling(t *testing.T) *ir.Graph {
	g, err := ir.Parse("pool.ir", []byte(`graph @pool {
  input %x : f32[2,3,8,8]
  param %w : f32[4,3,3,3] = normal(0,1)
forward:
  %c = conv %x, %w : f32[2,4,6,6]
  %r = relu %c : f32[2,4,6,6]
  %p, %i = max_pool %r {kernel=[3,3] pads=[1,1,1,1]} : f32[2,4,6,6], i32[2,4,6,6]
  %loss = reduce_sum %p : f32[]
  return %loss
}
`))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func nodesOf(g *ir.Graph, op ir.Op) (n int) {
	for _, m := range g.Nodes {
		if m.Op == op {
			n++
		}
	}
	return n
}
