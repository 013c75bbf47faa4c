package ir

import (
	"strings"
	"testing"
)

const foreignText = `graph @f {
  dim N
  input %x : f32[N,4]
  input %c : bool[]
  param %w : f32[4]
forward:
  %s = foreign %x, _ {alpha=[0.5,1.0] domain=ai.onnx op=Shrink to=f16} : f32[N,4]
  %y = foreign %c | %s, %w {else_branch=graph @no {
    forward:
      %b = relu %s : f32[N,4]
      return %b
    } op=If then_branch=graph @yes {
    forward:
      %a = add %s, %w : f32[N,4]
      return %a
    }} : f32[*]
  %z = exp %y : f32[*]
  return %z
}
`

// A foreign node keeps everything of the text, and its nested graphs follow
// the values they capture through copies, renames and replacements.
func TestForeignText(t *testing.T) {
	g, err := Parse("f.ir", []byte(foreignText))
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(g, Source); err != nil {
		t.Error(err)
	}
	again, err := Parse("f.ir", []byte(g.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, g)
	}
	if err := Equal(g, again); err != nil {
		t.Error(err)
	}
	y := g.Value("y").Def
	if len(y.Captured) != 2 || y.Captured[0] != g.Value("s") || y.Captured[1] != g.Var("w") {
		t.Fatalf("captured %v", y.Captured)
	}
	if u := g.Uses().Of(g.Value("s")); len(u) != 1 || u[0].Arg() != -1 {
		t.Errorf("uses of %%s: %v", u)
	}
}

func TestForeignCapturesFollowEdits(t *testing.T) {
	g, err := Parse("f.ir", []byte(foreignText))
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(g *Graph){
		"rename":  func(g *Graph) { Edit(g).Rename(g.Value("s"), "shrunk") },
		"replace": func(g *Graph) { g.Replace(map[*Value]*Value{g.Value("s"): g.Var("x")}) },
	} {
		c := g.Clone()
		edit(c)
		text := c.String()
		back, err := Parse("f.ir", []byte(text))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		if err := Equal(c, back); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(text, "relu %s ") {
			t.Errorf("%s: the nested graph still reads %%s:\n%s", name, text)
		}
		if !strings.Contains(g.String(), "relu %s ") {
			t.Errorf("%s: the original changed with its copy:\n%s", name, g)
		}
	}
}
