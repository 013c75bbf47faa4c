package e2e_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
)

// named finds what a report calls by name: values with their percent sign, what
// is read and what a gradient is of.
var named = regexp.MustCompile(`%([\w./-]+)|(?:reads|result|in f32|in bf16): ([\w./-]+) (?:f16|bf16|f32|i32)\b|gradient of ([\w./-]+)`)

// known reports whether a name is one of the model's: that of a value, of its
// gradient, of its copy in another dtype, or of a state of the step's.
func known(g *ir.Graph, name string) bool {
	for _, dtype := range []string{".f16", ".bf16", ".f32"} {
		name = strings.TrimSuffix(name, dtype)
	}
	if strings.HasPrefix(name, ir.Reserved) || g.Value(name) != nil {
		return true
	}
	for _, kind := range []string{"d.", "grad.", "adam.", "den."} { // of a loss, inside the forward pass, in lowAdam's update
		of, ok := strings.CutPrefix(name, kind)
		for ; ok && of != ""; of = of[:max(strings.LastIndexByte(of, '.'), 0)] { // d.x.affine is a part of d.x
			if g.Value(of) != nil {
				return true
			}
		}
	}
	return false
}

// Every value that a report names is one of the model's, as its builder wrote it
// down, and every scope is one that a value has.
func TestReportsNameWhatExists(t *testing.T) {
	huge := innerScale
	defer func() { innerScale = huge }()
	all := append(faults(), moreFaults()...)
	all = append(all, fault{name: "an inner scale beyond f16", layer: penaltyLayer, inject: func(w *subject, h string) {}})
	for _, i := range all {
		innerScale = huge
		if i.name == "an inner scale beyond f16" {
			innerScale = 0x1p17
		}
		for _, n := range []int{0, 1, 4} {
			t.Run(fmt.Sprint(i.name, "/", n), func(t *testing.T) {
				i.form = forms[n]
				w := i.open(t, ampc.MixedF16(), 3)
				w.run()
				d, g := w.diagnose(), w.m.Graph()
				for _, m := range named.FindAllStringSubmatch(d.String(), -1) {
					if name := m[1] + m[2] + m[3]; !known(g, name) {
						t.Errorf("no value is called %s:\n%s", name, d)
					}
				}
				if d.Of != "" && g.Value(d.Of) == nil {
					t.Errorf("a gradient of %s, which is not a value:\n%s", d.Of, d)
				}
				in := d.Scope == ""
				for _, v := range append(g.Vars, values(g)...) {
					in = in || strings.HasPrefix(v.Name, d.Scope+".")
				}
				if !in || strings.HasPrefix(d.Scope+".", ir.Reserved) {
					t.Errorf("no scope is called %s:\n%s", d.Scope, d)
				}
			})
		}
	}
}

func values(g *ir.Graph) (all []*ir.Value) {
	for _, n := range g.Nodes {
		all = append(all, n.Out...)
	}
	return all
}
