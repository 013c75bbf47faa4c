package cpu

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// normSource is a norm, with or without a sum behind it, a ReLU and both
// gradients. CLUSTER marks the nodes that run as one kernel.
const normSource = `graph @norm {
  input %x : T[3,4,DIMS]
  input %z : f32[3,4,DIMS]
  input %d : T[3,4,DIMS]
  input %scale : f32[4]
  input %bias : f32[4]
forward:
  %y, %mean, %rstd = NORM %x, %scale, %bias {FWD OUT} : f32[3,4,DIMS], f32[STATS], f32[STATS]
  ACT
backward:
  %dr = relu_grad %d, %r {BWD out=f32} : f32[3,4,DIMS]
  %dx, %ds, %db = NORM_grad %x, %dr, %mean, %rstd, %scale {BWD GROUPS out=T} : T[3,4,DIMS], f32[4], f32[4]
  return %mean, %rstd, %r, %dx, %ds, %dbMORE
}
`

// A norm that ends in a ReLU, and whose gradient begins with one, has the bits of the steps it replaces.
func TestNormEpilogues(t *testing.T) {
	b := open(t, 2)
	acts := map[string]string{
		"relu":     "%r = relu %y {FWD out=T} : T[3,4,DIMS]",
		"residual": "%s = add %z, %y {SUM} : f32[3,4,DIMS]\n  %q = relu %s {SUM} : f32[3,4,DIMS]\n  %r = cast %q {SUM to=T} : T[3,4,DIMS]",
		"sum":      "%q = add %z, %y {SUM} : f32[3,4,DIMS]\n  %r = cast %q {SUM to=T} : T[3,4,DIMS]",
	}
	for _, norm := range []string{"batch_norm", "group_norm"} {
		for name, act := range acts {
			for _, d := range []string{"f32", "f16", "bf16"} {
				act := act
				if name != "relu" && d == "f32" { // nothing to cast
					act = strings.TrimSuffix(act, "\n  %r = cast %q {SUM to=T} : T[3,4,DIMS]")
					act = strings.ReplaceAll(act, "%q", "%r")
				}
				for _, dims := range []string{"33,40", "3,5"} {
					stats, groups := "4", ""
					if norm == "group_norm" {
						stats, groups = "3,2", "groups=2"
					}
					text := strings.NewReplacer("ACT", act, "OUT", groups+" out=f32").Replace(normSource)
					text = strings.NewReplacer("NORM", norm, "T[", d+"[", "to=T", "to="+d, "out=T", "out="+d, "STATS", stats, "GROUPS", groups).Replace(text)
					text = strings.ReplaceAll(text, "DIMS", dims)
					if strings.Contains(text, "%q") { // the sum is stored twice
						text = strings.Replace(text, "MORE", ", %q", 1)
					}
					text = strings.Replace(text, "MORE", "", 1)
					joined := normRun(t, b, strings.NewReplacer("FWD", "cluster=1", "SUM", "cluster=1", "BWD", "cluster=2").Replace(text), 2)
					apart := normRun(t, b, strings.NewReplacer("FWD", "", "SUM", "cluster=1", "BWD", "").Replace(text), 4)
					for i := range joined {
						if string(joined[i]) != string(apart[i]) {
							t.Errorf("%s, %s, %s, %s: result %d differs between one step and two", norm, name, d, dims, i)
						}
					}
				}
			}
		}
	}
}

// A norm with given statistics ends in a sum and a ReLU, too: an inference step
// runs both in its kernel.
func TestNormInferEnds(t *testing.T) {
	b := open(t, 2)
	const source = `graph @norm {
  input %x : T[3,4,DIMS]
  input %z : T[3,4,DIMS]
  input %scale : f32[4]
  input %bias : f32[4]
  input %mean : f32[4]
  const %var : f32[4] = 0.5
forward:
  %y = batch_norm_infer %x, %scale, %bias, %mean, %var {HEAD layout=LAYOUT out=f32} : f32[3,4,DIMS]
  %s = add %z, %y {cluster=1} : f32[3,4,DIMS]
  %r = relu %s {cluster=1 out=T} : T[3,4,DIMS]
  return %r
}
`
	for _, d := range []string{"f32", "f16", "bf16"} {
		for _, layout := range []string{"NCHW", "NHWC"} {
			for _, dims := range []string{"33,40", "3,4"} {
				shape := "3,4," + dims
				if layout == "NHWC" {
					shape = "3," + dims + ",4"
				}
				text := strings.NewReplacer("T[3,4,DIMS]", d+"["+shape+"]", "f32[3,4,DIMS]", "f32["+shape+"]", "out=T", "out="+d, "LAYOUT", layout).Replace(source)
				joined := normRun(t, b, strings.Replace(text, "HEAD", "cluster=1", 1), 1)
				apart := normRun(t, b, strings.Replace(text, "HEAD", "", 1), 2)
				if string(joined[0]) != string(apart[0]) {
					t.Errorf("%s, %s, %s: the result differs between one step and two", d, layout, dims)
				}
			}
		}
	}
}

// normRun runs a step once and returns its results; micro must have so many steps.
func normRun(t *testing.T, b *Backend, text string, steps int) (out [][]byte) {
	t.Helper()
	p, _, e := loaded(t, b, text)
	if got := len(p.Parts[lower.Micro]); got != steps {
		t.Errorf("%d steps, want %d:\n%s", got, steps, p)
	}
	r, feed := rand.New(rand.NewPCG(3, 4)), runtime.Feed{}
	for i := range p.Vars {
		if p.Vars[i].Kind != ir.Input {
			continue
		}
		v := view{p.Vars[i].Type, make([]byte, p.Vars[i].Type.Bytes())}
		for k := range v.len() {
			x := float32(r.NormFloat64())
			if v.t.Shape.Rank() > 1 && r.IntN(50) == 0 {
				x = float32(math.Copysign(0, -1))
			}
			v.set(k, x)
		}
		feed[p.Vars[i].Name] = runtime.Tensor{Type: v.t, Data: v.mem}
	}
	future, err := e.Step(context.Background(), []runtime.Feed{feed})
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range p.Outputs {
		buf := make([]byte, o.Type.Bytes())
		if err := future.Read(i, buf); err != nil {
			t.Fatal(err)
		}
		out = append(out, buf)
	}
	return out
}
