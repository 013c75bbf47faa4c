package lower

import (
	"errors"

	"ampc/ir"
	"ampc/ptx"
)

// classes describes a loss over the last dimension of its logits.
func (c *cudaCall) classes(logits BufferID) (ptx.CrossEntropy, error) {
	d := c.dims(logits)
	last := len(d) - 1
	if c.n.Axis() != last {
		return ptx.CrossEntropy{}, errors.New("the classes must lie along the last axis on a GPU; transpose the logits")
	}
	rows := c.elements(logits) / max(d[last], 1)
	if rows == 0 || d[last] == 0 {
		return ptx.CrossEntropy{}, errors.New("has no rows or no classes")
	}
	return ptx.CrossEntropy{Name: "k", Rows: int(rows), Cols: int(d[last]), In: c.elem(logits), Labels: c.elem(c.s.In[1]),
		Smoothing: float32(c.n.Float("smoothing")), Ignore: c.n.Int("ignore")}, c.floats(logits)
}

// crossEntropy is two launches: a loss for each row, then their sum and count.
func (c *cudaCall) crossEntropy() error {
	k, err := c.classes(c.s.In[0])
	if err != nil {
		return err
	}
	loss, _, err := c.rowLosses(k, c.s.In[0])
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
	logits, out := c.s.In[0], c.s.Out[0]
	k, err := c.classes(logits)
	if err != nil {
		return err
	}
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
