package models_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/trial"
	"ampc/ir"
	"ampc/models"
	"ampc/passes"
)

// named are the values of a model whose last part is that name, in order.
func named(z *models.Zoo, last string) (names []string, values []ampc.Tensor) {
	for _, n := range z.Model.Graph().Nodes {
		for _, v := range n.Out {
			if strings.HasSuffix(v.Name, "."+last) {
				names, values = append(names, v.Name), append(values, z.Model.FromIR(v))
			}
		}
	}
	return names, values
}

// The gates of a ConvLSTM and its hidden images stay in their range over 64
// steps in f16, its cell grows by one a step where all gates are open, and a step
// of training is taken: with gates far beyond saturation, open and closed.
func TestConvLSTMSaturates(t *testing.T) {
	const steps = 64
	for _, c := range []struct {
		name       string
		i, f, g, o float32
	}{{"open", 40, 40, 40, 40}, {"forgets", 40, -40, -40, 40}, {"closed", -40, -40, 40, -40}, {"beyond f16", 7e4, 7e4, 7e4, 7e4}} {
		t.Run(c.name, func(t *testing.T) {
			z, err := models.Open("convlstm?batch=1&seq=32&ahead=32&size=4&width=2&layers=1")
			if err != nil {
				t.Fatal(err)
			}
			defer z.Model.Close()
			config := z.Steps[0].Config
			config.Policy = ampc.MixedF16()
			step, err := z.Model.Train(config, z.Steps[0].Losses...)
			if err != nil {
				t.Fatal(err)
			}
			for _, layer := range []string{"enc1.b", "dec1.b"} {
				if err := z.Model.SetVariable(layer, []float32{c.i, c.i, c.f, c.f, c.g, c.g, c.o, c.o}); err != nil {
					t.Fatal(err)
				}
			}
			var outputs []ampc.Tensor
			var names []string
			for _, last := range []string{"i", "f", "o", "hidden", "cell"} {
				n, v := named(z, last)
				if len(v) != steps {
					t.Fatalf("%d values are called %s, want %d", len(v), last, steps)
				}
				names, outputs = append(names, n...), append(outputs, v...)
			}
			eval, err := step.Eval(outputs...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := eval.Run(context.Background(), z.Batch(1))
			if err != nil {
				t.Fatal(err)
			}
			for k, out := range outputs {
				h, err := got.Value(out)
				if err != nil {
					t.Fatal(err)
				}
				least, most := 0.0, 1.0
				switch {
				case strings.HasSuffix(names[k], ".hidden"):
					least = -1
				case strings.HasSuffix(names[k], ".cell"):
					at := float64(k%steps + 1) // steps taken
					least, most = -at, at
					if c.name == "open" && math.Abs(h.At(0)-at) > 1e-3 {
						t.Errorf("%s is %g with open gates, want %g", names[k], h.At(0), at)
					}
				}
				for i := range h.Len() {
					if x := h.At(i); !(x >= least && x <= most) {
						t.Fatalf("%s[%d] is %g, want %g to %g", names[k], i, x, least, most)
					}
				}
			}
			for range 3 {
				r, err := step.Run(context.Background(), z.Batch(1))
				if err != nil {
					t.Fatal(err)
				}
				if m := trial.Metrics(t, r); m.Skipped || math.IsNaN(m.Loss) || math.IsInf(m.Loss, 0) {
					t.Errorf("a step has loss %g, skipped %t", m.Loss, m.Skipped)
				}
			}
		})
	}
}

// Mixed policies never round the cell of a ConvLSTM: it is stored in f32, no
// cast narrows it, and the dump says why.
func TestConvLSTMCellStaysF32(t *testing.T) {
	z, err := models.Open("convlstm?batch=2&seq=3&ahead=2&size=4&width=4")
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16()} {
		c := z.Steps[0].Config
		c.Policy = policy
		g, cfg, err := z.Model.Source(c, z.Steps[0].Losses...)
		if err != nil {
			t.Fatal(err)
		}
		if err := passes.Run(g, cfg); err != nil {
			t.Fatal(err)
		}
		uses, cells := g.Uses(), 0
		for _, n := range g.Nodes {
			for _, v := range n.Out {
				if !strings.HasSuffix(v.Name, ".cell") {
					continue
				}
				cells++
				if v.Type.DType != ir.F32 {
					t.Errorf("%s: %s is stored in %s", policy.Name, v, v.Type.DType)
				}
				for _, u := range uses.Of(v) {
					if u.Node.Op == ir.OpCast {
						t.Errorf("%s: %s rounds %s", policy.Name, u.Node.Out[0], v)
					}
				}
				if n.Why.Class != ir.PromoteC || n.Why.From == nil {
					t.Errorf("%s: the dump does not say which operand keeps %s in f32", policy.Name, v)
				}
			}
		}
		if want := 2 * 2 * 5; cells != want { // two layers of five steps, and their gradients
			t.Errorf("%s: %d cells, want %d", policy.Name, cells, want)
		}
	}
}

// A 3-D model that does not fit the machine is refused before it starts, in one
// line.
func TestVolumesThatDoNotFit(t *testing.T) {
	z, err := models.Open("unet3d?batch=8&depth=1024&size=1024")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	c.Policy = ampc.MixedF16()
	_, err = z.Model.Train(c, z.Steps[0].Losses...)
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "not even batch = 1 fits: make the model smaller") {
		t.Errorf("error %v, want one line that says what to make smaller", err)
	}
}
