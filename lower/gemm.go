package lower

import (
	"slices"

	"ampc/ir"
)

// lowerMatmul lowers a product with broadcast leading dimensions.
func lowerMatmul(l *Lowerer, n *ir.Node) error {
	l.now = []*ir.Node{n}
	s := l.step(KindGemm, n)
	s.Gemm = ProductOf(n)
	l.emit(s)
	return nil
}

// lowerLinear lowers x[..,K]·w + b as one product of all rows of x.
func lowerLinear(l *Lowerer, n *ir.Node) error {
	l.now = []*ir.Node{n}
	s := l.step(KindGemm, n)
	s.Gemm = ProductOf(n)
	if len(s.In) > 2 && s.In[2] == None {
		s.In = s.In[:2]
	}
	l.emit(s)
	return nil
}

// ProductOf describes the product of a matmul or linear node, with its bias. All sizes are known.
func ProductOf(n *ir.Node) *Gemm {
	g := &Gemm{TF32: roundsTF32(n)}
	a, b, y := ir.Sizes(n.In[0].Type.Shape), ir.Sizes(n.In[1].Type.Shape), ir.Sizes(n.Out[0].Type.Shape)
	g.A.T, g.B.T = n.Flag("ta"), n.Flag("tb")
	if len(a) == 1 { // a vector is one row
		a, y = append([]int64{1}, a...), append([]int64{1}, y...)
	}
	g.M, g.N = y[len(y)-2], y[len(y)-1]
	g.K = a[len(a)-1]
	if g.A.T {
		g.K = a[len(a)-2]
	}
	g.A.LD, g.B.LD, g.C.LD = a[len(a)-1], b[len(b)-1], g.N
	if len(n.In) > 2 && n.In[2] != nil {
		g.Epilogue.Bias = 2
	}
	g.batch(a[:len(a)-2], b[:len(b)-2], y[:len(y)-2])
	return g
}

// batch sets the batch levels from the leading dimensions. Dimensions along which all operands
// advance alike become one level. Rows of an untransposed A become part of M where all items share
// B.
func (g *Gemm) batch(a, b, y []int64) {
	sa, sb, sy := leadingStrides(a, y, g.ARows()*g.A.LD), leadingStrides(b, y, g.BRows()*g.B.LD), ir.RowMajor(y)
	for i := range sy {
		sy[i] *= g.M * g.C.LD
	}
	for i, size := range y {
		last := len(g.Batch) - 1
		switch {
		case size == 1:
		case last >= 0 && g.A.Strides[last] == sa[i]*size && g.B.Strides[last] == sb[i]*size && g.C.Strides[last] == sy[i]*size:
			g.Batch[last] *= size
			g.A.Strides[last], g.B.Strides[last], g.C.Strides[last] = sa[i], sb[i], sy[i]
		default:
			g.Batch = append(g.Batch, size)
			g.A.Strides, g.B.Strides, g.C.Strides = append(g.A.Strides, sa[i]), append(g.B.Strides, sb[i]), append(g.C.Strides, sy[i])
		}
	}
	if last := len(g.Batch) - 1; last >= 0 && !g.A.T && g.B.Strides[last] == 0 && g.A.Strides[last] == g.M*g.A.LD {
		g.M *= g.Batch[last]
		g.Batch = g.Batch[:last]
		for _, m := range []*Matrix{&g.A, &g.B, &g.C} {
			m.Strides = m.Strides[:last]
		}
	}
}

// ARows counts the stored rows of one item of A.
func (g *Gemm) ARows() int64 {
	if g.A.T {
		return g.K
	}
	return g.M
}

// BRows counts the stored rows of one item of B.
func (g *Gemm) BRows() int64 {
	if g.B.T {
		return g.N
	}
	return g.K
}

// leadingStrides aligns an operand's leading dimensions with the result's. One item has step
// elements. A broadcast dimension has stride 0.
func leadingStrides(own, y []int64, step int64) []int64 {
	st := make([]int64, len(y))
	off := len(y) - len(own)
	for i := len(own) - 1; i >= 0; i-- {
		if own[i] != 1 {
			st[off+i] = step
		}
		step *= own[i]
	}
	return st
}

// link is a node of a product's own epilogue: the stage after the node, and the value of the
// product that the node reads.
type link struct {
	node  *ir.Node
	stage ir.EpilogueStage
	of    *ir.Value
}

// epilogue divides nodes, which follow product n, into those of the product's own epilogue
// (ir.Caps) and the rest, which remain elementwise work over its result. ok reports whether one
// kernel runs the product and all of nodes.
func (r *readers) epilogue(caps ir.Caps, n *ir.Node, nodes []*ir.Node) (own []link, rest []*ir.Node, ok bool) {
	stage := caps.EpilogueOf(n)
	if stage == ir.NoEpilogue || caps.FusesNormEpilogue(n) || !fusible(n, nodes) {
		return nil, nil, false
	}
	at, rest := n.Out[0], slices.Clone(nodes)
	conv := !n.Def().Is(ir.MatrixProduct)
	for len(rest) > 0 && len(r.uses.Of(at)) == 1 && !r.stored(at, nodes) && at.Type.DType == ir.F32 {
		m := r.uses.Of(at)[0].Node
		next := caps.Extends(stage, m, at)
		x := link{m, next, at}
		if next == ir.NoEpilogue || conv && next != ir.AfterActivation || m.Out[0].Next != nil || x.readsOther(nodes) {
			break
		}
		own = append(own, x)
		rest = slices.DeleteFunc(rest, func(x *ir.Node) bool { return x == m })
		stage, at = next, m.Out[0]
	}
	return own, rest, len(rest) == 0 || caps.FusesCluster(n)
}

// lowerProduct lowers product n and elementwise nodes over its result to one step, if its kernel
// runs them: first the product's own epilogue, then, on the CPU, a cluster of the remaining nodes.
// It reports false otherwise.
func (l *Lowerer) lowerProduct(n *ir.Node, nodes []*ir.Node) bool {
	own, rest, ok := l.readers.epilogue(l.p.Target.Caps(), n, nodes)
	if !ok {
		return false
	}
	l.now = append([]*ir.Node{n}, nodes...)
	s, at := l.withEpilogue(n, own)
	s.Node.Name = nodes[len(nodes)-1].Out[0].String()
	if len(rest) == 0 {
		s.Out = []BufferID{l.result(at)}
	} else if l.fuseEpilogue(&s, at, rest); len(s.Out) == 0 { // nothing reads the results
		return true
	}
	l.emit(s)
	return true
}

// withEpilogue returns the step of product n with its own epilogue, and the value at that the epilogue
// computes. The step has no results yet.
func (l *Lowerer) withEpilogue(n *ir.Node, own []link) (s Step, at *ir.Value) {
	s, in := l.product(n)
	at = n.Out[0]
	for _, e := range own {
		in, at = s.epilogue().take(&e, in), e.node.Out[0]
	}
	for _, v := range in {
		s.In = append(s.In, l.in(v))
	}
	s.Node = NodeRef{at.Def.Name(), n.Pos}
	return s, at
}

// fusible reports whether nodes are elementwise over the shape of n's result and compute no operand
// of n.
func fusible(n *ir.Node, nodes []*ir.Node) bool {
	for _, m := range nodes {
		if m.Def().Elem == nil || m.Out[0].Type.Shape != n.Out[0].Type.Shape {
			return false
		}
	}
	return !slices.ContainsFunc(n.In, func(v *ir.Value) bool { return v != nil && v.Def != nil && contains(nodes, v.Def) })
}

// product starts the step of a product, a convolution or a kernel with post-ops, and returns its
// operands.
func (l *Lowerer) product(n *ir.Node) (s Step, in []*ir.Value) {
	if l.p.Target.Caps().PostOps[n.Op] {
		return Step{Kind: KindKernel, Kernel: &Kernel{Name: n.Def().Name, Node: detached(n)}}, n.In
	}
	if in = n.In; len(in) > 2 && in[2] == nil {
		in = in[:2]
	}
	if n.Def().Is(ir.MatrixProduct) {
		return Step{Kind: KindGemm, Gemm: ProductOf(n)}, in
	}
	s = Step{Kind: KindConv, Conv: convOf(n)}
	if len(in) > 2 {
		s.Conv.Epilogue.Bias = 2
	}
	return s, in
}

// epilogue returns the epilogue of a product or convolution.
func (s *Step) epilogue() *Epilogue {
	if s.Conv != nil {
		return &s.Conv.Epilogue
	}
	return &s.Gemm.Epilogue
}

// fuseEpilogue makes the cluster of nodes, which reads value at of the product, the epilogue of
// step s. The cluster also stores at, if others read it.
func (l *Lowerer) fuseEpilogue(s *Step, at *ir.Value, nodes []*ir.Node) {
	j := l.join(at, nodes)
	s.Epilogue = &j.cluster
	s.In = append(s.In, j.in...)
	if l.stored(at, nodes) {
		j.computed()
		j.cluster.Code = j.code.Ins
	}
	s.Out = l.stores(j, append([]*ir.Node{{Out: []*ir.Value{at}}}, nodes...))
}

// epilogueActs are the activations that an epilogue may have.
var epilogueActs = map[ir.Op]Act{ir.OpRelu: Relu, ir.OpTanh: Tanh}

// other is the operand of the node that is not the product's value.
func (e *link) other() *ir.Value {
	if e.node.In[0] == e.of {
		return e.node.In[1]
	}
	return e.node.In[0]
}

// readsOther reports whether one of nodes computes the operand of the node that is not the product's value.
func (e *link) readsOther(nodes []*ir.Node) bool {
	return len(e.node.In) > 1 && e.other() != nil && e.other().Def != nil && contains(nodes, e.other().Def)
}

// take adds the node of x to the epilogue. Its other operand is appended to the step's operands.
func (e *Epilogue) take(x *link, in []*ir.Value) []*ir.Value {
	if x.stage == ir.AfterActivation {
		e.Act = epilogueActs[x.node.Op]
		return in
	}
	if x.stage == ir.AfterBias {
		e.Bias = len(in)
	} else {
		e.Residual = len(in)
	}
	return append(in[:len(in):len(in)], x.other())
}

// roundsTF32 reports whether a product rounds its f32 operands to tf32. 16-bit operands need no
// rounding, and libraries refuse tf32 for them.
func roundsTF32(n *ir.Node) bool {
	return n.Str("math") == "tf32" && (n.In[0].Type.DType == ir.F32 || n.In[1].Type.DType == ir.F32)
}
