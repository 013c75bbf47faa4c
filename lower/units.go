package lower

import (
	"container/heap"

	"ampc/ir"
)

// unit is what lowers together: one node, or the members of a fusible group
// that stand in one section.
type unit struct {
	nodes []*ir.Node
	last  int32 // list position of its last member: units run in this order
	waits int32
	next  []int32 // units that read its results
}

// units cuts a part into units and orders them: as the nodes stand, except that
// a group waits for the operands of all its members. Groups that would wait for
// each other fall apart into single nodes.
func (l *Lowerer) units(part Part) ([]unit, error) {
	units, grouped := l.cut(part, l.joins && !(l.update && part == Update))
	if !grouped {
		return units, nil
	}
	if sorted, ok := sortUnits(units, l.unitOf(units)); ok {
		return sorted, nil
	}
	units, _ = l.cut(part, false)
	return units, nil
}

func (l *Lowerer) cut(part Part, groups bool) (units []unit, grouped bool) {
	type key struct {
		s ir.Section
		g int32
	}
	open := map[key]int{}
	pos := int32(0)
	for _, s := range partSections[part] {
		for _, n := range l.g.Body[s] {
			pos++
			k := key{s, n.Why.Cluster}
			if i, ok := open[k]; ok && groups && k.g != 0 && s != ir.Prepare { // prepare's casts stay apart: a store skips them one by one
				units[i].nodes = append(units[i].nodes, n)
				units[i].last = pos
				grouped = true
				continue
			}
			open[k] = len(units)
			units = append(units, unit{nodes: []*ir.Node{n}, last: pos})
		}
	}
	return units, grouped
}

// unitOf maps Node.ID to the unit the node is in, -1 for other parts.
func (l *Lowerer) unitOf(units []unit) []int32 {
	of := make([]int32, len(l.seq))
	for i := range of {
		of[i] = -1
	}
	for i, u := range units {
		for _, n := range u.nodes {
			of[n.ID] = int32(i)
		}
	}
	return of
}

// unitHeap holds units whose operands are there, the earliest first.
type unitHeap struct {
	units []unit
	ready []int32
}

func (h *unitHeap) Len() int           { return len(h.ready) }
func (h *unitHeap) Less(i, j int) bool { return h.units[h.ready[i]].last < h.units[h.ready[j]].last }
func (h *unitHeap) Swap(i, j int)      { h.ready[i], h.ready[j] = h.ready[j], h.ready[i] }
func (h *unitHeap) Push(x any)         { h.ready = append(h.ready, x.(int32)) }
func (h *unitHeap) Pop() any {
	x := h.ready[len(h.ready)-1]
	h.ready = h.ready[:len(h.ready)-1]
	return x
}

func sortUnits(units []unit, of []int32) ([]unit, bool) {
	for i := range units {
		for _, n := range units[i].nodes {
			for _, v := range n.In {
				if v == nil || v.Def == nil {
					continue
				}
				if d := of[v.Def.ID]; d >= 0 && d != int32(i) {
					units[d].next = append(units[d].next, int32(i))
					units[i].waits++
				}
			}
		}
	}
	h := &unitHeap{units: units}
	for i := range units {
		if units[i].waits == 0 {
			heap.Push(h, int32(i))
		}
	}
	sorted := make([]unit, 0, len(units))
	for h.Len() > 0 {
		i := heap.Pop(h).(int32)
		sorted = append(sorted, units[i])
		for _, r := range units[i].next {
			if units[r].waits--; units[r].waits == 0 {
				heap.Push(h, r)
			}
		}
	}
	return sorted, len(sorted) == len(units)
}

// lowerUnit lowers a single node by its rule, and a group segment by segment.
func (l *Lowerer) lowerUnit(u *unit) error {
	if len(u.nodes) > 1 {
		return l.lowerGroup(u)
	}
	n := u.nodes[0]
	if l.vanishes(n) {
		return nil
	}
	return l.p.Target.Rule(n)(l, n)
}
