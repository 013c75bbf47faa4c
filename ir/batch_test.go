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

// The batch is the second size of the inputs of a recurrence whose steps come first, and of what has as
// many steps; where first sizes differ, it is the number that all inputs have first or second.
func TestRebatchOnOtherAxes(t *testing.T) {
	const weights = `
  param %w : f32[3,16]
  param %r : f32[1,4,16]
forward:
`
	const steps = `
  %four = reshape %xp {shape=[6,8,1,16]}
  %h, %c, %gates = lstm %four, %r, _, _
  %flat = reshape %h {shape=[48,4]}
  %back = reshape %flat {shape=[6,8,4]}
  %last = slice %back {axes=[0] starts=[5] ends=[6]}
  %rows = reshape %last {shape=[8,4]}
`
	for name, c := range map[string]struct {
		text string
		want map[string]string
	}{
		"targets of steps": {"input %x : f32[6,8,3]\n  input %y : i32[6,8]" + weights + "  %xp = matmul %x, %w" + steps + "  return %h, %y",
			map[string]string{"y": "i32[6,5]", "h": "f32[6,5,1,4]", "flat": "f32[30,4]", "back": "f32[6,5,4]", "rows": "f32[5,4]"}},
		"a target": {"input %x : f32[6,8,3]\n  input %y : i32[8]" + weights + "  %xp = matmul %x, %w" + steps + "  return %rows, %y",
			map[string]string{"y": "i32[5]", "rows": "f32[5,4]"}},
		"the batch first": {"input %x : f32[8,6,3]\n  input %y : i32[8,6]" + weights + "  %t = transpose %x {perm=[1,0,2]}\n  %xp = matmul %t, %w" + steps + "  return %rows, %y",
			map[string]string{"y": "i32[5,6]", "t": "f32[6,5,3]", "rows": "f32[5,4]"}},
		"no recurrence": {"input %x : f32[6,8,3]\n  input %y : i32[8]\nforward:\n  %s = reduce_sum %x {axes=[0]}\n  %b = broadcast %s {shape=[2,8,3]}\n  return %b, %y",
			map[string]string{"y": "i32[5]", "s": "f32[5,3]", "b": "f32[2,5,3]"}},
	} {
		g := parsed(t, "graph @t {\n  "+c.text+"\n}")
		if n := g.Batch(); n != 8 {
			t.Errorf("%s: batch %d", name, n)
			continue
		}
		if err := g.Rebatch(5); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for value, want := range c.want {
			if got := g.TypeString(g.Value(value).Type); got != want {
				t.Errorf("%s: %s is %s, want %s", name, value, got, want)
			}
		}
		if err := Verify(g, Source); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]int64{
		"input %x : f32[6,8]\n  input %y : f32[8,6]": 0, // both numbers are everywhere
		"input %x : f32[4,8]\n  input %y : f32[8,3]": 8,
		"input %x : f32[8,8]\n  input %y : f32[8]":   8,
	} {
		if got := parsed(t, "graph @t {\n  "+text+"\nforward:\n  return %x, %y\n}").Batch(); got != want {
			t.Errorf("%q: batch %d, want %d", text, got, want)
		}
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
