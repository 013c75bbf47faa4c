package sm

import (
	"errors"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

var lossKernels = map[ir.Op]cudaKernel{
	ir.OpCrossEntropy:     {(*cudaCall).crossEntropy, classLogits, 1},
	ir.OpCrossEntropyGrad: {(*cudaCall).crossEntropyGrad, classLogits, 1},
}

// A loss and its gradient that are one launch of the plan (ir.Caps.JoinsLosses) read the logits
// together. If the classes are the last axis, one kernel computes both. Otherwise the gradient takes
// the statistics of the rows from the loss.

// classes describes a loss over the classes of its logits.
func (c *cudaCall) classes() ptx.CrossEntropy {
	outer, n, inner := along(c.dims(c.s.In[0]), c.n.Axis())
	return ptx.CrossEntropy{Name: "k", Rows: outer * inner, Cols: n, In: c.elem(c.s.In[0]), Labels: c.elem(c.s.In[1]),
		Weighted: c.n.Operand("weights") != nil, Smoothing: float32(c.n.Float("smoothing")), Ignore: c.n.Int("ignore")}
}

// logits are the logits with a row for every label: as they are or, if the classes are not along the
// last axis, copied.
func (c *cudaCall) logits() (lower.BufferID, error) {
	logits := c.s.In[0]
	outer, n, inner := along(c.dims(logits), c.n.Axis())
	if inner == 1 {
		return logits, nil
	}
	rows := c.temp("classes", c.typeOf(logits).DType, int64(outer), int64(inner), int64(n))
	shape := c.dims(rows)
	return rows, c.copyBetween(c.walk(logits, 0, classesMiddle(shape)...), c.walk(rows, 0, ir.RowMajor(shape)...), shape)
}

// classesMiddle are the strides of outer×inner×classes if the classes are the middle dimension.
func classesMiddle(shape []int64) []int64 { return []int64{shape[1] * shape[2], 1, shape[1]} }

// rowStats are buffers that the first pass over logits stored: the largest logit of every row, and the
// logarithm of the row's sum of exponentials; and the logits with a row for every label.
type rowStats struct{ logits, top, logsum lower.BufferID }

// crossEntropy is two launches: a loss for each row, then their sum and count. A count alone is one.
func (c *cudaCall) crossEntropy() error {
	if len(c.s.Kernel.Parts) > 0 {
		return c.lossAndGradient()
	}
	sum, count := c.s.Out[0], c.s.Out[1]
	switch {
	case c.elements(c.s.In[0]) == 0:
		for _, y := range c.s.Out {
			if err := c.fillUnlessUnread(y); err != nil {
				return err
			}
		}
		return nil
	case !c.isRead(sum):
		return c.launch("label_count", c.classes().LabelCount, append(c.labels(), count)...)
	}
	rows, _, err := c.rowLosses()
	switch {
	case err != nil:
		return err
	case !c.isRead(count):
		return c.addRows(rows, sum)
	}
	return c.launch("cross_entropy_sum", c.classes().LossSum, slices.Concat([]lower.BufferID{rows}, c.labels(), c.s.Out)...)
}

// fillUnlessUnread stores zeros in y if something reads it.
func (c *cudaCall) fillUnlessUnread(y lower.BufferID) error {
	if !c.isRead(y) {
		return nil
	}
	return c.fillZero(y)
}

// addRows adds up the losses of rows.
func (c *cudaCall) addRows(rows, sum lower.BufferID) error {
	return c.rowReduce(ptx.RowReduce{Op: "sum", Rows: 1, Cols: int(c.elements(rows)), Out: c.elem(sum), Scale: 1}, rows, sum)
}

// labels are the buffer of the labels and, if classes have weights, the buffer of these.
func (c *cudaCall) labels() []lower.BufferID {
	in := []lower.BufferID{c.s.In[1]}
	for i, v := range c.n.In {
		if v != nil && c.n.OperandDef(i).Name == "weights" {
			in = append(in, c.s.In[i])
		}
	}
	return in
}

// rowLosses emits the loss of each row and its statistics.
func (c *cudaCall) rowLosses() (loss lower.BufferID, st rowStats, err error) {
	k := c.classes()
	logits, err := c.logits()
	if err != nil {
		return lower.None, st, err
	}
	rows := int64(k.Rows)
	loss = c.temp("rows", ir.F32, rows)
	st = rowStats{logits, c.temp("top", ir.F32, rows), c.temp("logsum", ir.F32, rows)}
	return loss, st, c.launch("cross_entropy", k.Forward, slices.Concat([]lower.BufferID{logits}, c.labels(), []lower.BufferID{loss, st.top, st.logsum})...)
}

// lossAndGradient launches the two parts of a step: a loss, of which only the sum is read, and its
// gradient. They may read different forms of the logits.
func (c *cudaCall) lossAndGradient() error {
	own := func(k int) *cudaCall {
		p := c.s.Kernel.Parts[k]
		return &cudaCall{c.cudaLowerer, p.Step(c.s), p.Node}
	}
	loss, grad := own(0), own(1)
	sum, dx := loss.s.Out[0], grad.s.Out[0]
	switch {
	case c.elements(dx) == 0:
		return c.fillZero(sum)
	case loss.s.In[0] != grad.s.In[0]:
		return errors.Join(loss.crossEntropy(), grad.crossEntropyGrad())
	case loss.n.Axis() != len(c.dims(dx))-1:
		rows, st, err := loss.rowLosses()
		if err != nil {
			return err
		}
		return errors.Join(c.addRows(rows, sum), grad.gradientOf(st))
	}
	k, rows := grad.classes(), c.temp("rows", ir.F32, int64(grad.classes().Rows))
	k.Out = c.elem(dx)
	args := slices.Concat([]lower.BufferID{grad.s.In[0]}, grad.labels(), []lower.BufferID{grad.s.In[2], dx, rows})
	return errors.Join(c.launch("cross_entropy_fused", k.Fused, args...), c.addRows(rows, sum))
}

// crossEntropyGrad repeats the first pass over the logits, then makes the second.
func (c *cudaCall) crossEntropyGrad() error {
	_, st, err := c.rowLosses()
	if err != nil {
		return err
	}
	return c.gradientOf(st)
}

// gradientOf is the second pass over the logits, which takes the statistics of the first. It
// overwrites the logits if possible.
func (c *cudaCall) gradientOf(st rowStats) error {
	k, out, grad := c.classes(), c.s.Out[0], c.s.Out[0]
	if st.logits != c.s.In[0] {
		grad = c.temp("dclasses", c.typeOf(out).DType, c.dims(st.logits)...)
	}
	k.Out = c.elem(out)
	args := slices.Concat([]lower.BufferID{st.logits}, c.labels(), []lower.BufferID{st.top, st.logsum, c.s.In[2], grad})
	if err := c.launch("cross_entropy_grad", k.Backward, args...); err != nil || grad == out {
		return err
	}
	shape := c.dims(grad)
	return c.copyBetween(c.walk(grad, 0, ir.RowMajor(shape)...), c.walk(out, 0, classesMiddle(shape)...), shape)
}
