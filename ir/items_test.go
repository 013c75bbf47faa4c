package ir_test

import (
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// itemGraphs are graphs of batches of 3 images, by what they do; those of mixed read other items.
var itemGraphs = map[string]func(b *ir.Builder, x *ir.Value) *ir.Value{
	"convolution": func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Relu(conv3(b, x)) },
	"pool":        func(b *ir.Builder, x *ir.Value) *ir.Value { return b.MaxPool(x, ir.A("kernel", []int64{2, 2})) },
	"join":        func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Concat(1, conv3(b, x), x) },
	"residual":    func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Add(conv3(b, x), x) },
	"classifier": func(b *ir.Builder, x *ir.Value) *ir.Value {
		w := b.Declare(ir.Param, "w", ir.T(ir.F32, 4, 5), nil, nil)
		return b.Linear(b.Reshape(b.ReduceMean(x, true, 2, 3), 3, 4), w, nil, false)
	},
	"vector": func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Add(x, b.Declare(ir.Param, "shift", ir.T(ir.F32, 4, 1, 1), nil, nil))
	},
}

var mixed = map[string]func(b *ir.Builder, x *ir.Value) *ir.Value{
	"join of images": func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Concat(0, x, x) },
	"mean of images": func(b *ir.Builder, x *ir.Value) *ir.Value { return b.ReduceMean(x, true, 0) },
	"reshape":        func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Reshape(x, 4, 3, 6, 6) },
	"transpose":      func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Transpose(x, 1, 0, 2, 3) },
	"images as taps": func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Conv(x, b.Reshape(x, 3, 4, 6, 6), nil, nil)
	},
	"a weight for each image": func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Add(x, b.Declare(ir.Param, "shift", ir.T(ir.F32, 3, 1, 1, 1), nil, nil))
	},
	"no input": func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Relu(b.Declare(ir.Param, "w", ir.T(ir.F32, 3, 2), nil, nil))
	},
}

func conv3(b *ir.Builder, x *ir.Value) *ir.Value {
	w := b.Declare(ir.Param, "taps", ir.T(ir.F32, 4, 4, 3, 3), nil, nil)
	return b.Conv(x, w, nil, ir.A("pads", []int64{1, 1, 1, 1}))
}

func itemGraph(t *testing.T, images ir.Dim, f func(b *ir.Builder, x *ir.Value) *ir.Value) *ir.Graph {
	t.Helper()
	b := ir.NewBuilder("items")
	b.Return(f(b, b.Declare(ir.Input, "x", ir.T(ir.F32, images, 4, 6, 6), nil, nil)))
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	return b.Graph()
}

// The graph of an item gives, item by item, what the graph of the batch gives.
func TestOneItem(t *testing.T) {
	for name, f := range itemGraphs {
		g := itemGraph(t, 3, f)
		text := g.String()
		one, items := g.OneItem()
		if one == nil || items != 3 {
			t.Errorf("%s: no graph of one item:\n%s", name, g)
			continue
		}
		if err := ir.Verify(one, ir.Source); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if g.String() != text {
			t.Errorf("%s: the graph of the batch changed", name)
		}
		whole := runItems(t, g, 0)
		for i := range 3 {
			got := runItems(t, one, i)
			for k, x := range got {
				if want := whole[i*len(got)+k]; x != want {
					t.Fatalf("%s: element %d of item %d is %v alone, %v in the batch", name, k, i, x, want)
				}
			}
		}
	}
}

// runItems evaluates g on images of a batch from image first on.
func runItems(t *testing.T, g *ir.Graph, first int) []float64 {
	t.Helper()
	in := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		at := 0
		if v.Kind == ir.Input {
			at = first * 4 * 6 * 6
		}
		x := eval.New(v.Type)
		for i := range x.F {
			x.F[i] = float64((i+at)*7%13 - 6)
		}
		in[v.Name] = x
	}
	out, err := eval.Run(g, in, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return out.Value(g.Return[0]).F
}

// Graphs whose results mix items, or whose batch is not that of the input, run whole.
func TestNoItems(t *testing.T) {
	for name, f := range mixed {
		if one, items := itemGraph(t, 3, f).OneItem(); one != nil {
			t.Errorf("%s: a graph of one of %d items:\n%s", name, items, one)
		}
	}
	if one, _ := itemGraph(t, 1, itemGraphs["residual"]).OneItem(); one != nil {
		t.Errorf("a batch of one item has a graph of its own:\n%s", one)
	}
}
