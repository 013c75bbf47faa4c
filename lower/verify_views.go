package lower

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// filled are the parts of a root that steps have written.
type filled struct {
	parts map[string]int64 // bytes, by the key of a view
	sum   int64
}

func (f *filled) add(key string, bytes int64) {
	f.sum += bytes - f.parts[key]
	f.parts[key] = bytes
}

// fill records what a step writes of a root: all of it, or the part that a strided view shows.
func (v *checker) fill(id BufferID, first bool) {
	b := &v.p.Buffers[id]
	f := v.filled[b.Root]
	switch {
	case b.dense():
		delete(v.filled, b.Root)
		return
	case first:
		f = &filled{parts: map[string]int64{}}
		v.filled[b.Root] = f
	case f == nil:
		return
	}
	f.add(b.view().Key(), b.Size)
}

// complete checks that the part of a root that a step reads was written: this part itself, or all
// parts.
func (v *checker) complete(id BufferID) error {
	b := &v.p.Buffers[id]
	f := v.filled[b.Root]
	if f == nil || f.sum >= v.p.Buffers[b.Root].Size || f.parts[b.view().Key()] > 0 {
		return nil
	}
	return fmt.Errorf("%%%s is read, of which %d bytes of %d have been written", b.Name, f.sum, v.p.Buffers[b.Root].Size)
}

// verifyViews checks that steps without strides have contiguous buffers, and that parts which one step
// writes have no element in common.
func (s *Step) verifyViews(p *Program) error {
	for k, list := range [2][]BufferID{s.In, s.Out} {
		for i, id := range list {
			if id == None || p.Buffers[id].dense() {
				continue
			}
			if s.Kind != KindAttention && !p.Buffers[id].view().Contiguous() {
				return fmt.Errorf("%s has strides, which only attention walks", p.BufferName(id))
			}
			if k == 1 && slices.ContainsFunc(list[:i], func(o BufferID) bool { return p.sameRoot(o, id) && p.mayShare(o, id) }) {
				return fmt.Errorf("writes %s over another result", p.BufferName(id))
			}
		}
	}
	return nil
}

// verifyStrides checks that no two elements of a view have the same address and that rows are
// contiguous.
func (b *Buffer) verifyStrides() error {
	if b.dense() {
		return nil
	}
	p := b.view()
	if len(b.Strides) != len(p.Shape) || !p.Rows() {
		return fmt.Errorf("buffer %%%s: strides %d of %s", b.Name, b.Strides, b.Type)
	}
	if b.At%b.Type.DType.Size() != 0 {
		return fmt.Errorf("buffer %%%s: begins %d bytes into its root", b.Name, b.At)
	}
	at := order(len(p.Shape))
	slices.SortFunc(at, func(x, y int32) int { return int(b.Strides[x] - b.Strides[y]) })
	reach := int64(1) // elements that the smaller strides span
	for _, d := range at {
		if p.Shape[d] < 2 {
			continue
		}
		if b.Strides[d] < reach {
			return fmt.Errorf("buffer %%%s: strides %d of %s lead to one element twice", b.Name, b.Strides, b.Type)
		}
		reach += b.Strides[d] * (p.Shape[d] - 1)
	}
	return nil
}

// mayShare reports whether a and b, views of one root, may have an element in common.
func (p *Program) mayShare(a, b BufferID) bool {
	x, y := &p.Buffers[a], &p.Buffers[b]
	return x.Type.DType.Size() != y.Type.DType.Size() || x.view().Meets(y.view())
}

// verifyHeads checks that the strided views of attention have the dimensions of its description.
func (s *Step) verifyHeads(p *Program) error {
	a := s.Attn
	q, k := [4]int64{a.Batch, a.Heads, a.Queries, a.Width}, [4]int64{a.Batch, a.KVHeads, a.Keys, a.Width}
	v, y := [4]int64{a.Batch, a.KVHeads, a.Keys, a.VWidth}, [4]int64{a.Batch, a.Heads, a.Queries, a.VWidth}
	in, out := [][4]int64{q, k, v}, [][4]int64{y}
	if a.Backward {
		in, out = append(in, y, y), [][4]int64{q, k, v}
	}
	for i, list := range [2][]BufferID{s.In, s.Out} {
		want := [2][][4]int64{in, out}[i]
		for k, id := range list {
			if id == None || p.Buffers[id].dense() {
				continue
			}
			if k >= len(want) || !slices.Equal(ir.Sizes(p.Buffers[id].Type.Shape), want[k][:]) {
				return fmt.Errorf("walks %s, %s, as %d", p.BufferName(id), p.Buffers[id].Type, want)
			}
		}
	}
	return nil
}
