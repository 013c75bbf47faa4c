package lower

import (
	"cmp"
	"fmt"
	"slices"
)

// lifetimes extends results of prepare that later parts read to the end of micro, and compares all
// lifetimes with the planner's.
func (v *checker) lifetimes() error {
	prepared := int32(len(v.p.Parts[Prepare]))
	end := prepared + int32(len(v.p.Parts[Micro])) // beyond the last step of micro, which may not overwrite it either
	for i := range v.p.Buffers {
		b := &v.p.Buffers[i]
		if b.Arena != WorkArena || b.Root != BufferID(i) || v.first[i] < 0 {
			continue
		}
		if v.first[i] < prepared && v.last[i] >= prepared {
			v.last[i] = max(v.last[i], end)
		}
		if b.Live.From > v.first[i] || b.Live.To < v.last[i] {
			return fmt.Errorf("buffer %%%s: planned to live %d..%d, is used %d..%d", b.Name, b.Live.From, b.Live.To, v.first[i], v.last[i])
		}
	}
	return nil
}

// overlaps walks the steps with the set of live buffers, in the order of their offsets.
func (v *checker) overlaps() error {
	var byOffset []BufferID
	for i := range v.p.Buffers {
		if b := &v.p.Buffers[i]; b.Arena == WorkArena && b.Root == BufferID(i) && v.first[i] >= 0 && b.Size > 0 {
			byOffset = append(byOffset, BufferID(i))
		}
	}
	byStart, byEnd := slices.Clone(byOffset), slices.Clone(byOffset)
	slices.SortFunc(byStart, func(a, b BufferID) int { return cmp.Or(cmp.Compare(v.first[a], v.first[b]), cmp.Compare(a, b)) })
	slices.SortFunc(byEnd, func(a, b BufferID) int { return cmp.Or(cmp.Compare(v.last[a], v.last[b]), cmp.Compare(a, b)) })
	slices.SortFunc(byOffset, func(a, b BufferID) int {
		return cmp.Or(cmp.Compare(v.p.Buffers[a].Offset, v.p.Buffers[b].Offset), cmp.Compare(a, b))
	})
	place := make([]int32, len(v.p.Buffers))
	for i, id := range byOffset {
		place[id] = int32(i)
	}
	live := newPlaces(len(byOffset)) // two share bytes only during a step that overwrites an operand
	ended := 0
	for _, id := range byStart {
		for ; ended < len(byEnd) && v.last[byEnd[ended]] < v.first[id]; ended++ {
			live.remove(int(place[byEnd[ended]]))
		}
		if err := v.alone(id, byOffset, live, int(place[id])); err != nil {
			return err
		}
		live.add(int(place[id]))
	}
	return nil
}

// alone checks that a buffer, at a place of the order by offset, shares no bytes with those that are
// live when it is first written, except with an operand that it overwrites.
func (v *checker) alone(id BufferID, byOffset []BufferID, live places, at int) error {
	b := &v.p.Buffers[id]
	apart := func(other BufferID) error {
		o := &v.p.Buffers[other]
		if o.Offset+o.Size <= b.Offset || v.inPlace(other, id) {
			return nil
		}
		return fmt.Errorf("buffers %%%s (live %d..%d) and %%%s (live %d..%d) share bytes of the work arena",
			o.Name, v.first[other], v.last[other], b.Name, v.first[id], v.last[id])
	}
	lower := 0 // buffers at lower offsets: the last two may be an operand and what overwrites it
	for k := live.before(at); k >= 0 && lower < 2; k = live.before(k) {
		if err := apart(byOffset[k]); err != nil {
			return err
		}
		if v.p.Buffers[byOffset[k]].Offset < b.Offset {
			lower++
		}
	}
	for k := live.after(at); k >= 0 && v.p.Buffers[byOffset[k]].Offset < b.Offset+b.Size; k = live.after(k) {
		if err := apart(byOffset[k]); err != nil {
			return err
		}
	}
	return nil
}

// inPlace reports whether a step that is the last use of in and the first of
// out may overwrite in.
func (v *checker) inPlace(in, out BufferID) bool {
	at := v.first[out]
	if v.touched[in] != at || v.p.Buffers[in].Offset != v.p.Buffers[out].Offset {
		return false
	}
	s, over, read := v.steps[at], v.overlay(at), false
	if v.last[in] != at && !s.sends() {
		return false
	}
	for _, x := range over.in.with(in) {
		if x == None || v.p.Buffers[x].Root != in {
			continue
		}
		read = true
		if !slices.ContainsFunc(over.out.with(out), func(y BufferID) bool { return v.p.Buffers[y].Root == out && over.may(x, y) }) {
			return false
		}
	}
	return read // otherwise two results of one step share memory
}
