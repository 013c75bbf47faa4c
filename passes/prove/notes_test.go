package prove_test

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/passes"
	"ampc/passes/prove"
)

// Casts that repeat another, or change nothing, are notes: the step is proved
// with them, and each is named.
func TestRepeatedCastsAreNotes(t *testing.T) {
	const head = "graph @t {\n  input %x : f32[4,4]\n  param %w : f32[4,4] = normal(0, 0.1)\nforward:\n"
	const plain = head + "  %y = matmul %x, %w : f32[4,4]\n  %z = relu %y : f32[4,4]\n  return %y, %z\n}\n"
	const cast = head + `  %x.f16 = cast %x {to=f16} : f16[4,4]
  %x.again = cast %x {to=f16} : f16[4,4]
  %w.f16 = cast %w {to=f16} : f16[4,4]
  %y = matmul %x.f16, %w.f16 {out=f32} : f32[4,4]
  %y.again = matmul %x.again, %w.f16 {out=f32} : f32[4,4]
  %y.f32 = cast %y.again {to=f32} : f32[4,4]
  %z = relu %y.f32 : f32[4,4]
  return %y, %z
}
`
	p := passes.MixedF16()
	source, err := ir.Parse("plain.ir", []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	final, err := ir.Parse("cast.ir", []byte(cast))
	if err != nil {
		t.Fatal(err)
	}
	if found := prove.Prove(source, final, p.ProofRules(source, ir.Caps{}, false)); len(found) > 0 {
		t.Errorf("findings: %v", found)
	}
	var notes []string
	for _, n := range prove.Notes(final) {
		notes = append(notes, n.String())
	}
	for _, want := range []string{"%x is cast to f16 again: %x.f16 is the same", "casts f32 to itself", "casts a weight once for every micro-batch"} {
		if !strings.Contains(strings.Join(notes, "\n"), want) {
			t.Errorf("no note says %q: %q", want, notes)
		}
	}
	if len(notes) != 3 {
		t.Errorf("%d notes: %q", len(notes), notes)
	}
}
