package optim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/optim"
)

var shapes = [][]int{{5}, {4, 6}, {6, 4}, {2, 3, 2}}

// values are those of bench/torch/optim.py.
func values(n int, shift, size float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(size * float64(1+i%3) * math.Sin(1.7*float64(i*i)+shift))
	}
	return x
}

// stepper is a step whose gradients are fed: its loss is the sum of parameters
// times inputs.
type stepper struct {
	m      *ampc.Model
	step   *ampc.Step
	params []string
	sizes  []int
}

func newStepper(t *testing.T, c ampc.TrainConfig, shapes ...[]int) *stepper {
	t.Helper()
	m := ampc.New("m")
	t.Cleanup(func() { m.Close() })
	s := &stepper{m: m}
	var loss ampc.Tensor
	for i, shape := range shapes {
		n, dims := 1, []any{}
		for _, d := range shape {
			n *= d
			dims = append(dims, d)
		}
		name := string(rune('a' + i))
		start := values(n, 0.3, 0.5)
		init := make([]float64, n)
		for i, x := range start {
			init[i] = float64(x)
		}
		g := m.Input("g."+name, ampc.F32, dims...)
		term := m.ReduceSum(m.Mul(m.Param(name, ampc.Data(init...), shape...), g))
		if i == 0 {
			loss = term
		} else {
			loss = m.Add(loss, term)
		}
		s.params, s.sizes = append(s.params, name), append(s.sizes, n)
	}
	var err error
	if s.step, err = m.Train(c, ampc.Loss{Value: loss}); err != nil {
		t.Fatal(err)
	}
	return s
}

// run takes step number at, from 1 on.
func (s *stepper) run(t *testing.T, at int, change func(ampc.Feed)) ampc.Metrics {
	t.Helper()
	feed := ampc.Feed{}
	for i, name := range s.params {
		feed["g."+name] = values(s.sizes[i], 0.9*float64(at), 0.1)
	}
	if change != nil {
		change(feed)
	}
	r, err := s.step.Run(context.Background(), feed)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (s *stepper) read(t *testing.T, name string) []float32 {
	t.Helper()
	h, err := s.m.Variable(name)
	if err != nil {
		t.Fatal(err)
	}
	return h.Floats()
}

// recorded is what bench/torch/optim.py printed.
func recorded(t *testing.T) (r struct {
	Optimizers map[string]map[int][][]float32
	Schedules  map[string][]float64
}) {
	t.Helper()
	text, err := os.ReadFile("testdata/torch.json")
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cases are the optimizers of bench/torch/optim.py.
func cases() map[string]ampc.TrainConfig {
	c := func(rate float64, o ampc.Optimizer) ampc.TrainConfig {
		return ampc.TrainConfig{Optimizer: o, LR: ampc.Constant(rate)}
	}
	sgd, adam := ampc.SGD(0.9), ampc.Adam()
	sgd.Decay, adam.Decay = 0.01, 0.01
	return map[string]ampc.TrainConfig{
		"sgd":              c(0.1, sgd),
		"adam":             c(0.01, adam),
		"adamw":            c(0.01, ampc.AdamW(0.1)),
		"lion":             c(0.01, optim.Lion(optim.LionOptions{Decay: 0.1})),
		"rmsprop":          c(0.01, optim.RMSprop(optim.RMSpropOptions{})),
		"rmsprop-momentum": c(0.01, optim.RMSprop(optim.RMSpropOptions{Alpha: 0.9, Momentum: 0.9, Decay: 0.1})),
		"rmsprop-centered": c(0.01, optim.RMSprop(optim.RMSpropOptions{Centered: true})),
		"adafactor":        c(0.01, optim.Adafactor(optim.AdafactorOptions{})),
		"adafactor-decay":  c(1, optim.Adafactor(optim.AdafactorOptions{Clip: 1.5, Decay: 0.01})),
		"muon":             c(0.02, optim.Muon(optim.MuonOptions{Decay: 0.1})),
		"muon-plain":       c(0.02, optim.Muon(optim.MuonOptions{Plain: true, MatchAdamW: true})),
	}
}

// Twenty steps of each optimizer agree with PyTorch's, or with the paper's formulas
// in PyTorch, to 1e-6 of the largest weight, with and without casts and a loss scale.
func TestAgainstPyTorch(t *testing.T) {
	want := recorded(t).Optimizers
	all := cases()
	if len(want) != len(all) {
		t.Errorf("testdata has %d cases, this test %d", len(want), len(all))
	}
	scaled := ampc.MixedF16() // nothing here is a product, so all values stay f32
	for name, c := range all {
		for _, p := range []ampc.Policy{{}, scaled} {
			c.Policy = p
			list := shapes
			if strings.HasPrefix(name, "muon") {
				list = shapes[1:]
			}
			s := newStepper(t, c, list...)
			for at := 1; at <= 20; at++ {
				if s.run(t, at, nil).Skipped {
					t.Fatalf("%s %s: step %d is skipped", name, p.Name, at)
				}
				for i, w := range want[name][at] {
					if d := distance(s.read(t, s.params[i]), w); d > 1e-6 {
						t.Errorf("%s %s: step %d: %v differs from PyTorch's by %.1e", name, p.Name, at, list[i], d)
					}
				}
			}
		}
	}
}

// distance is the largest difference over the largest element.
func distance(got, want []float32) float64 {
	worst, top := 0.0, 0.0
	for i := range want {
		worst = max(worst, math.Abs(float64(got[i])-float64(want[i])))
		top = max(top, math.Abs(float64(want[i])))
	}
	return worst / top
}

// A step whose gradient is not finite changes no weight and no state, and the next
// one goes on as if it had not been.
func TestSkippedStepsChangeNothing(t *testing.T) {
	for name, c := range cases() {
		list := shapes[1:]
		plain, skipping := newStepper(t, c, list...), newStepper(t, c, list...)
		for at := 1; at <= 4; at++ {
			plain.run(t, at, nil)
			skipping.run(t, at, nil)
			inf := func(f ampc.Feed) { f["g.b"].([]float32)[3] = float32(math.Inf(1)) }
			if !skipping.run(t, at, inf).Skipped {
				t.Errorf("%s: an infinite gradient is not skipped", name)
			}
		}
		sameVariables(t, name, plain.m, skipping.m)
	}
}

// A checkpoint holds the states of a rule: a step that continues from one gives the
// bits of a step that was not interrupted.
func TestRulesContinueFromCheckpoints(t *testing.T) {
	for name, c := range cases() {
		whole, first, second := newStepper(t, c, shapes[1:]...), newStepper(t, c, shapes[1:]...), newStepper(t, c, shapes[1:]...)
		for at := 1; at <= 6; at++ {
			whole.run(t, at, nil)
			if at <= 3 {
				first.run(t, at, nil)
			}
		}
		path := filepath.Join(t.TempDir(), "checkpoint")
		if err := first.m.SaveFile(path); err != nil {
			t.Fatal(err)
		}
		if err := second.m.LoadFile(path); err != nil {
			t.Fatal(err)
		}
		for at := 4; at <= 6; at++ {
			second.run(t, at, nil)
		}
		sameVariables(t, name, whole.m, second.m)
	}
}

// sameVariables compares all variables but the count of launched steps.
func sameVariables(t *testing.T, what string, x, y *ampc.Model) {
	t.Helper()
	if !slices.Equal(x.Variables(), y.Variables()) {
		t.Fatalf("%s: variables %v and %v", what, x.Variables(), y.Variables())
	}
	for _, v := range x.Variables() {
		a, err := x.Variable(v)
		if err != nil {
			t.Fatal(err)
		}
		b, err := y.Variable(v)
		if err != nil {
			t.Fatal(err)
		}
		if v != "amp.attempt" && !bytes.Equal(a.Bytes, b.Bytes) {
			t.Errorf("%s: %s differs", what, v)
		}
	}
}

// MatrixDecay leaves vectors alone, for every optimizer that decays weights.
func TestMatrixDecay(t *testing.T) {
	for name, c := range cases() {
		if strings.HasPrefix(name, "muon") { // has no vectors
			continue
		}
		none, matrices, all := c, c, c
		none.Optimizer.Decay, matrices.Optimizer.Decay, all.Optimizer.Decay = 0, 0.5, 0.5
		matrices.Optimizer.MatrixDecay = true
		var got [3]*stepper
		for i, c := range []ampc.TrainConfig{none, matrices, all} {
			got[i] = newStepper(t, c, shapes[0], shapes[1])
			for at := 1; at <= 3; at++ {
				got[i].run(t, at, nil)
			}
		}
		same := func(param string, i, j int) bool {
			return slices.Equal(got[i].read(t, param), got[j].read(t, param))
		}
		if !same("a", 0, 1) || same("a", 1, 2) {
			t.Errorf("%s: a vector decays", name)
		}
		if !same("b", 1, 2) || same("b", 0, 1) {
			t.Errorf("%s: a matrix does not decay", name)
		}
	}
}

// What a rule does wrong is one error at the line that did it.
func TestMistakesInRules(t *testing.T) {
	next := func(f func(u *ampc.Update, p ampc.Param) ampc.Tensor) ampc.Optimizer {
		return ampc.WithRule(ampc.UpdateRule{Name: "mine", Next: f})
	}
	for want, o := range map[string]ampc.Optimizer{
		`rule "mine": it has no Next`: next(nil),
		`rule "a.b": want a name`:     ampc.WithRule(ampc.UpdateRule{Name: "a.b", Next: func(*ampc.Update, ampc.Param) ampc.Tensor { return ampc.Tensor{} }}),
		`rule "": want a name`:        ampc.WithRule(ampc.UpdateRule{Next: func(*ampc.Update, ampc.Param) ampc.Tensor { return ampc.Tensor{} }}),
		"WithRule":                    {Algorithm: ampc.UseRule},
		"muon steps matrices, and a has rank 1: give it a Group":                        optim.Muon(optim.MuonOptions{}),
		"rule mine returns no next value of %a":                                         next(func(*ampc.Update, ampc.Param) ampc.Tensor { return ampc.Tensor{} }),
		"rule mine returns %amp.lr f32[] as the next value of %a f32[5]: want its type": next(func(_ *ampc.Update, p ampc.Param) ampc.Tensor { return p.LR }),
		"optim_test.go:%line: rule mine panics: no":                                     next(func(*ampc.Update, ampc.Param) ampc.Tensor { panic("no") }),
		"set %a f32[5]: it is not a state that Update.State declared": next(func(u *ampc.Update, p ampc.Param) ampc.Tensor {
			u.Set(p.Weight, p.Weight)
			return p.Weight
		}),
		`state "a/b" of a rule: want a name`: next(func(u *ampc.Update, p ampc.Param) ampc.Tensor {
			u.State("a/b", p.Weight.Type(), ampc.Zeros())
			return p.Weight
		}),
		"matmul": next(func(u *ampc.Update, p ampc.Param) ampc.Tensor { return u.Matmul(p.Weight, p.Weight) }),
	} {
		m := ampc.New("m")
		g := m.Input("g", ampc.F32, 5)
		loss := m.ReduceSum(m.Mul(m.Param("a", ampc.Fill(1), 5), g))
		_, err := m.Train(ampc.TrainConfig{Optimizer: o, LR: ampc.Constant(1)}, ampc.Loss{Value: loss})
		text := fmt.Sprint(err)
		if at, found := strings.CutPrefix(want, "optim_test.go:%line"); found {
			want = at
			if !strings.Contains(text, "optim_test.go:") {
				t.Errorf("got %s, want a line of this file", text)
			}
		}
		if !strings.Contains(text, want) || strings.Contains(text, "\n") {
			t.Errorf("got %s\nwant %s", text, want)
		}
	}
}

// Two training steps with the same rule over the same weights have states of their own.
func TestStepsHaveTheirOwnStates(t *testing.T) {
	m := ampc.New("m")
	loss := m.ReduceSum(m.Mul(m.Param("a", ampc.Fill(1), 5), m.Input("g", ampc.F32, 5)))
	for _, name := range []string{"", "late"} {
		c := ampc.TrainConfig{Name: name, Optimizer: optim.Lion(optim.LionOptions{State: ampc.BF16}), LR: ampc.Constant(1)}
		if _, err := m.Train(c, ampc.Loss{Value: loss}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"amp.rule.lion.m/a", "amp.late.rule.lion.m/a"} {
		h, err := m.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		if h.Type.DType() != ampc.BF16 {
			t.Errorf("%s is %s, want bf16", name, h.Type)
		}
	}
}

// Rules run under every policy but those without f32 weights, which are refused in a line.
func TestRulesUnderEveryPolicy(t *testing.T) {
	for _, policy := range ampc.PolicyNames() {
		p, err := ampc.PolicyNamed(policy)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range cases() {
			c.Policy = p
			if c.Optimizer.Algorithm == ampc.UseRule && p.NoMasters {
				m := ampc.New("m")
				loss := m.ReduceSum(m.Param("a", ampc.Fill(1), 5, 5))
				if _, err := m.Train(c, ampc.Loss{Value: loss}); err == nil || !strings.Contains(err.Error(), "choose a policy with f32 weights") {
					t.Errorf("%s under %s: %v", name, policy, err)
				}
				continue
			}
			s := newStepper(t, c, shapes[1:]...)
			before := slices.Clone(s.read(t, "b"))
			taken := 0
			for at := 1; at <= 3; at++ {
				if !s.run(t, at, nil).Skipped {
					taken++
				}
			}
			if taken == 0 || slices.Equal(before, s.read(t, "b")) {
				t.Errorf("%s under %s: %d steps are taken, and the weight stays as it is", name, policy, taken)
			}
		}
	}
}

// Weights of two losses may be skipped apart from each other, each with the states of its own rule.
func TestRulesOfTwoLosses(t *testing.T) {
	for _, p := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16()} {
		for name, c := range cases() {
			m := ampc.New("two")
			x, y := m.Input("x", ampc.F32, 4, 4), m.Input("y", ampc.I32, 4)
			mean := m.CrossEntropy(m.Linear("a", x, 5, ampc.LinearOptions{NoBias: true}), y) // over examples that count
			sum := m.ReduceSum(m.Square(m.Linear("b", x, 3, ampc.LinearOptions{NoBias: true})))
			c.Policy, c.Micro = p, 2
			if _, err := m.Train(c, ampc.Loss{Value: m.Add(mean, sum)}); err != nil {
				t.Errorf("%s under %s: %v", name, p.Name, err)
			}
			m.Close()
		}
	}
}
