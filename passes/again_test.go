package passes

import (
	"slices"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// The gradient of a batch norm does not read the result of the ReLU behind the norm, which follows from x: the plan
// has no traffic for it, and no launch names it. Where y depends on something else, it is read.
func TestGradientsComputeReLUsAgain(t *testing.T) {
	const source = `graph @again {
  input %x : f32[4,8,3,3]
  input %z : f32[4,8,3,3]
  input %d : f32[4,8,3,3]
  param %s : f32[8] = 1
  param %b : f32[8] = 0
forward:
  %h, %m, %r = batch_norm %x, %s, %b : f32[4,8,3,3], f32[8], f32[8]
  %y = relu %h : f32[4,8,3,3]
backward:
  %dy = relu_grad %d, %y : f32[4,8,3,3]
  %dx, %ds, %db = batch_norm_grad %x, %dy, %m, %r, %s : f32[4,8,3,3], f32[8], f32[8]
  return %y, %dx, %ds
}
`
	readsOf(t, source, "y", map[string]changed{
		"on sm_70":                   {"sm_70/nodnn", nil, false},
		"on sm_90":                   {"sm_90", nil, false},
		"behind a sum":               {"sm_90", []string{"  %y = relu %h", "  %sum = add %h, %z : f32[4,8,3,3]\n  %y = relu %sum"}, true},
		"of another tensor":          {"sm_90", []string{"batch_norm_grad %x", "batch_norm_grad %z"}, true},
		"with other statistics":      {"sm_90", []string{"%m, %r, %s :", "%b, %r, %s :"}, true},
		"where another node makes y": {"sm_90", []string{"%y = relu %h", "%y = exp %h"}, true},
	})
}

// changed is a source with replacements, compiled for a target, and whether launches of its micro part
// read a tensor.
type changed struct {
	target string
	change []string
	read   bool
}

// readsOf compiles each of cases, and lowers the graph and what its text says. The cut says what the clusters move.
func readsOf(t *testing.T, source, tensor string, cases map[string]changed) {
	t.Helper()
	for name, c := range cases {
		g, err := ir.Parse(name, []byte(strings.NewReplacer(c.change...).Replace(source)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cut, moved, _, ok := countedUnder(t, g, MixedF16(), sm.Must(c.target))
		if !ok || cut != moved {
			t.Errorf("%s: the cut says %d bytes, the clusters move %d\n%s", name, cut, moved, g)
		}
		again, err := ir.Parse(name, []byte(g.String()))
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range []*ir.Graph{g, again} {
			p, err := lower.Lower(g, sm.Must(c.target))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			read := slices.ContainsFunc(p.Parts[lower.Micro], func(s lower.Step) bool {
				return slices.ContainsFunc(s.In, func(id lower.BufferID) bool { return id != lower.None && p.Buffers[id].Name == tensor })
			})
			if read != c.read {
				t.Errorf("%s: a launch reads %s: %v, want %v\n%s", name, tensor, read, c.read, p)
			}
		}
	}
}
