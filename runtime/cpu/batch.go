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
	n       int // elements of all members
	cost    int // of all elements, see kern.Machine.Run
	tasks   kern.Parts
	parts   [][]stretch // by task
}

// stretch is the elements [from,to) of one of the members.
type stretch struct{ member, from, to int }

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
	order = byPlace(chunks)
	for w := range workers {
		slices.SortFunc(shareOf(order, w, workers), func(a, b chunk) int { return cmp.Or(a.tensor-b.tensor, a.at-b.at) })
	}
	return order
}

// byPlace orders the chunks of all tensors by the part of the tensor that they are.
func byPlace(chunks []int) (order []chunk) {
	for i, n := range chunks {
		for at := range n {
			order = append(order, chunk{i, at})
		}
	}
	middle := func(c chunk) float64 { return (float64(c.at) + 0.5) / float64(chunks[c.tensor]) }
	slices.SortStableFunc(order, func(a, b chunk) int { return cmp.Compare(middle(a), middle(b)) })
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
	most := 0
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
		b.n, b.cost = b.n+s.n, b.cost+s.cost
	}
	return b.run
}

func (b *batchStep) run() {
	if b.n == 0 {
		return
	}
	b.members[0].begin()
	before := b.tasks
	b.tasks = b.m.Divide(b.cost, (b.n+clusterUnit-1)/clusterUnit, taskElems/clusterUnit)
	if b.tasks != before {
		b.parts = b.cut()
	}
	b.m.RunParts(&b.tasks, b)
}

// cut returns the stretches of each task: those of a worker's tasks are ordered as spread orders chunks.
func (b *batchStep) cut() (parts [][]stretch) {
	tasks, workers := b.tasks.Tasks(), b.tasks.Workers()
	var pieces []int
	for _, s := range b.members {
		pieces = append(pieces, (s.n+s.most()-1)/s.most())
	}
	var all []stretch
	for _, c := range byPlace(pieces) {
		s := b.members[c.tensor]
		all = append(all, stretch{c.tensor, c.at * s.most(), min((c.at+1)*s.most(), s.n)})
	}
	for w, share := range b.split(all, workers) {
		slices.SortFunc(share, func(a, b stretch) int { return cmp.Or(a.member-b.member, a.from-b.from) })
		parts = append(parts, b.split(joined(share), (w+1)*tasks/workers-w*tasks/workers)...)
	}
	return parts
}

// split divides stretches into parts that are alike except for a unit.
func (b *batchStep) split(list []stretch, n int) [][]stretch {
	total, at, part := 0, 0, 0
	for _, s := range list {
		total += s.to - s.from
	}
	parts := make([][]stretch, n)
	for _, s := range list {
		for s.from < s.to {
			end := total * (part + 1) / n
			if end <= at && part < n-1 {
				part++
				continue
			}
			unit := b.members[s.member].unit
			next := min(s.to, s.from+(end-at+unit-1)/unit*unit)
			parts[part] = append(parts[part], stretch{s.member, s.from, next})
			s.from, at = next, at+next-s.from
		}
	}
	return parts
}

// joined joins stretches that follow each other.
func joined(list []stretch) (long []stretch) {
	for _, s := range list {
		if k := len(long) - 1; k >= 0 && long[k].member == s.member && long[k].to == s.from {
			long[k].to = s.to
			continue
		}
		long = append(long, s)
	}
	return long
}

// Run runs one task.
func (b *batchStep) Run(worker, task int) {
	for _, s := range b.parts[task] {
		b.members[s.member].over(worker, s.from, s.to)
	}
}
