package bridge

import (
	"math"

	G "gorgonia.org/gorgonia"

	"ampc/ir"
)

// crossEntropy finds a cross entropy written by hand, for which Gorgonia has no
// function: a number that is some multiple of Σ y·log softmax(x), whether it is
// summed at once or row by row, negated before or after, a mean or not.
func (c *call) crossEntropy() *ir.Value {
	if len(c.n.Shape()) != 0 {
		return nil
	}
	product, factor := c.walk.terms(c.n)
	if product == nil {
		return nil
	}
	for k := range 2 {
		x, axis := c.logSoftmaxOf(c.arg(product, k))
		y := c.arg(product, 1-k)
		if x == nil || !y.Shape().Eq(x.Shape()) {
			continue
		}
		logits, target := c.value(x), c.value(y)
		if logits == nil || target == nil {
			return nil
		}
		mean := c.b.SoftCrossEntropy(logits, target, axis)
		along := logits.Type.Shape.Dim((int(axis) + x.Dims()) % x.Dims())
		rows := float64(x.Shape().TotalSize()) / float64(along)
		if times := -factor * rows; math.Abs(times-1) > 1e-6 { // factors are f32: 3 times a third is one
			return c.b.Affine(mean, times, 0)
		}
		return mean
	}
	return nil
}

// terms follows the number n through sums, signs and constant factors down to a
// product: n is factor times the sum of its elements. It is nil where n is
// something else.
func (w *walk) terms(n *G.Node) (product *G.Node, factor float64) {
	factor = 1
	for {
		switch operator := operatorOf(n); {
		case opType(n) == "sumOp", opType(n) == "reshapeOp":
			n = w.in[n][0]
		case opType(n) == "elemUnaryOp" && n.Op().String() == "neg":
			factor, n = -factor, w.in[n][0]
		case operator == opDiv:
			by, ok := w.number(w.in[n][1])
			if !ok || by == 0 {
				return nil, 0
			}
			factor, n = factor/by, w.in[n][0]
		case operator == opMul:
			by, rest := w.constantFactor(n)
			if rest == nil {
				return n, factor
			}
			factor, n = factor*by, rest
		default:
			return nil, 0
		}
	}
}

// constantFactor splits a product into a number and the rest, nil where neither
// operand is a number.
func (w *walk) constantFactor(n *G.Node) (by float64, rest *G.Node) {
	for k := range 2 {
		if by, ok := w.number(w.in[n][k]); ok {
			return by, w.in[n][1-k]
		}
	}
	return 0, nil
}

// logSoftmaxOf is the x of log softmax(x), nil where n is something else.
func (c *call) logSoftmaxOf(n *G.Node) (x *G.Node, axis int64) {
	log := c.is(n, "ln")
	if log {
		n = c.arg(n, 0)
	}
	if opType(n) != "softmaxOp" {
		return nil, 0
	}
	s := &call{importer: c.importer, n: n, in: c.walk.in[n], op: structOf(n.Op())}
	if s.flag("isLog") == log {
		return nil, 0
	}
	return s.in[0], s.softmaxAxis()
}
