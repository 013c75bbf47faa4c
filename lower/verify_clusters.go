package lower

import (
	"fmt"
	"slices"
)

// verifyClusters checks the launches into which a target has turned the steps (Finish). A cluster
// may become several launches. Together they read and write exactly its ports, and what they pass to
// each other no other cluster reads.
func (p *Program) verifyClusters() error {
	w := newClusterWalk(p)
	for part := range NumParts {
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			if err := w.launch(s, part); err != nil {
				return fmt.Errorf("%s step %d (%s %s): %w", part, i, s.Kind, s.Node.Name, err)
			}
		}
	}
	for k := range p.Planned {
		c := &p.Planned[k]
		if c.View || w.uses[k].launches == 0 && !c.stores() {
			continue
		}
		for i, x := range c.Ports {
			if !x.Unread && p.moves(x) && (w.uses[k].ports == nil || !w.uses[k].ports[i]) {
				return fmt.Errorf("the cluster of %s %s, and none of its launches does", c.Name, p.describePort(x))
			}
		}
	}
	return nil
}

// clusterWalk visits the launches of clusters in their order.
type clusterWalk struct {
	p       *Program
	uses    []clusterUse
	scratch map[BufferID][]int32 // by root of scratch memory: the clusters that may use it
	at      map[BufferID][]portAt
	running []int // by cluster: the last launch that runs it
	count   int   // launches so far
}

// portAt is a port of a cluster, by their numbers.
type portAt struct {
	cluster int32
	port    int
}

func newClusterWalk(p *Program) *clusterWalk {
	w := &clusterWalk{p: p, uses: make([]clusterUse, len(p.Planned)), scratch: map[BufferID][]int32{}, at: map[BufferID][]portAt{}, running: make([]int, len(p.Planned))}
	for k := range p.Planned {
		for i, x := range p.Planned[k].Ports {
			w.at[x.Root] = append(w.at[x.Root], portAt{int32(k), i})
		}
	}
	return w
}

// clusterUse is what the launches of a cluster have touched so far.
type clusterUse struct {
	ports    []bool // by port
	written  []BufferID
	in, out  []BufferID // outside of the cluster, each tensor under all names
	launches int
}

// launch notes what a launch of s's clusters reads and writes.
func (w *clusterWalk) launch(s *Step, part Part) error {
	if len(s.Runs) == 0 {
		return fmt.Errorf("runs no cluster of the plan")
	}
	w.count++
	for _, k := range s.Runs {
		if k < 0 || int(k) >= len(w.uses) || w.p.Planned[k].Part != part {
			return fmt.Errorf("runs cluster %d of the plan, which is not there or of another part", k)
		}
		w.uses[k].launches++
		w.running[k] = w.count
	}
	for _, id := range s.In {
		if id == None {
			continue
		}
		if err := w.touch(s, id, false); err != nil {
			return err
		}
	}
	for _, id := range s.Out {
		if err := w.touch(s, id, true); err != nil {
			return err
		}
	}
	for _, id := range s.Out {
		for _, k := range s.Runs {
			w.uses[k].written = append(w.uses[k].written, w.p.Buffers[id].Root)
		}
	}
	return nil
}

// touch notes that a launch reads or writes a buffer: a port of one of its clusters, what a launch of
// the same cluster has written, or scratch memory.
func (w *clusterWalk) touch(s *Step, id BufferID, write bool) error {
	b := &w.p.Buffers[id]
	if w.p.isScratch(b.Root) {
		return w.share(s, b.Root, write)
	}
	if !write && !slices.ContainsFunc(s.Runs, func(k int32) bool { return !slices.Contains(w.uses[k].written, b.Root) }) {
		return nil
	}
	found := false
	for _, at := range w.at[b.Root] {
		u, c := &w.uses[at.cluster], &w.p.Planned[at.cluster]
		x := c.Ports[at.port]
		if w.running[at.cluster] != w.count || x.Write != write {
			continue
		}
		if u.ports == nil {
			u.ports = make([]bool, len(c.Ports))
		}
		if x.At == b.At && x.DType == b.Type.DType {
			u.ports[at.port], found = true, true
		}
		list := &u.in
		if write {
			list = &u.out
		}
		if !slices.Contains(*list, id) && !(x.Unread && w.p.omits(c, x)) {
			*list = append(*list, id)
		}
	}
	if !found {
		return fmt.Errorf("%s, which is no port of its cluster", w.p.describePort(Port{Root: b.Root, At: b.At, DType: b.Type.DType, Write: write}))
	}
	return nil
}

// omits reports whether the kernels of c neither read nor write the tensor at unread port x.
func (p *Program) omits(c *PlannedCluster, x Port) bool {
	return !x.Write || slices.ContainsFunc(c.tensors, func(t tensor) bool {
		n := t.value.Def
		return t.root == x.Root && n != nil && contains(c.nodes, n) && p.Target.Caps().DropsUnread(n, t.value.Idx)
	})
}

// share checks that launches of one cluster alone use scratch memory.
func (w *clusterWalk) share(s *Step, root BufferID, write bool) error {
	known, ok := w.scratch[root]
	switch {
	case w.p.Buffers[root].Arena == ConstArena:
		return nil
	case !ok && write:
		w.scratch[root] = s.Runs
	case !ok:
		return fmt.Errorf("reads %s, which no launch has written", w.p.BufferName(root))
	default:
		both := slices.DeleteFunc(slices.Clone(known), func(k int32) bool { return w.running[k] != w.count })
		if len(both) == 0 {
			return fmt.Errorf("uses %s, which is scratch memory of the cluster of %s", w.p.BufferName(root), w.p.Planned[known[0]].Name)
		}
		w.scratch[root] = both
	}
	return nil
}

// isScratch reports whether a target made buffer id for its launches (Finish).
func (p *Program) isScratch(id BufferID) bool { return p.Scratch > 0 && id >= p.Scratch }

// ClusterBytes is what the clusters of p move in one optimizer step of so many micro-batches: each
// tensor once for each cluster that reads or writes it, whatever the number of launches.
func (p *Program) ClusterBytes(micro int64) (sum int64) {
	w := newClusterWalk(p)
	for part := range NumParts {
		for i := range p.Parts[part] {
			if w.launch(&p.Parts[part][i], part) != nil {
				return -1
			}
		}
	}
	for k, u := range w.uses {
		times := int64(1)
		if p.Planned[k].Part == Micro {
			times = micro
		}
		sum += times * p.Traffic(&Step{In: u.in, Out: u.out})
	}
	return sum
}

// ShareMemory gives all tensors of root from the memory of root to.
func (p *Program) ShareMemory(from, to BufferID) {
	for k := range p.Buffers {
		if p.Buffers[k].Root == from {
			p.Buffers[k].Root = to
		}
	}
	for k := range p.Planned {
		for i := range p.Planned[k].Ports {
			if x := &p.Planned[k].Ports[i]; x.Root == from {
				x.Root = to
			}
		}
	}
}
