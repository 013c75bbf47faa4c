package lower_test

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// two layers backward: the gradients of weights lag behind, those of
// activations are the chain.
const layered = `graph @layered {
  input %x : f32[64,32]
  param %a : f32[32,32] = 0.5
  param %b : f32[32,32] = 0.5
forward:
  %h = matmul %x, %a : f32[64,32]
  %r = relu %h : f32[64,32]
  %y = matmul %r, %b : f32[64,32]
backward:
  %dy = affine %y {scale=2} : f32[64,32]
  %db = matmul %r, %dy {ta} : f32[32,32]
  %dr = matmul %dy, %b {tb} : f32[64,32]
  %dh = relu_grad %dr, %r : f32[64,32]
  %da = matmul %x, %dh {ta} : f32[32,32]
  %dx = matmul %dh, %a {tb} : f32[64,32]
  %top = square %dx : f32[64,32]
update:
  %a' = add %a, %da
  %b' = add %b, %db
  return %top
}
`

func lowered(t *testing.T, source, target string) *lower.Program {
	t.Helper()
	g, err := ir.Parse("test.ir", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	p, err := lower.Lower(g, sm.Must(target))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStreams wants gradients of weights, and nothing else, on the second
// stream, and a program that is refused when any of its waits is gone.
func TestStreams(t *testing.T) {
	p := lowered(t, layered, "sm_90")
	var aside []string
	waits := 0
	steps := p.Parts[lower.Micro]
	for i := range steps {
		waits += len(steps[i].Wait)
		if steps[i].Stream != 0 {
			aside = append(aside, steps[i].Node.Name)
		}
	}
	if got := strings.Join(aside, " "); got != "%db %da" || waits == 0 {
		t.Errorf("on the second stream: %s; %d waits\n%s", got, waits, p)
	}
	for i := range steps {
		for k := range steps[i].Wait {
			kept := steps[i].Wait
			steps[i].Wait = append(append([]lower.EventID(nil), kept[:k]...), kept[k+1:]...)
			if err := lower.Verify(p); err == nil || !strings.Contains(err.Error(), "nothing orders them") {
				t.Errorf("without a wait of step %d: %v", i, err)
			}
			steps[i].Wait = kept
		}
	}
	if p := lowered(t, layered, "cpu"); p.Events != 0 {
		t.Errorf("%d events on the CPU", p.Events)
	}
}
