package cpu

import (
	"cmp"
	"slices"

	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// batchStep runs clusters with the same code over many tensors in one parallel region. An example
// is the update of a whole parameter group.
type batchStep struct {
	m       *kern.Machine
	members []*clusterStep
	order   []chunk // order of the tasks
	cost    int     // elements times instructions
	serial  bool
}

// chunk is a contiguous part of one of the tensors.
type chunk struct{ tensor, at int }

// spread orders the chunks of all tensors so that each worker's share of the region covers about
// the same part of every tensor, and the first worker's share the first part. If matrix products
// wrote the tensors, a worker then reads mostly what it has written itself. A share goes from
// tensor to tensor.
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

// shareOf returns the index of the first task of worker w; see kern.Pool.
func shareOf[T any](all []T, w, workers int) []T {
	return all[w*len(all)/workers : (w+1)*len(all)/workers]
}

// batch compiles clusters that share their code and the operands which are the same for all
// elements. The first member computes these uniform values. The others are laid out over the same
// memory and read them there.
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
	b.cost, b.serial, b.order = work, work < minParallelWork, spread(tasks, b.m.Pool().Workers())
	return b.run
}

func (b *batchStep) run() {
	b.members[0].begin()
	if b.serial {
		b.m.Serial(passWork*b.cost, len(b.order), b)
		return
	}
	b.m.Run(passWork*b.cost, len(b.order), b)
}

// Run runs one task of one member.
func (b *batchStep) Run(worker, task int) {
	c := b.order[task]
	b.members[c.tensor].Run(worker, c.at)
}
