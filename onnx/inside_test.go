package onnx_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/internal/ort"
	"ampc/onnx"
)

func graphAttr(name string, g msg) msg { return msg(nil).str(1, name).raw(6, g).num(20, 5) }

// insideModels have products in functions, branches and loops. Weights of 64 by 64
// stand inside, so that casts are cheaper than what 16 bits save.
func insideModels() map[string]msg {
	square := func(name string) msg { return tensorOf(name, []int64{64, 64}, ramp(64*64, 0.02, 0.01)...) }
	constant := func(name string) msg {
		return nodeOf("Constant", nil, []string{name}, msg(nil).str(1, "value").raw(5, square("")).num(20, 4))
	}
	ends := func(g msg) msg { return g.raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("y", 1, 64, 64)) }
	mine := func(m msg, f ...msg) msg {
		m = m.raw(8, msg(nil).str(1, "mine").num(2, 1))
		for _, x := range f {
			m = m.raw(25, x.raw(9, msg(nil).num(2, 17)))
		}
		return m
	}
	call := func(op string, in, out string) msg { return nodeOf(op, []string{in}, []string{out}).str(7, "mine") }
	product := msg(nil).str(1, "Product").str(10, "mine").str(4, "a").str(5, "b").raw(7, constant("w")).raw(7, nodeOf("MatMul", []string{"a", "w"}, []string{"p"})).raw(7, nodeOf("Relu", []string{"p"}, []string{"b"}))
	outer := msg(nil).str(1, "Outer").str(10, "mine").str(4, "a").str(5, "b").raw(7, nodeOf("Exp", []string{"a"}, []string{"e"})).raw(7, nodeOf("Log", []string{"e"}, []string{"l"})).
		raw(7, call("Product", "l", "b")).raw(9, msg(nil).str(1, "mine").num(2, 1))
	branch := func(sign string) msg {
		return msg(nil).str(2, sign).raw(1, nodeOf("MatMul", []string{"h", "w"}, []string{sign + "p"})).raw(1, nodeOf(sign, []string{sign + "p"}, []string{sign + "q"})).
			raw(5, square("w")).raw(12, infoOf(sign+"q", 1, 64, 64))
	}
	positive := msg(nil).raw(1, nodeOf("ReduceSum", []string{"x"}, []string{"s"}, intAttr("keepdims", 0))).raw(5, tensorOf("zero", nil, 0)).raw(1, nodeOf("Greater", []string{"s", "zero"}, []string{"c"})).
		raw(1, nodeOf("Relu", []string{"x"}, []string{"h"}))
	body := msg(nil).str(2, "body").raw(1, nodeOf("MatMul", []string{"state", "w"}, []string{"next"})).raw(1, nodeOf("Identity", []string{"go"}, []string{"on"})).
		raw(11, infoOf("i", 7)).raw(11, infoOf("go", 9)).raw(11, infoOf("state", 1, 64, 64)).raw(12, infoOf("on", 9)).raw(12, infoOf("next", 1, 64, 64)).raw(5, square("w"))
	scan := msg(nil).str(2, "step").raw(1, nodeOf("MatMul", []string{"row", "w"}, []string{"z"})).raw(1, nodeOf("Add", []string{"sum", "z"}, []string{"more"})).raw(1, nodeOf("Identity", []string{"more"}, []string{"kept"})).
		raw(11, infoOf("sum", 1, 64)).raw(11, infoOf("row", 1, 64)).raw(12, infoOf("more", 1, 64)).raw(12, infoOf("kept", 1, 64)).raw(5, square("w"))
	count := msg(nil).num(2, 7).str(8, "n").raw(9, []byte{3, 0, 0, 0, 0, 0, 0, 0})
	yes := msg(nil).num(2, 9).str(8, "yes").raw(9, []byte{1})
	return map[string]msg{
		"function":      mine(modelOf(ends(msg(nil).raw(1, call("Product", "x", "h")).raw(1, call("Product", "h", "y")))), product),
		"function kept": mine(modelOf(ends(msg(nil).raw(1, call("Outer", "x", "h")).raw(1, call("Product", "h", "y")))), product, outer),
		"if": modelOf(ends(positive.raw(1, nodeOf("If", []string{"c"}, []string{"r"}, graphAttr("then_branch", branch("Relu")), graphAttr("else_branch", branch("Neg"))))).
			raw(1, nodeOf("MatMul", []string{"r", "v"}, []string{"y"})).raw(5, square("v")).raw(13, infoOf("r", 1, 64, 64))),
		"loop": modelOf(ends(msg(nil).raw(1, nodeOf("Loop", []string{"n", "yes", "x"}, []string{"y"}, graphAttr("body", body)))).raw(5, count).raw(5, yes)),
		"scan": modelOf(msg(nil).raw(1, nodeOf("Scan", []string{"s", "x"}, []string{"last", "y"}, graphAttr("body", scan), intAttr("num_scan_inputs", 1))).
			raw(5, tensorOf("s", []int64{64}, ramp(64, 0, 0)...)).raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("last", 1, 64)).raw(12, infoOf("y", 1, 64, 64))),
	}
}

// What stands inside functions and graphs of nodes is converted as well: the file is
// valid, and its numbers are near the source's.
func TestConvertInside(t *testing.T) {
	oracle, err := ort.Start()
	if err != nil {
		t.Logf("not compared with onnxruntime: %v", err)
	} else {
		defer oracle.Close()
	}
	want := map[string]string{ // nodes in 16 bits of all, casts, weights
		"function": "4 of 5 nodes, 2 casts", "function kept": "4 of 8 nodes, 4 casts", "if": "5 of 9", "loop": "1 of 3", "scan": "1 of 4",
	}
	for name, model := range insideModels() {
		t.Run(name, func(t *testing.T) {
			for _, policy := range []ampc.Policy{ampc.MixedF16(), ampc.MixedBF16()} {
				in := save(t, model)
				out := filepath.Join(filepath.Dir(in), "out.onnx")
				r, err := ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: policy, MaxError: 0.02})
				if err != nil {
					t.Fatal(err)
				}
				got := fmt.Sprintf("%d of %d nodes, %d casts, %d weights", r.Low, r.Nodes, r.Casts, r.Weights)
				t.Logf("%s, %d bytes, were %d, %v", got, r.Out, r.In, r.Errors)
				if policy.Low == ampc.F16 && !strings.HasPrefix(got, want[name]) {
					t.Errorf("%s, want %s: %v", got, want[name], r.Kept)
				}
				if r.Weights == 0 || r.Out > r.In {
					t.Errorf("%d weights in 16 bits, %d bytes, were %d: %v", r.Weights, r.Out, r.In, r.Kept)
				}
				m, err := onnx.Open(out)
				if err != nil {
					t.Fatal(err)
				}
				for i, f := range m.Functions {
					if f.Name == "" || i > 1 {
						t.Errorf("function %d is %q", i, f.Name)
					}
				}
				m.Close()
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

// A source of 64-bit positions, factors and masks that are computed of sizes stays what
// it is: integers are made of what is not rounded.
func TestConvertKeepsSizes(t *testing.T) {
	g := msg(nil).raw(1, nodeOf("Shape", []string{"x"}, []string{"s"})).raw(1, nodeOf("Cast", []string{"s"}, []string{"f"}, intAttr("to", 1))).
		raw(1, nodeOf("Mul", []string{"f", "third"}, []string{"m"})).raw(1, nodeOf("Floor", []string{"m"}, []string{"d"})).raw(1, nodeOf("Cast", []string{"d"}, []string{"size"}, intAttr("to", 7))).
		raw(1, nodeOf("ConstantOfShape", []string{"size"}, []string{"ones"}, msg(nil).str(1, "value").raw(5, tensorOf("", []int64{1}, 1)).num(20, 4))).
		raw(1, nodeOf("MatMul", []string{"x", "w"}, []string{"z"})).raw(1, nodeOf("ReduceSum", []string{"ones"}, []string{"n"}, intAttr("keepdims", 0))).raw(1, nodeOf("Div", []string{"z", "n"}, []string{"y"})).
		raw(5, tensorOf("third", []int64{2}, 1.0/3.0001, 1.0/3.0001)).raw(5, tensorOf("w", []int64{63, 64}, ramp(63*64, 0.02, 0.01)...)).raw(11, infoOf("x", 1, 63, 63)).raw(12, infoOf("y", 1, 63, 64))
	in := save(t, modelOf(g))
	out := filepath.Join(filepath.Dir(in), "out.onnx")
	r, err := ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: ampc.MixedF16(), MaxError: 2e-3})
	if err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, n := range m.Graph.Nodes {
		for _, y := range n.Out {
			if (n.Op == "Mul" || n.Op == "Floor") && strings.HasSuffix(y, ".f16") || n.Op == "Cast" && len(n.In) == 1 && n.In[0] == "s" && n.Attr("to").I != 1 {
				t.Errorf("%s makes %s: %v", n.Op, y, r.Kept)
			}
		}
	}
	if _, err := os.Stat(out); err != nil || r.Low == 0 {
		t.Errorf("%d nodes in 16 bits: %v", r.Low, err)
	}
}

// Inputs and outputs take 16 bits where they are asked for, and no others.
func TestConvertEnds(t *testing.T) {
	square := tensorOf("w", []int64{64, 64}, ramp(64*64, 0.02, 0.01)...)
	g := msg(nil).raw(1, nodeOf("MatMul", []string{"x", "w"}, []string{"p"})).raw(1, nodeOf("Add", []string{"p", "z"}, []string{"y"})).raw(1, nodeOf("Exp", []string{"p"}, []string{"e"})).
		raw(1, nodeOf("Neg", []string{"e"}, []string{"n"})).raw(5, square)
	for _, name := range []string{"x", "z"} {
		g = g.raw(11, infoOf(name, 1, 64, 64))
	}
	for _, name := range []string{"y", "e", "n", "p"} {
		g = g.raw(12, infoOf(name, 1, 64, 64))
	}
	in := save(t, modelOf(g))
	out := filepath.Join(filepath.Dir(in), "out.onnx")
	oracle, err := ort.Start()
	if err != nil {
		t.Logf("not compared with onnxruntime: %v", err)
	} else {
		defer oracle.Close()
	}
	for _, c := range []struct {
		low, keep []string
		types     string
	}{
		{nil, nil, "x float z float y float e float n float p float"},
		{[]string{"*"}, nil, "x float16 z float16 y float16 e float16 n float16 p float16"},
		{[]string{"*"}, []string{"z", "p"}, "x float16 z float y float16 e float16 n float16 p float"},
		{[]string{"x", "e"}, nil, "x float16 z float y float e float16 n float p float"},
	} {
		r, err := ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: ampc.MixedF16(), LowIO: c.low, KeepIO: c.keep, MaxError: 2e-3})
		if err != nil {
			t.Fatalf("%v: %v", c.low, err)
		}
		m, err := onnx.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, list := range [][]*onnx.Info{m.Graph.Inputs, m.Graph.Outputs} {
			for _, x := range list {
				types = append(types, x.Name+" "+x.DType.String())
			}
		}
		m.Close()
		if got := strings.Join(types, " "); got != c.types {
			t.Errorf("%v: %s, want %s", c.low, got, c.types)
		}
		t.Logf("%v: %d casts, %v", c.low, r.Casts, r.Errors)
		if oracle != nil {
			if _, err := oracle.Run(out, nil); err != nil {
				t.Errorf("%v: onnxruntime: %v", c.low, err)
			}
		}
	}
	_, err = ampc.ConvertONNX(context.Background(), in, out, ampc.ConvertOptions{Policy: ampc.MixedF16(), LowIO: []string{"nosuch"}})
	if err == nil || !strings.Contains(err.Error(), `LowIO: the pattern "nosuch" matches no input and no output of f32; there are [x z y e n p]`) {
		t.Error(err)
	}
}

// An initializer that is also an input, as each is in files before format 4, is stored in 16 bits
// where it is asked for, and its input and the type that the graph states for it say so.
func TestConvertInitializerThatIsFed(t *testing.T) {
	square := tensorOf("w", []int64{64, 64}, ramp(64*64, 0.02, 0.01)...)
	g := msg(nil).raw(1, nodeOf("MatMul", []string{"x", "w"}, []string{"p"})).raw(1, nodeOf("Add", []string{"p", "v"}, []string{"y"})).raw(5, square).raw(5, tensorOf("v", []int64{64}, ramp(64, 0.02, 0.01)...)).
		raw(11, infoOf("x", 1, 64, 64)).raw(11, infoOf("w", 1, 64, 64)).raw(12, infoOf("y", 1, 64, 64)).raw(13, infoOf("v", 1, 64))
	in := save(t, modelOf(g))
	out := filepath.Join(filepath.Dir(in), "out.onnx")
	for low, want := range map[string]string{"": "w is float, its input float; v is float16, stated float16; 3 casts added", "w": "w is float16, its input float16; v is float16, stated float16; 2 casts added"} {
		o := ampc.ConvertOptions{Policy: ampc.MixedF16(), MaxError: 2e-3}
		if low != "" {
			o.LowIO = []string{low}
		}
		r, err := ampc.ConvertONNX(context.Background(), in, out, o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := onnx.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		types := map[string]onnx.DataType{}
		for _, x := range m.Graph.Initializers {
			types[x.Name] = x.DType
		}
		got := fmt.Sprintf("w is %v, its input %v; v is %v, stated %v; %d casts added", types["w"], m.Graph.Inputs[1].DType, types["v"], m.Graph.Infos[0].DType, r.Casts)
		m.Close()
		if got != want {
			t.Errorf("%q: %s, want %s", low, got, want)
		}
	}
}

// largeInside are models whose branches and bodies make numbers beyond the range of f16: one
// brings them back by a factor, which no class of operators tells.
func largeInside() map[string]msg {
	number := func(name string, x float32) msg { return tensorOf(name, nil, x) }
	weights := tensorOf("w", []int64{64, 64}, ramp(64*64, 0.2, 0.1)...)
	ends := func(g msg) msg { return g.raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("y", 1, 64, 64)) }
	steps := func(g msg, in string) msg {
		return g.raw(1, nodeOf("MatMul", []string{in, "w"}, []string{"p"})).raw(1, nodeOf("Mul", []string{"p", "many"}, []string{"large"})).
			raw(1, nodeOf("Abs", []string{"large"}, []string{"still"})).raw(1, nodeOf("Mul", []string{"still", "few"}, []string{"next"}))
	}
	inits := func(g msg) msg { return g.raw(5, weights).raw(5, number("many", 6e4)).raw(5, number("few", 1e-5)) }
	body := inits(steps(msg(nil).str(2, "body"), "state").raw(1, nodeOf("Identity", []string{"go"}, []string{"on"})).
		raw(11, infoOf("i", 7)).raw(11, infoOf("go", 9)).raw(11, infoOf("state", 1, 64, 64)).raw(12, infoOf("on", 9)).raw(12, infoOf("next", 1, 64, 64)))
	branch := inits(steps(msg(nil).str(2, "branch"), "x").raw(12, infoOf("next", 1, 64, 64)))
	other := msg(nil).str(2, "other").raw(1, nodeOf("Exp", []string{"x"}, []string{"e"})).raw(1, nodeOf("Log", []string{"e"}, []string{"minus"})).raw(12, infoOf("minus", 1, 64, 64))
	step := inits(steps(msg(nil).str(2, "step"), "row").raw(1, nodeOf("Identity", []string{"sum"}, []string{"more"})).
		raw(11, infoOf("sum", 1, 64)).raw(11, infoOf("row", 1, 64)).raw(12, infoOf("more", 1, 64)).raw(12, infoOf("next", 1, 64)))
	constant := func(name string, t msg) msg {
		return nodeOf("Constant", nil, []string{name}, msg(nil).str(1, "value").raw(5, t).num(20, 4))
	}
	function := msg(nil).str(1, "Large").str(10, "mine").str(4, "a").str(5, "next").raw(9, msg(nil).num(2, 17)).
		raw(7, constant("w", weights)).raw(7, constant("many", number("", 6e4))).raw(7, constant("few", number("", 1e-5)))
	for _, n := range [][]string{{"MatMul", "a", "w", "p"}, {"Mul", "p", "many", "large"}, {"Mul", "large", "few", "next"}} {
		function = function.raw(7, nodeOf(n[0], n[1:3], n[3:]))
	}
	count := msg(nil).num(2, 7).str(8, "n").raw(9, []byte{3, 0, 0, 0, 0, 0, 0, 0})
	yes := msg(nil).num(2, 9).str(8, "yes").raw(9, []byte{1})
	condition := msg(nil).raw(1, nodeOf("ReduceMax", []string{"x"}, []string{"s"}, intAttr("keepdims", 0))).raw(5, number("zero", 0)).raw(1, nodeOf("Greater", []string{"s", "zero"}, []string{"c"}))
	return map[string]msg{
		"function": modelOf(ends(msg(nil).raw(1, nodeOf("Large", []string{"x"}, []string{"y"}).str(7, "mine")))).raw(8, msg(nil).str(1, "mine").num(2, 1)).raw(25, function),
		"loop":     modelOf(ends(msg(nil).raw(1, nodeOf("Loop", []string{"n", "yes", "x"}, []string{"y"}, graphAttr("body", body)))).raw(5, count).raw(5, yes)),
		"if":       modelOf(ends(condition.raw(1, nodeOf("If", []string{"c"}, []string{"y"}, graphAttr("then_branch", branch), graphAttr("else_branch", other))))),
		"scan": modelOf(msg(nil).raw(1, nodeOf("Scan", []string{"s", "x"}, []string{"last", "y"}, graphAttr("body", step), intAttr("num_scan_inputs", 1))).
			raw(5, tensorOf("s", []int64{64}, ramp(64, 0, 0)...)).raw(11, infoOf("x", 1, 64, 64)).raw(12, infoOf("last", 1, 64)).raw(12, infoOf("y", 1, 64, 64))),
	}
}

// A calibration runs what stands in functions, branches and loops: what leaves the range there on
// the data stays f32, and the limit on the error is held by keeping nodes there. The policy that it
// saves makes the same file without data.
func TestCalibrateInside(t *testing.T) {
	convert := func(in, out string, o ampc.ConvertOptions) (*ampc.ConvertReport, []byte, error) {
		r, err := ampc.ConvertONNX(context.Background(), in, out, o)
		b, _ := os.ReadFile(out)
		return r, b, err
	}
	run := func(t *testing.T, model msg, limit float64) (r *ampc.ConvertReport) {
		in := save(t, model)
		out := filepath.Join(filepath.Dir(in), "out.onnx")
		r, b, err := convert(in, out, ampc.ConvertOptions{Policy: ampc.MixedF16(), Calibrate: true, MaxError: limit})
		if err != nil {
			t.Fatal(err)
		}
		p, err := ampc.ParsePolicy("found", []byte(r.Policy))
		if err != nil {
			t.Fatal(err)
		}
		if _, again, err := convert(in, out, ampc.ConvertOptions{Policy: p}); err != nil || !bytes.Equal(again, b) {
			t.Errorf("the policy makes another file (%v): %s", err, r.Policy)
		}
		return r
	}
	for name, model := range insideModels() {
		t.Run(name, func(t *testing.T) {
			most := 0.0
			for _, limit := range []float64{2e-3, 3e-4, 1e-5} {
				r := run(t, model, limit)
				t.Logf("limit %g: %d of %d nodes, %d casts, %v, %d runs, %v", limit, r.Low, r.Nodes, r.Casts, r.Errors, r.Runs, r.Kept)
				for _, e := range r.Errors {
					most = max(most, e.Error/limit)
				}
				if limit == 2e-3 && r.Weights == 0 || limit == 1e-5 && r.Low > 2 {
					t.Errorf("limit %g: %d of %d nodes and %d weights in 16 bits: %v", limit, r.Low, r.Nodes, r.Weights, r.Kept)
				}
			}
			if most > 1 {
				t.Errorf("an error is %.2g times its limit", most)
			}
		})
	}
	for name, model := range largeInside() {
		t.Run("large "+name, func(t *testing.T) {
			in := save(t, model)
			if r, _, err := convert(in, filepath.Join(t.TempDir(), "out.onnx"), ampc.ConvertOptions{Policy: ampc.MixedF16()}); err == nil {
				t.Errorf("without data, numbers beyond the range are not seen: %v", r.Kept)
			}
			r := run(t, model, 0)
			t.Logf("%d of %d nodes, %d casts, %v, %v", r.Low, r.Nodes, r.Casts, r.Errors, r.Kept)
			said := 0
			for _, k := range r.Kept {
				if k.Graph != "" && strings.Contains(k.Why, "on the data") {
					said++
				}
			}
			if name == "if" && !slices.ContainsFunc(r.Kept, func(k ampc.KeptNode) bool {
				return k.Op == "Exp" && strings.HasPrefix(k.Why, "no data reaches it: exp")
			}) {
				t.Errorf("a branch that no data takes is not left to the policy: %v", r.Kept)
			}
			if said < 2 || r.Weights == 0 {
				t.Errorf("%d nodes are kept for what the data reaches, %d weights are in 16 bits: %v", said, r.Weights, r.Kept)
			}
		})
	}
}
