package sm_test

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// A trunk in f32, a branch in f16, what keeps them apart in BETWEEN, and what else is returned in MORE.
const rowNormSource = `graph @norm {
  input %a : f32[4,8]
  input %b : f16[4,8]
  input %d : f16[4,8]
  input %scale : f32[8]
  input %bias : f32[8]
forward:
  %w = cast %b {cluster=1 launch=1 to=f32} : f32[4,8]
  %x = add %a, %w {cluster=1 launch=1} : f32[4,8]
  %y, %mean, %rstd = layer_norm %x, %scale, %bias {launch=1 out=f16} : f16[4,8], f32[4], f32[4]
backward:
  %g, %ds, %db = layer_norm_grad %x, %d, %mean, %rstd, %scale {launch=2} : f32[4,8], f32[8], f32[8]
  %t = add %g, %a {cluster=2 launch=2} : f32[4,8]
  %low = cast %t {cluster=2 launch=2 to=f16} : f16[4,8]
  return %y, %t, %low, %ds, %db
}
`

// A norm reads trunk and branch and stores their sum, its gradient is added to the trunk's: one launch
// each, which moves every tensor once, if the graph says that they are.
func TestRowNormsJoin(t *testing.T) {
	for name, c := range map[string]struct {
		change  []string
		joined  [2]bool // before, after
		forward int64   // bytes of the forward launch
	}{
		"joined":            {nil, [2]bool{true, true}, 128 + 64 + 2*32 + 128 + 64 + 2*16},
		"x in f16":          {[]string{"%x = add %a, %w {cluster=1 launch=1} : f32[4,8]", "%s = add %a, %w {cluster=1 launch=1} : f32[4,8]\n  %x = cast %s {cluster=1 launch=1 to=f16} : f16[4,8]", "%g, %ds", "%h, %ds", "%scale {launch=2} : f32[4,8], f32[8], f32[8]\n", "%scale {launch=2 out=f16} : f16[4,8], f32[8], f32[8]\n  %g = cast %h {cluster=2 launch=2 to=f32} : f32[4,8]\n"}, [2]bool{true, true}, 128 + 64 + 2*32 + 64 + 64 + 2*16},
		"g is returned too": {[]string{"return %y,", "return %y, %g,"}, [2]bool{true, true}, 128 + 64 + 2*32 + 128 + 64 + 2*16},
		"no launches":       {[]string{" launch=1", "", " launch=2", "", "{launch=1 ", "{", " {launch=2}", ""}, [2]bool{false, false}, 128 + 2*32 + 64 + 2*16},
		"another shape": {[]string{"%t = add %g, %a {cluster=2 launch=2} : f32[4,8]\n  %low = cast %t {cluster=2 launch=2 to=f16} : f16[4,8]", "%v = reshape %g {shape=[16,2]} : f32[16,2]\n  %t = relu %v : f32[16,2]", "return %y, %t, %low", "return %y, %t"},
			[2]bool{true, false}, 128 + 64 + 2*32 + 128 + 64 + 2*16},
	} {
		g, err := ir.Parse(name, []byte(strings.NewReplacer(c.change...).Replace(rowNormSource)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p, err := lower.Lower(g, sm.Must("sm_90"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got [2]bool
		for i := range p.Parts[lower.Micro] {
			s := &p.Parts[lower.Micro][i]
			if s.Kernel == nil || !strings.HasPrefix(s.Kernel.Name, "layer_norm") {
				continue
			}
			got[0] = got[0] || s.Kernel.Fusion.Prologue != nil
			got[1] = got[1] || s.Kernel.Fusion.Epilogue != nil
			if s.Kernel.Name == "layer_norm" && s.Bytes != c.forward {
				t.Errorf("%s: forward moves %d bytes, want %d", name, s.Bytes, c.forward)
			}
		}
		if got != c.joined {
			t.Errorf("%s: joined before and after: %v, want %v\n%s", name, got, c.joined, p)
		}
	}
}
