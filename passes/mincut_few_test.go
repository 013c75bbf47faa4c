package passes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// few are ops whose small graphs have many forms of one tensor: casts, moves, views, products, and
// elementwise ops between them.
var few = []ir.Op{
	ir.OpCast, ir.OpTranspose, ir.OpReshape, ir.OpSlice, ir.OpConcat, ir.OpMatmul,
	ir.OpMax, ir.OpAdd, ir.OpSub, ir.OpMul, ir.OpRelu, ir.OpEq, ir.OpGt, ir.OpWhere, ir.OpReduceMax,
}

// The cut says what small graphs of few ops move. Differences are a hundred times as frequent in
// them as in graphs of all ops.
func TestCutBytesOfFewOps(t *testing.T) {
	var others []ir.Op
	for _, op := range ir.Ops() {
		if !slices.Contains(few, op) {
			others = append(others, op)
		}
	}
	targets := []lower.Target{lower.CPU}
	for _, name := range gpus {
		targets = append(targets, sm.Must(name))
	}
	compared := 0
	for i := range 10 * uint64(*graphs) {
		seed := *firstSeed + i
		r := rand.New(rand.NewPCG(seed, 53))
		g := randomGraph(r, 3+r.IntN(10), seed%2 == 1, others...)
		source, target := g.String(), targets[seed/2%7]
		cut, moved, err := bytesOn(t, g, cutPolicies()[(seed/14+*phase)%4], target)
		switch {
		case err != nil:
			continue
		case cut != moved:
			t.Errorf("seed %d on %s: the cut says %d bytes, the program moves %d: %+d\n%s\nfrom\n%s", seed, target, cut, moved, cut-moved, g, source)
		}
		compared++
	}
	if compared < 9**graphs {
		t.Errorf("%d graphs compared", compared)
	}
}

// bytesOn is counted or countedUnder, by target.
func bytesOn(t *testing.T, g *ir.Graph, p Policy, target lower.Target) (cut, moved int64, err error) {
	if target == lower.CPU {
		return counted(t, g, Config{Policy: p, Debugging: Debugging{Only: precisionPasses}})
	}
	c, m, _, ok := countedUnder(t, g, p, target)
	if !ok {
		err = fmt.Errorf("%s does not run %s", target, g.Name)
	}
	return int64(c), int64(m), err
}

// Graphs whose bytes the cut got wrong once, under the trunk presets.
func TestCutBytesOfForms(t *testing.T) {
	const vars = `graph @forms {
  input %x : f32[8,8]
  input %h : f16[8,8]
  param %w : f32[8,8] = normal(0, 0.5)
  param %v : f32[8] = normal(0, 0.5)
  const %k : f32[] = 0.25
`
	for name, body := range map[string]string{
		"a row that reads the dtype that it stores, read in 16 bits alone": `forward:
  %a = reduce_max %w : f32[]
backward:
  %b = reduce_max %a {of=%a} : f32[]
  %c = add %b, %b : f32[]
  %d = add %v, %c {of=%a} : f32[8]
  %e = concat %d {axis=0} : f32[8]
  %f, %f.count = bce_with_logits %e, %e : f32[], f32[]
  return %f.count, %f`,
		"a transpose in f32 of a register that the caller gets": `forward:
  %a = add %h, %v : f32[8,8]
backward:
  %b = mul %a, %a {of=%a} : f32[8,8]
  %c = add %k, %b {of=%a} : f32[8,8]
  %d = transpose %b {perm=[1,0]} : f32[8,8]
  return %d, %b, %c`,
		"a view in f32 of a register that the caller gets": `forward:
  %a = relu %w : f32[8,8]
backward:
  %s = slice %a {of=%a axes=[0] ends=[4] starts=[0]} : f32[4,8]
  %b = relu %s {of=%a} : f32[4,8]
  %c = sub %k, %b : f32[4,8]
  %d = reshape %b {shape=[8,4]} : f32[8,4]
  return %b, %c, %d`,
		"the caller gets what a cluster rounds when it loads it": `backward:
  %a = cast %x {to=bf16} : bf16[8,8]
  %b = cast %a {to=f32} : f32[8,8]
  %c = sub %h, %a : f32[8,8]
  %d = sub %k, %c : f32[8,8]
  return %d, %b`,
		"a product that is read in 16 bits alone, and returned moved in f32": `forward:
  %a = add %w, %w : f32[8,8]
backward:
  %b = matmul %a, %a {tb} : f32[8,8]
  %c = concat %b, %a {axis=0} : f32[16,8]
  %d = transpose %c {of=%a perm=[1,0]} : f32[8,16]
  return %d`,
		"conversions that 16 bits make equal": `backward:
  %a = concat %v {axis=0} : f32[8]
  %b = slice %a {axes=[0] ends=[4] starts=[0]} : f32[4]
  %c = cast %b {to=bf16} : bf16[4]
  %d = cast %c {to=f16} : f16[4]
  %e = cast %b {to=f16} : f16[4]
  %f = slice %d {axes=[0] ends=[4] starts=[0]} : f16[4]
  %g = sub %f, %c : f32[4]
  %i = mul %b, %e : f32[4]
  return %e, %g, %i`,
		"a conversion of 16 bits to integers": `forward:
  %a = matmul %w, %w : f32[8,8]
  %b = cast %a {to=i32} : i32[8,8]
  %c = matmul %a, %w : f32[8,8]
  return %b, %c`,
		"a conversion of a register that the caller gets": `forward:
  %a = sub %k, %v : f32[8]
  %b = mul %a, %v : f32[8]
  %c = mul %b, %a : f32[8]
  %d = cast %b {to=bf16} : bf16[8]
backward:
  %e = sub %b, %d : f32[8]
  return %e, %c, %b`,
	} {
		for _, target := range append([]string{"cpu"}, gpus...) {
			for _, p := range cutPolicies() {
				on := lower.Target(lower.CPU)
				if target != "cpu" {
					on = sm.Must(target)
				}
				g, err := ir.Parse("forms.ir", []byte(vars+body+"\n}"))
				if err != nil {
					t.Fatal(err)
				}
				cut, moved, err := bytesOn(t, g, p, on)
				if err != nil || cut != moved {
					t.Errorf("%s, %s, %s: the cut says %d bytes, the program moves %d: %v\n%s", name, target, p.Name, cut, moved, err, g)
				}
			}
		}
	}
}
