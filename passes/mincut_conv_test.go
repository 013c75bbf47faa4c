package passes

import (
	"fmt"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// A library that runs a convolution in f32 does not add its bias: the plan knows the second
// kernel, and lowering emits it.
func TestConvolutionsWithBias(t *testing.T) {
	const text = `graph @conv {
  input %x : f32[2,8,6,6]
  param %w : f32[4,8,3,3] = normal(0, 1)
  param %b : f32[4] = normal(0, 1)
forward:
  %h = exp %x : f32[2,8,6,6]
  %c = conv %h, %w, %b {PIN pads=PADS} : f32[2,4,OUT]
  %y = relu %c : f32[2,4,OUT]
  return %y
}`
	apart := map[string]bool{}
	for _, p := range []Policy{MixedF16(), MixedBF16(), withMincut(F32())} {
		for _, pin := range []string{"", "pin=f32", "pin=low"} {
			for pads, out := range map[string]string{"[1,1,1,1]": "6,6", "[1,0,1,1]": "6,5"} {
				for _, name := range gpus {
					source := strings.NewReplacer("PIN", pin, "PADS", pads, "OUT", out).Replace(text)
					g, err := ir.Parse("conv.ir", []byte(source))
					if err != nil {
						t.Fatal(err)
					}
					target := sm.Must(name)
					cut, moved, _, ok := countedUnder(t, g, p, target)
					if !ok || cut != moved {
						t.Errorf("%s, %s, pads %s on %s: the cut says %d bytes, the program moves %d\n%s", p.Name, pin, pads, name, cut, moved, fmt.Sprint(g))
					}
					program, err := lower.Lower(g, target)
					if err != nil {
						t.Fatal(err)
					}
					for _, s := range program.Parts[lower.Micro] {
						if s.Conv != nil && program.Buffers[s.Out[0]].Name == "c.sum" {
							apart[p.Name+" "+pin+" "+pads+" "+name] = true
						}
					}
				}
			}
		}
	}
	if len(apart) < 10 {
		t.Errorf("%d convolutions ran without their bias: %v", len(apart), apart)
	}
	for key := range apart {
		if strings.Contains(key, "nodnn") || strings.Contains(key, "[1,0,1,1]") {
			t.Errorf("%s: no library runs it", key)
		}
	}
}
