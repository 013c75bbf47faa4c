package sm

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// Norms over rows, on a GPU: the elementwise step that makes what is
// normalized, or what its gradient is taken of, and one that reads the result
// run inside the norm's kernel. A trunk is then added to its branch where it is
// normalized, and its gradient where the norm's is made.

// rowNormInput is the operand of a norm over rows that a step before it may
// make, by op: x, or a gradient's dy.
var rowNormInput = map[ir.Op]int{ir.OpLayerNorm: 0, ir.OpRMSNorm: 0, ir.OpLayerNormGrad: 1, ir.OpRMSNormGrad: 1}

// rowJoins joins norms over rows.
type rowJoins struct{ *stepJoins }

// joinRows joins the norms over rows of micro with the steps beside them.
func joinRows(p *lower.Program) {
	e := rowJoins{joinsOf(p)}
	for i := range e.steps {
		s := &e.steps[i]
		if e.gone[i] || s.Kind != lower.KindKernel || s.Kernel.Fusion.Epilogue != nil {
			continue
		}
		if _, ok := rowNormInput[s.Kernel.Node.Op]; ok {
			e.rowsAfter(e.rowsBefore(i))
		}
	}
	e.finish()
}

// rowsBefore joins the norm of step i with the step that makes its operand,
// and gives the joined step's place.
func (e rowJoins) rowsBefore(i int) int {
	s := &e.steps[i]
	operand := rowNormInput[s.Kernel.Node.Op]
	if operand == 1 && len(s.Out) > 1 && normKernel(s.Kernel.Node).Partials() == 0 {
		return i // a second pass reads dy
	}
	x := s.In[operand]
	j := slices.IndexFunc(e.steps[:i], func(t lower.Step) bool { return slices.Contains(t.Out, x) })
	if j < 0 || !e.inRows(j, s) {
		return i
	}
	g := *e.steps[j].Cluster
	made := slices.IndexFunc(g.Stores, func(a lower.Access) bool { return a.Buffer == x })
	d := g.Stores[made].DType
	r := g.Stores[made].Reg
	if g.Code[r].Type != ir.F32 || !d.Float() {
		return i
	}
	if e.reader(x) == i { // nobody else needs it
		g.Stores = slices.Delete(slices.Clone(g.Stores), made, made+1)
	}
	if d.Low() {
		g.Code = append(slices.Clone(g.Code), ir.Instr{Op: ir.PRound, Type: ir.F32, To: d, A: r})
		r = ir.Reg(len(g.Code) - 1)
	}
	at := e.place(j, i)
	if at < 0 {
		return i
	}
	next := extend(s)
	next.Kernel.Fusion.Prologue, next.Kernel.Fusion.Made = &g, r
	next.In[operand] = lower.None
	e.take(&next, &g)
	e.joinAt(at, i+j-at, next)
	return at
}

// rowsAfter joins the norm of step i with the first step that can go on from its result.
func (e rowJoins) rowsAfter(i int) {
	s := &e.steps[i]
	y := s.Out[0]
	for _, j := range slices.Clone(e.read[e.root(y)]) {
		if j == elsewhere || j <= i || !e.inRows(j, s) {
			continue
		}
		at := e.place(i, j)
		g, ok := e.continued(e.steps[j].Cluster, y, e.reader(y) != j)
		if at < 0 || !ok {
			continue
		}
		next := extend(s)
		next.Kernel.Fusion.Epilogue = g
		next.Out = slices.Delete(next.Out, 0, 1)
		e.take(&next, &lower.Cluster{Loads: g.Loads[1:], Stores: g.Stores})
		next.Node = e.steps[j].Node
		e.joinAt(at, i+j-at, next)
		return
	}
}

// place is where steps i and j, of which j reads what i makes, can run as one: at j or at i; -1 where at neither.
func (e rowJoins) place(i, j int) int {
	switch {
	case e.movable(i, i+1, j):
		return j
	case e.movable(j, i+1, j):
		return i
	}
	return -1
}

// joinAt puts next, which does what steps at and gone did, in the place of the first.
func (e rowJoins) joinAt(at, gone int, next lower.Step) {
	next.Bytes = e.p.Traffic(&next)
	e.p.Joined += e.steps[at].Bytes + e.steps[gone].Bytes - next.Bytes
	e.steps[at] = next
	e.gone[gone] = true
	for root, list := range e.read {
		if !slices.Contains(list, gone) && !slices.Contains(list, at) {
			continue
		}
		list = slices.DeleteFunc(slices.Clone(list), func(k int) bool { return k == gone || k == at })
		if slices.ContainsFunc(next.In, func(id lower.BufferID) bool { return id != lower.None && e.root(id) == root }) {
			list = append(list, at)
		}
		slices.Sort(list)
		e.read[root] = list
	}
}

// take adds the buffers of a cluster to those of a step.
func (e rowJoins) take(s *lower.Step, g *lower.Cluster) {
	for _, a := range g.Loads {
		s.In = append(s.In, a.Buffer)
	}
	for _, a := range g.Stores {
		s.Out = append(s.Out, a.Buffer)
	}
}

// inRows reports whether step j is elementwise work over the rows of a norm that
// a kernel over rows can do: its results are dense, of the work arena, and no
// operand shows the same memory.
func (e rowJoins) inRows(j int, norm *lower.Step) bool {
	t := &e.steps[j]
	if e.gone[j] || t.Kind != lower.KindCluster || len(t.More) > 0 {
		return false
	}
	g := t.Cluster
	rows, cols := normRows(norm.Kernel.Node)
	if lower.Count(g.Shape) != int64(rows)*int64(cols) || !endsRows(g.Shape, int64(cols)) {
		return false
	}
	dense := ir.RowMajor(g.Shape)
	for _, a := range g.Stores {
		if a.Offset != 0 || !slices.Equal(a.Strides, dense) || e.p.Buffers[e.root(a.Buffer)].Arena != lower.WorkArena ||
			slices.ContainsFunc(g.Loads, func(b lower.Access) bool { return e.root(b.Buffer) == e.root(a.Buffer) }) {
			return false
		}
	}
	_, err := (&cudaLowerer{}).ptxElementwise(g)
	return err == nil
}

// endsRows reports whether the last dimensions of a shape are rows of so many columns.
func endsRows(shape []int64, cols int64) bool {
	n := int64(1)
	for k := len(shape); n < cols && k > 0; k-- {
		n *= shape[k-1]
	}
	return n == cols
}

// continued is a cluster that reads y as its load 0, given to it and not read
// from memory; kept says that it is stored too. Not ok where g reads y in other ways.
func (e rowJoins) continued(g *lower.Cluster, y lower.BufferID, kept bool) (*lower.Cluster, bool) {
	d := e.p.Buffers[y].Type.DType
	own := lower.Access{Buffer: y, DType: d, Strides: ir.RowMajor(g.Shape)}
	at := make([]int64, len(g.Loads)) // where a load went
	next := &lower.Cluster{Shape: g.Shape, Loads: []lower.Access{own}, Stores: slices.Clone(g.Stores)}
	for k, a := range g.Loads {
		if e.root(a.Buffer) != e.root(y) {
			at[k] = int64(len(next.Loads))
			next.Loads = append(next.Loads, a)
		} else if a.Offset != 0 || a.DType != d || !slices.Equal(a.Strides, own.Strides) {
			return nil, false
		}
	}
	first := ir.Reg(-1)
	for r, in := range g.Code {
		if in.Op == ir.PIn {
			in.Int = at[in.Int]
			if in.Int == 0 && first < 0 {
				first = ir.Reg(r)
			}
		}
		next.Code = append(next.Code, in)
	}
	if first < 0 || next.Code[first].Type != ir.F32 {
		return nil, false
	}
	if kept || e.p.Buffers[e.root(y)].Arena != lower.WorkArena {
		own.Reg = first
		next.Stores = append(next.Stores, own)
	}
	return next, true
}

// surround gives a norm's kernel its prologue and epilogue, and the arguments before and after its own.
func (c *cudaCall) surround(k *ptx.Norm, x, y lower.BufferID) (loads, more, stores []lower.BufferID, err error) {
	end := c.s.Kernel.Fusion
	loads, stores = []lower.BufferID{x}, []lower.BufferID{y}
	if g := end.Prologue; g != nil {
		pg, err := c.ptxElementwise(g)
		if err != nil {
			return nil, nil, nil, err
		}
		k.Before, k.X = &pg, int(end.Made)
		loads = buffersOf(g.Loads)
	}
	if g := end.Epilogue; g != nil {
		pg, err := c.ptxElementwise(g)
		if err != nil {
			return nil, nil, nil, err
		}
		for i := range pg.Loads { // other names than those before
			pg.Loads[i].Name = fmt.Sprint("m", i)
		}
		for i := range pg.Stores {
			pg.Stores[i].Name = fmt.Sprint("t", i)
		}
		k.After = &pg
		more, stores = buffersOf(g.Loads[1:]), buffersOf(g.Stores)
	}
	if end.Prologue != nil {
		stores = append(buffersOf(end.Prologue.Stores), stores...)
	}
	return loads, more, stores, nil
}

func buffersOf(list []lower.Access) (ids []lower.BufferID) {
	for i := range list {
		ids = append(ids, list[i].Buffer)
	}
	return ids
}
