package main

import (
	"context"
	"fmt"
	"io"
	"math"

	"ampc"
	"ampc/ir"
)

// gate is y = x·tanh(g) for a scalar g. The operand g is Fixed: it stays f32
// under every policy. x is of class promote: stored as wide as it comes.
func gate() ampc.CustomOp {
	return &ir.Def{
		Name: "gate", Doc: "x·tanh(g) for a scalar g.",
		In:  []ir.Operand{{Name: "x"}, {Name: "g", Class: ir.Fixed}},
		Out: []ir.Result{{Name: "y"}}, Class: ir.PromoteC, Why: "takes what it is given", Unit: ir.UnitSame,
		Infer: func(n *ir.Node) ([]ir.Type, error) {
			if n.In[1].Type != ir.T(ir.F32) {
				return nil, fmt.Errorf("gate is %s, want f32[]", n.In[1].Type)
			}
			return []ir.Type{n.In[0].Type}, nil
		},
		Grad: func(b *ir.Builder, n *ir.Node, d []*ir.Value) []*ir.Value {
			t := b.Tanh(n.In[1])
			dx := b.Mul(d[0], t)
			slope := b.Affine(b.Square(t), -1, 1) // 1 - tanh²
			return []*ir.Value{dx, b.Mul(b.ReduceSum(b.Mul(d[0], n.In[0]), false), slope)}
		},
		Kernel: func(_ *ir.Node, in, out []any) error {
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
	a := b.Attention("attn", b.LayerNorm("ln1", x), 4, ampc.Causal())
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
