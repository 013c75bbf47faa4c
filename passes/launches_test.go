package passes

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

const launchSource = `graph @launch {
  input %a : f32[4,8]
  input %b : f32[4,8]
  param %scale : f32[8] = 1
  param %bias : f32[8] = 0
forward:
  %x = mul %a, %b : f32[4,8]
  %y, %mean, %rstd = layer_norm %x, %scale, %bias : f32[4,8], f32[4], f32[4]
  %z = relu %y : f32[4,8]
  return %z
}
`

// A norm over rows is one launch with the elementwise node that makes its operand and
// one that reads its result, unless a path leaves the launch and comes back, or the
// target has no such kernel.
func TestLaunches(t *testing.T) {
	reshape := "%s = reshape %x {shape=[8,4]} : f32[8,4]\n  %u = softmax %s {axis=0} : f32[8,4]\n  %v = reshape %u {shape=[4,8]} : f32[4,8]\n"
	for name, c := range map[string]struct {
		target string
		change []string
		want   string // first results of the launch
	}{
		"both":                {"sm_90", nil, "x y z"},
		"before sm_80":        {"sm_70/nodnn", nil, "x y z"},
		"returned in between": {"sm_90", []string{"return %z", "return %z, %x, %y"}, "x y z"},
		"on the CPU":          {"cpu", nil, ""},
		"a path between": {"sm_90", []string{
			"%z = relu %y : f32[4,8]", "%s = softmax %y {axis=0} : f32[4,8]\n  %z = add %y, %s : f32[4,8]"}, "x y"},
		"the norm reads what is stored": {"sm_90", []string{
			"%x = mul %a, %b : f32[4,8]", "%x = mul %a, %b : f32[4,8]\n  " + reshape + "  %w = reduce_sum %v {axes=[0]} : f32[8]", "%x, %scale, %bias :", "%x, %w, %bias :"}, "y z"},
		"another shape": {"sm_90", []string{
			"%z = relu %y : f32[4,8]", "%r = reshape %y {shape=[8,4]} : f32[8,4]\n  %z = relu %r : f32[8,4]"}, "x y"},
		"rows cut across": {"sm_90", []string{
			"%x = mul %a, %b : f32[4,8]", "%p = reshape %a {shape=[16,2]} : f32[16,2]\n  %q = relu %p : f32[16,2]\n  %x = reshape %q {shape=[4,8]} : f32[4,8]"}, "y z"},
		"a sum over its rows": {"sm_90", []string{
			"return %z", "%w = reduce_sum %z {axes=[0]} : f32[8]\n  return %z, %w"}, "x y z"},
	} {
		g, err := ir.Parse(name, []byte(strings.NewReplacer(c.change...).Replace(launchSource)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cfg := Config{Policy: MixedF16(), Debugging: Debugging{Only: precisionPasses, Check: true}, Compiling: Compiling{Caps: sm.Must(c.target).Caps()}}
		mustRun(t, g, cfg)
		var got []string
		for _, n := range g.Nodes {
			if n.Why.Launch == 1 && n.Op != ir.OpCast {
				got = append(got, n.Out[0].Name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: the launch is %v, want %s\n%s", name, got, c.want, g)
		}
	}
}

const sumSource = `graph @sums {
  input %x : f32[4,2,8]
  input %dy : f32[4,2,8]
  input %dr : f32[4,2,8]
  input %mean : f32[4,2]
  input %rstd : f32[4,2]
  param %scale : f32[8] = 1
backward:
  %dx, %ds, %db = layer_norm_grad %x, %dy, %mean, %rstd, %scale : f32[4,2,8], f32[8], f32[8]
  %z = add %dx, %dr : f32[4,2,8]
  %w = reduce_sum %z {axes=[0,1]} : f32[8]
  return %z, %w, %ds, %db
}
`

// The kernel of a norm's gradient also adds up the rows of its result, or of what its epilogue
// stores.
func TestSumsInLaunches(t *testing.T) {
	for name, c := range map[string]struct {
		target string
		change []string
		want   string // first results of the launch
	}{
		"of the epilogue":      {"sm_90", nil, "dx z w"},
		"without cuDNN":        {"sm_70/nodnn", nil, "dx z w"},
		"of the result":        {"sm_90", []string{"return %z", "return %dx", "sum %z", "sum %dx"}, "dx w"},
		"of both":              {"sm_90", []string{"return %z", "%v = reduce_sum %dx {axes=[0,1]} : f32[8]\n  return %v, %z"}, "dx v z"},
		"which nothing stores": {"sm_90", []string{"return %z, %w", "return %w"}, "dx z"},
		"over other rows": {"sm_90", []string{
			"%w = reduce_sum %z {axes=[0,1]} : f32[8]", "%w = reduce_sum %z {axes=[0]} : f32[2,8]"}, "dx z"},
		"of long rows": {"sm_90", []string{",8]", ",9000]", "f32[8]", "f32[9000]"}, "dx z"},
		"on the CPU":   {"cpu", nil, ""},
	} {
		g, err := ir.Parse(name, []byte(strings.NewReplacer(c.change...).Replace(sumSource)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mustRun(t, g, Config{Policy: MixedF16(), Debugging: Debugging{Only: precisionPasses, Check: true}, Compiling: Compiling{Caps: sm.Must(c.target).Caps()}})
		var got []string
		for _, n := range g.Nodes {
			if n.Why.Launch == 1 && n.Op != ir.OpCast {
				got = append(got, n.Out[0].Name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: the launch is %v, want %s\n%s", name, got, c.want, g)
		}
	}
}

// Launches do not depend on the order of nodes.
func TestLaunchesOfShuffledNodes(t *testing.T) {
	for _, name := range []string{"sm_70", "sm_90"} {
		cfg := trainConfig(MixedF16())
		cfg.Caps = sm.Must(name).Caps()
		plain := mustRun(t, gptGraph(2, 2, 16, 32, 2, 64), cfg)
		cfg.Check = true
		if c := mustRun(t, gptGraph(2, 2, 16, 32, 2, 64), cfg); c.String() != plain.String() {
			t.Errorf("%s: shuffled\n%s\nplain\n%s", name, c, plain)
		}
	}
}

const productSource = `graph @products {
  input %x : f32[16,8]
  input %dz : f32[16,32]
  param %w : f32[8,16] = 0.5
  param %b : f32[16] = 0
  param %v : f32[16,32] = 0.5
forward:
  %h = linear %x, %w, %b : f32[16,16]
  %y = gelu %h {approx=tanh} : f32[16,16]
  %z = matmul %y, %v : f32[16,32]
backward:
  %dy = matmul %dz, %v {tb} : f32[16,16]
  %dh = gelu_grad %dy, %h {approx=tanh} : f32[16,16]
  %rows = reshape %dh {shape=[2,8,16]} : f32[2,8,16]
  %db = reduce_sum %rows {axes=[0,1]} : f32[16]
  %dw = matmul %x, %dh {ta} : f32[8,16]
update:
  %w' = add %w, %dw
  %b' = add %b, %db
  return %z
}
`

// A product is one launch with the GELU of its result, the gradient of one, or the sums for a bias, if the
// target has that, the dtypes allow it and nothing else reads what is not stored.
func TestProductLaunches(t *testing.T) {
	all := "h+y dy+dh db+dw"
	for name, c := range map[string]struct {
		target string
		policy Policy
		change []string
		want   string
	}{
		"all":                   {"sm_90", MixedF16(), nil, all},
		"chosen op by op":       {"sm_90", Torch(ir.F16), nil, "h+y dy+dh"},
		"before sm_90":          {"sm_80", MixedF16(), nil, "db+dw"},
		"before sm_80":          {"sm_70", MixedF16(), nil, ""},
		"without the feature":   {"sm_90/noaux", MixedF16(), nil, ""},
		"on the CPU":            {"cpu", MixedF16(), nil, ""},
		"in f32":                {"sm_90", F32(), nil, ""},
		"a bias of its own":     {"sm_90", MixedF16(), []string{"linear %x, %w, %b :", "matmul %x, %w :"}, all},
		"another GELU":          {"sm_90", MixedF16(), []string{"{approx=tanh}", "{approx=erf}"}, "db+dw"},
		"rows of 12 elements":   {"sm_90", MixedF16(), []string{"param %v : f32[16,32]", "param %v : f32[12,32]", "16]", "12]"}, ""},
		"the argument returned": {"sm_90", MixedF16(), []string{"return %z", "return %z, %h"}, all},
		"the result returned":   {"sm_90", MixedF16(), []string{"return %z", "return %z, %y"}, "dy+dh db+dw"},
		"dy read by another":    {"sm_90", MixedF16(), []string{"return %z", "return %z, %dy"}, "h+y db+dw"},
		"more behind the GELU":  {"sm_90", MixedF16(), []string{"%z = matmul %y", "%n = neg %y : f32[16,16]\n  %z = matmul %n"}, "dy+dh db+dw"},
		"the GELU in f32":       {"sm_90", MixedF16().Keep("y"), nil, all},
		"the argument in f32":   {"sm_90", MixedF16().Store("h", ir.PinF32), nil, ""},
		"the gradient in f32":   {"sm_90", MixedF16().Store("dh", ir.PinF32), nil, "h+y"},
	} {
		g, err := ir.Parse(name, []byte(strings.NewReplacer(c.change...).Replace(productSource)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		target, err := sm.Named(c.target)
		if err != nil {
			t.Fatal(err)
		}
		mustRun(t, g, Config{Policy: c.policy, Debugging: Debugging{Only: precisionPasses, Check: true}, Compiling: Compiling{Caps: target.Caps()}})
		if got := launchesOf(g); got != c.want {
			t.Errorf("%s: the launches are %v, want %s\n%s", name, got, c.want, g)
		}
		if _, err := lower.Lower(g, target); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const normSource = `graph @norms {
  input %x : f32[4,8,3,3]
  input %z : f32[4,8,3,3]
  input %d : f32[4,8,3,3]
  param %s : f32[8] = 1
  param %b : f32[8] = 0
forward:
  %h, %m1, %r1 = batch_norm %x, %s, %b : f32[4,8,3,3], f32[8], f32[8]
  %k, %m2, %r2 = batch_norm %z, %s, %b : f32[4,8,3,3], f32[8], f32[8]
  %sum = add %h, %k : f32[4,8,3,3]
  %y = relu %sum : f32[4,8,3,3]
backward:
  %e = add %d, %x : f32[4,8,3,3]
  %dy = relu_grad %e, %y : f32[4,8,3,3]
  %dx, %ds1, %db1 = batch_norm_grad %x, %dy, %m1, %r1, %s : f32[4,8,3,3], f32[8], f32[8]
  %dz, %ds2, %db2 = batch_norm_grad %z, %dy, %m2, %r2, %s : f32[4,8,3,3], f32[8], f32[8]
  return %y, %dx, %dz, %ds1, %ds2
}
`

// Norms over channels are one launch with the one that they add, gradients with the elementwise nodes that
// make their operand and that of a second norm, unless something else reads what is not stored, a path leaves
// the launch and comes back, or operands do not lie as dy does. Lowering runs what the pass marks.
func TestNormLaunches(t *testing.T) {
	const grads = "e+dy+dx+dz"
	for name, c := range map[string]struct {
		target string
		change []string
		want   string
	}{
		"all":                        {"sm_90", nil, "h+k+sum+y " + grads},
		"before sm_80":               {"sm_70/nodnn", nil, "h+k+sum+y " + grads},
		"on the CPU":                 {"cpu", nil, ""},
		"a norm returned":            {"sm_90", []string{"return %y", "return %y, %k"}, grads},
		"dy returned":                {"sm_90", []string{"return %y", "return %y, %dy"}, "h+k+sum+y " + grads},
		"of one tensor":              {"sm_90", []string{"%z, %s, %b", "%x, %s, %b", "batch_norm_grad %z", "batch_norm_grad %x"}, "e+dy+dx"},
		"another layout":             {"sm_90", []string{"4,8,3,3", "8,8,8,8", "%z, %s, %b :", "%z, %s, %b {layout=NHWC} :", "%m2, %r2, %s :", "%m2, %r2, %s {layout=NHWC} :"}, "e+dy+dx"},
		"a row that repeats":         {"sm_90", []string{"%e = add %d, %x", "%e = mul %d, %q", "input %d : f32[4,8,3,3]", "input %d : f32[4,8,3,3]\n  input %q : f32[3]"}, "h+k+sum+y dx+dz"},
		"the norm reads another":     {"sm_90", []string{"batch_norm_grad %z", "batch_norm_grad %e"}, "h+k+sum+y dx+dz"},
		"the second needs the first": {"sm_90", []string{"  %dz, %ds2", "  %f = softmax %dx {axis=1} : f32[4,8,3,3]\n  %dz, %ds2", "batch_norm_grad %z", "batch_norm_grad %f"}, "h+k+sum+y e+dy+dx"},
	} {
		g, err := ir.Parse(name, []byte(strings.NewReplacer(c.change...).Replace(normSource)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		target := sm.Must(c.target)
		mustRun(t, g, Config{Policy: MixedF16(), Debugging: Debugging{Only: precisionPasses, Check: true}, Compiling: Compiling{Caps: target.Caps()}})
		if got := launchesOf(g); got != c.want {
			t.Errorf("%s: the launches are %v, want %s\n%s", name, got, c.want, g)
		}
		if _, err := lower.Lower(g, target); err != nil {
			t.Errorf("%s: %v\n%s", name, err, g)
		}
	}
}

// launchesOf writes the first results of the nodes of each launch, without casts.
func launchesOf(g *ir.Graph) string {
	launches := map[int32][]string{}
	var order []int32
	for _, n := range g.Nodes {
		if k := n.Why.Launch; k > 0 && n.Op != ir.OpCast {
			if launches[k] == nil {
				order = append(order, k)
			}
			launches[k] = append(launches[k], n.Out[0].Name)
		}
	}
	var got []string
	for _, k := range order {
		got = append(got, strings.Join(launches[k], "+"))
	}
	return strings.Join(got, " ")
}

// Lowering refuses a launch that the target's library does not run.
func TestLaunchesAreRefused(t *testing.T) {
	cfg := Config{Policy: MixedF16(), Debugging: Debugging{Only: precisionPasses}, Compiling: Compiling{Caps: sm.Must("sm_90").Caps()}}
	g, err := ir.Parse("products", []byte(productSource))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lower.Lower(mustRun(t, g, cfg), sm.Must("sm_80")); err == nil || !strings.Contains(err.Error(), "no kernel of sm_80 runs these 2 nodes together") {
		t.Errorf("a launch for sm_90 lowered for sm_80: %v", err)
	}
}
