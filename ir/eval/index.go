package eval

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// indexFns select elements by index, or produce indices.
var indexFns = map[ir.Op]fn{
	ir.OpIota: iotaAlong, ir.OpOneHot: oneHot, ir.OpGather: gather, ir.OpGatherElements: gatherElements,
	ir.OpScatter: scatter, ir.OpScatterAdd: scatter, ir.OpArgmax: arg, ir.OpArgmin: arg,
	ir.OpCumsum: cumsum, ir.OpCummax: cumulative, ir.OpCummin: cumulative, ir.OpLinearScan: linearScan, ir.OpTopK: topK, ir.OpResize: resize, ir.OpResizeGrad: resize,
}

func iotaAlong(c *call) error {
	y, axis := c.out[0], int(c.Int("axis"))
	if axis < 0 {
		axis += len(y.dims())
	}
	eachIndex(y.dims(), func(i int, at []int) {
		if y.F != nil {
			y.F[i] = float64(at[axis])
		} else {
			y.I[i] = y.Type.DType.Wrap(int64(at[axis]))
		}
	})
	return nil
}

func oneHot(c *call) error {
	x, y, axis := c.in[0], c.out[0], int(c.Int("axis"))
	if axis < 0 {
		axis += len(y.dims())
	}
	_, depth, inner := blocks(y.dims(), axis)
	for i, id := range x.I {
		if id >= 0 && id < int64(depth) {
			y.fill((i/inner*depth+int(id))*inner+i%inner, 1)
		}
	}
	return nil
}

// pick checks an id against an axis.
func pick(id int64, size int) (int, error) {
	if id < 0 || id >= int64(size) {
		return 0, fmt.Errorf("id %d is outside 0..%d", id, size-1)
	}
	return int(id), nil
}

func gather(c *call) error {
	x, ids, y := c.in[0], c.in[1], c.out[0]
	outer, size, inner := blocks(x.dims(), c.Axis())
	for o := range outer {
		for k, id := range ids.I {
			row, err := pick(id, size)
			if err != nil {
				return err
			}
			for i := range inner {
				y.set((o*len(ids.I)+k)*inner+i, x, (o*size+row)*inner+i)
			}
		}
	}
	return nil
}

// eachPick calls f with the position of every id and where it points in a tensor of shape d.
func eachPick(c *call, ids *Tensor, d []int, f func(i, to int)) error {
	axis, s := c.Axis(), strides(d)
	var failed error
	eachIndex(ids.dims(), func(i int, at []int) {
		k, err := pick(ids.I[i], d[axis])
		if err != nil {
			failed = err
		}
		f(i, dot(at, s)+(k-at[axis])*s[axis])
	})
	return failed
}

func gatherElements(c *call) error {
	x, y := c.in[0], c.out[0]
	return guarded(c, x, func(i, from int) { y.set(i, x, from) })
}

// guarded is eachPick, but it calls f only if every id is inside the axis.
func guarded(c *call, x *Tensor, f func(i, to int)) error {
	if err := eachPick(c, c.in[1], x.dims(), func(int, int) {}); err != nil {
		return err
	}
	return eachPick(c, c.in[1], x.dims(), f)
}

func scatter(c *call) error {
	x, u, y := c.in[0], c.in[2], c.out[0]
	for i := range y.Len() {
		y.set(i, x, i)
	}
	return guarded(c, x, func(i, to int) {
		if c.Op == ir.OpScatterAdd {
			y.F[to] += u.F[i]
		} else {
			y.set(to, u, i)
		}
	})
}

// lanes calls f with the positions of each line along an axis of shape d, and its number.
func lanes(d []int, axis int, f func(lane int, at []int)) {
	outer, size, inner := blocks(d, axis)
	at := make([]int, size)
	for o := range outer {
		for i := range inner {
			for k := range at {
				at[k] = (o*size+k)*inner + i
			}
			f(o*inner+i, at)
		}
	}
}

// ranks says whether x comes before y in descending (or ascending) order. NaN
// is the largest, and to argmin (firstNaN) also the smallest.
func ranks(x, y float64, ascending, firstNaN bool) bool {
	switch {
	case x != x:
		return y == y && (firstNaN || !ascending)
	case y != y:
		return ascending && !firstNaN
	case ascending:
		return x < y
	}
	return x > y
}

func arg(c *call) error {
	x, y := c.in[0], c.out[0]
	lanes(x.dims(), c.Axis(), func(lane int, at []int) {
		best := 0
		for k := range at {
			if c.before(at[k], at[best], c.Op == ir.OpArgmin, true) {
				best = k
			}
		}
		y.I[lane] = int64(best)
	})
	return nil
}

// before orders elements i and j of operand 0.
func (c *call) before(i, j int, ascending, firstNaN bool) bool {
	if x := c.in[0]; x.I != nil {
		a, b := x.Type.DType.Order(x.I[i]), x.Type.DType.Order(x.I[j])
		return a != b && a < b == ascending
	}
	return ranks(c.in[0].F[i], c.in[0].F[j], ascending, firstNaN)
}

func topK(c *call) error {
	x, axis := c.in[0], c.Axis()
	_, k, inner := blocks(c.out[0].dims(), axis)
	lanes(x.dims(), axis, func(lane int, at []int) {
		order := make([]int, len(at))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int {
			switch {
			case c.before(at[i], at[j], c.Flag("smallest"), false):
				return -1
			case c.before(at[j], at[i], c.Flag("smallest"), false):
				return 1
			}
			return 0
		})
		for i := range k {
			to := (lane/inner*k+i)*inner + lane%inner
			c.out[0].set(to, x, at[order[i]])
			c.out[1].I[to] = int64(order[i])
		}
	})
	return nil
}

func cumsum(c *call) error {
	x, y := c.in[0], c.out[0]
	lanes(x.dims(), c.Axis(), func(_ int, at []int) {
		if c.Flag("reverse") {
			slices.Reverse(at)
		}
		if x.F != nil {
			runningSum(y.F, x.F, at, c.Flag("exclusive"))
		} else {
			runningSum(y.I, x.I, at, c.Flag("exclusive"))
		}
	})
	return nil
}

func runningSum[T float64 | int64](y, x []T, at []int, exclusive bool) {
	var total T
	for _, i := range at {
		before := total
		total += x[i]
		if y[i] = total; exclusive {
			y[i] = before
		}
	}
}

// cumulative finds the extremum so far: the last of equal ones.
func cumulative(c *call) error {
	x := c.in[0]
	lanes(x.dims(), c.Axis(), func(_ int, at []int) {
		best := 0
		for i := range at {
			if !c.before(at[best], at[i], c.Op == ir.OpCummin, true) {
				best = i
			}
			c.out[0].set(at[i], x, at[best])
			c.out[1].I[at[i]] = int64(best)
		}
	})
	return nil
}

func linearScan(c *call) error {
	x, a, y := c.in[0], c.in[1], c.out[0]
	lanes(x.dims(), c.Axis(), func(_ int, at []int) {
		if c.Flag("reverse") {
			slices.Reverse(at)
		}
		last := 0.0
		for _, i := range at {
			last = a.F[i]*last + x.F[i]
			y.F[i] = last
		}
	})
	return nil
}

// resize samples x. Its transpose adds every element of dy to the elements from which it was
// sampled. The taps go from the position in the large image to those in the small one.
func resize(c *call) error {
	from, to := c.in[0], c.out[0]
	sampled, source := to, from
	if c.Op == ir.OpResizeGrad {
		sampled, source = from, to
	}
	axes := c.SpatialAxes()
	taps := make([][]ir.Tap, len(axes))
	for i, a := range axes {
		taps[i] = c.ResizeTaps(source.dims()[a], sampled.dims()[a])
	}
	s := strides(source.dims())
	eachIndex(sampled.dims(), func(i int, at []int) {
		base := dot(at, s)
		for _, a := range axes {
			base -= at[a] * s[a]
		}
		for corner := range 1 << len(axes) {
			w, j := 1.0, base
			for k, a := range axes {
				t := taps[k][at[a]]
				if corner>>k&1 == 1 {
					w, j = w*t.W, j+t.Hi*s[a]
				} else {
					w, j = w*(1-t.W), j+t.Lo*s[a]
				}
			}
			switch {
			case w == 0:
			case c.Op == ir.OpResizeGrad:
				to.F[j] += w * from.F[i]
			default:
				to.F[i] += w * from.F[j]
			}
		}
	})
	return nil
}
