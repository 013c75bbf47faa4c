package sm

import (
	"math"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

var indexKernels = map[ir.Op]cudaKernel{
	ir.OpGatherElements: {(*cudaCall).gatherElements, nil, 1},
	ir.OpScatter:        {scatter(false), nil, 1},
	ir.OpScatterAdd:     {scatter(true), floatData, 1},
	ir.OpIota:           {(*cudaCall).iota, nil, 0},
	ir.OpTril:           {triangle(false), nil, 0},
	ir.OpTriu:           {triangle(true), nil, 0},
	ir.OpOneHot:         {(*cudaCall).oneHot, nil, 0},
	ir.OpConcat:         {(*cudaCall).concat, nil, 0},
	ir.OpRope:           {(*cudaCall).rope, floatData, 0},
}

// Rows that select or place elements by index. Those whose source follows from the element's own
// index are clusters; the others have kernels.

// coordinate is the element's index along a dimension of size n with inner elements
// after it, in the iteration space of the code's cluster.
func coordinate(code *ir.Code, n, inner int64) ir.Reg {
	at := code.Index()
	if inner > 1 {
		at = code.Div(at, code.Like(at, float64(inner)))
	}
	size := code.Like(at, float64(n))
	return code.Sub(at, code.Mul(code.Div(at, size), size))
}

// load emits the read of a cluster's operand i, which has dtype d.
func load(code *ir.Code, i int, d ir.DType) ir.Reg {
	return code.Emit(ir.Instr{Op: ir.PIn, Type: ir.RegType(d), Int: int64(i)})
}

// walk is a cluster's access to a whole buffer with the given strides.
func (c *cudaLowerer) walk(id lower.BufferID, offset int64, strides ...int64) lower.Access {
	return lower.Access{Buffer: id, DType: c.typeOf(id).DType, Offset: offset, Strides: strides}
}

// iota counts along an axis.
func (c *cudaCall) iota() error {
	out := c.s.Out[0]
	d := c.dims(out)
	axis := int(c.n.Int("axis"))
	if axis < 0 {
		axis += len(d)
	}
	_, n, inner := along(d, axis)
	code := ir.NewCode(nil)
	r := code.Conv(coordinate(code, int64(n), int64(inner)), ir.RegType(c.typeOf(out).DType))
	return c.fill(out, code.Ins, r)
}

// triangle keeps the elements on one side of a diagonal of the last two axes.
func triangle(upper bool) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		x, y := c.s.In[0], c.s.Out[0]
		d := c.dims(y)
		rows, cols := d[len(d)-2], d[len(d)-1]
		code := ir.NewCode(nil)
		v := load(code, 0, c.typeOf(x).DType)
		row, col := coordinate(code, rows, cols), coordinate(code, cols, 1)
		edge := code.Add(row, code.Like(row, float64(c.n.Int("k"))))
		keep := code.Le(col, edge)
		if upper {
			keep = code.Le(edge, col)
		}
		out := c.walk(y, 0, 1)
		out.Reg = code.Select(keep, v, code.Like(v, 0))
		return c.cluster(&lower.Cluster{Shape: []int64{c.elements(y)}, Code: code.Ins, Loads: []lower.Access{c.walk(x, 0, 1)}, Stores: []lower.Access{out}})
	}
}

// oneHot compares every position of the new axis with the id.
func (c *cudaCall) oneHot() error {
	ids, y := c.s.In[0], c.s.Out[0]
	d := c.dims(y)
	axis := int(c.n.Int("axis"))
	if axis < 0 {
		axis += len(d)
	}
	outer, depth, inner := along(d, axis)
	shape := []int64{int64(outer), int64(depth), int64(inner)}
	code := ir.NewCode(nil)
	hit := code.Eq(coordinate(code, shape[1], shape[2]), load(code, 0, c.typeOf(ids).DType))
	out := c.walk(y, 0, ir.RowMajor(shape)...)
	out.Reg = code.Conv(hit, ir.RegType(c.typeOf(y).DType))
	return c.cluster(&lower.Cluster{Shape: shape, Code: code.Ins, Loads: []lower.Access{c.walk(ids, 0, shape[2], 0, 1)}, Stores: []lower.Access{out}})
}

// concat converts each operand into its part of the result.
func (c *cudaCall) concat() error {
	y := c.s.Out[0]
	axis := c.n.Axis()
	to := ir.RowMajor(c.dims(y))
	at := int64(0)
	for _, x := range c.s.In {
		shape := c.dims(x)
		if err := c.copyBetween(c.walk(x, 0, ir.RowMajor(shape)...), c.walk(y, at, to...), shape); err != nil {
			return err
		}
		at += shape[axis] * to[axis]
	}
	return nil
}

// corner is the part of x that ids reach if their other dimensions are smaller than x's: x itself,
// or a copy of a part.
func (c *cudaCall) corner(x, ids lower.BufferID, axis int) (lower.BufferID, error) {
	d, e := c.dims(x), c.dims(ids)
	shape := append([]int64(nil), e...)
	shape[axis] = d[axis]
	if lower.Count(shape) == lower.Count(d) {
		return x, nil
	}
	part := c.temp("part", c.typeOf(x).DType, shape...)
	return part, c.copyBetween(c.walk(x, 0, ir.RowMajor(d)...), c.walk(part, 0, ir.RowMajor(shape)...), shape)
}

func (c *cudaCall) gatherElements() error {
	x, ids, y := c.s.In[0], c.s.In[1], c.s.Out[0]
	axis := c.n.Axis()
	_, n, _ := along(c.dims(x), axis)
	x, err := c.corner(x, ids, axis)
	if err != nil {
		return err
	}
	outer, m, inner := along(c.dims(ids), axis)
	k := ptx.Gather{Name: "k", Elementwise: true, Outer: outer, N: n, M: m, Inner: inner, IDs: c.elem(ids), In: c.elem(x), Out: c.elem(y)}
	return c.launch("gather_elements", k.Forward, x, ids, y)
}

// scatter copies x and stores the updates in it, or adds them in f32 before
// rounding. If ids cover only a part of x in the other dimensions, it works on a
// copy of that part.
func scatter(add bool) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		x, ids, u, y := c.s.In[0], c.s.In[1], c.s.In[2], c.s.Out[0]
		if err := c.cast(x, y); err != nil || c.elements(ids) == 0 {
			return err
		}
		if !add && c.typeOf(u).DType != c.typeOf(y).DType {
			same := c.temp("updates", c.typeOf(y).DType, c.dims(u)...)
			if err := c.cast(u, same); err != nil {
				return err
			}
			u = same
		}
		axis := c.n.Axis()
		d, shape := c.dims(y), append([]int64(nil), c.dims(ids)...)
		shape[axis] = d[axis]
		part := y
		if whole := lower.Count(shape) == lower.Count(d); !whole || add && c.typeOf(y).DType != ir.F32 {
			t := c.typeOf(y).DType
			from := x
			if add {
				t = ir.F32
			} else {
				from = y
			}
			part = c.temp("part", t, shape...)
			if err := c.copyBetween(c.walk(from, 0, ir.RowMajor(d)...), c.walk(part, 0, ir.RowMajor(shape)...), shape); err != nil {
				return err
			}
		}
		outer, m, inner := along(c.dims(ids), axis)
		k := ptx.Scatter{Name: "k", Add: add, Outer: outer, N: int(d[axis]), M: m, Inner: inner, IDs: c.elem(ids), In: c.elem(u), Out: c.elem(part)}
		if err := c.launch("scatter", k.Build, part, u, ids); err != nil || part == y {
			return err
		}
		return c.copyBetween(c.walk(part, 0, ir.RowMajor(shape)...), c.walk(y, 0, ir.RowMajor(d)...), shape)
	}
}

// copyBetween copies the elements of shape from one strided view to another, which may have another
// dtype.
func (c *cudaLowerer) copyBetween(from, to lower.Access, shape []int64) error {
	code := ir.NewCode(nil)
	to.Reg = code.Conv(load(code, 0, from.DType), ir.RegType(to.DType))
	return c.cluster(&lower.Cluster{Shape: shape, Code: code.Ins, Loads: []lower.Access{from}, Stores: []lower.Access{to}})
}

// rope rotates pairs. It computes angles in f64, with frequencies as products of
// powers of the base by the bits of the pair's number, and reduces them to half a
// turn before the f32 sine and cosine.
func (c *cudaCall) rope() error {
	x, y := c.s.In[0], c.s.Out[0]
	d := c.dims(x)
	width, seq := d[len(d)-1], d[len(d)-2]
	dims := c.n.Int("dims")
	if dims == 0 {
		dims = width
	}
	batch := lower.Count(d[:len(d)-2])
	if len(d) > 2 {
		batch = d[0]
	}
	shape := []int64{batch, lower.Count(d[:len(d)-2]) / batch, seq, dims / 2}
	strides := []int64{shape[1] * seq * width, seq * width, width, 1}
	partner := dims / 2
	if c.n.Flag("interleaved") {
		strides[3], partner = 2, 1
	}
	code := ir.NewCode(nil)
	lo, hi := load(code, 0, c.typeOf(x).DType), load(code, 1, c.typeOf(x).DType)
	loads := []lower.Access{c.walk(x, 0, strides...), c.walk(x, partner, strides...)}
	pos := coordinate(code, seq, shape[3])
	if len(c.s.In) > 1 && c.s.In[1] != lower.None {
		p := c.s.In[1]
		pos = load(code, 2, c.typeOf(p).DType)
		loads = append(loads, c.walk(p, 0, positions(len(d), len(c.dims(p)), seq)...))
	}
	sin, cos := turn(code, pos, coordinate(code, shape[3], 1), dims, c.n.Float("base"))
	if c.n.Flag("inverse") {
		sin = code.Neg(sin)
	}
	first, second := c.walk(y, 0, strides...), c.walk(y, partner, strides...)
	first.Reg = code.Sub(code.Mul(lo, cos), code.Mul(hi, sin))
	second.Reg = code.Add(code.Mul(lo, sin), code.Mul(hi, cos))
	if err := c.cluster(&lower.Cluster{Shape: shape, Code: code.Ins, Loads: loads, Stores: []lower.Access{first, second}}); err != nil || dims == width {
		return err
	}
	return c.copyBetween(c.walk(x, dims, width, 1), c.walk(y, dims, width, 1), []int64{lower.Count(d) / width, width - dims})
}

// positions are the strides of a rope's positions over [batch, heads, sequence, pair].
func positions(rank, posRank int, seq int64) []int64 {
	switch {
	case posRank < 2:
		return []int64{0, 0, 1, 0}
	case rank == 2: // image i of one batch uses row i
		return []int64{0, 0, seq + 1, 0}
	}
	return []int64{seq, 0, 1, 0}
}

// turn returns the sine and cosine of pos·base^(-2·pair/dims).
func turn(code *ir.Code, pos, pair ir.Reg, dims int64, base float64) (sin, cos ir.Reg) {
	wide := func(x float64) ir.Reg { return code.Emit(ir.Instr{Op: ir.PConst, Type: ir.F64, Imm: x}) }
	f := wide(1)
	for bit := int64(1); bit < dims/2; bit *= 2 {
		set := code.Ne(code.And(pair, code.Like(pair, float64(bit))), code.Like(pair, 0))
		f = code.Mul(f, code.Select(set, wide(math.Pow(base, -2*float64(bit)/float64(dims))), wide(1)))
	}
	turns := code.Mul(code.Mul(code.Conv(pos, ir.F64), f), wide(1/(2*math.Pi)))
	half := code.Select(code.Lt(turns, wide(0)), wide(-0.5), wide(0.5))
	whole := code.Conv(code.Conv(code.Add(turns, half), ir.I64), ir.F64)
	angle := code.Mul(code.Sub(turns, whole), wide(2*math.Pi))
	a := code.Conv(angle, ir.F32)
	rest := code.Conv(code.Sub(angle, code.Conv(a, ir.F64)), ir.F32) // the part of the angle that f32 loses
	s, c := code.Sin(a), code.Cos(a)
	return code.Fma(rest, c, s), code.Fma(code.Neg(rest), s, c)
}
