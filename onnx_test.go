package ampc_test

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/onnxmodel"
	"ampc/onnx"
)

func TestLoadONNX(t *testing.T) {
	m, err := ampc.LoadONNX("onnx/testdata/mlp.onnx", ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 2}, Train: []string{"w2", "b2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var params []string
	for _, v := range m.Graph().Vars {
		if v.Kind.String() == "param" {
			params = append(params, v.Name)
		}
	}
	if strings.Join(params, " ") != "w2 b2" {
		t.Errorf("parameters %v, want w2 and b2", params)
	}
	p := m.Outputs()
	if len(p) != 1 || p[0].Name() != "p" {
		t.Fatalf("outputs %v", p)
	}
	step, err := m.Infer(ampc.InferConfig{}, p...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := step.Run(context.Background(), ampc.Feed{"x": []float32{1, 2, 3, 4, 0, 0, 0, 0}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.Value(p[0])
	if err != nil {
		t.Fatal(err)
	}
	y := h.Floats()
	for i := range 2 {
		if s := y[3*i] + y[3*i+1] + y[3*i+2]; s < 0.999 || s > 1.001 {
			t.Errorf("row %d of a softmax adds up to %g: %v", i, s, y)
		}
	}
}

func TestLoadONNXMistakes(t *testing.T) {
	_, err := ampc.LoadONNX("onnx/testdata/mlp.onnx", ampc.ONNXOptions{})
	wantError(t, err, `mlp.onnx: input "x": dimension "N" has no size: give it in ONNXOptions.Sizes: ampc.Sizes{"N": 1}`)
	for _, train := range [][]string{{"nosuch"}, {"w2", "h*.attn"}} {
		_, err := ampc.LoadONNX("onnx/testdata/mlp.onnx", ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 2}, Train: train})
		wantError(t, err, "mlp.onnx: ONNXOptions.Train", "matches no weight; there are b1, b2, w1, w2")
	}
	var size *onnx.SizeError
	if !errors.As(err, &size) || size.Name != "N" {
		t.Errorf("%v, want a size for N", err)
	}
	decoder := filepath.Join(t.TempDir(), "gpt2.onnx")
	if err := onnxmodel.GPT2(onnxmodel.Transformer{Layers: 1, Heads: 2, Width: 8, Vocabulary: 9, Positions: 16}).WriteFile(decoder); err != nil {
		t.Fatal(err)
	}
	_, err = ampc.LoadONNX(decoder, ampc.ONNXOptions{Sizes: ampc.Sizes{"batch": 2}})
	wantError(t, err, `input "input_ids": dimension "sequence" has no size: give sizes to ["sequence" "total" "past"] in ONNXOptions.Sizes`)
	if _, err := ampc.LoadONNX("onnx/testdata/none.onnx", ampc.ONNXOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := ampc.LoadONNX("onnx/testdata/mlp.onnx", ampc.ONNXOptions{Sizes: ampc.Sizes{"M": 2, "N": 2}}); err == nil || !strings.Contains(err.Error(), `no input has a dimension "M": they have "N"`) {
		t.Error(err)
	}
	if _, err := ampc.LoadONNX("onnx/testdata/mlp.onnx", ampc.ONNXOptions{Shapes: map[string][]int64{"z": {2, 4}}}); err == nil || !strings.Contains(err.Error(), `no input "z": its inputs are "x"`) {
		t.Error(err)
	}
}

// digits reads images of 8 by 8 as numbers from 0 to 1, and their labels.
func digits(t *testing.T, path string) (x [][]float32, y []int32) {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no data in %s", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		image := make([]float32, 64)
		for i := range image {
			n, err := strconv.Atoi(row[i])
			if err != nil {
				t.Fatal(err)
			}
			image[i] = float32(n) / 16
		}
		label, err := strconv.Atoi(row[64])
		if err != nil {
			t.Fatal(err)
		}
		x, y = append(x, image), append(y, int32(label))
	}
	return x, y
}

// An imported net loses its head and gets a new one, which is trained with the
// rest: 97% of the digits that it has not seen.
func TestFineTuneONNX(t *testing.T) {
	const batch, model = 64, "../shared/onnx/models/own-resnet8w/model.onnx"
	if _, err := os.Stat(model); err != nil {
		t.Skipf("no model in %s", model)
	}
	x, y := digits(t, "../shared/data/optdigits.tra")
	tx, ty := digits(t, "../shared/data/optdigits.tes")
	for _, policy := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16(), ampc.MixedBF16()} {
		t.Run(policy.Name, func(t *testing.T) {
			if testing.Short() && policy.Name != "mixed-f16" {
				t.Skip("one policy with -short")
			}
			m, err := ampc.LoadONNX(model, ampc.ONNXOptions{Sizes: ampc.Sizes{"N": batch}}, ampc.Seed(1))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			logits := m.Linear("head", m.Lookup("/Flatten_output_0"), 10)
			loss := m.CrossEntropy(logits, m.Input("label", ampc.I32, batch))
			step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.AdamW(0.01), LR: ampc.Cosine(2e-3, 0, 240), Policy: policy}, ampc.Loss{Value: loss})
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 2))
			feed := func(x [][]float32, y []int32, at func(i int) int) ampc.Feed {
				images, labels := make([]float32, 0, 64*batch), make([]int32, batch)
				for i := range batch {
					k := at(i)
					images, labels[i] = append(images, x[k]...), y[k]
				}
				return ampc.Feed{"x": images, "label": labels}
			}
			for range 240 {
				if _, err := step.Run(context.Background(), feed(x, y, func(int) int { return r.IntN(len(x)) })); err != nil {
					t.Fatal(err)
				}
			}
			infer, err := m.Infer(ampc.InferConfig{Policy: policy}, logits)
			if err != nil {
				t.Fatal(err)
			}
			right, n := 0, len(tx)/batch*batch
			for first := 0; first < n; first += batch {
				f := feed(tx, ty, func(i int) int { return first + i })
				delete(f, "label")
				res, err := infer.Run(context.Background(), f)
				if err != nil {
					t.Fatal(err)
				}
				h, err := res.Value(logits)
				if err != nil {
					t.Fatal(err)
				}
				scores := h.Floats()
				for i := range batch {
					best := 0
					for k := range 10 {
						if scores[10*i+k] > scores[10*i+best] {
							best = k
						}
					}
					if int32(best) == ty[first+i] {
						right++
					}
				}
			}
			if share := float64(right) / float64(n); share < 0.97 {
				t.Errorf("%.1f%% of %d digits, want 97%%", 100*share, n)
			} else {
				t.Logf("%.2f%% of %d digits", 100*share, n)
			}
		})
	}
}

// A session runs a model on inputs of any size, and says how.
func TestONNXSession(t *testing.T) {
	s, err := ampc.OpenONNX("onnx/testdata/positive.onnx", ampc.ONNXRun{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct{ x, want []float32 }{{[]float32{1, -2, 3}, []float32{2, 6}}, {[]float32{-1}, nil}, {[]float32{4, 5, 6, 7}, []float32{8, 10, 12, 14}}} {
		r, err := s.Run(context.Background(), ampc.Feed{"x": c.x})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Tensors["y"].Floats(); !slices.Equal(got, c.want) {
			t.Errorf("%v gives %v, want %v", c.x, got, c.want)
		}
	}
	var steps []string
	for _, x := range s.Steps() {
		steps = append(steps, x.String())
	}
	if got := strings.Join(steps, "\n"); !strings.Contains(got, "host: node 1 (NonZero): the size of its result depends on data") {
		t.Error(got)
	}
	for want, f := range map[string]ampc.Feed{
		`feed "z": the model has no such input; it reads x`: {"z": []float32{1}},
		`feed "x" is a string`:                              {"x": "1"},
		`input "x" is missing: feed it`:                     {},
	} {
		if _, err := s.Run(context.Background(), f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The sizes of a model with named dimensions vary over one session.
func TestONNXSessionSizes(t *testing.T) {
	s, err := ampc.OpenONNX("onnx/testdata/mlp.onnx", ampc.ONNXRun{Programs: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, n := range []int{1, 3, 5, 1} {
		r, err := s.Run(context.Background(), ampc.Feed{"x": make([]float32, 4*n)})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Tensors["p"].Type; got != ampc.TypeOf(ampc.F32, n, 3) {
			t.Errorf("%d rows give %s", n, got)
		}
	}
	if n, _ := s.Programs(); n != 2 {
		t.Errorf("%d programs are kept, the bound is 2", n)
	}
	for want, x := range map[string]any{
		`feed "x" is a <nil>, want a HostTensor or a slice of numbers`:       nil,
		`feed "x" is a [][]float32, want a HostTensor or a slice of numbers`: [][]float32{{1, 2, 3, 4}},
		`feed "x" has 1 elements, want a multiple of 4`:                      1.5,
		`feed "x" has 6 elements, want a multiple of 4`:                      make([]float32, 6),
	} {
		if _, err := s.Run(context.Background(), ampc.Feed{"x": x}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := s.Run(context.Background(), ampc.Feed{"x": []float32{}}); err != nil {
		t.Errorf("no rows: %v", err)
	}
}

// Files of every version of the format from 3 to 12 run, compiled and in a session, and
// convert to f16 in their own version, to bf16 in the least that has its opset.
func TestONNXFormatVersions(t *testing.T) {
	file, err := os.ReadFile("onnx/testdata/mlp.onnx")
	if err != nil {
		t.Fatal(err)
	}
	if file[0] != 1<<3 { // the field ir_version
		t.Fatal("the file does not begin with its version")
	}
	x := make([]float32, 8)
	for i := range x {
		x[i] = float32(i) / 8
	}
	run := func(path string) []float32 {
		t.Helper()
		s, err := ampc.OpenONNX(path, ampc.ONNXRun{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r, err := s.Run(context.Background(), ampc.Feed{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		return r.Tensors["p"].Floats()
	}
	version := func(path string) int64 {
		t.Helper()
		m, err := onnx.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return m.IR
	}
	dir := t.TempDir()
	want := run("onnx/testdata/mlp.onnx")
	for v := int64(3); v <= 12; v++ {
		path, half := filepath.Join(dir, fmt.Sprintf("v%d.onnx", v)), filepath.Join(dir, "half.onnx")
		file[1] = byte(v)
		if err := os.WriteFile(path, file, 0o666); err != nil {
			t.Fatal(err)
		}
		if got := run(path); version(path) != v || !slices.Equal(got, want) {
			t.Errorf("version %d (read as %d): %v, want %v", v, version(path), got, want)
		}
		m, err := ampc.LoadONNX(path, ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 2}})
		if err != nil {
			t.Fatal(err)
		}
		step, err := m.Infer(ampc.InferConfig{}, m.Outputs()...)
		if err != nil {
			t.Fatal(err)
		}
		r, err := step.Run(context.Background(), ampc.Feed{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		h, err := r.Value(m.Outputs()[0])
		if err != nil || !slices.Equal(h.Floats(), want) {
			t.Errorf("version %d, compiled: %v (%v), want %v", v, h.Floats(), err, want)
		}
		m.Close()
		for policy, least := range map[string]int64{"f16": v, "bf16": max(v, 10)} {
			p := ampc.MixedF16()
			if policy == "bf16" {
				p = ampc.MixedBF16()
			}
			if _, err := ampc.ConvertONNX(context.Background(), path, half, ampc.ConvertOptions{Policy: p, ONNXOptions: ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 2}}}); err != nil {
				t.Fatal(err)
			}
			if got := version(half); got != least {
				t.Errorf("version %d to %s: written in version %d, want %d", v, policy, got, least)
			}
		}
	}
}

// BenchmarkResNet50 runs ResNet-50 on one picture by LoadONNX and Infer, and in a session. The
// batch norms are part of the convolutions in both except for "norms", which disables that in Infer.
func BenchmarkResNet50(b *testing.B) {
	path := filepath.Join(b.TempDir(), "resnet50.onnx")
	if err := onnxmodel.ResNet50().WriteFile(path); err != nil {
		b.Fatal(err)
	}
	ctx, feed := context.Background(), ampc.Feed{"x": make([]float32, 3*224*224)}
	for i := range feed["x"].([]float32) {
		feed["x"].([]float32)[i] = float32(i%17)/8 - 1
	}
	run := func(name string, once func() error) {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if err := once(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, compile := range map[string]ampc.CompileOptions{"infer": {}, "norms": {Disable: []string{"foldnorms"}}} {
		m, err := ampc.LoadONNX(path, ampc.ONNXOptions{Sizes: ampc.Sizes{"batch": 1, "height": 224, "width": 224}})
		if err != nil {
			b.Fatal(err)
		}
		defer m.Close()
		step, err := m.Infer(ampc.InferConfig{Compile: compile}, m.Outputs()...)
		if err != nil {
			b.Fatal(err)
		}
		once := func() error {
			r, err := step.Run(ctx, feed)
			if err == nil {
				_, err = r.Wait(ctx)
			}
			return err
		}
		if err := once(); err != nil {
			b.Fatal(err)
		}
		run(name, once)
	}
	s, err := ampc.OpenONNX(path, ampc.ONNXRun{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	once := func() error {
		x, err := ampc.NewHostTensor(ampc.TypeOf(ampc.F32, 1, 3, 224, 224), feed["x"])
		if err == nil {
			_, err = s.Run(ctx, ampc.Feed{"x": x})
		}
		return err
	}
	if err := once(); err != nil {
		b.Fatal(err)
	}
	run("session", once)
}
