package onnx

import (
	"slices"

	"ampc/ir"
)

// contribRows are operators of onnxruntime's own domain, as its optimizers and
// exporters write them; ContribOperators.md of onnxruntime describes them.
var contribRows = []row{
	{domain: microsoft, op: "FusedMatMul", since: 1, single: true, ours: "transpose, matmul, affine", imp: fusedMatmul},
	{domain: microsoft, op: "FusedConv", since: 1, single: true, ours: "conv, add, an activation", not: "activations other than Relu, Tanh, Sigmoid, LeakyRelu, Clip and HardSigmoid", imp: fusedConv},
	{domain: microsoft, op: "Gelu", since: 1, ours: "gelu", imp: func(c *call) []*ir.Value { return one(c.b.Gelu(c.x(0), "erf")) }},
	{domain: microsoft, op: "BiasGelu", since: 1, ours: "add, gelu", imp: func(c *call) []*ir.Value { return one(c.b.Gelu(c.b.Add(c.x(0), c.x(1)), "erf")) }},
	{domain: microsoft, op: "FastGelu", since: 1, ours: "add, gelu", imp: func(c *call) []*ir.Value { return one(c.b.Gelu(c.plus(c.x(0), 1), "tanh")) }},
	{domain: microsoft, op: "QuickGelu", since: 1, ours: "affine, sigmoid, mul", imp: func(c *call) []*ir.Value {
		x := c.x(0)
		return one(c.b.Mul(x, c.b.Sigmoid(c.b.Affine(x, c.float("alpha", 1.702), 0))))
	}},
	{domain: microsoft, op: "SkipLayerNormalization", since: 1, single: true, ours: "add, layer_norm", not: "the statistics, results 1 and 2", imp: func(c *call) []*ir.Value {
		return skipNorm(c, 4, func(x *ir.Value, eps ir.Attrs) *ir.Value { return c.b.LayerNorm(x, c.opt(2), c.opt(3), eps) })
	}},
	{domain: microsoft, op: "SkipSimplifiedLayerNormalization", since: 1, single: true, ours: "add, rms_norm", not: "the statistics, results 1 and 2", imp: func(c *call) []*ir.Value {
		return skipNorm(c, 3, func(x *ir.Value, eps ir.Attrs) *ir.Value { return c.b.RMSNorm(x, c.opt(2), eps) })
	}},
	{domain: microsoft, op: "EmbedLayerNormalization", own: true, since: 1, single: true, ours: "gather, add, layer_norm", imp: embedNorm},
	{domain: microsoft, op: "MatMulNBits", since: 1, single: true, ours: "and, div, cast, sub, mul, matmul", not: "columns in another order (g_idx)", imp: matmulNBits},
}

// plus adds operand i, where there is one.
func (c *call) plus(x *ir.Value, i int) *ir.Value {
	if !c.has(i) {
		return x
	}
	return c.b.Add(x, c.x(i))
}

// fusedMatmul may turn an operand around, and the batch axes of one behind its rows before that.
func fusedMatmul(c *call) []*ir.Value {
	batched := func(i int, name string) (*ir.Value, []int64) {
		x, d := c.x(i), c.dims(i)
		if !c.flag(name, false) || len(d) < 3 {
			return x, d
		}
		perm := make([]int64, len(d)) // [rows, batch.., columns] in memory
		for k := range perm {
			perm[k] = int64(k) + 1
		}
		perm[len(d)-2], perm[len(d)-1] = 0, int64(len(d)-1)
		if x = c.b.Transpose(x, perm...); x == nil {
			return nil, d
		}
		return x, sizes(x.Type)
	}
	x, dx := batched(0, "transBatchA")
	y, dy := batched(1, "transBatchB")
	if c.failure() != nil || len(dx) == 0 || len(dy) == 0 {
		c.fail("an operand is a scalar, want a matrix")
		return nil
	}
	z := c.product(x, y, dx, dy, c.flag("transA", false) && len(dx) > 1, c.flag("transB", false) && len(dy) > 1)
	if alpha := c.float("alpha", 1); alpha != 1 {
		z = c.b.Affine(z, alpha, 0)
	}
	return one(z)
}

func fusedConv(c *call) []*ir.Value {
	ys := conv(c)
	if c.failure() != nil {
		return nil
	}
	y, params := c.plus(ys[0], 3), []float64{}
	if a := c.lookup("activation_params", AttrFloats); a != nil {
		for _, p := range a.Floats {
			params = append(params, float64(p))
		}
	}
	param := func(i int, or float64) float64 {
		if i < len(params) {
			return params[i]
		}
		return or
	}
	switch act := c.str("activation", ""); act {
	case "":
		return one(y)
	case "Relu":
		return one(c.b.Relu(y))
	case "Tanh":
		return one(c.b.Tanh(y))
	case "Sigmoid":
		return one(c.b.Sigmoid(y))
	case "LeakyRelu":
		return one(c.b.LeakyRelu(y, param(0, 0.01)))
	case "Clip":
		return one(c.b.Clip(y, param(0, -3.4e38), param(1, 3.4e38)))
	case "HardSigmoid":
		return one(c.b.Hardsigmoid(y, param(0, 0.2), param(1, 0.5)))
	default:
		c.refuse("activation %q is not supported", act)
		return nil
	}
}

// skipNorm normalizes a sum, which is result 3.
func skipNorm(c *call, bias int, norm func(x *ir.Value, a ir.Attrs) *ir.Value) []*ir.Value {
	x := c.plus(c.b.Add(c.x(0), c.x(1)), bias)
	return []*ir.Value{norm(x, ir.A("eps", c.float("epsilon", 1e-12))), nil, nil, x}
}

// embedNorm normalizes sums of embeddings of words, places and segments. Result 1 counts the
// tokens that the mask keeps.
func embedNorm(c *call) []*ir.Value {
	b, d := c.b, c.dims(0)
	if len(d) != 2 {
		c.fail("the ids have shape %v, want [batch, length]", d)
		return nil
	}
	x := b.Gather(c.x(2), c.x(0), 0)
	if c.has(8) {
		x = b.Add(x, b.Gather(c.x(3), c.x(8), 0))
	} else {
		x = b.Add(x, b.Slice(c.x(3), []int64{0}, []int64{0}, []int64{d[1]}))
	}
	if c.has(1) && c.has(4) {
		x = b.Add(x, b.Gather(c.x(4), c.x(1), 0))
	}
	kept := b.Full(ir.I32, 0, d[0])
	if c.has(7) {
		kept = b.ReduceSum(c.cast(b.Eq(c.x(7), c.lit(c.x(7), 1)), ir.I32), false, 1)
	}
	return []*ir.Value{b.LayerNorm(x, c.x(5), c.x(6), ir.A("eps", c.float("epsilon", 1e-12))), kept, x}
}

// unpacked are the numbers of bits each that lie in bytes, the lowest first, one more in the last axis.
func (c *call) unpacked(x *ir.Value, bits int64) *ir.Value {
	if x == nil || bits == 8 {
		return x
	}
	d := sizes(x.Type)
	var parts []*ir.Value
	for at := int64(0); at < 8; at += bits {
		p := c.b.And(c.b.Div(x, c.lit(x, float64(int64(1)<<at))), c.lit(x, float64(int64(1)<<bits-1)))
		parts = append(parts, c.reshape(p, append(slices.Clone(d), 1)...))
	}
	d[len(d)-1] *= 8 / bits
	return c.reshape(c.b.Concat(int64(len(d)), parts...), d...)
}

// matmulNBits multiplies by columns whose elements are packed in blocks, each with a scale.
func matmulNBits(c *call) []*ir.Value {
	k, n, bits, block := c.int("K", 0), c.int("N", 0), c.int("bits", 4), c.int("block_size", 0)
	if bits != 2 && bits != 4 && bits != 8 || block < 1 || k < 1 || n < 1 {
		c.fail("K %d, N %d, bits %d and block_size %d do not describe a supported matrix", k, n, bits, block)
		return nil
	}
	if c.has(4) {
		c.refuse("columns in another order (g_idx) are not supported")
		return nil
	}
	blocks, b := ceilDiv(k, block), c.b
	w := c.reshape(c.cast(c.unpacked(c.x(1), bits), ir.F32), n, blocks, block)
	for _, i := range []int{1, 2, 3} {
		if c.has(i) {
			c.keep(i)
		}
	}
	zero := b.Scalar(ir.F32, float64(int64(1)<<(bits-1)))
	switch {
	case !c.has(3):
	case c.typ(3).DType == ir.U8:
		z := c.x(3)
		if z != nil && c.rank(3) == 1 {
			z = c.reshape(z, n, c.dims(3)[0]/n)
		}
		zero = b.Slice(c.unpacked(z, bits), []int64{1}, []int64{0}, []int64{blocks})
		zero = c.reshape(c.cast(zero, ir.F32), n, blocks, 1)
	default:
		zero = c.reshape(c.cast(c.x(3), ir.F32), n, blocks, 1)
	}
	w = b.Mul(b.Sub(w, zero), c.reshape(c.cast(c.x(2), ir.F32), n, blocks, 1))
	w = c.reshape(w, n, blocks*block)
	if blocks*block > k {
		w = b.Slice(w, []int64{1}, []int64{0}, []int64{k})
	}
	y := c.product(c.cast(c.x(0), ir.F32), w, c.dims(0), []int64{n, k}, false, true)
	return one(c.plus(y, 5))
}
