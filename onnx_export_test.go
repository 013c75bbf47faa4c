package ampc_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/onnxmodel"
	"ampc/internal/ort"
	"ampc/ir"
	"ampc/models"
)

// onnxruntime starts the oracle, nil where it is not there.
func onnxruntime(t *testing.T) *ort.Runtime {
	t.Helper()
	r, err := ort.Start()
	if errors.Is(err, ort.ErrAbsent) {
		t.Logf("not compared with onnxruntime: %v", err)
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// small are zoo models in sizes that run at once.
var exportedZoo = []string{"mlp?batch=3", "lenet?batch=2", "resnet8?batch=2", "resnet?batch=1&width=8", "gpt?batch=2&layers=2&seq=16", "lstm?batch=2&seq=8&dim=32", "bert?batch=2&seq=16",
	"unet?batch=1&size=16&width=8", "unet3d?batch=1&depth=5&size=6&width=4", "convlstm?batch=2&seq=3&ahead=2&size=5&width=4", "vit?batch=2", "gan?batch=4", "gpt2?batch=1&seq=16&layers=1&dim=48&vocab=99"}

// drawnFeed are inputs for a step: numbers from −1 to 1, indices from 0 to 7.
func drawnFeed(s *ampc.Step) ampc.Feed {
	r := rand.New(rand.NewPCG(5, 6))
	f := ampc.Feed{}
	for _, v := range s.Program().Vars {
		if v.Kind != ir.Input || v.Role() != "" {
			continue
		}
		n := v.Type.Shape.Elements()
		if v.Type.DType.Float() {
			x := make([]float32, n)
			for i := range x {
				x[i] = 2*r.Float32() - 1
			}
			f[v.Name] = x
			continue
		}
		x := make([]int32, n)
		for i := range x {
			x[i] = int32(r.IntN(2))
		}
		f[v.Name] = x
	}
	return f
}

// firstResult runs a model and returns its first output.
func firstResult(t *testing.T, m *ampc.Model, feed func(s *ampc.Step) ampc.Feed, out ampc.Tensor) (ampc.HostTensor, ampc.Feed) {
	t.Helper()
	s, err := m.Infer(ampc.InferConfig{Policy: ampc.Manual()}, out)
	if err != nil {
		t.Fatal(err)
	}
	f := feed(s)
	r, err := s.Run(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.Value(out)
	if err != nil {
		t.Fatal(err)
	}
	return h, f
}

// off is the largest difference as a share of the largest magnitude.
func off(got, want []float64) float64 {
	most, d := 0.0, 0.0
	for i, w := range want {
		most = max(most, math.Abs(w))
		if x := math.Abs(got[i] - w); x > d || math.IsNaN(x) {
			d = x
		}
	}
	return d / most
}

func numbers(h ampc.HostTensor) []float64 {
	x := make([]float64, h.Len())
	for i := range x {
		x[i] = h.At(i)
	}
	return x
}

// Every model of the zoo is exported, at its least opset and at a late one, read
// again, and gives the numbers that it gave; so it does in onnxruntime, where that is there.
func TestExportZoo(t *testing.T) {
	oracle := onnxruntime(t)
	for _, spec := range exportedZoo {
		t.Run(spec, func(t *testing.T) {
			z, err := models.Open(spec)
			if err != nil {
				t.Fatal(err)
			}
			defer z.Model.Close()
			h, feed := firstResult(t, z.Model, drawnFeed, z.Output)
			want := numbers(h)
			for _, opset := range []int64{0, 21, 23} {
				path := filepath.Join(t.TempDir(), "out.onnx")
				r, err := z.Model.WriteONNX(context.Background(), path, ampc.ExportOptions{Opset: opset, External: opset == 21}, z.Output)
				if err != nil {
					t.Fatal(err)
				}
				m, err := ampc.LoadONNX(path, ampc.ONNXOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				back, _ := firstResult(t, m, func(*ampc.Step) ampc.Feed { return feed }, m.Outputs()[0])
				if m.Outputs()[0].Name() != z.Output.Name() || off(numbers(back), want) > 1e-5 {
					t.Errorf("opset %d: output %s is off by %g", r.Opset, m.Outputs()[0].Name(), off(numbers(back), want))
				}
				if oracle != nil {
					got, err := oracle.Run(path, ortInputs(feed, z.Model))
					if err != nil {
						t.Errorf("opset %d: onnxruntime: %v", r.Opset, err)
					} else if e := off(ortNumbers(got[0]), want); !(e < 1e-4) {
						t.Errorf("opset %d: onnxruntime's output %s is off by %g", r.Opset, got[0].Name, e)
					}
				}
			}
		})
	}
}

// ortInputs are a feed's arrays, of the types of the model's inputs.
func ortInputs(f ampc.Feed, m *ampc.Model) map[string]ort.Tensor {
	out := map[string]ort.Tensor{}
	for name, v := range f {
		in := m.Graph().Var(name)
		x := ort.Tensor{Type: map[ir.DType]string{ir.F32: "float32", ir.F16: "float16", ir.I32: "int32", ir.I64: "int64", ir.Bool: "bool"}[in.Type.DType], Dims: ir.Sizes(in.Type.Shape)}
		switch v := v.(type) {
		case ampc.HostTensor:
			x.Data = v.Bytes
		case []float32:
			x.Data = hostBytes(v)
		case []int32:
			for _, n := range v {
				x.Data = append(x.Data, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
			}
		default:
			panic(fmt.Sprintf("%T", v))
		}
		out[name] = x
	}
	return out
}

func ortNumbers(x ort.Tensor) []float64 {
	types := map[string]ampc.DType{"float32": ampc.F32, "float16": ampc.F16, "int32": ampc.I32, "int64": ampc.I64, "bool": ampc.Bool, "float64": ampc.F64}
	dims := make([]int, len(x.Dims))
	for i, d := range x.Dims {
		dims[i] = int(d)
	}
	return numbers(ampc.HostTensor{Type: ampc.TypeOf(types[x.Type], dims...), Bytes: x.Data})
}

// A 16-bit model has its weights in a file of their own where that is asked for, or
// where the model would be larger than a file may be: it computes the same, both files
// come together, and nothing is left where one fails.
func TestExportExternalMixed(t *testing.T) {
	oracle := onnxruntime(t)
	z, err := models.Open("mlp?batch=3")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	h, feed := firstResult(t, z.Model, drawnFeed, z.Output)
	for _, o := range []ampc.ExportOptions{
		{External: true, Policy: ampc.MixedF16()}, {FileLimit: 1 << 16, Policy: ampc.MixedF16()}, {External: true, Policy: ampc.MixedBF16()}, {FileLimit: 1 << 16},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "out.onnx")
		r, err := z.Model.WriteONNX(context.Background(), path, o, z.Output)
		if err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 2 || r.External != path+".data" {
			t.Errorf("%v lie there, weights in %q", left, r.External)
		}
		small, err := os.Stat(path)
		if err != nil || small.Size() > 1<<15 {
			t.Errorf("the model has %d bytes: %v", small.Size(), err)
		}
		m, err := ampc.LoadONNX(path, ampc.ONNXOptions{})
		if err != nil {
			t.Fatal(err)
		}
		back, _ := firstResult(t, m, func(*ampc.Step) ampc.Feed { return feed }, m.Outputs()[0])
		if e := off(numbers(back), numbers(h)); e > 2e-2 || r.Conversion != nil && (e == 0 || r.Conversion.Weights == 0) {
			t.Errorf("off by %g", e)
		}
		m.Close()
		if oracle != nil {
			if _, err := oracle.Run(path, nil); err != nil && !strings.Contains(err.Error(), "Could not find an implementation") {
				t.Errorf("onnxruntime: %v", err)
			}
		}
		// A model with weights beside it is converted into another folder, whole.
		again := filepath.Join(t.TempDir(), "again.onnx")
		c, err := ampc.ConvertONNX(context.Background(), path, again, ampc.ConvertOptions{Policy: ampc.MixedF16(), MaxError: 1e-2})
		if err != nil || c.External != again+".data" {
			t.Errorf("%v %v", c, err)
		}
		_, err = ampc.ConvertONNX(context.Background(), path, again, ampc.ConvertOptions{Policy: ampc.MixedF16().Lower("*"), MaxError: 1e-12})
		if left, _ := os.ReadDir(filepath.Dir(again)); len(left) != 2 || r.Conversion == nil && err == nil {
			t.Errorf("%v are left: %v", left, err)
		}
	}
}

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

// A network over a batch that has a name is exported for every batch; where an op needs the size, the
// error says what to give.
func TestExportNamedBatch(t *testing.T) {
	m := ampc.New("named")
	x := m.Input("x", ampc.F32, ampc.Dim("N"), 2, 8, 8)
	h := m.MaxPool2d(m.Relu(m.BatchNorm("bn", m.Conv2d("conv", x, 4, 3))), 2)
	h = m.AdaptiveAvgPool(h, []int{2, 2})
	out := m.Softmax(m.Linear("head", m.LayerNorm("ln", m.Flatten(h)), 3), -1)
	sizes := ampc.Sizes{"N": 5}
	step, err := m.Infer(ampc.InferConfig{Sizes: sizes}, out)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "named.onnx")
	if _, err := m.WriteONNX(context.Background(), path, ampc.ExportOptions{}, out); err != nil {
		t.Fatal(err)
	}
	back, err := ampc.LoadONNX(path, ampc.ONNXOptions{Sizes: sizes})
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.Infer(ampc.InferConfig{}, back.Outputs()...)
	if err != nil {
		t.Fatal(err)
	}
	feed := drawnFeed(step)
	var got [2][]float64
	for i, s := range []*ampc.Step{step, again} {
		r, err := s.Run(context.Background(), feed)
		if err != nil {
			t.Fatal(err)
		}
		host, err := r.Value([]ampc.Tensor{out, back.Outputs()[0]}[i])
		if err != nil {
			t.Fatal(err)
		}
		got[i] = numbers(host)
	}
	if d := off(got[1], got[0]); len(got[1]) != 15 || d > 1e-6 {
		t.Errorf("%d results, off by %g", len(got[1]), d)
	}

	m = ampc.New("sized")
	out = m.Resize(m.Input("x", ampc.F32, ampc.Dim("N"), 2, 8, 8), []int{16, 16})
	_, err = m.WriteONNX(context.Background(), path, ampc.ExportOptions{}, out)
	wantError(t, err, "onnx_export_test.go:", "give it with --dim N=SIZE")
	if _, err := m.WriteONNX(context.Background(), path, ampc.ExportOptions{Sizes: sizes}, out); err != nil {
		t.Error(err)
	}
}

// A source that became shorter is what an export blames, not the file that it writes.
func TestWriteONNXOfTruncatedSource(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.onnx"), filepath.Join(dir, "out.onnx")
	b, err := os.ReadFile("onnx/testdata/mlp.onnx")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in, b, 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := ampc.LoadONNX(in, ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := os.Truncate(in, 64); err != nil {
		t.Fatal(err)
	}
	if _, err := m.WriteONNX(context.Background(), out, ampc.ExportOptions{}); err == nil || !strings.Contains(err.Error(), in+": ends early") {
		t.Error(err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a file is left")
	}
}
