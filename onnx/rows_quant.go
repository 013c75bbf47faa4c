package onnx

import (
	"math"
	"slices"

	"ampc/ir"
)

// quantRows compute with quantized elements: q stands for the number (q - zero point)·scale. They
// are exact where integers are summed, round to nearest even where numbers become integers, and
// saturate there. No policy
// narrows them, except for what quantized elements stand for.
var quantRows = []row{
	{op: "QuantizeLinear", own: true, exact: true, since: 10, ours: "div, round_even, add, cast", imp: quantizeLinear},
	{op: "DequantizeLinear", own: true, since: 10, ours: "cast, sub, mul", imp: dequantizeLinear},
	{op: "DynamicQuantizeLinear", own: true, exact: true, since: 11, ours: "reduce_max, reduce_min and arithmetic", imp: dynamicQuantize},
	{op: "MatMulInteger", own: true, exact: true, since: 10, ours: "matmul of parts that f32 sums exactly, cast, add", imp: matmulInteger},
	{op: "QLinearMatMul", own: true, exact: true, since: 10, ours: "as MatMulInteger and QuantizeLinear", imp: qlinearMatmul},
	{op: "ConvInteger", own: true, exact: true, since: 10, ours: "conv of parts that f32 sums exactly, cast, add", imp: convInteger},
	{op: "QLinearConv", own: true, exact: true, since: 10, ours: "as ConvInteger and QuantizeLinear", imp: qlinearConv},
	{domain: microsoft, op: "QuantizeLinear", own: true, exact: true, since: 1, ours: "div, round_even, add, cast", imp: quantizeLinear},
	{domain: microsoft, op: "DequantizeLinear", own: true, since: 1, ours: "cast, sub, mul", imp: dequantizeLinear},
	{domain: microsoft, op: "QLinearAdd", own: true, exact: true, since: 1, ours: "add, as DequantizeLinear and QuantizeLinear", imp: qlinear((*ir.Builder).Add)},
	{domain: microsoft, op: "QLinearMul", own: true, exact: true, since: 1, ours: "mul, as DequantizeLinear and QuantizeLinear", imp: qlinear((*ir.Builder).Mul)},
}

// microsoft is the domain of onnxruntime's own operators.
const microsoft = "com.microsoft"

// scaling is a scale and a zero point: one of each, one for each index of an
// axis, or one for each block of that.
type scaling struct {
	scale, zero *ir.Value // f32; zero is nil for 0
	dtype       ir.DType  // of quantized elements, Invalid where nothing says it
}

// scaling reads operands i and i+1 for elements of operand of, along an axis.
func (c *call) scaling(i, of int, axis, block int64) (s scaling) {
	if c.has(i + 1) {
		s.dtype = c.typ(i + 1).DType
		c.keep(i + 1)
		if c.zeroPoint(i+1) != 0 {
			s.zero = c.spread(i+1, of, axis, block)
		}
	}
	c.keep(i)
	s.scale = c.spread(i, of, axis, block)
	return s
}

// zeroPoint is 0 where all zero points of operand i are known to be 0.
func (c *call) zeroPoint(i int) int64 {
	k := c.known(i)
	if k == nil || len(c.in[i].from) > 0 {
		return 1
	}
	return int64(b2i(slices.ContainsFunc(k.I, func(x int64) bool { return x != 0 })))
}

// spread is operand i in f32 and in a shape that broadcasts to that of operand of.
func (c *call) spread(i, of int, axis, block int64) *ir.Value {
	x, own, d := c.cast(c.x(i), ir.F32), c.dims(i), c.dims(of)
	switch {
	case product(own) == 1:
		return c.reshape(x)
	case len(own) == 1:
		shape := slices.Repeat([]int64{1}, len(d))
		a := c.axis(axis, len(d))
		if len(d) == 0 || own[0] != d[a] {
			c.fail("there are %d scales for axis %d of %v, want one for each element of the axis", own[0], a, d)
			return nil
		}
		shape[a] = own[0]
		return c.reshape(x, shape...)
	case len(own) == len(d) && block > 0:
		a := c.axis(axis, len(d))
		if own[a] != ceilDiv(d[a], block) {
			c.fail("blocks of %d along axis %d of %v do not fit scales of shape %v", block, a, d, own)
			return nil
		}
		ids := make([]int64, d[a])
		for k := range ids {
			ids[k] = int64(k) / block
		}
		return c.b.Gather(x, c.intsConst(ids...), a)
	}
	c.fail("scales of shape %v do not fit an operand of shape %v", own, d)
	return nil
}

// quantized rounds x/scale to the nearest integer, adds the zero point and saturates.
func (c *call) quantized(x *ir.Value, s scaling, d ir.DType) *ir.Value {
	y := c.b.RoundEven(c.b.Div(c.cast(x, ir.F32), s.scale))
	if s.zero != nil {
		y = c.b.Add(y, s.zero)
	}
	return c.b.Cast(y, d)
}

// dequantized is what quantized elements stand for, in f32.
func (c *call) dequantized(x *ir.Value, s scaling) *ir.Value {
	y := c.cast(x, ir.F32)
	if s.zero != nil {
		y = c.b.Sub(y, s.zero)
	}
	return c.b.Mul(y, s.scale)
}

func quantizeLinear(c *call) []*ir.Value {
	s := c.scaling(1, 0, c.int("axis", 1), c.int("block_size", 0))
	d := s.dtype
	if t := c.int("output_dtype", 0); t != 0 {
		own, err := DataType(t).ours()
		if err != nil {
			c.refuse("%v", err)
			return nil
		}
		d = own
	}
	if d == ir.Invalid {
		d = ir.U8
	}
	return one(c.quantized(c.x(0), s, d))
}

func dequantizeLinear(c *call) []*ir.Value {
	s := c.scaling(1, 0, c.int("axis", 1), c.int("block_size", 0))
	d := c.typ(1).DType
	if t := c.int("output_dtype", 0); t != 0 {
		own, err := DataType(t).ours()
		if err != nil {
			c.refuse("%v", err)
			return nil
		}
		d = own
	}
	return one(c.cast(c.dequantized(c.x(0), s), d))
}

// dynamicQuantize takes the range of x, widened to hold 0, as that of bytes.
func dynamicQuantize(c *call) []*ir.Value {
	b, x := c.b, c.cast(c.x(0), ir.F32)
	zero := b.Scalar(ir.F32, 0)
	hi, lo := b.Max(b.ReduceMax(x, false), zero), b.Min(b.ReduceMin(x, false), zero)
	span := b.Sub(hi, lo)
	scale := b.Where(b.Eq(span, zero), b.Scalar(ir.F32, 1), b.Div(span, b.Scalar(ir.F32, 255)))
	at := b.RoundEven(b.Clip(b.Neg(b.Div(lo, scale)), 0, 255))
	return []*ir.Value{c.quantized(x, scaling{scale: scale, zero: at}, ir.U8), scale, b.Cast(at, ir.U8)}
}

// qlinear computes with the numbers that two quantized operands stand for. Its zero point is added
// before the result is rounded, which tells ties apart.
func qlinear(f func(b *ir.Builder, x, y *ir.Value) *ir.Value) func(c *call) []*ir.Value {
	return func(c *call) []*ir.Value {
		x, y, z := c.scaling(1, 0, 0, 0), c.scaling(4, 3, 0, 0), c.scaling(6, 0, 0, 0)
		sum := c.b.Div(f(c.b, c.dequantized(c.x(0), x), c.dequantized(c.x(3), y)), z.scale)
		if z.zero != nil {
			sum = c.b.Add(sum, z.zero)
		}
		return one(c.b.Cast(c.b.RoundEven(sum), c.typ(0).DType))
	}
}

// wholeNumbers are an integer operand less its zero point, in f32, and the largest magnitude
// that they may have.
type wholeNumbers struct {
	x    *ir.Value
	most float64
}

// shifted takes zero point z, a shape that broadcasts to it given, off operand i.
func (c *call) shifted(i, z int, shape []int64) wholeNumbers {
	lo, hi := c.typ(i).DType.Limits()
	w := wholeNumbers{c.cast(c.x(i), ir.F32), float64(max(hi, -lo))}
	if !c.has(z) || c.zeroPoint(z) == 0 {
		return w
	}
	c.keep(z)
	w.most = float64(hi - lo)
	if k := c.known(z); k != nil && len(c.in[z].from) == 0 && k.Len() > 0 {
		w.most = max(float64(hi-slices.Min(k.I)), float64(slices.Max(k.I)-lo))
	}
	at := c.cast(c.x(z), ir.F32)
	if product(c.dims(z)) == 1 {
		shape = nil
	}
	w.x = c.b.Sub(w.x, c.reshape(at, shape...))
	return w
}

// exactTerms is how many products of x and y f32 sums without rounding.
func exactTerms(x, y wholeNumbers) int64 {
	return max(int64((1<<24-1)/math.Max(x.most*y.most, 1)), 1)
}

// sum adds integers.
func (c *call) sum(parts []*ir.Value) (y *ir.Value) {
	for _, p := range parts {
		p = c.cast(p, ir.I32)
		if y == nil {
			y = p
		} else {
			y = c.b.Add(y, p)
		}
	}
	return y
}

// ranges cuts n into ranges of at most size.
func ranges(n, size int64) (list [][2]int64) {
	for lo := int64(0); lo < n; lo += size {
		list = append(list, [2]int64{lo, min(lo+size, n)})
	}
	return list
}

// integerProduct multiplies operands i and j, less zero points zi and zj, exactly.
func (c *call) integerProduct(i, zi, j, zj int) *ir.Value {
	dx, dy := c.dims(i), c.dims(j)
	if len(dx) == 0 || len(dy) == 0 || c.typ(i).DType.Size() > 1 || c.typ(j).DType.Size() > 1 {
		c.fail("the operands are %s and %s, want matrices of 8-bit integers", c.typ(i), c.typ(j))
		return nil
	}
	perRow := func(z int) []int64 { return c.zeroShape(z, -2) }
	perColumn := func(z int) []int64 { return c.zeroShape(z, -1) }
	x, y := c.shifted(i, zi, perRow(zi)), c.shifted(j, zj, perColumn(zj))
	k, alongX, alongY := dx[len(dx)-1], int64(len(dx)-1), int64(max(len(dy)-2, 0))
	if k == 0 {
		return c.cast(c.product(x.x, y.x, dx, dy, false, false), ir.I32)
	}
	var parts []*ir.Value
	for _, p := range ranges(k, exactTerms(x, y)) {
		a, b, da, db := x.x, y.x, slices.Clone(dx), slices.Clone(dy)
		if p[1]-p[0] < k {
			a = c.b.Slice(a, []int64{alongX}, p[:1], p[1:])
			b = c.b.Slice(b, []int64{alongY}, p[:1], p[1:])
			da[alongX], db[alongY] = p[1]-p[0], p[1]-p[0]
		}
		parts = append(parts, c.product(a, b, da, db, false, false))
	}
	return c.sum(parts)
}

// zeroShape is the shape of zero points z, given for each row (axis -2) or column (axis -1).
func (c *call) zeroShape(z int, axis int) []int64 {
	if !c.has(z) {
		return nil
	}
	own := c.dims(z)
	if len(own) == 1 && axis == -2 {
		own = append(own, 1)
	}
	return own
}

func matmulInteger(c *call) []*ir.Value { return one(c.integerProduct(0, 2, 1, 3)) }

func qlinearMatmul(c *call) []*ir.Value {
	sum := c.integerProduct(0, 2, 3, 5)
	c.keep(1)
	c.keep(4)
	perRow := c.reshape(c.cast(c.x(1), ir.F32), c.scalarOr(1, c.zeroShape(1, -2))...)
	perColumn := c.reshape(c.cast(c.x(4), ir.F32), c.scalarOr(4, c.zeroShape(4, -1))...)
	return one(c.requantized(sum, c.b.Mul(perRow, perColumn), 6))
}

// scalarOr is the shape, or that of a scalar for one element.
func (c *call) scalarOr(i int, shape []int64) []int64 {
	if product(c.dims(i)) == 1 {
		return nil
	}
	return shape
}

// requantized are integers that count in units of scale, by the scale and zero point of operands i and i+1.
func (c *call) requantized(sum, scale *ir.Value, i int) *ir.Value {
	c.keep(i)
	c.keep(i + 1)
	if c.failure() != nil {
		return nil
	}
	if product(c.dims(i)) != 1 || product(c.dims(i+1)) != 1 {
		c.refuse("a result with more than one scale is not supported")
		return nil
	}
	z := scaling{scale: c.reshape(c.cast(c.x(i), ir.F32)), zero: c.reshape(c.cast(c.x(i+1), ir.F32))}
	y := c.b.Mul(c.cast(sum, ir.F32), c.b.Div(scale, z.scale))
	return c.b.Cast(c.b.Add(c.b.RoundEven(y), z.zero), c.typ(i+1).DType)
}

// integerConv convolves operand 0 with filters j, less zero points zi and zj, exactly.
func (c *call) integerConv(zi, j, zj int) *ir.Value {
	d, f := c.dims(0), c.dims(j)
	if len(f) < 3 || len(d) != len(f) || c.typ(0).DType.Size() > 1 || c.typ(j).DType.Size() > 1 {
		c.fail("the operands are %s and %s, want images and filters of 8-bit integers", c.typ(0), c.typ(j))
		return nil
	}
	w, ok := c.window(f[2:])
	groups := c.int("group", 1)
	if !ok || groups < 1 || f[1]*groups != d[1] {
		c.fail("group is %d, which does not fit filters %v and images %v", groups, f, d)
		return nil
	}
	perFilter := slices.Repeat([]int64{1}, len(f))
	perFilter[0] = f[0]
	x, y := c.shifted(0, zi, nil), c.shifted(j, zj, perFilter)
	channels := exactTerms(x, y) / product(f[2:])
	if channels < 1 {
		c.refuse("windows of %d elements are not supported: f32 sums at most %d of their products without rounding", product(f[2:]), exactTerms(x, y))
		return nil
	}
	x.x = c.padded(x.x, &w, 0, false)
	var parts []*ir.Value
	for _, p := range ranges(f[1], channels) {
		a, b := x.x, y.x
		if p[1]-p[0] < f[1] {
			a, b = c.channels(a, groups, p), c.b.Slice(b, []int64{1}, p[:1], p[1:])
		}
		parts = append(parts, c.b.Conv(a, b, nil, w.attrs("groups", groups, "math", "direct")))
	}
	return c.sum(parts)
}

// channels are a range of the channels of each group.
func (c *call) channels(x *ir.Value, groups int64, p [2]int64) *ir.Value {
	if x == nil {
		return nil
	}
	d := sizes(x.Type)
	if groups == 1 {
		return c.b.Slice(x, []int64{1}, p[:1], p[1:])
	}
	x = c.reshape(x, append([]int64{d[0], groups, d[1] / groups}, d[2:]...)...)
	x = c.b.Slice(x, []int64{2}, p[:1], p[1:])
	return c.reshape(x, append([]int64{d[0], groups * (p[1] - p[0])}, d[2:]...)...)
}

func convInteger(c *call) []*ir.Value { return one(c.integerConv(2, 1, 3)) }

func qlinearConv(c *call) []*ir.Value {
	sum := c.integerConv(2, 3, 5)
	shape := slices.Repeat([]int64{1}, c.rank(0)-1)
	if c.failure() != nil {
		return nil
	}
	shape[0] = c.dims(3)[0]
	if c.has(8) {
		c.keep(8)
		sum = c.b.Add(sum, c.reshape(c.x(8), shape...))
	}
	c.keep(1)
	c.keep(4)
	perFilter := c.reshape(c.cast(c.x(4), ir.F32), c.scalarOr(4, shape)...)
	return one(c.requantized(sum, c.b.Mul(c.reshape(c.cast(c.x(1), ir.F32)), perFilter), 6))
}
