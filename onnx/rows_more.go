package onnx

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

// moreRows are operators that few models have.
var moreRows = []row{
	{op: "BitShift", since: 11, ours: "gather from powers of two, mul or div", imp: bitShift},
	{op: "CenterCropPad", since: 18, ours: "slice, pad", not: "a shape that depends on data", imp: centerCropPad},
	{op: "HannWindow", own: true, since: 17, ours: "a constant", not: "a size that depends on data", imp: windowOf(0.5, 0.5, 0)},
	{op: "HammingWindow", own: true, since: 17, ours: "a constant", not: "a size that depends on data", imp: windowOf(25.0/46, 21.0/46, 0)},
	{op: "BlackmanWindow", own: true, since: 17, ours: "a constant", not: "a size that depends on data", imp: windowOf(0.42, 0.5, 0.08)},
	{op: "AffineGrid", since: 20, ours: "a constant and matmul", not: "a size that depends on data", imp: affineGrid},
}

// bitShift multiplies or divides by powers of two; a shift by all bits or more gives 0.
func bitShift(c *call) []*ir.Value {
	d := c.typ(0).DType
	bits := 8 * d.Size()
	powers := eval.New(ir.T(d, ir.Dim(bits+1)))
	for i := range bits {
		powers.I[i] = d.Wrap(1 << i)
	}
	at := c.cast(c.b.Min(c.x(1), c.b.Scalar(c.typ(1).DType, float64(bits))), ir.I64)
	by := c.b.Gather(c.constant(powers), at, 0) // 0 for a shift by all bits: a quotient by 0 is 0
	if c.str("direction", "") == "RIGHT" {
		return one(c.b.Div(c.x(0), by))
	}
	return one(c.b.Mul(c.x(0), by))
}

func centerCropPad(c *call) []*ir.Value {
	d, shape, axes := c.dims(0), c.ints(1, "shape"), c.list("axes")
	if axes == nil {
		for i := range d {
			axes = append(axes, int64(i))
		}
	}
	axes = c.axes(axes, len(d))
	if len(shape) != len(axes) {
		c.fail("shape %v and axes %v have different lengths", shape, axes)
		return nil
	}
	x := c.x(0)
	lo, hi := make([]int64, len(d)), make([]int64, len(d))
	for i, a := range axes {
		switch n, want := d[a], shape[i]; {
		case want < 0:
			c.fail("shape %v has a negative size", shape)
			return nil
		case want < n:
			from := (n - want) / 2
			x = c.b.Slice(x, []int64{a}, []int64{from}, []int64{from + want})
		default:
			lo[a] = (want - n) / 2
			hi[a] = want - n - lo[a]
		}
	}
	if !slices.ContainsFunc(slices.Concat(lo, hi), func(n int64) bool { return n > 0 }) {
		return one(x)
	}
	return one(c.b.Pad(x, lo, hi, 0))
}

// windowOf is a - b·cos(2πk/n) + e·cos(4πk/n), n one less for a symmetric window.
func windowOf(a, b, e float64) func(c *call) []*ir.Value {
	return func(c *call) []*ir.Value {
		n, d := c.ints(0, "size"), ir.F32
		if t := c.int("output_datatype", 1); t != 1 {
			var err error
			if d, err = DataType(t).ours(); err != nil {
				c.refuse("%v", err)
				return nil
			}
		}
		if len(n) != 1 || n[0] < 0 || n[0] > maxRange {
			c.fail("the size of the window is %v, want one number from 0 to %d", n, maxRange)
			return nil
		}
		x, period := eval.New(ir.T(ir.F32, ir.Dim(n[0]))), float64(n[0])
		if !c.flag("periodic", true) {
			period--
		}
		for k := range x.F {
			at := 2 * math.Pi * float64(k) / math.Max(period, 1)
			x.F[k] = float64(float32(a - b*math.Cos(at) + e*math.Cos(2*at)))
		}
		return one(c.cast(c.constant(x), d))
	}
}

// affineGrid multiplies the places of an image, from -1 to 1, by a matrix for each image.
func affineGrid(c *call) []*ir.Value {
	size, align := c.ints(1, "size"), c.flag("align_corners", false)
	if len(size) != 4 && len(size) != 5 {
		c.fail("size is %v, want [N,C,H,W] or [N,C,D,H,W]", size)
		return nil
	}
	spatial := size[2:]
	points, n := product(spatial), len(spatial)
	if points < 1 || points > maxRange {
		c.refuse("the grid has %d points, supported are 1 to %d", points, maxRange)
		return nil
	}
	grid := eval.New(ir.T(ir.F32, ir.Dim(points), ir.Dim(n+1)))
	for i := range int(points) {
		rest := int64(i)
		for k := n - 1; k >= 0; k-- { // x is the last dimension and the first coordinate
			m := float64(spatial[k])
			at := (2*float64(rest%spatial[k])+1)/m - 1
			if align {
				at = 2*float64(rest%spatial[k])/math.Max(m-1, 1) - 1
			}
			grid.F[i*(n+1)+n-1-k] = float64(float32(at))
			rest /= spatial[k]
		}
		grid.F[i*(n+1)+n] = 1
	}
	theta := c.cast(c.x(0), ir.F32)
	y := c.b.Matmul(c.reshape(c.constant(grid), 1, points, int64(n+1)), theta, false, true)
	return one(c.reshape(y, slices.Concat([]int64{size[0]}, spatial, []int64{int64(n)})...))
}
