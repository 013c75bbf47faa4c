package ampc

import "ampc/ir"

// draw names the variables that random ops draw with, declaring them once, and
// a site of its own.
func (m *Model) draw() ir.Draw {
	declare := func(kind ir.VarKind, d ir.DType, role string) *ir.Value {
		for _, v := range m.Graph().Vars {
			if v.Attr.Get("role") == role {
				return v
			}
		}
		var init *ir.Init
		if kind == ir.State {
			init = Fill(0).f
		}
		return m.root.Declare(kind, ir.Reserved+role, ir.T(d), init, ir.A("role", role))
	}
	return ir.Draw{Seed: declare(ir.State, ir.I64, "seed"), Attempt: declare(ir.State, ir.I32, "attempt"), Micro: declare(ir.Input, ir.I32, "micro"), Site: m.b.Site()}
}

// RandUniform draws evenly from lo to hi, other numbers in every step.
//
//   - Shapes: to [dims...].
//   - DTypes: float.
//   - Errors: d is no float, lo above hi, or a dimension below 1.
//   - PyTorch: torch.rand, Tensor.uniform_.
func (m *Model) RandUniform(d DType, lo, hi float64, dims ...int) Tensor {
	return m.tensor(m.b.Uniform(d.ir(), lo, hi, m.draw(), wide(dims)...))
}

// RandNormal draws from a normal distribution, other numbers in every step.
//
//   - Shapes: to [dims...].
//   - DTypes: float.
//   - Errors: d is no float, std below 0, or a dimension below 1.
//   - PyTorch: torch.randn, torch.normal.
func (m *Model) RandNormal(d DType, mean, std float64, dims ...int) Tensor {
	return m.tensor(m.b.Normal(d.ir(), mean, std, m.draw(), wide(dims)...))
}

// RandBernoulli draws 1 with probability p, else 0, other numbers in every step.
//
//   - Shapes: to [dims...].
//   - DTypes: float.
//   - Errors: d is no float, p outside 0 to 1, or a dimension below 1.
//   - PyTorch: torch.bernoulli of one probability.
func (m *Model) RandBernoulli(d DType, p float64, dims ...int) Tensor {
	return m.tensor(m.b.Bernoulli(d.ir(), p, m.draw(), wide(dims)...))
}
