package lower_test

import (
	"testing"

	"ampc/internal/golden"
	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// steps is a target whose steps stay as shared lowering makes them.
type steps struct{ lower.Target }

func (steps) Finish(*lower.Program) error              { return nil }
func (steps) Order(*lower.Program)                     {}
func (steps) Library(lower.StepKind) string            { return "" }
func (steps) Verify(*lower.Program, *lower.Step) error { return nil }

// What a product's kernel runs beside it is compared with its nodes.
func TestVerifyNoticesInLaunches(t *testing.T) {
	c, err := golden.Load("../testdata/lower/gpu-ends.txtar")
	if err != nil {
		t.Fatal(err)
	}
	lowered := func() *lower.Program {
		g, err := ir.Parse("gpu-ends.ir", []byte(c.Section("in")))
		if err != nil {
			t.Fatal(err)
		}
		p, err := lower.Lower(g, steps{sm.Must("sm_90")})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := lower.Verify(lowered()); err != nil {
		t.Fatal(err)
	}
	is := func(a lower.Act) func(*lower.Epilogue) bool {
		return func(e *lower.Epilogue) bool { return e.Act == a }
	}
	sums := func(e *lower.Epilogue) bool { return e.BiasGrad > 0 }
	for name, m := range map[string]struct {
		of     func(*lower.Epilogue) bool
		change func(s *lower.Step)
	}{
		"no GELU":                   {is(lower.Gelu), func(s *lower.Step) { s.Gemm.Epilogue.Act = lower.Relu }},
		"results exchanged":         {is(lower.Gelu), func(s *lower.Step) { s.Out[0], s.Out[1] = s.Out[1], s.Out[0] }},
		"the argument not kept":     {is(lower.Gelu), func(s *lower.Step) { s.Gemm.Epilogue.Aux, s.Out = 0, s.Out[:1] }},
		"no bias":                   {is(lower.Gelu), func(s *lower.Step) { s.Gemm.Epilogue.Bias, s.In = 0, s.In[:2] }},
		"no gradient":               {is(lower.GeluGrad), func(s *lower.Step) { s.Gemm.Epilogue.Act, s.Gemm.Epilogue.Aux, s.In = lower.NoAct, 0, s.In[:2] }},
		"the gradient of another":   {is(lower.GeluGrad), func(s *lower.Step) { s.In[2] = s.In[0] }},
		"no sums":                   {sums, func(s *lower.Step) { s.Gemm.Epilogue.BiasGrad, s.Out = 0, s.Out[:1] }},
		"sums of the other operand": {sums, func(s *lower.Step) { s.Gemm.Epilogue.Summed = 1 - s.Gemm.Epilogue.Summed }},
	} {
		p := lowered()
		found := false
		for i := range p.Parts[lower.Micro] {
			if s := &p.Parts[lower.Micro][i]; s.Gemm != nil && m.of(&s.Gemm.Epilogue) && !found {
				found = true
				m.change(s)
			}
		}
		if !found {
			t.Errorf("%s: no such step", name)
		} else if err := lower.Verify(p); err == nil {
			t.Errorf("%s: Verify accepts it", name)
		}
	}
}
