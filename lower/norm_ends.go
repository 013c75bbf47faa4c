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

// Joins are the steps of micro while a norm takes over the elementwise steps
// beside it.
type Joins struct {
	Program *Program
	Steps   []Step
	Read    map[BufferID][]int // by root: steps that read it; Elsewhere: in another part, or as an output
	Gone    []bool             // steps that another does
}

// Elsewhere is the place of steps of other parts and of what a Program returns.
const Elsewhere = -1

// JoinNorms joins the norms of micro over channels with the elementwise steps
// beside them: of ops after, the ReLU behind the result, of ops before, the
// gradient of a ReLU that makes dy. No bit changes: ReLU and its gradient
// commute with rounding, and a sum is joined only where it reads the norm in f32.
func (p *Program) JoinNorms(after, before []ir.Op) {
	e := p.Joins()
	for i := range e.Steps {
		switch s := &e.Steps[i]; {
		case s.Kind != KindKernel || s.Out[0] == None:
		case slices.Contains(after, s.Kernel.Node.Op):
			e.result(i)
		case slices.Contains(before, s.Kernel.Node.Op):
			e.gradient(i)
		}
	}
	e.Finish()
}

// Finish leaves the steps that no other does.
func (e *Joins) Finish() {
	e.Program.Parts[Micro] = nil
	for i := range e.Steps {
		if !e.Gone[i] {
			e.Program.Parts[Micro] = append(e.Program.Parts[Micro], e.Steps[i])
		}
	}
}

// Joins notes who reads what micro makes.
func (p *Program) Joins() *Joins {
	e := &Joins{Program: p, Steps: p.Parts[Micro], Read: map[BufferID][]int{}, Gone: make([]bool, len(p.Parts[Micro]))}
	for part := range NumParts {
		for i := range p.Parts[part] {
			at := i
			if part != Micro {
				at = Elsewhere
			}
			e.reads(at, p.Parts[part][i].In...)
		}
	}
	for _, o := range p.Outputs {
		e.reads(Elsewhere, o.Buffer)
	}
	return e
}

// Root is the buffer whose memory id shows.
func (e *Joins) Root(id BufferID) BufferID { return e.Program.Buffers[id].Root }

func (e *Joins) reads(at int, ids ...BufferID) {
	for _, id := range ids {
		if id != None {
			e.Read[e.Root(id)] = append(e.Read[e.Root(id)], at)
		}
	}
}

// Reader is the step that alone reads a buffer of the work arena, elsewhere where there is none.
func (e *Joins) Reader(id BufferID) int {
	if list := e.Read[e.Root(id)]; len(list) == 1 && e.Program.Buffers[e.Root(id)].Arena == WorkArena {
		return list[0]
	}
	return Elsewhere
}

// result puts the norm of step i in the place of the ReLU that alone reads it.
func (e *Joins) result(i int) {
	s := &e.Steps[i]
	j := e.Reader(s.Out[0])
	if j == Elsewhere || e.Steps[j].Kind != KindGroup || !e.Untouched(i, j) {
		return
	}
	g := e.Steps[j].Group
	loads, ok := reluOfSum(g)
	if !ok || !e.Dense(g, s) {
		return
	}
	var end NormEnd
	residual := None
	for _, k := range loads {
		if a := &g.Loads[k]; e.Root(a.Buffer) == e.Root(s.Out[0]) {
			continue
		}
		residual = g.Loads[k].Buffer
	}
	y := e.Program.Buffers[s.Out[0]].Type.DType
	for _, a := range g.Stores {
		if y != ir.F32 && (residual != None || a.DType != y) {
			return // the norm would have rounded first
		}
	}
	if len(loads) == 2 && residual == None {
		return // twice itself
	}
	next := Extend(s)
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
func (e *Joins) gradient(j int) {
	s := &e.Steps[j]
	dy := s.In[1]
	if e.Reader(dy) != j {
		return
	}
	i := slices.IndexFunc(e.Steps[:j], func(t Step) bool { return slices.Contains(t.Out, dy) })
	if i < 0 || e.Gone[i] || e.Steps[i].Kind != KindGroup || len(e.Steps[i].Group.Stores) != 1 {
		return
	}
	g := e.Steps[i].Group
	if !slices.Equal(g.Code, OwnCode(ir.OpReluGrad, nil, 2)) || len(g.Loads) != 2 || int(g.Stores[0].Reg) != len(g.Code)-1 || !e.Dense(g, s) ||
		g.Loads[0].DType != g.Stores[0].DType || !e.Untouched(i, j) {
		return
	}
	next := Extend(s)
	next.In[1] = g.Loads[0].Buffer
	next.Kernel.Node.In[1] = e.bare(g.Loads[0].Buffer)
	e.join(i, j, next, NormEnd{Sign: e.operand(&next, g.Loads[1].Buffer)})
}

// join puts next, which does what steps i and j did, in j's place.
func (e *Joins) join(i, j int, next Step, end NormEnd) {
	next.Kernel.End = end
	next.Node = e.Steps[j].Node
	next.Bytes = e.Program.Traffic(&next)
	e.Program.Joined += e.Steps[i].Bytes + e.Steps[j].Bytes - next.Bytes
	e.Steps[j] = next
	e.Gone[i] = true
}

// operand adds an operand to a step.
func (e *Joins) operand(s *Step, id BufferID) int {
	s.In = append(s.In, id)
	s.Kernel.Node.In = append(s.Kernel.Node.In, e.bare(id))
	return len(s.In) - 1
}

func (e *Joins) bare(id BufferID) *ir.Value {
	return &ir.Value{Name: e.Program.Buffers[id].Name, Type: e.Program.Buffers[id].Type}
}

// Extend makes s a step of its own, with room for all operands of its row and more behind them.
func Extend(s *Step) Step {
	next, k, n := *s, *s.Kernel, *s.Kernel.Node
	next.In, next.Out = slices.Clone(s.In), slices.Clone(s.Out)
	n.In, n.Out = slices.Clone(n.In), slices.Clone(n.Out)
	for len(n.In) < len(n.Def().In) {
		n.In, next.In = append(n.In, nil), append(next.In, None)
	}
	next.Kernel, k.Node = &k, &n
	return next
}

// Untouched reports whether no step between i and j reads or writes what step i
// writes, or writes what it reads.
func (e *Joins) Untouched(i, j int) bool { return e.Movable(i, i+1, j) }

// Movable reports whether step i may run before or after the steps from…to-1.
func (e *Joins) Movable(i, from, to int) bool {
	reads, writes := map[BufferID]bool{}, map[BufferID]bool{}
	for _, id := range e.Steps[i].In {
		if id != None {
			reads[e.Root(id)] = true
		}
	}
	for _, id := range e.Steps[i].Out {
		if id != None {
			writes[e.Root(id)] = true
		}
	}
	for k := from; k < to; k++ {
		if slices.ContainsFunc(e.Steps[k].In, func(id BufferID) bool { return id != None && writes[e.Root(id)] }) ||
			slices.ContainsFunc(e.Steps[k].Out, func(id BufferID) bool {
				return id != None && (reads[e.Root(id)] || writes[e.Root(id)])
			}) {
			return false
		}
	}
	return true
}

// Dense reports whether all of a group's accesses walk float tensors of the
// size of a norm's operand as they lie.
func (e *Joins) Dense(g *Group, norm *Step) bool {
	rows := ir.RowMajor(g.Shape)
	if Count(g.Shape) != e.Program.Buffers[norm.In[0]].Type.Shape.Elements() {
		return false
	}
	for _, a := range slices.Concat(g.Loads, g.Stores) {
		if a.Offset != 0 || !a.DType.Float() || a.DType == ir.F64 || !slices.Equal(a.Strides, rows) {
			return false
		}
	}
	return !slices.ContainsFunc(g.Stores, func(a Access) bool { return e.Program.Buffers[e.Root(a.Buffer)].Arena != WorkArena })
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

// OwnCode is the code of a row over operands of f32 registers.
func OwnCode(op ir.Op, attrs ir.Attrs, operands int) []ir.Instr {
	n := &ir.Node{Op: op, Attrs: attrs}
	for range operands {
		n.In = append(n.In, &ir.Value{Type: ir.T(ir.F32, 1)})
	}
	n.Out = []*ir.Value{{Type: ir.T(ir.F32, 1)}}
	code, _ := ir.NodeCode(n)
	return code.Ins
}
