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
	tasks   spreadTasks
	cost    int // elements times instructions
	serial  bool
}

// chunk is a contiguous part of one of the tensors.
type chunk struct{ tensor, at int }

// spreadTasks are the tasks of a region over several tensors, in their order.
type spreadTasks struct {
	order   []chunk
	workers int // that they are spread for
}

// spread sets the order for so many workers; chunks returns how many each tensor has then.
func (t *spreadTasks) spread(workers int, chunks func() []int) {
	if t.workers != workers {
		t.order, t.workers = spread(chunks(), workers), workers
	}
}

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
	most, work := 0, 0
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
		b.members = append(b.members, s)
		work += s.n * (len(g.Code) + 2)
	}
	b.cost, b.serial = work, work < minParallelWork
	return b.run
}

// groupBlocks makes the members' tasks for so many workers, and returns how many each has.
func (b *batchStep) groupBlocks(workers int) (tasks []int) {
	for _, s := range b.members {
		s.groupBlocks(workers)
		tasks = append(tasks, s.tasks())
	}
	return tasks
}

func (b *batchStep) run() {
	b.members[0].begin()
	workers := b.m.Pool().Threads()
	b.tasks.spread(workers, func() []int { return b.groupBlocks(workers) })
	if b.serial {
		b.m.Serial(passWork*b.cost, len(b.tasks.order), b)
		return
	}
	b.m.Run(passWork*b.cost, len(b.tasks.order), b)
}

// Run runs one task of one member.
func (b *batchStep) Run(worker, task int) {
	c := b.tasks.order[task]
	b.members[c.tensor].Run(worker, c.at)
}
