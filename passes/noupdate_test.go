package passes

import (
	"math"
	"slices"
	"testing"
)

// A group without update gives the gradients that the optimizer would have
// used, says where they overflow, and moves nothing.
func TestNoUpdate(t *testing.T) {
	g := gradients(t, pairText, pairFeed(0))
	for _, scaler := range []Scaler{Unscaled(), Dynamic()} {
		tr := newTrainer(t, pairText, Config{
			Training: Training{
				Groups: []Group{{Pattern: "*.w", NoUpdate: true}, {Optimizer: SGD(0), LR: Constant(1)}},
				Scaler: scaler,
				EMA:    0.5,
			},
			Outputs: []Output{{Kind: OfGradient, Value: named("l.w")}, {Kind: OfSkip}},
		})
		tr.exact = true
		r := tr.step(pairFeed(0))
		out := tr.g.Return[len(tr.g.Return)-2:]
		for i, x := range r.Values[out[0].Name].F {
			if want := g["l.w"][i]; !close64(x, want, 1e-5) {
				t.Errorf("%s: gradient %d is %v, want %v", scaler.Mode, i, x, want)
			}
		}
		if r.Values[out[1].Name].I[0] != 0 {
			t.Errorf("%s: a finite step is skipped", scaler.Mode)
		}
		if before := tr.initial("l.w"); !slices.Equal(tr.env["l.w"].F, before) {
			t.Errorf("%s: l.w moved", scaler.Mode)
		}
		if tr.g.Var("amp.ema/l.w") != nil || tr.g.Var("amp.ema/l.b") == nil {
			t.Errorf("%s: averages are kept of what is not stepped, or not of what is", scaler.Mode)
		}
		if d := tr.moved("l.b", tr.initial("l.b")); !close64(d[0], g["l.b"][0], 1e-5) || math.IsNaN(d[0]) {
			t.Errorf("%s: l.b moved by %v, want %v", scaler.Mode, d[0], g["l.b"][0])
		}
	}
}
