package lower

import (
	"slices"

	"ampc/ir"
)

// overlay finds the results of a step that may be stored over operands.
type overlay struct {
	p        *Program
	s        *Step
	in, out  grouped[BufferID, BufferID] // operands and results, by root
	clusters map[BufferID][]*Cluster     // of a step with a long list, by root: those that load from it or store to it
}

func (p *Program) overlay(s *Step) overlay {
	o := overlay{p: p, s: s, in: groupedBy(s.In, p.rootOf), out: groupedBy(s.Out, p.rootOf)}
	if max(len(s.In), len(s.Out)) <= longList {
		return o
	}
	o.clusters = map[BufferID][]*Cluster{}
	for _, g := range s.overlaid() {
		for _, list := range [2][]Access{g.Loads, g.Stores} {
			for i := range list {
				if root := p.rootOf(list[i].Buffer); root != None {
					o.clusters[root] = append(o.clusters[root], g)
				}
			}
		}
	}
	return o
}

// has reports whether p has a buffer id.
func (p *Program) has(id BufferID) bool { return id >= 0 && int(id) < len(p.Buffers) }

// rootOf is the root of a buffer, None if p has no such buffer.
func (p *Program) rootOf(id BufferID) BufferID {
	if !p.has(id) {
		return None
	}
	return p.Buffers[id].Root
}

// overlaid are the clusters whose stores may overwrite operands of s.
func (s *Step) overlaid() []*Cluster {
	if s.Epilogue != nil {
		return []*Cluster{s.Epilogue}
	}
	return s.Clusters()
}

// touching are the clusters that load from a root or store to it; of a step with short lists all.
func (o *overlay) touching(root BufferID) []*Cluster {
	if o.clusters != nil {
		return o.clusters[root]
	}
	return o.s.overlaid()
}

// may reports whether the step may store result out over operand in. A cluster may where it loads
// and stores them at the same points. A kernel may where its row says so: result 0 over operand 0, or
// each result over its own operand.
func (o *overlay) may(in, out BufferID) bool {
	p, s := o.p, o.s
	a, b := &p.Buffers[in], &p.Buffers[out]
	if !a.dense() || !b.dense() || a.Size != b.Size || a.Type.DType.Size() != b.Type.DType.Size() {
		return false
	}
	again := func(id BufferID) bool { return id != None && p.Buffers[id].Root == a.Root }
	switch s.Kind {
	case KindKernel:
		if s.Kernel.Node.Def().Is(ir.Apart) {
			i := slices.Index(s.In, in)
			return i >= 0 && s.Out[i] == out && o.once(a.Root)
		}
		if s.Kernel.Node.Def().Elem != nil {
			return a.Type == b.Type && !slices.ContainsFunc(o.in.with(a.Root), func(id BufferID) bool { return again(id) && p.Buffers[id].Type != b.Type })
		}
		return s.Kernel.InPlace && s.In[0] == in && s.Out[0] == out && o.once(a.Root)
	case KindCluster, KindGemm, KindConv:
		if slices.ContainsFunc(s.factors(), again) {
			return false
		}
		return slices.ContainsFunc(o.touching(b.Root), func(g *Cluster) bool { return g.stores(out) >= 0 }) &&
			!slices.ContainsFunc(o.touching(a.Root), func(g *Cluster) bool { return !g.samePoints(p, a.Root, out) })
	}
	return false
}

// once reports whether the step has one operand with this root.
func (o *overlay) once(root BufferID) bool {
	count := 0
	for _, id := range o.in.with(root) {
		if id != None && o.p.Buffers[id].Root == root {
			count++
		}
	}
	return count == 1
}

// factors are the operands that a product reads before it stores the first result.
func (s *Step) factors() []BufferID {
	if s.Gemm == nil && s.Conv == nil {
		return nil
	}
	e := s.epilogue()
	return s.In[:max(2, e.Bias+1, e.Residual+1)]
}

// stores is the index of the store to out, -1 where there is none.
func (g *Cluster) stores(out BufferID) int {
	return slices.IndexFunc(g.Stores, func(a Access) bool { return a.Buffer == out })
}

// samePoints reports whether every load from root walks exactly as the store to out does. A cluster
// that does not store out must not load from root.
func (g *Cluster) samePoints(p *Program, root, out BufferID) bool {
	i := g.stores(out)
	for k := range g.Loads {
		a := &g.Loads[k]
		if a.Buffer != None && p.Buffers[a.Buffer].Root == root && (i < 0 || a.Spread != nil || a.Offset != g.Stores[i].Offset || !slices.Equal(a.Strides, g.Stores[i].Strides)) {
			return false
		}
	}
	return true
}
