package onnx_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
)

func rewritten(t *testing.T, m *onnx.Model, e *onnx.Edit) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.Write(&b, e); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A file that is written without a change has the bytes that were read; one
// whose nodes get the names they have, or whose values the types they have, is
// the same model.
func TestWriteWithoutChange(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(data, "*", "*", "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Logf("no models in %s: only our own is written", data)
	}
	for _, path := range append(paths, "testdata/mlp.onnx") {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := onnx.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(rewritten(t, m, nil), src) {
			t.Errorf("%s: bytes differ", path)
		}
		e := &onnx.Edit{Rename: map[int]func(string, bool) string{}, DTypes: map[string]onnx.DataType{}}
		for i := range m.Graph.Nodes {
			e.Rename[i] = func(name string, _ bool) string { return name }
		}
		for _, x := range m.Graph.Infos {
			if x.Kind == "" {
				e.DTypes[x.Name] = x.DType
			}
		}
		if got := rewritten(t, m, e); len(m.Graph.Nodes) > 0 && !bytes.Equal(got, src) {
			// Writers may order or pad fields otherwise: then the model must still be the same.
			if _, err := onnx.Parse(got); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if again, err := onnx.Parse(got); err != nil || len(again.Graph.Nodes) != len(m.Graph.Nodes) || !bytes.Equal(rewritten(t, again, nil), got) {
				t.Errorf("%s: written with its own names it is another model", path)
			}
		}
		m.Close()
	}
}

// Fields that are not known here stay, a new tensor and new nodes are read back.
func TestEdit(t *testing.T) {
	unknown := msg(nil).str(900, "theirs")
	src := append(addModel(append(tensorOf("w", []int64{2}, 10, 20), unknown...)), unknown...)
	m, err := onnx.Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	e := &onnx.Edit{
		Rename:  map[int]func(string, bool) string{0: func(name string, in bool) string { return map[bool]string{true: name, false: "t"}[in] }},
		After:   map[int][]onnx.NewNode{0: {{Op: "Cast", In: []string{"t"}, Out: []string{"u"}, Attrs: []onnx.NewAttr{{Name: "to", Value: int64(10)}}}, {Op: "Cast", In: []string{"u"}, Out: []string{"y"}, Attrs: []onnx.NewAttr{{Name: "to", Value: int64(1)}}}}},
		Tensors: map[string]onnx.NewTensor{"w": onnx.Bytes(1, eval.Floats(ir.F32, []ir.Dim{2}, 1, 1e-4).Bytes())},
	}
	got := rewritten(t, m, e)
	if n := bytes.Count(got, unknown); n != 2 {
		t.Errorf("%d of 2 unknown fields are there", n)
	}
	x, err := importFile(t, save(t, got), onnx.Options{Dims: map[string]int64{"N": 1}})
	if err != nil {
		t.Fatal(err)
	}
	if y := sum(t, x.Graph); y[0] != 2 || y[1] != 2 { // 2.0001 is 2 in f16
		t.Errorf("%v\n%s", y, x.Graph)
	}
}
