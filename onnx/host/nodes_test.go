package host_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/onnxmodel"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx/host"
	"ampc/passes"
	"ampc/runtime/cpu"
)

func floats(dims []int64, x ...float64) *host.Value {
	t := eval.New(ir.Type{DType: ir.F32, Shape: shape(dims...)})
	copy(t.F, x)
	return host.NewTensor(t.Type, t.Bytes())
}

func integers(dims []int64, x ...int64) *host.Value {
	t := eval.New(ir.Type{DType: ir.I64, Shape: shape(dims...)})
	copy(t.I, x)
	return host.NewTensor(t.Type, t.Bytes())
}

// nodeCase is a model with inputs, and what each gives.
type nodeCase struct {
	name  string
	build func(g *onnxmodel.Graph)
	in    map[string]*host.Value
	want  map[string]*host.Value
}

// to ends a graph with outputs of some dtype.
func to(g *onnxmodel.Graph, dtype int64, names ...string) {
	for i, name := range names {
		y := string(rune('a' + i))
		g.Node("Identity", []string{name}, []string{y})
		g.Output(y, dtype)
	}
}

func body(g *onnxmodel.Graph, fill func(b *onnxmodel.Graph)) *onnxmodel.Graph {
	b := g.Sub("body")
	fill(b)
	return b
}

// grow is a loop that runs n times and appends its counter, as a float, to what it carries.
func grow(g *onnxmodel.Graph, n, x string) []string {
	b := body(g, func(b *onnxmodel.Graph) {
		i, cond, v := b.Input("i", onnxmodel.I64), b.Input("cond", onnxmodel.Bool), b.Input("v", onnxmodel.F32, nil)
		f := b.Op("Unsqueeze", []string{b.Op("Cast", []string{i}, onnxmodel.Int("to", onnxmodel.F32)), b.List(0)})
		b.Node("Concat", []string{v, f}, []string{"v_out"}, onnxmodel.Int("axis", 0))
		b.Node("Identity", []string{cond}, []string{"cond_out"})
		b.Node("ReduceSum", []string{"v_out"}, []string{"s_out"}, onnxmodel.Int("keepdims", 0))
		b.Output("cond_out", onnxmodel.Bool)
		b.Output("v_out", onnxmodel.F32, nil)
		b.Output("s_out", onnxmodel.F32)
	})
	return g.Ops("Loop", 2, []string{n, "", x}, onnxmodel.Body("body", b))
}

var vector = map[string]*host.Value{"x": floats([]int64{4}, 3, 0, -1, 2)}

var selections = []nodeCase{
	{"NonZero", func(g *onnxmodel.Graph) {
		x := g.Input("x", onnxmodel.F32, 2, nil)
		at := g.Op("NonZero", []string{x})
		rows := g.Op("Transpose", []string{at})
		to(g, onnxmodel.F32, g.Op("GatherND", []string{x, rows}))
		to2(g, onnxmodel.I64, "b", at)
	}, map[string]*host.Value{"x": floats([]int64{2, 3}, 0, 5, 0, 7, 0, 9)}, map[string]*host.Value{"a": floats([]int64{3}, 5, 7, 9), "b": integers([]int64{2, 3}, 0, 1, 1, 1, 0, 2)}},
	{"NonZero of zeros", func(g *onnxmodel.Graph) {
		x := g.Input("x", onnxmodel.F32, nil)
		at := g.Op("Squeeze", []string{g.Op("NonZero", []string{x}), g.List(0)})
		picked := g.Op("Mul", []string{g.Op("Gather", []string{x, at}), g.Number(2)})
		to(g, onnxmodel.F32, g.Op("Concat", []string{picked, x}, onnxmodel.Int("axis", 0)))
	}, map[string]*host.Value{"x": floats([]int64{2})}, map[string]*host.Value{"a": floats([]int64{2})}},
	{"Unique", func(g *onnxmodel.Graph) {
		to(g, onnxmodel.I64, g.Ops("Unique", 4, []string{g.Input("x", onnxmodel.I64, nil)})...)
	}, map[string]*host.Value{"x": integers([]int64{6}, 2, 1, 1, 3, 4, 3)}, map[string]*host.Value{
		"a": integers([]int64{4}, 1, 2, 3, 4), "b": integers([]int64{4}, 1, 0, 3, 4), "c": integers([]int64{6}, 1, 0, 0, 2, 3, 2), "d": integers([]int64{4}, 2, 1, 2, 1)}},
	{"Unique in order", func(g *onnxmodel.Graph) {
		to(g, onnxmodel.I64, g.Ops("Unique", 4, []string{g.Input("x", onnxmodel.I64, nil)}, onnxmodel.Int("sorted", 0))...)
	}, map[string]*host.Value{"x": integers([]int64{6}, 2, 1, 1, 3, 4, 3)}, map[string]*host.Value{
		"a": integers([]int64{4}, 2, 1, 3, 4), "b": integers([]int64{4}, 0, 1, 3, 4), "c": integers([]int64{6}, 0, 1, 1, 2, 3, 2), "d": integers([]int64{4}, 1, 2, 2, 1)}},
	{"Unique rows", func(g *onnxmodel.Graph) {
		to(g, onnxmodel.I64, g.Op("Unique", []string{g.Input("x", onnxmodel.I64, nil, 2)}, onnxmodel.Int("axis", 0)))
	}, map[string]*host.Value{"x": integers([]int64{3, 2}, 1, 0, 1, 0, 0, 2)}, map[string]*host.Value{"a": integers([]int64{2, 2}, 0, 2, 1, 0)}},
	{"Compress", func(g *onnxmodel.Graph) {
		x := g.Input("x", onnxmodel.F32, 2, 3)
		cond := g.Op("Greater", []string{g.Op("ReduceSum", []string{x, g.List(0)}, onnxmodel.Int("keepdims", 0)), g.Number(3)})
		to(g, onnxmodel.F32, g.Op("Compress", []string{x, cond}, onnxmodel.Int("axis", 1)), g.Op("Compress", []string{x, cond}))
	}, map[string]*host.Value{"x": floats([]int64{2, 3}, 1, 2, 3, 1, 4, 5)}, map[string]*host.Value{"a": floats([]int64{2, 2}, 2, 3, 4, 5), "b": floats([]int64{2}, 2, 3)}},
	{"NonMaxSuppression", func(g *onnxmodel.Graph) {
		to(g, onnxmodel.I64, g.Op("NonMaxSuppression", []string{g.Input("x", onnxmodel.F32, 1, nil, 4), g.Input("s", onnxmodel.F32, 1, nil, nil), g.List(2), g.Op("Unsqueeze", []string{g.Number(0.5), g.List(0)}), g.Op("Unsqueeze", []string{g.Number(0.2), g.List(0)})}))
	}, map[string]*host.Value{"x": floats([]int64{1, 4, 4}, 0, 0, 1, 1, 0, 0.1, 1, 1.1, 0, 2, 1, 3, 1, 3, 0, 2), "s": floats([]int64{1, 2, 4}, 0.9, 0.8, 0.3, 0.1, 0.1, 0.1, 0.5, 0.6)},
		map[string]*host.Value{"a": integers([]int64{3, 3}, 0, 0, 0, 0, 0, 2, 0, 1, 3)}},
}

func to2(g *onnxmodel.Graph, dtype int64, name, x string) {
	g.Node("Identity", []string{x}, []string{name})
	g.Output(name, dtype)
}

// count is how many elements of x are above zero, as i64[].
func count(g *onnxmodel.Graph, x string) string {
	above := g.Op("Cast", []string{g.Op("Greater", []string{x, g.Number(0)})}, onnxmodel.Int("to", onnxmodel.I64))
	return g.Op("ReduceSum", []string{above}, onnxmodel.Int("keepdims", 0))
}

func list(g *onnxmodel.Graph, x string) string { return g.Op("Unsqueeze", []string{x, g.List(0)}) }

var sizes = []nodeCase{
	{"Range", func(g *onnxmodel.Graph) {
		n := count(g, g.Op("Mul", []string{g.Input("x", onnxmodel.F32, nil), g.Number(2)}))
		to(g, onnxmodel.I64, g.Op("Range", []string{g.Const(nil, 0), n, g.Const(nil, 1)}))
	}, vector, map[string]*host.Value{"a": integers([]int64{2}, 0, 1)}},
	{"TopK", func(g *onnxmodel.Graph) {
		x := g.Input("x", onnxmodel.F32, nil)
		to(g, onnxmodel.F32, g.Ops("TopK", 2, []string{g.Op("Mul", []string{x, g.Number(2)}), list(g, count(g, x))})[0])
	}, vector, map[string]*host.Value{"a": floats([]int64{2}, 6, 4)}},
	{"Reshape, Slice, Expand", func(g *onnxmodel.Graph) {
		x := g.Op("Mul", []string{g.Input("x", onnxmodel.F32, nil), g.Number(2)})
		n := list(g, count(g, x))
		y := g.Op("Reshape", []string{x, g.Op("Concat", []string{n, g.List(-1)}, onnxmodel.Int("axis", 0))})
		to(g, onnxmodel.F32, y, g.Op("Slice", []string{x, g.List(0), n}), g.Op("Expand", []string{g.Number(3), n}))
	}, vector, map[string]*host.Value{"a": floats([]int64{2, 2}, 6, 0, -2, 4), "b": floats([]int64{2}, 6, 0), "c": floats([]int64{2}, 3, 3)}},
}

var control = []nodeCase{
	{"If", func(g *onnxmodel.Graph) {
		x := g.Op("Mul", []string{g.Input("x", onnxmodel.F32, nil), g.Number(2)})
		big := g.Op("Greater", []string{g.Op("ReduceSum", []string{x}, onnxmodel.Int("keepdims", 0)), g.Number(5)})
		branch := func(add float32) *onnxmodel.Graph {
			return body(g, func(b *onnxmodel.Graph) {
				b.Node("Add", []string{x, b.Number(add)}, []string{"r"})
				b.Output("r", onnxmodel.F32, nil)
			})
		}
		to(g, onnxmodel.F32, g.Op("If", []string{big}, onnxmodel.Body("then_branch", branch(1)), onnxmodel.Body("else_branch", branch(-1))))
	}, vector, map[string]*host.Value{"a": floats([]int64{4}, 7, 1, -1, 5)}},
	{"Loop", func(g *onnxmodel.Graph) {
		to(g, onnxmodel.F32, grow(g, g.Input("n", onnxmodel.I64), g.Input("x", onnxmodel.F32, nil))...)
	}, map[string]*host.Value{"n": number(3), "x": floats([]int64{1}, 5)}, map[string]*host.Value{"a": floats([]int64{4}, 5, 0, 1, 2), "b": floats([]int64{3}, 5, 6, 8)}},
	{"Loop never", func(g *onnxmodel.Graph) {
		to(g, onnxmodel.F32, grow(g, g.Input("n", onnxmodel.I64), g.Input("x", onnxmodel.F32, nil))...)
	}, map[string]*host.Value{"n": number(0), "x": floats([]int64{1}, 5)}, map[string]*host.Value{"a": floats([]int64{1}, 5), "b": floats([]int64{0})}},
	{"Loop while", func(g *onnxmodel.Graph) {
		x, limit := g.Input("x", onnxmodel.F32), g.Input("limit", onnxmodel.F32)
		b := body(g, func(b *onnxmodel.Graph) {
			b.Input("i", onnxmodel.I64)
			b.Input("cond", onnxmodel.Bool)
			b.Node("Mul", []string{b.Input("v", onnxmodel.F32), b.Number(2)}, []string{"v_out"})
			b.Node("Less", []string{"v_out", limit}, []string{"cond_out"})
			b.Output("cond_out", onnxmodel.Bool)
			b.Output("v_out", onnxmodel.F32)
		})
		to(g, onnxmodel.F32, g.Op("Loop", []string{"", g.Op("Less", []string{x, limit}), x}, onnxmodel.Body("body", b)))
	}, map[string]*host.Value{"x": floats(nil, 3), "limit": floats(nil, 20)}, map[string]*host.Value{"a": floats(nil, 24)}},
	{"Scan", func(g *onnxmodel.Graph) {
		b := body(g, func(b *onnxmodel.Graph) {
			b.Node("Add", []string{b.Input("s", onnxmodel.F32, 2), b.Input("row", onnxmodel.F32, 2)}, []string{"s_out"})
			b.Node("Identity", []string{"s_out"}, []string{"y"})
			b.Output("s_out", onnxmodel.F32, 2)
			b.Output("y", onnxmodel.F32, 2)
		})
		to(g, onnxmodel.F32, g.Ops("Scan", 2, []string{g.Input("x", onnxmodel.F32, 2), g.Input("r", onnxmodel.F32, nil, 2)}, onnxmodel.Int("num_scan_inputs", 1), onnxmodel.Body("body", b))...)
	}, map[string]*host.Value{"x": floats([]int64{2}, 1, 1), "r": floats([]int64{3, 2}, 1, 2, 3, 4, 5, 6)}, map[string]*host.Value{"a": floats([]int64{2}, 10, 13), "b": floats([]int64{3, 2}, 2, 3, 5, 7, 10, 13)}},
	{"Scan backwards", func(g *onnxmodel.Graph) {
		b := body(g, func(b *onnxmodel.Graph) {
			b.Node("Add", []string{b.Input("s", onnxmodel.F32, 2), b.Input("col", onnxmodel.F32, 2)}, []string{"s_out"})
			b.Node("Identity", []string{"s_out"}, []string{"y"})
			b.Output("s_out", onnxmodel.F32, 2)
			b.Output("y", onnxmodel.F32, 2)
		})
		to(g, onnxmodel.F32, g.Ops("Scan", 2, []string{g.Input("x", onnxmodel.F32, 2), g.Input("r", onnxmodel.F32, 2, nil)}, onnxmodel.Int("num_scan_inputs", 1), onnxmodel.Body("body", b),
			onnxmodel.Ints("scan_input_axes", 1), onnxmodel.Ints("scan_input_directions", 1), onnxmodel.Ints("scan_output_axes", -1), onnxmodel.Ints("scan_output_directions", 1))...)
	}, map[string]*host.Value{"x": floats([]int64{2}), "r": floats([]int64{2, 3}, 1, 2, 3, 4, 5, 6)}, map[string]*host.Value{"a": floats([]int64{2}, 6, 15), "b": floats([]int64{2, 3}, 6, 5, 3, 15, 11, 6)}},
}

var sequences = []nodeCase{
	{"sequences", func(g *onnxmodel.Graph) {
		x, y := g.Input("x", onnxmodel.F32, nil), g.Input("y", onnxmodel.F32, nil)
		s := g.Op("SequenceConstruct", []string{x, y})
		s = g.Op("SequenceInsert", []string{s, g.Op("Mul", []string{x, g.Number(10)}), g.Const(nil, 1)})
		s = g.Op("SequenceErase", []string{s, g.Const(nil, -1)})
		s = g.Op("SequenceInsert", []string{g.Op("Identity", []string{s}), y})
		to(g, onnxmodel.F32, g.Op("ConcatFromSequence", []string{s}, onnxmodel.Int("axis", 0)), g.Op("SequenceAt", []string{s, g.Const(nil, -2)}))
		to2(g, onnxmodel.I64, "c", g.Op("SequenceLength", []string{s}))
	}, map[string]*host.Value{"x": floats([]int64{2}, 1, 2), "y": floats([]int64{1}, 3)}, map[string]*host.Value{"a": floats([]int64{5}, 1, 2, 10, 20, 3), "b": floats([]int64{2}, 10, 20), "c": number(3)}},
	{"SplitToSequence", func(g *onnxmodel.Graph) {
		x := g.Input("x", onnxmodel.F32, nil, 2)
		parts, rows := g.Op("SplitToSequence", []string{x, g.Const(nil, 2)}), g.Op("SplitToSequence", []string{x}, onnxmodel.Int("keepdims", 0))
		to(g, onnxmodel.F32, g.Op("SequenceAt", []string{parts, g.Const(nil, 1)}), g.Op("ConcatFromSequence", []string{rows}, onnxmodel.Int("axis", 1), onnxmodel.Int("new_axis", 1)))
	}, map[string]*host.Value{"x": floats([]int64{3, 2}, 1, 2, 3, 4, 5, 6)}, map[string]*host.Value{"a": floats([]int64{1, 2}, 5, 6), "b": floats([]int64{2, 3}, 1, 3, 5, 2, 4, 6)}},
	{"a loop fills a sequence", func(g *onnxmodel.Graph) {
		n := g.Input("n", onnxmodel.I64)
		b := body(g, func(b *onnxmodel.Graph) {
			i, cond, s := b.Input("i", onnxmodel.I64), b.Input("cond", onnxmodel.Bool), b.InputSequence("s", onnxmodel.I64)
			b.Node("Identity", []string{cond}, []string{"cond_out"})
			b.Node("SequenceInsert", []string{s, b.Op("Range", []string{b.Const(nil, 0), i, b.Const(nil, 1)})}, []string{"s_out"})
			b.Output("cond_out", onnxmodel.Bool)
			b.OutputSequence("s_out", onnxmodel.I64)
		})
		s := g.Op("Loop", []string{n, "", g.Op("SequenceEmpty", nil, onnxmodel.Int("dtype", onnxmodel.I64))}, onnxmodel.Body("body", b))
		to(g, onnxmodel.I64, g.Op("ConcatFromSequence", []string{s}, onnxmodel.Int("axis", 0)))
	}, map[string]*host.Value{"n": number(4)}, map[string]*host.Value{"a": integers([]int64{6}, 0, 0, 1, 0, 1, 2)}},
	{"optionals", func(g *onnxmodel.Graph) {
		x := g.Input("x", onnxmodel.F32, nil)
		o := g.Op("Optional", []string{x})
		to(g, onnxmodel.F32, g.Op("OptionalGetElement", []string{o}))
		to2(g, onnxmodel.F32, "b", g.Op("Cast", []string{g.Op("OptionalHasElement", []string{o})}, onnxmodel.Int("to", onnxmodel.F32)))
	}, map[string]*host.Value{"x": floats([]int64{1}, 4)}, map[string]*host.Value{"a": floats([]int64{1}, 4), "b": floats(nil, 1)}},
}

func write(t *testing.T, c *nodeCase) string {
	t.Helper()
	g := onnxmodel.New("case", 18)
	c.build(g)
	path := filepath.Join(t.TempDir(), "case.onnx")
	if err := g.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func allCases() (all []nodeCase) {
	for _, list := range [][]nodeCase{selections, sizes, control, sequences} {
		all = append(all, list...)
	}
	return all
}

// Nodes without a static form give what ONNX says, run twice by one session.
func TestHostNodes(t *testing.T) {
	for _, c := range allCases() {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, write(t, &c))
			for range 2 {
				got, err := s.Run(context.Background(), c.in)
				if err != nil {
					t.Fatal(err)
				}
				if err := differ(got, c.want, 1e-6); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// The same in onnxruntime.
func TestHostNodesOracle(t *testing.T) {
	o := newOracle(t)
	for _, c := range allCases() {
		got, err := o.run(write(t, &c), c.in)
		if err == nil {
			err = differ(got, c.want, 1e-6)
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func limited(t *testing.T, c *nodeCase, o host.Options) error {
	t.Helper()
	b, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	o.Backend, o.Config.Policy = b, passes.F32()
	s, err := host.Open(write(t, c), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Run(context.Background(), c.in)
	return err
}

// A loop ends at the limit of iterations, or of memory, with an error.
func TestLimits(t *testing.T) {
	endless := nodeCase{"endless", func(g *onnxmodel.Graph) {
		to(g, onnxmodel.F32, grow(g, "", g.Input("x", onnxmodel.F32, nil))...)
	}, map[string]*host.Value{"x": floats([]int64{1}, 5)}, nil}
	err := limited(t, &endless, host.Options{Iterations: 20, Programs: 4})
	if err == nil || !strings.Contains(err.Error(), "the loops of this run reached the limit of 20 iterations") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	doubling := nodeCase{"doubling", func(g *onnxmodel.Graph) {
		b := body(g, func(b *onnxmodel.Graph) {
			b.Input("i", onnxmodel.I64)
			b.Node("Identity", []string{b.Input("cond", onnxmodel.Bool)}, []string{"cond_out"})
			v := b.Input("v", onnxmodel.F32, nil)
			b.Node("Concat", []string{v, v}, []string{"v_out"}, onnxmodel.Int("axis", 0))
			b.Output("cond_out", onnxmodel.Bool)
			b.Output("v_out", onnxmodel.F32, nil)
		})
		to(g, onnxmodel.F32, g.Op("Loop", []string{"", "", g.Input("x", onnxmodel.F32, nil)}, onnxmodel.Body("body", b)))
	}, map[string]*host.Value{"x": floats([]int64{1}, 5)}, nil}
	err = limited(t, &doubling, host.Options{Bytes: 1 << 20})
	if err == nil || !strings.Contains(err.Error(), "more than the limit of 1048576") {
		t.Error(err)
	}
}

// Programs are kept within a bound, whatever is fed.
func TestProgramsAreBounded(t *testing.T) {
	c := &selections[0]
	b, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, err := host.Open(write(t, c), host.Options{Backend: b, Config: passes.Config{Policy: passes.F32()}, Programs: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range int64(12) {
		x := floats([]int64{2, i%5 + 1}, 1, 2, 3)
		if _, err := s.Run(context.Background(), map[string]*host.Value{"x": x}); err != nil {
			t.Fatal(err)
		}
		if n, _ := s.Programs(); n > 3 {
			t.Fatalf("%d programs are kept, the bound is 3", n)
		}
	}
}

// A condition made from what is fed chooses a branch when the region is compiled;
// one that changes often is left to the host.
func TestGuards(t *testing.T) {
	c := nodeCase{build: func(g *onnxmodel.Graph) {
		x, n := g.Input("x", onnxmodel.F32, nil), g.Input("n", onnxmodel.I64)
		to(g, onnxmodel.F32, g.Op("Slice", []string{x, g.List(0), list(g, g.Op("Add", []string{n, g.Const(nil, 1)}))}))
	}}
	s := open(t, write(t, &c))
	onHost := 0
	for _, n := range []int64{0, 1, 0, 2, 3, 4, 5, 0, 6} {
		x := []float64{1, 2, 3, 4, 5, 6, 7}
		got, err := s.Run(context.Background(), map[string]*host.Value{"x": floats([]int64{7}, x...), "n": number(n)})
		if err != nil {
			t.Fatal(err)
		}
		if err := differ(got, map[string]*host.Value{"a": floats([]int64{n + 1}, x[:n+1]...)}, 0); err != nil {
			t.Errorf("n = %d: %v", n, err)
		}
		for _, step := range s.Steps() {
			if step.Node != nil {
				onHost++
			}
		}
	}
	if onHost != 3 { // 4, 5 and 6
		t.Errorf("the host sliced %d times, want 3", onHost)
	}
}

// An initializer that is also an input counts where the input is not fed.
func TestInitializersThatAreFed(t *testing.T) {
	s := open(t, write(t, &nodeCase{build: func(g *onnxmodel.Graph) {
		to(g, onnxmodel.F32, g.Op("Mul", []string{g.Input("x", onnxmodel.F32, nil), g.Input(g.Weight("w", 5, 0, 2), onnxmodel.F32, nil)}))
	}}))
	x := floats([]int64{2}, 1, 2)
	for _, w := range []*host.Value{nil, floats([]int64{2}, 3, 4), nil, floats([]int64{1}, 2)} {
		in, want := map[string]*host.Value{"x": x}, floats([]int64{2}, 5, 10)
		if w != nil {
			e, err := w.Elements()
			if err != nil {
				t.Fatal(err)
			}
			in["w"], want = w, floats([]int64{2}, e.F[0], 2*e.F[len(e.F)-1])
		}
		got, err := s.Run(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		if err := differ(got, map[string]*host.Value{"a": want}, 0); err != nil {
			t.Errorf("w = %v: %v", w, err)
		}
	}
}

// What is wrong with what is fed is one line that names the input.
func TestBadFeeds(t *testing.T) {
	s := open(t, write(t, &nodeCase{build: func(g *onnxmodel.Graph) {
		to(g, onnxmodel.F32, g.Op("Add", []string{g.Input("x", onnxmodel.F32, "n", 2), g.Input("y", onnxmodel.F32, "n", 1)}))
	}}))
	for want, in := range map[string]map[string]*host.Value{
		`input "y" is missing: feed it`:                                  {"x": floats([]int64{1, 2})},
		`input "x" is f32[1,3], want 2 in dimension 1`:                   {"x": floats([]int64{1, 3}), "y": floats([]int64{1, 1})},
		`input "y" is f32[3,1], but dimension "n" is 2 in another input`: {"x": floats([]int64{2, 2}), "y": floats([]int64{3, 1})},
		`input "x" is i64[1,2], want f32`:                                {"x": integers([]int64{1, 2}), "y": floats([]int64{1, 1})},
		`input "x" is a sequence, want a tensor`:                         {"x": host.NewSequence(), "y": floats([]int64{1, 1})},
		`the model has no input "z": its inputs are ["x" "y"]`:           {"x": floats([]int64{1, 2}), "y": floats([]int64{1, 1}), "z": number(1)},
	} {
		if _, err := s.Run(context.Background(), in); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The rules of a policy may name what is in one region only. One that names nothing of the model is
// refused when it is opened.
func TestRulesOfRegions(t *testing.T) {
	var first, second string
	c := nodeCase{build: func(g *onnxmodel.Graph) {
		x := g.Input("x", onnxmodel.F32, 2, 2)
		first = g.Op("MatMul", []string{x, x})
		at := g.Op("NonZero", []string{first})
		second = g.Op("Relu", []string{g.Op("Cast", []string{at}, onnxmodel.Int("to", onnxmodel.F32))})
		to(g, onnxmodel.F32, first, second)
	}}
	path := write(t, &c)
	b, err := cpu.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	o := host.Options{Backend: b, Config: passes.Config{Policy: passes.MixedF16().Keep(first).Keep(second)}}
	s, err := host.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.Run(context.Background(), map[string]*host.Value{"x": floats([]int64{2, 2}, 1+0x1p-12, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	a, err := out["a"].Elements()
	if err != nil {
		t.Fatal(err)
	}
	if got := a.F[0]; got == 1 {
		t.Errorf("%s is %g: the rule that keeps it in f32 is lost", first, got)
	}
	o.Config.Policy = passes.MixedF16().Keep("nothing")
	if _, err := host.Open(path, o); err == nil || !strings.Contains(err.Error(), `pattern "nothing" matches no result of a node`) {
		t.Error(err)
	}
}
