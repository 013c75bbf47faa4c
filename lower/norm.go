package lower

import (
	"slices"

	"ampc/ir"
)

// NormFusion is what the kernel of a channel norm computes besides its row. The result may pass
// through a sum and a ReLU before it is stored. On the CPU a gradient may apply the gradient of
// that ReLU to dy. The numbers index the operands and results of the step, after those of the row;
// 0 means absent.
type NormFusion struct {
	Relu     bool // the result is max(norm + residual, 0), else norm + residual
	Residual int  // operand that is added to the norm
	Copy     int  // last result of the step: the same values in another dtype
	Sign     int  // of a gradient: dy counts where this operand is above zero
	Signs    int  // last result of the step: a bit for each element of result SignsOf, which says whether it is above zero
	SignsOf  int
	Unstored bool // the kernel computes the statistics only: those who read result 0 compute it again

	// For norms on a GPU. Register Made of Prologue is what the norm normalizes, or the dy of a
	// gradient. Epilogue, of norms over rows, reads the norm's result as load 0, which is in no
	// buffer. Their buffers follow the operands and results of the row. An operand or result of the
	// row that they replace is None or omitted.
	Prologue, Epilogue *Cluster
	Made               ir.Reg
	Beside             *KernelPart // second channel norm that the same kernel runs, or nil
	Total              *RowSum     // sum over the rows of a value of Epilogue, or nil
}

// RowSum is the sum over all rows of register Reg of a norm's epilogue, or of the norm's result if it
// has no epilogue (ir.RowFusion.Sums). The kernel stores it as result Out of the step.
type RowSum struct {
	Reg ir.Reg
	Out int
}

// KernelPart is one of several nodes that a kernel runs: a second norm (ir.NormFusion.Beside), or one
// of Kernel.Parts. Two gradients of norms take the same dy. Of two
// norms, the first result of the second one is the residual of the other: it is rounded to its dtype
// and is in no buffer.
type KernelPart struct {
	Node    *ir.Node
	In, Out []int // numbers of its operands and results in the step; -1: absent, computed by the prologue, or in no buffer. Operands after those of the step are its results.
}

// Step is a step that runs the part of s alone.
func (b *KernelPart) Step(s *Step) *Step {
	pick := func(at []int, from, more []BufferID) (ids []BufferID) {
		for _, i := range at {
			switch {
			case i < 0:
				ids = append(ids, None)
			case i < len(from):
				ids = append(ids, from[i])
			default:
				ids = append(ids, more[i-len(from)])
			}
		}
		return ids
	}
	return &Step{Kind: KindKernel, In: pick(b.In, s.In, s.Out), Out: pick(b.Out, s.Out, nil), Node: s.Node, Runs: s.Runs, Kernel: &Kernel{Name: b.Node.Def().Name, Node: b.Node}}
}

// lowerNorm lowers the cluster of a channel norm: the norm with its epilogue, a sum and a ReLU, or
// its gradient with the gradient of that ReLU as prologue (ir.Caps). It reports false for other
// clusters.
func (l *Lowerer) lowerNorm(n *ir.Node, rest []*ir.Node) bool {
	caps := l.p.Target.Caps()
	if m := caps.Prologue(n); m != nil && len(rest) == 1 && rest[0] == m && keeps(m.Out[0], m.In[0]) && !l.stored(m.Out[0], []*ir.Node{n}) {
		l.now = []*ir.Node{m, n}
		c := l.newNormCluster(n)
		c.in[caps.NormOf(n).Prologue] = m.In[0]
		c.fusion.Sign = c.operand(m.In[1])
		c.emit(n.Out, NodeRef{n.Name(), n.Pos})
		return true
	}
	return caps.FusesNormEpilogue(n) && l.lowerNormEpilogue(n, nil, rest)
}

// keeps reports whether storing y, which is elements of x or zeros, rounds nothing.
func keeps(y, x *ir.Value) bool { return y.Type.DType == ir.F32 || y.Type.DType == x.Type.DType }

// lowerNormEpilogue lowers norm n with the nodes rest as its epilogue. The epilogue may add the
// result of the norm added, which is nil if there is none.
func (l *Lowerer) lowerNormEpilogue(n, added *ir.Node, rest []*ir.Node) bool {
	caps, stage, at := l.p.Target.Caps(), ir.AfterNorm, n.Out[0]
	c := l.newNormCluster(n)
	left := slices.Clone(rest)
	for len(left) > 0 && len(l.uses.Of(at)) == 1 && !l.stored(at, left) {
		m := l.uses.Of(at)[0].Node
		next := caps.Extends(stage, m, at)
		if next == ir.NoEpilogue || next == ir.AfterNormSum && at.Type.DType != ir.F32 {
			break
		}
		if c.fusion.Relu = next == ir.AfterNormRelu; next == ir.AfterNormSum {
			other := m.In[0]
			if other == at {
				other = m.In[1]
			}
			if added == nil || other != added.Out[0] {
				c.fusion.Residual = c.operand(other)
			} else {
				c.beside(added)
			}
		}
		left = slices.DeleteFunc(left, func(x *ir.Node) bool { return x == m })
		stage, at = next, m.Out[0]
	}
	forms := []*ir.Value{}
	if l.stored(at, rest) {
		forms = append(forms, at)
	}
	for _, m := range left {
		if m.Op != ir.OpCast || m.In[0] != at {
			return false
		}
		if l.stored(m.Out[0], rest) {
			forms = append(forms, m.Out[0])
		}
	}
	if at == n.Out[0] || len(forms) == 0 || len(forms) > 2 {
		return false
	}
	for _, v := range []*ir.Value{n.Out[0], at} { // the kernel stores values that are rounded already
		if d := v.Type.DType; d != ir.F32 && slices.ContainsFunc(forms, func(f *ir.Value) bool { return f.Type.DType != d }) {
			return false
		}
	}
	if added != nil && (c.fusion.Beside == nil || l.stored(added.Out[0], rest)) {
		return false
	}
	l.now = append([]*ir.Node{n}, rest...)
	out := slices.Clone(n.Out)
	out[0] = forms[0]
	if len(forms) == 2 {
		c.fusion.Copy = len(out)
		out = append(out, forms[1])
	}
	if added != nil {
		l.now = append(l.now, added)
		for i := range added.Out[1:] {
			c.fusion.Beside.Out[1+i] = len(out) + i
		}
		out = append(out, added.Out[1:]...)
	}
	c.fusion.Unstored = l.pooled[n]
	name := NodeRef{rest[len(rest)-1].Name(), rest[0].Pos}
	for i, v := range forms {
		if l.signsRead(v) {
			c.signs, c.fusion.Signs, c.fusion.SignsOf = v, len(out), i*c.fusion.Copy
			break
		}
	}
	c.emit(out, name)
	return true
}

// signsRead reports whether a launch reads the signs of v as bits, as the plan says, and the kernel
// of a norm can store them.
func (l *Lowerer) signsRead(v *ir.Value) bool {
	norm, _ := l.p.Target.Caps().NormOfRelu(v)
	return norm != nil && l.p.Target.Caps().NormOf(norm).Signs && slices.ContainsFunc(l.uses.Of(v), func(u ir.Use) bool {
		return u.Node.Why.Launch > 0 && u.Node.Why.Has(ir.MarkReadsSigns) && u.Node.OperandDef(u.Arg()).Sign
	})
}

// normCluster builds the step of a norm from values.
type normCluster struct {
	l      *Lowerer
	node   *ir.Node
	in     []*ir.Value // all operands of the row, absent ones included, then the others
	fusion NormFusion
	signs  *ir.Value // whose signs the step stores as its last result, or nil
}

func (l *Lowerer) newNormCluster(n *ir.Node) *normCluster {
	c := &normCluster{l: l, node: n, in: slices.Clone(n.In)}
	for len(c.in) < len(n.Def().In) {
		c.in = append(c.in, nil)
	}
	return c
}

// operand adds an operand that is not the row's, and returns its number.
func (c *normCluster) operand(v *ir.Value) int {
	c.in = append(c.in, v)
	return len(c.in) - 1
}

// beside makes the kernel run norm n, too. Its results have no numbers yet.
func (c *normCluster) beside(n *ir.Node) {
	b := &KernelPart{Node: detached(n)}
	for _, v := range n.In {
		at := -1
		if v != nil {
			at = c.operand(v)
		}
		b.In = append(b.In, at)
	}
	for range n.Out {
		b.Out = append(b.Out, -1)
	}
	c.fusion.Beside = b
}

// emit emits the step with the results out.
func (c *normCluster) emit(out []*ir.Value, name NodeRef) {
	n := *c.node
	n.In, n.Out = c.in, out
	s := c.l.step(KindKernel, &n)
	s.Node = name
	s.Kernel = &Kernel{Name: n.Def().Name, Node: detached(&n), InPlace: n.Def().Is(ir.InPlace), Fusion: c.fusion}
	if v := c.signs; v != nil {
		bits := c.l.p.NewBuffer(v.Name+".signs", ir.T(ir.U8, ir.Dim(v.Type.Shape.Elements()/8)), WorkArena)
		c.l.signs[v] = bits
		s.Out = append(s.Out, bits)
	}
	c.l.emit(s)
}
