package passes

import (
	"testing"

	"ampc/ir"
	"ampc/passes/prove"
)

// What joins tensors for a product alone rounds before it or behind it. Its
// gradient is another matter: parts that the source has in f32 stay so where no
// product reads them, and parts of a 16-bit tensor may be rounded where they are
// joined again.
func TestGradientsOfParts(t *testing.T) {
	for name, text := range map[string]string{
		"joined": `graph @joined {
  input %x : f32[4,8]
  input %z : f32[4,8]
  param %w1 : f32[8,8] = normal(0, 1)
  param %w2 : f32[8,8] = normal(0, 1)
forward:
  %a = matmul %x, %w1 : f32[4,8]
  %h = mul %a, %z : f32[4,8]
  %g = exp %h : f32[4,8]
  %u = concat %h, %g {axis=1} : f32[4,16]
  %r = reshape %u {shape=[8,8]} : f32[8,8]
  %o = matmul %r, %w2 : f32[8,8]
  %e = mul %o, %o : f32[8,8]
  %loss = reduce_mean %e : f32[]
  return %loss
}`,
		"split": `graph @split {
  input %x : f32[4,8]
  input %z : f32[4,8]
  param %w1 : f32[8,16] = normal(0, 1)
  param %b1 : f32[16] = normal(0, 1)
  param %w2 : f32[8,8] = normal(0, 1)
forward:
  %a = linear %x, %w1, %b1 : f32[4,16]
  %h, %g = split %a {axis=1 sizes=[8,8]} : f32[4,8], f32[4,8]
  %k = add %h, %z : f32[4,8]
  %s = sigmoid %k : f32[4,8]
  %t = tanh %g : f32[4,8]
  %m = mul %s, %t : f32[4,8]
  %o = matmul %m, %w2 : f32[4,8]
  %e = mul %o, %o : f32[4,8]
  %loss = reduce_mean %e : f32[]
  return %loss
}`} {
		for _, p := range []Policy{MixedF16(), MixedBF16(), O1(ir.F16), O2(ir.F16)} {
			g, err := ir.Parse(name+".ir", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			c := trainConfig(p)
			var source *ir.Graph
			c.Source = func(t *ir.Graph) { source = t }
			mustRun(t, g, c)
			for _, f := range prove.Prove(source, g, p.ProofRules(source, ir.Caps{}, false)) {
				t.Errorf("%s under %s: %v", name, p.Name, f)
			}
		}
	}
}
