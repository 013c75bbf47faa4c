package ir

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

const small = `graph @t {
  dim N = 8
  input %x : f32[N,4]
  param %w : f32[4] = normal(0, 0.02)
  state %s : f32[4] = 0
  const %k : f32[2] = data(1, 2.5) {role=table}
forward:
  %y = mul %x, %w {of=%"a b" grad=%"a b" loss=ce} : f32[N,4]
  %"a b" = add %y, %w {of=%y pin=low cluster=2 written=%narrow,%"a c" out=f16} : f16[N,4]
update:
  %s' = mul %w, %w
  return %y
}
`

func TestTextRoundTrip(t *testing.T) {
	g, err := Parse("t.ir", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if got := g.String(); got != small {
		t.Errorf("printed\n%s\nwant\n%s", got, small)
	}
	if err := Verify(g, Training); err != nil {
		t.Error(err)
	}
	if err := Equal(g, g.Clone()); err != nil {
		t.Error(err)
	}
	if got := g.Body[Forward][1].Why.Casts; len(got) != 2 || got[0].Name != "narrow" || got[1].Name != "a c" {
		t.Errorf("written= reads as %v", got)
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"mul %x, %w {", "mull %x, %w {", `t.ir:8: unknown op "mull", did you mean "mul"?`},
		{"mul %x, %w {", "mul %x {", "t.ir:8: mul: takes 2 operands (a, b), got 1"},
		{"mul %x, %w {", "mul %x, %z {", "t.ir:8: %z is used before it is defined"},
		{`: f32[N,4]
  %"a`, `: f32[N,5]
  %"a`, "t.ir:8: mul: result is f32[N,4], text says f32[N,5]"},
		{`of=%"a b"`, "of=%z", "t.ir:8: %z is used before it is defined"},
		{`of=%"a b"`, "of=%x", "t.ir:8: of=%x is not the result of a node"},
		{`grad=%"a b"`, "grad=%z", "t.ir:8: %z is used before it is defined"},
		{"%s' =", "%y' =", "t.ir:11: %y': there is no variable %y"},
		{"f32[4] = normal", "f32[99999999999999999] = normal", "t.ir:4: [99999999999999999] holds more than 17592186044416 elements"},
	} {
		src := strings.Replace(small, c.from, c.to, 1)
		if src == small {
			t.Fatalf("%q is not in the text", c.from)
		}
		if _, err := Parse("t.ir", []byte(src)); err == nil || err.Error() != c.want {
			t.Errorf("%q: got %v, want %s", c.to, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(foreignText))
	for _, dir := range []string{"ops", "errors"} { // a node of every row, and what is wrong with one
		paths, _ := filepath.Glob("../testdata/" + dir + "/*.txtar")
		for _, p := range paths {
			a, err := txtar.ParseFile(p)
			if err != nil {
				f.Fatal(err)
			}
			for _, file := range a.Files {
				f.Add(file.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		g, err := Parse("f.ir", src)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
			return
		}
		again, err := Parse("f.ir", []byte(g.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, g)
		}
		if err := Equal(g, again); err != nil {
			t.Fatal(err)
		}
	})
}
