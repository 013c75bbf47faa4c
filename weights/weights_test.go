package weights_test

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/trial"
	"ampc/weights"
)

// net is the module Net of testdata/make.py.
func net(t *testing.T, head string, classes int) (*ampc.Model, func(ampc.Feed) []float32) {
	t.Helper()
	m := ampc.New("net")
	t.Cleanup(func() { m.Close() })
	x := m.Input("x", ampc.F32, 2, 1, 4, 4)
	h := m.Relu(m.BatchNorm("bn", m.Conv2d("conv", x, 4, 3, ampc.Conv2dOptions{Padding: 1})))
	h = m.Linear("fc1", m.Reshape(h, 2, 4, 16), 8)
	h = m.LayerNorm("ln", m.Attention("attn", h, 2))
	out := m.Linear(head, h, classes)
	step, err := m.Infer(ampc.InferConfig{}, out)
	if err != nil {
		t.Fatal(err)
	}
	return m, func(in ampc.Feed) []float32 {
		y, err := trial.Run(t, step, in).Value(out)
		if err != nil {
			t.Fatal(err)
		}
		return y.Floats()
	}
}

// values runs the network of testdata/make.py and returns its output, and PyTorch's.
func values(t *testing.T, run func(ampc.Feed) []float32) (got, want []float32) {
	t.Helper()
	var io struct{ X, Y []float32 }
	readJSON(t, "testdata/net.json", &io)
	return run(ampc.Feed{"x": io.X}), io.Y
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, to); err != nil {
		t.Fatal(err)
	}
}

// apart is max|a−b| / max|b|.
func apart(a, b []float32) float64 {
	d, top := 0.0, 0.0
	for i := range b {
		d, top = max(d, math.Abs(float64(a[i]-b[i]))), max(top, math.Abs(float64(b[i])))
	}
	return d / top
}

// A state_dict of PyTorch makes ampc's layers compute what the module computes.
func TestPyTorchModule(t *testing.T) {
	for _, file := range []string{"net.pt", "net.safetensors"} {
		m, step := net(t, "fc2", 3)
		report, err := weights.Load(m, "testdata/"+file, weights.PyTorch())
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Loaded) != 16 || len(report.Missing)+len(report.Unused)+len(report.Differing) > 0 {
			t.Errorf("%s: %s", file, report)
		}
		i := slices.IndexFunc(report.Loaded, func(l weights.Loaded) bool { return l.Variable == "attn.qkv.w" })
		if want := (weights.Loaded{"attn.qkv.w", "attn.in_proj_weight", ampc.F32, true}); i < 0 || report.Loaded[i] != want {
			t.Errorf("%s: attn.qkv.w is loaded as %v", file, report.Loaded)
		}
		if got, want := values(t, step); apart(got, want) > 1e-5 {
			t.Errorf("%s: the network is %g apart from PyTorch's", file, apart(got, want))
		}
	}
}

// The weights of a training checkpoint of PyTorch are found by their key.
func TestKey(t *testing.T) {
	m, _ := net(t, "fc2", 3)
	_, err := weights.Load(m, "testdata/nested.pt", weights.PyTorch())
	trial.WantError(t, err, "testdata/nested.pt: 16 variables missing")
	if _, err := weights.Load(m, "testdata/nested.pt", weights.PyTorch(), weights.Key("model_state_dict")); err != nil {
		t.Error(err)
	}
	_, err = weights.Load(m, "testdata/nested.pt", weights.Key("state_dict"))
	trial.WantError(t, err, `there is no key "state_dict"`, "epoch, best, model_state_dict, optimizer")
	f, err := weights.Open("testdata/nested.pt", "optimizer.state.0")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if names := f.Tensors(); len(names) != 3 || names[0].Name != "exp_avg" {
		t.Errorf("the optimizer's first state has %v", names)
	}
}

// Every kind of elements, strides, storages that several tensors share, order.
func TestKinds(t *testing.T) {
	var want map[string]map[string][2]json.RawMessage
	readJSON(t, "testdata/kinds.json", &want)
	for file, of := range map[string]string{"kinds.pt": "pt", "kinds.npz": "npz", "packed.npz": "npz"} {
		f, err := weights.Open("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Tensors()) != len(want[of]) {
			t.Errorf("%s holds %v", file, f.Tensors())
		}
		for name, held := range want[of] {
			var shape []int
			var x []float32
			json.Unmarshal(held[0], &shape)
			json.Unmarshal(held[1], &x)
			h, err := f.Read(name)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if !slices.Equal(h.Type.Shape(), shape) || !slices.Equal(h.Floats(), x) {
				t.Errorf("%s: %s is %s %v, want %v %v", file, name, h.Type, h.Floats(), shape, x)
			}
		}
		if _, err := f.Read("none"); err == nil {
			t.Errorf("%s: a tensor that is not there is read", file)
		}
		f.Close()
	}
}

// What does not fit changes nothing and is named; options allow it.
func TestWhatDoesNotFit(t *testing.T) {
	m, _ := net(t, "head", 4)
	before, err := m.Variable("fc1.w")
	if err != nil {
		t.Fatal(err)
	}
	report, err := weights.Load(m, "testdata/net.pt", weights.PyTorch())
	trial.WantError(t, err, "testdata/net.pt: 2 variables missing (head.w, head.b), 2 tensors unused (fc2.bias, fc2.weight): nothing is loaded")
	if len(report.Loaded) > 0 || !reflect.DeepEqual(report.Unused, []string{"fc2.bias", "fc2.weight"}) {
		t.Errorf("report: %s", report)
	}
	if after, err := m.Variable("fc1.w"); err != nil || !slices.Equal(after.Bytes, before.Bytes) {
		t.Errorf("a failed Load changes fc1.w (%v)", err)
	}
	_, err = weights.Load(m, "testdata/net.pt", weights.PyTorch(), weights.Rename("fc2.*", "head.*"))
	trial.WantError(t, err, "head.w is f32[8,4] in the model and f32[8,3] in the file", "head.b is f32[4]")
	_, err = weights.Load(m, "testdata/net.pt", weights.Rename("*.*", "*"))
	trial.WantError(t, err, `rename "*.*" to "*": want as many *`)
	_, err = weights.Load(m, "testdata/none.pt")
	trial.WantError(t, err, "testdata/none.pt: no such file")
	_, err = weights.Load(ampc.New("none"), "testdata/net.pt")
	trial.WantError(t, err, "no step of the model is compiled yet")
	if report, err = weights.Load(m, "testdata/net.pt", weights.PyTorch(), weights.Partial()); err != nil || len(report.Loaded) != 14 || len(report.Missing) != 2 {
		t.Errorf("partial: %v, %v", report, err)
	}
}

// A new head on old weights, that differs or is not there at all.
func TestNewHead(t *testing.T) {
	m, _ := net(t, "head", 4)
	report, err := weights.Load(m, "testdata/net.pt", weights.PyTorch(), weights.Rename("fc2.*", "head.*"), weights.Fresh("head"))
	if err != nil || !slices.Equal(report.Fresh, []string{"head.w", "head.b"}) || len(report.Loaded) != 14 {
		t.Errorf("a head of another size: %v, %v", report, err)
	}
	report, err = weights.Load(m, "testdata/net.pt", weights.PyTorch(), weights.Ignore("fc2"), weights.Fresh("head"))
	if err != nil || len(report.Fresh) != 2 || len(report.Loaded) != 14 {
		t.Errorf("a head of another name: %v, %v", report, err)
	}
}

// Names that differ from the model's by a pattern and by a prefix.
func TestRename(t *testing.T) {
	m := ampc.New("renamed")
	defer m.Close()
	x := m.Input("x", ampc.F32, 2, 3)
	for _, name := range []string{"h0", "h1"} {
		x = m.Scope(name).Linear("up", x, 3)
	}
	if _, err := m.Infer(ampc.InferConfig{}, x); err != nil {
		t.Fatal(err)
	}
	rules := []weights.Option{weights.Prefix("module."), weights.Rename("layers.*.fc.kernel", "h*.up.w"), weights.Rename("layers.*.fc.bias", "h*.up.b"), weights.Transpose("*.w")}
	path := filepath.Join(t.TempDir(), "renamed.safetensors")
	if err := weights.Save(m, path, rules...); err != nil {
		t.Fatal(err)
	}
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if names := f.Tensors(); len(names) != 4 || names[1].Name != "module.layers.0.fc.kernel" {
		t.Errorf("saved as %v", names)
	}
	w, _ := m.Variable("h1.up.w")
	h, err := f.Read("module.layers.1.fc.kernel")
	if err != nil || h.At(1) != w.At(3) || h.At(1) == w.At(1) {
		t.Errorf("the matrix is not transposed (%v)", err)
	}
	if err := m.SetVariable("h1.up.w", make([]float32, 9)); err != nil {
		t.Fatal(err)
	}
	report, err := weights.Load(m, path, rules...)
	if err != nil || len(report.Loaded) != 4 {
		t.Fatalf("%v, %v", report, err)
	}
	if again, _ := m.Variable("h1.up.w"); !slices.Equal(again.Bytes, w.Bytes) {
		t.Error("the weights are not those that were saved")
	}
}

// A model in 16 bits is half as long, and as near as 16 bits are.
func TestSave16Bits(t *testing.T) {
	m, step := net(t, "fc2", 3)
	if _, err := weights.Load(m, "testdata/net.pt", weights.PyTorch()); err != nil {
		t.Fatal(err)
	}
	for d, near := range map[ampc.DType]float64{ampc.F16: 2e-3, ampc.BF16: 2e-2} {
		path := filepath.Join(t.TempDir(), "net.safetensors")
		if err := weights.Save(m, path, weights.As(d)); err != nil {
			t.Fatal(err)
		}
		low, lowStep := net(t, "fc2", 3)
		report, err := weights.Load(low, path)
		if err != nil || len(report.Loaded) != 16 || report.Loaded[0].DType != d {
			t.Fatalf("%v, %v", report, err)
		}
		got, _ := values(t, lowStep)
		if want, _ := values(t, step); apart(got, want) > near || apart(got, want) == 0 {
			t.Errorf("%s: %g apart", d, apart(got, want))
		}
	}
	if err := m.SetVariable("fc2.b", []float32{1, 1e6, 1}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "net.safetensors")
	trial.WantError(t, weights.Save(m, path, weights.As(ampc.F16)), `"fc2.b"`, "element 1 is 1e+06, beyond the range of f16")
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	trial.WantError(t, weights.Save(m, path, weights.As(ampc.I32)), "want a float dtype")
}

// From training to inference: the checkpoint of a training run loads into a model
// that only infers, without an option and with nothing to report.
func TestTrainingToInference(t *testing.T) {
	dir := t.TempDir()
	m, loss := trial.Small(8)
	defer m.Close()
	c := trial.Adam()
	c.Policy, c.EMA = ampc.MixedF16(), 0.9
	step := trial.Train(t, m, loss, c)
	trial.Run(t, step, trial.Points(1, 8))
	if err := m.SaveFile(dir + "/a.safetensors"); err != nil {
		t.Fatal(err)
	}
	if err := weights.Save(m, dir+"/b.safetensors"); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/a.safetensors", "/b.safetensors"} {
		other, out := trial.Small(8)
		defer other.Close()
		if _, err := other.Infer(ampc.InferConfig{Policy: ampc.MixedBF16()}, out); err != nil {
			t.Fatal(err)
		}
		report, err := weights.Load(other, dir+file)
		if err != nil || len(report.Loaded) == 0 || len(report.Unused)+len(report.Missing) > 0 || len(other.Warnings()) > 0 {
			t.Errorf("%v, %v, %v", report, err, other.Warnings())
		}
		for _, l := range report.Loaded {
			a, _ := m.Variable(l.Variable)
			b, _ := other.Variable(l.Variable)
			if !slices.Equal(a.Bytes, b.Bytes) {
				t.Errorf("%s differs", l.Variable)
			}
		}
	}
}

// PyTorch reads what Save writes: load_state_dict, strict, and the same output.
func TestPyTorchReads(t *testing.T) {
	python := os.Getenv("AMPC_PYTHON")
	if python == "" {
		t.Skip("PyTorch was not run: AMPC_PYTHON names no Python with PyTorch 2.6")
	}
	m, step := net(t, "fc2", 3)
	if _, err := weights.Load(m, "testdata/net.pt", weights.PyTorch()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "net.safetensors")
	if err := weights.Save(m, path, weights.PyTorch()); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "testdata/make.py", path).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n") // of which libraries may print some
	last := lines[len(lines)-1]
	var y []float32
	for _, word := range strings.Fields(last) {
		x, err := strconv.ParseFloat(word, 32)
		if err != nil {
			t.Fatalf("PyTorch printed %q", out)
		}
		y = append(y, float32(x))
	}
	if got, _ := values(t, step); len(y) != len(got) || apart(got, y) > 1e-5 {
		t.Errorf("PyTorch's module with the saved weights makes %v, ampc %v", y, got)
	}
}
