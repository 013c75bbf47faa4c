package onnx

import "ampc/ir"

const previewTraining = "ai.onnx.preview.training"

// trainingRows are optimizers: operands R, T, then each kind of tensor in
// turn; results in the same order.
var trainingRows = []row{
	{domain: previewTraining, op: "Adagrad", since: 1, ours: "arithmetic", imp: func(c *call) []*ir.Value {
		rate := c.b.Div(c.x(0), c.b.Affine(c.cast(c.x(1), ir.F32), c.float("decay_factor", 0), 1))
		return c.optimize(3, func(x, g *ir.Value, s []*ir.Value) []*ir.Value {
			h := c.b.Add(s[0], c.b.Square(g))
			return []*ir.Value{c.b.Sub(x, c.b.Div(c.b.Mul(rate, g), c.b.Affine(c.b.Sqrt(h), 1, c.float("epsilon", 1e-6)))), h}
		})
	}},
	{domain: previewTraining, op: "Adam", since: 1, ours: "arithmetic", imp: adam},
	{domain: previewTraining, op: "Momentum", since: 1, ours: "arithmetic", imp: momentum},
}

// optimize calls step for every tensor, with its regularized gradient and its state.
func (c *call) optimize(kinds int, step func(x, g *ir.Value, state []*ir.Value) []*ir.Value) []*ir.Value {
	n := (len(c.in) - 2) / kinds
	if n < 1 || len(c.in) != 2+n*kinds {
		c.fail("the node has %d operands, want 2 and then %d for each tensor", len(c.in), kinds)
		return nil
	}
	out := make([]*ir.Value, n*(kinds-1))
	for i := range n {
		x := c.x(2 + i)
		g := c.b.Add(c.b.Affine(x, c.float("norm_coefficient", 0), 0), c.x(2+n+i))
		var state []*ir.Value
		for k := 2; k < kinds; k++ {
			state = append(state, c.x(2+k*n+i))
		}
		for k, y := range step(x, g, state) {
			out[k*n+i] = y
		}
	}
	return out
}

func adam(c *call) []*ir.Value {
	alpha, beta := c.float("alpha", 0.9), c.float("beta", 0.999)
	b, t := c.b, c.cast(c.x(1), ir.F32)
	missing := func(decay float64) *ir.Value { return b.Affine(b.Pow(c.lit(t, decay), t), -1, 1) }
	rate := b.Where(b.Gt(t, c.lit(t, 0)), b.Div(b.Mul(c.x(0), b.Sqrt(missing(beta))), missing(alpha)), c.x(0))
	return c.optimize(4, func(x, g *ir.Value, s []*ir.Value) []*ir.Value {
		v := b.Add(b.Affine(s[0], alpha, 0), b.Affine(g, 1-alpha, 0))
		h := b.Add(b.Affine(s[1], beta, 0), b.Affine(b.Square(g), 1-beta, 0))
		y := b.Sub(x, b.Div(b.Mul(rate, v), b.Affine(b.Sqrt(h), 1, c.float("epsilon", 1e-6))))
		return []*ir.Value{b.Affine(y, 1-c.float("norm_coefficient_post", 0), 0), v, h}
	})
}

func momentum(c *call) []*ir.Value {
	alpha, beta := c.float("alpha", 0), c.float("beta", 0)
	b, t := c.b, c.cast(c.x(1), ir.F32)
	share := b.Where(b.Gt(t, c.lit(t, 0)), c.lit(t, beta), c.lit(t, 1))
	return c.optimize(3, func(x, g *ir.Value, s []*ir.Value) []*ir.Value {
		v := b.Add(b.Affine(s[0], alpha, 0), b.Mul(share, g))
		if c.str("mode", "standard") == "nesterov" {
			return []*ir.Value{b.Sub(x, b.Mul(c.x(0), b.Add(g, b.Affine(v, alpha, 0)))), v}
		}
		return []*ir.Value{b.Sub(x, b.Mul(c.x(0), v)), v}
	})
}
