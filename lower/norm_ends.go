package lower

import (
	"slices"

	"ampc/ir"
)

// NormEnd is what a norm over channels does beside its row: its result goes
// through a sum and a ReLU before it is stored, on the CPU its gradient takes
// dy through the gradient of that ReLU. Numbers are those of operands and
// results of the step that are not the row's, 0 where there is none.
type NormEnd struct {
	Relu     bool // the result is max(norm + residual, 0)
	Residual int  // operand that is added
	Copy     int  // result, the step's last, that holds the same in another dtype
	Sign     int  // of a gradient: operand that is above zero where dy counts

	// Of norms over rows on a GPU: Before makes register Made of its code, which is normalised (of a
	// gradient: dy), After goes on from the result, which is its load 0 and in no buffer. Their buffers
	// follow the row's own operands and results; what they replace is None, or not there.
	Before, After *Group
	Made          ir.Reg
}

// normEnds joins the norms of micro with the elementwise steps beside them. No
// bit changes: ReLU and its gradient commute with rounding, and a sum is joined
// only where it reads the norm in f32.
type normEnds struct {
	p     *Program
	steps []Step
	read  map[BufferID][]int // by root: steps that read it; elsewhere: in another part, or as an output
	gone  []bool             // steps that a norm does
}

// JoinNorms joins the norms of micro over channels with the elementwise steps
// beside them: of ops after, the ReLU behind the result, of ops before, the
// gradient of a ReLU that makes dy.
func (p *Program) JoinNorms(after, before []ir.Op) {
	e := p.normEnds()
	for i := range e.steps {
		switch s := &e.steps[i]; {
		case s.Kind != KindKernel || s.Out[0] == None:
		case slices.Contains(after, s.Kernel.Node.Op):
			e.result(i)
		case slices.Contains(before, s.Kernel.Node.Op):
			e.gradient(i)
		}
	}
	e.finish()
}

// finish leaves the steps that no norm does.
func (e *normEnds) finish() {
	e.p.Parts[Micro] = nil
	for i := range e.steps {
		if !e.gone[i] {
			e.p.Parts[Micro] = append(e.p.Parts[Micro], e.steps[i])
		}
	}
}

// normEnds notes who reads what micro makes.
func (p *Program) normEnds() *normEnds {
	e := &normEnds{p: p, steps: p.Parts[Micro], read: map[BufferID][]int{}, gone: make([]bool, len(p.Parts[Micro]))}
	for part := range NumParts {
		for i := range p.Parts[part] {
			at := i
			if part != Micro {
				at = elsewhere
			}
			e.reads(at, p.Parts[part][i].In...)
		}
	}
	for _, o := range p.Outputs {
		e.reads(elsewhere, o.Buffer)
	}
	return e
}

func (e *normEnds) root(id BufferID) BufferID { return e.p.Buffers[id].Root }

func (e *normEnds) reads(at int, ids ...BufferID) {
	for _, id := range ids {
		if id != None {
			e.read[e.root(id)] = append(e.read[e.root(id)], at)
		}
	}
}

// reader is the step that alone reads a buffer of the work arena, elsewhere where there is none.
func (e *normEnds) reader(id BufferID) int {
	if list := e.read[e.root(id)]; len(list) == 1 && e.p.Buffers[e.root(id)].Arena == WorkArena {
		return list[0]
	}
	return elsewhere
}

// result puts the norm of step i in the place of the ReLU that alone reads it.
func (e *normEnds) result(i int) {
	s := &e.steps[i]
	j := e.reader(s.Out[0])
	if j == elsewhere || e.steps[j].Kind != KindGroup || !e.untouched(i, j) {
		return
	}
	g := e.steps[j].Group
	loads, ok := reluOfSum(g)
	if !ok || !e.dense(g, s) {
		return
	}
	var end NormEnd
	residual := None
	for _, k := range loads {
		if a := &g.Loads[k]; e.root(a.Buffer) == e.root(s.Out[0]) {
			continue
		}
		residual = g.Loads[k].Buffer
	}
	y := e.p.Buffers[s.Out[0]].Type.DType
	for _, a := range g.Stores {
		if y != ir.F32 && (residual != None || a.DType != y) {
			return // the norm would have rounded first
		}
	}
	if len(loads) == 2 && residual == None {
		return // twice itself
	}
	next := extend(s)
	end.Relu, next.Out[0] = true, g.Stores[0].Buffer
	next.Kernel.Node.Out[0] = e.bare(g.Stores[0].Buffer)
	if residual != None {
		end.Residual = e.operand(&next, residual)
	}
	if len(g.Stores) == 2 {
		end.Copy = len(next.Out)
		next.Out = append(next.Out, g.Stores[1].Buffer)
		next.Kernel.Node.Out = append(next.Kernel.Node.Out, e.bare(g.Stores[1].Buffer))
	}
	e.join(i, j, next, end)
}

// gradient lets the norm gradient of step j take its dy through the ReLU's
// gradient that makes it for this step alone.
func (e *normEnds) gradient(j int) {
	s := &e.steps[j]
	dy := s.In[1]
	if e.reader(dy) != j {
		return
	}
	i := slices.IndexFunc(e.steps[:j], func(t Step) bool { return slices.Contains(t.Out, dy) })
	if i < 0 || e.gone[i] || e.steps[i].Kind != KindGroup || len(e.steps[i].Group.Stores) != 1 {
		return
	}
	g := e.steps[i].Group
	if !slices.Equal(g.Code, ownCode(ir.OpReluGrad, nil, 2)) || len(g.Loads) != 2 || int(g.Stores[0].Reg) != len(g.Code)-1 || !e.dense(g, s) ||
		g.Loads[0].DType != g.Stores[0].DType || !e.untouched(i, j) {
		return
	}
	next := extend(s)
	next.In[1] = g.Loads[0].Buffer
	next.Kernel.Node.In[1] = e.bare(g.Loads[0].Buffer)
	e.join(i, j, next, NormEnd{Sign: e.operand(&next, g.Loads[1].Buffer)})
}

// join puts next, which does what steps i and j did, in j's place.
func (e *normEnds) join(i, j int, next Step, end NormEnd) {
	next.Kernel.End = end
	next.Node = e.steps[j].Node
	next.Bytes = e.p.Traffic(&next)
	e.p.Joined += e.steps[i].Bytes + e.steps[j].Bytes - next.Bytes
	e.steps[j] = next
	e.gone[i] = true
}

// operand adds an operand to a step.
func (e *normEnds) operand(s *Step, id BufferID) int {
	s.In = append(s.In, id)
	s.Kernel.Node.In = append(s.Kernel.Node.In, e.bare(id))
	return len(s.In) - 1
}

func (e *normEnds) bare(id BufferID) *ir.Value {
	return &ir.Value{Name: e.p.Buffers[id].Name, Type: e.p.Buffers[id].Type}
}

// extend makes s a step of its own, with room for all operands of its row and more behind them.
func extend(s *Step) Step {
	next, k, n := *s, *s.Kernel, *s.Kernel.Node
	next.In, next.Out = slices.Clone(s.In), slices.Clone(s.Out)
	n.In, n.Out = slices.Clone(n.In), slices.Clone(n.Out)
	for len(n.In) < len(n.Def().In) {
		n.In, next.In = append(n.In, nil), append(next.In, None)
	}
	next.Kernel, k.Node = &k, &n
	return next
}

// untouched reports whether no step between i and j reads or writes what step i
// writes, or writes what it reads.
func (e *normEnds) untouched(i, j int) bool { return e.movable(i, i+1, j) }

// movable reports whether step i may run before or after the steps from…to-1.
func (e *normEnds) movable(i, from, to int) bool {
	reads, writes := map[BufferID]bool{}, map[BufferID]bool{}
	for _, id := range e.steps[i].In {
		if id != None {
			reads[e.root(id)] = true
		}
	}
	for _, id := range e.steps[i].Out {
		if id != None {
			writes[e.root(id)] = true
		}
	}
	for k := from; k < to; k++ {
		if slices.ContainsFunc(e.steps[k].In, func(id BufferID) bool { return id != None && writes[e.root(id)] }) ||
			slices.ContainsFunc(e.steps[k].Out, func(id BufferID) bool {
				return id != None && (reads[e.root(id)] || writes[e.root(id)])
			}) {
			return false
		}
	}
	return true
}

// dense reports whether all of a group's accesses walk float tensors of the
// size of a norm's operand as they lie.
func (e *normEnds) dense(g *Group, norm *Step) bool {
	rows := ir.RowMajor(g.Shape)
	if count(g.Shape) != e.p.Buffers[norm.In[0]].Type.Shape.Elements() {
		return false
	}
	for _, a := range slices.Concat(g.Loads, g.Stores) {
		if a.Offset != 0 || !a.DType.Float() || a.DType == ir.F64 || !slices.Equal(a.Strides, rows) {
			return false
		}
	}
	return !slices.ContainsFunc(g.Stores, func(a Access) bool { return e.p.Buffers[e.root(a.Buffer)].Arena != WorkArena })
}

// reluOfSum reports whether a group stores max(x, 0) or max(x + z, 0), once or
// twice, and which loads x and z are.
func reluOfSum(g *Group) (loads []int64, ok bool) {
	last := ir.Reg(len(g.Code) - 1)
	top := &g.Code[last]
	if top.Op != ir.PMax || len(g.Stores) == 0 || len(g.Stores) > 2 {
		return nil, false
	}
	for _, a := range g.Stores {
		if a.Reg != last {
			return nil, false
		}
	}
	zero := &g.Code[top.B]
	if zero.Op != ir.PConst || zero.Imm != 0 {
		return nil, false
	}
	list := []ir.Reg{top.A}
	if x := &g.Code[top.A]; x.Op == ir.PAdd {
		list = []ir.Reg{x.A, x.B}
	}
	for _, r := range list {
		if g.Code[r].Op != ir.PIn {
			return nil, false
		}
		loads = append(loads, g.Code[r].Int)
	}
	return loads, len(loads) == len(g.Loads)
}
