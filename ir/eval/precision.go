package eval

import (
	"math"

	"ampc/ir"
)

var precisionFns = map[ir.Op]fn{
	ir.OpAnyNonfinite: evalAnyNonfinite,
	ir.OpGlobalNorm:   evalGlobalNorm,
}

func evalAnyNonfinite(c *call) error {
	for _, t := range c.in {
		for _, x := range t.F {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				c.out[0].I[0] = 1
				return nil
			}
		}
	}
	return nil
}

// evalGlobalNorm rounds each product g·mul to f32, as the optimizer that
// reads the same product does, and sums the squares in float64.
func evalGlobalNorm(c *call) error {
	mul := 1.0
	if c.in[0] != nil {
		mul = c.in[0].F[0]
	}
	sum := 0.0
	for _, t := range c.in[1:] {
		for _, x := range t.F {
			y := x * mul
			if !c.opt.Float64 {
				y = float64(float32(y))
			}
			sum += y * y
		}
	}
	c.out[0].F[0] = math.Sqrt(sum)
	return nil
}
