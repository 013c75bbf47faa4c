package ir_test

import (
	"strings"
	"testing"

	"ampc/ir"
)

// Names say whose gradient a value is, grad= what they do not say, and both
// read back.
func TestGradOfReadsBack(t *testing.T) {
	const text = `graph @t {
  input %x : f32[4]
  param %w : f32[4] = 1
forward:
  %h = mul %x, %w : f32[4]
  %y = relu %h : f32[4]
  %s = reduce_sum %y {axes=[0]} : f32[]
backward:
  %one = full {shape=[4] value=1} : f32[4]
  %d.h = relu_grad %one, %y : f32[4]
  %other = mul %d.h, %x {grad=%w} : f32[4]
  %d.aux.y = neg %other {loss=aux} : f32[4]
  %d.x = neg %d.h {grad=_} : f32[4]
  return %s, %other, %d.x, %d.aux.y
}
`
	g, err := ir.Parse("t.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]string{"one": "_", "d.h": "%h", "other": "%w", "d.aux.y": "%y", "d.x": "_", "h": "_"} {
		if got := g.Value(name).GradOf.String(); got != of {
			t.Errorf("%%%s is the gradient of %s, want %s", name, got, of)
		}
	}
	if got := g.String(); got != text {
		t.Errorf("got\n%s", got)
	}
	c := g.Clone()
	if v := c.Value("other"); v.GradOf != c.Var("w") {
		t.Errorf("a clone's gradient is of %p, want its own variable %p", v.GradOf, c.Var("w"))
	}
	c.Value("d.h").Name = "renamed"
	if got := c.String(); !strings.Contains(got, "%renamed = relu_grad %one, %y {grad=%h}") {
		t.Errorf("a renamed gradient is printed as\n%s", got)
	}
	if ir.Equal(g, c) == nil {
		t.Error("a renamed value makes no difference")
	}
}
