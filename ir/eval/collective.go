package eval

import (
	"fmt"
	"math"

	"ampc/ir"
)

// collectiveFns take what the other ranks have from Options.Exchange. Without it
// there is one rank.
var collectiveFns = map[ir.Op]fn{ir.OpAllReduce: evalAllReduce, ir.OpAllGather: alone, ir.OpReduceScatter: alone}

// Exchange hands a collective's operands, as this rank sends them, to the other ranks
// and returns what every rank sends, in order of ranks.
type Exchange func(n *ir.Node, sent []*Tensor) ([][]*Tensor, error)

func alone(c *call) error {
	if r := c.Int("ranks"); r != 1 {
		return fmt.Errorf("needs %d ranks", r)
	}
	return same(c)
}

// evalAllReduce rounds what is sent to the messages' dtype, adds in f32 in order of
// ranks, and rounds the sum once more, as it is sent back.
func evalAllReduce(c *call) error {
	ranks := int(c.Int("ranks"))
	all := [][]*Tensor{c.in}
	if ranks > 1 {
		if c.opt.Exchange == nil {
			return fmt.Errorf("needs %d ranks", ranks)
		}
		var err error
		if all, err = c.opt.Exchange(c.Node, c.in); err != nil {
			return err
		}
		if len(all) != ranks {
			return fmt.Errorf("needs %d ranks, there are %d", ranks, len(all))
		}
	}
	for k, y := range c.out {
		for i := range y.I {
			y.I[i] = all[0][k].I[i]
			for _, r := range all[1:] {
				if c.Str("op") == "max" {
					y.I[i] = max(y.I[i], r[k].I[i])
				} else {
					y.I[i] += r[k].I[i]
				}
			}
		}
		for i := range y.F {
			y.F[i] = c.reduced(len(all), func(r int) float64 { return all[r][k].F[i] })
		}
	}
	return nil
}

// reduced is one float element over all ranks.
func (c *call) reduced(ranks int, x func(rank int) float64) float64 {
	down, msg := math.Ldexp(1, -int(c.Int("shift"))), c.DT("msg")
	sent := func(v float64) float64 {
		if c.opt.Float64 || ranks == 1 || c.in[0].Type.DType == ir.F64 {
			return v
		}
		return Round(v, msg)
	}
	if ranks == 1 {
		return x(0)
	}
	if c.Str("op") == "max" {
		y := x(0)
		for r := 1; r < ranks; r++ {
			y = math.Max(y, x(r)) // NaN wins
		}
		return y
	}
	y := sent(x(0) * down)
	for r := 1; r < ranks; r++ {
		y += sent(x(r) * down)
		if !c.opt.Float64 && c.in[0].Type.DType != ir.F64 {
			y = float64(float32(y))
		}
	}
	if c.Str("op") == "mean" {
		y /= float64(ranks)
	}
	return sent(y) / down
}
