package lower

import (
	"cmp"
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
		if c.View || len(w.uses[k].launches) == 0 && !c.stores() {
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
	scratch map[BufferID]*sharing // by root of scratch memory
	writes  map[BufferID][]int32  // by root: the launches that have written it
	from    []int32               // by root, from None on: where its ports begin in ports
	ports   []portAt              // by root, then by cluster
	running []portAt              // those that a launch touches, see portsOf
	count   int32                 // launches so far
	moved   bool                  // whether to note what clusters move
}

// portAt is a port of a cluster, by their numbers.
type portAt struct{ cluster, port int32 }

// clusterUse is what the launches of a cluster have touched so far.
type clusterUse struct {
	launches []int32           // their numbers
	ports    []bool            // by port
	in, out  members[BufferID] // outside of the cluster, each tensor under all names
}

// sharing is scratch memory: the launches that have used it, and a cluster that all of them run.
type sharing struct {
	launches []int32
	cluster  int32
}

func newClusterWalk(p *Program) *clusterWalk {
	w := &clusterWalk{p: p, uses: make([]clusterUse, len(p.Planned)), scratch: map[BufferID]*sharing{}, writes: map[BufferID][]int32{}, from: make([]int32, len(p.Buffers)+2)}
	for k := range p.Planned {
		for _, x := range p.Planned[k].Ports {
			w.from[x.Root+2]++
		}
	}
	for i := 1; i < len(w.from); i++ {
		w.from[i] += w.from[i-1]
	}
	w.ports = make([]portAt, w.from[len(w.from)-1])
	next := slices.Clone(w.from)
	for k := range p.Planned {
		for i, x := range p.Planned[k].Ports {
			w.ports[next[x.Root+1]] = portAt{int32(k), int32(i)}
			next[x.Root+1]++
		}
	}
	return w
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
		w.uses[k].launches = append(w.uses[k].launches, w.count)
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
		root := w.p.Buffers[id].Root
		w.writes[root] = append(w.writes[root], w.count)
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
	if !write && w.made(s, b.Root) {
		return nil
	}
	found := false
	for _, at := range w.portsOf(s, b.Root) {
		u, c := &w.uses[at.cluster], &w.p.Planned[at.cluster]
		x := c.Ports[at.port]
		if x.Write != write {
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
		if w.moved && !(x.Unread && w.p.omits(c, x)) {
			list.add(id)
		}
	}
	if !found {
		return fmt.Errorf("%s, which is no port of its cluster", w.p.describePort(Port{Root: b.Root, At: b.At, DType: b.Type.DType, Write: write}))
	}
	return nil
}

// portsOf lists the ports at root of the clusters that s runs. They are valid until the next call.
func (w *clusterWalk) portsOf(s *Step, root BufferID) []portAt {
	list := w.ports[w.from[root+1]:w.from[root+2]]
	w.running = w.running[:0]
	if len(list) <= len(s.Runs) {
		for _, at := range list {
			if w.runs(at.cluster) {
				w.running = append(w.running, at)
			}
		}
		return w.running
	}
	for _, k := range s.Runs {
		i, _ := slices.BinarySearchFunc(list, k, func(at portAt, k int32) int { return cmp.Compare(at.cluster, k) })
		for ; i < len(list) && list[i].cluster == k; i++ {
			w.running = append(w.running, list[i])
		}
	}
	return w.running
}

// runs reports whether the launch at hand runs a cluster.
func (w *clusterWalk) runs(cluster int32) bool {
	l := w.uses[cluster].launches
	return len(l) > 0 && l[len(l)-1] == w.count
}

// made reports whether earlier launches of each cluster that s runs have written root.
func (w *clusterWalk) made(s *Step, root BufferID) bool {
	writes := w.writes[root]
	if len(writes) == 0 {
		return false
	}
	for _, k := range s.Runs {
		if !slices.ContainsFunc(w.uses[k].launches, func(l int32) bool { _, ok := slices.BinarySearch(writes, l); return ok }) {
			return false
		}
	}
	return true
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
	known := w.scratch[root]
	switch {
	case w.p.Buffers[root].Arena == ConstArena:
		return nil
	case known == nil && write:
		w.scratch[root] = &sharing{[]int32{w.count}, s.Runs[0]}
		return nil
	case known == nil:
		return fmt.Errorf("reads %s, which no launch has written", w.p.BufferName(root))
	}
	if !w.runs(known.cluster) {
		i := slices.IndexFunc(s.Runs, func(k int32) bool { // one that all launches with root have run
			return !slices.ContainsFunc(known.launches, func(l int32) bool { _, ok := slices.BinarySearch(w.uses[k].launches, l); return !ok })
		})
		if i < 0 {
			return fmt.Errorf("uses %s, which is scratch memory of the cluster of %s", w.p.BufferName(root), w.p.Planned[known.cluster].Name)
		}
		known.cluster = s.Runs[i]
	}
	if known.launches[len(known.launches)-1] != w.count {
		known.launches = append(known.launches, w.count)
	}
	return nil
}

// isScratch reports whether a target made buffer id for its launches (Finish).
func (p *Program) isScratch(id BufferID) bool { return p.Scratch > 0 && id >= p.Scratch }

// ClusterBytes is what the clusters of p move in one optimizer step of so many micro-batches: each
// tensor once for each cluster that reads or writes it, whatever the number of launches.
func (p *Program) ClusterBytes(micro int64) (sum int64) {
	w := newClusterWalk(p)
	w.moved = true
	for part := range NumParts {
		for i := range p.Parts[part] {
			if w.launch(&p.Parts[part][i], part) != nil {
				return -1
			}
		}
	}
	for k := range w.uses {
		u := &w.uses[k]
		times := int64(1)
		if p.Planned[k].Part == Micro {
			times = micro
		}
		sum += times * p.Traffic(&Step{In: u.in.list, Out: u.out.list})
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
