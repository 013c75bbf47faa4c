package lower

import (
	"cmp"
	"fmt"
	"slices"
)

// ordered checks that steps which touch the same bytes, if one of them writes, are ordered by their
// stream or by a chain of events.
func (v *checker) ordered() error {
	streams := 0
	for _, s := range v.steps {
		streams = max(streams, int(s.Stream)+1)
	}
	if streams <= 1 {
		return nil
	}
	clock := make([][]int, streams) // clock[s][t]: last step of t that s has waited for
	for i := range clock {
		clock[i] = slices.Repeat([]int{-1}, streams)
	}
	events := make([][]int, v.p.Events+1)
	past := newHistory(v.p, streams)
	for i, s := range v.steps {
		own := clock[s.Stream]
		if i > 0 && v.parts[i] != v.parts[i-1] { // a part begins after the previous one has ended
			for _, c := range clock {
				for t := range c {
					c[t] = i - 1
				}
			}
		}
		for _, e := range s.Wait {
			if e < 1 || int(e) >= len(events) || events[e] == nil {
				return fmt.Errorf("%s waits for event %d, which nothing has recorded", s.Node.Name, e)
			}
			for t := range own {
				own[t] = max(own[t], events[e][t])
			}
		}
		own[s.Stream] = i
		if j := past.collision(s, own); j >= 0 {
			return fmt.Errorf("step %d (%s) and step %d (%s) touch the same bytes and nothing orders them", j, v.steps[j].Node.Name, i, s.Node.Name)
		}
		past.append(s, i)
		if s.Record != 0 {
			if s.Record < 0 || int(s.Record) >= len(events) || events[s.Record] != nil {
				return fmt.Errorf("%s records event %d, which is not its own event", s.Node.Name, s.Record)
			}
			events[s.Record] = slices.Clone(own)
		}
	}
	return nil
}

// history knows, for each byte and stream, the last steps that have read and written it. It is a
// segment tree over cells, ranges of bytes inside which no buffer begins or ends.
type history struct {
	p       *Program
	lo, hi  []int32 // by buffer: its cells
	last    []int   // by stream: its last step
	leaf    int     // the node of cell 0; node i has the children 2i and 2i+1
	touched []int32 // by stream, access and node: the last step that touched any cell of the node, counted from 1
	filled  []int32 // the last step that touched the node as a part of a buffer that contains it
}

func newHistory(p *Program, streams int) *history {
	type edge struct {
		arena Arena
		at    int64
	}
	edges := make([]edge, 0, 2*len(p.Buffers))
	for i := range p.Buffers {
		b := &p.Buffers[i]
		edges = append(edges, edge{b.Arena, b.Offset}, edge{b.Arena, b.Offset + b.Reach()})
	}
	order := func(a, b edge) int { return cmp.Or(cmp.Compare(a.arena, b.arena), cmp.Compare(a.at, b.at)) }
	slices.SortFunc(edges, order)
	edges = slices.Compact(edges)
	h := &history{p: p, lo: make([]int32, len(p.Buffers)), hi: make([]int32, len(p.Buffers)), last: slices.Repeat([]int{-1}, streams), leaf: 1}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		lo, _ := slices.BinarySearchFunc(edges, edge{b.Arena, b.Offset}, order)
		hi, _ := slices.BinarySearchFunc(edges, edge{b.Arena, b.Offset + b.Reach()}, order)
		h.lo[i], h.hi[i] = int32(lo), int32(hi)
	}
	for h.leaf < len(edges) {
		h.leaf *= 2
	}
	h.touched, h.filled = make([]int32, 4*streams*h.leaf), make([]int32, 4*streams*h.leaf)
	return h
}

// tree is where the nodes of a stream and an access are.
func (h *history) tree(stream int, write bool) int {
	if write {
		stream += len(h.last)
	}
	return 2 * h.leaf * stream
}

// collision is a step that touches bytes of s, if one of the two writes them, and that s has not
// waited for: own is the last step of each stream that it has; -1 if there is none.
func (h *history) collision(s *Step, own []int) int {
	for t, waited := range own {
		if h.last[t] <= waited {
			continue
		}
		for k, ids := range [2][]BufferID{s.In, s.Out} {
			for _, id := range ids {
				if !h.counts(id, k == 1) {
					continue
				}
				j := h.latest(h.tree(t, true), id)
				if k == 1 {
					j = max(j, h.latest(h.tree(t, false), id))
				}
				if j > waited {
					return j
				}
			}
		}
	}
	return -1
}

// counts reports whether an access of a buffer must be ordered: nothing writes constants.
func (h *history) counts(id BufferID, write bool) bool {
	return id != None && h.p.Buffers[id].Size > 0 && (write || h.p.Buffers[id].Arena != ConstArena)
}

// latest is the last step that touched cells of a buffer, -1 if none has.
func (h *history) latest(tree int, id BufferID) int {
	touched, filled := h.touched[tree:], h.filled[tree:]
	from, to := int(h.lo[id])+h.leaf, int(h.hi[id])+h.leaf
	found := int32(0)
	for i, j := from, to; i < j; i, j = i/2, j/2 {
		if i%2 == 1 {
			found = max(found, touched[i])
			i++
		}
		if j%2 == 1 {
			j--
			found = max(found, touched[j])
		}
	}
	for i, j := from/2, (to-1)/2; i > 0; i, j = i/2, j/2 {
		found = max(found, filled[i], filled[j])
	}
	return int(found) - 1
}

// append adds step s, which is number i.
func (h *history) append(s *Step, i int) {
	h.last[s.Stream] = i
	for k, ids := range [2][]BufferID{s.In, s.Out} {
		for _, id := range ids {
			if h.counts(id, k == 1) {
				h.touch(h.tree(int(s.Stream), k == 1), id, int32(i)+1)
			}
		}
	}
}

func (h *history) touch(tree int, id BufferID, step int32) {
	touched, filled := h.touched[tree:], h.filled[tree:]
	from, to := int(h.lo[id])+h.leaf, int(h.hi[id])+h.leaf
	for i, j := from, to; i < j; i, j = i/2, j/2 {
		if i%2 == 1 {
			filled[i] = step
			touched[i] = step
			i++
		}
		if j%2 == 1 {
			j--
			filled[j] = step
			touched[j] = step
		}
	}
	for i, j := from/2, (to-1)/2; i > 0; i, j = i/2, j/2 {
		touched[i], touched[j] = step, step
	}
}
