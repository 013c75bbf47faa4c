package passes

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/passes/ranges"
)

// labelled is a classifier whose rows may have no label: -1.
const labelled = `graph @labelled {
  input %%x : f32[%[1]d,6]
  input %%y : i32[%[1]d]
  param %%w : f32[6,8] = normal(0, 0.3)
  param %%b : f32[8] = 0
  param %%v : f32[8,5] = normal(0, 0.3)
  state %%seed : i64[] = 5 {role=seed}
  state %%attempt : i32[] = 0 {role=attempt}
forward:
  %%h = linear %%x, %%w, %%b : f32[%[1]d,8]
  %%a = tanh %%h : f32[%[1]d,8]
  %%t = dropout %%a {seed=%%seed attempt=%%attempt p=0.3 rng=1} : f32[%[1]d,8]
  %%z = matmul %%t, %%v : f32[%[1]d,5]
  %%sum, %%count = cross_entropy %%z, %%y {ignore=-1} : f32[], f32[]
  %%loss = div %%sum, %%count : f32[]
  return %%loss
}
`

// batches are rows of data for the graph labelled, drawn by their number in the global batch.
func batches(step, from, n int) map[string]*eval.Tensor {
	x := eval.New(ir.T(ir.F32, ir.Dim(n), 6))
	y := eval.New(ir.T(ir.I32, ir.Dim(n)))
	for r := range n {
		row := step*1000 + from + r
		for k := range 6 {
			x.F[r*6+k] = float64(float32(math.Sin(float64(row*7+k*3) * 1.7)))
		}
		y.I[r] = int64(row*5%6) - 1
	}
	return map[string]*eval.Tensor{"x": x, "y": y}
}

func ranksConfig(p Policy, ranks, micro int) Config {
	return Config{Policy: p, Train: true, Training: Training{
		Groups: []Group{{Optimizer: AdamW(0.01), LR: Constant(0.01)}}, Clip: Clip{Norm: 0.5}, EMA: 0.9, Micro: micro,
		Parallel: Parallel{Ranks: ranks, Bucket: 100},
	}, Debugging: Debugging{Check: true}, Compiling: Compiling{Prove: true}}
}

// TestRanksTakeTheStepOfOne: ranks that share a batch end with the weights of one process
// that has all of it, and with the same bits on every rank.
func TestRanksTakeTheStepOfOne(t *testing.T) {
	const rows, steps = 8, 5
	for _, p := range []Policy{{}, mustPolicy(t, "mixed-f16"), mustPolicy(t, "mixed-bf16")} {
		for _, micro := range []int{1, 2} {
			want := runRanks(t, p, 1, micro, rows, steps)[0]
			for _, ranks := range []int{2, 4} {
				t.Run(fmt.Sprintf("%s/%d ranks, %d micro", p.Name, ranks, micro), func(t *testing.T) {
					got := runRanks(t, p, ranks, micro, rows, steps)
					for name, w := range want {
						if v := got[0][name]; v != nil && w.Type.DType == ir.F32 {
							tolerance := 1e-6
							if p.Name != "" {
								tolerance = 2e-3
							}
							for i := range w.F {
								if math.Abs(v.F[i]-w.F[i]) > tolerance*(1+math.Abs(w.F[i])) {
									t.Fatalf("%s[%d] is %g, in one process %g", name, i, v.F[i], w.F[i])
								}
							}
						}
						for r, other := range got[1:] {
							for i := range w.F {
								if math.Float64bits(other[name].F[i]) != math.Float64bits(got[0][name].F[i]) {
									t.Fatalf("%s[%d] is %g on rank %d and %g on rank 0", name, i, other[name].F[i], r+1, got[0][name].F[i])
								}
							}
						}
					}
				})
			}
		}
	}
}

func mustPolicy(t *testing.T, name string) Policy {
	t.Helper()
	p, err := PolicyNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runRanks runs steps with the evaluator and returns each rank's variables that outlive them.
func runRanks(t *testing.T, p Policy, ranks, micro, rows, steps int) []map[string]*eval.Tensor {
	t.Helper()
	env, _ := runOn(t, labelled, batches, ranksConfig(p, ranks, micro), rows, steps)
	return env
}

// runOn runs steps of a graph on its ranks and returns their variables and the graph. The
// text takes the rows of a rank, batch makes rows by their number in the global batch.
func runOn(t *testing.T, text string, batch func(step, from, n int) map[string]*eval.Tensor, c Config, rows, steps int) ([]map[string]*eval.Tensor, *ir.Graph) {
	t.Helper()
	ranks, micro := max(c.Parallel.Ranks, 1), max(c.Micro, 1)
	each := rows / ranks
	g, err := ir.Parse("ranks.ir", fmt.Appendf(nil, text, each))
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(g, c); err != nil {
		t.Fatal(err)
	}
	env := make([]map[string]*eval.Tensor, ranks)
	for r := range env {
		env[r] = map[string]*eval.Tensor{}
	}
	for s := range steps {
		feeds := make([][]map[string]*eval.Tensor, ranks)
		for r := range feeds {
			for m := range micro {
				feeds[r] = append(feeds[r], batch(s*micro+m, r*each, each))
			}
		}
		results, err := eval.Ranks(slices.Repeat([]*ir.Graph{g}, ranks), env, feeds, eval.Options{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		for r, res := range results {
			for name, v := range res.Next {
				if role, _ := g.Var(name).Attr.Get("role").(string); role != "acc" {
					env[r][name] = v
				}
			}
		}
	}
	return env, g
}

// tied is a language model whose head shares the table of its sentences.
const tied = `graph @tied {
  input %%ids : i32[%[1]d,3]
  input %%y : i32[%[1]d,3]
  param %%table : f32[40,4] = normal(0, 0.3)
forward:
  %%e = embedding %%table, %%ids : f32[%[1]d,3,4]
  %%t = tanh %%e : f32[%[1]d,3,4]
  %%z = linear %%t, %%table {tb} : f32[%[1]d,3,40]
  %%sum, %%count = cross_entropy %%z, %%y {ignore=-1} : f32[], f32[]
  %%loss = div %%sum, %%count : f32[]
  return %%loss
}
`

func sentences(step, from, n int) map[string]*eval.Tensor {
	ids, y := eval.New(ir.T(ir.I32, ir.Dim(n), 3)), eval.New(ir.T(ir.I32, ir.Dim(n), 3))
	for i := range 3 * n {
		at := step*1000 + 3*from + i
		ids.I[i], y.I[i] = int64(at*at%37), int64(at*5%41)-1
	}
	return map[string]*eval.Tensor{"ids": ids, "y": y}
}

// TestLookupsAreGathered: of a table that a head shares, the head's gradient is sent at
// once, the rows that lookups add are gathered, and what is learnt is what one process
// learns. Where the rows are longer than the table, the table is sent.
func TestLookupsAreGathered(t *testing.T) {
	for _, p := range []Policy{{}, mustPolicy(t, "mixed-f16")} {
		want, _ := runOn(t, tied, sentences, ranksConfig(p, 1, 1), 8, 4)
		for _, k := range []int{2, 4} {
			got, g := runOn(t, tied, sentences, ranksConfig(p, k, 1), 8, 4)
			if n := nodesOf(g, ir.OpAllGather); n != 2 {
				t.Errorf("%s: %d ranks gather %d tensors, want rows and ids\n%s", p.Name, k, n, g)
			}
			for r := range got {
				for i, x := range got[r]["table"].F {
					if x != got[0]["table"].F[i] {
						t.Fatalf("%s: element %d is %g on rank %d, %g on rank 0", p.Name, i, x, r, got[0]["table"].F[i])
					}
					if y := want[0]["table"].F[i]; math.Abs(x-y) > 2e-3*(1+math.Abs(y)) {
						t.Fatalf("%s: element %d is %g on %d ranks, %g in one process", p.Name, i, x, k, y)
					}
				}
			}
		}
	}
	if _, g := runOn(t, tied, sentences, ranksConfig(Policy{}, 2, 1), 40, 1); nodesOf(g, ir.OpAllGather) != 0 {
		t.Errorf("60 rows of 4 are gathered for a table of 40 rows\n%s", g)
	}
	if _, g := runOn(t, tied, sentences, ranksConfig(Policy{}, 2, 2), 8, 1); nodesOf(g, ir.OpAllGather) != 0 {
		t.Errorf("a sum over micro-batches is gathered\n%s", g)
	}
}

// Gradients in 16-bit messages are divided by the power of two that the number of ranks asks for, and
// recorded ranges beyond those of the dtype; or by the one that is given.
func TestMessagesAreDivided(t *testing.T) {
	for _, c := range []struct {
		ranks, shift int
		message      ir.DType
		reach        float64
		want         int64
	}{
		{2, 0, ir.F16, 0, 1}, {8, 0, ir.F16, 0, 3}, {5, 0, ir.BF16, 0, 3}, {8, 0, ir.F32, 0, 0}, {8, 5, ir.F16, 1e6, 5},
		{2, 0, ir.F16, 60000, 1}, {2, 0, ir.F16, 3e5, 4}, {2, 0, ir.BF16, 3e5, 1},
	} {
		config := ranksConfig(Policy{}, c.ranks, 1)
		config.Parallel.Message, config.Parallel.Shift = c.message, c.shift
		if c.reach > 0 {
			config.Ranges.Recorded = map[string]ranges.Recorded{"d.b": {Lo: -c.reach, Hi: 1, Elements: 1}}
		}
		g, err := ir.Parse("ranks.ir", fmt.Appendf(nil, labelled, 4))
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(g, config); err != nil {
			t.Fatal(err)
		}
		most := int64(0)
		for s, n := range g.Nodes {
			if s == ir.Backward && n.Op == ir.OpAllReduce {
				most = max(most, n.Int("shift"))
			}
		}
		if most != c.want {
			t.Errorf("%+v: divided by 2^%d, want 2^%d\n%s", c, most, c.want, g)
		}
	}
}
