package lower

import (
	"cmp"
	"slices"
)

// plan gives every root buffer its offset and every arena its size, by the method that the form
// selects.
func (l *Lowerer) plan() {
	p := l.p
	p.lifetimes()
	for a := range NumArenas {
		if a == WorkArena {
			continue
		}
		for i := range p.Buffers {
			if b := &p.Buffers[i]; b.Arena == a && b.Root == BufferID(i) {
				b.Offset = p.Arenas[a]
				p.Arenas[a] += roundUp(b.Size)
			}
		}
	}
	p.separate()
	if l.spread {
		p.Spread()
		return
	}
	p.placeWork(true, !l.brief)
	p.placeViews()
}

// separate computes the size of the work arena if no buffers share memory.
func (p *Program) separate() {
	p.Separate = 0
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Arena == WorkArena && b.Root == BufferID(i) {
			p.Separate += roundUp(b.Size)
		}
	}
}

func roundUp(n int64) int64 { return (n + Align - 1) / Align * Align }

// Spread gives every work buffer its own memory, so that all values that a part computed can be
// inspected after it. The work arena grows to Separate.
func (p *Program) Spread() {
	p.Arenas[WorkArena] = 0
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Arena == WorkArena && b.Root == BufferID(i) {
			b.Offset = p.Arenas[WorkArena]
			p.Arenas[WorkArena] += roundUp(b.Size)
		}
	}
	p.placeViews()
}

// Apart plans the work buffers again such that no result overwrites an operand of its own step.
// After each step, its operands are still there.
func (p *Program) Apart() {
	p.placeWork(false, true)
	p.placeViews()
}

// placeViews places every view in its root.
func (p *Program) placeViews() {
	for i := range p.Buffers {
		b := &p.Buffers[i]
		root := &p.Buffers[b.Root]
		b.Arena, b.Offset = root.Arena, root.Offset+b.At
	}
}

// lifetimes sets the span of every root, from its first write to its last read. A value that
// prepare computes and a later part reads lives until micro ends, because micro repeats. A returned
// value outlives the last step.
func (p *Program) lifetimes() {
	pos, microEnd := int32(0), int32(len(p.Parts[Prepare])+len(p.Parts[Micro])-1)
	total := microEnd + int32(len(p.Parts[Update]))
	touch := func(id BufferID, at int32) {
		if id == None {
			return
		}
		b := &p.Buffers[p.Buffers[id].Root]
		if b.Live.From < 0 {
			b.Live.From = at
		}
		b.Live.To = max(b.Live.To, at)
	}
	prepared := int32(len(p.Parts[Prepare]))
	for part := range NumParts {
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			for _, id := range s.In {
				touch(id, pos)
			}
			for _, id := range s.Out {
				touch(id, pos)
			}
			pos++
		}
	}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Live.From >= 0 && b.Live.From < prepared && b.Live.To >= prepared {
			b.Live.To = max(b.Live.To, microEnd+1) // beyond the last step of micro, which may not overwrite it either
		}
	}
	for _, o := range p.Outputs {
		touch(o.Buffer, total+1)
	}
	p.keepInFlight()
}

// block is the memory that one buffer, or a chain of buffers that overwrite each other in place,
// occupies over a span.
type block struct {
	live   Span
	size   int64
	offset int64
	chain  []BufferID
}

// placeWork places the work buffers. If inPlace, a result takes the memory of an operand that the
// step reads last. search looks for an order of placement that takes less memory than the order of
// steps.
func (p *Program) placeWork(inPlace, search bool) {
	blocks := p.chains(inPlace)
	p.MaxLive = maxLive(blocks)
	best := placement{blocks: blocks, peak: placeInTime(blocks), goal: p.MaxLive + p.MaxLive/100}
	if search {
		best.improve()
	}
	peak := best.peak
	for _, b := range blocks {
		for _, id := range b.chain {
			p.Buffers[id].Offset = b.offset
		}
	}
	p.Arenas[WorkArena] = peak
}

// placement is the best placement so far.
type placement struct {
	blocks     []block
	peak, goal int64 // the search stops at this peak
}

// Programs of more than smallPlan blocks keep the placement in the order of steps. The other orders
// cost the square of the number of blocks. The search costs searches times that, and is left out
// for more than searchedFor blocks.
const (
	smallPlan   = 8192
	searchedFor = 512
	searches    = 100
)

// precedence are the orders in which blocks may be placed: by size, by size times lifetime, by
// lifetime, each largest first.
var precedence = []func(b *block) int64{
	func(b *block) int64 { return b.size },
	func(b *block) int64 { return b.size * int64(b.live.To-b.live.From+1) },
	func(b *block) int64 { return int64(b.live.To - b.live.From) },
}

// improve tries the orders of precedence. For few blocks it then repeatedly moves the block that
// ends at the peak to an earlier place.
func (p *placement) improve() {
	if len(p.blocks) > smallPlan {
		return
	}
	for _, first := range precedence {
		if p.peak <= p.goal {
			return
		}
		sorted := order(len(p.blocks))
		slices.SortFunc(sorted, func(a, b int32) int {
			x, y := &p.blocks[a], &p.blocks[b]
			return cmp.Or(cmp.Compare(first(y), first(x)), cmp.Compare(y.size, x.size), cmp.Compare(x.live.From, y.live.From), cmp.Compare(a, b))
		})
		p.try(sorted)
		for range searches {
			if p.peak <= p.goal || len(sorted) > searchedFor {
				break
			}
			p.try(sorted)
		}
	}
}

// try places the blocks in the given order and keeps the result if its peak is lower. It moves the
// block that ended at the peak half way to the front of the order.
func (p *placement) try(sorted []int32) {
	kept := make([]int64, len(p.blocks))
	for i := range p.blocks {
		kept[i] = p.blocks[i].offset
	}
	peak := placeInOrder(p.blocks, sorted)
	top := slices.IndexFunc(sorted, func(i int32) bool { return p.blocks[i].offset+p.blocks[i].size == peak })
	if top > 0 {
		i := sorted[top]
		copy(sorted[top/2+1:top+1], sorted[top/2:top])
		sorted[top/2] = i
	}
	if peak < p.peak {
		p.peak = peak
		return
	}
	for i := range p.blocks {
		p.blocks[i].offset = kept[i]
	}
}

// chains groups work buffers. If inPlace, a result joins the block of an operand that dies with the
// step, where the step may overwrite it.
func (p *Program) chains(inPlace bool) []block {
	of := make([]int32, len(p.Buffers)) // by root: its block, -1 for none yet
	for i := range of {
		of[i] = -1
	}
	var blocks []block
	pos := int32(0)
	for part := range NumParts {
		for i := range p.Parts[part] {
			s, sent := &p.Parts[part][i], p.message(part, i)
			over := p.overlay(s)
			for _, id := range s.Out {
				root := p.Buffers[id].Root
				b := &p.Buffers[root]
				if b.Arena != WorkArena || of[root] >= 0 {
					continue
				}
				if k := over.reusable(sent, id, pos, of, blocks); inPlace && k >= 0 {
					of[root] = k
					blocks[k].live.To = b.Live.To
					blocks[k].chain = append(blocks[k].chain, root)
					continue
				}
				of[root] = int32(len(blocks))
				blocks = append(blocks, block{live: b.Live, size: roundUp(b.Size), chain: []BufferID{root}})
			}
			pos++
		}
	}
	return blocks
}

// reusable finds the block of an operand of the step that dies with the step (or with the message that
// it starts), has the size of result out, may be overwritten by it, and is not yet taken by another
// result of the step. It returns -1 where there is none.
func (o *overlay) reusable(sent *Message, out BufferID, pos int32, of []int32, blocks []block) int32 {
	p := o.p
	for _, id := range o.s.In {
		if id == None {
			continue
		}
		root := p.Buffers[id].Root
		k := of[root]
		ends := k >= 0 && blocks[k].live.To == pos
		if sent != nil {
			ends = k >= 0 && slices.Contains(sent.consumed, root)
		}
		if !ends || blocks[k].chain[len(blocks[k].chain)-1] != root || blocks[k].size != roundUp(p.Buffers[p.Buffers[out].Root].Size) {
			continue
		}
		if o.may(id, out) {
			return k
		}
	}
	return -1
}

// maxLive is the largest sum of the sizes of blocks that live at the same step.
func maxLive(blocks []block) int64 {
	type event struct {
		at   int32
		diff int64
	}
	var ev []event
	for _, b := range blocks {
		ev = append(ev, event{b.live.From, b.size}, event{b.live.To + 1, -b.size})
	}
	slices.SortFunc(ev, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.diff, b.diff)) })
	var live, most int64
	for _, e := range ev {
		live += e.diff
		most = max(most, live)
	}
	return most
}

// placeInTime places blocks in the order of steps, the largest of a step first, into the smallest
// hole that fits, as an allocator would. It returns the peak.
func placeInTime(blocks []block) int64 {
	byStart, byEnd := order(len(blocks)), order(len(blocks))
	slices.SortFunc(byStart, func(a, b int32) int {
		return cmp.Or(cmp.Compare(blocks[a].live.From, blocks[b].live.From), cmp.Compare(blocks[b].size, blocks[a].size), cmp.Compare(a, b))
	})
	slices.SortStableFunc(byEnd, func(a, b int32) int { return cmp.Compare(blocks[a].live.To, blocks[b].live.To) })
	var holes holes
	freed := 0
	for _, i := range byStart {
		b := &blocks[i]
		for ; freed < len(byEnd) && blocks[byEnd[freed]].live.To < b.live.From; freed++ {
			e := &blocks[byEnd[freed]]
			holes.free(e.offset, e.size)
		}
		b.offset = holes.take(b.size)
	}
	return holes.peak
}

func order(n int) []int32 {
	o := make([]int32, n)
	for i := range o {
		o[i] = int32(i)
	}
	return o
}

// holes is a free list sorted by offset. Memory from end on is free, too.
type holes struct {
	list      []hole
	end, peak int64
}

type hole struct{ offset, size int64 }

func (h *holes) take(size int64) int64 {
	if size == 0 {
		return 0
	}
	best := -1
	for i, x := range h.list {
		if x.size >= size && (best < 0 || x.size < h.list[best].size) {
			best = i
		}
	}
	if best < 0 {
		at := h.end
		if last := len(h.list) - 1; last >= 0 && h.list[last].offset+h.list[last].size == h.end {
			at = h.list[last].offset
			h.list = h.list[:last]
		}
		h.end = at + size
		h.peak = max(h.peak, h.end)
		return at
	}
	at := h.list[best].offset
	if h.list[best].size == size {
		h.list = slices.Delete(h.list, best, best+1)
	} else {
		h.list[best].offset += size
		h.list[best].size -= size
	}
	return at
}

func (h *holes) free(offset, size int64) {
	if size == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(h.list, offset, func(x hole, o int64) int { return cmp.Compare(x.offset, o) })
	h.list = slices.Insert(h.list, i, hole{offset, size})
	if i+1 < len(h.list) && offset+size == h.list[i+1].offset {
		h.list[i].size += h.list[i+1].size
		h.list = slices.Delete(h.list, i+1, i+2)
	}
	if i > 0 && h.list[i-1].offset+h.list[i-1].size == offset {
		h.list[i-1].size += h.list[i].size
		h.list = slices.Delete(h.list, i, i+1)
	}
}

// placeInOrder places the blocks one after the other in the given order. Each takes the smallest
// gap between the placed blocks that share a step with it. In the order of size this is the
// algorithm of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference",
// 2020.
func placeInOrder(blocks []block, sorted []int32) int64 {
	placed := make([]int32, 0, len(blocks)) // by offset
	var peak int64
	for _, i := range sorted {
		b := &blocks[i]
		b.offset = lowestGap(blocks, placed, b)
		peak = max(peak, b.offset+b.size)
		at, _ := slices.BinarySearchFunc(placed, b.offset, func(j int32, o int64) int { return cmp.Compare(blocks[j].offset, o) })
		placed = slices.Insert(placed, at, i)
	}
	return peak
}

// lowestGap returns the offset of the smallest gap that b fits in, between the placed blocks that
// share a step with it, or the end of the last of them.
func lowestGap(blocks []block, placed []int32, b *block) int64 {
	best, bestSize, end := int64(-1), int64(0), int64(0)
	for _, j := range placed {
		o := &blocks[j]
		if o.live.From > b.live.To || o.live.To < b.live.From {
			continue
		}
		if gap := o.offset - end; gap >= b.size && (best < 0 || gap < bestSize) {
			best, bestSize = end, gap
		}
		end = max(end, o.offset+o.size)
	}
	if best >= 0 {
		return best
	}
	return end
}
