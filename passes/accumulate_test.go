package passes

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// classText is a classifier over n rows with ignored labels.
func classText(n int, loss string) string {
	return fmt.Sprintf(`graph @class {
  input %%x : f32[%[1]d,3]
  input %%y : i32[%[1]d]
  param %%w : f32[3,4] = normal(0, 0.7)
  param %%b : f32[4] = 0
forward:
  %%logits = linear %%x, %%w, %%b : f32[%[1]d,4]
  %%sum, %%count = cross_entropy %%logits, %%y : f32[], f32[]
  %%mean = div %%sum, %%count : f32[]
%[2]s  return %%loss
}`, n, loss)
}

const plainLoss = "  %loss = div %sum, %count : f32[]\n"

// rows are 16 examples; every label in ignored is not to be counted.
func rowsFeed(from, to int, ignored map[int]bool) feed {
	var x, y []float64
	for i := from; i < to; i++ {
		for k := range 3 {
			x = append(x, float64(float32(math.Sin(float64(3*i+5*k)))))
		}
		label := float64(i % 4)
		if ignored[i] {
			label = -100
		}
		y = append(y, label)
	}
	ids := make([]int64, len(y))
	for i := range y {
		ids[i] = int64(y[i])
	}
	n := ir.Dim(to - from)
	return feed{"x": f32s([]ir.Dim{n, 3}, x...), "y": eval.Ints(ir.I32, []ir.Dim{n}, ids...)}
}

func wholeAndParts(t *testing.T, ignored map[int]bool, cfg Config, exact bool) (whole, parts *trainer, results [2]float64) {
	t.Helper()
	whole = newTrainer(t, classText(16, plainLoss), cfg)
	cfg.Micro = 4
	parts = newTrainer(t, classText(4, plainLoss), cfg)
	whole.exact, parts.exact = exact, exact
	for range 3 {
		r := whole.step(rowsFeed(0, 16, ignored))
		results[0] = r.Value(whole.g.Return[0]).F[0]
		q := parts.step(rowsFeed(0, 4, ignored), rowsFeed(4, 8, ignored), rowsFeed(8, 12, ignored), rowsFeed(12, 16, ignored))
		results[1] = q.Value(parts.g.Return[0]).F[0]
	}
	return whole, parts, results
}

func close64(a, b, tol float64) bool { return math.Abs(a-b) <= tol*(math.Abs(a)+math.Abs(b)+1e-3) }

func TestMicroBatchesEqualOneBatch(t *testing.T) {
	ignored := map[int]bool{0: true, 1: true, 2: true, 5: true, 12: true, 13: true, 14: true, 15: true}
	for _, opt := range []Optimizer{SGD(0.9), AdamW(0.1)} {
		for _, scaler := range []Scaler{Unscaled(), Dynamic()} {
			for _, exact := range []bool{true, false} {
				cfg := Config{Training: Training{Groups: oneGroup(opt, Constant(0.1)), Scaler: scaler, Clip: Clip{Norm: 0.2}}}
				whole, parts, loss := wholeAndParts(t, ignored, cfg, exact)
				tol := 4e-6 // f32, another order of summation
				if exact {
					tol = 1e-13
				}
				if !close64(loss[0], loss[1], tol) {
					t.Errorf("%s %s: loss %v in one batch, %v in parts", opt.Algorithm, scaler.Mode, loss[0], loss[1])
				}
				for _, name := range []string{"w", "b"} {
					for i, x := range whole.env[name].F {
						if y := parts.env[name].F[i]; !close64(x, y, tol) {
							t.Errorf("%s %s: %s[%d] %v in one batch, %v in parts", opt.Algorithm, scaler.Mode, name, i, x, y)
						}
					}
				}
			}
		}
	}
}

// A step may have fewer micro-batches than the program was made for.
func TestShortTail(t *testing.T) {
	cfg := Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0.1))}}
	whole := newTrainer(t, classText(8, plainLoss), cfg)
	cfg.Micro = 4
	parts := newTrainer(t, classText(4, plainLoss), cfg)
	whole.exact, parts.exact = true, true
	parts.step(rowsFeed(0, 4, nil), rowsFeed(4, 8, nil), rowsFeed(8, 12, nil), rowsFeed(12, 16, nil))
	whole.env["w"], whole.env["b"] = parts.env["w"], parts.env["b"]
	whole.step(rowsFeed(0, 8, nil))
	parts.step(rowsFeed(0, 4, nil), rowsFeed(4, 8, nil))
	for i, x := range whole.env["w"].F {
		if y := parts.env["w"].F[i]; !close64(x, y, 1e-13) {
			t.Errorf("w[%d] %v in one batch, %v in a tail of two", i, x, y)
		}
	}
}

// A loss without one count is averaged over the micro-batches.
func TestLossWithoutCountIsAveraged(t *testing.T) {
	text := classText(4, "  %loss = mul %mean, %mean : f32[]\n")
	cfg := Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0.5)), Micro: 2, Scaler: Static(64)}}
	tr := newTrainer(t, text, cfg)
	tr.exact = true
	r := tr.step(rowsFeed(0, 4, nil), rowsFeed(4, 8, nil))
	got := r.Value(tr.g.Return[0]).F[0]

	sum := 0.0
	grad := make([]float64, 12)
	for _, from := range []int{0, 4} {
		one := newTrainer(t, text, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0.5)), Scaler: Static(64)}})
		one.exact = true
		start := one.initial("w")
		q := one.step(rowsFeed(from, from+4, nil))
		sum += q.Value(one.g.Return[0]).F[0]
		for i := range grad {
			grad[i] += (start[i] - one.env["w"].F[i]) / 2
		}
	}
	if !close64(got, sum/2, 1e-13) {
		t.Errorf("loss %v, the mean is %v", got, sum/2)
	}
	start := tr.initial("w")
	for i := range grad {
		if want := start[i] - grad[i]; !close64(tr.env["w"].F[i], want, 1e-13) {
			t.Errorf("w[%d] = %v, want %v", i, tr.env["w"].F[i], want)
		}
	}
}

func TestBadMicroBatch(t *testing.T) {
	bad := rowsFeed(4, 8, nil)
	bad["x"].F[0] = math.NaN()
	good := []feed{rowsFeed(0, 4, nil), rowsFeed(8, 12, map[int]bool{8: true}), rowsFeed(12, 16, nil)}
	cfg := Config{Training: Training{Groups: oneGroup(AdamW(0.1), Constant(0.1)), Scaler: Dynamic(), Micro: 4, BadMicro: DropMicro}, Outputs: []Output{{Kind: OfSkip}}}

	t.Run("dropped", func(t *testing.T) {
		for place := range 4 {
			want := newTrainer(t, classText(4, plainLoss), cfg)
			want.step(good...)
			got := newTrainer(t, classText(4, plainLoss), cfg)
			feeds := append(append(append([]feed{}, good[:place]...), bad), good[place:]...)
			r := got.step(feeds...)
			if x := r.Value(got.g.Return[0]).F[0]; x != want.last.Value(want.g.Return[0]).F[0] {
				t.Errorf("bad batch at %d: loss %v, without it %v", place, x, want.last.Value(want.g.Return[0]).F[0])
			}
			for i, x := range want.env["w"].F {
				if y := got.env["w"].F[i]; x != y {
					t.Errorf("bad batch at %d: w[%d] %v, without it %v", place, i, y, x)
				}
			}
			if s := got.scalar("amp.scale"); s != 65536 {
				t.Errorf("bad batch at %d: its data took the scale to %g", place, s)
			}
		}
	})
	t.Run("dropped for its gradients", func(t *testing.T) {
		steep := rowsFeed(4, 8, nil)
		for i := range steep["x"].F {
			steep["x"].F[i] *= 1e35 // the loss is finite, 65536 times its gradient is not
		}
		for place := range 4 {
			tr := newTrainer(t, classText(4, plainLoss), cfg)
			tr.step(good...)
			for i := range tr.env["w"].F {
				tr.env["w"].F[i] = 0
			}
			tr.step(append(append(append([]feed{}, good[:place]...), steep), good[place:]...)...)
			if s := tr.scalar("amp.scale"); s != 32768 {
				t.Errorf("steep batch at %d: scale %g, want a backoff to 32768", place, s)
			}
		}
	})
	t.Run("all dropped", func(t *testing.T) {
		tr := newTrainer(t, classText(4, plainLoss), cfg)
		tr.step(good...)
		w := tr.env["w"].F
		r := tr.step(bad, bad)
		if r.Value(tr.g.Return[1]).I[0] != 1 {
			t.Error("a step of nothing was taken")
		}
		for i, x := range tr.env["w"].F {
			if x != w[i] {
				t.Errorf("w[%d] changed", i)
			}
		}
	})
	t.Run("skips the step", func(t *testing.T) {
		skip := cfg
		skip.BadMicro = SkipStep
		tr := newTrainer(t, classText(4, plainLoss), skip)
		tr.step(good...)
		w := tr.env["w"].F
		tr.step(append([]feed{bad}, good...)...)
		for i, x := range tr.env["w"].F {
			if x != w[i] {
				t.Errorf("w[%d] changed", i)
			}
		}
		if s := tr.scalar("amp.step"); s != 1 {
			t.Errorf("step counter %g, want 1", s)
		}
	})
}

func TestResultsOverMicroBatches(t *testing.T) {
	cfg := Config{
		Training: Training{
			Groups: oneGroup(SGD(0), Constant(0)),
			Micro:  2,
			Scaler: Static(256),
		},
		Outputs: []Output{
			{Value: named("logits"), Reduce: Mean}, {Value: named("mean"), Reduce: Sum}, {Value: named("logits")}, {Kind: OfGradient, Value: named("w")}, {Kind: OfGradNorm}, {Kind: OfScale}},
	}
	tr := newTrainer(t, classText(4, plainLoss), cfg)
	tr.exact = true
	a, b := rowsFeed(0, 4, nil), rowsFeed(4, 8, nil)
	first, second := tr.step(a).Values["logits"].F, tr.step(b).Values["logits"].F
	r := tr.step(a, b)
	get := func(k int) []float64 { return r.Value(tr.g.Return[k]).F }
	for i := range first {
		if want := (first[i] + second[i]) / 2; !close64(get(1)[i], want, 1e-14) {
			t.Errorf("mean of logits[%d] is %v, want %v", i, get(1)[i], want)
		}
		if get(3)[i] != second[i] {
			t.Errorf("last logits[%d] is %v, want %v", i, get(3)[i], second[i])
		}
	}
	if want := 2 * get(0)[0]; !close64(get(2)[0], want, 1e-14) {
		t.Errorf("sum of means is %v, want %v", get(2)[0], want)
	}
	norm := 0.0
	for _, x := range get(4) {
		norm += x * x
	}
	if norm == 0 || math.Sqrt(norm) > get(5)[0] {
		t.Errorf("norm of one gradient %v, of all %v", math.Sqrt(norm), get(5)[0])
	}
	if get(6)[0] != 256 {
		t.Errorf("scale %v, want 256", get(6)[0])
	}
}

// A micro-batch without a single label is empty, not bad.
func TestEmptyMicroBatchIsNotDropped(t *testing.T) {
	cfg := Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0.1)), Scaler: Dynamic(), Micro: 2, BadMicro: DropMicro}}
	empty := map[int]bool{4: true, 5: true, 6: true, 7: true}
	tr := newTrainer(t, classText(4, plainLoss), cfg)
	tr.step(rowsFeed(0, 4, nil), rowsFeed(4, 8, empty))
	one := newTrainer(t, classText(4, plainLoss), cfg)
	one.step(rowsFeed(0, 4, nil))
	for i, x := range one.env["w"].F {
		if y := tr.env["w"].F[i]; x != y {
			t.Errorf("w[%d] = %v, without the empty micro-batch %v", i, y, x)
		}
	}
	if good := tr.scalar("amp.good"); good != 1 {
		t.Errorf("good is %g after an empty micro-batch, want 1", good)
	}
}

func TestMicroBatchesDrawApart(t *testing.T) {
	text := `graph @draw {
  input %x : f32[64]
  param %w : f32[64] = 1
  state %seed : i64[] = 7 {role=seed}
  state %attempt : i32[] = 0 {role=attempt}
forward:
  %p = mul %x, %w : f32[64]
  %d = dropout %p {seed=%seed attempt=%attempt p=0.5 rng=1} : f32[64]
  %loss = reduce_sum %d : f32[]
  return %loss
}`
	tr := newTrainer(t, text, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0)), Micro: 2}, Outputs: []Output{{Value: named("d"), Reduce: Mean}}})
	ones := make([]float64, 64)
	for i := range ones {
		ones[i] = 1
	}
	f := feed{"x": f32s([]ir.Dim{64}, ones...)}
	r := tr.step(f, f)
	half := 0
	for _, x := range r.Value(tr.g.Return[1]).F {
		if x == 1 { // kept by one micro-batch of the two
			half++
		}
	}
	if half == 0 {
		t.Error("both micro-batches drew the same mask")
	}
}

// A gradient inside the network is a result without its scale.
func TestInnerGradientsAreShownUnscaled(t *testing.T) {
	show := func(s Scaler, micro int) []float64 {
		tr := newTrainer(t, classText(4, plainLoss), Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0)), Scaler: s, Micro: micro}, Outputs: []Output{{Kind: OfGradient, Value: named("logits")}}})
		r := tr.step(rowsFeed(0, 4, nil))
		return r.Value(tr.g.Return[1]).F
	}
	want := show(Unscaled(), 1)
	for i, x := range show(Static(4096), 1) {
		if x != want[i] {
			t.Errorf("d.logits[%d] = %v with a scale, %v without", i, x, want[i])
		}
	}
}

// manyText has two counted losses and one that is not, and their sum.
func manyText(n int) string {
	return fmt.Sprintf(`graph @many {
  input %%x : f32[%[1]d,3]
  input %%y : i32[%[1]d]
  input %%z : i32[%[1]d]
  param %%w : f32[3,4] = normal(0, 0.7)
  param %%b : f32[4] = 0
forward:
  %%logits = linear %%x, %%w, %%b : f32[%[1]d,4]
  %%t = tanh %%logits : f32[%[1]d,4]
  %%s1, %%c1 = cross_entropy %%logits, %%y : f32[], f32[]
  %%first = div %%s1, %%c1 : f32[]
  %%s2, %%c2 = cross_entropy %%t, %%z : f32[], f32[]
  %%second = div %%s2, %%c2 : f32[]
  %%sq = square %%t : f32[%[1]d,4]
  %%third = reduce_mean %%sq : f32[]
  %%half = affine %%second {scale=0.5 shift=0.125} : f32[]
  %%two = sub %%first, %%half : f32[]
  %%all = add %%two, %%third : f32[]
  return %%first, %%second, %%all
}`, n)
}

// Losses that ignore different labels have counts of their own; micro-batches
// still equal the batch they are cut from, also where one value adds them up.
func TestMicroBatchesOfSeveralCounts(t *testing.T) {
	feedOf := func(from, to int) feed {
		f := rowsFeed(from, to, map[int]bool{0: true, 1: true, 2: true, 9: true})
		f["z"] = rowsFeed(from, to, map[int]bool{3: true, 4: true, 5: true, 6: true, 15: true})["y"]
		return f
	}
	for _, c := range []struct {
		name   string
		losses []Loss
		sweeps int
	}{
		{"two losses", []Loss{{Value: named("first")}, {Value: named("second"), Weight: 0.5}}, 2},
		{"one sum", []Loss{{Value: named("all"), Weight: 2}}, 3},
		{"one count", []Loss{{Value: named("first")}}, 1},
	} {
		for _, scaler := range []Scaler{Unscaled(), Dynamic()} {
			cfg := Config{Training: Training{Losses: c.losses, Groups: oneGroup(SGD(0.9), Constant(0.1)), Scaler: scaler}}
			whole := newTrainer(t, manyText(16), cfg)
			cfg.Micro = 4
			parts := newTrainer(t, manyText(4), cfg)
			whole.exact, parts.exact = true, true
			if n := len(parts.ctx.training.sweeps); n != c.sweeps {
				t.Errorf("%s: %d sweeps, want %d", c.name, n, c.sweeps)
			}
			for range 3 {
				r := whole.step(feedOf(0, 16))
				q := parts.step(feedOf(0, 4), feedOf(4, 8), feedOf(8, 12), feedOf(12, 16))
				for i, v := range whole.g.Return {
					paramPlan := slices.ContainsFunc(c.losses, func(l Loss) bool { return l.Value.Name == v.Name })
					if a, b := r.Value(v).F[0], q.Value(parts.g.Return[i]).F[0]; paramPlan && !close64(a, b, 1e-13) {
						t.Errorf("%s: %s is %v in one batch, %v in parts", c.name, v, a, b)
					}
				}
			}
			for i, x := range whole.env["w"].F {
				if y := parts.env["w"].F[i]; !close64(x, y, 1e-13) {
					t.Errorf("%s, %s: w[%d] %v in one batch, %v in parts", c.name, scaler.Mode, i, x, y)
				}
			}
			if scaler.Mode == DynamicScale && parts.scalar("amp.good") != 3 {
				t.Errorf("%s: the scale advanced %g times, want 3", c.name, parts.scalar("amp.good"))
			}
		}
	}
}
