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

// A norm that adds another, and two gradients of one dy that an elementwise node makes.
const normLaunches = `graph @norms {
  input %x : f32[4,8,3,3]
  input %z : f32[4,8,3,3]
  input %d : f16[4,8,3,3]
  param %s : f32[8] = 1
  param %b : f32[8] = 0
forward:
  %h, %m1, %r1 = batch_norm %x, %s, %b {cluster=1 launch=1} : f32[4,8,3,3], f32[8], f32[8]
  %k, %m2, %r2 = batch_norm %z, %s, %b {launch=1 out=f16} : f16[4,8,3,3], f32[8], f32[8]
  %y = add %h, %k {cluster=1 launch=1} : f32[4,8,3,3]
backward:
  %dy = relu_grad %d, %y {launch=2 out=f16} : f16[4,8,3,3]
  %dx, %ds1, %db1 = batch_norm_grad %x, %dy, %m1, %r1, %s {launch=2} : f32[4,8,3,3], f32[8], f32[8]
  %dz, %ds2, %db2 = batch_norm_grad %z, %dy, %m2, %r2, %s {launch=2} : f32[4,8,3,3], f32[8], f32[8]
  return %y, %dx, %dz, %ds1, %ds2
}
`

// What the kernel of a norm over channels runs beside it is compared with its nodes.
func TestVerifyNoticesInNormLaunches(t *testing.T) {
	lowered := func() *lower.Program {
		g, err := ir.Parse("norms.ir", []byte(normLaunches))
		if err != nil {
			t.Fatal(err)
		}
		p, err := lower.Lower(g, steps{sm.Must("sm_90")})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := lowered()
	if n := len(p.Parts[lower.Micro]); n != 2 {
		t.Fatalf("%d steps, want 2\n%s", n, p)
	}
	for name, m := range map[string]struct {
		step   int
		change func(s *lower.Step, f *lower.NormFusion)
	}{
		"nothing added":     {0, func(_ *lower.Step, f *lower.NormFusion) { f.Beside = nil }},
		"of another tensor": {0, func(s *lower.Step, f *lower.NormFusion) { s.In[f.Beside.In[0]] = s.In[0] }},
		"statistics exchanged": {0, func(s *lower.Step, f *lower.NormFusion) {
			f.Beside.Out[1], f.Beside.Out[2] = f.Beside.Out[2], f.Beside.Out[1]
		}},
		"added as it is computed": {0, func(_ *lower.Step, f *lower.NormFusion) {
			f.Beside.Node.Out[0].Type = f.Beside.Node.Out[0].Type.With(ir.F32)
		}},
		"another epsilon":    {0, func(_ *lower.Step, f *lower.NormFusion) { f.Beside.Node.Attrs = f.Beside.Node.Attrs.With("eps", 0.5) }},
		"no second gradient": {1, func(_ *lower.Step, f *lower.NormFusion) { f.Beside = nil }},
		"the wrong mean":     {1, func(s *lower.Step, f *lower.NormFusion) { f.Beside.In[2] = 2 }},
		"dx and dz exchanged": {1, func(s *lower.Step, f *lower.NormFusion) {
			s.Out[0], s.Out[f.Beside.Out[0]] = s.Out[f.Beside.Out[0]], s.Out[0]
		}},
		"dy not through the ReLU": {1, func(_ *lower.Step, f *lower.NormFusion) { f.Made = 0 }},
		"dy of no one":            {1, func(_ *lower.Step, f *lower.NormFusion) { f.Prologue = nil }},
	} {
		p := lowered()
		s := &p.Parts[lower.Micro][m.step]
		m.change(s, &s.Kernel.Fusion)
		if err := lower.Verify(p); err == nil {
			t.Errorf("%s: Verify accepts it", name)
		}
	}
}

// A norm's gradient whose kernel also adds up the rows of what its epilogue stores.
const rowLaunch = `graph @rows {
  input %x : f32[4,8]
  input %dy : f16[4,8]
  input %dr : f32[4,8]
  input %mean : f32[4]
  input %rstd : f32[4]
  param %scale : f32[8] = 1
backward:
  %dx, %ds, %db = layer_norm_grad %x, %dy, %mean, %rstd, %scale {launch=1} : f32[4,8], f32[8], f32[8]
  %z = add %dx, %dr {launch=1} : f32[4,8]
  %w = reduce_sum %z {axes=[0] launch=1} : f32[8]
  return %z, %w, %ds, %db
}
`

// What the kernel of a norm over rows adds up is compared with its nodes.
func TestVerifyNoticesInSumsOverRows(t *testing.T) {
	lowered := func() *lower.Program {
		g, err := ir.Parse("rows.ir", []byte(rowLaunch))
		if err != nil {
			t.Fatal(err)
		}
		p, err := lower.Lower(g, steps{sm.Must("sm_90")})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := lowered()
	if n := len(p.Parts[lower.Micro]); n != 1 {
		t.Fatalf("%d steps, want 1\n%s", n, p)
	}
	for name, change := range map[string]func(s *lower.Step, r *lower.RowSum){
		"no sum":            func(s *lower.Step, _ *lower.RowSum) { s.Kernel.Fusion.Total = nil },
		"of the result":     func(_ *lower.Step, r *lower.RowSum) { r.Reg = 0 },
		"of nothing":        func(_ *lower.Step, r *lower.RowSum) { r.Reg = 9 },
		"stored elsewhere":  func(_ *lower.Step, r *lower.RowSum) { r.Out = 0 },
		"stored nowhere":    func(_ *lower.Step, r *lower.RowSum) { r.Out = 9 },
		"results exchanged": func(s *lower.Step, r *lower.RowSum) { s.Out[0], s.Out[r.Out] = s.Out[r.Out], s.Out[0] },
	} {
		p := lowered()
		s := &p.Parts[lower.Micro][0]
		change(s, s.Kernel.Fusion.Total)
		if err := lower.Verify(p); err == nil {
			t.Errorf("%s: Verify accepts it", name)
		}
	}
}
