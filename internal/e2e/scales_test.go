package e2e_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc"
)

// gan is a generator and a discriminator over one store of variables: judge
// trains dis, fool trains gen through it.
func gan() (m *ampc.Model, judge, fool ampc.Tensor) {
	m = ampc.New("gan")
	z, sample := m.Input("z", ampc.F32, 8, 4), m.Input("sample", ampc.F32, 8, 2)
	no, yes := m.Input("no", ampc.F32, 8, 1), m.Input("yes", ampc.F32, 8, 1)
	gen := m.Scope("gen")
	fake := gen.Linear("out", gen.Gelu(gen.Linear("in", z, 8)), 2)
	dis := m.Shared("dis", func(m *ampc.Model, x ...ampc.Tensor) ampc.Tensor {
		return m.Linear("out", m.Gelu(m.Linear("in", x[0], 8)), 1)
	})
	onSample, onFake := dis(sample), dis(fake)
	judge = m.Named("judge").Add(m.BCEWithLogits(onSample, yes), m.BCEWithLogits(onFake, no))
	return m, judge, m.Named("fool").BCEWithLogits(onFake, yes)
}

func ganFeed(seed uint64) ampc.Feed {
	r := rand.New(rand.NewPCG(seed, 2))
	f := ampc.Feed{"z": make([]float32, 32), "sample": make([]float32, 16), "no": make([]float32, 8), "yes": make([]float32, 8)}
	for _, name := range []string{"z", "sample"} {
		x := f[name].([]float32)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
	}
	for i := range 8 {
		f["yes"].([]float32)[i] = 1
	}
	return f
}

// ganSteps compiles both steps; with a scaler they share it.
func ganSteps(t *testing.T, p ampc.Policy, scaler *ampc.Scaler) (m *ampc.Model, d, g *ampc.Step) {
	t.Helper()
	return ganStepsOf(t, p, p, scaler)
}

// ganStepsOf gives each step a policy of its own.
func ganStepsOf(t *testing.T, dis, gen ampc.Policy, scaler *ampc.Scaler) (m *ampc.Model, d, g *ampc.Step) {
	t.Helper()
	m, judge, fool := gan()
	t.Cleanup(func() { m.Close() })
	step := func(loss ampc.Tensor, trained string, p ampc.Policy) *ampc.Step {
		s, err := m.Train(ampc.TrainConfig{Name: trained, Policy: p, Groups: []ampc.Group{{Pattern: trained, Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1)}}},
			ampc.Loss{Value: loss, Scaler: scaler})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return m, step(judge, "dis", dis), step(fool, "gen", gen)
}

// A GAN's two steps in f16 with one loss scale follow plain f32 steps.
func TestGANFollowsF32(t *testing.T) {
	scaler := ampc.Dynamic()
	low, d, g := ganSteps(t, ampc.MixedF16(), &scaler)
	wide, pd, pg := ganSteps(t, ampc.F32Only(), nil)
	for k := range uint64(20) {
		f := ganFeed(k)
		for _, s := range []*ampc.Step{d, g, pd, pg} {
			if r := run(t, s, f); metrics(t, r).Skipped {
				t.Fatalf("iteration %d is skipped", k)
			}
		}
	}
	for _, name := range []string{"gen.in.w", "gen.out.b", "dis.in.w", "dis.out.w"} {
		a, err := low.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := wide.Variable(name)
		for i := range a.Len() {
			if x, y := a.At(i), b.At(i); math.Abs(x-y) > 20*0x1p-11*(math.Abs(y)+0.1) { // a rounding to f16 per step
				t.Errorf("%s[%d] = %g in f16, %g in f32", name, i, x, y)
			}
		}
	}
}

// Steps whose losses name one Scaler have one scale. The step compiled last
// advances it, once per iteration, for an overflow in any of them.
func TestStepsShareAScaler(t *testing.T) {
	scaler := ampc.Dynamic()
	scaler.Every = 3
	m, d, g := ganSteps(t, ampc.MixedF16(), &scaler)
	scale := func() float64 {
		x, err := m.Variable("amp.dis.scale/judge")
		if err != nil {
			t.Fatalf("%v; there are %q", err, m.Variables())
		}
		return x.At(0)
	}
	huge := ganFeed(1)
	for i := range huge["yes"].([]float32) {
		huge["yes"].([]float32)[i] = 100 // a gradient of 100/8 times 2^16 is beyond f16, the loss is not
	}
	for k, c := range []struct {
		d        ampc.Feed
		skipped  bool
		want     float64
		recorded string
	}{
		{ganFeed(0), false, 65536, "clean"},
		{huge, true, 32768, "overflow in the step that only notes it"},
		{ganFeed(2), false, 32768, "clean again"},
		{ganFeed(3), false, 32768, "two clean iterations"},
		{ganFeed(4), false, 65536, "three: it grows once, although six steps ran"},
	} {
		before := scale()
		if r := run(t, d, c.d); metrics(t, r).Skipped != c.skipped {
			t.Errorf("iteration %d (%s): skipped %t", k, c.recorded, metrics(t, r).Skipped)
		}
		if s := scale(); s != before {
			t.Errorf("iteration %d (%s): the first step moved the scale from %g to %g", k, c.recorded, before, s)
		}
		if r := run(t, g, ganFeed(uint64(k))); metrics(t, r).Skipped {
			t.Errorf("iteration %d (%s): the second step is skipped for the first's overflow", k, c.recorded)
		}
		if s := scale(); s != c.want {
			t.Errorf("iteration %d (%s): scale %g, want %g", k, c.recorded, s, c.want)
		}
	}
	for _, name := range m.Variables() {
		if strings.HasPrefix(name, "amp.gen.scale") {
			t.Error("the second step has a scale of its own")
		}
	}
}

// A step without a gradient in f16 advances the scale that it shares, and notes
// nothing for the other: its own gradients do not overflow.
func TestSharedScaleWithoutF16(t *testing.T) {
	huge := ganFeed(1)
	for i := range huge["yes"].([]float32) {
		huge["yes"].([]float32)[i] = 100
	}
	for name, p := range map[string][2]ampc.Policy{
		"advances in f32": {ampc.MixedF16(), ampc.F32Only()}, "advances in bf16": {ampc.MixedF16(), ampc.MixedBF16()}, "notes in f32": {ampc.F32Only(), ampc.MixedF16()},
	} {
		t.Run(name, func(t *testing.T) {
			scaler := ampc.Dynamic()
			scaler.Every = 3
			m, d, g := ganStepsOf(t, p[0], p[1], &scaler)
			for k, want := range []float64{65536, 32768, 32768, 32768, 65536} {
				f := ganFeed(uint64(k))
				if k == 1 {
					f = huge
				}
				run(t, d, f)
				run(t, g, f)
				x, err := m.Variable("amp.dis.scale/judge")
				if err != nil {
					t.Fatalf("%v; there are %q", err, m.Variables())
				}
				if x.At(0) != want {
					t.Errorf("iteration %d: scale %g, want %g", k, x.At(0), want)
				}
			}
		})
	}
}
