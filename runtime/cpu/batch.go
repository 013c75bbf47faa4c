package cpu

import (
	"sort"

	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// batchStep runs groups of one code over many tensors in one parallel region: a whole group of parameters.
type batchStep struct {
	m       *kern.Machine
	members []*groupStep
	first   []int // task of each member
	tasks   int
	serial  bool
}

// batch compiles groups that share their code and what they repeat. What is the same for all elements is so for all
// members, too: the first computes it, and the others, laid out over the same memory, find it there.
func (e *exec) batch(groups []*lower.Group) func() {
	b := &batchStep{m: e.machine()}
	most, work := 0, 0
	for _, g := range groups {
		most = max(most, elements(g))
	}
	for _, g := range groups {
		e.scratch.begin()
		s := e.group(g, most)
		if len(b.members) > 0 {
			s.once = nil
			if f := s.formula; f != nil {
				f.from, f.values = nil, b.members[0].formula.values
			}
		}
		b.members, b.first = append(b.members, s), append(b.first, b.tasks)
		b.tasks += s.tasks()
		work += s.n * (len(g.Code) + 2)
	}
	b.serial = work < serialWork
	return b.run
}

func (b *batchStep) run() {
	b.members[0].begin()
	if b.serial {
		for i := range b.tasks {
			b.Run(0, i)
		}
		return
	}
	b.m.Pool().Run(b.tasks, b)
}

// Run is one task of one member.
func (b *batchStep) Run(worker, task int) {
	k := sort.SearchInts(b.first, task+1) - 1
	b.members[k].Run(worker, task-b.first[k])
}
