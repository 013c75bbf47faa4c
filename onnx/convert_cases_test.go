package onnx_test

import (
	"context"
	"errors"
	"io"
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

// opset is modelOf with another opset.
func opset(n int64, graph msg) msg {
	return msg(nil).num(1, 10).raw(7, graph).raw(8, msg(nil).num(2, n))
}

// ownCases are what converters of other projects break: each with the nodes that must
// be in 16 bits, and the error that is accepted.
func ownCases() []struct {
	name  string
	model msg
	low   int
	off   float64
} {
	ends := func(g msg, in, out []any) msg {
		return g.raw(11, infoOf("x", 1, in...)).raw(12, infoOf("y", 1, out...))
	}
	w := func(name string, dims ...int64) msg {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		return tensorOf(name, dims, ramp(int(n), 0.01, 0.02)...)
	}
	rms := msg(nil).raw(1, nodeOf("Mul", []string{"x", "big"}, []string{"b"})).raw(1, nodeOf("Mul", []string{"b", "b"}, []string{"s"})).
		raw(1, nodeOf("ReduceMean", []string{"s"}, []string{"m"}, intsAttr("axes", -1))).raw(1, nodeOf("Add", []string{"m", "eps"}, []string{"me"})).
		raw(1, nodeOf("Sqrt", []string{"me"}, []string{"r"})).raw(1, nodeOf("Div", []string{"b", "r"}, []string{"n"})).raw(1, nodeOf("MatMul", []string{"n", "w"}, []string{"y"})).
		raw(5, tensorOf("big", nil, 1e4)).raw(5, tensorOf("eps", nil, 1e-6)).raw(5, w("w", 64, 64))
	lowest := make([]float32, 64*64)
	for i := range lowest {
		if i%64 > i/64 {
			lowest[i] = -math.MaxFloat32
		}
	}
	mask := msg(nil).raw(1, nodeOf("MatMul", []string{"x", "w"}, []string{"s"})).raw(1, nodeOf("Add", []string{"s", "mask"}, []string{"a"})).raw(1, nodeOf("Softmax", []string{"a"}, []string{"p"})).
		raw(1, nodeOf("MatMul", []string{"p", "v"}, []string{"y"})).raw(5, w("w", 64, 64)).raw(5, w("v", 64, 64)).raw(5, tensorOf("mask", []int64{64, 64}, lowest...))
	resize := msg(nil).raw(1, nodeOf("Conv", []string{"x", "w"}, []string{"c"}, intsAttr("pads", 1, 1, 1, 1))).
		raw(1, nodeOf("Resize", []string{"c", "", "scales"}, []string{"r"}, msg(nil).str(1, "mode").str(4, "linear").num(20, 3))).
		raw(1, nodeOf("Conv", []string{"r", "v"}, []string{"y"}, intsAttr("pads", 1, 1, 1, 1))).raw(5, w("w", 16, 8, 3, 3)).raw(5, w("v", 8, 16, 3, 3)).raw(5, tensorOf("scales", []int64{4}, 1, 1, 1.7, 1.3))
	group := msg(nil).raw(1, nodeOf("Conv", []string{"x", "w"}, []string{"c"}, intsAttr("pads", 1, 1, 1, 1))).
		raw(1, nodeOf("GroupNormalization", []string{"c", "g", "h"}, []string{"n"}, intAttr("num_groups", 4))).raw(1, nodeOf("Conv", []string{"n", "v"}, []string{"y"}, intsAttr("pads", 1, 1, 1, 1))).
		raw(5, w("w", 16, 8, 3, 3)).raw(5, w("v", 8, 16, 3, 3)).raw(5, tensorOf("g", []int64{16}, ramp(16, 1, 0.1)...)).raw(5, tensorOf("h", []int64{16}, ramp(16, 0, 0.1)...))
	transposed := msg(nil).raw(1, nodeOf("ConvTranspose", []string{"x", "w", "b"}, []string{"c"}, intsAttr("strides", 2, 2), intsAttr("output_padding", 1, 1), intsAttr("pads", 1, 1, 1, 1))).
		raw(1, nodeOf("Relu", []string{"c"}, []string{"y"})).raw(5, w("w", 8, 16, 3, 3)).raw(5, tensorOf("b", []int64{16}, ramp(16, 0, 0.1)...))
	gru := msg(nil).raw(1, nodeOf("GRU", []string{"x", "w", "r", "b"}, []string{"h"}, intAttr("hidden_size", 32), intAttr("linear_before_reset", 1))).
		raw(1, nodeOf("Squeeze", []string{"h", "one"}, []string{"q"})).raw(1, nodeOf("MatMul", []string{"q", "v"}, []string{"y"})).raw(5, w("w", 1, 96, 64)).raw(5, w("r", 1, 96, 32)).raw(5, w("b", 1, 192)).raw(5, w("v", 32, 64)).
		raw(5, msg(nil).num(1, 1).num(2, 7).str(8, "one").raw(9, []byte{1, 0, 0, 0, 0, 0, 0, 0}))
	half := msg(nil).raw(1, nodeOf("Cast", []string{"x"}, []string{"h"}, intAttr("to", 10))).raw(1, nodeOf("MatMul", []string{"h", "w"}, []string{"q"})).raw(1, nodeOf("Cast", []string{"q"}, []string{"f"}, intAttr("to", 1))).
		raw(1, nodeOf("Softmax", []string{"f"}, []string{"p"})).raw(1, nodeOf("Cast", []string{"p"}, []string{"l"}, intAttr("to", 10))).raw(1, nodeOf("MatMul", []string{"l", "w"}, []string{"z"})).
		raw(1, nodeOf("Cast", []string{"z"}, []string{"g"}, intAttr("to", 1))).raw(1, nodeOf("MatMul", []string{"g", "v"}, []string{"y"})).
		raw(5, msg(nil).num(1, 64).num(1, 64).num(2, 10).str(8, "w").raw(9, slices.Repeat([]byte{0x00, 0x21}, 64*64))).raw(5, w("v", 64, 64))
	plane := []any{2, 8, 16, 16}
	square := []any{64, 64}
	return []struct {
		name  string
		model msg
		low   int
		off   float64
	}{
		{"RMS norm near 1e4", opset(17, ends(rms, square, square)), 1, 2e-3},
		{"mask of the lowest f32", opset(17, ends(mask, square, square)), 2, 2e-3},
		{"Resize", opset(18, ends(resize, plane, []any{2, 8, 27, 20})), 3, 2e-3},
		{"GroupNormalization", opset(21, ends(group, plane, plane)), 3, 4e-3},
		{"ConvTranspose", opset(17, ends(transposed, plane, []any{2, 16, 32, 32})), 2, 2e-3},
		{"GRU", opset(17, ends(gru, []any{4, 2, 64}, []any{4, 2, 64})), 1, 2e-3},
		{"half f16 already", opset(17, ends(half, square, square)), 1, 2e-3},
	}
}

// Each own case becomes an f16 model that onnxruntime takes and that computes nearly the
// same; so it does in bf16, where it can be raised.
func TestConvertOwnCases(t *testing.T) {
	oracle, err := ort.Start()
	if err != nil {
		t.Logf("not compared with onnxruntime: %v", err)
	} else {
		defer oracle.Close()
	}
	for _, c := range ownCases() {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16()} {
				in := save(t, c.model)
				out := filepath.Join(filepath.Dir(in), "out.onnx")
				most := c.off
				if p.Low == ampc.BF16 {
					most *= 8 // 8 bits less 11
				}
				r, err := ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: p, MaxError: most})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d of %d nodes, %d casts, %v", r.Low, r.Nodes, r.Casts, r.Errors)
				if r.Low < c.low {
					t.Errorf("%d nodes in 16 bits, want %d: %v", r.Low, c.low, r.Kept)
				}
				if oracle == nil {
					continue
				}
				if _, err := oracle.Run(out, nil); err != nil && !strings.Contains(err.Error(), "Could not find an implementation") {
					t.Errorf("onnxruntime: %v", err)
				}
			}
		})
	}
}

// A rule that asks for what a node computes in without it is refused.
func TestConvertRefusesIdleRules(t *testing.T) {
	g := msg(nil).raw(1, nodeOf("MatMul", []string{"x", "k"}, []string{"m"})).raw(1, nodeOf("ReduceSum", []string{"m"}, []string{"y"})).raw(5, tensorOf("k", []int64{2, 2}, 1, 2, 3, 4)).raw(11, infoOf("x", 1, 2, 2)).raw(12, infoOf("y", 1, 1, 1))
	in := save(t, modelOf(g))
	p := ampc.MixedF16()
	for _, c := range []struct {
		policy ampc.Policy
		want   string // "": the rule has an effect
	}{
		{p.Keep("y"), `the policy's pattern "y" changes nothing`},
		{p.Lower("m"), `the policy's pattern "m" changes nothing`},
		{p.Keep("z"), `the policy's pattern "z" matches no result of a node`},
		{p.Keep("m"), ""}, {p.Lower("y"), ""}, {p.Lower("y").Keep("y"), ""}, {p.Keep("*"), ""},
	} {
		_, err := ampc.ConvertONNX(context.Background(), in, filepath.Join(filepath.Dir(in), "out.onnx"), ampc.ConvertOptions{Policy: c.policy})
		if err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// What is not finite where the source was is an error, and leaves no file.
func TestConvertNotFinite(t *testing.T) {
	g := msg(nil).raw(1, nodeOf("Mul", []string{"x", "k"}, []string{"m"})).raw(1, nodeOf("Exp", []string{"m"}, []string{"y"})).raw(5, tensorOf("k", nil, 20)).raw(11, infoOf("x", 1, 64)).raw(12, infoOf("y", 1, 64))
	in := save(t, modelOf(g))
	out := filepath.Join(filepath.Dir(in), "out.onnx")
	_, err := ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: ampc.MixedF16().Lower("*")})
	if err == nil || !strings.Contains(err.Error(), "where the source has") || !strings.HasSuffix(err.Error(), "out.onnx is not written") {
		t.Error(err)
	}
	if list, _ := os.ReadDir(filepath.Dir(in)); len(list) != 1 {
		t.Errorf("%v lie there", list)
	}
}

// A mask that is computed of constants, and is larger than they are, is computed in the
// file still: a file does not grow by what an import folds.
func TestConvertDoesNotGrow(t *testing.T) {
	shape := msg(nil).num(1, 2).num(2, 7).str(8, "shape").raw(9, []byte{64, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0})
	g := msg(nil).raw(1, nodeOf("Expand", []string{"one", "shape"}, []string{"ones"})).raw(1, nodeOf("Trilu", []string{"ones"}, []string{"mask"}, intAttr("upper", 0))).
		raw(1, nodeOf("MatMul", []string{"x", "w"}, []string{"p"})).raw(1, nodeOf("Mul", []string{"p", "mask"}, []string{"y"})).
		raw(5, tensorOf("one", nil, 1)).raw(5, shape).raw(5, tensorOf("w", []int64{64, 64}, ramp(64*64, 0.01, 0.02)...)).raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("y", 1, 64, 64)).
		raw(13, infoOf("mask", 1, 64, 64)).raw(13, infoOf("p", 1, 64, 64))
	in := save(t, modelOf(g))
	out := filepath.Join(filepath.Dir(in), "out.onnx")
	r, err := ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: ampc.MixedF16(), MaxError: 2e-3})
	if err != nil {
		t.Fatal(err)
	}
	if grown := r.Out - (r.In - 2*64*64); grown > 400 || r.Low < 2 {
		t.Errorf("%d bytes more than the weights explain, %d nodes in 16 bits", grown, r.Low)
	}
	m, err := onnx.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := onnx.Import(m, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, v := range m.Graph.Infos { // types of all values are right, those of new ones are there
		if d, err := v.DType.DType(); err != nil || d != x.Types[v.Name].DType {
			t.Errorf("%s is %v, value_info says %s", v.Name, x.Types[v.Name], v.DType)
		}
		seen++
	}
	if want := 2 + r.Casts; seen != want {
		t.Errorf("%d values have types, want %d", seen, want)
	}
}

// What would not be valid where the source is leaves no file: here a sparse type that the
// importer would refuse.
func TestConvertRefusesWhole(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.onnx"), filepath.Join(dir, "out.onnx")
	g := msg(nil).raw(1, nodeOf("MatMul", []string{"x", "nowhere"}, []string{"y"})).raw(11, infoOf("x", 1, 4, 4)).raw(12, infoOf("y", 1, 4, 4))
	if err := os.WriteFile(in, modelOf(g), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: ampc.MixedF16()}); err == nil || !strings.Contains(err.Error(), `operand "nowhere" is neither`) {
		t.Error(err)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file is left: %v", err)
	}
}

// A model of f64 whose products have no kernel for it says so in a note of its steps, and
// is off by what f32 rounds.
func TestDoubleNote(t *testing.T) {
	wide := func(name string, n int) msg {
		x := eval.New(ir.T(ir.F64, 16, 16))
		for i := range x.F {
			x.F[i] = math.Sin(float64(i*n + 1))
		}
		return constantOf(name, x)
	}
	g := msg(nil).raw(1, nodeOf("Add", []string{"x", "a"}, []string{"s"})).raw(1, nodeOf("MatMul", []string{"s", "b"}, []string{"p"})).raw(1, nodeOf("Softmax", []string{"p"}, []string{"y"})).
		raw(5, wide("a", 3)).raw(5, wide("b", 5)).raw(11, infoOf("x", 11, 16, 16)).raw(12, infoOf("y", 11, 16, 16))
	path := save(t, modelOf(g))
	m, err := ampc.LoadONNX(path, ampc.ONNXOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.Infer(ampc.InferConfig{}, m.Outputs()...)
	if err != nil {
		t.Fatal(err)
	}
	if want := "2 nodes compute f64 in f32, whose numbers have 24 bits of 53; the first is node 1 (MatMul)"; !slices.Contains(s.Notes(), want) {
		t.Errorf("notes %q, want %q", s.Notes(), want)
	}
	x := make([]float64, 256)
	for i := range x {
		x[i] = math.Cos(float64(i))
	}
	session, err := ampc.OpenONNX(path, ampc.ONNXRun{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Run(context.Background(), ampc.Feed{"x": x}); err != nil {
		t.Fatal(err)
	}
	if got := session.Notes(); !slices.Equal(got, s.Notes()) {
		t.Errorf("a session notes %q, a step %q", got, s.Notes())
	}
	r, err := s.Run(context.Background(), ampc.Feed{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Value(m.Outputs()[0])
	if err != nil {
		t.Fatal(err)
	}
	off := 0.0
	for row := range 16 {
		var y [16]float64
		sum := 0.0
		for k := range y {
			for i := range 16 {
				y[k] += (x[16*row+i] + math.Sin(float64((16*row+i)*3+1))) * math.Sin(float64((16*i+k)*5+1))
			}
			y[k] = math.Exp(y[k])
			sum += y[k]
		}
		for k := range y {
			off = max(off, math.Abs(got.At(16*row+k)-y[k]/sum))
		}
	}
	t.Logf("off by %.2g", off)
	if off > 1e-6 || off == 0 {
		t.Errorf("off by %g, want what f32 rounds", off)
	}
}

// A file that becomes shorter while it is converted is an error, whichever processor reads it.
func TestConvertTruncated(t *testing.T) {
	g := msg(nil).raw(1, nodeOf("MatMul", []string{"x", "w"}, []string{"y"})).raw(11, infoOf("x", 1, 4, 512)).raw(12, infoOf("y", 1, 4, 2048)).
		raw(5, tensorOf("w", []int64{512, 2048}, ramp(512*2048, 0, 0.1)...))
	path := save(t, modelOf(g))
	m, err := onnx.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := onnx.Import(m, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := convert.Plan(m, x, passes.MixedF16(), convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<12); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"writing":  m.Write(io.Discard, e),
		"planning": func() error { _, _, err := convert.Plan(m, x, passes.MixedF16(), convert.Options{}); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), "the file was made shorter while it was read") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
