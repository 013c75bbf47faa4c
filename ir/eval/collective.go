package eval

import (
	"fmt"
	"math"

	"ampc/ir"
)

// collectiveFns get the operands of other ranks from Options.Exchange. Without it there is one
// rank.
var collectiveFns = map[ir.Op]fn{ir.OpAllReduce: evalAllReduce, ir.OpAllGather: evalAllGather, ir.OpReduceScatter: evalReduceScatter}

// Exchange hands a collective's operands, as this rank sends them, to the other ranks
// and returns what every rank sends, in order of ranks. Where micro-batches of a rank meet, too, it
// returns what each of them sends.
type Exchange func(n *ir.Node, sent []*Tensor) ([][]*Tensor, error)

// operandsOfAll returns the operands of all ranks, in order of ranks.
func (c *call) operandsOfAll() ([][]*Tensor, error) {
	ranks := int(c.Meets())
	if ranks == 1 {
		return [][]*Tensor{c.in}, nil
	}
	if c.opt.Exchange == nil {
		return nil, fmt.Errorf("needs %d ranks", ranks)
	}
	all, err := c.opt.Exchange(c.Node, c.in)
	if err == nil && len(all) != ranks {
		err = fmt.Errorf("needs %d ranks, there are %d", ranks, len(all))
	}
	return all, err
}

// evalAllGather joins the ranks' operands along the axis, in order of ranks, or makes whole
// tensors of the ranges that ranks have.
func evalAllGather(c *call) error {
	all, err := c.operandsOfAll()
	if err != nil {
		return err
	}
	flat := c.Attrs.Get("shapes") != nil
	for k, y := range c.out {
		d, axis := c.in[k].dims(), 0
		if !flat {
			axis = c.axis(len(d))
		}
		rows, size, inner := blocks(d, axis)
		width := size * inner // elements of a rank's part that lie together
		for r := range all {
			x := all[r][k]
			for i := range rows {
				at := (i*len(all) + r) * width
				if y.F != nil {
					copy(y.F[min(at, len(y.F)):], x.F[i*width:(i+1)*width])
				} else {
					copy(y.I[min(at, len(y.I)):], x.I[i*width:(i+1)*width])
				}
			}
		}
	}
	return nil
}

// evalReduceScatter adds up and keeps the rank's own part: along the axis, or a range of the
// flattened tensor, with zeros behind its end.
func evalReduceScatter(c *call) error {
	all, err := c.operandsOfAll()
	if err != nil {
		return err
	}
	for k, y := range c.out {
		d, axis := c.out[k].dims(), 0
		if !c.Flag("flat") {
			axis = c.axis(len(d))
		}
		rows, size, inner := blocks(d, axis)
		width := size * inner
		for i := range rows * width {
			at := (i/width*len(all)+c.opt.Rank)*width + i%width
			switch {
			case y.F != nil && at >= len(c.in[k].F):
				y.F[i] = 0
			case y.F != nil:
				y.F[i] = c.reduced(len(all), func(r int) float64 { return all[r][k].F[at] })
			default:
				y.I[i] = 0
				for r := range all {
					if at < len(c.in[k].I) {
						y.I[i] += all[r][k].I[at]
					}
				}
			}
		}
	}
	return nil
}

// evalAllReduce rounds what is sent to the messages' dtype, adds in f32 in order of
// ranks, and rounds the sum once more, as it is sent back.
func evalAllReduce(c *call) error {
	all, err := c.operandsOfAll()
	if err != nil {
		return err
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
			y = math.Max(y, x(r)) // NaN has priority
		}
		return y
	}
	add := func(a, b float64) float64 {
		if c.opt.Float64 || c.in[0].Type.DType == ir.F64 {
			return a + b
		}
		return float64(float32(a + b))
	}
	var y float64
	if c.Flag("tree") {
		y = treeSum(ranks, func(r int) float64 { return sent(x(r) * down) }, add)
	} else {
		y = sent(x(0) * down)
		for r := 1; r < ranks; r++ {
			y = add(y, sent(x(r)*down))
		}
	}
	if c.Str("op") == "mean" {
		y /= float64(ranks)
	}
	return sent(y) / down
}

// treeSum adds the first half and the second half of n numbers, a power of two, each in
// the same way, and then both.
func treeSum(n int, x func(i int) float64, add func(a, b float64) float64) float64 {
	if n == 1 {
		return x(0)
	}
	half := n / 2
	return add(treeSum(half, x, add), treeSum(half, func(i int) float64 { return x(half + i) }, add))
}
