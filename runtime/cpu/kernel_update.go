package cpu

import "ampc/runtime/cpu/kern"

// updateKernels read all gradients in one step.
var updateKernels = map[string]binder{
	"any_nonfinite": bindAnyNonfinite,
	"global_norm":   bindGlobalNorm,
}

// updateChunk is how many elements of one tensor a task reads.
const updateChunk = 1 << 14

// overChunks runs f over chunks of all the tensors in list, widened to f32:
// chunk k of all of them, in order.
func (c *call) overChunks(list []view, f func(k int, x []float32)) (run func(), chunks int) {
	type place struct {
		v    view
		from int
	}
	var places []place
	for _, v := range list {
		for at := 0; at < v.len(); at += updateChunk {
			places = append(places, place{v, at})
		}
	}
	block := c.scratch(updateChunk)
	run = c.parallel(len(places), updateChunk, func(w, k int) {
		p := places[k]
		x := block[w][:min(updateChunk, p.v.len()-p.from)]
		c.m.Load(x, p.v.buf().From(p.from))
		f(k, x)
	})
	return run, len(places)
}

func bindAnyNonfinite(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	var bad []bool
	run, n := c.overChunks(c.in, func(k int, x []float32) {
		c.m.Binary(kern.Sub, x, x, x) // 0, or NaN where x is not finite
		s := c.m.Sum(x)
		bad[k] = s != s
	})
	bad = make([]bool, n)
	flag := c.out[0]
	return func() {
		run()
		any := false
		for _, b := range bad {
			any = any || b
		}
		flag.setInt(0, int64(truth(any)))
	}, nil
}

func bindGlobalNorm(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	var part []float64
	mul := make([]float32, updateChunk)
	run, n := c.overChunks(c.in[1:], func(k int, x []float32) {
		c.m.Binary(kern.Mul, x, x, mul[:len(x)])
		part[k] = float64(c.m.SumSq(x))
	})
	part = make([]float64, n)
	by, out := c.arg(0), c.out[0]
	return func() {
		c.m.Fill(mul, or1(by, 0))
		run()
		out.set(0, sqrt32(sum64(part)))
	}, nil
}
