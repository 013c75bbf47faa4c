package passes

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// lossSource has a loss whose gradient depends on the count of labels.
const lossSource = `graph @loss {
  input %x : f32[4,8]
  input %y : i32[4]
  input %z : i32[4]
  param %w : f32[8,8] = normal(0, 0.5)
  param %v : f32[8] = normal(0, 0.5)
forward:
  %h = matmul %x, %w : f32[4,8]
  %sum, %count = cross_entropy %h, %y : f32[], f32[]
  %loss = div %sum, %count : f32[]
backward:
  %k = div %v, %count : f32[8]
  %one = reduce_sum %k : f32[]
  %dh = cross_entropy_grad %h, %y, %one : f32[4,8]
  %dw = matmul %x, %dh {ta} : f32[8,8]
  return %loss, %dw
}
`

// A loss and its gradient run in one launch where no path leads from the one to the other: a node of
// its own then counts the labels. The cut says what the launches move.
func TestLossesRunWithTheirGradients(t *testing.T) {
	for name, c := range map[string]struct {
		target string
		change []string
		want   string
	}{
		"all":                      {"sm_90", nil, "sum+dh"},
		"before sm_80":             {"sm_70/nodnn", nil, "sum+dh"},
		"on the CPU":               {"cpu", nil, "k+one"}, // a sum and what it adds up
		"the count alone is read":  {"sm_90", []string{"return %loss,", "return %count,", "%sum, %count", "%other, %count", "  %loss = div %sum, %count : f32[]\n", ""}, ""},
		"the count is not read":    {"sm_90", []string{"%loss = div %sum, %count", "%loss = div %sum, %one2", "%k = div %v, %count", "%k = exp %v", "  %loss", "  %one2 = reduce_sum %v : f32[]\n  %loss"}, "sum+dh"},
		"the count is returned":    {"sm_90", []string{"return %loss,", "return %count, %loss,"}, "sum+dh"},
		"classes first":            {"sm_90", []string{"cross_entropy %h, %y", "cross_entropy %h, %z {axis=0}", "cross_entropy_grad %h, %y, %one", "cross_entropy_grad %h, %z, %one {axis=0}", "%z : i32[4]", "%z : i32[8]"}, "sum+dh"},
		"the gradient reads it":    {"sm_90", []string{"%k = div %v, %count", "%k = div %v, %loss"}, ""},
		"of other labels":          {"sm_90", []string{"cross_entropy_grad %h, %y", "cross_entropy_grad %h, %z"}, ""},
		"with another attribute":   {"sm_90", []string{"%h, %y, %one", "%h, %y, %one {smoothing=0.5}"}, ""},
		"the loss is in a message": {"sm_90", []string{"%loss = div %sum, %count", "%all = all_reduce %sum {ranks=2 seq=1} : f32[]\n  %loss = div %all, %count"}, ""},
	} {
		g, err := ir.Parse(name, []byte(strings.NewReplacer(c.change...).Replace(lossSource)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cut, target := 0, sm.Must(c.target)
		cfg := Config{Policy: MixedF16(), Debugging: Debugging{Only: precisionPasses, Check: true}, Compiling: Compiling{Caps: target.Caps()}}
		cfg.After = func(e Event) { cut += e.Counters["cut_bytes"] }
		mustRun(t, g, cfg)
		if got := launchesOf(g); got != c.want {
			t.Errorf("%s: the launches are %q, want %q\n%s", name, got, c.want, g)
		}
		p, err := lower.Lower(g, target)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, g)
		} else if moved := int(p.ClusterBytes(1)); cut != moved && c.target != "cpu" {
			t.Errorf("%s: the cut says %d bytes, the clusters move %d\n%s", name, cut, moved, g)
		}
	}
}

// Without passes there is no plan, and nothing runs together: every node is a step of its own.
func TestSourceGraphsRunNodeByNode(t *testing.T) {
	for _, target := range []lower.Target{lower.CPU, sm.Must("sm_70/nodnn"), sm.Must("sm_90")} {
		g, err := ir.Parse("loss.ir", []byte(lossSource))
		if err != nil {
			t.Fatal(err)
		}
		p, err := lower.Lower(g, target)
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		if nodes := g.NumNodes(); len(p.Planned) != nodes {
			t.Errorf("%s: %d clusters of %d nodes\n%s", target, len(p.Planned), nodes, p)
		}
	}
}
