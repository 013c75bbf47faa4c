package ir

import (
	"strings"
	"testing"
)

// A graph with a custom op reads back without its definition, and prints as it was.
func TestParseOpaque(t *testing.T) {
	src := `graph @g {
  input %x : f32[4,8]
  const %g : f32[] = 0.1
forward:
  %h = relu %x : f32[4,8]
  %y, %n = @gate %h, %g {mode="soft" times=2} : f16[4,8], i32[]
  %z = @gate %h : f32[2]
  return %y
}
`
	g, err := ParseOpaque("t.ir", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	if got := g.String(); got != src && strings.ReplaceAll(got, "mode=soft", `mode="soft"`) != src {
		t.Errorf("prints as\n%s", got)
	}
	if n := Opaque(g); n == nil || n.Def().Name != "gate" {
		t.Errorf("the custom op is %v", n)
	}
	if _, err := Parse("t.ir", []byte(src)); err == nil || !strings.Contains(err.Error(), "t.ir:6: unknown custom op @gate") {
		t.Errorf("Parse without the definition: %v", err)
	}
	for bad, want := range map[string]string{
		strings.Replace(src, " : f32[2]", "", 1):  "t.ir:7: custom op @gate: its definition is not at hand, so the text must say the types of its results",
		strings.Replace(src, "f16[4,8], ", "", 1): "t.ir:6: gate: 2 results",
	} {
		if _, err := ParseOpaque("t.ir", []byte(bad)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// A gradient in the text that reads what the op does not have is an error of the
// op that asks for it, whatever the names are.
func TestOpaqueGradients(t *testing.T) {
	for declared, want := range map[string]string{
		"input %x0": "", "input %d0": "", "input %y0": "",
		"input %x1": "%x1", "input %d7": "%d7", `input %"x-1"`: "x-1", "input %other": "%other", "param %x0": "%x0",
	} {
		name := declared[strings.IndexByte(declared, '%'):]
		g, err := ParseOpaque("t.ir", []byte(`graph @g {
  input %x : f32[4]
forward:
  %y = @gate %x {op.class=promote op.gradient=graph @gradient {
      `+declared+` : f32[4]
    forward:
      %g = neg `+name+` : f32[4]
      return %g
    } op.wrt=[0,-1]} : f32[4]
}
`))
		if err != nil {
			t.Fatalf("%s: %v", declared, err)
		}
		n := g.Body[Forward][0]
		b := Edit(g).In(Backward)
		grads := n.Custom.Grad(b, n, []*Value{n.Out[0]})
		switch {
		case want == "" && (b.Err() != nil || len(grads) != 1 || grads[0] == nil || grads[0].Def.Op != OpNeg):
			t.Errorf("%s: %v, %v", declared, grads, b.Err())
		case want != "" && (b.Err() == nil || !strings.Contains(b.Err().Error(), "gate: its gradient reads") || !strings.Contains(b.Err().Error(), want)):
			t.Errorf("%s: %v, want %s", declared, b.Err(), want)
		}
	}
}
