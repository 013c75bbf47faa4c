package ampc_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"ampc"
	"ampc/internal/onnxmodel"
)

// sines are numbers that Go and Python compute alike.
func sines(n int, k, scale, shift float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(shift + scale*math.Sin(k*float64(i+1)))
	}
	return x
}

// convNet writes a convolution, a batch norm or none, a ReLU, the mean over pixels and a linear
// layer, as an exporter writes them for inference, and loads it.
func convNet(t *testing.T, norm bool) *ampc.Model {
	t.Helper()
	g := onnxmodel.New("net", 13)
	in := []string{g.Input("x", onnxmodel.F32, 4, 1, 5, 5), g.Weight("conv.weight", 0, 1, 4, 1, 3, 3)}
	if !norm {
		in = append(in, g.Weight("conv.bias", 0, 1, 4))
	}
	y := g.Op("Conv", in, onnxmodel.Ints("pads", 1, 1, 1, 1))
	if norm {
		y = g.Op("BatchNormalization", []string{y, g.Weight("bn.weight", 0, 1, 4), g.Weight("bn.bias", 0, 1, 4), g.Weight("bn.running_mean", 0, 1, 4), g.Weight("bn.running_var", 1, 0.1, 4)}, onnxmodel.Float("epsilon", 1e-5), onnxmodel.Float("momentum", 0.9))
	}
	y = g.Op("Flatten", []string{g.Op("GlobalAveragePool", []string{g.Op("Relu", []string{y})})}, onnxmodel.Int("axis", 1))
	g.Node("Gemm", []string{y, g.Weight("fc.weight", 0, 1, 3, 4), g.Weight("fc.bias", 0, 1, 3)}, []string{"logits"}, onnxmodel.Int("transB", 1))
	g.Output("logits", onnxmodel.F32, 4, 3)
	path := filepath.Join(t.TempDir(), "net.onnx")
	if err := g.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	m, err := ampc.LoadONNX(path, ampc.ONNXOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// fill gives the variables of a convNet, of which a step is compiled, their elements.
func fill(t *testing.T, m *ampc.Model, norm bool) {
	t.Helper()
	set := map[string][]float32{"conv.weight": sines(36, 0.7, 0.5, 0), "fc.weight": sines(12, 2.3, 0.8, 0), "fc.bias": sines(3, 2.9, 0.1, 0)}
	if norm {
		set["bn.weight"], set["bn.bias"] = sines(4, 1.1, 0.3, 1), sines(4, 1.3, 0.2, 0)
		set["bn.running_mean"], set["bn.running_var"] = sines(4, 1.7, 0.3, 0), sines(4, 1.9, 0.4, 1)
	} else {
		set["conv.bias"] = sines(4, 0.9, 0.2, 0)
	}
	for name, x := range set {
		if err := m.SetVariable(name, x); err != nil {
			t.Fatal(err)
		}
	}
}

// A model that was exported for inference runs, is trained, and runs again as PyTorch 2.6 does it in
// eval, train and eval: a batch norm in the file normalizes by running statistics, by the batch while it is trained,
// and by the statistics that training has moved. Where the exporter has multiplied the norm
// into the convolution there is none: the convolution is trained as it stands.
func TestExportedNormsTrainAsPyTorch(t *testing.T) {
	for _, c := range []struct {
		name          string
		norm          bool
		before, after []float32 // of the first two images
		losses        []float64
		holds         map[string][]float32 // afterwards
	}{
		{"norm", true,
			[]float32{0.034404389560222626, -0.12442431598901749, 0.20782315731048584, 0.04170381277799606, -0.1402367353439331, 0.2313529998064041},
			[]float32{0.5126397609710693, -0.22542592883110046, -0.07135513424873352, 0.635706901550293, -0.3372957706451416, 0.020802319049835205},
			[]float64{1.0984110832214355, 1.0525239706039429, 1.0322915315628052},
			map[string][]float32{
				"bn.running_mean": {0.22460195422172546, -0.04794807359576225, -0.19474007189273834, 0.11570654064416885},
				"bn.running_var":  {2.6641955375671387, 2.187940835952759, 2.2125673294067383, 2.6481895446777344},
				"bn.weight":       {1.2718182802200317, 1.2296892404556274, 0.9814075827598572, 0.7002149820327759},
			}},
		{"folded by the exporter", false,
			[]float32{0.4503958821296692, -0.6275299191474915, 0.7727301716804504, 0.49463361501693726, -0.689121663570404, 0.848577082157135},
			[]float32{0.551321268081665, -0.07474704086780548, -0.09991725534200668, 0.7894188761711121, -0.2851200997829437, 0.09817815572023392},
			[]float64{1.1660147905349731, 1.020214557647705, 1.0048695802688599},
			map[string][]float32{"conv.bias": {0.13374921679496765, 0.22174236178398132, 0.097373366355896, -0.11338111013174057}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := convNet(t, c.norm)
			logits := m.Outputs()[0]
			loss := m.CrossEntropy(logits, m.Input("label", ampc.I32, 4))
			infer, err := m.Infer(ampc.InferConfig{}, logits)
			if err != nil {
				t.Fatal(err)
			}
			fill(t, m, c.norm)
			x := sines(100, 0.37, 2, 0)
			run := func(when string, want []float32) {
				t.Helper()
				r, err := infer.Run(context.Background(), ampc.Feed{"x": x})
				if err != nil {
					t.Fatal(err)
				}
				h, err := r.Value(logits)
				if err != nil {
					t.Fatal(err)
				}
				closeTo(t, when, h.Floats()[:6], want)
			}
			run("before training", c.before)
			step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.5), Policy: ampc.F32Only()}, ampc.Loss{Value: loss})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.losses {
				r, err := step.Run(context.Background(), ampc.Feed{"x": x, "label": []int32{0, 2, 1, 0}})
				if err != nil {
					t.Fatal(err)
				}
				got, err := r.Wait(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if math.Abs(got.Loss-want) > 1e-5 {
					t.Errorf("step %d: loss %g, PyTorch's is %g", i, got.Loss, want)
				}
			}
			for name, want := range c.holds {
				h, err := m.Variable(name)
				if err != nil {
					t.Fatal(err)
				}
				closeTo(t, name, h.Floats(), want)
			}
			run("after training", c.after)
		})
	}
}

func closeTo(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) || slices.ContainsFunc(got, func(x float32) bool { return x != x }) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i := range got {
		if math.Abs(float64(got[i]-want[i])) > 2e-5 {
			t.Fatalf("%s: %v, PyTorch has %v", what, got, want)
		}
	}
}
