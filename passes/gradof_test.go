package passes

import (
	"fmt"
	"testing"

	"ampc/ir"
)

// The gradient of a stored tensor is low only where the tensor is, whatever the
// two are called: renaming every computed value changes no stored dtype.
func TestGradientsFollowTensorsNotNames(t *testing.T) {
	front := trainConfig(MixedF16())
	front.Until = "cluster"
	source := mustRun(t, gptGraph(1, 2, 8, 16, 2, 32), front)
	for _, algorithm := range []string{"local", "mincut"} {
		cfg := Config{Policy: MixedF16(), Debugging: Debugging{Only: []string{"amp"}}}
		cfg.Policy.Algorithm = algorithm
		renamed := source.Clone()
		k := 0
		for _, n := range renamed.Nodes {
			for _, v := range n.Out {
				if v.Next == nil {
					v.Name, k = fmt.Sprintf("v%d", k), k+1
				}
			}
		}
		again, err := ir.Parse("renamed.ir", []byte(renamed.String()))
		if err != nil {
			t.Fatal(err)
		}
		want := mustRun(t, source.Clone(), cfg)
		for which, g := range map[string]*ir.Graph{"renamed": renamed, "renamed text": again} {
			got := mustRun(t, g, cfg)
			if a, b := len(want.Body[ir.Backward]), len(got.Body[ir.Backward]); a != b {
				t.Fatalf("%s, %s: %d backward nodes, %d before", algorithm, which, b, a)
			}
			for i, n := range want.Body[ir.Backward] {
				if x, y := n.Out[0].Type, got.Body[ir.Backward][i].Out[0].Type; x != y {
					t.Errorf("%s, %s: %s is stored as %s, was %s", algorithm, which, n.Name(), y, x)
				}
			}
		}
	}
	held := 0
	for _, n := range source.Body[ir.Backward] {
		for _, v := range n.Out {
			if v.GradOf != nil {
				held++
			}
		}
	}
	if held < 20 {
		t.Errorf("only %d values say whose gradient they are", held)
	}
}

// A part of a sum of gradients is not a gradient, even where its name looks like one.
func TestPartsOfSumsAreNoGradients(t *testing.T) {
	g, err := ir.Parse("t.ir", []byte(`graph @t {
  input %x : f32[4]
  param %w : f32[4] = 1
forward:
  %h = mul %x, %w : f32[4]
  %a.mul = square %h : f32[4]
  %a = mul %h, %a.mul : f32[4]
  %loss = reduce_sum %a {axes=[0]} : f32[]
  return %loss
}
`))
	if err != nil {
		t.Fatal(err)
	}
	cfg := trainConfig(Policy{})
	cfg.Until = "autodiff"
	mustRun(t, g, cfg)
	if part := g.Value("d.a.mul"); part == nil || part.GradOf != nil {
		t.Errorf("%v, a part of the gradient of %%h, is called the gradient of %v", part, part.GradOf)
	}
	for _, n := range g.Body[ir.Backward] {
		if v := n.Out[0]; v.GradOf != nil && v.GradOf.Name == "a.mul" {
			return
		}
	}
	t.Errorf("nothing is the gradient of %%a.mul in\n%s", g)
}
