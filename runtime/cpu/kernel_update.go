package cpu

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// updateKernels read all gradients in one step.
var updateKernels = map[ir.Op]binder{
	ir.OpAnyNonfinite: bindAnyNonfinite,
	ir.OpGlobalNorm:   bindGlobalNorm,
}

// A task of these kernels reads updateChunk elements of one tensor, in blocks of updateBlock.
const (
	updateChunk = 1 << 14
	updateBlock = 1 << 10
)

// overChunks runs f over all tensors of list in chunks, and sums the results of f over the blocks
// of each chunk. x is a block in f32, and tmp has the same length. If check is set, marks[k] is NaN
// if chunk k contains a non-finite element. f is finite only for finite elements.
func (c *call) overChunks(list []view, check bool, f func(x, tmp []float32) float64) (run func(), sums, marks []float64) {
	chunks, first, n := make([]int, len(list)), make([]int, len(list)), 0
	for i, v := range list {
		chunks[i], first[i] = (v.len()+updateChunk-1)/updateChunk, n
		n += chunks[i]
	}
	scratch := c.scratch(2 * updateBlock)
	sums, marks = make([]float64, n), make([]float64, n)
	zeros := make([]float32, updateBlock)
	tasks := &spreadTasks{}
	region := c.parallel(n, updateChunk, func(w, task int) {
		k := tasks.order[task]
		v, from := list[k.tensor], k.at*updateChunk
		end := min(from+updateChunk, v.len())
		sum, mark := 0.0, 0.0
		for at := from; at < end; at += updateBlock {
			n := min(updateBlock, end-at)
			x := scratch[w][:n]
			if v.t.DType == ir.F32 {
				x = v.f32()[at : at+n]
			} else {
				c.m.Load(x, v.buf().From(at))
			}
			of := math.NaN()
			if f != nil {
				of = f(x, scratch[w][updateBlock:updateBlock+n])
				sum += of
			}
			if check && of-of != 0 { // zero times a non-finite number is NaN
				mark += float64(c.m.Dot(x, zeros[:n]))
			}
		}
		i := first[k.tensor] + k.at
		sums[i], marks[i] = sum, mark
	})
	return func() {
		tasks.spreadBackwards(c.m.Pool().Threads(), chunks)
		region()
	}, sums, marks
}

// spreadBackwards is spread with every worker's tasks from the last tensor backwards: the update goes
// forwards and finds the tensors read last in the cache.
func (t *spreadTasks) spreadBackwards(workers int, chunks []int) {
	if t.workers == workers {
		return
	}
	t.spread(workers, func() []int { return chunks })
	for w := range workers {
		slices.Reverse(shareOf(t.order, w, workers))
	}
}

// finiteCheck says whether a norm has read a non-finite element.
type finiteCheck struct{ marks []float64 }

func (f *finiteCheck) any() bool {
	s := sum64(f.marks)
	return s != s
}

func bindAnyNonfinite(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	run, _, marks := c.overChunks(c.unchecked(), true, nil)
	own, norms, flag := finiteCheck{marks}, c.norms, c.out[0]
	return func() {
		run()
		bad := own.any()
		for _, n := range norms {
			bad = bad || n.any()
		}
		flag.setInt(0, int64(boolFloat(bad)))
	}, nil
}

func bindGlobalNorm(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	mul := make([]float32, updateBlock)
	run, sums, marks := c.overChunks(c.in[1:], c.own != nil, func(x, tmp []float32) float64 {
		if mul[0] != 1 {
			c.m.Binary(kern.Mul, tmp, x, mul[:len(x)])
			x = tmp
		}
		return float64(c.m.SumSq(x))
	})
	if c.own != nil {
		c.own.marks = marks
	}
	by, out := c.arg(0), c.out[0]
	return func() {
		c.m.Fill(mul, or1(by, 0))
		run()
		out.set(0, sqrt32(sum64(sums)))
	}, nil
}

// or1 returns element i, or 1 if the operand is absent.
func or1(v view, i int) float32 {
	if v.absent() {
		return 1
	}
	return v.float(i)
}
