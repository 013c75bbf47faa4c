package passes

import (
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
	for _, c := range []struct{ plain, term string }{
		{"  %l1 = affine %first {scale=2} : f32[]\n  %l2 = affine %second {scale=3} : f32[]\n  %loss = add %l1, %l2 : f32[]\n  return %loss\n", "second"},
		{"  %l1 = affine %first {scale=3} : f32[]\n  %l2 = affine %second {scale=-5} : f32[]\n  %loss = add %l1, %l2 : f32[]\n  return %loss\n", "minus"},
	} {
		want := newTrainer(t, text(c.plain), Config{Losses: []Loss{{Value: "loss"}}, Scaler: Unscaled(), Groups: oneGroup(SGD(0), Constant(1))})
		want.exact = true
		want.step(twoFeed(1))
		weights := []float64{2, 3}
		if c.term == "minus" {
			weights = []float64{3, 5}
		}
		for _, second := range []string{"", "aux"} {
			cfg := Config{Losses: []Loss{{Value: "first", Weight: weights[0]}, {Value: c.term, Weight: weights[1], Scaler: second}}, Groups: oneGroup(SGD(0), Constant(1)), Scaler: Dynamic()}
			if second != "" {
				cfg.Scalers = map[string]Scaler{"amp": Dynamic(), "aux": Static(64)}
			}
			got := newTrainer(t, text("  return %first, %second, %minus\n"), cfg)
			got.exact = true
			got.step(twoFeed(1))
			for _, name := range []string{"a", "both"} {
				if norm2(want.moved(name, want.initial(name))) == 0 {
					t.Errorf("%s does not move: the test says nothing", name)
				}
				for i, x := range want.env[name].F {
					if y := got.env[name].F[i]; !close64(x, y, 1e-13) {
						t.Errorf("first and %s, scaler %q: %s[%d] = %v, plain %v", c.term, second, name, i, y, x)
					}
				}
			}
		}
	}
}

// An inner gradient that overflows first lowers the scale step by step, and the
// step is taken as soon as it no longer does, as a plain one is: nothing freezes.
func TestGradientPenaltyRecovers(t *testing.T) {
	wild := feed{"x": f32s([]ir.Dim{3, 4}, make([]float64, 12)...), "y": f32s([]ir.Dim{3, 2}, 9, 9, 9, 9, 9, 9)}
	calm := feed{"x": f32s([]ir.Dim{3, 4}, 0.1, -0.4, 0.3, 0.9, 1, 0.2, -0.3, 0.5, -0.6, 0.7, 0.1, -0.2), "y": f32s([]ir.Dim{3, 2}, 1e-3, 2e-3, -1e-3, 0, 1e-3, 2e-3)}
	scaled, err := penalty(0x1p127)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := penalty(1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Losses: []Loss{{Value: "loss"}}, Groups: oneGroup(SGD(0), Constant(0.1)), Scaler: Dynamic()}
	got := newTrainer(t, scaled.String(), cfg)
	for k, want := range []float64{32768, 16384, 8192} {
		got.step(wild)
		if s, run, taken := got.scalar("amp.scale"), got.scalar("amp.fwd_run"), got.scalar("step"); s != want || run != 0 || taken != 0 {
			t.Fatalf("overflow %d: scale %g, fwd_run %g, %g steps taken, want %g, 0 and 0", k, s, run, taken, want)
		}
	}
	got.step(calm)
	if taken := got.scalar("step"); taken != 1 {
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

// A step that only notes overflows notes those of an inner gradient too.
func TestInnerOverflowIsNoted(t *testing.T) {
	g, err := penalty(0x1p127)
	if err != nil {
		t.Fatal(err)
	}
	s := Dynamic()
	s.Sharing = Collect
	tr := newTrainer(t, g.String(), Config{Losses: []Loss{{Value: "loss"}}, Groups: oneGroup(SGD(0), Constant(1)), Scaler: s})
	f := feed{"x": f32s([]ir.Dim{3, 4}, make([]float64, 12)...), "y": f32s([]ir.Dim{3, 2}, 9, 9, 9, 9, 9, 9)}
	tr.step(f)
	if n := tr.env["amp.noted"].At(0); n != 1 {
		t.Errorf("noted is %g, want 1", n)
	}
}
