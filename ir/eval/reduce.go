package eval

import (
	"math"

	"ampc/ir"
)

// reduceFns fold all elements along axes.
var reduceFns = map[ir.Op]fn{
	ir.OpReduceSum:  reduceSum,
	ir.OpReduceMean: folded(func(v []float64) float64 { return sum(v) / float64(len(v)) }),
	ir.OpReduceVar:  reduceVar,
	ir.OpReduceMax:  extreme(math.Inf(-1), maximum, larger),
	ir.OpReduceMin:  extreme(math.Inf(1), minimum, smaller),
	ir.OpReduceProd: reduceProd,
	ir.OpReduceL1:   folded(func(v []float64) float64 { return fold(0, v, func(a, x float64) float64 { return a + math.Abs(x) }) }),
	ir.OpReduceL2: folded(func(v []float64) float64 {
		return math.Sqrt(fold(0, v, func(a, x float64) float64 { return a + x*x }))
	}),
	ir.OpLogSumExp: folded(logSumExp),
}

// groups lists, for each element of a reduction's result, the operand's
// elements that it is made of, in row-major order.
func groups(c *call) [][]int {
	d := c.in[0].dims()
	keep := append([]int(nil), d...)
	for _, a := range c.Axes() {
		keep[a] = 1
	}
	s := broadcastStrides(keep, d)
	g := make([][]int, c.out[0].Len())
	eachIndex(d, func(i int, at []int) { k := dot(at, s); g[k] = append(g[k], i) })
	return g
}

// folded evaluates a float reduction from the elements of each group.
func folded(f func(v []float64) float64) fn {
	return func(c *call) error {
		for k, g := range groups(c) {
			v := make([]float64, len(g))
			for j, i := range g {
				v[j] = c.in[0].At(i)
			}
			c.out[0].F[k] = f(v)
		}
		return nil
	}
}

func fold(a float64, v []float64, f func(a, x float64) float64) float64 {
	for _, x := range v {
		a = f(a, x)
	}
	return a
}

func sum(v []float64) float64 { return fold(0, v, func(a, x float64) float64 { return a + x }) }

func reduceSum(c *call) error {
	if c.out[0].F != nil {
		return folded(sum)(c)
	}
	return foldInts(c, 0, func(a, x int64) int64 { return a + x })
}

func reduceProd(c *call) error {
	if c.out[0].F != nil {
		return folded(func(v []float64) float64 { return fold(1, v, func(a, x float64) float64 { return a * x }) })(c)
	}
	return foldInts(c, 1, func(a, x int64) int64 { return a * x })
}

func foldInts(c *call, zero int64, f func(a, x int64) int64) error {
	for k, g := range groups(c) {
		a := zero
		for _, i := range g {
			a = f(a, c.in[0].I[i])
		}
		c.out[0].I[k] = c.out[0].Type.DType.Wrap(a)
	}
	return nil
}

// extreme is a maximum or minimum; of no floats it is the given infinity.
// of no integers the dtype's limit.
func extreme(empty float64, f func(x, y float64) float64, g func(d ir.DType, x, y int64) int64) fn {
	return func(c *call) error {
		if c.out[0].F != nil {
			return folded(func(v []float64) float64 { return fold(empty, v, f) })(c)
		}
		d := c.out[0].Type.DType
		limit, most := d.Limits()
		if empty > 0 {
			limit = most
		}
		return foldInts(c, limit, func(x, y int64) int64 { return g(d, x, y) })
	}
}

func reduceVar(c *call) error {
	correction := float64(c.Int("correction"))
	return folded(func(v []float64) float64 {
		mean := sum(v) / float64(len(v))
		return fold(0, v, func(a, x float64) float64 { return a + (x-mean)*(x-mean) }) / (float64(len(v)) - correction)
	})(c)
}

func logSumExp(v []float64) float64 {
	m := fold(math.Inf(-1), v, maximum)
	if math.IsInf(m, 0) || m != m {
		return m
	}
	return m + math.Log(fold(0, v, func(a, x float64) float64 { return a + math.Exp(x-m) }))
}
