package onnx_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/internal/trial"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// data is where the ONNX project's test cases lie, beside the repository.
const data = "../../shared/onnx"

// cases lists the folders with a model.onnx below a folder of data.
func cases(t *testing.T, folder string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(data, folder, "*", "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Skipf("no test cases in %s", filepath.Join(data, folder))
	}
	for i := range list {
		list[i] = filepath.Dir(list[i])
	}
	return list
}

// tensors reads input_0.pb, input_1.pb, ... of a data set.
func tensors(dir, kind string) ([]*eval.Tensor, error) {
	var out []*eval.Tensor
	for i := 0; ; i++ {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%s_%d.pb", kind, i)))
		if errors.Is(err, os.ErrNotExist) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		x, _, err := onnx.ParseTensor(b)
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", kind, i, err)
		}
		out = append(out, x)
	}
}

// example is a model with one of its data sets.
type example struct {
	g       *ir.Graph
	in      map[string]*eval.Tensor // by name in the graph
	outputs []*eval.Tensor
}

func open(dir, set string) (*example, error) {
	m, err := onnx.Open(filepath.Join(dir, "model.onnx"))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	in, err := tensors(filepath.Join(dir, set), "input")
	if err != nil {
		return nil, err
	}
	e := &example{in: map[string]*eval.Tensor{}}
	if e.outputs, err = tensors(filepath.Join(dir, set), "output"); err != nil {
		return nil, err
	}
	shapes, values := map[string][]int64{}, map[string]*eval.Tensor{}
	ports := m.Inputs()
	if len(in) > len(ports) {
		return nil, fmt.Errorf("%d inputs, the model has %d", len(in), len(ports))
	}
	for i, x := range in {
		shapes[ports[i].Name], values[ports[i].Name] = ir.Sizes(x.Type.Shape), x
	}
	model, err := onnx.Import(m, onnx.Options{Shapes: shapes, Values: values})
	if err != nil {
		return nil, err
	}
	e.g = model.Graph
	for i, p := range model.Inputs {
		e.in[p.Value.Name] = in[i]
	}
	return e, nil
}

// evaluate runs the graph in the evaluator.
func (e *example) evaluate() ([]*eval.Tensor, error) {
	r, err := eval.Run(e.g, e.in, eval.Options{})
	if err != nil {
		return nil, err
	}
	var out []*eval.Tensor
	for _, y := range e.g.Return {
		out = append(out, r.Value(y))
	}
	return out, nil
}

// run compiles the graph for the CPU and runs it.
func (e *example) run(b *cpu.Backend) ([]*eval.Tensor, error) { return e.under(b, passes.F32()) }

// under is run under a policy.
func (e *example) under(b *cpu.Backend, policy passes.Policy) ([]*eval.Tensor, error) {
	return trial.RunOn(b, e.g, e.in, policy)
}

// limit is how far an element may be off: a share of it, a number, and a share
// of the output's largest magnitude.
type limit struct{ rel, abs, ofMax float64 }

var (
	node  = limit{rel: 1e-3, abs: 1e-7}   // ONNX's own
	whole = limit{rel: 1e-3, ofMax: 1e-5} // many layers: elements near zero are left over from large ones
)

// differ says where results are further off than l allows.
func (l limit) differ(got, want []*eval.Tensor) error {
	if len(got) < len(want) {
		return fmt.Errorf("%d outputs, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Type != w.Type {
			return fmt.Errorf("output %d is %s, want %s", i, g.Type, w.Type)
		}
		most := 0.0
		for k := range w.Len() {
			if a := math.Abs(w.At(k)); !math.IsInf(a, 0) && l.ofMax > 0 {
				most = max(most, a)
			}
		}
		for k := range w.Len() {
			x, y := g.At(k), w.At(k)
			if x == y || math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) <= l.abs+l.rel*math.Abs(y)+l.ofMax*most {
				continue
			}
			return fmt.Errorf("output %d element %d is %g, want %g", i, k, x, y)
		}
	}
	return nil
}

// check runs a case in the evaluator and on the CPU.
func (l limit) check(b *cpu.Backend, dir, set string) error {
	e, err := open(dir, set)
	if err != nil {
		return err
	}
	got, err := e.evaluate()
	if err == nil {
		err = l.differ(got, e.outputs)
	}
	if err != nil {
		return fmt.Errorf("evaluator: %w", err)
	}
	got, err = e.run(b)
	if err == nil {
		err = l.differ(got, e.outputs)
	}
	if err != nil {
		return fmt.Errorf("CPU: %w", err)
	}
	return nil
}

// Every case of the ONNX project's gives the outputs that it states, in the
// evaluator and on the CPU, except for those that testdata/unsupported.txt names.
func TestNodeCases(t *testing.T) { runCases(t, "node") }

// allCases names a folder with all node cases of a release of ONNX:
// onnx/backend/test/data/node of v1.19.0.
const allCases = "AMPC_ONNX_NODE"

// Every node case of ONNX 1.19 passes, except for those of testdata/unsupported.txt, which -update
// writes anew: a reason that stands there stays.
func TestAllNodeCases(t *testing.T) {
	dir := os.Getenv(allCases)
	if dir == "" {
		t.Skipf("%s names no folder with the node cases of ONNX 1.19", allCases)
	}
	b, err := cpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	list, err := filepath.Glob(filepath.Join(dir, "*", "model.onnx"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no cases in %s", dir)
	}
	known, lines := unsupportedCases(t), []string{}
	for _, path := range list {
		name := filepath.Base(filepath.Dir(path))
		err := node.check(b, filepath.Dir(path), "test_data_set_0")
		switch reason := known[name]; {
		case err == nil && reason != "" && !golden.Updating():
			t.Errorf("%s passes, testdata/unsupported.txt says: %s", name, reason)
		case err != nil && reason == "" && !golden.Updating():
			t.Errorf("%s: %v", name, err)
		case err != nil:
			lines = append(lines, fmt.Sprintf("%s: %s\n", name, cmp.Or(reason, shortReason(err))))
		}
	}
	t.Logf("%d of %d cases pass", len(list)-len(lines), len(list))
	if golden.Updating() {
		if err := os.WriteFile("testdata/unsupported.txt", []byte(strings.Join(lines, "")), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// shortReason is why a case is not run, without its file and node.
func shortReason(err error) string {
	if n, ok := errors.AsType[*onnx.NodeError](err); ok {
		return fmt.Sprintf("%s: %v", n.Op, n.Err)
	}
	_, text, found := strings.Cut(err.Error(), "elements of ")
	if found {
		return "elements of " + text
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

// Layers that PyTorch exported, of opsets 6 to 9.
func TestExportedLayers(t *testing.T) {
	for _, folder := range []string{"pytorch-operator", "pytorch-converted"} {
		t.Run(folder, func(t *testing.T) { runCases(t, folder) })
	}
}

func runCases(t *testing.T, folder string) {
	b, err := cpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	unsupported := unsupportedCases(t)
	passed, known := 0, 0
	for _, dir := range cases(t, folder) {
		name := filepath.Base(dir)
		err, reason := node.check(b, dir, "test_data_set_0"), unsupported[name]
		switch {
		case err != nil && reason == "":
			t.Errorf("%s: %v", name, err)
		case err != nil:
			known++
		case reason != "":
			t.Errorf("%s passes, testdata/unsupported.txt says: %s", name, reason)
		default:
			passed++
		}
	}
	t.Logf("%s: %d cases pass, %d do not for reasons in testdata/unsupported.txt", folder, passed, known)
}

// unsupportedCases reads the cases that are expected to fail, with the reason.
func unsupportedCases(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("testdata/unsupported.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, reason, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			t.Fatalf("testdata/unsupported.txt: %q", line)
		}
		out[name] = reason
	}
	return out
}

// Whole models give the outputs that their data sets state.
func TestModels(t *testing.T) {
	b, err := cpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, dir := range cases(t, "models") {
		sets, err := filepath.Glob(filepath.Join(dir, "test_data_set_*"))
		if err != nil || len(sets) == 0 {
			t.Fatalf("%s has no data sets", dir)
		}
		for _, set := range sets {
			if err := whole.check(b, dir, filepath.Base(set)); err != nil {
				t.Errorf("%s: %v", filepath.Base(dir), err)
			}
		}
	}
}

// The nets of light/ have weights made by ConstantOfShape. Their input is a
// ramp from 0 to 1, as in ONNX's own runner of these tests.
func TestLightModels(t *testing.T) {
	if testing.Short() {
		t.Skip("whole conv nets: not with -short")
	}
	b, err := cpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	list, err := filepath.Glob(filepath.Join(data, "light", "*.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Skipf("no models in %s", filepath.Join(data, "light"))
	}
	for _, path := range list {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".onnx"), func(t *testing.T) {
			m, err := onnx.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			x, err := onnx.Import(m, onnx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			in := eval.New(x.Inputs[0].Value.Type)
			for i := range in.F {
				in.F[i] = float64(float32(float64(i) / float64(len(in.F))))
			}
			raw, err := os.ReadFile(strings.TrimSuffix(path, ".onnx") + "_output_0.pb")
			if err != nil {
				t.Fatal(err)
			}
			want, _, err := onnx.ParseTensor(raw)
			if err != nil {
				t.Fatal(err)
			}
			e := &example{g: x.Graph, in: map[string]*eval.Tensor{x.Inputs[0].Value.Name: in}}
			got, err := e.run(b)
			if err == nil {
				err = whole.differ(got, []*eval.Tensor{want})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
