package ampc_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
)

// points draws n labelled points; label -100 is ignored by losses.
func points(seed uint64, n int) ampc.Feed {
	r := rand.New(rand.NewPCG(seed, 1))
	x, y := make([]float32, 4*n), make([]int32, n)
	for i := range y {
		y[i] = int32(r.IntN(3))
		for k := range 4 {
			x[4*i+k] = float32(r.NormFloat64())
		}
		x[4*i+int(y[i])] += 2
	}
	return ampc.Feed{"x": x, "y": y}
}

// small is a two-layer classifier of 4 numbers into 3 classes.
func small(batch int) (*ampc.Model, ampc.Tensor) {
	m := ampc.New("small")
	x, y := m.Input("x", ampc.F32, batch, 4), m.Input("y", ampc.I32, batch)
	h := m.Gelu(m.Linear("fc1", x, 16))
	return m, m.Named("loss").CrossEntropy(m.Linear("fc2", h, 3), y)
}

func adam() ampc.Config {
	return ampc.Config{Optimizer: ampc.AdamW(0.01), LR: ampc.Constant(1e-2), Policy: ampc.MixedF16()}
}

// run runs one step and fails the test on an error.
func run(t *testing.T, s *ampc.Step, feeds ...ampc.Feed) ampc.Result {
	t.Helper()
	r, err := s.Run(context.Background(), feeds...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func train(t *testing.T, m *ampc.Model, loss ampc.Tensor, c ampc.Config) *ampc.Step {
	t.Helper()
	s, err := ampc.Train(m, loss, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return s
}

// wantError checks that err is one line holding every part.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error is more than one line: %q", err)
	}
}

func TestLossFallsUnderEveryPolicy(t *testing.T) {
	for _, p := range []ampc.Policy{{}, ampc.F32Only(), ampc.TF32(), ampc.MixedF16(), ampc.MixedBF16(), ampc.O1(ampc.F16), ampc.O2(ampc.F16), ampc.Torch(ampc.BF16)} {
		m, loss := small(32)
		c := adam()
		c.Policy = p
		s := train(t, m, loss, c)
		first := run(t, s, points(0, 32)).Loss()
		var r ampc.Result
		for i := range 60 {
			r = run(t, s, points(uint64(i), 32))
		}
		if got := r.Loss(); !(got < 0.6*first) {
			t.Errorf("policy %q: loss went from %g to %g", p.Name, first, got)
		}
		if err := r.Err(); err != nil {
			t.Errorf("policy %q: %v", p.Name, err)
		}
	}
}

// Unequal numbers of ignored labels and a short tail: the micro-batches count
// as the labels in them do.
func TestMicroBatchesEqualOneBatch(t *testing.T) {
	for _, parts := range []int{4, 3} { // 3: a short tail, compiled for 4
		all := points(5, 8*parts)
		y := all["y"].([]int32)
		for i := range y {
			if i < 6 || i%5 == 0 {
				y[i] = -100
			}
		}
		c := adam()
		c.Policy, c.Optimizer, c.LR = ampc.F32Only(), ampc.SGD(0), ampc.Constant(0.5)
		one, lossOfOne := small(8 * parts)
		a := run(t, train(t, one, lossOfOne, c), all)
		many, lossOfMany := small(8)
		c.Micro = 4
		var feeds []ampc.Feed
		for i := range parts {
			feeds = append(feeds, ampc.Feed{"x": all["x"].([]float32)[32*i : 32*i+32], "y": y[8*i : 8*i+8]})
		}
		b := run(t, train(t, many, lossOfMany, c), feeds...)
		if math.Abs(a.Loss()-b.Loss()) > 1e-6 {
			t.Errorf("%d parts: loss %g in one batch, %g in parts", parts, a.Loss(), b.Loss())
		}
		for _, name := range []string{"fc1.w", "fc1.b", "fc2.w", "fc2.b"} {
			wa, _ := one.Variable(name)
			wb, _ := many.Variable(name)
			for i := range wa.Len() {
				if math.Abs(wa.At(i)-wb.At(i)) > 2e-6 {
					t.Errorf("%d parts: %s[%d] is %g after one batch, %g after parts", parts, name, i, wa.At(i), wb.At(i))
					break
				}
			}
		}
	}
}

// A result that is no loss can be taken from the last micro-batch or summed up.
func TestResultsOverMicroBatches(t *testing.T) {
	for reduce, want := range map[ampc.Reduce]float64{ampc.Last: 3, ampc.Mean: 2, ampc.Sum: 6} {
		m := ampc.New("reduce")
		x := m.Input("x", ampc.F32, 1)
		top := m.Named("top").ReduceMax(x, false)
		loss := m.ReduceSum(m.Mul(x, m.Param("w", ampc.Fill(1), 1)), false)
		s := train(t, m, loss, ampc.Config{
			Optimizer: ampc.SGD(0), LR: ampc.Constant(0), Micro: 3,
			Outputs: []ampc.Tensor{top}, Reduce: map[ampc.Tensor]ampc.Reduce{top: reduce},
		})
		r := run(t, s, ampc.Feed{"x": []float32{1}}, ampc.Feed{"x": []float32{2}}, ampc.Feed{"x": []float32{3}})
		h, err := r.Value(top)
		if err != nil || h.At(0) != want {
			t.Errorf("reduce %d: %v (%v), want %g", reduce, h.Floats(), err, want)
		}
		if r.Loss() != 2 {
			t.Errorf("loss %g, want the mean 2", r.Loss())
		}
	}
}

func TestAccumulateByHandIsRunWithSeveral(t *testing.T) {
	c := adam()
	c.Micro = 2
	m1, l1 := small(8)
	m2, l2 := small(8)
	a, b := train(t, m1, l1, c), train(t, m2, l2, c)
	run(t, a, points(1, 8), points(2, 8))
	ctx := context.Background()
	if _, err := b.Apply(ctx); err == nil {
		t.Error("apply without a micro-batch succeeds")
	}
	for i := range uint64(2) {
		if err := b.Accumulate(ctx, points(1+i, 8)); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, b.Accumulate(ctx, points(3, 8)), "compiled for 2")
	if _, err := b.Run(ctx, points(1, 8)); err == nil {
		t.Error("run with micro-batches waiting succeeds")
	}
	if _, err := b.Apply(ctx); err != nil {
		t.Fatal(err)
	}
	same(t, m1, m2)
}

// same checks that two models hold the same bits in every variable but those
// that live within a step.
func same(t *testing.T, a, b *ampc.Model) {
	t.Helper()
	if got, want := b.Variables(), a.Variables(); len(got) != len(want) {
		t.Fatalf("variables %v and %v", want, got)
	}
	for _, name := range a.Variables() {
		if strings.HasPrefix(name, "amp.acc") {
			continue // overwritten by the next step's first micro-batch
		}
		x, err := a.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x.Bytes, y.Bytes) {
			t.Errorf("%s differs", name)
		}
	}
}

// Each low copy of a weight is written once per version of the weight, whatever
// the number of micro-batches: an evaluation makes the copies after an update,
// and the next evaluation and the next step find them current.
func TestWeightsAreCastOncePerStep(t *testing.T) {
	m, loss := small(8)
	c := adam()
	c.Micro = 4
	s := train(t, m, loss, c)
	eval, err := s.Eval([]ampc.Tensor{loss}, nil)
	if err != nil {
		t.Fatal(err)
	}
	weights := int64(2 * (4*16 + 16 + 16*3 + 3)) // bytes of all copies
	for i := range 3 {
		run(t, s, points(1, 8), points(2, 8), points(3, 8), points(4, 8))
		run(t, eval, points(5, 8))
		run(t, eval, points(6, 8))
		if got := s.Counters().CastBytes + eval.Counters().CastBytes; got != weights*int64(i+2) {
			t.Errorf("after %d steps with evaluations: %d bytes of weight copies written, want %d", i+1, got, weights*int64(i+2))
		}
	}
}

func TestSeveralLossesAndWeights(t *testing.T) {
	m := ampc.New("two")
	x := m.Input("x", ampc.F32, 4)
	w := m.Param("w", ampc.Fill(1), 4)
	a := m.Named("a").ReduceSum(m.Mul(w, x), false)
	b := m.Named("b").ReduceSum(m.Square(w), false)
	c := ampc.Config{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.25)}
	s, err := m.Train(c, ampc.Loss{Value: a, Weight: 2}, ampc.Loss{Value: b})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := run(t, s, ampc.Feed{"x": []float32{1, 2, 3, 4}})
	if r.Loss() != 2*10+4 {
		t.Errorf("loss %g, want 24", r.Loss())
	}
	got, _ := m.Variable("w")
	for i, want := range []float64{1 - 0.25*(2+2), 1 - 0.25*(4+2), 1 - 0.25*(6+2), 1 - 0.25*(8+2)} {
		if got.At(i) != want {
			t.Errorf("w[%d] = %g, want %g", i, got.At(i), want)
		}
	}
}

// A transform sees unscaled gradients, whatever the loss scale.
func TestGradientTransform(t *testing.T) {
	m := ampc.New("transform")
	x := m.Input("x", ampc.F32, 4)
	loss := m.ReduceSum(m.Mul(m.Param("w", ampc.Fill(1), 4), x), false)
	s := train(t, m, loss, ampc.Config{
		Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Policy: ampc.MixedF16(), Scaler: ampc.Static(1024),
		Gradients: func(b *ir.Builder, g []ampc.GradOf) []ampc.GradOf {
			for i := range g {
				g[i].Grad = b.Clip(g[i].Grad, -2.5, 2.5)
			}
			return g
		},
	})
	run(t, s, ampc.Feed{"x": []float32{1, 2, 3, -4}})
	w, _ := m.Variable("w")
	for i, want := range []float64{0, -1, -1.5, 3.5} {
		if w.At(i) != want {
			t.Errorf("w[%d] = %g, want %g", i, w.At(i), want)
		}
	}
}

// A micro-batch that is not finite skips the step, or is left out of it.
func TestBadMicroBatch(t *testing.T) {
	for _, mode := range []ampc.BadMicro{ampc.SkipStep, ampc.DropMicro} {
		c := ampc.Config{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5), Micro: 3, BadMicro: mode}
		m, loss := small(8)
		s := train(t, m, loss, c)
		alone, lossAlone := small(8)
		clean := train(t, alone, lossAlone, c)
		before, _ := m.Variable("fc1.w")
		bad := points(9, 8)
		bad["x"].([]float32)[5] = float32(math.Inf(1))
		r := run(t, s, points(1, 8), bad, points(2, 8))
		if r.Skipped() != (mode == ampc.SkipStep) {
			t.Errorf("mode %d: skipped %t", mode, r.Skipped())
		}
		after, _ := m.Variable("fc1.w")
		if mode == ampc.SkipStep {
			if !bytes.Equal(before.Bytes, after.Bytes) {
				t.Error("a skipped step changed a weight")
			}
			continue
		}
		run(t, clean, points(1, 8), points(2, 8))
		if want, _ := alone.Variable("fc1.w"); !bytes.Equal(after.Bytes, want.Bytes) {
			t.Error("a dropped micro-batch left a trace in the weights")
		}
	}
}

// The weight of a shared layer gets the gradients of all its applications.
func TestSharedWeights(t *testing.T) {
	m := ampc.New("shared")
	x := m.Input("x", ampc.F32, 1, 1)
	f := m.Shared("f", func(m *ampc.Model, x ...ampc.Tensor) ampc.Tensor {
		return m.Linear("fc", x[0], 1, ampc.NoBias(), ampc.WeightInit(ampc.Fill(3)))
	})
	loss := m.ReduceSum(f(f(x)), false) // w²·x
	s := train(t, m, loss, ampc.Config{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5), Grads: []ampc.Tensor{m.Lookup("f.fc.w")}})
	r := run(t, s, ampc.Feed{"x": []float32{2}})
	if g, err := r.Grad("f.fc.w"); err != nil || g.At(0) != 12 {
		t.Errorf("gradient %v (%v), want 12", g, err)
	}
	if w, _ := m.Variable("f.fc.w"); w.At(0) != 3-6 {
		t.Errorf("weight %g, want -3", w.At(0))
	}
	if got := len(m.Variables()); got == 0 || strings.Count(strings.Join(m.Variables(), " "), "fc.w") != 1 {
		t.Errorf("variables %v, want one weight", m.Variables())
	}
}

func TestSetLRFreezeAndResults(t *testing.T) {
	m, loss := small(8)
	c := ampc.Config{Groups: []ampc.Group{
		{Pattern: "fc1", Freeze: true},
		{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5)},
	}, Policy: ampc.MixedF16()}
	s := train(t, m, loss, c)
	frozen, _ := m.Variable("fc1.w")
	trained, _ := m.Variable("fc2.w")
	if err := s.SetLR(0); err != nil {
		t.Fatal(err)
	}
	r := run(t, s, points(1, 8))
	if r.LR() != 0 {
		t.Errorf("learning rate %g, want 0", r.LR())
	}
	if now, _ := m.Variable("fc2.w"); !bytes.Equal(now.Bytes, trained.Bytes) {
		t.Error("a rate of 0 changed a weight")
	}
	if err := s.SetLR(0.1); err != nil {
		t.Fatal(err)
	}
	r = run(t, s, points(1, 8))
	if now, _ := m.Variable("fc2.w"); bytes.Equal(now.Bytes, trained.Bytes) {
		t.Error("a rate of 0.1 left a weight as it was")
	}
	if now, _ := m.Variable("fc1.w"); !bytes.Equal(now.Bytes, frozen.Bytes) {
		t.Error("a frozen weight changed")
	}
	if !s.Scaled() || r.Scale() != 65536 || r.Skipped() {
		t.Errorf("scaled %t, scale %g, skipped %t", s.Scaled(), r.Scale(), r.Skipped())
	}
	_, err := r.Value(m.Lookup("fc1"))
	wantError(t, err, "fc1", "Config.Outputs")
	_, err = r.Grad("fc2.w")
	wantError(t, err, "fc2.w", "Config.Grads")
	if _, err := (ampc.Result{}).Value(loss); err == nil {
		t.Error("a result without a step has a value")
	}
}

// A step that is not finite leaves everything as it was but the scale.
func TestOverflowSkips(t *testing.T) {
	m, loss := small(8)
	c := adam()
	c.Scaler = ampc.Dynamic()
	c.Scaler.Init = 1 << 24
	s := train(t, m, loss, c)
	for i := range 40 {
		before, _ := m.Variable("fc1.w")
		r := run(t, s, points(uint64(i), 8))
		after, _ := m.Variable("fc1.w")
		if r.Skipped() != bytes.Equal(before.Bytes, after.Bytes) {
			t.Fatalf("step %d: skipped %t, weight changed %t", i, r.Skipped(), !bytes.Equal(before.Bytes, after.Bytes))
		}
	}
	bad := points(1, 8)
	bad["x"].([]float32)[3] = float32(math.NaN())
	for i := range 25 {
		r := run(t, s, bad)
		if !r.Skipped() {
			t.Fatal("a NaN in the data was not skipped")
		}
		if err := r.Err(); (err != nil) != (i == 24) {
			t.Errorf("after %d bad steps: %v", i+1, err)
		}
	}
}

func TestNamedDimensions(t *testing.T) {
	m := ampc.New("dims")
	x := m.Input("x", ampc.F32, ampc.Dim("n"), 4)
	y := m.Linear("fc", x, 2)
	if _, err := m.Infer(ampc.Config{}, y); err == nil {
		t.Error("an unbound dimension is accepted")
	}
	defer m.Close()
	for _, n := range []int64{1, 5} {
		s, err := m.Infer(ampc.Config{Bind: map[string]int64{"n": n}}, y)
		if err != nil {
			t.Fatal(err)
		}
		h, err := run(t, s, ampc.Feed{"x": make([]float32, 4*n)}).Value(y)
		if err != nil || h.Len() != int(2*n) {
			t.Errorf("n=%d: %v (%v)", n, h.Type, err)
		}
	}
}

// Everything a model says reads back and trains to the same bits.
func TestWrittenModelIsTheSameModel(t *testing.T) {
	m, loss := small(8)
	m.Return(loss)
	var b bytes.Buffer
	if err := m.WriteIR(&b); err != nil {
		t.Fatal(err)
	}
	g, err := ir.Parse("small.ir", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	read := ampc.FromGraph(g)
	s1, s2 := train(t, m, loss, adam()), train(t, read, g.Return[0], adam())
	for i := range uint64(3) {
		run(t, s1, points(i, 8))
		run(t, s2, points(i, 8))
	}
	same(t, m, read)
}

// A module outside this one builds and runs against the API.
func TestOutsideModule(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module: skipped by -short")
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(mod), "module ampc", "module outside", 1)
	text += fmt.Sprintf("\nrequire ampc v0.0.0\nreplace ampc => %s\n", root)
	write(t, filepath.Join(dir, "go.mod"), text)
	write(t, filepath.Join(dir, "go.sum"), string(sum))
	write(t, filepath.Join(dir, "main.go"), `package main

import (
	"context"
	"fmt"
	"log"

	"ampc"
)

func main() {
	m := ampc.New("outside")
	x, y := m.Input("x", ampc.F32, 2, 3), m.Input("y", ampc.I32, 2)
	loss := m.CrossEntropy(m.Linear("fc", x, 2), y)
	step, err := ampc.Train(m, loss, ampc.Config{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.1), Policy: ampc.MixedF16()})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	r, err := step.Run(context.Background(), ampc.Feed{"x": []float32{1, 2, 3, 4, 5, 6}, "y": []int32{0, 1}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Loss() > 0, r.Scale())
}
`)
	if got := goRun(t, dir); got != "true 65536\n" {
		t.Errorf("the program printed %q", got)
	}
}
