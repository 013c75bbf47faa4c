package passes

import (
	"strings"
	"testing"

	"ampc/ir"
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
