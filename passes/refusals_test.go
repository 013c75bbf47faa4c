package passes

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"ampc/ir"
)

// Constants that are not numbers, infinite, or out of range are refused one by one, in words of one form.
func TestBadConstants(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	sgd := oneGroup(SGD(0), Constant(0.1))
	adam := func(edit func(*Optimizer)) Config {
		o := AdamW(0.1)
		edit(&o)
		return Config{Training: Training{Groups: oneGroup(o, Constant(0.1))}}
	}
	rate := func(s Schedule) Config { return Config{Training: Training{Groups: oneGroup(SGD(0), s)}} }
	least := func(x float64) Schedule { return Schedule{Rate: 1, Kind: CosineRate, Total: 10, Min: x} }
	for _, c := range []struct {
		cfg  func(x float64) Config
		bad  []float64
		want string // %s: the number
	}{
		{func(x float64) Config { return rate(Constant(x)) }, []float64{nan, inf, -inf, -1}, "learning rate %s: want a finite number, 0 or more"},
		{func(x float64) Config { return rate(least(x)) }, []float64{nan, inf, -1, 2}, "cosine schedule: least share %s: want a number from 0 to 1"},
		{func(x float64) Config { return rate(Schedule{Rate: 1, Kind: StepRate, Drop: x, Every: 5}) }, []float64{nan, inf, -1, 0}, "step schedule: drop %s: want a finite number above 0"},
		{func(x float64) Config { return Config{Training: Training{Groups: oneGroup(SGD(x), Constant(1))}} }, []float64{nan, inf, -1, 1}, "sgd: momentum %s: want a number from 0 to below 1"},
		{func(x float64) Config { return adam(func(o *Optimizer) { o.Decay = x }) }, []float64{nan, inf, -inf, -1}, "adamw: decay %s: want a finite number, 0 or more"},
		{func(x float64) Config { return adam(func(o *Optimizer) { o.Eps = x }) }, []float64{nan, inf, -1, 1e39}, "adamw: epsilon %s: want a finite number, 0 or more"},
		{func(x float64) Config { return adam(func(o *Optimizer) { o.Beta1 = x }) }, []float64{nan, inf, -1, 1}, "adamw: beta1 %s: want a number from 0 to below 1"},
		{func(x float64) Config { return adam(func(o *Optimizer) { o.Beta2 = x }) }, []float64{nan, inf, -1, 1}, "adamw: beta2 %s: want a number from 0 to below 1"},
		{func(x float64) Config { return Config{Training: Training{Groups: sgd, Clip: Clip{Norm: x}}} }, []float64{nan, inf, -inf, -1}, "clip: norm %s: want a finite number, 0 or more"},
		{func(x float64) Config { return Config{Training: Training{Groups: sgd, Clip: Clip{Value: x}}} }, []float64{nan, inf, -inf, -1}, "clip: value %s: want a finite number, 0 or more"},
		{func(x float64) Config { return Config{Training: Training{Groups: sgd, EMA: x}} }, []float64{nan, inf, -1, 1}, "EMA decay %s: want a number from 0 to below 1"},
		{func(x float64) Config {
			return Config{Training: Training{Groups: sgd, Losses: []Loss{{Value: named("loss"), Weight: x}}}}
		}, []float64{nan, inf, -inf}, "loss %%loss: weight %s: want a finite number"},
		{func(x float64) Config { return Config{Training: Training{Groups: sgd, Micro: int(x)}} }, []float64{-1, 1 << 40}, "micro-batches: want 1 to 16777216"},
	} {
		for _, x := range c.bad {
			want := c.want
			if strings.Contains(want, "%s") {
				want = fmt.Sprintf(want, fmt.Sprintf("%g", x))
			}
			if _, _, err := compileStep(pairText, c.cfg(x)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	sgd := oneGroup(SGD(0), Constant(0.1))
	ownScaler := Dynamic()
	low := func(o Optimizer, d ir.DType) []Group { o.StateDType = d; return oneGroup(o, Constant(0.1)) }
	for _, c := range []struct {
		text string
		cfg  Config
		want string
	}{
		{pairText, Config{Training: Training{Losses: []Loss{{Value: named("out")}}, Groups: sgd}}, `test.ir:7: loss %out is f32[4,2], want f32[]: reduce it to one number`},
		{strings.Replace(pairText, "linear %x, %l.w, %l.b : f32[4,2]\n", "linear %x, %l.w, %l.b : f32[4,2]\n  %size = reduce_mean %x : f32[]\n", 1),
			Config{Training: Training{Losses: []Loss{{Value: named("loss")}, {Value: named("size"), Scaler: &ownScaler}}, Groups: sgd}}, `no trained parameter is in the loss %size: leave it out, or make it an output`},
		{pairText, Config{Training: Training{Losses: []Loss{{Value: named("lost")}}, Groups: sgd}}, `loss 1: %lost is not a value of graph @pair`},
		{pairText, Config{Training: Training{Losses: []Loss{{Value: named("loss"), Weight: math.Inf(-1)}}, Groups: sgd}}, `loss %loss: weight -Inf: want a finite number`},
		{pairText, Config{Training: Training{Name: "a.b", Groups: sgd}}, `step name "a.b": want letters, digits, _ and - alone`},
		{pairText, Config{Training: Training{Name: "lr", Groups: sgd}}, `step name "lr": the compiler names a variable so; choose another`},
		{pairText, Config{Outputs: []Output{{Kind: OfGradient, Value: named("x")}}, Training: Training{Groups: sgd}}, `gradient of %x: this step computes none, or one for each of several scalers`},
		{pairText, Config{Training: Training{Groups: []Group{{Optimizer: SGD(0)}}}}, `no learning rate: give LR, such as Constant(1e-3)`},
		{pairText, Config{Training: Training{Groups: []Group{{Pattern: "l", Optimizer: SGD(0), LR: Constant(-1)}}}}, `group "l": learning rate -1: want a finite number, 0 or more`},
		{pairText, Config{Training: Training{Groups: []Group{{Pattern: "m.*", Optimizer: SGD(0), LR: Constant(0)}}}}, `group 1: pattern "m.*" matches no parameter; the first ones are l.w, l.b`},
		{pairText, Config{Training: Training{Groups: append(sgd, Group{Pattern: "l", Optimizer: SGD(0), LR: Constant(0)})}}, `group 2: pattern "l" matches only parameters that an earlier group has taken, such as %l.w`},
		{pairText, Config{Training: Training{Groups: []Group{{}}}}, `no optimizer: give SGD, Adam or AdamW, or Freeze the group`},
		{pairText, Config{}, `graph @pair: no optimizer: give Optimizer and LR, or Groups`},
		{pairText, Config{Training: Training{Groups: []Group{{Freeze: true}}}}, `graph @pair: no group trains any parameter`},
		{pairText, Config{Training: Training{Groups: oneGroup(SGD(0), Cosine(0.1, 10, 10))}}, `cosine schedule: 10 steps in all, 10 of them warm-up: want more`},
		{pairText, Config{Training: Training{Groups: low(Adam(), ir.F16)}}, `adam: state in f16: the square of a gradient under 2.4e-4 is 0 there`},
		{pairText, Config{Training: Training{Groups: low(AdamW(0), ir.BF16)}}, `adamw: beta2 0.999 with state in bf16: a moment times 0.999 rounds back to itself, so it never falls; use f32`},
		{pairText, Config{Training: Training{Groups: sgd, NoSkip: true, Parallel: Parallel{Ranks: 2, Message: ir.F16}}}, `messages in f16 and NoSkip: nothing would notice a gradient that overflows there`},
		{pairText, Config{Training: Training{Groups: sgd, NoSkip: true, Scaler: Dynamic()}}, `a dynamic scaler needs the check that NoSkip leaves out`},
		{pairText, Config{Training: Training{Groups: sgd}, Outputs: []Output{{Value: named("nothing")}}}, `output 1: %nothing is not a value of graph @pair`},
		{strings.Replace(pairText, "param %l.b", "param %l.spare : f32[2] = 0\n  param %l.b", 1), Config{Training: Training{Groups: []Group{{Pattern: "l", Optimizer: SGD(0), LR: Constant(0)}}}},
			`no loss depends on parameter %l.spare: freeze it or leave it out of the groups`},
		{strings.Replace(pairText, "linear %x, %l.w, %l.b : f32[4,2]\n", "linear %x, %l.w, %l.b : f32[4,2]\n  %steps = floor %out : f32[4,2]\n", 1),
			Config{Training: Training{Losses: []Loss{{Value: named("loss")}}, Groups: sgd}}, ""},
	} {
		_, _, err := compileStep(c.text, c.cfg)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("refused: %v", err)
		case c.want == "":
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%v, want %q", err, c.want)
		case strings.Contains(err.Error(), "\n"):
			t.Errorf("%q is more than a line", err)
		}
	}
}
