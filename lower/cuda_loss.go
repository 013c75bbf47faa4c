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

// crossEntropyGrad computes the rows' log-sum-exp again, which costs a read of
// the logits and saves keeping it. Where the result is of another dtype than
// the logits, both passes read a copy in f32.
func (c *cudaCall) crossEntropyGrad() error {
	logits, out := c.s.In[0], c.s.Out[0]
	if c.typeOf(logits).DType != c.typeOf(out).DType {
		wide := c.temp("wide", ir.F32, c.dims(logits)...)
		if err := c.cast(logits, wide); err != nil {
			return err
		}
		logits = wide
	}
	k, err := c.classes(logits)
	if err != nil {
		return err
	}
	_, lse, err := c.rowLosses(k, logits)
	if err != nil {
		return err
	}
	if c.typeOf(logits).DType == c.typeOf(out).DType {
		return c.launch("cross_entropy_grad", k.Backward, logits, c.s.In[1], lse, c.s.In[2], out)
	}
	wide := c.temp("dwide", ir.F32, c.dims(logits)...)
	if err := c.launch("cross_entropy_grad", k.Backward, logits, c.s.In[1], lse, c.s.In[2], wide); err != nil {
		return err
	}
	return c.cast(wide, out)
}
