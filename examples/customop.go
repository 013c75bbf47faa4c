package main

import (
	"context"
	"fmt"
	"io"
	"math"

	"ampc"
)

// gate is y = x·tanh(g) for a scalar g. The operand g is ClassFixed: it stays f32
// under every policy. x is ClassPromote: stored as wide as it comes.
func gate() *ampc.CustomOp {
	return &ampc.CustomOp{
		Name: "gate", Doc: "x·tanh(g) for a scalar g.",
		Operands: []ampc.CustomOperand{{Name: "x"}, {Name: "g", Class: ampc.ClassFixed}},
		Results:  []ampc.CustomResult{{Name: "y"}},
		Class:    ampc.ClassPromote, Why: "takes what it is given", Scaling: ampc.ScaleSame,
		Infer: func(c *ampc.CustomCall) ([]ampc.Type, error) {
			x, g := c.Operand(0), c.Operand(1)
			if g.Type() != ampc.TypeOf(ampc.F32) {
				return nil, fmt.Errorf("gate is %s, want f32[]", g)
			}
			return []ampc.Type{x.Type()}, nil
		},
		Grad: func(b *ampc.Backward, c *ampc.CustomCall, d []ampc.Tensor) []ampc.Tensor {
			x, g := c.Operand(0), c.Operand(1)
			t := b.Tanh(g)
			slope := b.Affine(b.Square(t), -1, 1) // 1 - tanh²
			return []ampc.Tensor{b.Mul(d[0], t), b.Mul(b.ReduceSum(b.Mul(d[0], x)), slope)}
		},
		Kernel: func(_ *ampc.CustomCall, in, out []any) error {
			x, g, y := in[0].([]float32), in[1].([]float32), out[0].([]float32)
			t := float32(math.Tanh(float64(g[0])))
			for i, v := range x {
				y[i] = v * t
			}
			return nil
		},
	}
}

func customOp(w io.Writer) error {
	const batch, seq, vocab, dim = 8, 32, 128, 32
	m := ampc.New("gated")
	ids, next := m.Input("ids", ampc.I32, batch, seq), m.Input("next", ampc.I32, batch, seq)
	x := m.Embedding("wte", ids, vocab, dim)
	b := m.Scope("h0")
	a := b.Attention("attn", b.LayerNorm("ln1", x), 4, ampc.AttentionOptions{Causal: true})
	g := m.Param("g", ampc.Fill(0.1))
	x = b.Add(x, b.Apply(gate(), a, g))
	loss := m.CrossEntropy(m.Linear("head", m.LayerNorm("lnf", x), vocab), next)
	step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.Adam(), LR: ampc.Constant(1e-2), Policy: ampc.MixedF16()}, ampc.Loss{Value: loss})
	if err != nil {
		return err
	}
	defer m.Close()
	for i := range 101 {
		r, err := step.Run(context.Background(), windows(uint64(i), batch, seq))
		if err != nil {
			return err
		}
		if i%50 == 0 {
			opened, err := m.Variable("g")
			if err != nil {
				return err
			}
			got, err := r.Wait(context.Background())
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "step %3d  loss %.4f  gate %.3f\n", i, got.Loss, opened.At(0))
		}
	}
	return nil
}
