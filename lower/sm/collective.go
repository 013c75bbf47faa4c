package sm

import (
	"math"

	"ampc/ir"
	"ampc/lower"
)

var collectiveKernels = map[ir.Op]cudaKernel{
	ir.OpAllReduce:     {emit: onCommStream((*cudaCall).allReduce), takes: reducible},
	ir.OpAllGather:     {emit: onCommStream((*cudaCall).allGather), takes: partsInOrder},
	ir.OpReduceScatter: {emit: onCommStream((*cudaCall).reduceScatter), takes: scatters},
}

// wholeTypes are the types that NCCL adds, or takes the largest of, as they are.
var wholeTypes = map[ir.DType]bool{ir.I32: true, ir.I64: true, ir.U8: true, ir.Bool: true}

// exchangeMost is how many ranks add the parts of an exchange: one kernel reads a part of each.
const exchangeMost = 64

// reducible reports whether messages of n have the form of allReduce. NCCL's maximum of floats
// drops NaN.
func reducible(n *ir.Node) bool {
	d := n.In[0].Type.DType
	if n.Together() > 1 {
		return false
	}
	if d.Float() {
		return (d == ir.F32 || d.Low()) && n.Str("op") != "max" && (!ordered(n) || n.Int("ranks") <= exchangeMost)
	}
	return wholeTypes[d]
}

// ordered reports whether the order of n's sums is part of what it computes, or its messages have
// 16 bits, which NCCL would add in 16 bits.
func ordered(n *ir.Node) bool {
	return n.In[0].Type.DType.Float() && (n.Flag("tree") || n.DT("msg").Low())
}

// partsInOrder reports whether the ranks' parts of each operand lie one after the other.
func partsInOrder(n *ir.Node) bool {
	return n.Flag("flat") || n.Attrs.Get("shapes") != nil || n.Int("axis") == 0
}

// scatters reports whether messages of n have the form of reduceScatter.
func scatters(n *ir.Node) bool {
	d := n.In[0].Type.DType
	return partsInOrder(n) && (d == ir.F32 || d.Low()) && n.Int("ranks") <= exchangeMost
}

// onCommStream puts all steps that emit makes on the stream of messages.
func onCommStream(emit func(c *cudaCall) error) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		first := len(c.out)
		err := emit(c)
		for i := range c.out[first:] {
			c.out[first+i].Stream = lower.CommStream
		}
		return err
	}
}

func (c *cudaCall) allReduce() error {
	switch d := c.typeOf(c.s.In[0]).DType; {
	case c.n.Int("ranks") == 1:
		return c.copies()
	case ordered(c.n):
		return c.exchanged()
	case c.n.Str("op") == "max":
		c.transfer(lower.MaxAll, c.s.Kernel.Node, c.s.In, c.s.Out)
		return nil
	case d.Low() || c.n.Str("op") == "mean" || c.n.Int("shift") != 0:
		return c.widenedSum()
	}
	c.transfer(lower.SumAll, c.s.Kernel.Node, c.s.In, c.s.Out)
	return nil
}

// copies is what a message of one rank does.
func (c *cudaCall) copies() error {
	for i, in := range c.s.In {
		if err := c.scaled(in, c.s.Out[i], 0, 0, 1); err != nil {
			return err
		}
	}
	return nil
}

// transfer emits one call of NCCL. The node says which result may lie where its operand did.
func (c *cudaCall) transfer(op lower.TransferOp, n *ir.Node, in, out []lower.BufferID) {
	s := lower.Step{Kind: lower.KindKernel, In: in, Out: out, Node: c.s.Node, Kernel: &lower.Kernel{Name: op.String(), Node: n}, Runs: c.s.Runs,
		Transfer: &lower.Transfer{Op: op, Ranks: c.n.Int("ranks"), Seq: c.n.Int("seq")}, Stream: lower.CommStream}
	s.Bytes = c.p.Traffic(&s)
	c.out = append(c.out, s)
}

// widenedSum sends f32 copies of the operands, times 2^-shift, and divides for a mean.
func (c *cudaCall) widenedSum() error {
	down := math.Ldexp(1, -int(c.n.Int("shift")))
	var in, out []lower.BufferID
	for _, x := range c.s.In {
		if c.elements(x) == 0 {
			continue
		}
		if c.typeOf(x).DType != ir.F32 || down != 1 {
			wide := c.temp("wide", ir.F32, c.elements(x))
			if err := c.scaled(x, wide, 0, 0, down); err != nil {
				return err
			}
			x = wide
		}
		in, out = append(in, x), append(out, c.temp("sum", ir.F32, ir.Sizes(c.typeOf(x).Shape)...))
	}
	c.transfer(lower.SumAll, c.s.Kernel.Node, in, out)
	k := 0
	for _, y := range c.s.Out {
		if c.elements(y) == 0 {
			continue
		}
		code := ir.NewCode(nil)
		sum := load(code, 0, ir.F32)
		if c.n.Str("op") == "mean" {
			sum = code.Div(sum, code.F(float64(c.n.Int("ranks"))))
		}
		if err := c.between(out[k], y, 0, 0, c.elements(y), code, code.Mul(sum, code.F(1/down))); err != nil {
			return err
		}
		k++
	}
	return nil
}

// partAlign is what the elements of a rank's part are a multiple of: 16 bytes or more.
const partAlign = 8

// exchanged sends every rank its part of all operands, packed one after the other, adds the
// ranks' parts in f32 in the order that the node asks for, and gathers the sums. The bytes are those
// of a ring, the results those of the CPU.
func (c *cudaCall) exchanged() error {
	ranks, total := c.n.Int("ranks"), int64(0)
	for _, x := range c.s.In {
		total += c.elements(x)
	}
	part := ((total+ranks-1)/ranks + partAlign - 1) / partAlign * partAlign
	wire := c.n.DT("msg")
	scale := math.Ldexp(1, int(c.n.Int("shift")))
	packed := c.temp("packed", wire, ranks*part)
	at := int64(0)
	for _, x := range c.s.In {
		if err := c.scaled(x, packed, 0, at, 1/scale); err != nil {
			return err
		}
		at += c.elements(x)
	}
	if err := c.zero(packed, total, ranks*part-total); err != nil {
		return err
	}
	parts, own, all := c.temp("parts", wire, ranks*part), c.temp("own", wire, part), c.temp("all", wire, ranks*part)
	c.transfer(lower.Exchange, &ir.Node{}, []lower.BufferID{packed}, []lower.BufferID{parts})
	if err := c.addParts(parts, own, part); err != nil {
		return err
	}
	c.transfer(lower.GatherAll, &ir.Node{}, []lower.BufferID{own}, []lower.BufferID{all})
	at = 0
	for _, y := range c.s.Out {
		if err := c.scaled(all, y, at, 0, scale); err != nil {
			return err
		}
		at += c.elements(y)
	}
	return nil
}

// addParts adds the ranks' parts: in their order, or as a tree of neighbours.
func (c *cudaCall) addParts(parts, own lower.BufferID, n int64) error {
	ranks := c.n.Int("ranks")
	code := ir.NewCode(nil)
	g := &lower.Cluster{Shape: []int64{n}}
	d := c.typeOf(parts).DType
	x := make([]ir.Reg, ranks)
	for r := range ranks {
		g.Loads = append(g.Loads, c.walk(parts, r*n, 1))
		x[r] = load(code, int(r), d)
	}
	apart := func(step int) {
		for r := 0; r+step < len(x); r += 2 * step {
			x[r] = code.Add(x[r], x[r+step])
		}
	}
	if c.n.Flag("tree") {
		for step := 1; step < len(x); step *= 2 {
			apart(step)
		}
	} else {
		for _, y := range x[1:] {
			x[0] = code.Add(x[0], y)
		}
	}
	if c.n.Str("op") == "mean" {
		x[0] = code.Div(x[0], code.F(float64(ranks)))
	}
	store := c.walk(own, 0, 1)
	store.Reg = x[0]
	g.Code, g.Stores = code.Ins, []lower.Access{store}
	return c.cluster(g)
}

// scaled writes the elements of one tensor, from an element of x to an element of y, times a
// power of two: as many as the smaller of both has.
func (c *cudaCall) scaled(x, y lower.BufferID, from, to int64, factor float64) error {
	n := min(c.elements(x), c.elements(y))
	code := ir.NewCode(nil)
	r := load(code, 0, c.typeOf(x).DType)
	if factor != 1 {
		r = code.Mul(r, code.F(factor))
	}
	return c.between(x, y, from, to, n, code, r)
}

// between emits code that reads n elements of x and writes n elements of y.
func (c *cudaCall) between(x, y lower.BufferID, from, to, n int64, code *ir.Code, r ir.Reg) error {
	if n == 0 {
		return nil
	}
	store := c.walk(y, to, 1)
	store.Reg = r
	return c.cluster(&lower.Cluster{Shape: []int64{n}, Code: code.Ins, Loads: []lower.Access{c.walk(x, from, 1)}, Stores: []lower.Access{store}})
}

// zero clears n elements of a buffer.
func (c *cudaCall) zero(id lower.BufferID, from, n int64) error {
	if n == 0 {
		return nil
	}
	code := ir.NewCode(nil)
	store := c.walk(id, from, 1)
	store.Reg = code.F(0)
	return c.cluster(&lower.Cluster{Shape: []int64{n}, Code: code.Ins, Stores: []lower.Access{store}})
}

// allGather joins the ranks' parts of each operand. Parts of a flattened tensor may be more than it
// has; what fills them up is left behind.
func (c *cudaCall) allGather() error {
	ranks := c.n.Int("ranks")
	if ranks == 1 {
		return c.copies()
	}
	out := make([]lower.BufferID, len(c.s.Out))
	for i, y := range c.s.Out {
		out[i] = y
		if n := ranks * c.elements(c.s.In[i]); n > c.elements(y) {
			out[i] = c.temp("filled", c.typeOf(y).DType, n)
		}
	}
	c.transfer(lower.GatherAll, &ir.Node{}, c.s.In, out)
	for i, y := range c.s.Out {
		if out[i] != y {
			if err := c.scaled(out[i], y, 0, 0, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// reduceScatter sends every rank its part of each operand and adds the parts in f32, in the order
// that the node asks for. The results are those of the CPU.
func (c *cudaCall) reduceScatter() error {
	ranks := c.n.Int("ranks")
	if ranks == 1 {
		return c.copies()
	}
	at := make([]int64, len(c.s.In)) // of each operand in a rank's part
	part, filled := int64(0), false
	for i, x := range c.s.In {
		at[i] = part
		n := c.elements(c.s.Out[i])
		part += n
		filled = filled || ranks*n > c.elements(x)
	}
	all := (part + partAlign - 1) / partAlign * partAlign
	wire, scale := c.n.DT("msg"), math.Ldexp(1, int(c.n.Int("shift")))
	packed := c.temp("packed", wire, ranks*all)
	if filled || all > part {
		if err := c.zero(packed, 0, ranks*all); err != nil {
			return err
		}
	}
	for i, x := range c.s.In {
		if err := c.dealt(x, packed, c.elements(c.s.Out[i]), at[i], all, 1/scale); err != nil {
			return err
		}
	}
	parts, own := c.temp("parts", wire, ranks*all), c.temp("own", wire, all)
	c.transfer(lower.Exchange, &ir.Node{}, []lower.BufferID{packed}, []lower.BufferID{parts})
	if err := c.addParts(parts, own, all); err != nil {
		return err
	}
	for i, y := range c.s.Out {
		if err := c.scaled(own, y, at[i], 0, scale); err != nil {
			return err
		}
	}
	return nil
}

// dealt writes x, times a power of two, to packed: n elements for each rank, the first at element at, the
// others each apart further.
func (c *cudaCall) dealt(x, packed lower.BufferID, n, at, apart int64, factor float64) error {
	if n == 0 {
		return nil
	}
	scaled := func() (*ir.Code, ir.Reg) {
		code := ir.NewCode(nil)
		r := load(code, 0, c.typeOf(x).DType)
		return code, code.Mul(r, code.F(factor))
	}
	rows := c.elements(x) / n
	if rows > 0 {
		code, r := scaled()
		store := c.walk(packed, at, apart, 1)
		store.Reg = r
		if err := c.cluster(&lower.Cluster{Shape: []int64{rows, n}, Code: code.Ins, Loads: []lower.Access{c.walk(x, 0, n, 1)}, Stores: []lower.Access{store}}); err != nil {
			return err
		}
	}
	code, r := scaled()
	return c.between(x, packed, rows*n, at+rows*apart, c.elements(x)-rows*n, code, r)
}
