package cpu

import (
	"math"
	"slices"

	"ampc/ir"
)

// doubleReductions reduce f64 in f64, over the elements of one result in row-major order.
var doubleReductions = map[ir.Op]func(c *call, x []float64) float64{
	ir.OpReduceSum:  func(_ *call, x []float64) float64 { return sumOf(x) },
	ir.OpReduceMean: func(_ *call, x []float64) float64 { return sumOf(x) / float64(len(x)) },
	ir.OpReduceMax: func(_ *call, x []float64) float64 {
		return fold64(x, math.Inf(-1), func(a, v float64) float64 { return max(a, v) })
	},
	ir.OpReduceMin: func(_ *call, x []float64) float64 {
		return fold64(x, math.Inf(1), func(a, v float64) float64 { return min(a, v) })
	},
	ir.OpReduceProd: func(_ *call, x []float64) float64 { return fold64(x, 1, func(a, v float64) float64 { return a * v }) },
	ir.OpReduceL1: func(_ *call, x []float64) float64 {
		return fold64(x, 0, func(a, v float64) float64 { return a + math.Abs(v) })
	},
	ir.OpReduceL2: func(_ *call, x []float64) float64 {
		return math.Sqrt(fold64(x, 0, func(a, v float64) float64 { return a + v*v }))
	},
	ir.OpReduceVar: func(c *call, x []float64) float64 {
		mean := sumOf(x) / float64(len(x))
		return fold64(x, 0, func(a, v float64) float64 { return a + (v-mean)*(v-mean) }) / (float64(len(x)) - float64(c.Int("correction")))
	},
	ir.OpLogSumExp: func(_ *call, x []float64) float64 {
		if len(x) == 0 {
			return math.Inf(-1)
		}
		m := slices.Max(x)
		if math.IsInf(m, 0) || m != m {
			return m
		}
		return m + math.Log(fold64(x, 0, func(a, v float64) float64 { return a + math.Exp(v-m) }))
	},
}

func fold64(x []float64, a float64, f func(a, v float64) float64) float64 {
	for _, v := range x {
		a = f(a, v)
	}
	return a
}

func sumOf(x []float64) float64 {
	return fold64(x, 0, func(a, v float64) float64 { return a + v })
}

// doubles binds a reduction of f64; nil if there is none.
func (c *call) doubles(shape []int, reducedDims []bool) func() {
	f := doubleReductions[c.Op]
	if c.Op == ir.OpSumTo {
		f = doubleReductions[ir.OpReduceSum]
	}
	if f == nil {
		return nil
	}
	g := newGatherer(shape, reducedDims)
	x, y := slice[float64](c.in[0].mem), slice[float64](c.out[0].mem)
	rows := perWorker(c.mem, func() []float64 { return make([]float64, g.n) })
	return c.parallel(len(y), max(g.n, 1), func(w, k int) {
		g.gather(k, func(at, from int) { rows[w][at] = x[from] })
		y[k] = f(c, rows[w])
	})
}
