package lower

import (
	"slices"

	"ampc/ir"
)

// NormFusion is what a norm over channels does beside its row: its result goes
// through a sum and a ReLU before it is stored, on the CPU its gradient takes
// dy through the gradient of that ReLU. Numbers are those of operands and
// results of the step that are not the row's, 0 where there is none.
type NormFusion struct {
	Relu     bool // the result is max(norm + residual, 0), else norm + residual
	Residual int  // operand that is added
	Copy     int  // result, the step's last, that holds the same in another dtype
	Sign     int  // of a gradient: operand that is above zero where dy counts

	// Of norms over rows on a GPU: Prologue makes register Made of its code, which is normalised (of a
	// gradient: dy), Epilogue goes on from the result, which is its load 0 and in no buffer. Their buffers
	// follow the row's own operands and results; what they replace is None, or not there.
	Prologue, Epilogue *Cluster
	Made               ir.Reg
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

// Dense reports whether all of a cluster's accesses walk float tensors of the
// size of a norm's operand as they lie.
func (e *Joins) Dense(g *Cluster, norm *Step) bool {
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
