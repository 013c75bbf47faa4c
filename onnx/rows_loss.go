package onnx

import "ampc/ir"

var lossRows = []row{
	{op: "NegativeLogLikelihoodLoss", since: 12, ours: "gather_elements and arithmetic", imp: func(c *call) []*ir.Value {
		return one(negativeLog(c, c.x(0)))
	}},
	{op: "SoftmaxCrossEntropyLoss", since: 12, ours: "log_softmax, gather_elements and arithmetic", imp: func(c *call) []*ir.Value {
		if c.rank(0) < 2 {
			c.fail("the scores have rank %d, want 2 or more", c.rank(0))
			return nil
		}
		logp := c.b.LogSoftmax(c.x(0), 1)
		return []*ir.Value{negativeLog(c, logp), logp}
	}},
}

// negativeLog picks −logp at the labels, operand 1, weighs it by operand 2 and
// reduces it. A label ignore_index weighs nothing.
func negativeLog(c *call, logp *ir.Value) *ir.Value {
	d := c.dims(0)
	labels := c.x(1)
	if len(d) < 2 {
		c.fail("the scores have rank %d, want 2 or more", len(d))
		return nil
	}
	shape := c.dims(1)
	over := append([]int64{d[0], 1}, d[2:]...)
	var weight *ir.Value
	if c.set("ignore_index") {
		counts := c.b.Ne(labels, c.lit(labels, float64(c.int("ignore_index", 0))))
		labels = c.b.Where(counts, labels, nil)
		weight = c.cast(counts, c.typ(0).DType)
	}
	if c.has(2) {
		w := c.b.Gather(c.x(2), labels, 0)
		if weight != nil {
			w = c.b.Mul(w, weight)
		}
		weight = w
	}
	loss := c.b.Neg(c.reshape(c.b.GatherElements(logp, c.reshape(labels, over...), 1), shape...))
	if weight != nil {
		loss = c.b.Mul(loss, weight)
	}
	switch r := c.str("reduction", "mean"); r {
	case "none":
		return loss
	case "sum":
		return c.b.ReduceSum(loss, false)
	case "mean":
		if weight == nil {
			return c.b.ReduceMean(loss, false)
		}
		return c.b.Div(c.b.ReduceSum(loss, false), c.b.ReduceSum(weight, false))
	default:
		c.refuse("reduction %q is not supported", r)
		return nil
	}
}
