package bridge

import (
	"fmt"
	"math"
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"ampc/ir"
)

// opCase is a function of one parameter of some shape. Functions whose value
// or gradient Gorgonia gets wrong, or cannot compute, say so.
type opCase struct {
	name     string
	shape    []int
	f        func(x *G.Node) *G.Node
	positive bool
	noTape   string // why the tape machine's value is not compared
	noGrad   bool   // nothing to differentiate
}

func second(x *G.Node, shape ...int) *G.Node {
	n := tensor.Shape(shape).TotalSize()
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.Sin(float64(3*i+1))) + 1.3
	}
	return G.NewTensor(x.Graph(), tensor.Float32, len(shape), G.WithShape(shape...), G.WithName(fmt.Sprint("second", shape)),
		G.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(v))))
}

// integers are indices, which are not parameters of anything.
func integers(x *G.Node, v ...int) *G.Node {
	return G.NewVector(x.Graph(), tensor.Int, G.WithShape(len(v)), G.WithName("indices"), G.WithValue(tensor.New(tensor.WithBacking(v))))
}

func unaryCase(name string, positive bool, f func(*G.Node) (*G.Node, error)) opCase {
	return opCase{name: name, shape: []int{3, 4}, positive: positive, f: func(x *G.Node) *G.Node { return must(f(x)) }}
}

func opCases() []opCase {
	two := func(f func(a, b *G.Node) (*G.Node, error)) func(x *G.Node) *G.Node {
		return func(x *G.Node) *G.Node { return must(f(x, second(x, x.Shape()...))) }
	}
	m34 := []int{3, 4}
	image := []int{2, 3, 6, 6}
	cases := []opCase{
		unaryCase("abs", false, G.Abs), unaryCase("sin", false, G.Sin), unaryCase("cos", false, G.Cos), unaryCase("exp", false, G.Exp),
		unaryCase("ln", true, G.Log), unaryCase("log2", true, G.Log2), unaryCase("neg", false, G.Neg), unaryCase("square", false, G.Square),
		unaryCase("sqrt", true, G.Sqrt), unaryCase("inv", true, G.Inverse), unaryCase("invSqrt", true, G.InverseSqrt), unaryCase("cube", false, G.Cube),
		unaryCase("tanh", false, G.Tanh), unaryCase("sigmoid", false, G.Sigmoid), unaryCase("log1p", true, G.Log1p), unaryCase("expm1", false, G.Expm1),
		unaryCase("softplus", false, G.Softplus), unaryCase("mish", false, G.Mish), unaryCase("relu", false, G.Rectify),
		{name: "sign", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Sign(x)) }, noGrad: true},
		{name: "ceil", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Ceil(x)) }, noGrad: true},
		{name: "floor", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Floor(x)) }, noGrad: true},
		{name: "leaky", shape: m34, f: func(x *G.Node) *G.Node { return must(G.LeakyRelu(x, 0.1)) }},
		{name: "add", shape: m34, f: two(G.Add)}, {name: "sub", shape: m34, f: two(G.Sub)},
		{name: "mul", shape: m34, f: two(G.HadamardProd)}, {name: "div", shape: m34, f: two(G.HadamardDiv)},
		{name: "pow", shape: m34, positive: true, f: two(G.Pow)},
		{name: "lt", shape: m34, noGrad: true, f: func(x *G.Node) *G.Node { return must(G.Lt(x, second(x, 3, 4), true)) }},
		{name: "gte", shape: m34, noGrad: true, f: func(x *G.Node) *G.Node { return must(G.Gte(x, second(x, 3, 4), true)) }},
		{name: "gt", shape: m34, noGrad: true, f: func(x *G.Node) *G.Node { return must(G.Gt(x, second(x, 3, 4), true)) }},
		{name: "lte", shape: m34, noGrad: true, f: func(x *G.Node) *G.Node { return must(G.Lte(x, second(x, 3, 4), true)) }},
		{name: "eq", shape: m34, noGrad: true, f: func(x *G.Node) *G.Node { return must(G.Eq(x, must(G.Abs(x)), true)) }},
		{name: "ne", shape: m34, noGrad: true, f: func(x *G.Node) *G.Node { return must(G.Ne(x, must(G.Abs(x)), true)) }},
		{name: "bool", shape: m34, noGrad: true, f: func(x *G.Node) *G.Node { return must(G.Gt(x, second(x, 3, 4), false)) }},
		{name: "size", shape: m34, f: func(x *G.Node) *G.Node { return must(G.HadamardDiv(x, must(G.SizeOf(1, x)))) }},
		{name: "of several", shape: []int{3, 3}, f: func(x *G.Node) *G.Node {
			y := second(x, 3, 3)
			return must(G.ReduceMul(G.Nodes{x, y, must(G.ReduceAdd(G.Nodes{x, y, must(G.Tanh(x))}))}))
		}},
		{name: "keep dims", shape: m34, f: func(x *G.Node) *G.Node {
			return must(G.KeepDims(x, false, func(n *G.Node) (*G.Node, error) { return G.Sum(n, 1) }))
		}},
		{name: "scalar", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Sub(G.NewConstant(float32(2)), x)) }},
		{name: "min", shape: m34, f: two(G.MinBetween)},
		{name: "max", shape: m34, f: two(G.MaxBetween)},
		{name: "matmul", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Mul(x, second(x, 4, 5))) }},
		{name: "matvec", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Mul(x, second(x, 4))) }},
		{name: "dot", shape: []int{4}, f: func(x *G.Node) *G.Node { return must(G.Mul(x, second(x, 4))) }},
		{name: "outer", shape: []int{4}, f: two(G.OuterProd)},
		{name: "outer of two lengths", shape: []int{4}, f: func(x *G.Node) *G.Node { return must(G.OuterProd(x, second(x, 5))) }},
		{name: "batched", shape: []int{2, 3, 4}, f: func(x *G.Node) *G.Node { return must(G.BatchedMatMul(x, second(x, 2, 4, 5))) }},
		{name: "tensordot", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Tensordot([]int{1}, []int{0}, x, second(x, 4, 5))) }},
		{name: "sum", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Sum(x, 1)) }},
		{name: "mean", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Mean(x, 0)) }},
		{name: "max along", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Max(x, 1)) }},
		{name: "norm", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Norm(x, 1, 2)) }},
		{name: "norm 3", shape: m34, positive: true, f: func(x *G.Node) *G.Node { return must(G.Norm(x, 1, 3)) }},
		{name: "logsumexp", shape: []int{5}, f: func(x *G.Node) *G.Node { return must(G.LogSumExp(x, 0)) }, noTape: "its maximum stands inside its logarithm"},
		{name: "reshape", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Reshape(x, tensor.Shape{2, 6})) }},
		{name: "transpose", shape: []int{2, 3, 4}, f: func(x *G.Node) *G.Node { return must(G.Transpose(x, 2, 0, 1)) }},
		{name: "concat", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Concat(1, x, second(x, 3, 2))) }},
		{name: "slice", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Slice(x, nil, G.S(1, 3))) }},
		{name: "slice one", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Slice(x, G.S(1))) }},
		{name: "at", shape: m34, noGrad: true, noTape: "it leaves the node without a value", f: func(x *G.Node) *G.Node { return must(G.At(x, 1, 2)) }},
		{name: "broadcast left", shape: []int{3, 1}, f: func(x *G.Node) *G.Node {
			return must(G.BroadcastHadamardProd(x, second(x, 3, 4), []byte{1}, nil))
		}},
		{name: "broadcast alone", shape: []int{1, 4}, f: func(x *G.Node) *G.Node {
			a, _, err := G.Broadcast(x, second(x, 3, 4), G.NewBroadcastPattern([]byte{0}, nil))
			return must(G.Tanh(must(a, err)))
		}},
		{name: "softmax", shape: m34, f: func(x *G.Node) *G.Node { return must(G.SoftMax(x)) }},
		{name: "logsoftmax", shape: m34, f: func(x *G.Node) *G.Node { return must(G.LogSoftMax(x)) }},
		{name: "log of softmax", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Log(must(G.SoftMax(x)))) }},
		{name: "cross entropy", shape: m34, f: func(x *G.Node) *G.Node {
			return must(G.Neg(must(G.Mean(must(G.HadamardProd(must(G.Log(must(G.SoftMax(x)))), second(x, 3, 4)))))))
		}},
		{name: "cross entropy, other axis", shape: m34, f: func(x *G.Node) *G.Node {
			return must(G.Sum(must(G.Neg(must(G.Sum(must(G.HadamardProd(must(G.LogSoftMax(x, 0)), second(x, 3, 4))), 0))))))
		}},
		{name: "sparsemax", shape: m34, f: func(x *G.Node) *G.Node { return must(G.Sparsemax(x)) }},
		{name: "conv", shape: image, f: func(x *G.Node) *G.Node {
			return must(G.Conv2d(x, second(x, 4, 3, 3, 3), tensor.Shape{3, 3}, []int{1, 0}, []int{2, 1}, []int{1, 1}))
		}},
		{name: "dilated conv", shape: image, f: func(x *G.Node) *G.Node {
			return must(G.Conv2d(x, second(x, 4, 3, 2, 2), tensor.Shape{2, 2}, []int{0, 0}, []int{1, 1}, []int{2, 2}))
		}},
		{name: "im2col", shape: image, f: func(x *G.Node) *G.Node {
			return must(G.Im2Col(x, tensor.Shape{2, 3}, tensor.Shape{1, 0}, tensor.Shape{1, 2}, tensor.Shape{1, 1}))
		}},
		{name: "max pool", shape: image, f: func(x *G.Node) *G.Node { return must(G.MaxPool2D(x, tensor.Shape{2, 2}, []int{1, 0}, []int{2, 1})) }},
		{name: "max pool, 4 pads", shape: image, f: func(x *G.Node) *G.Node {
			return must(G.MaxPool2D(x, tensor.Shape{2, 2}, []int{0, 1, 1, 0}, []int{2, 2}))
		}},
		{name: "conv, 1 axis", shape: []int{2, 3, 1, 8}, f: func(x *G.Node) *G.Node { return must(G.Conv1d(x, second(x, 4, 3, 1, 3), 3, 1, 2, 1)) }},
		{name: "max pool, 1 axis", shape: []int{2, 3, 1, 8}, f: func(x *G.Node) *G.Node { return must(G.MaxPool1D(x, 2, 0, 2)) }},
		{name: "average pool", shape: image, f: func(x *G.Node) *G.Node {
			return must(G.AveragePool2D(x, tensor.Shape{2, 2}, []int{1, 1}, []int{2, 2}))
		}},
		{name: "global average pool", shape: image, f: func(x *G.Node) *G.Node { return must(G.GlobalAveragePool2D(x)) }},
		{name: "upsample", shape: []int{1, 2, 3, 3}, f: func(x *G.Node) *G.Node { return must(G.Upsample2D(x, 2)) }},
		{name: "batch norm", shape: image, f: func(x *G.Node) *G.Node {
			y, _, _, _, err := G.BatchNorm(x, second(x, 2, 3, 6, 6), second(x, 2, 3, 6, 6), 0.1, 1e-5)
			return must(y, err)
		}},
		{name: "group norm", shape: []int{2, 6, 4, 4}, f: func(x *G.Node) *G.Node {
			return must(G.GroupNorm(x, second(x, 1, 6, 1, 1), second(x, 1, 6, 1, 1), 3, 6, 1e-5))
		}},
		{name: "by indices", shape: []int{4, 3}, f: func(x *G.Node) *G.Node { return must(G.ByIndices(x, integers(x, 2, 0, 2), 0)) }},
		{name: "by indices, columns", shape: m34, f: func(x *G.Node) *G.Node { return must(G.ByIndices(x, integers(x, 3, 1), 1)) }},
		{name: "constant tensor", shape: m34, f: func(x *G.Node) *G.Node {
			return must(G.HadamardProd(x, G.NewConstant(tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(tensor.Range(tensor.Float32, -5, 7))))))
		}},
		{name: "column-major constant", shape: []int{4, 3}, f: func(x *G.Node) *G.Node {
			v := tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(tensor.Range(tensor.Float32, -5, 7)))
			if err := v.T(); err != nil {
				panic(err)
			}
			return must(G.HadamardProd(x, G.NewConstant(v)))
		}},
		{name: "diag", shape: []int{4}, noGrad: true, f: func(x *G.Node) *G.Node { return must(G.DiagFlat(x)) }},
	}
	return cases
}

// graphOf is f of an input.
func (c opCase) graphOf() (m *net, x, y *G.Node) {
	m = newNet()
	v := m.random(1, c.shape...)
	if c.positive {
		for i, e := range v.Float32s() {
			v.Float32s()[i] = float32(math.Abs(float64(e))) + 0.3
		}
	}
	x = m.param("x", v)
	return m, x, c.f(x)
}

// costOf is the weighted sum of f's elements.
func (c opCase) costOf() (g *G.ExprGraph, x, cost *G.Node) {
	m, x, y := c.graphOf()
	cost = y
	if y.Dims() > 0 {
		weights := m.random(1, y.Shape()...)
		w := G.NewTensor(m.g, tensor.Float32, y.Dims(), G.WithShape(y.Shape()...), G.WithName("weights"), G.WithValue(weights))
		cost = must(G.Sum(must(G.HadamardProd(y, w))))
	}
	return m.g, x, cost
}

// Every op gives the tape machine's values, and the gradients of its own value.
func TestOps(t *testing.T) {
	for _, c := range opCases() {
		t.Run(c.name, func(t *testing.T) {
			c.values(t)
			if !c.noGrad {
				c.gradients(t)
			}
		})
	}
}

func (c opCase) values(t *testing.T) {
	m, _, y := c.graphOf()
	vm := machine(t, m.g, WithFetch(y))
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	got, err := hostOf(y.Value())
	if err != nil {
		t.Fatal(err)
	}
	if c.noTape != "" {
		t.Logf("not compared with the tape machine: %s", c.noTape)
		return
	}
	m2, _, y2 := c.graphOf()
	tape := G.NewTapeMachine(m2.g)
	defer tape.Close()
	if err := tape.RunAll(); err != nil {
		t.Fatalf("the tape machine fails: %v", err)
	}
	want, err := hostOf(y2.Value())
	if err != nil {
		t.Fatal(err)
	}
	if got.Type != want.Type {
		t.Fatalf("value is %s, want %s", got.Type, want.Type)
	}
	for i := range want.Len() {
		if a, b := got.At(i), want.At(i); math.Abs(a-b) > 2e-6*max(1, math.Abs(b)) {
			t.Fatalf("element %d is %g, want %g", i, a, b)
		}
	}
}

// gradients compares with central differences of the machine's own cost. In
// f32 these are good to about three digits.
func (c opCase) gradients(t *testing.T) {
	g, x, cost := c.costOf()
	vm := machine(t, g, WithCost(cost), WithParams(x))
	eval := func() float64 {
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		h, err := hostOf(cost.Value())
		if err != nil {
			t.Fatal(err)
		}
		return h.At(0)
	}
	eval()
	v, err := vm.Gradient(x)
	if err != nil {
		t.Fatal(err)
	}
	h, err := hostOf(v)
	if err != nil {
		t.Fatal(err)
	}
	data := x.Value().Data().([]float32)
	top := 0.0
	for i := range h.Len() {
		top = max(top, math.Abs(h.At(i)))
	}
	const step = 1.0 / 512
	for i := range min(len(data), 12) {
		old := data[i]
		data[i] = old + step
		up := eval()
		data[i] = old - step
		down := eval()
		data[i] = old
		if want := (up - down) / (2 * step); math.Abs(h.At(i)-want) > 4e-3*max(top, 1) {
			t.Errorf("gradient %d is %g, differences say %g", i, h.At(i), want)
		}
	}
}

// Composites come back as one node.
func TestComposites(t *testing.T) {
	image := []int{2, 3, 6, 6}
	for _, c := range []struct {
		name  string
		shape []int
		f     func(x *G.Node) *G.Node
		want  []ir.Op
	}{
		{"Conv2d", image, func(x *G.Node) *G.Node {
			return must(G.Conv2d(x, second(x, 4, 3, 3, 3), tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
		}, []ir.Op{ir.OpConv}},
		{"Conv2d with bias", image, func(x *G.Node) *G.Node {
			y := must(G.Conv2d(x, second(x, 4, 3, 3, 3), tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
			return must(G.BroadcastAdd(y, second(x, 1, 4, 1, 1), nil, []byte{0, 2, 3}))
		}, []ir.Op{ir.OpReshape, ir.OpConv}},
		{"linear", []int{3, 4}, func(x *G.Node) *G.Node {
			return must(G.BroadcastAdd(must(G.Mul(x, second(x, 4, 5))), second(x, 1, 5), nil, []byte{0}))
		}, []ir.Op{ir.OpReshape, ir.OpLinear}},
		{"BroadcastAdd", []int{3, 4}, func(x *G.Node) *G.Node { return must(G.BroadcastAdd(x, second(x, 1, 4), nil, []byte{0})) }, []ir.Op{ir.OpAdd}},
		{"Rectify", []int{3, 4}, func(x *G.Node) *G.Node { return must(G.Rectify(x)) }, []ir.Op{ir.OpRelu}},
		{"LeakyRelu", []int{3, 4}, func(x *G.Node) *G.Node { return must(G.LeakyRelu(x, 0.2)) }, []ir.Op{ir.OpLeakyRelu}},
		{"Mish", []int{3, 4}, func(x *G.Node) *G.Node { return must(G.Mish(x)) }, []ir.Op{ir.OpMish}},
		{"Mean", []int{3, 4}, func(x *G.Node) *G.Node { return must(G.Mean(x)) }, []ir.Op{ir.OpReduceMean}},
		{"Norm", []int{3, 4}, func(x *G.Node) *G.Node { return must(G.Norm(x, 1, 2)) }, []ir.Op{ir.OpReduceL2}},
		{"LogSumExp", []int{4}, func(x *G.Node) *G.Node { return must(G.LogSumExp(x, 0)) }, []ir.Op{ir.OpLogSumExp}},
		{"mean of BinaryXent", []int{3, 4}, func(x *G.Node) *G.Node { return must(G.Mean(must(G.BinaryXent(x, second(x, 3, 4))))) }, []ir.Op{ir.OpBCE, ir.OpDiv}},
		{"-Σ y·log softmax / 3", []int{3, 4}, func(x *G.Node) *G.Node {
			sum := must(G.Sum(must(G.HadamardProd(must(G.LogSoftMax(x)), second(x, 3, 4)))))
			return must(G.HadamardProd(sum, G.NewConstant(float32(-1)/3)))
		}, []ir.Op{ir.OpSoftCrossEntropy, ir.OpDiv}},
		{"-mean Σ y·log softmax", []int{3, 4}, func(x *G.Node) *G.Node {
			rows := must(G.Sum(must(G.HadamardProd(second(x, 3, 4), must(G.Log(must(G.SoftMax(x)))))), 1))
			return must(G.Neg(must(G.Mean(rows))))
		}, []ir.Op{ir.OpSoftCrossEntropy, ir.OpDiv}},
		{"mean Σ -y·log softmax, other axis", []int{3, 4}, func(x *G.Node) *G.Node {
			terms := must(G.Neg(must(G.HadamardProd(must(G.LogSoftMax(x, 0)), second(x, 3, 4)))))
			return must(G.Mean(must(G.Sum(terms, 0))))
		}, []ir.Op{ir.OpSoftCrossEntropy, ir.OpDiv}},
		{"-mean of all terms", []int{3, 4}, func(x *G.Node) *G.Node {
			return must(G.Neg(must(G.Mean(must(G.HadamardProd(must(G.Log(must(G.SoftMax(x)))), second(x, 3, 4)))))))
		}, []ir.Op{ir.OpSoftCrossEntropy, ir.OpDiv, ir.OpAffine}},
		{"a penalty besides", []int{3, 4}, func(x *G.Node) *G.Node {
			sum := must(G.Sum(must(G.HadamardProd(must(G.LogSoftMax(x)), second(x, 3, 4)))))
			return must(G.Sub(must(G.Sum(must(G.Square(x)))), sum))
		}, []ir.Op{ir.OpSquare, ir.OpReduceSum, ir.OpSoftCrossEntropy, ir.OpDiv, ir.OpAffine, ir.OpSub}},
		{"not a cross entropy: no sum", []int{3, 4}, func(x *G.Node) *G.Node {
			return must(G.HadamardProd(must(G.LogSoftMax(x)), second(x, 3, 4)))
		}, []ir.Op{ir.OpLogSoftmax, ir.OpMul}},
		{"not a cross entropy: no logarithm", []int{3, 4}, func(x *G.Node) *G.Node {
			return must(G.Sum(must(G.HadamardProd(must(G.SoftMax(x)), second(x, 3, 4)))))
		}, []ir.Op{ir.OpSoftmax, ir.OpMul, ir.OpReduceSum}},
		{"log of softmax", []int{3, 4}, func(x *G.Node) *G.Node { return must(G.Log(must(G.SoftMax(x)))) }, []ir.Op{ir.OpLogSoftmax}},
	} {
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float32, len(c.shape), G.WithShape(c.shape...), G.WithName("x"))
		y := c.f(x)
		imp, err := Import(g, y)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []ir.Op
		for _, n := range imp.Graph.Nodes {
			got = append(got, n.Op)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s becomes\n%s", c.name, imp.Graph)
		}
		if err := ir.Verify(imp.Graph, ir.Source); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
