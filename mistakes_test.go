package ampc_test

import (
	"bytes"
	"context"
	"math"
	"testing"

	"ampc"
	"ampc/internal/trial"
)

// Mistakes stick with the line of the call that made them, and nothing panics after.
func TestMistakesCarryTheCallersLine(t *testing.T) {
	for name, c := range map[string]struct {
		build func(m *ampc.Model, x ampc.Tensor) ampc.Tensor
		want  []string
	}{
		"duplicate layer": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Linear("fc", m.Linear("fc", x, 4), 4)
		}, []string{`linear "fc"`, "taken by the layer at mistakes_test.go:", "Shared"}},
		"options twice": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Linear("fc", x, 4, ampc.LinearOptions{NoBias: true}, ampc.LinearOptions{})
		}, []string{`linear`, "options are given 2 times"}},
		"shapes": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Add(x, m.Param("p", ampc.Fill(0), 3))
		}, []string{"add", "do not broadcast"}},
		"heads": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Attention("attn", m.Reshape(x, 1, 8, 4), 3)
		}, []string{`attention "attn"`, "width 4"}},
		"rank": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Conv2d("conv", x, 4, 3) }, []string{"conv"}},
		"gradient of a tensor": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Grad(m.Square(x), x)[0] },
			[]string{"gradient of %square", "want f32[]: reduce it to one number"}},
		"gradient that cannot be built": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			op := trial.Boost()
			op.Grad = func(b *ampc.Backward, _ *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor {
				return []ampc.Tensor{b.Add(d[0], b.Reshape(d[0], 32))}
			}
			return m.Grad(m.ReduceSum(m.Apply(op, x)), x)[0]
		}, []string{"do not broadcast"}},
		"huge": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Linear("fc", x, 1<<44)
		}, []string{`"fc.w"`, "more than"}},
		"name of an input": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Input("a\xffb", ampc.F32, 4) },
			[]string{`input: the name "a\xffb" is not UTF-8`}},
		"name of a parameter": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Param("a\nb", ampc.Zeros(), 4) },
			[]string{`param: the name "a\nb" has a character that does not print`}},
		"name of a layer": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Linear("\x1b[31m", x, 2) },
			[]string{`the name "\x1b[31m`, "does not print"}},
		"name of a scope": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Scope("a\tb").Relu(x) },
			[]string{`relu: the name "a\tb.relu" has a character that does not print`}},
		"name of a result": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Named("\xfe").Relu(x) },
			[]string{`relu: the name "\xfe" is not UTF-8`}},
		"name of a dimension": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Input("z", ampc.F32, ampc.Dim("")) },
			[]string{`input "z": the dimension's name "" is not a word`}},
		"an empty batch": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Input("z", ampc.F32, 0, 4) },
			[]string{`input "z": dimension 0 is 0, want 1 or more`}},
		"an epsilon that is not a number": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.LayerNorm("n", x, ampc.LayerNormOptions{Eps: new(math.NaN())})
		},
			[]string{`layer_norm "n": attribute eps is NaN, want a finite number, 0 or more`}},
		"an infinite slope": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.LeakyRelu(x, math.Inf(1)) },
			[]string{`leaky_relu: attribute alpha is +Inf, want a finite number`}},
		"a dimension that is not a number": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Input("z", ampc.F32, "four")
		}, []string{`input "z"`, "want an int or an ampc.Dim"}},
		"shared with two types": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			f := m.Shared("s", func(m *ampc.Model, x ...ampc.Tensor) ampc.Tensor { return m.Linear("fc", x[0], 2) })
			return f(f(x))
		}, []string{"shared layer", "f32[4,2]", "f32[2,2]"}},
		"nil": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Linear("fc", m.Lookup("none"), 2)
		}, []string{`linear "fc"`, "is absent"}},
		"no output":     {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Linear("fc", x, 0) }, []string{`"fc.w"`, "dimension 1 is 0, want 1 or more"}},
		"no name":       {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Param("", ampc.Fill(0), 3) }, []string{`param ""`, "want a name"}},
		"nothing drawn": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Param("p", ampc.Uniform(1, -1), 3) }, []string{"draws nothing finite"}},
		"momentum": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.BatchNorm("bn", x, ampc.BatchNormOptions{Momentum: new(2.0)})
		}, []string{`batch_norm "bn"`, "want a number from 0 to 1"}},
		"negative heads": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Attention("attn", m.Reshape(x, 1, 8, 4), 2, ampc.AttentionOptions{KVHeads: -1})
		}, []string{`attention "attn"`, "width 4"}},
		"no op":          {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Apply(nil, x) }, []string{"apply", "no op"}},
		"shared nothing": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Shared("s", nil)(x) }, []string{`shared "s"`}},
		"gradient by nil": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Grad(m.ReduceSum(x), ampc.Tensor{})[0]
		}, []string{"gradient", "is absent"}},
		"gradient through a step": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Grad(m.ReduceSum(m.Floor(x)), x)[0]
		}, []string{"does not depend on %x", "stopped at floor (flat: the gradient is zero"}},
		"name of a custom op": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			op := trial.Boost()
			op.Name = "relu"
			return m.Apply(op, x)
		}, []string{`apply "relu": its Name is that of an op of ampc`}},
		"gradient of nothing": {func(m *ampc.Model, x ampc.Tensor) ampc.Tensor {
			return m.Grad(m.ReduceSum(m.Input("z", ampc.F32, 2)), x)[0]
		}, []string{"does not depend on %x"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := ampc.New("wrong")
			v := c.build(m, m.Input("x", ampc.F32, 8, 4))
			v = m.Relu(m.LayerNorm("after", v)) // later calls are no-ops
			if !v.Absent() {
				t.Errorf("a value after a mistake: %v", v)
			}
			_, err := m.Train(adam(), ampc.Loss{Value: v})
			wantError(t, err, append(c.want, "mistakes_test.go:")...)
			if err := m.WriteIR(new(bytes.Buffer)); err == nil {
				t.Error("a model with a mistake is written")
			}
		})
	}
}

func TestBadConfigs(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*ampc.TrainConfig)
		want string
	}{
		"no optimizer": {func(c *ampc.TrainConfig) { c.Optimizer = ampc.Optimizer{} }, "no optimizer: give Optimizer and LR, or Groups"},
		"group matches nothing": {func(c *ampc.TrainConfig) {
			c.Groups = []ampc.Group{{Pattern: "head", Optimizer: ampc.Adam(), LR: ampc.Constant(1)}}
		}, `pattern "head" matches no parameter`},
		"pattern of a policy":  {func(c *ampc.TrainConfig) { c.Policy = c.Policy.Keep("h*.attn") }, `pattern "h*.attn" matches nothing`},
		"scale":                {func(c *ampc.TrainConfig) { c.Scaler = ampc.Static(1000) }, "not a power of two"},
		"momentum":             {func(c *ampc.TrainConfig) { c.Optimizer = ampc.SGD(1.5) }, "momentum"},
		"unbound dimension":    {func(c *ampc.TrainConfig) { c.Sizes = ampc.Sizes{"batch": 3} }, `no dimension "batch"`},
		"a micro-batch's fate": {func(c *ampc.TrainConfig) { c.BadMicro = 9 }, "TrainConfig.BadMicro is 9, want SkipStep or DropMicro"},
		"a mode":               {func(c *ampc.TrainConfig) { c.Scaler.Mode = 7 }, "TrainConfig.Scaler.Mode is 7, want AutoScale"},
		"a shape of rates":     {func(c *ampc.TrainConfig) { c.LR.Kind = 9 }, "no kind 9"},
		"unknown pass":         {func(c *ampc.TrainConfig) { c.Compile.Disable = []string{"nothing"} }, `no pass "nothing"`},
	} {
		t.Run(name, func(t *testing.T) {
			m, loss := small(8)
			defer m.Close()
			conf := adam()
			c.edit(&conf)
			_, err := m.Train(conf, ampc.Loss{Value: loss})
			wantError(t, err, c.want)
		})
	}
	m, _ := small(8)
	_, err := m.Train(adam())
	wantError(t, err, "no loss")
	_, err = m.Infer(ampc.InferConfig{})
	wantError(t, err, "nothing to compute")
	_, err = m.Infer(ampc.InferConfig{Weights: 9}, m.Lookup("fc1"))
	wantError(t, err, "mistakes_test.go:", "InferConfig.Weights is 9, want Live or EMA")
	_, err = m.Infer(ampc.InferConfig{KeepSizes: -1}, m.Lookup("fc1"))
	wantError(t, err, "InferConfig.KeepSizes is -1")
}

// A parameter as the weights of classes is refused where it is trained, as a
// gradient would be missing, and taken where it is frozen.
func TestClassWeightsAreNotTrained(t *testing.T) {
	for _, freeze := range []bool{false, true} {
		m := ampc.New("weighted")
		t.Cleanup(func() { m.Close() })
		x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.I32, 8)
		w := m.Exp(m.Param("w", ampc.Zeros(), 3))
		loss := m.CrossEntropy(m.Linear("fc", x, 3), y, ampc.CrossEntropyOptions{Weights: w})
		c := adam()
		if freeze {
			c.Groups = []ampc.Group{{Pattern: "w", Freeze: true}, {Optimizer: ampc.SGD(0), LR: ampc.Constant(1)}}
		}
		_, err := m.Train(c, ampc.Loss{Value: loss})
		switch {
		case freeze && err != nil:
			t.Error(err)
		case !freeze:
			wantError(t, err, "mistakes_test.go:", "cross_entropy: %exp needs a gradient, and none flows into weights", "freeze")
		}
	}
}

// A tensor that is absent is a mistake wherever a config names tensors.
func TestNilTensorsInConfigs(t *testing.T) {
	m, loss := small(8)
	_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Outputs: []ampc.Output{{}}}, ampc.Loss{Value: loss})
	wantError(t, err, "absent")
	_, err = m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Grads: []ampc.Tensor{{}}}, ampc.Loss{Value: loss})
	wantError(t, err, "absent")
	_, err = m.Infer(ampc.InferConfig{}, ampc.Tensor{})
	wantError(t, err, "absent")
}

func TestBadFeeds(t *testing.T) {
	m, loss := small(8)
	s := train(t, m, loss, adam())
	good := points(1, 8)
	with := func(name string, v any) ampc.Feed {
		f := ampc.Feed{"x": good["x"], "y": good["y"], name: v}
		if v == nil {
			delete(f, name)
		}
		return f
	}
	before, err := m.Variable("fc1.w")
	if err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]ampc.Feed{
		`no feed for input "y"`:                                      with("y", nil),
		`feed "x" has 3 elements, want f32[8,4], which has 32`:       with("x", []float32{1, 2, 3}),
		`feed "x" has 1 elements, want f32[8,4]`:                     with("x", 1.5),
		`feed "x" is a []int32, want f32[8,4]`:                       with("x", make([]int32, 32)),
		`feed "y" is a []float32, want i32[8]`:                       with("y", make([]float32, 8)),
		`feed "y" is a []bool, want i32[8]`:                          with("y", make([]bool, 8)),
		`feed "z": the model has no such input; the step reads x, y`: with("z", 1.0),
		`is a string`:              with("x", "text"),
		`is f32[8], want f32[8,4]`: with("x", ampc.HostTensor{Type: ampc.TypeOf(ampc.F32, 8), Bytes: make([]byte, 32)}),
		`holds 4294967296 at 0, which does not fit i32`: with("y", []int{1 << 32, 0, 0, 0, 0, 0, 0, 0}),
	} {
		_, err := s.Run(context.Background(), f)
		wantError(t, err, want)
	}
	_, err = s.Run(context.Background())
	wantError(t, err, "no feeds")
	_, err = s.Run(context.Background(), good, good)
	wantError(t, err, "2 micro-batches", "compiled for 1")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Run(ctx, good); err != context.Canceled {
		t.Errorf("a cancelled context: %v", err)
	}
	after, _ := m.Variable("fc1.w")
	if !bytes.Equal(before.Bytes, after.Bytes) {
		t.Error("a refused step changed a weight")
	}
}

func TestMemoryLimits(t *testing.T) {
	for limit, want := range map[int64]string{-2: "TrainConfig.Memory is -2, want bytes above 0, or FitMemory", 1: "set TrainConfig.Memory to ", ampc.FitMemory: ""} {
		m := ampc.New("m")
		loss := m.ReduceMean(m.Square(m.Linear("fc", m.Input("x", ampc.F32, 4, 8), 2)))
		_, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Memory: limit}, ampc.Loss{Value: loss})
		m.Close()
		if want == "" && err != nil {
			t.Errorf("Memory %d: %v", limit, err)
		} else if want != "" {
			wantError(t, err, want)
		}
	}
}
