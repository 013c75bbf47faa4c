package lower

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// Rule lowers one node to steps (or to none, for a view).
type Rule func(l *Lowerer, n *ir.Node) error

// rules holds the ops with their own rule. Every other op lowers as its row says: to a cluster
// (elementwise), a view, or the kernel of its name.
var rules = map[ir.Op]Rule{
	ir.OpMatmul: lowerMatmul, ir.OpLinear: lowerLinear,
	ir.OpConv: lowerConv, ir.OpConvGradX: lowerConv, ir.OpConvGradW: lowerConv, ir.OpConvTranspose: lowerConv,
	ir.OpAttention: lowerAttention, ir.OpAttentionGrad: lowerAttention,
	ir.OpTranspose: lowerTranspose, ir.OpBroadcast: lowerBroadcast, ir.OpSlice: lowerSlice, ir.OpFlip: lowerFlip,
	ir.OpConcat: lowerConcat, ir.OpSplit: lowerSplit, ir.OpPad: lowerPad, ir.OpTile: lowerTile,
	ir.OpDepthToSpace: lowerDepthToSpace, ir.OpSpaceToDepth: lowerSpaceToDepth,
	ir.OpMaxPoolGrad: lowerMaxPoolGrad, ir.OpForeign: nil,
}

// SharedRule is the rule of a node on targets that have no rule of their own for it; nil if no
// target can run it without one.
func SharedRule(n *ir.Node) Rule {
	if r, ok := rules[n.Op]; ok {
		return r
	}
	switch d := n.Def(); {
	case d.Is(ir.Collective) || d.Is(ir.Caches): // targets that run collectives have a rule; a target says whether a call supplies the memory of caches
		return nil
	case d.Elem != nil:
		return lowerElem
	case d.Is(ir.View):
		return lowerView
	}
	return KernelRule
}

// IsKernel reports whether SharedRule lowers n to the kernel of its name.
func IsKernel(n *ir.Node) bool {
	_, ruled := rules[n.Op]
	return !ruled && n.Def().Elem == nil && !n.Def().Is(ir.View)
}

func lowerElem(l *Lowerer, n *ir.Node) error {
	l.emitCluster([]*ir.Node{n})
	return nil
}

// lowerView makes the result a view of the operand's buffer. It copies the elements of a next
// value, whose variable has its own memory, and of a view of a variable that is read after the
// variable took its next value.
func lowerView(l *Lowerer, n *ir.Node) error {
	y, root := n.Out[0], l.rootVar(n.In[0])
	if y.Next == nil && !(root.IsVar() && l.written[root.ID] && l.outlives(y)) {
		l.buf[y.ID] = l.view(y.Name, y.Type, l.in(n.In[0]))
		return nil
	}
	l.emitMoves(n, wholeMove(y.Type))
	return nil
}

// KernelRule lowers to a kernel step: the kernel named as the row, with the node's attributes and
// types.
func KernelRule(l *Lowerer, n *ir.Node) error {
	l.emit(l.kernel(n))
	return nil
}

// cacheRule is KernelRule for targets where a call supplies the memory of caches. New elements are
// written to the cache in place; the cache is never copied.
func cacheRule(l *Lowerer, n *ir.Node) error {
	s := l.kernel(n)
	for _, v := range n.In {
		if v != nil && v.IsCache() && n.Def().Is(ir.InPlace) && s.Out[0] != s.In[0] {
			return &ir.Error{Pos: n.Pos, Msg: fmt.Sprintf("cache_append: %s cannot be written in place, because it is read afterwards: read the result of cache_append instead", v)}
		}
	}
	l.emit(s)
	return nil
}

func (l *Lowerer) kernel(n *ir.Node) Step {
	l.now = []*ir.Node{n}
	s := l.step(KindKernel, n)
	s.Kernel = &Kernel{Name: n.Def().Name, Node: detached(n), InPlace: n.Def().Is(ir.InPlace)}
	for i := range n.In {
		if n.OperandDef(i).Unread {
			s.In[i] = None
		}
	}
	return s
}

// lowerMaxPoolGrad adds the window of the pool that computed the index, where it is known. It emits no
// step for images that their readers compute.
func lowerMaxPoolGrad(l *Lowerer, n *ir.Node) error {
	if l.spreadOf(n) != nil {
		return nil
	}
	pool := n.PoolOfIndex()
	if pool == nil {
		return KernelRule(l, n)
	}
	w := pool.Window()
	s := l.kernel(n)
	s.Kernel.Pool = &w
	l.emit(s)
	return nil
}

// lowerPoolLaunch lowers the gradient of a max pool with that pool (ir.Caps.RecomputesPools) to one
// step, which reads the image in place of the positions. It reports false for other nodes.
func (l *Lowerer) lowerPoolLaunch(nodes []*ir.Node) bool {
	if len(nodes) != 2 {
		return false
	}
	for i, n := range nodes {
		pool := others(nodes, i)[0]
		if searched(n) != pool || n.PoolOfIndex() != pool || slices.ContainsFunc(pool.Out, func(v *ir.Value) bool { return l.stored(v, nodes) }) {
			continue
		}
		w, again := pool.Window(), *n
		again.In = []*ir.Value{n.In[0], pool.In[0]}
		s := l.kernel(&again)
		s.Kernel.Pool = &w
		l.emit(s)
		return true
	}
	return false
}

// searched is the node that computes an operand which n may recompute; nil if there is none.
func searched(n *ir.Node) *ir.Node {
	for i, v := range n.In {
		if v != nil && n.OperandDef(i).Searched {
			return v.Def
		}
	}
	return nil
}

// detached is n without its graph: its op and attributes, and operands and results with name and
// type only.
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
func (l *Lowerer) emitMoves(n *ir.Node, m *Moves) {
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

// wholeMove copies all elements of a tensor in their order.
func wholeMove(t ir.Type) *Moves {
	n := []int64{t.Shape.Elements()}
	a := Access{DType: t.DType, Strides: []int64{1}}
	return &Moves{List: []Move{{Shape: n, Src: a, Dst: a}}}
}
