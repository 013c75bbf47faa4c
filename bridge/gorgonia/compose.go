package bridge

import (
	G "gorgonia.org/gorgonia"

	"ampc/ir"
)

// composites recognize what Gorgonia's functions expand into. Each looks at
// the last node of its expansion and returns nil where it is something else.
func (c *call) composite() *ir.Value {
	if v := c.crossEntropy(); v != nil || c.err != nil {
		return v
	}
	switch name := opType(c.n); {
	case name == "transposeOp":
		return c.convolution(c.n, nil)
	case name == "elemUnaryOp" && c.is(c.n, "sqrt"):
		return c.norm()
	case name == "elemUnaryOp" && c.is(c.n, "ln"):
		return c.logOf()
	case name == "elemBinOp":
		switch operatorOf(c.n) {
		case opMul:
			return c.activation()
		case opDiv:
			return c.mean()
		case opAdd:
			return c.sumOfTwo()
		}
	}
	return nil
}

// operatorOf is the number of an elementwise binary operator, -1 for other nodes.
func operatorOf(n *G.Node) int {
	if opType(n) != "elemBinOp" {
		return -1
	}
	return int(structOf(n.Op()).Field(0).Elem().Field(0).Uint())
}

// is says whether n applies the unary operator called name.
func (c *call) is(n *G.Node, name string) bool {
	return opType(n) == "elemUnaryOp" && n.Op().String() == name
}

// arg is operand k of n.
func (c *call) arg(n *G.Node, k int) *G.Node { return c.walk.in[n][k] }

// number is what a node holds that does not change between runs.
func (w *walk) number(n *G.Node) (float64, bool) {
	switch {
	case opType(n) == "constantScalar":
		h, err := hostOf(n.Value())
		return h.At(0), err == nil
	case opType(n) == "sizeOp":
		shape, axis := w.in[n][0].Shape(), int(structOf(n.Op()).FieldByName("axis").Int())
		if axis < len(shape) {
			return float64(shape[axis]), true
		}
	case operatorOf(n) == opMul:
		x, ok := w.number(w.in[n][0])
		y, ok2 := w.number(w.in[n][1])
		return x * y, ok && ok2
	}
	return 0, false
}

func (c *call) holds(n *G.Node, x float64) bool {
	v, ok := c.walk.number(n)
	return ok && v == x
}

// convolution is im2col, times the filters as a matrix, put back into the
// shape of images. Conv2d marks all of its nodes with one group.
func (c *call) convolution(n *G.Node, bias *ir.Value) *ir.Value {
	if opType(n) != "transposeOp" || !grouped(n, "Convolution") {
		return nil
	}
	at := []*G.Node{n} // from the result towards the images
	for _, want := range []string{"reshapeOp", "linAlgBinOp", "reshapeOp", "im2colOp"} {
		next := c.arg(at[len(at)-1], 0)
		if opType(next) != want {
			return nil
		}
		at = append(at, next)
	}
	flat := c.arg(at[2], 1)
	if opType(flat) != "reshapeOp" {
		return nil
	}
	cols := &call{importer: c.importer, n: at[4], op: structOf(at[4].Op())}
	x, w := c.value(c.arg(at[4], 0)), c.value(c.arg(flat, 0))
	return c.b.Conv(x, w, bias, cols.columns())
}

func grouped(n *G.Node, name string) bool {
	for _, g := range n.Groups() {
		if g.Name == name {
			return true
		}
	}
	return false
}

// gated returns x where n is x times a comparison, as 0 or 1, of x with 0.
func (c *call) gated(n *G.Node, op int) *G.Node {
	if operatorOf(n) != opMul {
		return nil
	}
	for k := range 2 {
		x, test := c.arg(n, k), c.arg(n, 1-k)
		if operatorOf(test) == op && c.arg(test, 0) == x && c.holds(c.arg(test, 1), 0) {
			return x
		}
	}
	return nil
}

// activation finds Rectify and Mish.
func (c *call) activation() *ir.Value {
	if x := c.gated(c.n, opGte); x != nil {
		return c.b.Relu(c.value(x))
	}
	for k := range 2 {
		x, t := c.in[k], c.in[1-k]
		if c.is(t, "tanh") && c.is(c.arg(t, 0), "softplus") && c.arg(c.arg(t, 0), 0) == x {
			return c.b.Mish(c.value(x))
		}
	}
	return nil
}

// sumOfTwo finds LeakyRelu, and biases added to a product or a convolution.
func (c *call) sumOfTwo() *ir.Value {
	if v := c.leaky(); v != nil {
		return v
	}
	for k := range 2 {
		if v := c.biased(c.in[k], c.in[1-k]); v != nil {
			return v
		}
	}
	return nil
}

func (c *call) leaky() *ir.Value {
	x, below := c.gated(c.in[0], opGte), c.in[1]
	if x == nil || operatorOf(below) != opMul {
		return nil
	}
	alpha, ok := c.walk.number(c.arg(below, 1))
	if !ok || c.gated(c.arg(below, 0), opLt) != x {
		return nil
	}
	return c.b.LeakyRelu(c.value(x), alpha)
}

// biased is a product or a convolution that nothing else reads, plus a bias
// that BroadcastAdd repeated along every axis but that of the features.
func (c *call) biased(n, bias *G.Node) *ir.Value {
	if c.users[n] != 1 || opType(bias) != "repeatOp" {
		return nil
	}
	for opType(bias) == "repeatOp" && repeatsOne(bias, c.arg(bias, 0)) {
		bias = c.arg(bias, 0)
	}
	axis, shape := 1, bias.Shape()
	if len(shape) != len(n.Shape()) || len(shape) < 2 || shape[axis] != n.Shape()[axis] || shape.TotalSize() != shape[axis] {
		return nil
	}
	conv := opType(n) == "transposeOp" && grouped(n, "Convolution")
	product := opType(n) == "linAlgBinOp" && structOf(n.Op()).Field(0).Uint() == matMul && !structOf(n.Op()).FieldByName("transA").Bool()
	if !conv && !product {
		return nil
	}
	b := c.value(bias)
	if b == nil {
		return nil
	}
	if b = c.b.Reshape(b, -1); conv {
		return c.convolution(n, b)
	}
	return c.b.Linear(c.value(c.arg(n, 0)), c.value(c.arg(n, 1)), b, structOf(n.Op()).FieldByName("transB").Bool())
}

// mean is a sum divided by the number of its terms.
func (c *call) mean() *ir.Value {
	count, ok := c.walk.number(c.in[1])
	if !ok || opType(c.in[0]) != "sumOp" {
		return nil
	}
	sum := &call{importer: c.importer, n: c.in[0], in: c.walk.in[c.in[0]], op: structOf(c.in[0].Op())}
	terms, axes := 1.0, sum.ints("along")
	for _, a := range axes {
		terms *= float64(sum.in[0].Shape()[a])
	}
	if terms != count {
		return nil
	}
	if p, t := c.binaryXent(sum.in[0]); p != nil && len(axes) == sum.in[0].Dims() {
		return c.b.BCE(c.value(p), c.value(t))
	}
	return c.b.ReduceMean(sum.x(0), false, axes...)
}

// binaryXent returns p and t where n is -(t·ln p + (1-t)·ln(1-p)), whose last
// logarithm Gorgonia may have turned into log1p(-p).
func (c *call) binaryXent(n *G.Node) (p, t *G.Node) {
	if !c.is(n, "neg") || operatorOf(c.arg(n, 0)) != opAdd {
		return nil, nil
	}
	on, off := c.arg(c.arg(n, 0), 0), c.arg(c.arg(n, 0), 1)
	if operatorOf(on) != opMul || operatorOf(off) != opMul {
		return nil, nil
	}
	t = c.arg(on, 0)
	if !c.is(c.arg(on, 1), "ln") || c.oneMinus(c.arg(off, 0)) != t {
		return nil, nil
	}
	p = c.arg(c.arg(on, 1), 0)
	last := c.arg(off, 1)
	switch {
	case c.is(last, "ln") && c.oneMinus(c.arg(last, 0)) == p:
		return p, t
	case c.is(last, "log1p") && c.is(c.arg(last, 0), "neg") && c.arg(c.arg(last, 0), 0) == p:
		return p, t
	}
	return nil, nil
}

func (c *call) oneMinus(n *G.Node) *G.Node {
	if operatorOf(n) == opSub && c.holds(c.arg(n, 0), 1) {
		return c.arg(n, 1)
	}
	return nil
}

// norm is the root of a sum of squares.
func (c *call) norm() *ir.Value {
	s := c.in[0]
	if opType(s) != "sumOp" || !c.is(c.arg(s, 0), "square") {
		return nil
	}
	sum := &call{importer: c.importer, n: s, op: structOf(s.Op())}
	return c.b.ReduceL2(c.value(c.arg(c.arg(s, 0), 0)), false, sum.ints("along")...)
}

// logOf finds the logarithm of a softmax and of a sum of exponentials.
func (c *call) logOf() *ir.Value {
	x := c.in[0]
	if x.Op() == nil {
		return nil
	}
	if operatorOf(x) == opAdd {
		return c.logSumExp(c.arg(x, 0), c.arg(x, 1))
	}
	inner := &call{importer: c.importer, n: x, in: c.walk.in[x], op: structOf(x.Op())}
	switch {
	case opType(x) == "softmaxOp" && !inner.flag("isLog"):
		return c.b.LogSoftmax(inner.x(0), inner.softmaxAxis())
	case opType(x) == "sumOp" && c.is(c.arg(x, 0), "exp"):
		return c.b.LogSumExp(c.value(c.arg(c.arg(x, 0), 0)), inner.ints("along")...)
	}
	return nil
}

// logSumExp is Gorgonia's function of that name: ln(Σ exp(x-m) + m), with m the
// maximum. The m stands on the wrong side of the logarithm; what is built is
// the value that the name promises.
func (c *call) logSumExp(sum, m *G.Node) *ir.Value {
	if opType(sum) != "sumOp" || opType(m) != "maxOp" || !c.is(c.arg(sum, 0), "exp") {
		return nil
	}
	diff := c.arg(c.arg(sum, 0), 0)
	if operatorOf(diff) != opSub || c.arg(diff, 1) != m || c.arg(diff, 0) != c.arg(m, 0) {
		return nil
	}
	inner := &call{importer: c.importer, n: sum, op: structOf(sum.Op())}
	return c.b.LogSumExp(c.value(c.arg(diff, 0)), inner.ints("along")...)
}
