package prove_test

import (
	"fmt"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/ir"
	"ampc/passes"
	"ampc/passes/prove"
)

// training compiles a text in a variant and returns the graph before layout.
func training(t *testing.T, text, variant string) *ir.Graph {
	t.Helper()
	g, err := ir.Parse("plain.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var source *ir.Graph
	c := passes.Config{
		Policy: mustPolicy("mixed-f16"),
		Train:  true,
		Training: passes.Training{
			Losses: []passes.Loss{{}},
			Groups: []passes.Group{{Optimizer: passes.Adam(), LR: passes.Cosine(1e-3, 10, 100)}},
		},
		Compiling: passes.Compiling{Source: func(g *ir.Graph) { source = g }},
	}
	variants[variant](&c)
	for i := range c.Losses {
		c.Losses[i].Value = g.Return[i]
	}
	if err := passes.Run(g, c); err != nil {
		t.Fatal(err)
	}
	return source
}

func TestGradientsAreThoseOfTheRows(t *testing.T) {
	for variant := range variants {
		g := training(t, plain, variant)
		for _, f := range prove.Gradients(g) {
			t.Errorf("%s: %s\n%s", variant, f, g)
		}
	}
	for _, edit := range []func(*passes.Config){nil, func(c *passes.Config) { c.Micro = 1 }} {
		before, _, _ := compiled(t, "mixed-f16", edit)
		for _, f := range prove.Gradients(before) {
			t.Errorf("two losses: %s", f)
		}
	}
}

// recurrent is a plain recurrence under a loss whose classes have weights.
const recurrent = `graph @recurrent {
  input %x : f32[3,2,1,4]
  input %h0 : f32[1,2,4]
  input %y : i32[3,2,1]
  param %r : f32[1,4,4] = normal(0, 0.5)
  param %w : f32[4,5] = normal(0, 1)
  state %c : f32[5] = 1
forward:
  %h = rnn %x, %r, %h0 {activation=relu}
  %z = matmul %h, %w
  %sum, %count = cross_entropy %z, %y, %c {smoothing=0.1}
  %loss = div %sum, %count : f32[]
  return %loss
}
`

// The sweep goes through a recurrence and keeps the weights of classes; a gradient
// without them is another.
func TestGradientsOfRecurrentAndWeighted(t *testing.T) {
	g := training(t, recurrent, "plain")
	for _, f := range prove.Gradients(g) {
		t.Errorf("%s\n%s", f, g)
	}
	for _, edit := range [][2]string{{"cross_entropy_grad %z, %y, %d.sum, %c ", "cross_entropy_grad %z, %y, %d.sum "}, {"rnn_grad %r, %h, %d.h {", "rnn_grad %r, %x, %d.h {"}} {
		text := g.String()
		if !strings.Contains(text, edit[0]) {
			t.Fatalf("no %q in\n%s", edit[0], text)
		}
		broken, err := ir.Parse("broken.ir", []byte(strings.Replace(text, edit[0], edit[1], 1)))
		if err != nil {
			t.Fatal(err)
		}
		if len(prove.Gradients(broken)) == 0 {
			t.Errorf("%s: not found", edit[1])
		}
	}
}

// branches reads values more than once, so that contributions add up, and one
// weight in two products.
const branches = `graph @branches {
  input %x : f32[4,3]
  input %y : i32[4]
  param %w : f32[3,5] = normal(0, 1)
  param %u : f32[5,5] = normal(0, 1)
forward:
  %h = matmul %x, %w : f32[4,5]
  %t = tanh %h : f32[4,5]
  %k = matmul %t, %u : f32[4,5]
  %m = matmul %k, %u : f32[4,5]
  %z = mul %m, %h : f32[4,5]
  %s = sub %z, %t : f32[4,5]
  %sum, %count = cross_entropy %s, %y : f32[], f32[]
  %loss = div %sum, %count : f32[]
  %reg = reduce_l2 %u : f32[]
  return %loss, %reg
}
`

var gradientFaults = []fault{
	{"doubled gradient in the update", "plain", "adam %w, %d.w,", "adam %w, %twice,"},
	{"doubled gradient", "plain", "add_n %d.k.matmul_2, %d.m.matmul_2", "add_n %d.k.matmul_2, %d.m.matmul_2, %d.m.matmul_2"},
	{"doubled seed", "plain", "cross_entropy_grad %s, %y, %d.sum ", "cross_entropy_grad %s, %y, %amp.scale "},
	{"dropped contribution", "plain", "add_n %d.k.matmul_2, %d.m.matmul_2", "add_n %d.k.matmul_2"},
	{"dropped contribution at a branch", "plain", "add_n %d.t.tanh_grad, %d.z.mul_2", "add_n %d.t.tanh_grad"},
	{"swapped operands", "plain", "matmul %t, %d.k ", "matmul %k, %d.k "},
	{"swapped gradients", "plain", "matmul %t, %d.k ", "matmul %t, %d.m "},
	{"an attribute lost", "plain", "matmul %d.m, %u {of=%m tb}", "matmul %d.m, %u {of=%m}"},
	{"gradient of the other operand", "plain", "mul %d.s, %h ", "mul %d.s, %m "},
	{"sign lost", "plain", "neg %d.s ", "abs %d.s "},
	{"another activation's gradient", "plain", "tanh_grad %", "sigmoid_grad %"},
	{"gradients of two weights changed", "plain", "adam %w, %d.w,", "adam %w, %x.d,"},
	{"gradient of one loss alone", "two", "= add_n %u.u, %u.amp.reg.u", "= add_n %u.u"},
	{"loss that no check sees", "two", "any_nonfinite %reg", "any_nonfinite %loss"},
	{"accumulator of another gradient", "micro", "accum %amp.acc/u, %d.u ", "accum %amp.acc/u, %d.k.matmul_2 "},
}

func TestGradientFaults(t *testing.T) {
	var b strings.Builder
	for _, f := range gradientFaults {
		g := training(t, branches, f.variant)
		for _, x := range prove.Gradients(g) {
			t.Errorf("%s without a fault: %s", f.variant, x)
		}
		text := strings.Replace(g.String(), "update:\n", "update:\n  %twice = add_n %d.w, %d.w : f32[3,5]\n  %x.d = transpose %x.t {perm=[1,0]} : f32[3,5]\n", 1)
		text = strings.Replace(text, "%x.d = transpose %x.t {perm=[1,0]} : f32[3,5]", "%x.d = slice %d.u {axes=[0] ends=[3] starts=[0]} : f32[3,5]", 1)
		broken, err := ir.Parse("fault.ir", []byte(strings.ReplaceAll(text, f.a, f.b)))
		if err != nil || !strings.Contains(text, f.a) {
			t.Errorf("%s: %v, the step has no %q\n%s", f.name, err, f.a, text)
			continue
		}
		found := prove.Gradients(broken)
		if len(found) == 0 {
			t.Errorf("%s: passes", f.name)
		}
		fmt.Fprintf(&b, "%s (%s)\n", f.name, f.variant)
		for _, x := range found {
			fmt.Fprintf(&b, "    %s\n", x)
		}
	}
	golden.File(t, "testdata/gradient.txt", b.String())
}
