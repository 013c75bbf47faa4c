package onnx

import (
	"slices"

	"ampc/ir"
)

var shapeRows = []row{
	{op: "Reshape", since: 1, ours: "reshape", not: "a shape that depends on data", imp: reshape},
	{op: "Flatten", since: 1, ours: "reshape", imp: func(c *call) []*ir.Value {
		d := c.dims(0)
		k := c.int("axis", 1)
		if k < 0 {
			k += int64(len(d))
		}
		if k < 0 || k > int64(len(d)) {
			c.fail("axis %d is out of range for a tensor of rank %d", k, len(d))
			return nil
		}
		return one(c.reshape(c.x(0), product(d[:k]), product(d[k:])))
	}},
	{op: "Transpose", since: 1, ours: "transpose", imp: func(c *call) []*ir.Value {
		perm := c.list("perm")
		if perm == nil {
			for i := c.rank(0) - 1; i >= 0; i-- {
				perm = append(perm, int64(i))
			}
		}
		return one(c.b.Transpose(c.x(0), perm...))
	}},
	{op: "Squeeze", since: 1, ours: "reshape", imp: squeeze},
	{op: "Unsqueeze", since: 1, ours: "reshape", imp: unsqueeze},
	{op: "Expand", since: 8, ours: "broadcast", not: "a shape that depends on data", imp: func(c *call) []*ir.Value {
		return one(c.expand(c.x(0), c.dims(0), c.ints(1, "shape")))
	}},
	{op: "Concat", since: 1, ours: "concat", imp: func(c *call) []*ir.Value {
		return one(c.concat())
	}},
	{op: "Split", since: 1, ours: "slice", not: "sizes that depend on data", imp: split},
	{op: "Slice", since: 1, ours: "slice, flip", not: "bounds that depend on data", imp: slice},
	{op: "Pad", since: 1, ours: "pad, or slice and concat", not: "sizes that depend on data", imp: pad},
	{op: "Tile", since: 6, ours: "tile", not: "repeats that depend on data", imp: func(c *call) []*ir.Value {
		return one(c.b.Tile(c.x(0), c.ints(1, "repeats")...))
	}},
	{op: "DepthToSpace", since: 1, ours: "depth_to_space", imp: func(c *call) []*ir.Value {
		mode := "dcr"
		if c.str("mode", "DCR") == "CRD" {
			mode = "crd"
		}
		return one(c.b.DepthToSpace(c.x(0), c.int("blocksize", 0), mode))
	}},
	{op: "SpaceToDepth", since: 1, ours: "space_to_depth", imp: func(c *call) []*ir.Value {
		return one(c.b.SpaceToDepth(c.x(0), c.int("blocksize", 0), "dcr"))
	}},
	{op: "Trilu", since: 14, ours: "tril, triu, comparisons", not: "a diagonal that depends on data", imp: trilu},
	{op: "ReverseSequence", since: 10, ours: "gather_elements", not: "lengths that depend on data", imp: reverseSequence},
}

// concat leaves operands without elements out.
func (c *call) concat() *ir.Value {
	axis := c.axis(c.int("axis", 1), c.rank(0))
	var parts []*ir.Value
	for i := range c.in {
		if c.has(i) && c.typ(i).Shape.Elements() > 0 {
			parts = append(parts, c.x(i))
		}
	}
	switch {
	case len(parts) == 0:
		return c.b.Concat(axis, c.all(0)...)
	case len(parts) == 1 && len(c.in) > 1:
		return parts[0]
	}
	return c.b.Concat(axis, parts...)
}

func product(d []int64) int64 {
	n := int64(1)
	for _, x := range d {
		n *= x
	}
	return n
}

func reshape(c *call) []*ir.Value {
	shape := c.list("shape")
	if c.opset >= 5 {
		shape = c.ints(1, "shape")
	}
	own := c.dims(0)
	shape = slices.Clone(shape)
	hole, rest := -1, int64(1)
	for i, d := range shape {
		switch {
		case d == 0 && !c.flag("allowzero", false):
			if i >= len(own) {
				c.fail("shape %v copies dimension %d from a tensor of rank %d, which has no such dimension", shape, i, len(own))
				return nil
			}
			shape[i] = own[i]
		case d == -1 && hole < 0:
			hole = i
			continue
		case d < 0:
			c.fail("shape %v has an invalid size, or more than one -1", shape)
			return nil
		}
		rest *= shape[i]
	}
	if hole >= 0 {
		if rest == 0 || product(own)%rest != 0 {
			c.fail("the %d elements of the operand do not fit shape %v", product(own), shape)
			return nil
		}
		shape[hole] = product(own) / rest
	}
	return one(c.reshape(c.x(0), shape...))
}

// axesOf are the axes that an attribute gives before an opset, an operand from it on.
func (c *call) axesOf(operand int, before int64) (axes []int64, given bool) {
	if c.opset < before {
		return c.list("axes"), c.set("axes")
	}
	if !c.has(operand) {
		return nil, false
	}
	return c.ints(operand, "axes"), true
}

func squeeze(c *call) []*ir.Value {
	d := c.dims(0)
	axes, given := c.axesOf(1, 13)
	axes = c.axes(axes, len(d))
	var shape []int64
	for i, n := range d {
		switch {
		case given && !slices.Contains(axes, int64(i)) || !given && n != 1:
			shape = append(shape, n)
		case n != 1:
			c.fail("axis %d has size %d, want 1 to remove it", i, n)
		}
	}
	return one(c.reshape(c.x(0), shape...))
}

func unsqueeze(c *call) []*ir.Value {
	d := c.dims(0)
	axes, _ := c.axesOf(1, 13)
	axes = c.axes(axes, len(d)+len(axes))
	shape := make([]int64, 0, ir.MaxRank)
	for i := 0; len(shape) < len(d)+len(axes); i++ {
		if slices.Contains(axes, int64(len(shape))) {
			shape = append(shape, 1)
		} else if k := len(shape) - before(axes, int64(len(shape))); k < len(d) {
			shape = append(shape, d[k])
		} else {
			c.fail("axes %v of a tensor of rank %d contain an axis twice", axes, len(d))
			return nil
		}
	}
	return one(c.reshape(c.x(0), shape...))
}

// before counts the axes below a.
func before(axes []int64, a int64) (n int) {
	for _, x := range axes {
		if x < a {
			n++
		}
	}
	return n
}

// expand broadcasts x and shape together.
func (c *call) expand(x *ir.Value, own, shape []int64) *ir.Value {
	rank := max(len(own), len(shape))
	to := make([]int64, rank)
	for i := range to {
		a, b := int64(1), int64(1)
		if k := i - rank + len(own); k >= 0 {
			a = own[k]
		}
		if k := i - rank + len(shape); k >= 0 {
			b = shape[k]
		}
		to[i] = a
		if a == 1 {
			to[i] = b
		} else if b != 1 && a != b {
			c.fail("shape %v does not broadcast to %v", own, shape)
		}
	}
	if slices.Equal(to, own) {
		return x
	}
	return c.b.Broadcast(x, to...)
}

func split(c *call) []*ir.Value {
	d := c.dims(0)
	a := c.axis(c.int("axis", 0), len(d))
	parts := c.list("split")
	switch {
	case c.opset >= 13 && c.has(1):
		parts = c.ints(1, "sizes")
	case c.opset == 1 && c.has(1):
		parts = c.ints(1, "sizes")
	}
	if c.err != nil || len(d) == 0 {
		c.fail("operand 0 is a scalar, which has no axis to split")
		return nil
	}
	if parts == nil {
		n := c.int("num_outputs", int64(len(c.n.Out)))
		if n < 1 || n > int64(max(len(c.n.Out), 1)) {
			c.fail("num_outputs is %d, but the node has %d results", n, len(c.n.Out))
			return nil
		}
		each := (d[a] + n - 1) / n
		for i := range n {
			parts = append(parts, min(each, max(d[a]-i*each, 0)))
		}
	}
	out := make([]*ir.Value, len(parts))
	at := int64(0)
	for i, n := range parts {
		if n < 0 || at+n > d[a] {
			c.fail("parts of sizes %v do not fit an axis of size %d", parts, d[a])
			return nil
		}
		out[i] = c.b.Slice(c.x(0), []int64{a}, []int64{at}, []int64{at + n})
		at += n
	}
	return out
}

func slice(c *call) []*ir.Value {
	d := c.dims(0)
	starts, ends, axes, steps := c.list("starts"), c.list("ends"), c.list("axes"), []int64(nil)
	if c.opset >= 10 {
		starts, ends = c.ints(1, "starts"), c.ints(2, "ends")
		if c.has(3) {
			axes = c.ints(3, "axes")
		}
		if c.has(4) {
			steps = c.ints(4, "steps")
		}
	}
	if axes == nil {
		for i := range starts {
			axes = append(axes, int64(i))
		}
	}
	if steps == nil {
		steps = slices.Repeat([]int64{1}, len(starts))
	}
	if len(ends) != len(starts) || len(axes) != len(starts) || len(steps) != len(starts) {
		c.fail("there are %d starts, %d ends, %d axes and %d steps, want equal numbers", len(starts), len(ends), len(axes), len(steps))
		return nil
	}
	axes = c.axes(axes, len(d))
	x := c.x(0)
	var flips, from, to, by []int64
	for i, a := range axes {
		lo, hi, step, flip := bounds(starts[i], ends[i], steps[i], d[a])
		if step == 0 {
			c.fail("a step is 0, want any other number")
			return nil
		}
		if flip {
			flips = append(flips, a)
		}
		from, to, by = append(from, lo), append(to, hi), append(by, step)
	}
	if len(flips) > 0 {
		x = c.b.Flip(x, flips...)
	}
	whole := len(flips) > 0
	for i, a := range axes {
		whole = whole && from[i] == 0 && to[i] == d[a] && by[i] == 1
	}
	if whole {
		return one(x)
	}
	return one(c.b.SliceStep(x, axes, from, to, by))
}

// bounds are numpy's start, end and step for an axis of n elements, for a step
// below zero those in the reversed axis.
func bounds(start, end, step, n int64) (lo, hi, by int64, flip bool) {
	clamp := func(x, least, most int64) int64 {
		if x < 0 {
			x = max(x+n, least)
		}
		return min(max(x, least), most)
	}
	if step >= 0 {
		lo, hi = clamp(start, 0, n), clamp(end, 0, n)
		return lo, max(lo, hi), step, false
	}
	first, last := clamp(start, -1, n-1), clamp(end, -1, n-1)
	lo, hi = n-1-first, n-1-last
	if step < -n {
		step = -max(n, 1)
	}
	return lo, max(lo, hi), -step, true
}

func pad(c *call) []*ir.Value {
	d := c.dims(0)
	pads, value := c.list("pads"), c.float("value", 0)
	if c.opset == 1 {
		pads = c.list("paddings")
	}
	var axes []int64
	if c.opset >= 11 {
		pads = c.ints(1, "pads")
		if c.has(2) {
			value = c.number(2, "value")
		}
		if c.has(3) {
			axes = c.axes(c.ints(3, "axes"), len(d))
		}
	}
	if axes == nil {
		for i := range d {
			axes = append(axes, int64(i))
		}
	}
	if len(pads) != 2*len(axes) {
		c.fail("there are %d pads for %d axes, want two for each", len(pads), len(axes))
		return nil
	}
	lo, hi := make([]int64, len(d)), make([]int64, len(d))
	for i, a := range axes {
		lo[a], hi[a] = pads[i], pads[len(axes)+i]
	}
	switch mode := c.str("mode", "constant"); mode {
	case "constant":
		return one(c.b.Pad(c.x(0), lo, hi, value))
	case "edge", "reflect":
		return one(c.padMode(c.x(0), lo, hi, mode))
	case "wrap":
		return one(c.wrap(c.x(0), d, lo, hi))
	default:
		c.refuse("mode %q is not supported", mode)
	}
	return nil
}

// padMode crops where a number is below zero, as padding by edges cannot.
func (c *call) padMode(x *ir.Value, lo, hi []int64, mode string) *ir.Value {
	crop := func(v []int64) (out []int64) {
		for _, n := range v {
			out = append(out, min(n, 0))
		}
		return out
	}
	if slices.Min(append(crop(lo), crop(hi)...)) < 0 {
		x = c.b.Pad(x, crop(lo), crop(hi), 0)
	}
	for i := range lo {
		lo[i], hi[i] = max(lo[i], 0), max(hi[i], 0)
	}
	return c.b.PadMode(x, lo, hi, mode)
}

// wrap repeats the tensor beyond its ends.
func (c *call) wrap(x *ir.Value, d, lo, hi []int64) *ir.Value {
	for a, n := range d {
		if lo[a] == 0 && hi[a] == 0 || n == 0 {
			continue
		}
		ids := make([]int64, max(n+lo[a]+hi[a], 0))
		for i := range ids {
			ids[i] = ((int64(i)-lo[a])%n + n) % n
		}
		x = c.b.Gather(x, c.intsConst(ids...), int64(a))
	}
	return x
}

// trilu of anything but a float keeps by a comparison of the indices.
func trilu(c *call) []*ir.Value {
	k := int64(0)
	if c.has(1) {
		k = int64(c.number(1, "diagonal"))
	}
	d := c.dims(0)
	if len(d) < 2 {
		c.fail("operand 0 has rank %d, want 2 or more", len(d))
		return nil
	}
	if rows, cols := d[len(d)-2], d[len(d)-1]; k > cols || k < -rows {
		k = min(max(k, -rows), cols)
	}
	if c.flag("upper", true) {
		return one(c.b.Triu(c.x(0), k))
	}
	return one(c.b.Tril(c.x(0), k))
}

func reverseSequence(c *call) []*ir.Value {
	d, lengths := c.dims(0), c.ints(1, "lengths")
	batch, time := c.axis(c.int("batch_axis", 1), len(d)), c.axis(c.int("time_axis", 0), len(d))
	if batch == time || len(d) < 2 || int64(len(lengths)) != d[batch] {
		c.fail("there are %d lengths for operand 0 of shape %v, want one for each sequence", len(lengths), d)
		return nil
	}
	steps := d[time]
	shape := slices.Repeat([]int64{1}, len(d))
	shape[batch], shape[time] = d[batch], steps
	ids := make([]int64, d[batch]*steps)
	for b, n := range lengths {
		for t := range steps {
			from := t
			if t < n {
				from = n - 1 - t
			}
			if from < 0 || from >= steps {
				c.fail("a length is %d, want 0 to %d, the number of steps", n, steps)
				return nil
			}
			at := int64(b)*steps + t
			if time < batch {
				at = t*d[batch] + int64(b)
			}
			ids[at] = from
		}
	}
	picked := c.b.Broadcast(c.reshape(c.intsConst(ids...), shape...), d...)
	return one(c.b.GatherElements(c.x(0), picked, time))
}
