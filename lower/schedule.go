package lower

import (
	"container/heap"
	"fmt"
	"slices"

	"ampc/ir"
)

// scheduled is a schedule node. It lowers as a whole: one node, or the members of a fusion cluster
// in one section.
type scheduled struct {
	nodes []*ir.Node
	last  int32 // position of its last member; schedule nodes are ordered by it where operands allow
	waits int32
	next  []int32 // schedule nodes that read its results
}

// schedule divides a part into schedule nodes and orders them. The order is that of the graph,
// except that a cluster waits for the operands of all its members. Clusters that wait for each
// other are an error.
func (l *Lowerer) schedule(part Part) ([]scheduled, error) {
	nodes, clustered := l.partition(part, l.joins && !(l.update && part == Update))
	if !clustered {
		return nodes, nil
	}
	if sorted, ok := sortScheduled(nodes, l.scheduledIn(nodes)); ok {
		return sorted, nil
	}
	return nil, l.cycle(part)
}

// cycle is the error for clusters that wait for each other. The passes must not form them.
func (l *Lowerer) cycle(part Part) error {
	return fmt.Errorf("@%s: clusters of part %s wait for each other: %s", l.g.Name, part, compilerFault)
}

func (l *Lowerer) partition(part Part, clusters bool) (nodes []scheduled, clustered bool) {
	type key struct {
		s               ir.Section
		launch, cluster int32
	}
	caps, launches := l.p.Target.Caps(), l.launches(part)
	open := map[key]int{}
	pos := int32(0)
	for _, s := range partSections[part] {
		for _, n := range l.g.Body[s] {
			pos++
			k := key{s: s, cluster: n.Why.Cluster}
			if elsewherePostOps(caps, n) {
				k.cluster = 0
			}
			if launches[n.Why.Launch] {
				k = key{launch: n.Why.Launch} // of both sections of micro
			}
			if i, ok := open[k]; ok && clusters && k != (key{s: s}) && s != ir.Prepare && !l.opened[k.cluster] { // nodes of prepare are not clustered: a store skips them one by one
				nodes[i].nodes = append(nodes[i].nodes, n)
				nodes[i].last = pos
				clustered = true
				continue
			}
			open[k] = len(nodes)
			nodes = append(nodes, scheduled{nodes: []*ir.Node{n}, last: pos})
		}
	}
	return nodes, clustered
}

// launches are the launches of a part that the target has kernels for. Launch 0 is none.
func (l *Lowerer) launches(part Part) map[int32]bool {
	members := map[int32][]*ir.Node{}
	for _, s := range partSections[part] {
		for _, n := range l.g.Body[s] {
			if k := n.Why.Launch; k > 0 {
				members[k] = append(members[k], n)
			}
		}
	}
	runs := make(map[int32]bool, len(members))
	for k, nodes := range members {
		runs[k] = l.p.Target.Caps().RunsLaunch(nodes)
	}
	return runs
}

// elsewherePostOps reports whether n is a kernel whose post-ops only the target that the graph was
// compiled for runs in it, as in a GPU's graph that is replayed on the CPU. Here it is a step of its
// own.
func elsewherePostOps(caps ir.Caps, n *ir.Node) bool {
	if n.Why.Cluster == 0 || !IsKernel(n) || caps.EpilogueOf(n) != ir.NoEpilogue || n.Def().Norm != nil || n.Op == ir.OpCustom {
		return false
	}
	return !slices.ContainsFunc(n.In, func(v *ir.Value) bool { return v != nil && sameCluster(v, n) })
}

// sameCluster reports whether the fusion cluster of n computes v.
func sameCluster(v *ir.Value, n *ir.Node) bool {
	return v.Def != nil && v.Def.Why.Cluster == n.Why.Cluster
}

// scheduledIn maps Node.ID to the index of its schedule node, -1 for nodes of other parts.
func (l *Lowerer) scheduledIn(nodes []scheduled) []int32 {
	of := make([]int32, len(l.seq))
	for i := range of {
		of[i] = -1
	}
	for i, u := range nodes {
		for _, n := range u.nodes {
			of[n.ID] = int32(i)
		}
	}
	return of
}

// readyHeap holds the schedule nodes whose operands are computed. The first one has the earliest
// last member.
type readyHeap struct {
	nodes []scheduled
	ready []int32
}

func (h *readyHeap) Len() int           { return len(h.ready) }
func (h *readyHeap) Less(i, j int) bool { return h.nodes[h.ready[i]].last < h.nodes[h.ready[j]].last }
func (h *readyHeap) Swap(i, j int)      { h.ready[i], h.ready[j] = h.ready[j], h.ready[i] }
func (h *readyHeap) Push(x any)         { h.ready = append(h.ready, x.(int32)) }
func (h *readyHeap) Pop() any {
	x := h.ready[len(h.ready)-1]
	h.ready = h.ready[:len(h.ready)-1]
	return x
}

func sortScheduled(nodes []scheduled, of []int32) ([]scheduled, bool) {
	for i := range nodes {
		for _, n := range nodes[i].nodes {
			for _, v := range n.In {
				if v == nil || v.Def == nil {
					continue
				}
				if d := of[v.Def.ID]; d >= 0 && d != int32(i) {
					nodes[d].next = append(nodes[d].next, int32(i))
					nodes[i].waits++
				}
			}
		}
	}
	h := &readyHeap{nodes: nodes}
	for i := range nodes {
		if nodes[i].waits == 0 {
			heap.Push(h, int32(i))
		}
	}
	sorted := make([]scheduled, 0, len(nodes))
	for h.Len() > 0 {
		i := heap.Pop(h).(int32)
		sorted = append(sorted, nodes[i])
		for _, r := range nodes[i].next {
			if nodes[r].waits--; nodes[r].waits == 0 {
				heap.Push(h, r)
			}
		}
	}
	return sorted, len(sorted) == len(nodes)
}

// lowerScheduled lowers a single node by its rule, and a cluster to one step.
func (l *Lowerer) lowerScheduled(u *scheduled) error {
	if len(u.nodes) > 1 {
		return l.lowerCluster(u)
	}
	n := u.nodes[0]
	if l.vanishes(n) {
		return nil
	}
	return l.p.Target.Rule(n)(l, n)
}
