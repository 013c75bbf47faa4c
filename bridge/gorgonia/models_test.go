package bridge

import (
	"fmt"
	"math"
	"math/rand"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// net is a training graph with the tensors it is fed.
type net struct {
	g      *G.ExprGraph
	params G.Nodes
	cost   *G.Node
	loss   G.Value
	feed   map[*G.Node]*tensor.Dense
	rng    *rand.Rand
}

func newNet() *net {
	return &net{g: G.NewGraph(), feed: map[*G.Node]*tensor.Dense{}, rng: rand.New(rand.NewSource(3))}
}

// finish differentiates and reads the cost, as the examples do.
func (m *net) finish(cost *G.Node) *net {
	m.cost = cost
	if _, err := G.Grad(cost, m.params...); err != nil {
		panic(err)
	}
	G.Read(cost, &m.loss)
	return m
}

func must(n *G.Node, err error) *G.Node {
	if err != nil {
		panic(err)
	}
	return n
}

func (m *net) random(scale float64, shape ...int) *tensor.Dense {
	x := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range x {
		x[i] = float32(m.rng.NormFloat64() * scale)
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))
}

// input declares an input that is fed x at every step.
func (m *net) input(name string, x *tensor.Dense) *G.Node {
	n := G.NewTensor(m.g, x.Dtype(), x.Dims(), G.WithShape(x.Shape()...), G.WithName(name))
	m.feed[n] = x
	return n
}

// param declares a parameter that starts as x.
func (m *net) param(name string, x *tensor.Dense) *G.Node {
	n := G.NewTensor(m.g, x.Dtype(), x.Dims(), G.WithShape(x.Shape()...), G.WithName(name), G.WithValue(x))
	m.params = append(m.params, n)
	return n
}

func (m *net) weights(name string, fanIn int, shape ...int) *G.Node {
	return m.param(name, m.random(math.Sqrt(2/float64(fanIn)), shape...))
}

func (m *net) dense(x *G.Node, name string, in, out int) *G.Node {
	w := m.weights(name+".w", in, in, out)
	b := m.param(name+".b", m.random(0.05, 1, out))
	return must(G.BroadcastAdd(must(G.Mul(x, w)), b, nil, []byte{0}))
}

// labels are one-hot rows.
func (m *net) labels(batch, classes int) *tensor.Dense {
	y := make([]float32, batch*classes)
	for i := range batch {
		y[i*classes+m.rng.Intn(classes)] = 1
	}
	return tensor.New(tensor.WithShape(batch, classes), tensor.WithBacking(y))
}

// xent is -mean(Σ y·log softmax), by the log of a softmax or by LogSoftMax.
func xent(logits, y *G.Node, batch int) *G.Node {
	sum := must(G.Sum(must(G.HadamardProd(must(G.LogSoftMax(logits)), y))))
	return must(G.HadamardProd(sum, G.NewConstant(float32(-1)/float32(batch))))
}

func mlp(batch int, sizes ...int) *net {
	m := newNet()
	h := m.input("x", m.random(1, batch, sizes[0]))
	y := m.input("y", m.labels(batch, sizes[len(sizes)-1]))
	for i := 1; i < len(sizes); i++ {
		h = m.dense(h, fmt.Sprintf("fc%d", i), sizes[i-1], sizes[i])
		if i < len(sizes)-1 {
			h = must(G.Rectify(h))
		}
	}
	return m.finish(xent(h, y, batch))
}

func (m *net) conv(x *G.Node, name string, in, out, k, pad int) *G.Node {
	w := m.weights(name+".w", in*k*k, out, in, k, k)
	b := m.param(name+".b", m.random(0.05, 1, out, 1, 1))
	c := must(G.Conv2d(x, w, tensor.Shape{k, k}, []int{pad, pad}, []int{1, 1}, []int{1, 1}))
	c = must(G.BroadcastAdd(c, b, nil, []byte{0, 2, 3}))
	return must(G.MaxPool2D(must(G.Rectify(c)), tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
}

func leNet(batch int) *net {
	m := newNet()
	x := m.input("x", m.random(1, batch, 1, 28, 28))
	y := m.input("y", m.labels(batch, 10))
	h := m.conv(x, "conv1", 1, 6, 5, 2)
	h = m.conv(h, "conv2", 6, 16, 5, 0)
	h = must(G.Reshape(h, tensor.Shape{batch, 400}))
	h = must(G.Rectify(m.dense(h, "fc1", 400, 120)))
	h = must(G.Rectify(m.dense(h, "fc2", 120, 84)))
	return m.finish(xent(m.dense(h, "fc3", 84, 10), y, batch))
}

// recurrent is an Elman network unrolled over a sequence, with one set of
// weights, that sums the squared errors of its last output.
func recurrent(batch, steps, in, hidden int) *net {
	m := newNet()
	xs := m.input("xs", m.random(1, steps, batch, in))
	target := m.input("target", m.random(1, batch, in))
	wx, wh := m.weights("wx", 2*in, in, hidden), m.weights("wh", 4*hidden, hidden, hidden)
	b := m.param("b", m.random(0.1, 1, hidden))
	var h *G.Node
	for t := range steps {
		x := must(G.Slice(xs, G.S(t)))
		sum := must(G.Mul(x, wx))
		if h != nil {
			sum = must(G.Add(sum, must(G.Mul(h, wh))))
		}
		h = must(G.Tanh(must(G.BroadcastAdd(sum, b, nil, []byte{0}))))
	}
	out := m.dense(h, "out", hidden, in)
	return m.finish(must(G.Mean(must(G.Square(must(G.Sub(out, target)))))))
}

// autoencoder reconstructs probabilities; its cost is the mean of BinaryXent.
func autoencoder(batch, in, code int) *net {
	m := newNet()
	x := m.random(1, batch, in)
	for i, v := range x.Float32s() {
		x.Float32s()[i] = float32(1 / (1 + math.Exp(-float64(v))))
	}
	n := m.input("x", x)
	h := must(G.Tanh(m.dense(n, "enc", in, code)))
	p := must(G.Sigmoid(m.dense(h, "dec", code, in)))
	return m.finish(must(G.Mean(must(G.BinaryXent(p, n)))))
}

// run is one step of the user's loop, up to the solver.
func (m *net) run(t testing.TB, vm G.VM) float64 {
	t.Helper()
	for n, x := range m.feed {
		if err := G.Let(n, x); err != nil {
			t.Fatal(err)
		}
	}
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	v, err := hostOf(m.loss)
	if err != nil {
		t.Fatal(err)
	}
	return v.At(0)
}

// grads copies what the parameters' gradients are bound to.
func (m *net) grads(t testing.TB) (all [][]float64) {
	t.Helper()
	for _, p := range m.params {
		v, err := p.Grad()
		if err != nil {
			t.Fatal(err)
		}
		h, err := hostOf(v)
		if err != nil {
			t.Fatal(err)
		}
		g := make([]float64, h.Len())
		for i := range g {
			g[i] = h.At(i)
		}
		all = append(all, g)
	}
	return all
}

// train takes steps with Gorgonia's solver and returns the losses.
func (m *net) train(t testing.TB, vm G.VM, steps int, rate float64) (losses []float64) {
	t.Helper()
	defer vm.Close()
	s := G.NewVanillaSolver(G.WithLearnRate(rate))
	for range steps {
		losses = append(losses, m.run(t, vm))
		if err := s.Step(G.NodesToValueGrads(m.params)); err != nil {
			t.Fatal(err)
		}
		vm.Reset()
	}
	return losses
}

// machine makes ours, failing the test where it cannot.
func machine(t testing.TB, g *G.ExprGraph, opts ...Option) *Machine {
	t.Helper()
	vm, err := NewMachine(g, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { vm.Close() })
	return vm
}
