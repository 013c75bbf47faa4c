package eval

import (
	"fmt"
	"math"
	"testing"

	"ampc/ir"
)

// What the builder composes of rows has gradients: each against differences.
func TestComposedGradients(t *testing.T) {
	for name, c := range map[string]struct {
		in   []*Tensor
		vars int // of the first ones gradients are taken
		f    func(b *ir.Builder, v []*ir.Value) *ir.Value
	}{
		"weighted cross entropy": {[]*Tensor{normal(4, 3), Ints(ir.I32, []ir.Dim{4}, 2, 0, -100, 1), uniform(0.5, 2, 3)}, 1, func(b *ir.Builder, v []*ir.Value) *ir.Value {
			return b.WeightedCrossEntropy(v[0], v[1], v[2], nil)
		}},
		"weighted cross entropy, axis": {[]*Tensor{normal(2, 3, 2), Ints(ir.I32, []ir.Dim{2, 2}, 2, 0, 1, 1), uniform(0.5, 2, 3)}, 1, func(b *ir.Builder, v []*ir.Value) *ir.Value {
			return b.WeightedCrossEntropy(v[0], v[1], v[2], ir.A("axis", 1, "ignore", 1))
		}},
		"weighted bce": {[]*Tensor{normal(4, 3), uniform(0, 1, 4, 3), uniform(0.5, 4, 3)}, 3, func(b *ir.Builder, v []*ir.Value) *ir.Value {
			return b.WeightedBCE(v[0], v[1], v[2])
		}},
		"rnn": {[]*Tensor{normal(3, 2, 4), normal(4, 6), normal(2, 3, 3), normal(6), normal(2, 2, 3)}, 5, func(b *ir.Builder, v []*ir.Value) *ir.Value {
			y, h := b.RNN(v[0], v[1], v[2], v[3], v[4], "tanh", nil)
			return b.Add(b.ReduceSum(b.Square(y), false), b.ReduceSum(h, false))
		}},
		"rnn relu": {[]*Tensor{normal(3, 2, 4), normal(4, 3), normal(1, 3, 3)}, 3, func(b *ir.Builder, v []*ir.Value) *ir.Value {
			y, _ := b.RNN(v[0], v[1], v[2], nil, nil, "relu", ir.A("reverse", true))
			return b.ReduceSum(b.Square(y), false)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k := &bench{b: ir.NewBuilder("composed"), env: map[string]*Tensor{}}
			var v []*ir.Value
			for i, x := range c.in {
				v = append(v, k.input(fmt.Sprintf("in%d", i), x))
			}
			k.vars = v[:c.vars]
			loss := c.f(k.b, v)
			if err := k.b.Err(); err != nil {
				t.Fatal(err)
			}
			k.compare(t, name, loss, grads(k.b, loss, k.vars))
		})
	}
}

// RNN by its definition, both ways and from a state.
func TestRNN(t *testing.T) {
	const steps, batch, in, h = 4, 2, 3, 5
	x, w, r, bias, h0 := normal(steps, batch, in), normal(in, 2*h), normal(2, h, h), normal(2*h), normal(2, batch, h)
	for name, act := range map[string]func(float64) float64{"tanh": math.Tanh, "relu": func(x float64) float64 { return max(x, 0) }} {
		want := make([]float64, steps*batch*2*h)
		last := make([]float64, 2*batch*h)
		for d := range 2 {
			for n := range batch {
				state := append([]float64(nil), h0.F[(d*batch+n)*h:][:h]...)
				for i := range steps {
					s := i
					if d == 1 {
						s = steps - 1 - i
					}
					next := make([]float64, h)
					for j := range h {
						z := bias.F[d*h+j]
						for k := range in {
							z += x.F[(s*batch+n)*in+k] * w.F[k*2*h+d*h+j]
						}
						for k := range h {
							z += state[k] * r.F[(d*h+k)*h+j]
						}
						next[j] = act(z)
					}
					state = next
					copy(want[((s*batch+n)*2+d)*h:], state)
				}
				copy(last[(d*batch+n)*h:], state)
			}
		}
		b := ir.NewBuilder("rnn")
		env, v := map[string]*Tensor{}, []*ir.Value{}
		for i, x := range []*Tensor{x, w, r, bias, h0} {
			name := fmt.Sprintf("in%d", i)
			env[name] = x
			v = append(v, b.Declare(ir.Input, name, x.Type, nil, nil))
		}
		y, end := b.RNN(v[0], v[1], v[2], v[3], v[4], name, nil)
		if err := b.Err(); err != nil {
			t.Fatal(err)
		}
		got, err := Run(b.Graph(), env, Options{Float64: true})
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if x := got.Value(y).At(i); math.Abs(x-w) > 1e-9 {
				t.Fatalf("%s: h %d is %v, want %v", name, i, x, w)
			}
		}
		for i, w := range last {
			if x := got.Value(end).At(i); math.Abs(x-w) > 1e-9 {
				t.Fatalf("%s: last h %d is %v, want %v", name, i, x, w)
			}
		}
	}
}
