package cpu

import (
	"math"
	"slices"
)

// doubleReductions reduce f64 in f64, over the elements of one result in row-major order.
var doubleReductions = map[string]func(c *call, x []float64) float64{
	"reduce_sum":  func(_ *call, x []float64) float64 { return sumOf(x) },
	"reduce_mean": func(_ *call, x []float64) float64 { return sumOf(x) / float64(len(x)) },
	"reduce_max": func(_ *call, x []float64) float64 {
		return fold64(x, math.Inf(-1), func(a, v float64) float64 { return max(a, v) })
	},
	"reduce_min": func(_ *call, x []float64) float64 {
		return fold64(x, math.Inf(1), func(a, v float64) float64 { return min(a, v) })
	},
	"reduce_prod": func(_ *call, x []float64) float64 { return fold64(x, 1, func(a, v float64) float64 { return a * v }) },
	"reduce_l1": func(_ *call, x []float64) float64 {
		return fold64(x, 0, func(a, v float64) float64 { return a + math.Abs(v) })
	},
	"reduce_l2": func(_ *call, x []float64) float64 {
		return math.Sqrt(fold64(x, 0, func(a, v float64) float64 { return a + v*v }))
	},
	"reduce_var": func(c *call, x []float64) float64 {
		mean := sumOf(x) / float64(len(x))
		return fold64(x, 0, func(a, v float64) float64 { return a + (v-mean)*(v-mean) }) / (float64(len(x)) - float64(c.Int("correction")))
	},
	"logsumexp": func(_ *call, x []float64) float64 {
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
	f := doubleReductions[c.Def().Name]
	if c.Def().Name == "sum_to" {
		f = doubleReductions["reduce_sum"]
	}
	if f == nil {
		return nil
	}
	g := newGatherer(shape, reducedDims)
	x, y := slice[float64](c.in[0].mem), slice[float64](c.out[0].mem)
	rows := make([][]float64, c.m.Pool().Workers())
	for w := range rows {
		rows[w] = make([]float64, g.n)
	}
	return c.parallel(len(y), max(g.n, 1), func(w, k int) {
		g.gather(k, func(at, from int) { rows[w][at] = x[from] })
		y[k] = f(c, rows[w])
	})
}
