package lower

import (
	"strings"
	"testing"
)

// Lowering repairs no cluster: what no kernel runs as one step is an error, and so
// are clusters of which each reads what the other computes.
func TestClustersThatNoKernelRuns(t *testing.T) {
	for what, c := range map[string]struct{ body, want string }{
		"two shapes": {`  %a = exp %x {cluster=1} : f32[8,4]
  %b = exp %s {cluster=1} : f32[]
`, "cluster 1, %a to %b: no kernel of cpu runs these 2 nodes together"},
		"a reduction of columns": {`  %a = exp %x {cluster=1} : f32[8,4]
  %b = reduce_sum %a {cluster=1 axes=[0]} : f32[4]
`, "no kernel of cpu runs these 2 nodes together"},
		"a product of what its cluster computes": {`  %c = exp %w {cluster=1} : f32[4,4]
  %d = matmul %c, %w {cluster=1} : f32[4,4]
  %a = exp %x : f32[8,4]
  %b = reduce_sum %d : f32[]
`, "no kernel of cpu runs these 2 nodes together"},
		"a cycle": {`  %a = exp %x {cluster=1} : f32[8,4]
  %c = neg %a {cluster=2} : f32[8,4]
  %d = abs %c {cluster=1} : f32[8,4]
  %e = sqrt %d {cluster=2} : f32[8,4]
  %b = reduce_sum %e : f32[]
`, "clusters of part micro wait for each other"},
	} {
		g := parse(t, "graph @g {\n  input %x : f32[8,4]\n  input %w : f32[4,4]\n  input %s : f32[]\nforward:\n"+c.body+"  return %a, %b\n}\n")
		if _, err := Lower(g, CPU); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := LowerReplay(g, Replay{Nodes: true, Spread: true}); err != nil {
			t.Errorf("%s, node by node: %v", what, err)
		}
	}
}

// A kernel whose post-ops another target runs is a step of its own, and its post-ops are one.
func TestPostOpsOfAnotherTarget(t *testing.T) {
	g := parse(t, `graph @g {
  input %dy : f32[6,4]
  input %ids : i32[6]
  input %x : f32[8,4]
forward:
  %d = embedding_grad %dy, %ids {cluster=1 rows=8} : f32[8,4]
  %s = add %x, %d {cluster=1} : f32[8,4]
  %r = relu %s {cluster=1} : f32[8,4]
  return %r
}
`)
	p, err := Lower(g, CPU)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(p); err != nil || len(p.Parts[Micro]) != 2 || p.Parts[Micro][1].Kind != KindCluster {
		t.Errorf("%d steps, want the kernel and its post-ops; %v", len(p.Parts[Micro]), err)
	}
}

// A replay that shows what a norm's kernel keeps to itself runs the nodes of that
// cluster one by one.
func TestReplayShowsInsideANorm(t *testing.T) {
	g := parse(t, `graph @g {
  input %x : f32[2,3,4,4]
  input %r : f32[2,3,4,4]
  param %s : f32[3]
  param %b : f32[3]
forward:
  %n, %mean, %rstd = instance_norm %x, %s, %b {cluster=1} : f32[2,3,4,4], f32[2,3], f32[2,3]
  %sum = add %n, %r {cluster=1} : f32[2,3,4,4]
  %y = relu %sum {cluster=1} : f32[2,3,4,4]
  return %y
}
`)
	for _, c := range []struct {
		show  []string
		steps int
	}{{nil, 1}, {[]string{"y"}, 1}, {[]string{"n"}, 3}} {
		p, err := LowerReplay(g, Replay{Show: c.show})
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(p); err != nil || len(p.Parts[Micro]) != c.steps {
			t.Errorf("showing %v: %d steps, want %d; %v", c.show, len(p.Parts[Micro]), c.steps, err)
		}
	}
}
