package lower

import (
	"errors"

	"ampc/ir"
	"ampc/ptx"
)

// classes describes a loss over the classes of its logits and gives the logits
// with a row for every label: as they are, or copied where the classes lie
// along another axis than the last.
func (c *cudaCall) classes() (k ptx.CrossEntropy, logits BufferID, err error) {
	logits = c.s.In[0]
	d := c.dims(logits)
	outer, n, inner := along(d, c.n.Axis())
	k = ptx.CrossEntropy{Name: "k", Rows: outer * inner, Cols: n, In: c.elem(logits), Labels: c.elem(c.s.In[1]),
		Smoothing: float32(c.n.Float("smoothing")), Ignore: c.n.Int("ignore")}
	if inner == 1 {
		return k, logits, nil
	}
	rows := c.temp("classes", c.typeOf(logits).DType, int64(outer), int64(inner), int64(n))
	shape := c.dims(rows)
	return k, rows, c.copyBetween(c.walk(logits, 0, classesMiddle(shape)...), c.walk(rows, 0, rowMajor(shape)...), shape)
}

// classesMiddle are the strides of outer×inner×classes where the classes lie in the middle.
func classesMiddle(shape []int64) []int64 { return []int64{shape[1] * shape[2], 1, shape[1]} }

// crossEntropy is two launches: a loss for each row, then their sum and count.
func (c *cudaCall) crossEntropy() error {
	if c.elements(c.s.In[0]) == 0 {
		return errors.Join(c.fillZero(c.s.Out[0]), c.fillZero(c.s.Out[1]))
	}
	k, logits, err := c.classes()
	if err != nil {
		return err
	}
	loss, _, err := c.rowLosses(k, logits)
	if err != nil {
		return err
	}
	return c.launch("cross_entropy_sum", k.LossSum, loss, c.s.In[1], c.s.Out[0], c.s.Out[1])
}

func (c *cudaCall) rowLosses(k ptx.CrossEntropy, logits BufferID) (loss, lse BufferID, err error) {
	loss, lse = c.temp("rows", ir.F32, int64(k.Rows)), c.temp("lse", ir.F32, int64(k.Rows))
	return loss, lse, c.launch("cross_entropy", k.Forward, logits, c.s.In[1], loss, lse)
}

// crossEntropyGrad is a softmax in f32 and a group that takes the target off
// it. Rows too long for that come from the row's log-sum-exp, whose rounding
// shows where logits are in the thousands.
func (c *cudaCall) crossEntropyGrad() error {
	k, logits, err := c.classes()
	if err != nil {
		return err
	}
	out := c.s.Out[0]
	if logits != c.s.In[0] {
		back := c.temp("dclasses", c.typeOf(out).DType, c.dims(logits)...)
		if err := c.rowGrads(k, logits, back); err != nil {
			return err
		}
		shape := c.dims(logits)
		return c.copyBetween(c.walk(back, 0, rowMajor(shape)...), c.walk(out, 0, classesMiddle(shape)...), shape)
	}
	return c.rowGrads(k, logits, out)
}

func (c *cudaCall) rowGrads(k ptx.CrossEntropy, logits, out BufferID) error {
	if k.Cols > ptx.MaxRow {
		return c.longRowsGrad(k, logits, out)
	}
	p := c.temp("softmax", ir.F32, c.dims(logits)...)
	soft := ptx.Softmax{Name: "k", Rows: k.Rows, Cols: k.Cols, In: k.In, Out: ptx.Float32}
	if err := c.launch("softmax", soft.Forward, logits, p); err != nil {
		return err
	}
	return c.minusTarget(k, p, out)
}

// minusTarget stores (p - target)·dsum, zero where the label is ignored.
func (c *cudaCall) minusTarget(k ptx.CrossEntropy, p, out BufferID) error {
	labels, dsum := c.s.In[1], c.s.In[2]
	rows, cols := int64(k.Rows), int64(k.Cols)
	code := ir.NewCode(nil)
	load := func(i int64, d ir.DType) ir.Reg {
		return code.Emit(ir.Instr{Op: ir.PIn, Type: ir.RegType(d), Int: i})
	}
	label := load(1, c.typeOf(labels).DType)
	at := code.Index()
	size := code.Like(at, float64(cols))
	col := code.Sub(at, code.Mul(code.Div(at, size), size))
	v := load(0, ir.F32)
	if k.Smoothing != 0 {
		v = code.Sub(v, code.F(float64(k.Smoothing/float32(cols))))
	}
	v = code.Sub(v, code.Select(code.Eq(col, label), code.F(float64(1-k.Smoothing)), code.F(0)))
	v = code.Mul(v, load(2, ir.F32))
	v = code.Select(code.Eq(label, code.Like(label, float64(k.Ignore))), code.F(0), v)
	return c.group(&Group{Shape: []int64{rows, cols}, Code: code.Ins,
		Loads: []Access{{Buffer: p, DType: ir.F32, Strides: []int64{cols, 1}}, {Buffer: labels, DType: c.typeOf(labels).DType, Strides: []int64{1, 0}},
			{Buffer: dsum, DType: c.typeOf(dsum).DType, Strides: []int64{0, 0}}},
		Stores: []Access{{Buffer: out, DType: c.typeOf(out).DType, Strides: []int64{cols, 1}, Reg: v}}})
}

// longRowsGrad computes the rows' log-sum-exp again, which costs a read of the
// logits and saves keeping it.
func (c *cudaCall) longRowsGrad(k ptx.CrossEntropy, logits, out BufferID) error {
	wide := logits
	if c.typeOf(logits).DType != c.typeOf(out).DType {
		wide = c.temp("wide", ir.F32, c.dims(logits)...)
		if err := c.cast(logits, wide); err != nil {
			return err
		}
		k.In = ptx.Float32
	}
	_, lse, err := c.rowLosses(k, wide)
	if err != nil {
		return err
	}
	if wide == logits || c.typeOf(out).DType == ir.F32 {
		return c.launch("cross_entropy_grad", k.Backward, wide, c.s.In[1], lse, c.s.In[2], out)
	}
	grad := c.temp("grad", ir.F32, c.dims(logits)...)
	if err := c.launch("cross_entropy_grad", k.Backward, wide, c.s.In[1], lse, c.s.In[2], grad); err != nil {
		return err
	}
	return c.cast(grad, out)
}
