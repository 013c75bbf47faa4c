package ir

import (
	"strings"
	"testing"
)

// Sizes follow the batch, also those that attributes name. A size that does not is refused.
func TestRebatch(t *testing.T) {
	g := parsed(t, `graph @t {
  input %x : f32[8,6,4]
  input %y : i32[8]
  param %w : f32[24,8]
forward:
  %flat = reshape %x {shape=[8,24]}
  %h = matmul %flat, %w
  %rows = reshape %x {shape=[48,4]}
  %sum = reduce_sum %rows {axes=[0]}
  return %h, %rows, %sum
}`)
	if g.Batch() != 8 {
		t.Fatalf("batch %d", g.Batch())
	}
	if err := g.Rebatch(5); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"y": "i32[5]", "flat": "f32[5,24]", "h": "f32[5,8]", "rows": "f32[30,4]", "sum": "f32[4]"} {
		if got := g.TypeString(g.Value(name).Type); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if err := Verify(g, Source); err != nil {
		t.Error(err)
	}
	for code, want := range map[string]string{
		"%z = transpose %x {perm=[1,0,2]}\n  %s = reduce_sum %x {axes=[0,1]}\n  %t = reshape %x {shape=[6,8,4]}\n  return %z, %s, %t": "elements",
		"%z = slice %x {starts=[0] ends=[8]}\n  return %z": "%z is computed from the inputs and has 8 rows",
	} {
		g := parsed(t, "graph @t {\n  input %x : f32[8,6,4]\nforward:\n  "+code+"\n}")
		if err := g.Rebatch(16); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", code, err, want)
		}
	}
	if g := parsed(t, "graph @t {\n  input %x : f32[8]\n  input %y : f32[4]\nforward:\n  return %x, %y\n}"); g.Batch() != 0 || g.Rebatch(2) == nil {
		t.Error("two first sizes are a batch")
	}
}

func parsed(t *testing.T, text string) *Graph {
	t.Helper()
	g, err := Parse("t.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return g
}
