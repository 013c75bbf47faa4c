package onnx_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"ampc/internal/ort"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
)

// again exports a graph and imports it.
func again(g *ir.Graph, opset int64) (*ir.Graph, error) {
	var b bytes.Buffer
	if _, err := onnx.Export(&b, g, onnx.ExportOptions{Opset: opset, KeepInputs: true}); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	m, err := onnx.Parse(b.Bytes())
	if err != nil {
		return nil, err
	}
	x, err := onnx.Import(m, onnx.Options{})
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	return x.Graph, nil
}

// plain is a graph without what an ONNX file does not say: which weights are
// trained, and where their bytes lie.
func plain(t *testing.T, g *ir.Graph) *ir.Graph {
	t.Helper()
	g = g.Clone()
	for _, v := range g.Vars {
		if v.Kind == ir.Input {
			continue
		}
		e, err := eval.InitVar(v, 0)
		if err != nil {
			t.Fatal(err)
		}
		v.Kind, v.Init = ir.Const, &ir.Init{Func: "data"}
		for i := range e.Len() {
			v.Init.Args = append(v.Init.Args, e.At(i))
		}
	}
	return g
}

// Every case of the ONNX project's that is imported is exported, at its least
// opset and at the latest one, and imported again: the numbers are the same. What
// comes of exporting that once more is an equal graph.
func TestExportNodeCases(t *testing.T) {
	for _, opset := range []int64{0, 24} {
		equal, all := 0, 0
		for _, dir := range cases(t, "node") {
			e, err := open(dir, "test_data_set_0")
			if err != nil {
				continue
			}
			name := filepath.Base(dir)
			want, err := e.evaluate()
			if err != nil {
				continue
			}
			all++
			first, err := again(e.g, opset)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got, err := (&example{g: first, in: e.in}).evaluate()
			if err == nil {
				err = node.differ(got, want)
			}
			if err != nil && !strings.Contains(name, "dropout") {
				t.Errorf("%s: %v\n%s%s", name, err, e.g, first)
				continue
			}
			if ir.Equal(plain(t, e.g), plain(t, first)) == nil {
				equal++
				continue
			}
			second, err := again(first, opset)
			if err != nil {
				t.Errorf("%s: again: %v", name, err)
				continue
			}
			if strings.HasPrefix(name, "test_lstm") {
				continue // each import puts the gates in our order, each export in that of ONNX
			}
			if err := ir.Equal(plain(t, first), plain(t, second)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		t.Logf("opset %d: %d of %d graphs come back equal at once, all by the second time", opset, equal, all)
	}
}

// notWritten are ops that inference does not have: gradients, losses, updates,
// random numbers, what only training asks for. Running maxima are no operator of ONNX, and
// neither is attention to the memory of a call.
func notWritten(n *ir.Node) bool {
	d := n.Def()
	switch d.Family {
	case "loss", "random", "precision", "update", "collective", "foreign":
		return true
	}
	return strings.HasSuffix(d.Name, "_grad") || strings.Contains(d.Name, "_grad_") || n.Op == ir.OpBatchNorm || n.Op == ir.OpCummax || n.Op == ir.OpCummin || d.Is(ir.Caches)
}

// Every op of inference is exported in all its forms, and gives its numbers when it
// is read again, at every opset that has another way to say something.
func TestExportOps(t *testing.T) {
	list, err := filepath.Glob("../testdata/ops/*.txtar")
	if err != nil || len(list) == 0 {
		t.Fatal("no cases", err)
	}
	written, seen := map[ir.Op]bool{}, map[ir.Op]bool{}
	for _, path := range list {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			g, err := ir.Parse(f.Name, f.Data)
			if err != nil {
				t.Fatal(err)
			}
			if len(g.Body[ir.Forward]) != 1 {
				continue
			}
			n := g.Body[ir.Forward][0]
			if notWritten(n) || strings.Contains(string(f.Data), "inf") || strings.Contains(string(f.Data), "nan") {
				continue
			}
			seen[n.Op] = true
			for _, opset := range []int64{13, 14, 17, 18, 20, 21, 23, 24} {
				if err := opAgain(g, opset); err != nil {
					if !strings.Contains(err.Error(), "no operators of opset") {
						t.Errorf("%s at opset %d: %v\n%s", f.Name, opset, err, f.Data)
					} else if opset == 24 {
						t.Errorf("%s: %v", f.Name, err)
					}
					continue
				}
				written[n.Op] = true
			}
		}
	}
	for op := range seen {
		if !written[op] {
			t.Errorf("%s is not written at all", op)
		}
	}
	t.Logf("%d ops are written", len(written))
}

// An elementwise op without an operator is written as those of its code, expm1 and log1p included,
// which several operators compute.
func TestExportedCode(t *testing.T) {
	for _, op := range []ir.Op{ir.OpExpm1, ir.OpLog1p, ir.OpElu, ir.OpSelu, ir.OpMish, ir.OpSoftplus, ir.OpIsInf} {
		restore := onnx.ByCode(op)
		for _, x := range []string{"-0.9, -0.5, -0.25, -1e-6, 0, 1e-6, 0.25, 0.5, 9", "1e-30, 2e-8, 0.999, 1, 1.001, 30"} {
			text := fmt.Sprintf("graph @code {\n  param %%x : f32[%d] = data(%s)\nforward:\n  %%y = %s %%x\n  return %%y\n}\n", 1+strings.Count(x, ","), x, op.Def().Name)
			g, err := ir.Parse(op.Def().Name, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if err := opAgain(g, 13); err != nil {
				t.Errorf("%s of %s: %v", op.Def().Name, x, err)
			}
		}
		restore()
	}
}

// opAgain exports and imports one node, without the results that are not for inference.
func opAgain(g *ir.Graph, opset int64) error {
	g = g.Clone()
	in := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		e, err := eval.InitVar(v, 1)
		if err != nil {
			return err
		}
		in[v.Name] = e
		v.Kind, v.Init = ir.Input, nil
	}
	want, err := (&example{g: g, in: in}).evaluate()
	if err != nil {
		return err
	}
	back, err := again(g, opset)
	if err != nil {
		return err
	}
	got, err := (&example{g: back, in: in}).evaluate()
	if err != nil {
		return err
	}
	return limit{rel: 1e-5, abs: 1e-6, ofMax: 1e-5}.differ(got, want)
}

// What is exported gives the same numbers in onnxruntime.
func TestExportNodeCasesInRuntime(t *testing.T) {
	oracle, err := ort.Start()
	if err != nil {
		t.Skip(err)
	}
	defer oracle.Close()
	same, lacking := 0, 0
	for _, dir := range cases(t, "node") {
		name := filepath.Base(dir)
		e, err := open(dir, "test_data_set_0")
		if err != nil || strings.Contains(name, "dropout") {
			continue
		}
		want, err := e.evaluate()
		if err != nil {
			continue
		}
		var b bytes.Buffer
		if _, err := onnx.Export(&b, e.g, onnx.ExportOptions{KeepInputs: true}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		in := map[string]ort.Tensor{}
		for k, v := range e.in {
			in[k] = ort.Tensor{Type: peerNames[v.Type.DType], Dims: ir.Sizes(v.Type.Shape), Data: v.Bytes()}
		}
		out, err := oracle.Run(save(t, b.Bytes()), in)
		if err != nil {
			// Only a kernel may be lacking, of what the file that was read lacks, too, or of bf16.
			if _, was := oracle.Run(filepath.Join(dir, "model.onnx"), nil); was == nil && !strings.Contains(err.Error(), "Could not find an implementation") {
				t.Errorf("%s: onnxruntime: %v", name, err)
			}
			lacking++
			continue
		}
		var got []*eval.Tensor
		for i, y := range out {
			x, err := eval.FromBytes(want[i].Type, y.Data)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got = append(got, x)
		}
		if err := (limit{rel: 1e-3, abs: 1e-6, ofMax: 1e-5}).differ(got, want); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		same++
	}
	t.Logf("%d cases give the same numbers in onnxruntime, %d it does not run", same, lacking)
}
