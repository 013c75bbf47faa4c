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
