package lower

import "ampc/ir"

// rule lowers one node to steps (or to none, for a view).
type rule func(l *lowerer, n *ir.Node) error

// rules holds the ops that lower to something other than their row says by
// itself. Every other op is a group (elementwise), a view, or the kernel of its name.
var rules = map[ir.Op]rule{
	ir.OpMatmul: lowerMatmul, ir.OpLinear: lowerLinear,
	ir.OpConv: lowerConv, ir.OpConvGradX: lowerConv, ir.OpConvGradW: lowerConv, ir.OpConvTranspose: lowerConv,
	ir.OpAttention: lowerAttention, ir.OpAttentionGrad: lowerAttention,
	ir.OpTranspose: lowerTranspose, ir.OpBroadcast: lowerBroadcast, ir.OpSlice: lowerSlice, ir.OpFlip: lowerFlip,
	ir.OpConcat: lowerConcat, ir.OpSplit: lowerSplit, ir.OpPad: lowerPad, ir.OpTile: lowerTile,
	ir.OpDepthToSpace: lowerDepthToSpace, ir.OpSpaceToDepth: lowerSpaceToDepth,
	ir.OpMaxPool: lowerMaxPool, ir.OpMaxPoolGrad: lowerMaxPoolGrad, ir.OpAnyNonfinite: lowerNonfinite, ir.OpForeign: nil,
}

// ruleOf returns the rule of a node for a target, nil where there is none.
func ruleOf(n *ir.Node, t Target) rule {
	if _, gpu := t.CUDA(); gpu && !onGPU(n, t) {
		return nil
	}
	if r, ok := rules[n.Op]; ok {
		return r
	}
	switch d := n.Def(); {
	case d.Is(ir.Collective): // several devices come later
		return nil
	case d.Elem != nil:
		return lowerElem
	case d.Is(ir.View):
		return lowerView
	}
	return lowerKernel
}

func lowerElem(l *lowerer, n *ir.Node) error {
	l.emitGroup([]*ir.Node{n})
	return nil
}

// lowerView shows the operand's buffer under the result's type. A next value
// must be copied: its variable has a place of its own; so must a view of a
// variable that is read when the variable has moved on.
func lowerView(l *lowerer, n *ir.Node) error {
	y, root := n.Out[0], l.rootVar(n.In[0])
	if y.Next == nil && !(root.IsVar() && l.written[root.ID] && l.outlives(y)) {
		l.buf[y.ID] = l.view(y.Name, y.Type, l.in(n.In[0]))
		return nil
	}
	l.emitMoves(n, wholeMove(y.Type))
	return nil
}

// lowerKernel is the default: the kernel named as the row, with the node's
// attributes and types.
func lowerKernel(l *lowerer, n *ir.Node) error {
	l.emit(l.kernel(n))
	return nil
}

func (l *lowerer) kernel(n *ir.Node) Step {
	l.now = []*ir.Node{n}
	s := l.step(KindKernel, n)
	s.Kernel = &Kernel{Name: n.Def().Name, Node: detached(n), InPlace: n.Def().Is(ir.InPlace)}
	return s
}

// lowerMaxPool leaves a pool whose positions only one gradient reads to that
// gradient, and on the CPU drops positions that nobody reads.
func lowerMaxPool(l *lowerer, n *ir.Node) error {
	if l.p.Target != CPU {
		return lowerKernel(l, n)
	}
	if l.poolOfGrad(n) {
		return nil
	}
	if index := n.Out[1]; len(l.uses.Of(index)) == 0 && !l.returned[index.ID] {
		bare := *n
		bare.Out = n.Out[:1]
		n = &bare
	}
	return lowerKernel(l, n)
}

// poolOfGrad reports whether max pool n is there for the positions alone, and
// those for one gradient that runs in the same part.
func (l *lowerer) poolOfGrad(n *ir.Node) bool {
	y, index := n.Out[0], n.Out[1]
	readers := l.uses.Of(index)
	return len(l.uses.Of(y)) == 0 && !l.returned[y.ID] && !l.returned[index.ID] &&
		len(readers) == 1 && readers[0].Node.Op == ir.OpMaxPoolGrad && partOf[readers[0].Section] == l.at
}

// lowerMaxPoolGrad notes the windows that the index was made with, where that
// shows. On the CPU it takes the image instead of positions that are for it alone.
func lowerMaxPoolGrad(l *lowerer, n *ir.Node) error {
	pool := n.In[1].Def
	if pool == nil || pool.Op != ir.OpMaxPool || n.In[1].Idx != 1 || pool.In[0].Type.Shape != n.Out[0].Type.Shape || pool.Str("layout") != n.Str("layout") {
		return lowerKernel(l, n)
	}
	w := pool.Window()
	if l.p.Target == CPU && l.poolOfGrad(pool) {
		both := *n
		both.In = []*ir.Value{n.In[0], pool.In[0]}
		n = &both
	}
	s := l.kernel(n)
	s.Kernel.Pool = &w
	l.emit(s)
	return nil
}

// lowerNonfinite leaves the gradients whose norm is taken to the norm, which
// reads them anyway. (A GPU's launches for both do that by themselves.)
func lowerNonfinite(l *lowerer, n *ir.Node) error {
	if err := lowerKernel(l, n); err != nil || l.p.Target != CPU {
		return err
	}
	s := &(*l.steps)[len(*l.steps)-1]
	operand := map[BufferID]bool{}
	for _, id := range s.In {
		operand[id] = true
	}
	for i := range *l.steps {
		norm := &(*l.steps)[i]
		if norm.Kernel == nil || norm.Kernel.Name != "global_norm" {
			continue
		}
		for _, id := range norm.In[1:] {
			if operand[id] {
				s.Kernel.Seen = append(s.Kernel.Seen, id)
				operand[id] = false
			}
		}
	}
	return nil
}

// detached is n without its graph: op, attributes, and operands and results
// that have only a name and a type.
func detached(n *ir.Node) *ir.Node {
	d := &ir.Node{Op: n.Op, Custom: n.Custom, Attrs: n.Attrs, Pos: n.Pos}
	bare := func(list []*ir.Value) []*ir.Value {
		out := make([]*ir.Value, len(list))
		for i, v := range list {
			if v != nil {
				out[i] = &ir.Value{Name: v.Name, Type: v.Type}
			}
		}
		return out
	}
	d.In, d.Out = bare(n.In), bare(n.Out)
	return d
}

// emitMoves emits the step that fills n's only result by copying elements.
func (l *lowerer) emitMoves(n *ir.Node, m *Moves) {
	l.now = []*ir.Node{n}
	s := l.step(KindCopy, n)
	s.Moves = m
	last := -1
	for i := range m.List {
		last = max(last, m.List[i].From)
	}
	if s.In = s.In[:last+1]; last < 0 {
		s.Kind = KindFill
	}
	l.emit(s)
}

// wholeMove copies a tensor as it lies.
func wholeMove(t ir.Type) *Moves {
	n := []int64{t.Shape.Elements()}
	a := Access{DType: t.DType, Strides: []int64{1}}
	return &Moves{List: []Move{{Shape: n, Src: a, Dst: a}}}
}
