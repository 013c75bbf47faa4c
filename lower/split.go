package lower

import (
	"slices"
	"strconv"
	"strings"

	"ampc/ir"
)

// emitProduct emits a product. Where the target's library does not compute it in one call
// (ir.Caps.Splits), it emits two steps: the product in f32, and a cluster that applies the
// epilogue.
func (l *Lowerer) emitProduct(s Step) {
	if !l.splits(&s) {
		l.widen(&s)
		l.emit(s)
		return
	}
	end := l.emitSum(&s)
	l.emit(Step{Kind: KindCluster, In: loadsOf(end), Out: s.Out[:1:1], Node: s.Node, Cluster: end})
}

// splits reports whether product s runs as two steps.
func (l *Lowerer) splits(s *Step) bool {
	splits := l.p.Target.Caps().Splits
	if splits == nil || s.Gemm == nil || s.Gemm.K == 0 {
		return false
	}
	e := &s.Gemm.Epilogue
	p := ir.Product{A: l.p.dtype(s.In[0]), B: l.p.dtype(s.In[1]), Out: l.p.dtype(s.Out[0]), Tanh: e.Act == Tanh}
	if e.Bias != 0 {
		p.Bias = l.p.dtype(s.In[e.Bias])
	}
	return splits(p)
}

// emitSum emits product s in f32, and returns the cluster that applies its epilogue.
func (l *Lowerer) emitSum(s *Step) *Cluster {
	l.widen(s)
	g := *s.Gemm
	g.Epilogue = Epilogue{}
	rows := l.p.Buffers[s.Out[0]].Type.Shape.Elements() / g.N
	sum := l.between(s.Node.Name, "sum", ir.T(ir.F32, ir.Dim(rows), ir.Dim(g.N)))
	l.emit(Step{Kind: KindGemm, In: s.In[:2:2], Out: []BufferID{sum}, Node: s.Node, Gemm: &g})
	return l.p.applyEpilogue(&s.Gemm.Epilogue, sum, s.In, s.Out[0])
}

// widen replaces the operands of product s that the device does not multiply (ir.Caps.Widened) by f32
// copies, and emits a step for each copy.
func (l *Lowerer) widen(s *Step) {
	widened := l.p.Target.Caps().Widened
	if s.Gemm == nil || s.Gemm.K == 0 || l.p.Buffers[s.Out[0]].Type.Shape.Elements() == 0 {
		return
	}
	in := slices.Clone(s.In)
	for i, id := range s.In[:2] {
		t := l.p.Buffers[id].Type
		switch {
		case !widened[t.DType]:
			continue
		case i == 1 && id == s.In[0]:
			in[1] = in[0]
			continue
		}
		shape := ir.Sizes(t.Shape)
		in[i] = l.between(s.Node.Name, "wide", t.With(ir.F32))
		l.emit(Step{Kind: KindCluster, In: []BufferID{id}, Out: []BufferID{in[i]}, Node: s.Node, Cluster: &Cluster{Shape: shape, Code: []ir.Instr{{Op: ir.PIn, Type: ir.F32}},
			Loads:  []Access{{Buffer: id, DType: t.DType, Strides: ir.RowMajor(shape)}},
			Stores: []Access{{Buffer: in[i], DType: ir.F32, Strides: ir.RowMajor(shape)}}}})
	}
	s.In = in
}

// between is a new buffer for what one step of a node passes to the next.
func (l *Lowerer) between(node, what string, t ir.Type) BufferID {
	name := strings.TrimPrefix(node, "%") + "." + what
	if l.sums[name]++; l.sums[name] > 1 {
		name += strconv.Itoa(l.sums[name])
	}
	return l.p.NewBuffer(name, t, WorkArena)
}

var epiloguePrims = map[Act]func(*ir.Code, ir.Reg) ir.Reg{
	Relu: func(c *ir.Code, x ir.Reg) ir.Reg { return c.Max(x, c.F(0)) },
	Tanh: (*ir.Code).Tanh,
}

// applyEpilogue is the cluster that applies epilogue e to the rows of sum.
func (p *Program) applyEpilogue(e *Epilogue, sum BufferID, in []BufferID, out BufferID) *Cluster {
	shape := ir.Sizes(p.Buffers[sum].Type.Shape)
	cols := shape[1]
	g := &Cluster{Shape: shape}
	code := ir.NewCode(nil)
	load := func(id BufferID, strides ...int64) ir.Reg {
		g.Loads = append(g.Loads, Access{Buffer: id, DType: p.dtype(id), Strides: strides})
		return code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32, Int: int64(len(g.Loads) - 1)})
	}
	y := load(sum, cols, 1)
	if e.Bias != 0 {
		y = code.Add(y, load(in[e.Bias], 0, 1))
	}
	if e.Act != NoAct {
		y = epiloguePrims[e.Act](code, y)
	}
	g.Code = code.Ins
	g.Stores = []Access{{Buffer: out, DType: p.dtype(out), Strides: []int64{cols, 1}, Reg: y}}
	return g
}

// loadsOf lists the buffers that g loads.
func loadsOf(g *Cluster) (ids []BufferID) {
	for i := range g.Loads {
		ids = append(ids, g.Loads[i].Buffer)
	}
	return ids
}
