package passes

import (
	"math"
	"strings"
	"testing"

	"ampc/ir"
)

// 2a+3b and 3a-5b over shared weights move every parameter as the plain
// gradient of the combination does, with one scaler and with two.
func TestCombinedLosses(t *testing.T) {
	text := func(loss string) string {
		return `graph @two {
  input %x : f32[2,2]
  input %y : f32[2,2]
  param %a : f32[2,2] = normal(0, 0.5)
  param %both : f32[2,2] = normal(0, 0.5)
forward:
  %h = matmul %x, %both : f32[2,2]
  %p = matmul %h, %a : f32[2,2]
  %ps = square %p : f32[2,2]
  %first = reduce_mean %ps : f32[]
  %hs = mul %h, %y : f32[2,2]
  %second = reduce_mean %hs : f32[]
  %minus = neg %second : f32[]
` + loss + `}`
	}
	for _, c := range []struct {
		plain, term string
		weights     [2]float64
	}{
		{"  %l1 = affine %first {scale=2} : f32[]\n  %l2 = affine %second {scale=3} : f32[]\n  %loss = add %l1, %l2 : f32[]\n  return %loss\n", "second", [2]float64{2, 3}},
		{"  %l1 = affine %first {scale=3} : f32[]\n  %l2 = affine %second {scale=-5} : f32[]\n  %loss = add %l1, %l2 : f32[]\n  return %loss\n", "minus", [2]float64{3, 5}},
		{"  %l1 = affine %first {scale=3} : f32[]\n  %l2 = affine %second {scale=-5} : f32[]\n  %loss = add %l1, %l2 : f32[]\n  return %loss\n", "second", [2]float64{3, -5}},
	} {
		want := newTrainer(t, text(c.plain), Config{Training: Training{Losses: []Loss{{Value: named("loss")}}, Scaler: Unscaled(), Groups: oneGroup(SGD(0), Constant(1))}})
		want.exact = true
		want.step(twoFeed(1))
		aux := Static(64)
		for _, second := range []*Scaler{nil, &aux} {
			cfg := Config{Training: Training{Losses: []Loss{{Value: named("first"), Weight: c.weights[0]}, {Value: named(c.term), Weight: c.weights[1], Scaler: second}}, Groups: oneGroup(SGD(0), Constant(1)), Scaler: Dynamic()}}
			got := newTrainer(t, text("  return %first, %second, %minus\n"), cfg)
			got.exact = true
			got.step(twoFeed(1))
			for _, name := range []string{"a", "both"} {
				if norm2(want.moved(name, want.initial(name))) == 0 {
					t.Errorf("%s does not move: the test says nothing", name)
				}
				for i, x := range want.env[name].F {
					if y := got.env[name].F[i]; !close64(x, y, 1e-13) {
						t.Errorf("first and %s, own scaler %t: %s[%d] = %v, plain %v", c.term, second != nil, name, i, y, x)
					}
				}
			}
		}
	}
}

// Two optimizers, each with a loss and a scaler of its own, of which one skips:
// the other moves its parameter exactly as a plain step without scales does, and
// the skipped one as soon as its scale fits.
func TestTwoOptimizersOfWhichOneSkips(t *testing.T) {
	text := strings.Replace(twoLossText, "matmul %h, %b", "matmul %y, %b", 1) // apart, so that each has parameters of its own
	text = strings.Replace(text, "l1_loss", "mse", 1)
	groups := []Group{{Pattern: "b", Optimizer: SGD(0.9), LR: Constant(0.1)}, {Optimizer: AdamW(0.1), LR: Constant(0.01)}}
	aux := Dynamic()
	aux.Init, aux.Cap = 0x1p126, 0x1p126
	none := Unscaled()
	losses := func(second *Scaler) []Loss {
		return []Loss{{Value: named("first")}, {Value: named("second"), Scaler: second}}
	}
	got := newTrainer(t, text, Config{Training: Training{Losses: losses(&aux), Groups: groups, Scaler: Dynamic()}})
	plain := newTrainer(t, text, Config{Training: Training{Losses: losses(&none), Groups: groups, Scaler: Unscaled()}})
	same := func(when string, names ...string) {
		t.Helper()
		for _, name := range names {
			for i, x := range plain.env[name].F {
				if y := got.env[name].F[i]; x != y {
					t.Errorf("%s: %s[%d] = %v, by plain steps %v", when, name, i, y, x)
				}
			}
		}
	}
	f := feed{"x": f32s([]ir.Dim{2, 2}, 0.5, -1, 0.25, 2), "y": f32s([]ir.Dim{2, 2}, 8, -8, 4, 8)}
	plain.step(f)
	before, skips := got.initial("b"), 0
	for got.step(f); norm2(got.moved("b", before)) == 0; got.step(f) {
		if skips++; skips == 1 {
			same("while the other skips", "a", "both")
		}
		if skips > 20 {
			t.Fatal("the second optimizer never takes a step")
		}
	}
	if skips == 0 {
		t.Fatal("nothing overflowed: the test says nothing")
	}
	same("after the first step that fits", "b")
	if s := got.scalar("amp.scale"); s != 65536 {
		t.Errorf("the first scale went to %g for the second's overflow", s)
	}
	for range skips {
		plain.step(f)
	}
	same("after all steps", "a", "both")
}

// A micro-batch that is not finite and dropped leaves what a plain f32 step over
// the others does; one that skips the step leaves everything as it was.
func TestBadMicroBatchAgainstPlainSteps(t *testing.T) {
	bad := rowsFeed(4, 8, nil)
	bad["x"].F[0] = math.Inf(1)
	good := []feed{rowsFeed(0, 4, nil), rowsFeed(8, 12, map[int]bool{8: true})}
	cfg := Config{Training: Training{Groups: oneGroup(AdamW(0.1), Constant(0.1)), Micro: 3, Scaler: Unscaled()}}
	plain := newTrainer(t, classText(4, plainLoss), cfg)
	plain.step(good...)
	cfg.Scaler = Dynamic()
	for _, policy := range []BadMicro{DropMicro, SkipStep} {
		cfg.BadMicro = policy
		tr := newTrainer(t, classText(4, plainLoss), cfg)
		want := plain.env["w"].F
		if policy == SkipStep {
			want = tr.initial("w")
		}
		tr.step(good[0], bad, good[1])
		for i, x := range want {
			if y := tr.env["w"].F[i]; !close64(x, y, 1e-6) {
				t.Errorf("policy %d: w[%d] = %v, want %v", policy, i, y, x)
			}
		}
	}
}

// An inner gradient that overflows lowers its own scale step by step and no
// other, and the step is taken as soon as it no longer does, as a plain one is.
func TestGradientPenaltyRecovers(t *testing.T) {
	wild := feed{"x": f32s([]ir.Dim{3, 4}, make([]float64, 12)...), "y": f32s([]ir.Dim{3, 2}, 72, 72, 72, 72, 72, 72)}
	calm := feed{"x": f32s([]ir.Dim{3, 4}, 0.1, -0.4, 0.3, 0.9, 1, 0.2, -0.3, 0.5, -0.6, 0.7, 0.1, -0.2), "y": f32s([]ir.Dim{3, 2}, 1e-3, 2e-3, -1e-3, 0, 1e-3, 2e-3)}
	scaled, err := penalty(0x1p127)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := penalty(1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Training: Training{Losses: []Loss{{Value: named("loss")}}, Groups: oneGroup(SGD(0), Constant(0.1)), Scaler: Dynamic()}}
	got := newTrainer(t, scaled.String(), cfg)
	for k, want := range []float64{0x1p126, 0x1p125, 0x1p124} {
		got.step(wild)
		if s, run, taken := got.scalar("amp.grad.scale"), got.scalar("amp.fwd_run"), got.scalar("amp.step"); s != want || run != 0 || taken != 0 {
			t.Fatalf("overflow %d: inner scale %g, fwd_run %g, %g steps taken, want %g, 0 and 0", k, s, run, taken, want)
		}
		if s := got.scalar("amp.scale"); s != 65536 {
			t.Fatalf("overflow %d: the loss scale went to %g for the inner gradient's overflow", k, s)
		}
	}
	got.step(calm)
	if taken := got.scalar("amp.step"); taken != 1 {
		t.Fatalf("%g steps are taken once nothing overflows, want 1", taken)
	}
	cfg.Scaler = Unscaled()
	want := newTrainer(t, plain.String(), cfg)
	want.step(calm)
	for _, name := range []string{"w", "c"} {
		for i, x := range want.env[name].F {
			if y := got.env[name].F[i]; !close64(x, y, 1e-6) {
				t.Errorf("%s[%d] = %v, by a plain step %v", name, i, y, x)
			}
		}
	}
}

// A step that only notes overflows for another lowers the scale of its inner
// gradient itself, and notes nothing for it.
func TestInnerOverflowIsNotNoted(t *testing.T) {
	g, err := penalty(0x1p127)
	if err != nil {
		t.Fatal(err)
	}
	s := Dynamic()
	s.Sharing = Collect
	tr := newTrainer(t, g.String(), Config{Training: Training{Losses: []Loss{{Value: named("loss")}}, Groups: oneGroup(SGD(0), Constant(1)), Scaler: s}})
	f := feed{"x": f32s([]ir.Dim{3, 4}, make([]float64, 12)...), "y": f32s([]ir.Dim{3, 2}, 9, 9, 9, 9, 9, 9)}
	tr.step(f)
	if n, s := tr.env["amp.noted"].At(0), tr.scalar("amp.grad.scale"); n != 0 || s != 0x1p126 {
		t.Errorf("noted is %g, inner scale %g, want 0 and 2^126", n, s)
	}
}

// A program that uses scaled gradients where unscaled ones belong does not compile.
func TestUnitsRefuseWrongOrders(t *testing.T) {
	head := `graph @units {
  input %d : f32[4] {unit=amp.scale}
  input %e : f32[4] {unit=aux.scale}
  param %w : f32[4] = 0
  state %lr : f32[] = 1
  state %amp.scale : f32[] = 1024 {role=scale}
update:
  %mul = multiplier {scale=%amp.scale} : f32[]
`
	for _, c := range []struct{ line, want string }{
		{"%n = global_norm _, %d : f32[]", "u.ir:9: global_norm: %n reads %d (u.ir:2), which carries the loss scale amp.scale; unscale it first"},
		{"%n = global_norm %mul, %d, %e : f32[]", "%e (u.ir:3) has scale unit aux.scale and %mul (u.ir:8) has scale unit amp.scale^-1: a norm wants unscaled gradients"},
		{"%c = clip %d {lo=-1.0 hi=1.0} : f32[4]", "u.ir:9: clip: %c reads %d (u.ir:2), which carries the loss scale amp.scale; unscale it first"},
		{"%g = unscale %d {mul=%mul} : f32[4]\n  %h = unscale %g {mul=%mul} : f32[4]", "%g (u.ir:9) has scale unit 1 and %mul (u.ir:8) has scale unit amp.scale^-1: the product must have scale unit 1 (is it unscaled twice, or by another loss's scale?)"},
		{"%w' = sgd %w, %d {lr=%lr}", "u.ir:9: sgd: %w' reads the gradient %d (u.ir:2), which carries the loss scale amp.scale, and no multiplier takes it off"},
		{"%w' = sgd %w, %e {lr=%lr mul=%mul}", "the gradient %e (u.ir:3) has scale unit aux.scale and the multiplier %mul (u.ir:8) has scale unit amp.scale^-1: the product must have scale unit 1"},
		{"%s = add %d, %e : f32[4]", "%d (u.ir:2) has scale unit amp.scale and meets %e (u.ir:3), which has scale unit aux.scale"},
		{"%w' = sgd %w, %d {lr=%lr mul=%mul}", "u.ir:9: sgd: %w' reads the scaled gradient %d (u.ir:2), and no skip predicate says whether that is finite: check it with any_nonfinite and give the result as skip"},
		{"%g = unscale %d {mul=%mul} : f32[4]\n  %w' = sgd %w, %g {lr=%lr}", "u.ir:10: sgd: %w' reads the scaled gradient %d (u.ir:2), and no skip predicate"},
		{"%bad = any_nonfinite %e : bool[]\n  %w' = sgd %w, %d {lr=%lr mul=%mul skip=%bad}", "u.ir:10: sgd: %w' reads the scaled gradient %d (u.ir:2), which no finiteness check of its skip predicate %bad (u.ir:9) sees"},
		{"%g = unscale %d {mul=%mul} : f32[4]\n  %n = global_norm _, %g : f32[]\n  %bad = any_nonfinite %n : bool[]\n  %w' = sgd %w, %d {lr=%lr mul=%mul skip=%bad}", ""},
		{"%g = unscale %d {mul=%mul} : f32[4]\n  %c = clip %g {lo=-1.0 hi=1.0} : f32[4]\n  %bad = any_nonfinite %c : bool[]\n  %w' = sgd %w, %c {lr=%lr skip=%bad}", "u.ir:12: sgd: %w' reads the scaled gradient %d (u.ir:2), which no finiteness check of its skip predicate %bad (u.ir:11) sees"},
		{"%bad = any_nonfinite %d, %e : bool[]\n  %w' = sgd %w, %d {lr=%lr mul=%mul skip=%bad}", ""},
		{"%g = unscale %d {mul=%mul} : f32[4]\n  %bad = any_nonfinite %g : bool[]\n  %c = clip %g {lo=-1.0 hi=1.0} : f32[4]\n  %w' = sgd %w, %c {lr=%lr skip=%bad}", ""},
	} {
		g, err := ir.Parse("u.ir", []byte(head+"  "+c.line+"\n}"))
		if err != nil {
			t.Fatal(err)
		}
		err = wrongOrders(g, newContext(Config{}))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: refused: %v", c.line, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.line, err, c.want)
		case c.want != "" && !strings.HasPrefix(err.Error(), "u.ir:"):
			t.Errorf("%v has no position", err)
		}
	}
}
