package onnx

import (
	"slices"

	"ampc/ir"
)

var windowRows = []row{
	{op: "Conv", since: 1, ours: "conv", imp: conv},
	{op: "ConvTranspose", since: 1, ours: "conv_transpose", imp: convTranspose},
	{op: "MaxPool", since: 1, ours: "max_pool", imp: maxPool},
	{op: "AveragePool", since: 1, ours: "avg_pool", imp: avgPool},
	{op: "LpPool", since: 2, ours: "pow, pad, avg_pool", imp: lpPool},
	{op: "GlobalAveragePool", since: 1, ours: "reduce_mean", imp: func(c *call) []*ir.Value {
		return one(c.b.ReduceMean(c.x(0), true, spatialAxes(c.rank(0))...))
	}},
	{op: "GlobalMaxPool", since: 1, ours: "reduce_max", imp: func(c *call) []*ir.Value {
		return one(c.b.ReduceMax(c.x(0), true, spatialAxes(c.rank(0))...))
	}},
	{op: "GlobalLpPool", since: 2, ours: "pow, reduce_sum", imp: func(c *call) []*ir.Value {
		p := float64(c.int("p", 2))
		return one(c.root(c.b.ReduceSum(c.power(c.x(0), p), true, spatialAxes(c.rank(0))...), p))
	}},
}

func spatialAxes(rank int) (axes []int64) {
	for i := 2; i < rank; i++ {
		axes = append(axes, int64(i))
	}
	return axes
}

// window is the geometry of a node with sliding windows.
type window struct {
	in, kernel, stride, dilation []int64
	begin, end                   []int64
}

// window reads the attributes, with kernel where the node does not say it.
func (c *call) window(kernel []int64) (w window, ok bool) {
	d := c.dims(0)
	if len(d) < 3 {
		c.fail("operand 0 has rank %d, want 3 or more", len(d))
		return w, false
	}
	w.in = d[2:]
	nd := len(w.in)
	if k := c.list("kernel_shape"); k != nil {
		kernel = k
	}
	or := func(name string, k int, value int64) []int64 {
		if v := c.list(name); v != nil {
			return v
		}
		return slices.Repeat([]int64{value}, k)
	}
	w.kernel, w.stride, w.dilation = kernel, or("strides", nd, 1), or("dilations", nd, 1)
	pads := slices.Clone(or("pads", 2*nd, 0))
	if len(w.kernel) != nd || len(w.stride) != nd || len(w.dilation) != nd || len(pads) != 2*nd {
		c.fail("kernel %v, strides %v, dilations %v and pads %v do not fit %d spatial dimensions", w.kernel, w.stride, w.dilation, pads, nd)
		return w, false
	}
	for i := range nd {
		if w.kernel[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1 || max(w.kernel[i], w.stride[i], w.dilation[i], pads[i], pads[nd+i]) > 1<<20 {
			c.fail("kernel %v, strides %v, dilations %v and pads %v: a number is too small or larger than 2^20", w.kernel, w.stride, w.dilation, pads)
			return w, false
		}
	}
	w.begin, w.end = pads[:nd], pads[nd:]
	switch mode := c.str("auto_pad", "NOTSET"); mode {
	case "NOTSET", "":
	case "VALID":
		clear(pads)
	case "SAME_UPPER", "SAME_LOWER":
		for i, n := range w.in {
			total := max((ceilDiv(n, w.stride[i])-1)*w.stride[i]+w.reach(i)-n, 0)
			w.begin[i], w.end[i] = total/2, total-total/2
			if mode == "SAME_LOWER" {
				w.begin[i], w.end[i] = w.end[i], w.begin[i]
			}
		}
	default:
		c.refuse("auto_pad %q is not supported", mode)
		return w, false
	}
	return w, true
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// reach is how many elements a window spans.
func (w *window) reach(i int) int64 { return w.dilation[i]*(w.kernel[i]-1) + 1 }

// attrs are the window's attributes as rows take them.
func (w *window) attrs(more ...any) ir.Attrs {
	return ir.A(append([]any{"strides", w.stride, "dilations", w.dilation, "pads", slices.Concat(w.begin, w.end)}, more...)...)
}

// padded pads x with a number where a window row takes no such pads, and
// takes them out of w.
func (c *call) padded(x *ir.Value, w *window, value float64, always bool) *ir.Value {
	need := always
	for i := range w.in {
		need = need || w.begin[i] < 0 || w.end[i] < 0
	}
	if !need {
		return x
	}
	lo, hi := append([]int64{0, 0}, w.begin...), append([]int64{0, 0}, w.end...)
	for i := range w.in {
		w.in[i] += w.begin[i] + w.end[i]
	}
	w.begin, w.end = make([]int64, len(w.in)), make([]int64, len(w.in))
	return c.b.Pad(x, lo, hi, value)
}

func conv(c *call) []*ir.Value {
	d := c.dims(1)
	if len(d) < 3 {
		c.fail("the filters have rank %d, want 3 or more", len(d))
		return nil
	}
	w, ok := c.window(d[2:])
	if !ok {
		return nil
	}
	x := c.padded(c.x(0), &w, 0, false)
	return one(c.b.Conv(x, c.x(1), c.opt(2), w.attrs("groups", c.int("group", 1))))
}

// convTranspose computes all that the windows reach and crops it, where pads
// and the row's differ.
func convTranspose(c *call) []*ir.Value {
	d := c.dims(1)
	if len(d) < 3 {
		c.fail("the filters have rank %d, want 3 or more", len(d))
		return nil
	}
	auto := c.str("auto_pad", "NOTSET")
	w, ok := c.window(d[2:])
	if !ok {
		return nil
	}
	extra := c.list("output_padding")
	if extra == nil {
		extra = make([]int64, len(w.in))
	}
	shape := c.list("output_shape")
	if n := len(w.in); shape != nil && len(shape) > n {
		shape = shape[len(shape)-n:]
	}
	if same := auto == "SAME_UPPER" || auto == "SAME_LOWER"; same && shape == nil {
		for i, n := range w.in {
			shape = append(shape, n*w.stride[i])
		}
	}
	if len(extra) != len(w.in) || shape != nil && len(shape) != len(w.in) {
		c.fail("output_padding %v and output_shape %v do not fit %d spatial dimensions", extra, shape, len(w.in))
		return nil
	}
	lo, hi := []int64{0, 0}, []int64{0, 0}
	simple := true
	for i, n := range w.in {
		if shape != nil {
			total := w.stride[i]*(n-1) + extra[i] + w.reach(i) - shape[i]
			half := total >> 1 // rounds down below zero, too
			w.begin[i], w.end[i] = total-half, half
			if auto == "SAME_UPPER" {
				w.begin[i], w.end[i] = half, total-half
			}
		}
		simple = simple && w.begin[i] >= 0 && w.end[i] >= 0 && extra[i] < max(w.stride[i], w.dilation[i])
		lo, hi = append(lo, -w.begin[i]), append(hi, extra[i]-w.end[i])
	}
	groups := c.int("group", 1)
	if simple {
		return one(c.b.ConvTranspose(c.x(0), c.x(1), c.opt(2), w.attrs("groups", groups, "output_padding", extra)))
	}
	clear(w.begin)
	clear(w.end)
	y := c.b.Pad(c.b.ConvTranspose(c.x(0), c.x(1), nil, w.attrs("groups", groups)), lo, hi, 0)
	if c.has(2) {
		bias := slices.Repeat([]int64{1}, len(w.in)+1)
		bias[0] = c.dims(2)[0]
		y = c.b.Add(y, c.reshape(c.x(2), bias...))
	}
	return one(y)
}

// maxPool's second result counts elements of the whole tensor, ours those of a channel.
func maxPool(c *call) []*ir.Value {
	w, ok := c.window(nil)
	if !ok {
		return nil
	}
	d := c.dims(0)
	ceil := c.flag("ceil_mode", false)
	x := c.x(0)
	if int8 := c.typ(0).DType; !int8.Float() {
		x = c.cast(x, ir.F32)
	}
	y := c.b.MaxPool(x, w.attrs("kernel", w.kernel, "ceil", ceil))
	if y == nil {
		return nil
	}
	if !c.wants(1) {
		return one(c.back(y))
	}
	at := c.cast(y.Def.Out[1], ir.I64)
	if c.int("storage_order", 0) != 0 && product(d[2:]) > 0 {
		at = c.columnMajor(at, d[2:])
	}
	space := product(d[2:])
	first := c.b.Affine(c.b.Iota(ir.I64, 0, d[0]*d[1]), float64(space), 0)
	shape := slices.Repeat([]int64{1}, len(d))
	shape[0], shape[1] = d[0], d[1]
	return []*ir.Value{c.back(y), c.b.Add(at, c.reshape(first, shape...))}
}

// columnMajor turns indices that count the elements of a shape row by row into those
// that count its first axis fastest.
func (c *call) columnMajor(at *ir.Value, shape []int64) *ir.Value {
	var sum *ir.Value
	stride := product(shape)
	for _, n := range slices.Backward(shape) {
		stride /= n
		size := c.lit(at, float64(n))
		term := c.b.Affine(c.b.Mod(at, size), float64(stride), 0)
		if at = c.b.Div(c.b.Sub(at, c.b.Mod(at, size)), size); sum != nil {
			term = c.b.Add(sum, term)
		}
		sum = term
	}
	return sum
}

// back casts a result to the dtype of operand 0.
func (c *call) back(y *ir.Value) *ir.Value {
	if d := c.typ(0).DType; y != nil && y.Type.DType != d {
		return c.cast(y, d)
	}
	return y
}

func avgPool(c *call) []*ir.Value {
	w, ok := c.window(nil)
	if !ok {
		return nil
	}
	return one(c.b.AvgPool(c.x(0), w.attrs("kernel", w.kernel, "ceil", c.flag("ceil_mode", false), "count_include_pad", c.flag("count_include_pad", false))))
}

func (c *call) power(x *ir.Value, p float64) *ir.Value {
	x = c.b.Abs(x)
	switch p {
	case 1:
		return x
	case 2:
		return c.b.Square(x)
	}
	return c.b.Pow(x, c.lit(x, p))
}

func (c *call) root(x *ir.Value, p float64) *ir.Value {
	switch p {
	case 1:
		return x
	case 2:
		return c.b.Sqrt(x)
	}
	return c.b.Pow(x, c.lit(x, 1/p))
}

// lpPool is the mean of powers over zeros, times the window's size.
func lpPool(c *call) []*ir.Value {
	w, ok := c.window(nil)
	if !ok {
		return nil
	}
	if c.flag("ceil_mode", false) {
		for i, n := range w.in {
			room := n + w.begin[i] + w.end[i] - w.reach(i)
			if over := room % w.stride[i]; room > 0 && over != 0 && (room/w.stride[i]+1)*w.stride[i] < n+w.begin[i] {
				w.end[i] += w.stride[i] - over
			}
		}
	}
	p := float64(c.int("p", 2))
	x := c.padded(c.power(c.x(0), p), &w, 0, true)
	sum := c.b.Affine(c.b.AvgPool(x, w.attrs("kernel", w.kernel)), float64(product(w.kernel)), 0)
	return one(c.root(sum, p))
}
