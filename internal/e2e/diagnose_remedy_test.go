package e2e_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/golden"
	"ampc/ir"
)

// moreFaults are those of which the cure is the point: several places at
// once, a scale that the first overflow does not give away, a floor in the way.
func moreFaults() []fault {
	both := []ampc.Policy{ampc.MixedBF16(), ampc.F32Only()}
	dynamic := func(init, floor float64) func(c *ampc.TrainConfig) {
		return func(c *ampc.TrainConfig) {
			c.Scaler = ampc.Dynamic()
			c.Scaler.Init, c.Scaler.Floor = init, floor
		}
	}
	return []fault{
		{name: "activations of two layers", want: finding{ampc.ForwardOverflow, "%sact", "relu", "forward", "66246"},
			layer: activationLayer, clean: both, inject: func(w *subject, h string) {
				for _, layer := range []string{"h1.", "h4."} {
					if name := h[:max(len(h)-3, 0)] + layer + "up.w"; w.m.Graph().Var(name) != nil {
						w.edit(name, func(i int, _ float32) float32 { return tall(i / subjectWidth) })
					}
				}
				w.edit(h+"up.w", func(i int, _ float32) float32 { return tall(i / subjectWidth) })
			}},
		{name: "gradients that grow behind the first overflow", want: finding{ampc.NoFault, "d.%sthird", "matmul", "backward", "scale search"},
			layer: growingLayer, clean: both, inject: func(w *subject, h string) {
				for _, name := range []string{"second.w", "third.w", "down.w"} {
					w.times(h+name, 64)
				}
			}, config: dynamic(65536, 1)},
		{name: "a floor above the scale that fits", want: finding{ampc.GradientOverflow, "d.%ssmall", "matmul", "backward", "Floor"},
			layer: steepLayer, clean: both, inject: func(w *subject, h string) { w.times(h+"down.w", 1<<17) },
			config: dynamic(4, 1), shrink: 64},
		{name: "the scale at a floor of its own", want: finding{ampc.ScaleTooHigh, "d.%ssmall", "matmul", "backward", "Floor"},
			layer: steepLayer, clean: both, inject: func(w *subject, h string) { w.times(h+"down.w", 1<<15) },
			config: dynamic(1<<14, 1<<14), shrink: 0x1p-7},
		{name: "variance by the difference of two means", lower: "h*.second", want: finding{ampc.Singular, "%sdev", "sqrt", "forward", "cancels"},
			layer: varianceLayer, clean: []ampc.Policy{ampc.F32Only()}, inject: func(w *subject, h string) { w.plus(h+"up.b", 60) },
			config: func(c *ampc.TrainConfig) { c.Compile.Disable = []string{"recognize", "epsilon"} }},
		{name: "a quotient with a steep gradient", lower: "h*.low", want: finding{ampc.Singular, "%sratio", "div", "forward", "low was rounded to 0"},
			layer: quotientLayer, clean: both, inject: func(w *subject, h string) { w.plus(h+"den.b", -12) },
			config: dynamic(4, 1), shrink: 0x1p14},
		{name: "a quotient with a steep gradient behind views", lower: "h*.low", want: finding{ampc.Singular, "%sratio", "div", "forward", "low was rounded to 0"},
			layer: turnedLayer, clean: both, inject: func(w *subject, h string) { w.plus(h+"den.b", -12) },
			config: dynamic(4, 1), shrink: 0x1p14},
		{name: "a tall activation before a steep gradient", want: finding{ampc.ForwardOverflow, "%sact", "relu", "forward", "66246"},
			layer: tallSteepLayer, clean: both, inject: func(w *subject, h string) {
				w.edit(h+"up.w", func(i int, _ float32) float32 { return tall(i / subjectWidth) })
				steep := h // another layer, where there are several
				if len(h) > 0 {
					steep = h[:len(h)-3] + "h4."
				}
				w.times(steep+"down.w", 1<<17)
			}, config: dynamic(4, 1), shrink: 64},
		{name: "scores of which 16 bits say nothing", want: finding{ampc.ForwardOverflow, "%sscores", "matmul", "forward", "the largest f16 is 65504"},
			layer: sharpLayer, clean: []ampc.Policy{ampc.F32Only()}, inject: func(w *subject, h string) {
				w.plus(h+"up.b", 5000)
				w.times(h+"down.w", 100)
			}, bound: 0x1p-5},
		{name: "angles of which f32 says nothing", lower: "h*.angle", want: finding{ampc.ForwardOverflow, "%ssquare", "square", "forward", "f32 does not hold this step either"},
			layer: waveLayer, clean: []ampc.Policy{ampc.F32Only()}, inject: func(w *subject, h string) {
				w.plus(h+"up.b", 300)
				w.times(h+"down.w", 100)
			}},
		{name: "a pin in code", want: finding{ampc.ForwardOverflow, "%sboost", "affine", "forward", "remove the 16-bit pin"},
			layer: pinnedLayer, clean: []ampc.Policy{ampc.F32Only()}, inject: func(w *subject, h string) { w.plus(h+"up.b", 4e4) }},
		{name: "inner gradient under a dynamic scale", want: finding{ampc.NoFault, "grad.%smid", "matmul", "inner gradient", "scale search"},
			layer: penaltyLayer, clean: both, inject: func(w *subject, h string) { w.times(h+"read.w", 256) }},
	}
}

// growingLayer has small values before large weights, several times.
func growingLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	x := line(m, "first", m.Tanh(line(m, "up", h, subjectWidth)), subjectWidth, 0x1p-12, noBias)
	x = line(m, "second", x, subjectWidth, noBias)
	x = line(m, "third", x, subjectWidth, noBias)
	return branch(m, h, x), ampc.Tensor{}
}

// quotientLayer divides by what f16 rounds to 0 where den is low; the gradient of
// its numerator is that of the quotient over the same number.
func quotientLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	return quotient(m, h, line(m, "up", h, subjectWidth, 0x1p-12, noBias))
}

// turnedLayer has views between the product and the quotient: one, of the product's own
// shape, shares its gradient.
func turnedLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	up := line(m, "up", h, subjectWidth, 0x1p-12, noBias)
	return quotient(m, h, m.Named("back").Transpose(m.Named("turned").Transpose(m.Named("same").Reshape(up, subjectRows, subjectWidth), 1, 0), 1, 0))
}

func quotient(m *ampc.Model, h, numerator ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	low := m.Named("low").Affine(m.Named("gate").Sigmoid(line(m, "den", h, subjectWidth)), 0x1p-10, 0)
	return branch(m, h, m.Named("mild").Affine(m.Named("ratio").Div(numerator, low), 0x1p-16, 0)), ampc.Tensor{}
}

// tallSteepLayer overflows in forward, and where it does not, in the gradient of what it
// multiplies by large weights.
func tallSteepLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	act := m.Named("act").Relu(line(m, "up", m.Named("ones").Affine(h, 0, 1), subjectWidth, noBias))
	small := line(m, "small", m.Tanh(h), subjectWidth, 0x1p-12, noBias)
	return branch(m, m.Add(h, line(m, "calm", act, subjectWidth, 1e-5)), small), ampc.Tensor{}
}

// sharpLayer attends with scores that are not scaled: where up is far from 0, their
// differences are lost in 16 bits, and softmax chooses another row.
func sharpLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	q := m.Affine(line(m, "q", line(m, "up", h, subjectWidth), subjectWidth), 5, 0)
	scores := m.Named("scores").Matmul(q, q, ampc.MatmulOptions{TransposeY: true})
	return branch(m, h, m.Named("mix").Matmul(m.Named("probs").Softmax(scores, -1), h)), ampc.Tensor{}
}

// waveLayer has angles that no dtype tells apart where up is far from 0.
func waveLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	angle := m.Named("angle").Square(m.Square(line(m, "up", h, subjectWidth)))
	return branch(m, h, m.Named("wave").Sin(angle)), ampc.Tensor{}
}

// unpinned are the values whose pin pinnedLayer leaves out.
var unpinned []string

// pinnedLayer has a value pinned to 16 bits in code.
func pinnedLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	b := m.Named("boost")
	if !slices.Contains(unpinned, m.ScopeName()+"boost") {
		b = b.Precision(ampc.PinLow)
	}
	return branch(m, h, m.Affine(b.Affine(line(m, "up", h, subjectWidth), 2, 0), 1e-5, 0)), ampc.Tensor{}
}

// varianceLayer computes E[x²]−E[x]² of means stored in the low dtype.
func varianceLayer(m *ampc.Model, h ampc.Tensor) (ampc.Tensor, ampc.Tensor) {
	u := line(m, "up", h, subjectWidth)
	second := m.Named("second").ReduceMean(m.Square(u), ampc.ReduceOptions{Axes: []int{-1}, Keep: true})
	first := m.Named("first").ReduceMean(u, ampc.ReduceOptions{Axes: []int{-1}, Keep: true})
	variance := m.Named("variance").Sub(second, m.Square(first))
	dev := m.Named("dev").Sqrt(m.Named("shifted").Affine(variance, 1, 1e-3))
	return branch(m, h, m.Named("norm").Div(m.Sub(u, first), dev)), ampc.Tensor{}
}

// Every remedy that the doctor has for any fault, however the network is built,
// is applied; the step is then taken, after no more skipped steps than it says,
// and has the gradients of f32.
func TestRemedies(t *testing.T) {
	applied := map[string]int{}
	for _, i := range append(faults(), moreFaults()...) {
		for n, f := range forms {
			t.Run(fmt.Sprint(i.name, "/", n), func(t *testing.T) {
				i.form, i.grads = f, true
				w := i.open(t, ampc.MixedF16(), 3)
				if !metrics(t, w.run()).Skipped {
					t.Skip("built like this, the step is taken")
				}
				d := w.diagnose()
				for _, r := range d.Remedies {
					applied[kind(r)]++
					i.applied(t, d, r)
				}
			})
		}
	}
	for _, k := range []string{"keep", "unpin", "policy", "scale", "floor", "wait", "widen"} {
		if applied[k] < 3 {
			t.Errorf("%d remedies of kind %s", applied[k], k)
		}
	}
	t.Logf("applied: %v", applied)
}

func kind(r ampc.Remedy) string {
	switch {
	case r.Unpin != nil:
		return "unpin"
	case r.Keep != nil:
		return "keep"
	case r.Policy != "":
		return "policy"
	case r.Widen != "":
		return "widen"
	case r.Floor != 0:
		return "floor"
	case r.Scale != 0:
		return "scale"
	}
	return "wait"
}

// applied applies a remedy to the network with the fault and compares the step with f32.
func (i fault) applied(t *testing.T, d *ampc.Diagnosis, r ampc.Remedy) {
	t.Helper()
	p, config := ampc.MixedF16(), i.config
	if r.Policy != "" {
		var err error
		if p, err = ampc.PolicyNamed(r.Policy); err != nil {
			t.Fatal(err)
		}
	}
	defer func(s float64) { innerScale, wideUpdate = s, false }(innerScale)
	if r.Of != "" && r.Scale != 0 {
		innerScale = r.Scale
	}
	wideUpdate, unpinned = r.Widen != "", r.Unpin
	defer func() { unpinned = nil }()
	i.config = func(c *ampc.TrainConfig) {
		if config != nil {
			config(c)
		}
		switch static := c.Scaler.Mode == ampc.Static(1).Mode; {
		case r.Scale != 0 && r.Of == "" && static:
			c.Scaler = ampc.Static(r.Scale)
		case r.Scale != 0 && r.Of == "":
			c.Scaler.Init = r.Scale
		case r.Floor != 0:
			c.Scaler.Floor = r.Floor
		}
	}
	w := i.open(t, p, 3, r.Keep...)
	unpinned = nil // f32 has the pin, which changes nothing there
	wait := r.Wait
	if r.Wait > 0 {
		wait++ // the step that was diagnosed
	}
	skipped := 0
	for result := w.run(); metrics(t, result).Skipped; result = w.run() {
		if skipped++; skipped <= wait {
			continue
		}
		next := w.diagnose()
		if k := slices.IndexFunc(next.Remedies, func(r ampc.Remedy) bool { return r.Wait > 0 && r.Floor == 0 }); next.Cause == ampc.NoFault && k >= 0 && wait == 0 {
			wait = skipped + next.Remedies[k].Wait // other values search for their scale
			continue
		} else if next.Cause == ampc.NoFault && wait == 0 {
			wait = skipped
			continue
		}
		t.Errorf("the doctor says\n%s\nand after %+v\n%s", d, r, next)
		return
	}
	if r.Wait > 0 && r.Floor == 0 && skipped != wait {
		t.Errorf("%d steps were skipped, the doctor says %d: %s", skipped, wait, d)
	}
	i.config = config
	i.agrees(t, w, r)
}

// agrees compares the loss and the gradients of a step with a remedy with those of f32.
func (i fault) agrees(t *testing.T, w *subject, r ampc.Remedy) {
	t.Helper()
	right := i.open(t, ampc.F32Only(), 3)
	off, all := 0.0, 0.0
	for _, v := range right.m.Graph().Vars {
		if v.Kind != ir.Param || inert(v.Name) {
			continue
		}
		a, b := gradient(t, w, v.Name), gradient(t, right, v.Name)
		for k := range b {
			off, all = off+(a[k]-b[k])*(a[k]-b[k]), all+b[k]*b[k]
		}
	}
	bound := 0x1p-6 // some ten roundings of half an ulp of f16
	if i.bound != 0 {
		bound = i.bound
	}
	if r.Policy != "" {
		bound = 0x1p-5 // of bf16; the guide promises twice that
	}
	if !(math.Sqrt(off) <= bound*math.Sqrt(all)) {
		t.Errorf("%s after %+v: the gradients are off by %.3g of their norm", i.name, r, math.Sqrt(off/all))
	}
	if is, want := metrics(t, w.last).Loss, metrics(t, right.last).Loss; !(math.Abs(is-want) <= bound*math.Abs(want)) {
		t.Errorf("%s after %+v: the loss is %g, in f32 %g", i.name, r, is, want)
	}
}

// gradient is that of a parameter in a step over the subject's variables and feed,
// of a policy's precision and with the update left out of it.
func gradient(t *testing.T, w *subject, name string) []float64 {
	t.Helper()
	if w.last == nil {
		r := w.run()
		if metrics(t, r).Skipped {
			t.Fatal("the step is skipped")
		}
		w.last = r
	}
	h, err := w.last.Grad(w.m.Lookup(name))
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, h.Len())
	for k := range out {
		out[k] = h.At(k)
	}
	return out
}

// The doctor names what is wrong with each of them, and its reports are goldens:
// one for every form in which the network is built.
func TestDiagnoseMore(t *testing.T) {
	for _, i := range moreFaults() {
		t.Run(i.name, func(t *testing.T) {
			var reports strings.Builder
			for n, f := range forms {
				i.form = f
				w := i.open(t, ampc.MixedF16(), 3)
				if !metrics(t, w.run()).Skipped {
					t.Errorf("form %d: the step is taken", n)
					continue
				}
				d := w.diagnose()
				node := strings.ReplaceAll(i.want.node, "%s", f.scope(3))
				if i.name == "activations of two layers" {
					node = strings.ReplaceAll(node, "h3", "h1") // the first of them
				}
				if d.Cause != i.want.cause || d.Node != node || !strings.Contains(d.String(), i.want.says) {
					t.Errorf("form %d: want %s at %s, saying %q; the doctor says\n%s", n, i.want.cause, node, i.want.says, d)
				}
				fmt.Fprintf(&reports, "-- %+v --\n%s\n", f, steady(d.String()))
			}
			golden.File(t, "../../testdata/doctor/"+strings.ReplaceAll(i.name, " ", "-")+".txtar", reports.String())
		})
	}
}

var lines, fractions = regexp.MustCompile(`\.go:\d+`), regexp.MustCompile(`\d+\.\d+(e[+-]\d+)?`)

// steady is a report without the numbers of lines, and with two digits of others:
// processors add in different orders.
func steady(report string) string {
	return fractions.ReplaceAllStringFunc(lines.ReplaceAllString(report, ".go:N"), func(s string) string {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return s
		}
		return fmt.Sprintf("%.2g", x)
	})
}
