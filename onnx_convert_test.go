package ampc_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/ort"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/onnx/convert"
	"ampc/passes"
)

// fedSizes are sizes for the inputs of a model: those of its first data set, 1 elsewhere.
func fedSizes(t *testing.T, path string) ampc.ONNXOptions {
	t.Helper()
	o := ampc.ONNXOptions{Shapes: map[string][]int64{}, Values: ampc.Feed{}}
	m, err := onnx.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i, x := range m.Inputs() {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), "test_data_set_0", "input_"+string(rune('0'+i))+".pb"))
		if err != nil {
			continue
		}
		v, _, err := onnx.ParseTensor(b)
		if err != nil {
			t.Fatal(err)
		}
		o.Shapes[x.Name] = ir.Sizes(v.Type.Shape)
		o.Values[x.Name] = ampc.HostTensor{Type: ampc.TypeFromIR(v.Type), Bytes: v.Bytes()}
	}
	return o
}

// Whole models become f16 ones that compute nearly the same, with the types of
// inputs and outputs that they had; under f32 the file stays as it is, and no sizes are needed.
func TestConvertONNX(t *testing.T) {
	convertModels(t, ampc.MixedF16(), 5e-3, func(t *testing.T, path, out string, r *ampc.ConvertReport) {
		t.Logf("%d of %d nodes, %d weights, %d casts, %d to %d bytes, %v", r.Low, r.Nodes, r.Weights, r.Casts, r.In, r.Out, r.Errors)
		if r.Low == 0 {
			t.Error("no node computes in 16 bits")
		}
		if _, err := ampc.ConvertONNX(context.Background(), path, out, ampc.ConvertOptions{Policy: ampc.F32Only()}); err != nil {
			t.Fatal(err)
		}
		a, _ := os.ReadFile(path)
		b, _ := os.ReadFile(out)
		if !bytes.Equal(a, b) {
			t.Error("the policy f32 changed bytes")
		}
	})
}

// convertModels converts the shared models, where they are, and our own. Outputs may
// be off by a share of their largest magnitude.
func convertModels(t *testing.T, policy ampc.Policy, off float64, check func(t *testing.T, path, out string, r *ampc.ConvertReport)) {
	list, err := filepath.Glob("../shared/onnx/models/*/model.onnx")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Log("no models in ../shared/onnx/models: only our own is converted")
	}
	for _, path := range append(list, "onnx/testdata/mlp.onnx") {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			o := ampc.ConvertOptions{ONNXOptions: fedSizes(t, path), Policy: policy}
			if len(o.Shapes) == 0 {
				o.Sizes = ampc.Sizes{"N": 4}
			} else {
				o.Data = []ampc.Feed{o.Values}
			}
			out := filepath.Join(t.TempDir(), "out.onnx")
			r, err := ampc.ConvertONNX(context.Background(), path, out, o)
			if err != nil {
				t.Fatal(err)
			}
			oneType(t, out, o.ONNXOptions)
			for _, e := range r.Errors {
				if e.Error > off {
					t.Errorf("output %s is off by %.2g", e.Name, e.Error)
				}
			}
			check(t, path, out, r)
		})
	}
}

func TestConvertONNXLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	o := ampc.ConvertOptions{ONNXOptions: ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 4}}, Policy: ampc.MixedF16(), MaxError: 1e-9}
	_, err := ampc.ConvertONNX(context.Background(), "onnx/testdata/mlp.onnx", filepath.Join(dir, "out.onnx"), o)
	if err == nil || !strings.Contains(err.Error(), "the limit is 1e-09") {
		t.Error(err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("%v is left", list)
	}
}

// A file that stands keeps its mode; the source, and what may not be written to, are not replaced.
func TestConvertONNXOverFiles(t *testing.T) {
	dir := t.TempDir()
	in, out, link := filepath.Join(dir, "in.onnx"), filepath.Join(dir, "out.onnx"), filepath.Join(dir, "link.onnx")
	model, err := os.ReadFile("onnx/testdata/mlp.onnx")
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{in: 0o644, out: 0o600} {
		if err := os.WriteFile(path, model, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(in, link); err != nil {
		t.Fatal(err)
	}
	convert := func(out string) error {
		o := ampc.ConvertOptions{ONNXOptions: ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 4}}, Policy: ampc.MixedF16()}
		_, err := ampc.ConvertONNX(context.Background(), in, out, o)
		return err
	}
	for _, same := range []string{in, link} {
		if err := convert(same); err == nil || err.Error() != same+": is the model that is converted: give another file for the result" {
			t.Errorf("%s: %v", same, err)
		}
	}
	if now, _ := os.ReadFile(in); !bytes.Equal(now, model) {
		t.Error("the source was changed")
	}
	for _, mode := range []os.FileMode{0o600, 0o444} {
		if err := os.Chmod(out, mode); err != nil {
			t.Fatal(err)
		}
		err := convert(out)
		if refused := mode == 0o444 && os.Getuid() != 0; refused != errors.Is(err, os.ErrPermission) || !refused && err != nil {
			t.Errorf("mode %v: %v", mode, err)
		}
		if st, err := os.Stat(out); err != nil || st.Mode() != mode {
			t.Errorf("mode %v became %v (%v)", mode, st.Mode(), err)
		}
	}
	if list, _ := os.ReadDir(dir); len(list) != 3 {
		t.Errorf("%v lie there, want three", list)
	}
}

// freeTypes are operands that the schemas of ONNX give a type of their own,
// from the opset on; -1: all operands.
var freeTypes = map[string]struct {
	from  int
	opset int64
}{
	"Resize": {1, 10}, "Upsample": {1, 9}, "BatchNormalization": {1, 15}, "Dropout": {1, 12}, "Pow": {1, 12}, "CastLike": {0, 15}, "OneHot": {0, 9}, "If": {0, 1},
}

// oneType fails where operands of a node that must be of one type are not, or a
// value is not of the type that the file says.
func oneType(t *testing.T, path string, o ampc.ONNXOptions) {
	t.Helper()
	m, err := onnx.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	in := onnx.Options{Shapes: o.Shapes, Dims: map[string]int64{}, Values: map[string]*eval.Tensor{}}
	for d, n := range o.Sizes {
		in.Dims[string(d)] = n
	}
	for name, v := range o.Values {
		h := v.(ampc.HostTensor)
		if in.Values[name], err = eval.FromBytes(h.Type.IR(), h.Bytes); err != nil {
			t.Fatal(err)
		}
	}
	x, err := onnx.Import(m, in)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range m.Graph.Nodes {
		first := ir.Invalid
		for k, name := range n.In {
			d := x.Types[name].DType
			if free, ok := freeTypes[n.Op]; ok && k >= free.from && m.Opsets[""] >= free.opset || !d.Float() || n.Domain != "" {
				continue
			}
			if first == ir.Invalid {
				first = d
			}
			if d != first {
				t.Errorf("%s: node %d (%s): operand %s is %s, an operand before it %s", path, i, n.Op, name, d, first)
			}
		}
	}
	for _, v := range m.Graph.Infos {
		if d := x.Types[v.Name].DType; d == ir.F32 && v.DType == 10 || d == ir.F16 && v.DType == 1 {
			t.Errorf("%s: %s is %s, value_info says %s", path, v.Name, d, v.DType)
		}
	}
}

// Every node case that can be converted is: the file that is written is read
// again, its outputs have their types and are near the source's, and finite where
// they were. Where a node is forced into 16 bits its operands are of one type still.
func TestConvertNodeCases(t *testing.T) {
	list, err := filepath.Glob("../shared/onnx/node/*/model.onnx")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Skip("no cases in ../shared/onnx/node")
	}
	oracle := onnxruntime(t)
	for _, c := range []struct {
		policy ampc.Policy
		least  int
		most   float64
	}{{ampc.MixedF16(), 10, 2e-3}, {ampc.MixedF16().Lower("*"), 200, 1e-2}, {ampc.MixedBF16().Lower("*"), 200, 8e-2}} {
		low := 0
		for _, path := range list {
			name := filepath.Base(filepath.Dir(path))
			o := ampc.ConvertOptions{ONNXOptions: fedSizes(t, path), Policy: c.policy}
			o.Data = []ampc.Feed{o.Values}
			out := filepath.Join(t.TempDir(), "out.onnx")
			r, err := ampc.ConvertONNX(context.Background(), path, out, o)
			if err != nil {
				if s := err.Error(); !strings.Contains(s, "changes nothing") && !strings.Contains(s, "random numbers that ONNX does not define") && !strings.Contains(s, "cannot be raised from opset 1 to 22: before opset 7") {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			oneType(t, out, o.ONNXOptions)
			if r.Low > 0 {
				low++
			}
			loads(t, oracle, name, path, out)
			for _, e := range r.Errors {
				// Its operands are near 10000, where f16 has steps of 8: that is what forcing means.
				if e.Error > c.most && name != "test_softmax_large_number" {
					t.Errorf("%s: output %s is off by %.2g", name, e.Name, e.Error)
				}
			}
		}
		if low < c.least {
			t.Errorf("%d cases compute in 16 bits, want %d", low, c.least)
		}
		t.Logf("%d of %d cases compute in 16 bits", low, len(list))
	}
}

// bf16 takes opset 22, to which models of older ones rise with every node adapted;
// what they compute stays.
func TestConvertRaises(t *testing.T) {
	oracle := onnxruntime(t)
	convertModels(t, ampc.MixedBF16(), 5e-2, func(t *testing.T, path, out string, r *ampc.ConvertReport) {
		loads(t, oracle, filepath.Dir(path), path, out)
		if r.Opset != 22 || r.Low == 0 {
			t.Errorf("opset %d, was %d; %d nodes in 16 bits", r.Opset, r.From, r.Low)
		}
		t.Logf("opset %d to %d, %d of %d nodes, %d casts, %v", r.From, r.Opset, r.Low, r.Nodes, r.Casts, r.Errors)
	})
}

// loads fails where onnxruntime takes the source and not what became of it. That its
// CPU has no kernel for bf16 is no fault of the file, whose types it has checked by then.
func loads(t *testing.T, oracle *ort.Runtime, name, source, out string) {
	t.Helper()
	if oracle == nil {
		return
	}
	_, err := oracle.Run(out, nil)
	if err == nil || strings.Contains(err.Error(), "Could not find an implementation") {
		return
	}
	if _, was := oracle.Run(source, nil); was == nil {
		t.Errorf("%s: onnxruntime: %v", name, err)
	}
}

// The error of one and the same file depends on the data that it is measured on: of
// ResNet-8 with every node in 16 bits, as in the peers' files, it is 0.9 to 1.3 times
// what is cited, by the batch. Its last product is kept in f32, as the output is f32:
// then the mean error over all images that the net was not trained on is below what is
// cited in both types, with as many casts. With every node lowered by a rule, the
// error is that of any such file: of f32 kernels with every operand and result
// rounded once (everyNodeRounds).
func TestConvertResNetBesidePeers(t *testing.T) {
	const model = "../shared/onnx/models/own-resnet8w/model.onnx"
	if _, err := os.Stat(model); err != nil {
		t.Skipf("no models in ../shared/onnx/models: %v", err)
	}
	images, _ := digits(t, "../shared/data/optdigits.tes")
	var feeds []ampc.Feed
	for ; len(images) >= 64; images = images[64:] {
		h, err := ampc.NewHostTensor(ampc.TypeOf(ampc.F32, 64, 1, 8, 8), slices.Concat(images[:64]...))
		if err != nil {
			t.Fatal(err)
		}
		feeds = append(feeds, ampc.Feed{"x": h})
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	mean := func(p ampc.Policy, kept int) float64 {
		sum := 0.0
		for _, f := range feeds {
			r, err := ampc.ConvertONNX(context.Background(), model, out, ampc.ConvertOptions{ONNXOptions: ampc.ONNXOptions{Sizes: ampc.Sizes{"N": 64}}, Policy: p, Data: []ampc.Feed{f}})
			if err != nil {
				t.Fatal(err)
			}
			if sum += r.Errors[0].Error; r.Casts != 2 || r.Low != r.Nodes-kept {
				t.Fatalf("%d casts, %d of %d nodes", r.Casts, r.Low, r.Nodes)
			}
		}
		return sum / float64(len(feeds))
	}
	for _, c := range []struct {
		policy ampc.Policy
		low    passes.Policy
		cited  float64
	}{{ampc.MixedF16(), passes.MixedF16().Lower("*"), 6.2e-4}, {ampc.MixedBF16(), passes.MixedBF16().Lower("*"), 4.3e-3}} {
		own := mean(c.policy, 1)
		every, peers := mean(c.policy.Lower("*"), 0), everyNodeRounds(t, model, c.low, feeds)
		t.Logf("%s: mean error %.3g, %.2f times what is cited; with every node lowered %.3g, %.2f times, where rounding every node gives %.3g",
			c.policy.Low, own, own/c.cited, every, every/c.cited, peers)
		if own > c.cited {
			t.Errorf("%s: mean error %.3g, want %.3g", c.policy.Low, own, c.cited)
		}
		if every > 1.1*peers {
			t.Errorf("%s: mean error %.3g with every node lowered, rounding every node gives %.3g", c.policy.Low, every, peers)
		}
	}
}

// everyNodeRounds is the mean error of a model all of whose nodes compute in f32 and round
// what they read and give once to 16 bits, as runtimes do that run one node at a time.
func everyNodeRounds(t *testing.T, path string, policy passes.Policy, feeds []ampc.Feed) float64 {
	t.Helper()
	src, err := onnx.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	o := onnx.Options{Dims: map[string]int64{"N": 64}, Carry: true}
	x, err := onnx.Import(src, o)
	if err != nil {
		t.Fatal(err)
	}
	if least := convert.LeastOpset(policy.Low); src.Opsets[""] < least {
		if src, err = convert.Raise(src, x, least); err != nil {
			t.Fatal(err)
		}
		if x, err = onnx.Import(src, o); err != nil {
			t.Fatal(err)
		}
	}
	trial, err := convert.NewTrial(src, x, policy)
	if err != nil {
		t.Fatal(err)
	}
	m := ampc.FromGraph(trial.Graph)
	defer m.Close()
	y := m.Outputs()[0]
	step, err := m.Infer(ampc.InferConfig{Policy: ampc.Manual()}, y)
	if err != nil {
		t.Fatal(err)
	}
	run := func(f ampc.Feed, on byte) ampc.HostTensor {
		f = maps.Clone(f)
		for i, name := range trial.Flags {
			if name == "" {
				t.Fatalf("node %d does not round", i)
			}
			f[name] = ampc.HostTensor{Type: ampc.TypeOf(ampc.Bool), Bytes: []byte{on}}
		}
		r, err := step.Run(context.Background(), f)
		if err != nil {
			t.Fatal(err)
		}
		h, err := r.Value(y)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	sum := 0.0
	for _, f := range feeds {
		want, got := run(f, 0), run(f, 1)
		off, most := 0.0, 0.0
		for i := range want.Type.IR().Shape.Elements() {
			w := want.At(int(i))
			off, most = max(off, math.Abs(got.At(int(i))-w)), max(most, math.Abs(w))
		}
		sum += off / most
	}
	return sum / float64(len(feeds))
}

// converted converts one of the shared models by its own data.
func converted(t *testing.T, name, out string, o ampc.ConvertOptions) *ampc.ConvertReport {
	t.Helper()
	path := filepath.Join("../shared/onnx/models", name, "model.onnx")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no models in ../shared/onnx/models: %v", err)
	}
	o.ONNXOptions = fedSizes(t, path)
	o.Data = []ampc.Feed{o.Values}
	r, err := ampc.ConvertONNX(context.Background(), path, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Calibrated by their data, models have no more casts than the peers leave, and at
// most 1.1 times their error; the figures are ModelOpt's and onnxconverter-common's,
// the better of the two (docs/onnx.md).
func TestCalibrateBesidePeers(t *testing.T) {
	for _, c := range []struct {
		name     string
		casts    int
		error    float64
		smallest float64 // share of the file's bytes
	}{
		{"own-mlp", 2, 3.0e-4, 0.51}, {"own-lenet", 2, 6.9e-4, 0.51}, {"own-resnet8w", 2, 6.2e-4, 0.52}, {"own-gptmini", 1, 6.5e-4, 0.53},
	} {
		out := filepath.Join(t.TempDir(), "out.onnx")
		r := converted(t, c.name, out, ampc.ConvertOptions{Policy: ampc.MixedF16(), Calibrate: true, MaxError: 1.1 * c.error})
		if r.Casts > c.casts || r.Errors[0].Error > 1.1*c.error || float64(r.Out) > c.smallest*float64(r.In) {
			t.Errorf("%s: %d casts, error %.2g, %d of %d bytes; want %d, %.2g, %.0f%%", c.name, r.Casts, r.Errors[0].Error, r.Out, r.In, c.casts, 1.1*c.error, 100*c.smallest)
		}
		t.Logf("%s: %d of %d nodes, %d casts, error %.2g, %d bytes, %d runs", c.name, r.Low, r.Nodes, r.Casts, r.Errors[0].Error, r.Out, r.Runs)
	}
}

// What a calibration found is a policy: without data it makes the same file again. A
// limit on the error is held, and says which nodes it cost.
func TestCalibratePolicy(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a.onnx"), filepath.Join(dir, "b.onnx")
	r := converted(t, "own-gptmini", first, ampc.ConvertOptions{Policy: ampc.MixedF16(), Calibrate: true, MaxError: 3e-4})
	if len(r.Kept) == 0 || r.Runs < 3 || r.Errors[0].Error > 3e-4 {
		t.Errorf("%d nodes are kept after %d runs, the error is %g", len(r.Kept), r.Runs, r.Errors[0].Error)
	}
	alone := 0
	for _, k := range r.Kept {
		if strings.Contains(k.Why, "alone it moves an output by") {
			alone++
		}
	}
	if alone == 0 {
		t.Errorf("no node says what it costs: %v", r.Kept)
	}
	p, err := ampc.ParsePolicy("found", []byte(r.Policy))
	if err != nil {
		t.Fatal(err)
	}
	again := converted(t, "own-gptmini", second, ampc.ConvertOptions{Policy: p})
	a, _ := os.ReadFile(first)
	b, _ := os.ReadFile(second)
	if again.Runs != 0 || !bytes.Equal(a, b) {
		t.Errorf("the policy makes another file: %d casts, were %d", again.Casts, r.Casts)
	}
}
