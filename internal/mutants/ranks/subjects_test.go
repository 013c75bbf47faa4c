// Package ranks holds mutants of the steps that several ranks take together: steps that a
// faulty compiler could make of the same models.
package ranks

import (
	"fmt"
	"math"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/passes"
	"ampc/passes/prove"
)

// proof is what prove is given beside a step: the training graph that it was made of, nil:
// none, and what the policy admits.
type proof struct {
	training *ir.Graph
	rules    prove.Rules
}

// subject is a compiled step of several ranks whose mutants are judged.
type subject struct {
	// alone is the step by itself, sourced beside its training graph, as Train proves it.
	// Messages are in the training graph: faults of the pass that places them are seen alone.
	alone, sourced proof
	name           string
	text           string    // of the compiled step, the same on all ranks
	plain          *ir.Graph // the compiled step, nil before it has passed
	ranks          int
	micro          int
	batch          func(step, from, n int) map[string]*eval.Tensor // rows by their number in the batch of all ranks
	rows           int                                             // of one micro-batch of one rank
}

// classifier has dropout, a bias, and labels that may be absent: -1.
const classifier = `graph @classifier {
  input %x : f32[2,6]
  input %y : i32[2]
  param %w : f32[6,8] = normal(0, 0.3)
  param %b : f32[8] = 0
  param %v : f32[8,5] = normal(0, 0.3)
  state %seed : i64[] = 5 {role=seed}
  state %attempt : i32[] = 0 {role=attempt}
forward:
  %h = linear %x, %w, %b : f32[2,8]
  %a = tanh %h : f32[2,8]
  %t = dropout %a {seed=%seed attempt=%attempt p=0.3 rng=1} : f32[2,8]
  %z = matmul %t, %v : f32[2,5]
  %sum, %count = cross_entropy %z, %y {ignore=-1} : f32[], f32[]
  %loss = div %sum, %count : f32[]
  return %loss
}
`

// tied is a language model whose head shares the table of its words.
const tied = `graph @tied {
  input %ids : i32[2,3]
  input %y : i32[2,3]
  param %table : f32[40,4] = normal(0, 0.3)
forward:
  %e = embedding %table, %ids : f32[2,3,4]
  %t = tanh %e : f32[2,3,4]
  %z = linear %t, %table {tb} : f32[2,3,40]
  %sum, %count = cross_entropy %z, %y {ignore=-1} : f32[], f32[]
  %loss = div %sum, %count : f32[]
  return %loss
}
`

func images(step, from, n int) map[string]*eval.Tensor {
	x, y := eval.New(ir.T(ir.F32, ir.Dim(n), 6)), eval.New(ir.T(ir.I32, ir.Dim(n)))
	for i := range n {
		row := step*1000 + from + i
		for k := range 6 {
			x.F[i*6+k] = float64(float32(math.Sin(float64(row*7+k*3) * 1.7)))
		}
		y.I[i] = int64(row*5%6) - 1
	}
	return map[string]*eval.Tensor{"x": x, "y": y}
}

func sentences(step, from, n int) map[string]*eval.Tensor {
	ids, y := eval.New(ir.T(ir.I32, ir.Dim(n), 3)), eval.New(ir.T(ir.I32, ir.Dim(n), 3))
	for i := range 3 * n {
		at := step*1000 + 3*from + i
		ids.I[i], y.I[i] = int64(at*at%37), int64(at*5%41)-1
	}
	return map[string]*eval.Tensor{"ids": ids, "y": y}
}

// model is what subjects are compiled of.
type model struct {
	name, text string
	batch      func(step, from, n int) map[string]*eval.Tensor
}

// arrangement is how ranks train a model.
type arrangement struct {
	name, policy string
	ranks, micro int
	edit         func(c *passes.Config)
}

// subjects compiles the models in the arrangements that ranks have.
func subjects(t *testing.T) []*subject {
	t.Helper()
	var all []*subject
	for _, m := range []model{{"classifier", classifier, images}, {"tied", tied, sentences}} {
		for _, a := range []arrangement{
			{"2 ranks", "mixed-f16", 2, 1, func(c *passes.Config) {}},
			{"4 ranks, clip and average", "mixed-bf16", 4, 1, func(c *passes.Config) { c.Clip.Norm, c.EMA, c.Parallel.Bucket = 0.5, 0.9, 1 }},
			{"2 ranks, 3 micro-batches, drop", "mixed-f16", 2, 3, func(c *passes.Config) { c.BadMicro = passes.DropMicro }},
			{"2 ranks, 16-bit messages", "mixed-f16", 2, 1, func(c *passes.Config) { c.Parallel.Message = ir.F16 }},
			{"2 ranks, 8 slices", "mixed-f16", 2, 4, func(c *passes.Config) { c.Parallel.Slices = 8 }},
		} {
			all = append(all, m.arranged(t, a))
		}
	}
	return all
}

// arranged compiles the model.
func (m model) arranged(t *testing.T, a arrangement) *subject {
	t.Helper()
	g, err := ir.Parse(m.name+".ir", []byte(m.text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := passes.PolicyNamed(a.policy)
	if err != nil {
		t.Fatal(err)
	}
	c := passes.Config{Policy: p, Train: true, Training: passes.Training{
		Groups: []passes.Group{{Optimizer: passes.AdamW(0.01), LR: passes.Constant(0.01)}}, Micro: a.micro, Parallel: passes.Parallel{Ranks: a.ranks},
	}}
	a.edit(&c)
	var training *ir.Graph
	c.Source = func(t *ir.Graph) { training = t }
	if err := passes.Run(g, c); err != nil {
		t.Fatal(err)
	}
	return &subject{name: m.name + ", " + a.name, text: g.String(), alone: proof{nil, c.Policy.ProofRules(nil, ir.Caps{}, false)}, sourced: proof{training, c.Policy.ProofRules(training, ir.Caps{}, false)},
		ranks: a.ranks, micro: a.micro, batch: m.batch, rows: 2}
}

// step parses the compiled step, for one rank or one mutant.
func (s *subject) step() (*ir.Graph, error) {
	g, err := ir.Parse("step.ir", []byte(s.text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return g, nil
}
