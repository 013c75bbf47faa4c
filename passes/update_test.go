package passes

import (
	"math"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// moved is how far a step moved a parameter, by element.
func (tr *trainer) moved(name string, before []float64) []float64 {
	d := make([]float64, len(before))
	for i, x := range tr.env[name].F {
		d[i] = before[i] - x
	}
	return d
}

func norm2(xs ...[]float64) float64 {
	s := 0.0
	for _, x := range xs {
		for _, v := range x {
			s += v * v
		}
	}
	return math.Sqrt(s)
}

// gradients are those of an unclipped first step with rate 1.
func gradients(t *testing.T, text string, f feed) map[string][]float64 {
	t.Helper()
	tr := newTrainer(t, text, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(1))}})
	tr.exact = true
	tr.step(f)
	g := map[string][]float64{}
	for _, v := range tr.g.Vars {
		if v.Kind == ir.Param {
			g[v.Name] = tr.moved(v.Name, tr.initial(v.Name))
		}
	}
	return g
}

func TestClipByNorm(t *testing.T) {
	g := gradients(t, pairText, pairFeed(0))
	all := norm2(g["l.w"], g["l.b"])
	for _, c := range []struct {
		name   string
		cfg    Config
		factor map[string]float64
	}{
		{"all together", Config{Training: Training{Clip: Clip{Norm: all / 4}, Groups: oneGroup(SGD(0), Constant(1))}}, map[string]float64{"l.w": 0.25, "l.b": 0.25}},
		{"already small", Config{Training: Training{Clip: Clip{Norm: 4 * all}, Groups: oneGroup(SGD(0), Constant(1))}}, map[string]float64{"l.w": 1, "l.b": 1}},
		{"one group", Config{Training: Training{Groups: []Group{{Pattern: "*.w", Optimizer: SGD(0), LR: Constant(1), Clip: Clip{Norm: norm2(g["l.w"]) / 2}}, {Optimizer: SGD(0), LR: Constant(1)}}}},
			map[string]float64{"l.w": 0.5, "l.b": 1}},
		{"a group in a whole", Config{Training: Training{Clip: Clip{Norm: all / 4}, Groups: []Group{{Pattern: "*.w", Optimizer: SGD(0), LR: Constant(1), Clip: Clip{Norm: norm2(g["l.w"]) / 8}}, {Optimizer: SGD(0), LR: Constant(1), Clip: Clip{Norm: all}}}}},
			map[string]float64{"l.w": 0.125, "l.b": 0.25}},
	} {
		for _, scaler := range []Scaler{Unscaled(), Dynamic()} {
			c.cfg.Scaler = scaler
			tr := newTrainer(t, pairText, c.cfg)
			tr.exact = true
			tr.step(pairFeed(0))
			for name, f := range c.factor {
				for i, d := range tr.moved(name, tr.initial(name)) {
					if want := g[name][i] * f; !close64(d, want, 1e-5) { // the norm gets 1e-6 added
						t.Errorf("%s, %s: %s[%d] moved %v, want %v", c.name, scaler.Mode, name, i, d, want)
					}
				}
			}
			if n := tr.ctx.counters["unscaled_copies"]; n != 0 {
				t.Errorf("%s: %d unscaled copies are written", c.name, n)
			}
		}
	}
}

func TestClipByValueAndTransform(t *testing.T) {
	g := gradients(t, pairText, pairFeed(0))
	limit := float64(float32(math.Abs(g["l.w"][0]) / 2))
	double := func(b *ir.Builder, gs []GradOf) []GradOf {
		for i := range gs {
			gs[i].Grad = b.Add(gs[i].Grad, gs[i].Grad)
		}
		return gs
	}
	tr := newTrainer(t, pairText, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(1)), Clip: Clip{Value: limit}, Gradients: double, Scaler: Dynamic()}})
	tr.exact = true
	tr.step(pairFeed(0))
	for i, d := range tr.moved("l.w", tr.initial("l.w")) {
		if want := max(-limit, min(limit, 2*g["l.w"][i])); !close64(d, want, 1e-12) {
			t.Errorf("l.w[%d] moved %v, want %v", i, d, want)
		}
	}
}

// What a transform makes infinite is found before a clip by value makes a number of it.
func TestTransformIsCheckedBeforeTheClip(t *testing.T) {
	divide := func(b *ir.Builder, gs []GradOf) []GradOf {
		for i := range gs {
			gs[i].Grad = b.Div(gs[i].Grad, b.Affine(gs[i].Param, 0, 0))
		}
		return gs
	}
	tr := newTrainer(t, pairText, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(1)), Clip: Clip{Value: 1}, Gradients: divide, Scaler: Dynamic()}})
	tr.step(pairFeed(0))
	for i, d := range tr.moved("l.w", tr.initial("l.w")) {
		if d != 0 {
			t.Errorf("l.w[%d] moved %v by an infinite gradient", i, d)
		}
	}
}

const twoLossText = `graph @two {
  input %x : f32[2,2]
  input %y : f32[2,2]
  param %a : f32[2,2] = normal(0, 0.5)
  param %b : f32[2,2] = normal(0, 0.5)
  param %both : f32[2,2] = normal(0, 0.5)
forward:
  %h = matmul %x, %both : f32[2,2]
  %p = matmul %h, %a : f32[2,2]
  %q = matmul %h, %b : f32[2,2]
  %sum1, %count1 = mse %p, %x : f32[], f32[]
  %first = div %sum1, %count1 : f32[]
  %sum2, %count2 = l1_loss %q, %y : f32[], f32[]
  %second = div %sum2, %count2 : f32[]
  return %first, %second
}`

func twoFeed(spike float64) feed {
	return feed{"x": f32s([]ir.Dim{2, 2}, 0.5, -1, 0.25, 2), "y": f32s([]ir.Dim{2, 2}, spike, -0.5, 1, 0)}
}

func TestSweepsWithOwnScalersMeetUnscaled(t *testing.T) {
	run := func(first Scaler, losses ...Loss) *trainer {
		tr := newTrainer(t, twoLossText, Config{Training: Training{Losses: losses, Scaler: first, Groups: oneGroup(SGD(0), Constant(1))}})
		tr.exact = true
		tr.step(twoFeed(1))
		return tr
	}
	one := run(Unscaled(), Loss{Value: named("first"), Weight: 2}, Loss{Value: named("second"), Weight: 0.25})
	aux := Static(64)
	two := run(Dynamic(), Loss{Value: named("first"), Weight: 2}, Loss{Value: named("second"), Weight: 0.25, Scaler: &aux})
	for _, name := range []string{"a", "b", "both"} {
		for i, x := range one.env[name].F {
			if y := two.env[name].F[i]; !close64(x, y, 1e-13) {
				t.Errorf("%s[%d] = %v in one sweep, %v in two", name, i, x, y)
			}
		}
	}
	if n := two.ctx.counters["sweeps"]; n != 2 {
		t.Errorf("%d sweeps, want 2", n)
	}
}

// Each optimizer skips on exactly the sweeps that reach its parameters.
func TestSkipFollowsTheSweeps(t *testing.T) {
	aux := Static(0x1p127)
	losses := []Loss{{Value: named("first")}, {Value: named("second"), Scaler: &aux}}
	tr := newTrainer(t, twoLossText, Config{Training: Training{Losses: losses, Scaler: Dynamic(), Groups: oneGroup(Adam(), Constant(0.1))}})
	f := twoFeed(1)
	f["x"] = f32s([]ir.Dim{2, 2}, 8, 8, 8, 8) // times 2^127 overflows in the second sweep alone
	before := map[string][]float64{}
	for _, name := range []string{"a", "b", "both"} {
		before[name] = tr.initial(name)
	}
	tr.step(f)
	for name, skipped := range map[string]bool{"a": false, "b": true, "both": true} {
		same := norm2(tr.moved(name, before[name])) == 0
		if same != skipped {
			t.Errorf("%s: skipped %t, want %t", name, same, skipped)
		}
	}
	if s := tr.scalar("amp.scale"); s != 65536 {
		t.Errorf("the first scale went to %g for the second sweep's overflow", s)
	}
	if s := tr.scalar("amp.step"); s != 0 {
		t.Errorf("the step as a whole counts %g, want 0", s)
	}
	taken := 0.0
	for _, v := range tr.g.Vars {
		if strings.HasPrefix(v.Name, "amp.step.") {
			taken += tr.scalar(v.Name)
		}
	}
	if taken != 1 {
		t.Errorf("%g of the step counters advanced, want 1", taken)
	}
}

func TestGroups(t *testing.T) {
	cfg := Config{
		Training: Training{Groups: []Group{
			{Pattern: "l.b", Freeze: true},
			{Pattern: "l", Optimizer: SGD(0), LR: Constant(1)},
		}},
	}
	tr := newTrainer(t, pairText, cfg)
	tr.step(pairFeed(0))
	if d := norm2(tr.moved("l.b", tr.initial("l.b"))); d != 0 {
		t.Errorf("a frozen parameter moved by %g", d)
	}
	if d := norm2(tr.moved("l.w", tr.initial("l.w"))); d == 0 {
		t.Error("a trained parameter stayed")
	}
	if tr.g.Value("d.l.b") != nil {
		t.Error("a frozen parameter has a gradient")
	}
}

func TestAverageReadsTheNextWeight(t *testing.T) {
	tr := newTrainer(t, pairText, Config{Training: Training{Groups: oneGroup(SGD(0.9), Constant(0.1)), EMA: 0.9}})
	var want []float32
	for k := range 6 {
		tr.step(pairFeed(k))
		w := tr.env["l.w"].F
		if want == nil {
			want = make([]float32, len(w))
			for i, x := range w {
				want[i] = float32(x)
			}
		} else {
			for i, x := range w {
				want[i] = float32(float32(0.9)*want[i]) + float32(float32(0.1)*float32(x))
			}
		}
		for i, x := range tr.env["amp.ema/l.w"].F {
			if x != float64(want[i]) {
				t.Fatalf("step %d: average %v, the loop has %v", k, x, want[i])
			}
		}
	}
}

func TestSchedules(t *testing.T) {
	low := Cosine(0.1, 4, 20)
	low.Min = 0.1
	for _, c := range []struct {
		name string
		s    Schedule
		want func(step int) float64
	}{
		{"warm-up", Schedule{Rate: 0.1, Warmup: 4}, func(k int) float64 { return 0.1 * math.Min(1, float64(k+1)/4) }},
		{"cosine", low, func(k int) float64 {
			if k < 4 {
				return 0.1 * float64(k+1) / 4
			}
			u := math.Min(1, float64(k-4)/16)
			return 0.1 * (0.1 + 0.9*(1+math.Cos(math.Pi*u))/2)
		}},
		{"linear", Schedule{Rate: 0.1, Kind: LinearRate, Total: 10}, func(k int) float64 { return 0.1 * math.Max(0, 1-float64(k)/10) }},
		{"step", Schedule{Rate: 0.1, Kind: StepRate, Drop: 0.5, Every: 3}, func(k int) float64 { return 0.1 * math.Pow(0.5, float64(k/3)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTrainer(t, pairText, Config{Training: Training{Groups: oneGroup(SGD(0), c.s)}, Outputs: []Output{{Kind: OfRate}}})
			for k := range 25 {
				r := tr.step(pairFeed(k))
				got, want := r.Value(tr.g.Return[1]).F[0], c.want(k)
				if math.Abs(got-want) > 2e-7*0.1+3e-7*want {
					t.Errorf("step %d: rate %.9g, want %.9g", k, got, want)
				}
			}
		})
	}
}

// The cosine of a schedule is the cosine, near enough for f32.
func TestHalfCosine(t *testing.T) {
	worst := 0.0
	b := ir.NewBuilder("cos")
	rate := b.Declare(ir.Const, "rate", ir.T(ir.F32), &ir.Init{Args: []float64{1}}, nil)
	step := b.Declare(ir.Input, "step", ir.T(ir.I32), nil, nil)
	n := b.Schedule(rate, step, ir.A("kind", "cosine", "total", 4096)).Def
	for k := range 4097 {
		out, err := eval.Node(n, []*eval.Tensor{f32s(nil, 1), eval.Ints(ir.I32, nil, int64(k))}, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		worst = max(worst, math.Abs(out[0].F[0]-(1+math.Cos(math.Pi*float64(k)/4096))/2))
	}
	if worst > 1.5e-7 {
		t.Errorf("off by up to %g", worst)
	}
}

func TestSchedulesCountTakenSteps(t *testing.T) {
	all := Schedule{Rate: 0.1, Kind: LinearRate, Total: 10}
	all.CountAll = true
	for _, c := range []struct {
		s    Schedule
		want float64
	}{{Schedule{Rate: 0.1, Kind: LinearRate, Total: 10}, 0.09}, {all, 0.08}} {
		tr := newTrainer(t, pairText, Config{Training: Training{Groups: oneGroup(SGD(0), c.s)}, Outputs: []Output{{Kind: OfRate}}})
		bad := pairFeed(0)
		bad["y"].F[0] = math.NaN()
		tr.step(pairFeed(0))
		tr.step(bad)
		r := tr.step(pairFeed(1))
		if got := r.Value(tr.g.Return[1]).F[0]; math.Abs(got-c.want) > 1e-8 {
			t.Errorf("after one skipped step of two the rate is %v, want %v", got, c.want)
		}
	}
}

const tiedText = `graph @tied {
  input %ids : i32[3]
  param %table : f32[5,4] = normal(0, 0.5)
forward:
  %e = embedding %table, %ids : f32[3,4]
  %logits = linear %e, %table {tb} : f32[3,5]
  %sum, %count = cross_entropy %logits, %ids : f32[], f32[]
  %loss = div %sum, %count : f32[]
  return %loss
}`

func TestTiedWeightSumsOnce(t *testing.T) {
	g, c, err := compileStep(tiedText, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0.1))}})
	if err != nil {
		t.Fatal(err)
	}
	d := g.Value("d.table")
	if d == nil || d.Def.Op != ir.OpAddN || len(d.Def.In) != 2 || d.Type.DType != ir.F32 {
		t.Errorf("the gradient of the tied table is not one f32 sum of both uses:\n%s", g)
	}
	if c.counters["fan_in_sums"] == 0 {
		t.Error("fan_in_sums=0")
	}
}

const bnText = `graph @bn {
  input %x : f32[4,2,3]
  param %s : f32[2] = 1
  param %b : f32[2] = 0
  state %rm : f32[2] = 0
  state %rv : f32[2] = 1
forward:
  %y, %mean, %rstd, %nm, %nv = batch_norm %x, %s, %b, %rm, %rv : f32[4,2,3], f32[2], f32[2], f32[2], f32[2]
  %t = mul %y, %x : f32[4,2,3]
  %sum, %count = mse %t, %x : f32[], f32[]
  %loss = div %sum, %count : f32[]
  return %loss
}`

func bnFeed(k int, spike float64) feed {
	x := make([]float64, 24)
	for i := range x {
		x[i] = float64(float32(math.Sin(float64(11*k + 3*i))))
	}
	x[0] += spike
	return feed{"x": f32s([]ir.Dim{4, 2, 3}, x...)}
}

func TestRunningStatisticsCommitWhenTaken(t *testing.T) {
	for _, micro := range []int{1, 3} {
		tr := newTrainer(t, bnText, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0)), Micro: micro}})
		one := newTrainer(t, bnText, Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0))}})
		var feeds []feed
		for k := range micro {
			feeds = append(feeds, bnFeed(k, 0))
			one.step(bnFeed(k, 0))
		}
		tr.step(feeds...)
		for _, name := range []string{"rm", "rv"} {
			for i, x := range tr.env[name].F {
				if x != one.env[name].F[i] {
					t.Errorf("%d micro-batches: %s[%d] = %v, step by step %v", micro, name, i, x, one.env[name].F[i])
				}
			}
		}
		before := tr.snapshot()
		feeds[micro-1] = bnFeed(9, math.Inf(1))
		tr.step(feeds...)
		if after := tr.snapshot(); after["rm"] != before["rm"] || after["rv"] != before["rv"] {
			t.Errorf("%d micro-batches: a skipped step changed the running statistics", micro)
		}
	}
}

func TestDroppedMicroBatchLeavesNoStatistics(t *testing.T) {
	cfg := Config{Training: Training{Groups: oneGroup(SGD(0), Constant(0.1)), Micro: 3, BadMicro: DropMicro}}
	want := newTrainer(t, bnText, cfg)
	want.step(bnFeed(0, 0), bnFeed(2, 0))
	got := newTrainer(t, bnText, cfg)
	got.step(bnFeed(0, 0), bnFeed(1, math.Inf(1)), bnFeed(2, 0))
	for _, name := range []string{"rm", "rv", "s"} {
		for i, x := range got.env[name].F {
			if x != want.env[name].F[i] {
				t.Errorf("%s[%d] = %v, without the bad micro-batch %v", name, i, x, want.env[name].F[i])
			}
		}
	}
}

// penalty builds loss = mse + |d mse / d x|^2, the gradient a value of the forward section.
func penalty(scale float64) (*ir.Graph, error) {
	b := ir.NewBuilder("penalty")
	x := b.Declare(ir.Input, "x", ir.T(ir.F32, 3, 4), nil, nil)
	y := b.Declare(ir.Input, "y", ir.T(ir.F32, 3, 2), nil, nil)
	w := b.Declare(ir.Param, "w", ir.T(ir.F32, 4, 2), &ir.Init{Func: "normal", Args: []float64{0, 0.7}}, nil)
	c := b.Declare(ir.Param, "c", ir.T(ir.F32, 2), &ir.Init{Func: "normal", Args: []float64{0, 0.7}}, nil)
	out := b.Named("out").Tanh(b.Named("lin").Linear(x, w, c, false))
	inner := b.Named("inner").MSE(out, y)
	if b.Err() != nil {
		return nil, b.Err()
	}
	dx, _, err := Gradients(b, inner, []*ir.Value{x}, GradScale{Scale: scale})
	if err != nil {
		return nil, err
	}
	size := b.Named("size").ReduceSum(b.Mul(dx[0], dx[0]), false)
	loss := b.Named("loss").Add(inner, size)
	b.Return(loss)
	return b.Graph(), b.Err()
}

func TestGradientPenalty(t *testing.T) {
	f := feed{"x": f32s([]ir.Dim{3, 4}, 0.1, -0.4, 0.3, 0.9, 1, 0.2, -0.3, 0.5, -0.6, 0.7, 0.1, -0.2), "y": f32s([]ir.Dim{3, 2}, 0.3, -0.1, 0.5, 0.2, -0.7, 0.4)}
	for _, scale := range []float64{1, 1024} {
		g, err := penalty(scale)
		if err != nil {
			t.Fatal(err)
		}
		loss := func(env map[string]*eval.Tensor) float64 {
			r, err := eval.Step(g, env, []feed{f}, eval.Options{Seed: 1, Float64: true})
			if err != nil {
				t.Fatal(err)
			}
			return r.Value(g.Return[0]).F[0]
		}
		tr := newTrainer(t, g.String(), Config{Training: Training{Losses: []Loss{{Value: named("loss")}}, Groups: oneGroup(SGD(0), Constant(1)), Scaler: Dynamic()}})
		tr.exact = true
		tr.step(f)
		for _, name := range []string{"w", "c"} {
			start := tr.initial(name)
			typ := tr.g.Var(name).Type
			for i, d := range tr.moved(name, start) {
				at := func(h float64) float64 {
					x := append([]float64(nil), start...)
					x[i] += h
					return loss(map[string]*eval.Tensor{name: {Type: typ, F: x}})
				}
				if fd := (at(1e-5) - at(-1e-5)) / 2e-5; !close64(d, fd, 1e-6) {
					t.Errorf("scale %g: gradient of %s[%d] is %v, by differences %v", scale, name, i, d, fd)
				}
			}
		}
	}
}

// The overflow of an inner gradient lowers its own scale; without it a non-finite
// loss leaves both alone.
func TestInnerOverflowBlamesItsScale(t *testing.T) {
	g, err := penalty(0x1p127)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Training: Training{Losses: []Loss{{Value: named("loss")}}, Groups: oneGroup(SGD(0), Constant(1)), Scaler: Dynamic()}}
	f := feed{"x": f32s([]ir.Dim{3, 4}, make([]float64, 12)...), "y": f32s([]ir.Dim{3, 2}, 9, 9, 9, 9, 9, 9)}
	tr := newTrainer(t, g.String(), cfg)
	tr.step(f)
	if s, run, inner := tr.scalar("amp.scale"), tr.scalar("amp.fwd_run"), tr.scalar("amp.grad.scale"); s != 65536 || run != 0 || inner != 0x1p126 {
		t.Errorf("inner overflow: scale %g, fwd_run %g, inner scale %g, want 65536, 0 and 2^126", s, run, inner)
	}
	f["y"].F[1] = math.NaN() // the data are to blame for the inner gradient
	tr.step(f)
	if s, inner := tr.scalar("amp.scale"), tr.scalar("amp.grad.scale"); s != 65536 || inner != 0x1p126 {
		t.Errorf("NaN in the batch: scale %g, inner scale %g, want them as they were", s, inner)
	}
	f["y"].F[0] = math.NaN()
	calm, _ := penalty(1)
	tr = newTrainer(t, calm.String(), cfg)
	tr.step(f)
	if s, run := tr.scalar("amp.scale"), tr.scalar("amp.fwd_run"); s != 65536 || run != 1 {
		t.Errorf("bad data: scale %g, fwd_run %g, want 65536 and 1", s, run)
	}
}

// Two steps over the same variables, as a GAN has: one scale, advanced once.
func TestStepsShareOneScale(t *testing.T) {
	step := func(value, pattern, name string, sharing Sharing) *trainer {
		s := Dynamic()
		s.Every = 2
		return newTrainer(t, twoLossText, Config{Training: Training{Name: name, Losses: []Loss{{Value: named(value), Scaler: &s}}, Shared: map[*Scaler]SharedScale{&s: {Part: sharing}}, Groups: []Group{{Pattern: pattern, Optimizer: Adam(), LR: Constant(0.01)}}}})
	}
	d, g := step("second", "b", "d", Collect), step("first", "a", "g", Advance)
	g.env = d.env
	huge := twoFeed(1)
	huge["x"] = f32s([]ir.Dim{2, 2}, 1e36, 1, 1, 1)
	for i, c := range []struct {
		d, g feed
		want float64
	}{
		{twoFeed(1), twoFeed(1), 65536},
		{huge, twoFeed(1), 32768}, // noted by one, advanced by the other
		{twoFeed(1), twoFeed(1), 32768},
		{twoFeed(1), twoFeed(1), 65536}, // the note was used up: two clean iterations grow
	} {
		d.step(c.d)
		g.step(c.g)
		if got := g.scalar("amp.scale"); got != c.want {
			t.Errorf("iteration %d: scale %g, want %g", i, got, c.want)
		}
	}
	if s := d.scalar("amp.d.step"); s != 3 {
		t.Errorf("the first step counts %g taken, want 3", s)
	}
	if s := g.scalar("amp.g.step"); s != 4 {
		t.Errorf("the second step counts %g taken, want 4", s)
	}
	if a := g.scalar("amp.attempt"); a != 8 {
		t.Errorf("%g attempts, want 8", a)
	}
}

// A moment in bf16 is rounded when it is stored; the step uses it before that.
func TestStateInBF16(t *testing.T) {
	o := SGD(0.9)
	o.StateDType = ir.BF16
	tr := newTrainer(t, pairText, Config{Training: Training{Groups: oneGroup(o, Constant(0.1))}})
	var w, m []float32
	for k := range 6 {
		r := tr.step(pairFeed(k))
		if w == nil {
			w, m = narrow(r.Values["l.w"], 1), make([]float32, 6)
		}
		for i, g := range narrow(r.Values["d.l.w"], 1) {
			next := float32(float32(0.9)*m[i]) + g
			w[i] -= float32(float32(0.1) * next)
			m[i] = float32(eval.Round(float64(next), ir.BF16))
			if got := tr.env["l.w"].F[i]; got != float64(w[i]) {
				t.Fatalf("step %d: l.w[%d] = %v, the loop has %v", k, i, got, w[i])
			}
			if got := tr.env["amp.sgd.m/l.w"].F[i]; got != float64(m[i]) {
				t.Fatalf("step %d: l.w.m[%d] = %v, the loop has %v", k, i, got, m[i])
			}
		}
	}
	if d := tr.g.Var("amp.sgd.m/l.w").Type.DType; d != ir.BF16 {
		t.Errorf("the moment is stored in %s", d)
	}
}
