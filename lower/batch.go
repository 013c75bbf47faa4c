package lower

import (
	"slices"

	"ampc/ir"
)

// Batch joins the clusters of a part that run the same code over whole tensors into one step each:
// the updates of all parameters with one optimizer, or the casts of all weights to one dtype. A
// step joins the latest step of its kind, unless a step between the two depends on it or it depends
// on one.
func (p *Program) Batch(part Part) {
	steps := p.Parts[part]
	of := make([]*openBatch, len(steps)) // by batch, the steps that it joins
	var open []*openBatch
	for i := range steps {
		s := &steps[i]
		open = slices.DeleteFunc(open, func(b *openBatch) bool { return b.clashes(p, s) })
		if !p.batched(s) {
			continue
		}
		k := slices.IndexFunc(open, func(b *openBatch) bool { return b.steps[0].Cluster.alike(s.Cluster) })
		if k < 0 {
			k = len(open)
			open = append(open, &openBatch{reads: map[BufferID]bool{}, puts: map[BufferID]bool{}})
		}
		open[k].add(p, i, s)
		of[i] = open[k]
	}
	var out []Step
	at := make([]int, len(steps)) // by step, its position in out
	for i := range steps {
		switch b := of[i]; {
		case b == nil:
			at[i] = len(out)
			out = append(out, steps[i])
		case i == b.from[len(b.from)-1]:
			for _, j := range b.from {
				at[j] = len(out)
			}
			out = append(out, joined(b))
		}
	}
	if part == Prepare {
		for i := range p.WeightCopies {
			p.WeightCopies[i].Step = at[p.WeightCopies[i].Step]
		}
	}
	p.Parts[part] = out
}

// openBatch is a batch that further steps may join.
type openBatch struct {
	steps       []*Step
	from        []int
	reads, puts map[BufferID]bool // roots that its steps read and write
}

func (b *openBatch) add(p *Program, i int, s *Step) {
	b.steps, b.from = append(b.steps, s), append(b.from, i)
	for _, id := range s.In {
		if id != None {
			b.reads[p.Buffers[id].Root] = true
		}
	}
	for _, id := range s.Out {
		b.puts[p.Buffers[id].Root] = true
	}
}

// clashes reports whether s must run after the steps of b: s reads what they write, or writes what
// they read or write.
func (b *openBatch) clashes(p *Program, s *Step) bool {
	return slices.ContainsFunc(s.In, func(id BufferID) bool { return id != None && b.puts[p.Buffers[id].Root] }) ||
		slices.ContainsFunc(s.Out, func(id BufferID) bool {
			return id != None && (b.puts[p.Buffers[id].Root] || b.reads[p.Buffers[id].Root])
		})
}

// batched reports whether a step may be joined with others: a cluster each of whose accesses covers a
// whole tensor or, of loads, repeats one element.
func (p *Program) batched(s *Step) bool {
	g := s.Cluster
	if s.Kind != KindCluster || Count(g.Shape) < 2 || s.Stream != 0 {
		return false
	}
	return !slices.ContainsFunc(g.Code, func(i ir.Instr) bool { return i.Op == ir.PIndex || i.Op == ir.PPhilox }) &&
		!slices.ContainsFunc(g.Loads, func(a Access) bool { return !a.Covers(p, g.Shape) && !a.repeats() }) &&
		!slices.ContainsFunc(g.Stores, func(a Access) bool { return !a.Covers(p, g.Shape) })
}

// alike reports whether two clusters, whose steps may be joined, run the same code, and repeat elements
// that they share.
func (g *Cluster) alike(h *Cluster) bool {
	return slices.EqualFunc(g.Code, h.Code, ir.Instr.Same) &&
		slices.EqualFunc(g.Loads, h.Loads, func(a, b Access) bool {
			return a.DType == b.DType && a.repeats() == b.repeats() && (!a.repeats() || a.Buffer == b.Buffer)
		}) &&
		slices.EqualFunc(g.Stores, h.Stores, func(a, b Access) bool { return a.DType == b.DType && a.Reg == b.Reg })
}

// Covers reports whether a reads or writes all elements of its buffer in their order.
func (a *Access) Covers(p *Program, shape []int64) bool {
	if a.Offset != 0 || p.Buffers[a.Buffer].Type.Shape.Elements() != Count(shape) {
		return false
	}
	dense := ir.RowMajor(shape)
	for i, n := range shape {
		if n > 1 && a.Strides[i] != dense[i] {
			return false
		}
	}
	return true
}

// repeats reports whether a reads the first element of its buffer at every point.
func (a *Access) repeats() bool {
	return a.Offset == 0 && !slices.ContainsFunc(a.Strides, func(s int64) bool { return s != 0 })
}

// joined is the one step that runs all steps of a batch.
func joined(b *openBatch) Step {
	s := *b.steps[0]
	if len(b.steps) == 1 {
		return s
	}
	s.In, s.Out, s.Runs = slices.Clone(s.In), slices.Clone(s.Out), slices.Clone(s.Runs)
	known := map[BufferID]bool{}
	for _, id := range s.In {
		known[id] = true
	}
	for _, o := range b.steps[1:] {
		s.More = append(s.More, o.Cluster)
		for _, id := range o.In {
			if !known[id] {
				known[id] = true
				s.In = append(s.In, id)
			}
		}
		s.Out, s.Runs = append(s.Out, o.Out...), append(s.Runs, o.Runs...)
		s.Bytes += o.Bytes
	}
	return s
}
