package ampc_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"ampc"
)

// The numbers of a result stay when its tensors are gone, also after Close.
func TestNumbersOfResultsStay(t *testing.T) {
	m, loss := small(8)
	s := train(t, m, loss, adam())
	bad := points(1, 8)
	bad["x"].([]float32)[0] = float32(math.Inf(1))
	skipped := run(t, s, bad)
	taken := run(t, s, points(2, 8))
	first := metrics(t, taken).Loss
	for k := range uint64(6) {
		run(t, s, points(k, 8))
	}
	check := func(when string) {
		t.Helper()
		if !metrics(t, skipped).Skipped || metrics(t, taken).Skipped || metrics(t, taken).Loss != first || metrics(t, taken).Scale != 65536 || !(metrics(t, taken).LR > 0) {
			t.Errorf("%s: skipped %t and %t, loss %g of %g, scale %g, rate %g", when, metrics(t, skipped).Skipped, metrics(t, taken).Skipped, metrics(t, taken).Loss, first, metrics(t, taken).Scale, metrics(t, taken).LR)
		}
	}
	check("six steps later")
	if _, err := taken.Value(loss); err == nil || !strings.Contains(err.Error(), "are gone") {
		t.Errorf("the tensor of an old step: %v", err)
	}
	if err := s.Stuck(); err != nil {
		t.Error(err)
	}
	last := run(t, s, bad)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed")
	if !metrics(t, last).Skipped {
		t.Error("the last step before Close is not skipped afterwards")
	}
}

// The norm of all gradients is there where it is asked for. Elsewhere it is an error that
// says what to set.
func TestGradNormIsAskedFor(t *testing.T) {
	norm := func(c ampc.TrainConfig) (float64, error) {
		m, loss := small(8)
		defer m.Close()
		return metrics(t, run(t, train(t, m, loss, c), points(1, 8))).GradNorm()
	}
	c := adam()
	if x, err := norm(c); x != 0 || err == nil || !strings.Contains(err.Error(), "set TrainConfig.GradNorm") {
		t.Errorf("nothing asked for the norm, it is %g (%v)", x, err)
	}
	c.GradNorm = true
	asked, err := norm(c)
	c.GradNorm, c.Clip = false, ampc.ClipNorm(1e9)
	if clipped, late := norm(c); err != nil || late != nil || clipped != asked || !(asked > 0) {
		t.Errorf("norm %g asked for (%v), %g by clipping (%v)", asked, err, clipped, late)
	}
}

// Waiting ends with its context, and gives the numbers all the same where nothing
// has to be waited for.
func TestWaitOnTheCPU(t *testing.T) {
	m, loss := small(8)
	r := run(t, train(t, m, loss, adam()), points(1, 8))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := r.Wait(ended); err != nil || got != metrics(t, r) {
		t.Errorf("%+v (%v)", got, err)
	}
}

// A rate is set for one group; SetLR does not make one of several.
func TestRatesOfGroups(t *testing.T) {
	m, loss := small(8)
	defer m.Close()
	s := train(t, m, loss, ampc.TrainConfig{
		Groups:    []ampc.Group{{Pattern: "fc1", Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1)}, {Pattern: "*.b", Optimizer: ampc.SGD(0.5), LR: ampc.Constant(0.02)}},
		Optimizer: ampc.SGD(0), LR: ampc.Constant(0.02),
	})
	const want = `set learning rate: the step has 2, of groups "fc1", "*.b", "": set each with SetGroupLR`
	if err := s.SetLR(1); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if err := s.SetGroupLR("*.b", 1); err == nil || !strings.Contains(err.Error(), "have equal schedules and so one rate") {
		t.Errorf("a group that shares its rate: %v", err)
	}
	if err := s.SetGroupLR("fc2", 1); err == nil || !strings.Contains(err.Error(), `no group "fc2" has one; there are "fc1"`) {
		t.Errorf("no such group: %v", err)
	}
	if err := s.SetGroupLR("fc1", 0); err != nil {
		t.Fatal(err)
	}
	one, _ := m.Variable("fc1.w")
	two, _ := m.Variable("fc2.w")
	run(t, s, points(1, 8))
	oneNow, _ := m.Variable("fc1.w")
	twoNow, _ := m.Variable("fc2.w")
	if string(one.Bytes) != string(oneNow.Bytes) || string(two.Bytes) == string(twoNow.Bytes) {
		t.Error("a rate of 0 for one group moved it, or stopped the other")
	}
}

// A rate that Constant refuses is refused later too, and the rate stays.
func TestRatesThatAreNone(t *testing.T) {
	m, loss := small(8)
	defer m.Close()
	s := train(t, m, loss, ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.125)})
	for text, rate := range map[string]float64{"-1": -1, "NaN": math.NaN(), "+Inf": math.Inf(1)} {
		want := "set learning rate: learning rate " + text + ": want a finite number, 0 or more"
		if err := s.SetLR(rate); err == nil || err.Error() != want {
			t.Errorf("SetLR: %v\nwant %s", err, want)
		}
		if err := s.SetGroupLR("", rate); err == nil || err.Error() != want {
			t.Errorf("SetGroupLR: %v\nwant %s", err, want)
		}
	}
	if lr := metrics(t, run(t, s, points(1, 8))).LR; lr != 0.125 {
		t.Errorf("learning rate %g, want 0.125", lr)
	}
}

// Named before a layer is a mistake; the parts that take no name of their own have it.
func TestNamedBeforeALayer(t *testing.T) {
	for what, f := range map[string]func(m *ampc.Model, x ampc.Tensor){
		"linear":  func(m *ampc.Model, x ampc.Tensor) { m.Named("x1").Linear("y1", x, 2) },
		"dropout": func(m *ampc.Model, x ampc.Tensor) { m.Named("x1").Dropout("y1", x, 0.5) },
	} {
		m := ampc.New("n")
		f(m, m.Input("x", ampc.F32, 2, 3))
		if err := m.Err(); err == nil || !strings.HasPrefix(err.Error(), "result_test.go:") || !strings.Contains(err.Error(), `"y1": a layer names its own result: leave out Named("x1"), which has no effect`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	m := ampc.New("n")
	x := m.Input("x", ampc.F32, 2, 3, 4, 4)
	if v := m.Named("mine").Flatten(x); v.Name() != "mine" {
		t.Errorf("flatten is called %s (%v)", v, m.Err())
	}
	if v := m.Named("pooled").GlobalAvgPool(x); v.Name() != "pooled" {
		t.Errorf("pool is called %s (%v)", v, m.Err())
	}
}

// A result that is no loss can be taken from the last micro-batch or summed up.
func TestResultsOverMicroBatches(t *testing.T) {
	for reduce, want := range map[ampc.Reduce]float64{ampc.Last: 3, ampc.Mean: 2, ampc.Sum: 6} {
		m := ampc.New("reduce")
		x := m.Input("x", ampc.F32, 1)
		top := m.Named("top").ReduceMax(x)
		loss := m.ReduceSum(m.Mul(x, m.Param("w", ampc.Fill(1), 1)))
		s := train(t, m, loss, ampc.TrainConfig{
			Optimizer: ampc.SGD(0), LR: ampc.Constant(0), Micro: 3,
			Outputs: []ampc.Output{{Tensor: top, Reduce: reduce}},
		})
		r := run(t, s, ampc.Feed{"x": []float32{1}}, ampc.Feed{"x": []float32{2}}, ampc.Feed{"x": []float32{3}})
		h, err := r.Value(top)
		if err != nil || h.At(0) != want {
			t.Errorf("reduce %d: %v (%v), want %g", reduce, h.Floats(), err, want)
		}
		if metrics(t, r).Loss != 2 {
			t.Errorf("loss %g, want the mean 2", metrics(t, r).Loss)
		}
	}
}
