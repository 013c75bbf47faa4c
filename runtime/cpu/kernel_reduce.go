package cpu

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// reduceKernels reduce elements along axes.
var reduceKernels = map[ir.Op]binder{
	ir.OpReduceSum:  reduction{fast: kern.ReduceSum, isFast: true, ints: func(a, x int64) int64 { return a + x }}.bind,
	ir.OpReduceMean: reduction{fast: kern.ReduceMean, isFast: true}.bind,
	ir.OpReduceMax:  reduction{fast: kern.ReduceMax, isFast: true, ints: func(a, x int64) int64 { return max(a, x) }, order: true}.bind,
	ir.OpReduceMin:  reduction{fast: kern.ReduceMin, isFast: true, ints: func(a, x int64) int64 { return min(a, x) }, order: true}.bind,
	ir.OpReduceL2:   reduction{fold: addSquares, join: func(a, b float64) float64 { return a + b }, last: sqrt32}.bind,
	ir.OpReduceL1: reduction{row: func(c *call, x []float32) float32 {
		c.m.Unary(kern.Abs, x, x)
		return c.m.Sum(x)
	}}.bind,
	ir.OpReduceProd: reduction{ints: func(a, x int64) int64 { return a * x }, zero: 1, last: func(p float64) float32 { return float32(p) }, fold: func(p float64, x []float32) float64 {
		for _, v := range x {
			p *= float64(v)
		}
		return p
	}}.bind,
	ir.OpReduceVar: reduction{row: func(c *call, x []float32) float32 {
		var sum, sq float64
		for _, v := range x {
			sum += float64(v)
		}
		mean := sum / float64(len(x))
		for _, v := range x {
			sq += (float64(v) - mean) * (float64(v) - mean)
		}
		return float32(sq / (float64(len(x)) - float64(c.Int("correction"))))
	}}.bind,
	ir.OpLogSumExp: reduction{row: func(c *call, x []float32) float32 {
		m := c.m.MaxOf(x)
		if math.IsInf(float64(m), 0) || m != m {
			return m
		}
		s := 0.0
		for _, v := range x {
			s += math.Exp(float64(v) - float64(m))
		}
		return float32(float64(m) + math.Log(s))
	}}.bind,
	ir.OpSumTo:  bindSumTo,
	ir.OpArgmax: bindArg(func(x, best float32) bool { return x > best }),
	ir.OpArgmin: bindArg(func(x, best float32) bool { return x < best }),
	ir.OpCummax: bindCumulative(func(x, best float64) bool { return x >= best }),
	ir.OpCummin: bindCumulative(func(x, best float64) bool { return x <= best }),
	ir.OpCumsum: bindCumsum, ir.OpLinearScan: bindLinearScan,
}

func sqrt32(x float64) float32 { return float32(math.Sqrt(x)) }

// addSquares adds the squares of x to s, one after the other.
func addSquares(s float64, x []float32) float64 {
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return s
}

// reduction reduces the elements of each result. If package kern has the reduction, it runs axis by
// axis. Otherwise the elements are gathered into a row, unless they are one already.
type reduction struct {
	fast   kern.Reduction
	isFast bool
	row    func(c *call, x []float32) float32     // of all elements; may overwrite x
	fold   func(acc float64, x []float32) float64 // in place of row: adds the next elements to what those before them gave
	join   func(a, b float64) float64             // what fold gives for runs of foldRun elements, joined in order; nil: rows are not split
	last   func(acc float64) float32              // the result, for fold
	ints   func(a, x int64) int64
	zero   int64 // initial value for ints and fold
	order  bool  // ints uses the order of elements, and starts from the type's limit
}

func (r reduction) bind(c *call) (func(), error) {
	reduced := make([]bool, c.in[0].t.Shape.Rank())
	for _, a := range c.Axes() {
		reduced[a] = true
	}
	return r.over(c, reduced)
}

// over binds the reduction of the axes that are marked in reduced.
func (r reduction) over(c *call, reduced []bool) (func(), error) {
	x, y := c.in[0], c.out[0]
	shape, reducedDims := mergeAxes(x.dims(), reduced)
	if !x.t.DType.Float() {
		return r.integers(c, shape, reducedDims), nil
	}
	if x.t.DType == ir.F64 && y.t.DType == ir.F64 {
		if run := c.doubles(shape, reducedDims); run != nil {
			return run, nil
		}
	}
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	if r.isFast {
		return r.axisByAxis(c, shape, reducedDims), nil
	}
	g := newGatherer(shape, reducedDims)
	if len(reducedDims) > 0 && lastTrue(reducedDims) == len(reducedDims)-1 && len(g.reduced) == 1 && g.n > 0 {
		return r.byRow(c, g.n), nil
	}
	rows := c.scratch(g.n)
	return c.parallel(y.len(), max(g.n, 1), func(w, k int) {
		row := rows[w]
		g.gather(k, func(at, from int) { row[at] = x.float(from) })
		y.set(k, r.of(c, row))
	}), nil
}

// foldRun is the length of the runs that a long row is folded in. Workers may have runs of one row; the order of
// operations does not depend on how many do.
const foldRun = 1 << 16

// runs is the number of runs of a row of n elements, and their length.
func (r reduction) runs(n int) (count, length int) {
	if r.join == nil || n <= foldRun {
		return 1, n
	}
	return (n + foldRun - 1) / foldRun, foldRun
}

// of reduces all elements of a result.
func (r reduction) of(c *call, x []float32) float32 {
	if r.fold == nil {
		return r.row(c, x)
	}
	_, length := r.runs(len(x))
	acc := r.fold(float64(r.zero), x[:length])
	for at := length; at < len(x); at += length {
		acc = r.join(acc, r.fold(float64(r.zero), x[at:min(at+length, len(x))]))
	}
	return r.last(acc)
}

// byRow reduces contiguous rows of n elements: several at a time where they are short, and long ones in
// parts where r can fold.
func (r reduction) byRow(c *call, n int) func() {
	y := c.out[0]
	block, read := c.rows(n)
	if r.fold != nil && n > rowBlock {
		block = rowBlock
	}
	memory := c.scratch(block)
	if block < n {
		return r.byRun(c, n, memory, read)
	}
	per := block / n
	return c.following(c.chunks(y.len(), per, n, func(w, lo, hi int) {
		x := memory[w][:(hi-lo)*n]
		read(w, lo*n, x)
		for k := lo; k < hi; k++ {
			y.set(k, r.of(c, x[(k-lo)*n:][:n]))
		}
	}))
}

// byRun reduces long rows, run by run, in parts that fit the memory of a worker.
func (r reduction) byRun(c *call, n int, memory [][]float32, read func(worker, at int, x []float32)) func() {
	y := c.out[0]
	count, length := r.runs(n)
	folded := make([]float64, y.len()*count)
	fold := c.parallel(len(folded), length, func(w, i int) {
		row, acc := i/count*n, float64(r.zero)
		end := min((i%count+1)*length, n)
		for at := i % count * length; at < end; at += len(memory[w]) {
			x := memory[w][:min(len(memory[w]), end-at)]
			read(w, row+at, x)
			acc = r.fold(acc, x)
		}
		folded[i] = acc
	})
	return c.following(func() {
		fold()
		for k := range y.len() {
			acc := folded[k*count]
			for _, next := range folded[k*count+1 : (k+1)*count] {
				acc = r.join(acc, next)
			}
			y.set(k, r.last(acc))
		}
	})
}

// axisByAxis reduces the last marked axis, then the one before it, until none is left. A mean of
// means over equal counts is the mean.
func (r reduction) axisByAxis(c *call, shape []int, reducedDims []bool) func() {
	from := c.in[0].buf()
	var run []func()
	for {
		at := lastTrue(reducedDims)
		outer, n, inner := 1, 1, 1
		if at >= 0 {
			outer, n, inner = around(shape, at)
			shape, reducedDims = slices.Delete(slices.Clone(shape), at, at+1), slices.Delete(slices.Clone(reducedDims), at, at+1)
		} else {
			for _, k := range shape {
				inner *= k
			}
		}
		to := c.out[0].buf()
		if slices.Contains(reducedDims, true) {
			to = kern.Floats(c.mem.whole(outer * inner))
		}
		src := from
		run = append(run, func() { c.m.Reduce(r.fast, to, src, outer, n, inner) })
		if from = to; !slices.Contains(reducedDims, true) {
			break
		}
	}
	return c.following(func() {
		for _, f := range run {
			f()
		}
	})
}

func lastTrue(b []bool) int {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] {
			return i
		}
	}
	return -1
}

func (r reduction) integers(c *call, shape []int, reducedDims []bool) func() {
	x, y := c.in[0], c.out[0]
	g := newGatherer(shape, reducedDims)
	d, zero, key := y.t.DType, r.zero, func(x int64) int64 { return x }
	if r.order {
		key = d.Order // the conversion to an order key is its own inverse
		lo, hi := d.Limits()
		if zero = key(lo); r.ints(key(lo), key(hi)) == key(lo) {
			zero = key(hi)
		}
	}
	return c.parallel(y.len(), max(g.n, 1), func(_, k int) {
		acc := zero
		g.gather(k, func(_, from int) { acc = r.ints(acc, key(x.int(from))) })
		y.setInt(k, d.Wrap(key(acc)))
	})
}

// mergeAxes merges adjacent axes that are both kept or both reduced, and drops axes of size one.
func mergeAxes(d []int, reduced []bool) (shape []int, reducedDims []bool) {
	for i, n := range d {
		switch last := len(shape) - 1; {
		case n == 1:
		case last >= 0 && reducedDims[last] == reduced[i]:
			shape[last] *= n
		default:
			shape, reducedDims = append(shape, n), append(reducedDims, reduced[i])
		}
	}
	return shape, reducedDims
}

// gatherer lists the elements of one result in row-major order.
type gatherer struct {
	kept, reduced               []int // sizes
	keptStrides, reducedStrides []int
	n                           int // elements per result
}

func newGatherer(shape []int, reducedDims []bool) *gatherer {
	g := &gatherer{n: 1}
	st := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if reducedDims[i] {
			g.reduced, g.reducedStrides = append(g.reduced, shape[i]), append(g.reducedStrides, st)
			g.n *= shape[i]
		} else {
			g.kept, g.keptStrides = append(g.kept, shape[i]), append(g.keptStrides, st)
		}
		st *= shape[i]
	}
	return g // innermost first
}

func (g *gatherer) gather(result int, f func(at, from int)) {
	base := 0
	for i, n := range g.kept {
		base += result % n * g.keptStrides[i]
		result /= n
	}
	for at := range g.n {
		from, rest := base, at
		for i, n := range g.reduced {
			from += rest % n * g.reducedStrides[i]
			rest /= n
		}
		f(at, from)
	}
}

// bindSumTo sums over the axes that broadcasting from the result's shape to the operand's shape has
// expanded.
func bindSumTo(c *call) (func(), error) {
	x, y := c.in[0].dims(), c.out[0].dims()
	reduced := make([]bool, len(x))
	off := len(x) - len(y)
	for i := range x {
		reduced[i] = i < off || y[i-off] == 1 && x[i] != 1
	}
	return reduction{fast: kern.ReduceSum, isFast: true, ints: func(a, x int64) int64 { return a + x }}.over(c, reduced)
}

// bindArg finds the first best element along an axis. NaN is best.
func bindArg(better func(x, best float32) bool) binder {
	return func(c *call) (func(), error) {
		x, y := c.in[0], c.out[0]
		outer, n, inner := c.axis(x)
		d := x.t.DType
		precedes := func(i, best int) bool { // one of two elements of x, the first of which comes later
			if !d.Float() {
				a, b := d.Order(x.int(i)), d.Order(x.int(best))
				return a != b && better(float32(boolFloat(a > b)), 0.5)
			}
			v, b := x.float(i), x.float(best)
			return b == b && (v != v || better(v, b))
		}
		pieces := piecesOf(n)
		found := make([]int, outer*inner*pieces)
		search := c.parallel(len(found), max(n/pieces, 1), func(_, k int) {
			line, piece := k/pieces, k%pieces
			base := lineAt(line, n, inner)
			at := piece * n / pieces
			for i := at + 1; i < (piece+1)*n/pieces; i++ {
				if precedes(base+i*inner, base+at*inner) {
					at = i
				}
			}
			if found[k] = at; pieces == 1 {
				y.setInt(line, int64(at))
			}
		})
		if pieces == 1 {
			return search, nil
		}
		return func() {
			search()
			for line := range outer * inner {
				base, list := lineAt(line, n, inner), found[line*pieces:(line+1)*pieces]
				at := list[0]
				for _, i := range list[1:] {
					if precedes(base+i*inner, base+at*inner) {
						at = i
					}
				}
				y.setInt(line, int64(at))
			}
		}, nil
	}
}

// bindCumsum sums along an axis, in float64 and in order.
func bindCumsum(c *call) (func(), error) {
	x, y := c.in[0], c.out[0]
	if err := c.onlyFloats(); x.t.DType.Float() && (x.t.DType != ir.F64 || y.t.DType != ir.F64) && err != nil {
		return nil, err
	}
	wide := slice[float64](x.mem)
	outer, n, inner := c.axis(x)
	exclusive, reverse := c.Flag("exclusive"), c.Flag("reverse")
	return c.parallel(outer*inner, max(n, 1), func(_, k int) {
		base := lineAt(k, n, inner)
		var sum float64
		var whole int64
		for i := range n {
			at := base + i*inner
			if reverse {
				at = base + (n-1-i)*inner
			}
			switch {
			case x.t.DType == ir.F64:
				old := sum
				sum += wide[at]
				slice[float64](y.mem)[at] = pick(exclusive, old, sum)
			case x.t.DType.Float():
				old := sum
				sum += float64(x.float(at))
				y.set(at, float32(pick(exclusive, old, sum)))
			default:
				old := whole
				whole += x.int(at)
				y.setInt(at, y.t.DType.Wrap(pick(exclusive, old, whole)))
			}
		}
	}), nil
}

// bindCumulative finds the best element so far and its index, the last one among equal elements.
// NaN is best.
func bindCumulative(better func(x, best float64) bool) binder {
	return func(c *call) (func(), error) {
		x, y, index := c.in[0], c.out[0], c.out[1]
		outer, n, inner := c.axis(x)
		size := int(x.t.DType.Size())
		return c.parallel(outer*inner, max(n, 1), func(_, k int) {
			base := lineAt(k, n, inner)
			best := 0
			for i := range n {
				if x.atLeastAsGood(base+i*inner, base+best*inner, better) {
					best = i
				}
				from, to := (base+best*inner)*size, (base+i*inner)*size
				copy(y.mem[to:to+size], x.mem[from:from+size])
				index.setInt(base+i*inner, int64(best))
			}
		}), nil
	}
}

// atLeastAsGood reports whether element i is at least as good as element best. NaN is.
func (x view) atLeastAsGood(i, best int, better func(x, best float64) bool) bool {
	switch d := x.t.DType; {
	case d == ir.F64:
		v, w := slice[float64](x.mem)[i], slice[float64](x.mem)[best]
		return v != v || better(v, w)
	case d.Float():
		v, w := x.float(i), x.float(best)
		return v != v || better(float64(v), float64(w))
	default:
		a, b := d.Order(x.int(i)), d.Order(x.int(best))
		return a == b || better(float64(boolFloat(a > b)), 0.5)
	}
}

// bindLinearScan runs along an axis, in float64 and in order. It processes adjacent lines together,
// because they are contiguous in memory.
func bindLinearScan(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	x, a, y := c.in[0], c.in[1], c.out[0]
	outer, n, inner := c.axis(x)
	reverse := c.Flag("reverse")
	const wide = 16
	blocks := (inner + wide - 1) / wide
	return c.parallel(outer*blocks, max(n, 1)*min(inner, wide), func(_, k int) {
		var last [wide]float64
		first := k % blocks * wide
		lines := last[:min(wide, inner-first)]
		for i := range n {
			if reverse {
				i = n - 1 - i
			}
			at := (k/blocks*n+i)*inner + first
			for j := range lines {
				lines[j] = float64(a.float(at+j))*lines[j] + float64(x.float(at+j))
				y.set(at+j, float32(lines[j]))
			}
		}
	}), nil
}

func pick[T any](cond bool, a, b T) T {
	if cond {
		return a
	}
	return b
}
