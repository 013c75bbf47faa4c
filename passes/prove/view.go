package prove

import "ampc/ir"

// view is how a value walks the elements of its class, which are one dense block: element i is at
// offset + i·strides. Strides of dimensions of size 1 are 0, so that equal walks have equal views.
type view struct {
	rank           int8 // -1: an unknown shape, walked in row-major order
	offset         int64
	sizes, strides [ir.MaxRank]int64
}

// views numbers views; 0 is the scalar.
type views struct {
	list  []view
	tab   *table
	dense map[ir.Shape]int32
}

// newViews makes room for the views of a graph of so many values.
func newViews(values int) *views {
	some := min(values, 48) // enough for a model with one kind of layers
	v := &views{list: make([]view, 0, some), tab: newTable(some), dense: make(map[ir.Shape]int32, some)}
	v.number(view{})
	return v
}

func (vs *views) number(v view) int32 {
	var buf [2 + 2*ir.MaxRank]int64
	key := append(buf[:0], int64(v.rank), v.offset)
	for i := range int(max(v.rank, 0)) {
		if v.sizes[i] == 1 {
			v.strides[i] = 0
		}
		key = append(key, v.sizes[i], v.strides[i])
	}
	id, fresh := vs.tab.intern(key)
	if fresh {
		vs.list = append(vs.list, v)
	}
	return id
}

// whole is the view of a dense value of shape s.
func (vs *views) whole(s ir.Shape) int32 {
	if id, ok := vs.dense[s]; ok {
		return id
	}
	v := view{rank: -1}
	if walkable(s) {
		v = dense(ir.Sizes(s))
	}
	id := vs.number(v)
	vs.dense[s] = id
	return id
}

// walkable reports whether strides can express a walk over shape s.
func walkable(s ir.Shape) bool { return s.Elements() > 0 }

func dense(sizes []int64) view {
	v := view{rank: int8(len(sizes))}
	copy(v.sizes[:], sizes)
	step := int64(1)
	for i := len(sizes) - 1; i >= 0; i-- {
		v.strides[i] = step
		step *= sizes[i]
	}
	return v
}

// place is the view as an ir.StridedView, which knows what moving rows do to it.
func (v *view) place() ir.StridedView {
	return ir.StridedView{Offset: v.offset, Shape: v.sizes[:v.rank:v.rank], Strides: v.strides[:v.rank:v.rank]}
}

func viewOf(p ir.StridedView) view {
	v := view{rank: int8(len(p.Shape)), offset: p.Offset}
	copy(v.sizes[:], p.Shape)
	copy(v.strides[:], p.Strides)
	return v
}

// repeated is v broadcast to the larger shape s.
func (v *view) repeated(s ir.Shape) view {
	w := view{rank: int8(s.Rank()), offset: v.offset}
	lead := int(w.rank - v.rank)
	for i, d := range ir.Sizes(s) {
		w.sizes[i] = d
		if i >= lead && v.sizes[i-lead] == d {
			w.strides[i] = v.strides[i-lead]
		}
	}
	return w
}

// permuted is v with its dimensions in the order of perm.
func (v *view) permuted(perm []int) view {
	w := view{rank: v.rank, offset: v.offset}
	for i, p := range perm {
		w.sizes[i], w.strides[i] = v.sizes[p], v.strides[p]
	}
	return w
}

// channelsFirst and channelsLast are the permutations between the two layouts
// of images of a rank.
func channelsFirst(rank int) []int {
	p := []int{0, rank - 1}
	for i := 1; i < rank-1; i++ {
		p = append(p, i)
	}
	return p
}

func channelsLast(rank int) []int {
	p := []int{0}
	for i := 2; i < rank; i++ {
		p = append(p, i)
	}
	return append(p, 1)
}
