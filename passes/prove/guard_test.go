package prove_test

import (
	"fmt"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/ir"
	"ampc/passes"
	"ampc/passes/prove"
)

const plain = `graph @plain {
  input %x : f32[4,3]
  input %y : i32[4]
  param %w : f32[3,5] = normal(0, 1)
  param %b : f32[5] = 0
forward:
  %h = linear %x, %w, %b : f32[4,5]
  %sum, %count = cross_entropy %h, %y : f32[], f32[]
  %loss = div %sum, %count : f32[]
  %reg = reduce_sum %b : f32[]
  return %loss, %reg
}
`

// variants are the arrangements that faults are put into.
var variants = map[string]func(c *passes.Config){
	"plain": func(c *passes.Config) {},
	"micro": func(c *passes.Config) { c.Micro = 3 },
	"drop":  func(c *passes.Config) { c.Micro, c.BadMicro = 3, passes.DropMicro },
	"clip":  func(c *passes.Config) { c.Clip = passes.Clip{Norm: 1} },
	"value": func(c *passes.Config) { c.Clip = passes.Clip{Value: 1} },
	"two": func(c *passes.Config) {
		reg := passes.Dynamic()
		c.Losses = append(c.Losses, passes.Loss{Scaler: &reg}) // of the second result
		c.Disable = []string{"scalers"}                        // the scale of reg, which no f16 value carries, stays
	},
	"collect": func(c *passes.Config) { c.Scaler = passes.Dynamic(); c.Scaler.Sharing = passes.Collect },
	"advance": func(c *passes.Config) { c.Scaler = passes.Dynamic(); c.Scaler.Sharing = passes.Advance },
	"ema":     func(c *passes.Config) { c.EMA = 0.9 },
	"torch":   func(c *passes.Config) { c.Scaler = passes.TorchScaler() },
	"static":  func(c *passes.Config) { c.Scaler = passes.Static(1024) },
	"sgd":     func(c *passes.Config) { c.Groups = []passes.Group{{Optimizer: passes.SGD(0), LR: passes.Constant(1)}} },
	"hook": func(c *passes.Config) {
		c.Gradients = func(b *ir.Builder, gs []passes.GradOf) []passes.GradOf {
			for i := range gs {
				gs[i].Grad = b.Sub(gs[i].Grad, b.ReduceMean(gs[i].Grad, true))
			}
			return gs
		}
	},
	"shards": func(c *passes.Config) {
		c.Parallel, c.EMA, c.Clip.Norm = passes.Parallel{Ranks: 2, Shard: true, Bucket: 4}, 0.9, 1
	},
	"ranks":        func(c *passes.Config) { c.Parallel = passes.Parallel{Ranks: 4, Bucket: 1} },
	"ranks lookup": func(c *passes.Config) { c.Parallel = passes.Parallel{Ranks: 2} },
	"ranks drop":   func(c *passes.Config) { c.Parallel.Ranks, c.Micro, c.BadMicro = 4, 3, passes.DropMicro },
	"ranks clip":   func(c *passes.Config) { c.Parallel.Ranks, c.Clip, c.EMA = 4, passes.Clip{Norm: 1}, 0.9 },
	"ranks 16":     func(c *passes.Config) { c.Parallel = passes.Parallel{Ranks: 4, Message: ir.F16} },
	"slices":       func(c *passes.Config) { c.Parallel, c.Micro = passes.Parallel{Ranks: 2, Slices: 8}, 4 },
	"slices norms": func(c *passes.Config) { c.Parallel, c.Micro = passes.Parallel{Ranks: 2, Slices: 8, SyncNorms: true}, 4 },
	"norms alone":  func(c *passes.Config) { c.Parallel, c.Micro = passes.Parallel{Slices: 4, SyncNorms: true}, 4 },
	"low":          func(c *passes.Config) { c.Policy = mustPolicy("o3-f16") },
}

func mustPolicy(name string) passes.Policy {
	p, err := passes.PolicyNamed(name)
	if err != nil {
		panic(err)
	}
	return p
}

// step compiles plain in a variant, without the annotations that text has not.
func step(t *testing.T, variant string) (string, prove.Rules) {
	t.Helper()
	text := plain
	switch variant {
	case "ranks lookup":
		text = lookup
	case "slices norms", "norms alone":
		text = normed
	}
	g, err := ir.Parse("plain.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := passes.Config{
		Policy: mustPolicy("mixed-f16"),
		Train:  true,
		Training: passes.Training{
			Losses: []passes.Loss{{}},
			Groups: []passes.Group{{Optimizer: passes.Adam(), LR: passes.Cosine(1e-3, 10, 100)}},
		},
	}
	variants[variant](&c)
	for i := range c.Losses {
		c.Losses[i].Value = g.Return[i]
	}
	if err := passes.Run(g, c); err != nil {
		t.Fatal(err)
	}
	return g.String(), c.Policy.ProofRules(nil, ir.Caps{}, false)
}

// guarding are the rules that this file's faults are for.
var guarding = map[string]bool{"skip": true, "checked": true, "select": true, "scaler": true, "ranks": true}

func judged(t *testing.T, name, text string, r prove.Rules) (found []prove.Finding) {
	t.Helper()
	g, err := ir.Parse(name+".ir", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, f := range prove.Prove(nil, g, r) {
		if guarding[f.Check] {
			found = append(found, f)
		}
	}
	return found
}

func TestGuardedStepsAreProved(t *testing.T) {
	for variant := range variants {
		text, r := step(t, variant)
		for _, f := range judged(t, variant, text, r) {
			t.Errorf("%s: %s\n%s", variant, f, text)
		}
	}
}

// fault changes one place of a step's text: every "a" becomes "b".
type fault struct{ name, variant, a, b string }

var faults = []fault{
	{"and for or where skips are joined", "plain", "%skip = or ", "%skip = and "},
	{"and for or over micro-batches", "micro", "%skip = or ", "%skip = and "},
	{"xor for or", "plain", "%skip = or ", "%skip = xor "},
	{"and for or between losses", "two", "%or_2 = or ", "%or_2 = and "},
	{"or for and over micro-batches that are left out", "drop", "%skip = or %or, %none_kept", "%skip = and %or, %none_kept"},
	{"negated skip", "plain", "%skip = or %found_inf, %fwd : bool[]", "%skip.not = or %found_inf, %fwd : bool[]\n  %skip = not %skip.not : bool[]"},
	{"negated check", "plain", "%skip = or %found_inf, %fwd : bool[]", "%good = not %found_inf : bool[]\n  %skip = or %good, %fwd : bool[]"},
	{"skip that always holds", "plain", "%skip = or %found_inf, %fwd", "%good = not %fwd : bool[]\n  %skip = or %fwd, %good"},
	{"skip that never holds", "plain", "%skip = or %found_inf, %fwd", "%good = not %fwd : bool[]\n  %skip = and %fwd, %good"},
	{"check of signs", "plain", "%found_inf = any_nonfinite %d.w, %d.b", "%sign = sign %d.w : f32[3,5]\n  %found_inf = any_nonfinite %sign, %d.b"},
	{"check of a comparison", "plain", "%found_inf = any_nonfinite %d.w, %d.b", "%same = eq %d.w, %d.w : bool[3,5]\n  %ones = cast %same {to=f32} : f32[3,5]\n  %found_inf = any_nonfinite %ones, %d.b"},
	{"check of a part", "plain", "%found_inf = any_nonfinite %d.w, %d.b", "%part = slice %d.w {starts=[0] ends=[2]} : f32[2,5]\n  %found_inf = any_nonfinite %part, %d.b"},
	{"check of the largest element", "plain", "%found_inf = any_nonfinite %d.w, %d.b", "%top = reduce_max %d.w {axes=[0,1]} : f32[]\n  %found_inf = any_nonfinite %top, %d.b"},
	{"check of a clipped gradient", "plain", "%found_inf = any_nonfinite %d.w, %d.b", "%limited = clip %d.w {lo=-1.0 hi=1.0} : f32[3,5]\n  %found_inf = any_nonfinite %limited, %d.b"},
	{"check of weights", "plain", "any_nonfinite %d.w, %d.b", "any_nonfinite %d.w, %d.b, %w"},
	{"gradient without a check", "plain", "any_nonfinite %d.w, %d.b", "any_nonfinite %d.b"},
	{"gradient without a check in micro-batches", "micro", "any_nonfinite %amp.acc/w, %amp.acc/b", "any_nonfinite %amp.acc/b"},
	{"check of the last micro-batch alone", "micro", "any_nonfinite %amp.acc/w, %amp.acc/b", "any_nonfinite %d.w, %d.b"},
	{"loss without a check", "plain", "%fwd = any_nonfinite %loss", "%fwd = any_nonfinite %d.b"},
	{"norm without a check", "clip", ", %grad_norm : bool", " : bool"},
	{"rounding after the check", "plain", "adam %w, %d.w,", "adam %w, %d.w.f16,"},
	{"truth value of a state in the skip", "plain", "%skip = or %found_inf, %fwd", "%flag = gt %amp.step, %amp.step : bool[]\n  %now = or %flag, %fwd : bool[]\n  %skip = or %found_inf, %now"},
	{"accumulator that never starts", "micro", "accum %amp.acc/w, %d.w {first=%micro.first}", "accum %amp.acc/w, %d.w {first=%micro.never}"},
	{"accumulator that starts in the second micro-batch", "micro", "%micro.first = eq %amp.micro, %amp.zero", "%micro.first = eq %amp.micro, %amp.one"},
	{"accumulator that starts in every micro-batch", "micro", "%micro.first = eq %amp.micro, %amp.zero", "%micro.first = eq %amp.micro, %amp.micro"},
	{"accumulator that takes what is not finite", "drop", "accum %amp.acc/w, %d.w {first=%micro.none ok=%micro.ok}", "accum %amp.acc/w, %d.w {first=%micro.none ok=%micro.bad}"},
	{"accumulator that takes every micro-batch", "drop", "accum %amp.acc/w, %d.w {first=%micro.none ok=%micro.ok}", "accum %amp.acc/w, %d.w {first=%micro.none}"},
	{"accumulator that starts at 0 although that was left out", "drop", "accum %amp.acc/w, %d.w {first=%micro.none ok", "accum %amp.acc/w, %d.w {first=%micro.first ok"},
	{"count of all micro-batches", "drop", "%amp.acc.kept' = count %micro.kept {skip=%micro.bad}", "%amp.acc.kept' = count %micro.kept"},
	{"count of the bad micro-batches", "drop", "%amp.acc.kept' = count %micro.kept {skip=%micro.bad}", "%amp.acc.kept' = count %micro.kept {skip=%micro.ok}"},
	{"no micro-batch left, and a step", "drop", "%none_kept = eq %amp.acc.kept, %amp.zero", "%none_kept = lt %amp.acc.kept, %amp.zero"},
	{"skip forgotten", "plain", "%w', %amp.adam.m/w', %amp.adam.v/w' = adam %w, %d.w, %amp.adam.m/w, %amp.adam.v/w {lr=%amp.lr.now skip=%skip ", "%w', %amp.adam.m/w', %amp.adam.v/w' = adam %w, %d.w, %amp.adam.m/w, %amp.adam.v/w {lr=%amp.lr.now "},
	{"counter without a skip", "plain", "count %amp.step {skip=%skip}", "count %amp.step"},
	{"counter with the skip of another loss", "two", "count %amp.step.2 {skip=%skip.2}", "count %amp.step.2 {skip=%skip}"},
	{"correction with the skip of another loss", "two", "bias_correction %amp.bias.0.9.2 {skip=%skip.2 ", "bias_correction %amp.bias.0.9.2 {skip=%skip "},
	{"average with part of the skip", "ema", "%amp.ema/w' = ema %amp.ema/w, %w' {steps=%amp.ema.steps skip=%skip ", "%amp.ema/w' = ema %amp.ema/w, %w' {steps=%amp.ema.steps skip=%fwd "},
	{"launched steps that are skipped", "plain", "%amp.attempt' = count %amp.attempt", "%early = ne %amp.step, %amp.step : bool[]\n  %amp.attempt' = count %amp.attempt {skip=%early}"},
	{"moments that change places", "plain", "%w', %amp.adam.m/w', %amp.adam.v/w' = adam", "%w', %amp.adam.v/w', %amp.adam.m/w' = adam"},
	{"micro-batches left out for some gradients alone", "drop", "%micro.bad = any_nonfinite %sum, %d.w, %d.b", "%micro.bad = any_nonfinite %sum, %d.b"},
	{"micro-batches left out for signs", "drop", "%micro.bad = any_nonfinite %sum, %d.w, %d.b", "%micro.sign = sign %d.w : f32[3,5]\n  %micro.bad = any_nonfinite %sum, %micro.sign, %d.b"},
	{"loss asked for NaN alone", "plain", "%fwd = any_nonfinite %loss", "%fwd = isnan %loss"},
	{"scale told of nothing", "plain", "{found_inf=%found_inf fwd", "{found_inf=%no fwd"},
	{"scale told always", "plain", "{found_inf=%found_inf fwd", "{found_inf=%yes fwd"},
	{"scale told the contrary", "plain", "{found_inf=%found_inf fwd", "{found_inf=%fine fwd"},
	{"scale told of the loss as an overflow", "plain", "{found_inf=%found_inf fwd=%fwd", "{found_inf=%fwd fwd=%found_inf"},
	{"scale told nothing of the loss", "plain", "fwd=%fwd cap", "cap"},
	{"scale told of one of two gradients", "plain", "{found_inf=%found_inf fwd", "{found_inf=%found_b fwd"},
	{"scale told of another scale's gradients", "two", "{found_inf=%found_inf.amp.reg fwd", "{found_inf=%found_inf fwd"},
	{"scale not told of what was left out", "drop", "{found_inf=%overflow fwd", "{found_inf=%found_inf fwd"},
	{"note forgets", "collect", "%amp.noted' = or %amp.noted, ", "%amp.noted' = and %amp.noted, "},
	{"note of nothing", "collect", "%amp.noted' = or %amp.noted, %amp.noted.now", "%amp.noted' = or %amp.noted, %amp.noted"},
	{"note of the contrary", "collect", "%amp.fwd_ok = not %fwd", "%amp.fwd_ok = not %found_inf"},
	{"note without a reader", "advance", "= or %found_inf, %amp.noted", "= or %found_inf, %found_inf"},
}

// helpers are values that some faults read: they stand before the skip.
const helpers = `  %no = ne %found_inf, %found_inf : bool[]
  %yes = eq %found_inf, %found_inf : bool[]
  %fine = not %found_inf : bool[]
  %found_b = any_nonfinite %d.b : bool[]
  %d.w.f16 = cast %d.w {to=f16} : f16[3,5]
`

func TestGuardFaults(t *testing.T) {
	var b strings.Builder
	texts, rules := map[string]string{}, map[string]prove.Rules{}
	for _, f := range faults {
		if texts[f.variant] == "" {
			texts[f.variant], rules[f.variant] = step(t, f.variant)
			t.Log(texts[f.variant])
		}
		text := strings.Replace(texts[f.variant], "  %skip = or ", helpers+"  %skip = or ", 1)
		text = strings.Replace(text, "  %micro.first = eq", "  %micro.never = ne %amp.micro, %amp.micro : bool[]\n  %micro.first = eq", 1)
		if !strings.Contains(text, f.a) {
			t.Errorf("%s: the step has no %q\n%s", f.name, f.a, text)
			continue
		}
		found := judged(t, "fault", strings.ReplaceAll(text, f.a, f.b), rules[f.variant])
		if len(found) == 0 {
			t.Errorf("%s: passes", f.name)
		}
		fmt.Fprintf(&b, "%s (%s)\n", f.name, f.variant)
		for _, x := range found {
			x.Pos = ir.Pos{}
			fmt.Fprintf(&b, "    %s\n", x)
		}
	}
	golden.File(t, "testdata/guard.txt", b.String())
}
