package cpu

import (
	"cmp"
	"slices"

	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// batchStep runs groups of one code over many tensors in one parallel region: a whole group of parameters.
type batchStep struct {
	m       *kern.Machine
	members []*clusterStep
	order   []chunk // task by task
	serial  bool
}

// chunk is a part of one of several tensors.
type chunk struct{ tensor, at int }

// spread orders all chunks of tensors so that each worker's share of a region over them has about the same part of every tensor,
// the first worker's the first: where the tensors are products, that is mostly what the worker's own tiles wrote. A share
// goes from tensor to tensor.
func spread(chunks []int, workers int) (order []chunk) {
	for i, n := range chunks {
		for at := range n {
			order = append(order, chunk{i, at})
		}
	}
	middle := func(c chunk) float64 { return (float64(c.at) + 0.5) / float64(chunks[c.tensor]) }
	slices.SortStableFunc(order, func(a, b chunk) int { return cmp.Compare(middle(a), middle(b)) })
	for w := range workers {
		slices.SortFunc(shareOf(order, w, workers), func(a, b chunk) int { return cmp.Or(a.tensor-b.tensor, a.at-b.at) })
	}
	return order
}

// shareOf is what worker w begins with, see kern.Pool.
func shareOf[T any](all []T, w, workers int) []T {
	return all[w*len(all)/workers : (w+1)*len(all)/workers]
}

// batch compiles clusters that share their code and what they repeat. What is the same for all elements is so for all
// members, too: the first computes it, and the others, laid out over the same memory, find it there.
func (e *exec) batch(groups []*lower.Cluster) func() {
	b := &batchStep{m: e.machine()}
	most, work, tasks := 0, 0, []int{}
	for _, g := range groups {
		most = max(most, elements(g))
	}
	for _, g := range groups {
		e.scratch.begin()
		s := e.cluster(g, most)
		if len(b.members) > 0 {
			s.once = nil
			if f := s.formula; f != nil {
				f.from, f.values = nil, b.members[0].formula.values
			}
		}
		b.members, tasks = append(b.members, s), append(tasks, s.tasks())
		work += s.n * (len(g.Code) + 2)
	}
	b.serial, b.order = work < serialWork, spread(tasks, b.m.Pool().Workers())
	return b.run
}

func (b *batchStep) run() {
	b.members[0].begin()
	if b.serial {
		for i := range b.order {
			b.Run(0, i)
		}
		return
	}
	b.m.Pool().Run(len(b.order), b)
}

// Run is one task of one member.
func (b *batchStep) Run(worker, task int) {
	c := b.order[task]
	b.members[c.tensor].Run(worker, c.at)
}
