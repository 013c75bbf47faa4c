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

// classes describes a loss over the classes of its logits. It returns the logits
// with a row for every label: as they are or, if the classes are not along the last
// axis, copied.
func (c *cudaCall) classes() (k ptx.CrossEntropy, logits lower.BufferID, err error) {
	logits = c.s.In[0]
	d := c.dims(logits)
	outer, n, inner := along(d, c.n.Axis())
	k = ptx.CrossEntropy{Name: "k", Rows: outer * inner, Cols: n, In: c.elem(logits), Labels: c.elem(c.s.In[1]),
		Weighted: c.n.Operand("weights") != nil, Smoothing: float32(c.n.Float("smoothing")), Ignore: c.n.Int("ignore")}
	if inner == 1 {
		return k, logits, nil
	}
	rows := c.temp("classes", c.typeOf(logits).DType, int64(outer), int64(inner), int64(n))
	shape := c.dims(rows)
	return k, rows, c.copyBetween(c.walk(logits, 0, classesMiddle(shape)...), c.walk(rows, 0, ir.RowMajor(shape)...), shape)
}

// classesMiddle are the strides of outer×inner×classes if the classes are the middle dimension.
func classesMiddle(shape []int64) []int64 { return []int64{shape[1] * shape[2], 1, shape[1]} }

// rowStats are buffers that the launch of a loss stored: the largest logit of every row, and the
// logarithm of the row's sum of exponentials.
type rowStats struct{ top, logsum lower.BufferID }

// crossEntropy is two launches: a loss for each row, then their sum and count. If its gradient
// computes the loss, it is the count alone.
func (c *cudaCall) crossEntropy() error {
	if c.elements(c.s.In[0]) == 0 {
		return errors.Join(c.fillZero(c.s.Out[0]), c.fillZero(c.s.Out[1]))
	}
	k, logits, err := c.classes()
	if err != nil {
		return err
	}
	if c.fused[c.s.In[0]] != nil {
		return c.launch("label_count", k.LabelCount, append(c.labels(), c.s.Out[1])...)
	}
	loss, st, err := c.rowLosses(k, logits)
	if err != nil {
		return err
	}
	if x := c.s.In[0]; c.p.Buffers[x].Arena != lower.StateArena { // not for a variable, which may change before its gradient
		c.stats[x] = st
	}
	return c.launch("cross_entropy_sum", k.LossSum, slices.Concat([]lower.BufferID{loss}, c.labels(), c.s.Out)...)
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
func (c *cudaCall) rowLosses(k ptx.CrossEntropy, logits lower.BufferID) (loss lower.BufferID, st rowStats, err error) {
	rows := int64(k.Rows)
	loss = c.temp("rows", ir.F32, rows)
	st = rowStats{c.temp("top", ir.F32, rows), c.temp("logsum", ir.F32, rows)}
	return loss, st, c.launch("cross_entropy", k.Forward, slices.Concat([]lower.BufferID{logits}, c.labels(), []lower.BufferID{loss, st.top, st.logsum})...)
}

// lossAndGradient launches the gradient of a loss together with the losses of the rows, then their
// sum, which is the first result of step loss.
func (c *cudaCall) lossAndGradient(k ptx.CrossEntropy, loss *lower.Step) error {
	rows, sum := c.temp("rows", ir.F32, int64(k.Rows)), loss.Out[0]
	k.Out = c.elem(c.s.Out[0])
	args := slices.Concat([]lower.BufferID{c.s.In[0]}, c.labels(), []lower.BufferID{c.s.In[2], c.s.Out[0], rows})
	return errors.Join(c.launch("cross_entropy_fused", k.Fused, args...),
		c.rowReduce(ptx.RowReduce{Op: "sum", Rows: 1, Cols: k.Rows, Out: c.elem(sum), Scale: 1}, rows, sum))
}

// crossEntropyGrad is the second pass over the logits. It overwrites them if possible. If no loss
// of the same logits came before it, it repeats the first pass.
func (c *cudaCall) crossEntropyGrad() error {
	k, logits, err := c.classes()
	if err != nil {
		return err
	}
	if loss := c.fused[c.s.In[0]]; loss != nil {
		return c.lossAndGradient(k, loss)
	}
	st, ok := c.stats[c.s.In[0]]
	if !ok {
		if _, st, err = c.rowLosses(k, logits); err != nil {
			return err
		}
	}
	out, grad := c.s.Out[0], c.s.Out[0]
	if logits != c.s.In[0] {
		grad = c.temp("dclasses", c.typeOf(out).DType, c.dims(logits)...)
	}
	k.Out = c.elem(out)
	args := slices.Concat([]lower.BufferID{logits}, c.labels(), []lower.BufferID{st.top, st.logsum, c.s.In[2], grad})
	if err := c.launch("cross_entropy_grad", k.Backward, args...); err != nil || grad == out {
		return err
	}
	shape := c.dims(grad)
	return c.copyBetween(c.walk(grad, 0, ir.RowMajor(shape)...), c.walk(out, 0, classesMiddle(shape)...), shape)
}
