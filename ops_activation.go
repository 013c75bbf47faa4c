package ampc

// Gelu is the exact Gaussian error linear unit, x·Φ(x).
//
//   - Shapes: x[...] to the same.
//   - DTypes: float; the result has x's.
//   - Errors: x is no float.
//   - PyTorch: nn.GELU, F.gelu.
func (o ops) Gelu(x Tensor) Tensor { return o.tensor(o.b.Gelu(x.v, "erf")) }

// GeluTanh is the tanh approximation of Gelu, which GPT-2 was trained with. On
// a GPU a linear layer before it ends in it.
//
//   - Shapes: x[...] to the same.
//   - DTypes: float; the result has x's.
//   - Errors: x is no float.
//   - PyTorch: nn.GELU(approximate="tanh"), F.gelu(approximate="tanh").
func (o ops) GeluTanh(x Tensor) Tensor { return o.tensor(o.b.Gelu(x.v, "tanh")) }
