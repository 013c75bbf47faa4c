package sm

import (
	"errors"
	"math"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

var reduceKernels = map[ir.Op]cudaKernel{
	ir.OpReduceSum:  {reduction("sum", 0, false), numbers, 0},
	ir.OpReduceMean: {reduction("sum", 1, false), floatsOnly, 0},
	ir.OpReduceProd: {reduction("prod", 0, false), floatsOnly, 0},
	ir.OpReduceMax:  {reduction("max", 0, false), numbers, 0},
	ir.OpReduceMin:  {reduction("min", 0, false), numbers, 0},
	ir.OpReduceL1:   {reduction("l1", 0, false), floatsOnly, 0},
	ir.OpReduceL2:   {reduction("sumsq", 0, true), floatsOnly, 0},
}

// reduction launches a reduction along axes. op is its name in ptx. The result is divided by the
// number of elements to the power of mean.
func reduction(op string, mean float64, root bool) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		along := make([]bool, c.typeOf(c.s.In[0]).Shape.Rank())
		for _, a := range c.n.Axes() {
			along[a] = true
		}
		return c.reduce(op, c.s.In[0], c.s.Out[0], along, mean, root)
	}
}

// reduce emits the reduction of x over the marked dimensions to y.
func (c *cudaCall) reduce(op string, x, y lower.BufferID, along []bool, mean float64, root bool) error {
	if c.elements(y) == 0 {
		return nil
	}
	whole := !c.typeOf(x).DType.Float()
	if c.elements(x) == 0 {
		return c.reduceNone(y, op, mean != 0)
	}
	d := c.dims(x)
	outer, n, inner, ok := middle(d, along)
	if !ok {
		var err error
		if x, outer, n, err = c.reducedLast(x, d, along); err != nil {
			return err
		}
		inner = 1
	}
	if whole {
		k := ptx.IntReduce{Name: "k", Op: op, Outer: int(outer), N: int(n), Inner: int(inner), DType: c.elem(x)}
		return c.launch("int_"+op, k.Build, x, y)
	}
	scale := float32(math.Pow(1/float64(n), mean))
	if inner == 1 {
		return c.rowReduce(ptx.RowReduce{Op: op, Rows: int(outer), Cols: int(n), Out: c.elem(y), Scale: scale, Root: root}, x, y)
	}
	if root {
		return c.rooted(op, x, y, outer, n, inner)
	}
	return c.colReduce(ptx.ColReduce{Op: op, Outer: int(outer), N: int(n), Inner: int(inner), Out: c.elem(y), Scale: scale}, x, y)
}

// joining is the reduction that combines the parts of a reduction.
func joining(op string) string {
	if op == "l1" || op == "sumsq" {
		return "sum"
	}
	return op
}

// rowReduce emits the reduction of rows; few and long ones are split, and a second launch joins the parts.
func (c *cudaCall) rowReduce(k ptx.RowReduce, x, y lower.BufferID) error {
	k.Name, k.In = "k", c.elem(x)
	parts := k.Parts()
	if parts == 1 {
		return c.launch("row_"+k.Op, k.Build, x, y)
	}
	part := c.temp("parts", ir.F32, int64(k.Rows), int64(parts))
	first, second := k, k
	first.Split, first.Out, first.Scale, first.Root = parts, ptx.Float32, 1, false
	second.Op, second.Cols, second.In = joining(k.Op), parts, ptx.Float32
	return errors.Join(c.launch("row_"+k.Op, first.Build, x, part), c.launch("row_"+second.Op, second.Build, part, y))
}

// colReduce emits the reduction of columns. If the columns alone leave most of a GPU idle, it
// reduces parts, which a second launch joins in a fixed order.
func (c *cudaCall) colReduce(k ptx.ColReduce, x, y lower.BufferID) error {
	k.Name, k.In = "k", c.elem(x)
	parts := k.Parts()
	if parts == 1 {
		return c.launch("col_"+k.Op, k.Build, x, y)
	}
	part := c.temp("parts", ir.F32, int64(k.Outer), int64(parts), int64(k.Inner))
	first, second := k, k
	first.Split, first.Out, first.Scale = parts, ptx.Float32, 1
	second.Op, second.N, second.In = joining(k.Op), parts, ptx.Float32
	return errors.Join(c.launch("col_"+k.Op, first.Build, x, part), c.joinParts(second, part, y))
}

// reduceNone stores the result of a reduction over no elements. For integer maxima and minima it is
// the limit of the type.
func (c *cudaCall) reduceNone(y lower.BufferID, op string, mean bool) error {
	start := map[string]float64{"sum": 0, "l1": 0, "sumsq": 0, "prod": 1, "max": math.Inf(-1), "min": math.Inf(1)}[op]
	if mean {
		start = math.NaN()
	}
	code := ir.NewCode(nil)
	r := code.F(start)
	if d := c.typeOf(y).DType; d.Integer() {
		lo, hi := d.Limits()
		r = code.Emit(ir.Instr{Op: ir.PConst, Type: ir.RegType(d), Int: map[string]int64{"max": lo, "min": hi}[op]})
	}
	return c.fill(y, code.Ins, r)
}

// rooted reduces columns to f32 and then takes the square root.
func (c *cudaCall) rooted(op string, x, y lower.BufferID, outer, n, inner int64) error {
	sum := c.temp("sum", ir.F32, outer, inner)
	k := ptx.ColReduce{Op: op, Outer: int(outer), N: int(n), Inner: int(inner), Out: ptx.Float32, Scale: 1}
	if err := c.colReduce(k, x, sum); err != nil {
		return err
	}
	code := ir.NewCode(nil)
	r := code.Sqrt(code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32}))
	return c.cluster(&lower.Cluster{Shape: []int64{outer * inner}, Code: code.Ins, Loads: []lower.Access{{Buffer: sum, DType: ir.F32, Strides: []int64{1}}},
		Stores: []lower.Access{{Buffer: y, DType: c.typeOf(y).DType, Strides: []int64{1}, Reg: r}}})
}

// middle views dimensions as outer×n×inner with n reduced; it returns false if the
// reduced dimensions are not adjacent.
func middle(d []int64, along []bool) (outer, n, inner int64, ok bool) {
	outer, n, inner = 1, 1, 1
	state := 0
	for i, size := range d {
		switch {
		case size == 1:
		case along[i] && state == 2:
			return 0, 0, 0, false
		case along[i]:
			state = 1
			n *= size
		case state == 0:
			outer *= size
		default:
			state = 2
			inner *= size
		}
	}
	return outer, n, inner, true
}

// reducedLast copies x with its reduced dimensions last.
func (c *cudaCall) reducedLast(x lower.BufferID, d []int64, along []bool) (moved lower.BufferID, outer, n int64, err error) {
	from := ir.RowMajor(d)
	outer, n = 1, 1
	var shape, strides []int64
	for _, last := range []bool{false, true} {
		for i := range d {
			if along[i] != last {
				continue
			}
			shape, strides = append(shape, d[i]), append(strides, from[i])
			if last {
				n *= d[i]
			} else {
				outer *= d[i]
			}
		}
	}
	t := c.typeOf(x).DType
	moved = c.temp("moved", t, outer, n)
	err = c.cluster(&lower.Cluster{Shape: shape, Code: []ir.Instr{{Op: ir.PIn, Type: ir.RegType(t)}},
		Loads: []lower.Access{{Buffer: x, DType: t, Strides: strides}}, Stores: []lower.Access{{Buffer: moved, DType: t, Strides: ir.RowMajor(shape)}}})
	return moved, outer, n, err
}
