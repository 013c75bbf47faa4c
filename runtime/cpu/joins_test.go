package cpu_test

import (
	"slices"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime/cpu/kern"
)

// part computes an operand of a concatenation from an image of 4 channels.
type part func(b *ir.Builder, x *ir.Value) *ir.Value

// parts are kinds of steps that may store in the result of a concatenation: convolutions with epilogues of their own and
// with clusters behind them, with a residual, kernels, clusters.
var parts = map[string]part{
	"relu": func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Relu(convOf(b, x, "r", 3)) },
	"silu": func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Silu(convOf(b, x, "s", 1)) },
	"residual": func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Relu(b.Add(convOf(b, x, "a", 3), x))
	},
	"bare":    func(b *ir.Builder, x *ir.Value) *ir.Value { return convOf(b, x, "c", 3) },
	"softmax": func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Softmax(x, -1) },
	"cluster": func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Sigmoid(b.Add(x, x)) },
}

func convOf(b *ir.Builder, x *ir.Value, name string, taps ir.Dim) *ir.Value {
	w := b.Declare(ir.Input, name+".w", ir.T(ir.F32, 4, 4, taps, taps), nil, nil)
	bias := b.Declare(ir.Input, name+".b", ir.T(ir.F32, 4), nil, nil)
	pad := int64(taps / 2)
	return b.Conv(x, w, bias, ir.A("pads", []int64{pad, pad, pad, pad}))
}

// copying is the CPU without JoinsInPlace.
type copying struct{ lower.Target }

func (t copying) Caps() ir.Caps {
	c := t.Target.Caps()
	c.JoinsInPlace = false
	return c
}

// join is what a graph does with the results of parts.
type join struct {
	policy   string
	axis     int64
	batch    ir.Dim
	returned bool // the concatenation is a result; else it is read
	both     bool // so are its operands
}

// joined is a program that concatenates images.
func joined(t *testing.T, target lower.Target, j join, list ...part) *lower.Program {
	t.Helper()
	b := ir.NewBuilder("joins")
	x := b.Declare(ir.Input, "x", ir.T(ir.F32, j.batch, 4, 9, 11), nil, nil)
	var all []*ir.Value
	for _, f := range list {
		all = append(all, f(b, x))
	}
	c := b.Concat(j.axis, all...)
	if !j.returned {
		c = b.Softmax(b.Relu(c), -1)
	}
	if b.Return(c); j.both {
		b.Return(append([]*ir.Value{c}, all...)...)
	}
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	config := passes.Config{Compiling: passes.Compiling{Caps: lower.CPU.Caps()}}
	var err error
	if config.Policy, err = passes.PolicyNamed(j.policy); err != nil {
		t.Fatal(err)
	}
	g := b.Graph()
	if err := passes.Run(g, config); err != nil {
		t.Fatal(err)
	}
	p, err := lower.Lower(g, target)
	if err != nil {
		t.Fatal(err)
	}
	p.Target = lower.CPU
	return p
}

// In inference the operands of a concatenation lie in its result where each is a contiguous part of that and nothing else
// reads it. The bits are those of copies.
func TestJoinsInPlace(t *testing.T) {
	for first, f := range parts {
		for second, g := range parts {
			if first == second {
				continue
			}
			for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16"} {
				for _, axis := range []int64{0, 1} {
					j := join{policy: policy, axis: axis, batch: 1, returned: axis == 0}
					p, apart := joined(t, lower.CPU, j, f, g), joined(t, copying{lower.CPU}, j, f, g)
					n, bytes := copySteps(p)
					was, more := copySteps(apart)
					if was-n != 1 || bytes >= more {
						t.Errorf("%s, %s, %+v: %d copies, %d where operands are copied; %d and %d bytes\n%s", first, second, j, n, was, bytes, more, p)
					}
					path := kern.Paths()[0]
					if !slices.Equal(outputs(t, p, path, 2)[0], outputs(t, apart, path, 1)[0]) {
						t.Errorf("%s, %s, %+v: results differ\n%s", first, second, j, p)
					}
				}
			}
		}
	}
}

// Parts that are not contiguous, operands that something else reads, inputs, and results of steps with several are copied.
func TestJoinsThatCopy(t *testing.T) {
	same := func(_ *ir.Builder, x *ir.Value) *ir.Value { return x }
	pool := func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.MaxPool(x, ir.A("kernel", []int64{3, 3}, "strides", []int64{1, 1}, "pads", []int64{1, 1, 1, 1}))
	}
	for name, c := range map[string]struct {
		j    join
		list []part
	}{
		"two images":   {join{axis: 1, batch: 2}, []part{parts["relu"], parts["silu"]}},
		"an input":     {join{axis: 1, batch: 1}, []part{parts["relu"], same}},
		"along a row":  {join{axis: 3, batch: 1}, []part{parts["relu"], parts["softmax"]}},
		"and returned": {join{axis: 1, batch: 1, both: true}, []part{parts["relu"], parts["softmax"]}},
		"a pool":       {join{axis: 1, batch: 1}, []part{parts["relu"], pool}},
	} {
		c.j.policy = "f32"
		p := joined(t, lower.CPU, c.j, c.list...)
		if n, _ := copySteps(p); n != 1 {
			t.Errorf("%s: %d copies\n%s", name, n, p)
		}
	}
}
