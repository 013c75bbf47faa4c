package eval

import (
	"strings"
	"testing"

	"ampc/ir"
)

// A user's op is evaluated by its code, its kernel or its expansion, whichever it has.
func TestCustomOps(t *testing.T) {
	row := func(name string) *ir.Def {
		return &ir.Def{
			Name: name, Doc: "Doubles.", In: []ir.Operand{{Name: "x"}}, Out: []ir.Result{{Name: "y"}}, Class: ir.Keep, Why: "a test",
			Infer: func(n *ir.Node) ([]ir.Type, error) { return []ir.Type{n.In[0].Type}, nil },
		}
	}
	byCode, byKernel, byExpansion, byNothing := row("by_code"), row("by_kernel"), row("by_expansion"), row("by_nothing")
	byCode.Elem = func(c *ir.Code, _ *ir.Node) []ir.Reg { return []ir.Reg{c.Add(c.In(0), c.In(0))} }
	byKernel.Kernel = func(_ *ir.Node, in, out []any) error {
		for i, x := range in[0].([]float32) {
			out[0].([]float32)[i] = 2 * x
		}
		return nil
	}
	byExpansion.Expand = func(b *ir.Builder, n *ir.Node) []*ir.Value { return []*ir.Value{b.Affine(n.In[0], 2, 0)} }
	for _, d := range []*ir.Def{byCode, byKernel, byExpansion, byNothing} {
		src := "graph @t {\nconst %x : f16[2] = data(1.5, 40000)\nforward:\n%y = @" + d.Name + " %x\n}\n"
		g, err := ir.Parse("t.ir", []byte(src), d)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(g, nil, Options{})
		if d == byNothing {
			if err == nil || !strings.HasSuffix(err.Error(), "has no evaluator") {
				t.Errorf("%s: got %v", d.Name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if y := r.Values["y"]; y.F[0] != 3 || y.F[1] <= 65504 { // 80000 overflows the f16 result
			t.Errorf("%s: got %v", d.Name, y.F)
		}
	}
}
