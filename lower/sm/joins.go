package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// stepJoins are the steps of micro, and who reads what they make.
type stepJoins struct {
	p     *lower.Program
	steps []lower.Step
	read  map[lower.BufferID][]int // by root: steps that read it; elsewhere: in another part, or as an output
}

// elsewhere is the place of steps of other parts and of what a Program returns.
const elsewhere = -1

// joinsOf notes who reads what micro makes.
func joinsOf(p *lower.Program) *stepJoins {
	e := &stepJoins{p: p, steps: p.Parts[lower.Micro], read: map[lower.BufferID][]int{}}
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			at := i
			if part != lower.Micro {
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

// root is the buffer whose memory id shows.
func (e *stepJoins) root(id lower.BufferID) lower.BufferID { return e.p.Buffers[id].Root }

func (e *stepJoins) reads(at int, ids ...lower.BufferID) {
	for _, id := range ids {
		if id != lower.None {
			e.read[e.root(id)] = append(e.read[e.root(id)], at)
		}
	}
}

// reader is the step that alone reads a buffer of the work arena, elsewhere where there is none.
func (e *stepJoins) reader(id lower.BufferID) int {
	if list := e.read[e.root(id)]; len(list) == 1 && e.p.Buffers[e.root(id)].Arena == lower.WorkArena {
		return list[0]
	}
	return elsewhere
}

// untouched reports whether no step between i and j reads or writes what step i
// writes, or writes what it reads.
func (e *stepJoins) untouched(i, j int) bool { return e.movable(i, i+1, j) }

// movable reports whether step i may run before or after the steps from…to-1.
func (e *stepJoins) movable(i, from, to int) bool {
	reads, writes := map[lower.BufferID]bool{}, map[lower.BufferID]bool{}
	for _, id := range e.steps[i].In {
		if id != lower.None {
			reads[e.root(id)] = true
		}
	}
	for _, id := range e.steps[i].Out {
		if id != lower.None {
			writes[e.root(id)] = true
		}
	}
	for k := from; k < to; k++ {
		if slices.ContainsFunc(e.steps[k].In, func(id lower.BufferID) bool { return id != lower.None && writes[e.root(id)] }) ||
			slices.ContainsFunc(e.steps[k].Out, func(id lower.BufferID) bool {
				return id != lower.None && (reads[e.root(id)] || writes[e.root(id)])
			}) {
			return false
		}
	}
	return true
}

// dense reports whether all of a cluster's accesses walk float tensors of the
// size of a norm's operand as they lie.
func (e *stepJoins) dense(g *lower.Cluster, norm *lower.Step) bool {
	rows := ir.RowMajor(g.Shape)
	if lower.Count(g.Shape) != e.p.Buffers[norm.In[0]].Type.Shape.Elements() {
		return false
	}
	for _, a := range slices.Concat(g.Loads, g.Stores) {
		if a.Offset != 0 || !a.DType.Float() || a.DType == ir.F64 || !slices.Equal(a.Strides, rows) {
			return false
		}
	}
	return !slices.ContainsFunc(g.Stores, func(a lower.Access) bool { return e.p.Buffers[e.root(a.Buffer)].Arena != lower.WorkArena })
}
