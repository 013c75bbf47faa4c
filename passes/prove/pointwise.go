package prove

import (
	"slices"

	"ampc/ir"
)

// axis is a dimension that a node iterates over: its size, what the node does along it, and the
// stride of each operand.
type axis struct {
	size  int64
	role  role
	place int // index among the dimensions of the node
	steps []int64
}

// role is what a node does along an axis.
type role int64

const (
	mapped  role = iota // element by element
	reduced             // to one element
	joined              // operands are concatenated along it
)

// before orders the axes of a node independently of their layout: by the strides of its operands,
// the largest first.
func (a *axis) before(b *axis) int {
	for i, x := range a.steps {
		if y := b.steps[i]; x != y {
			if x > y {
				return -1
			}
			return 1
		}
	}
	return a.place - b.place
}

// flat reports whether all operands have stride 0 along the axis.
func (a *axis) flat() bool {
	for _, x := range a.steps {
		if x != 0 {
			return false
		}
	}
	return true
}

// walked lists the axes of n over sizes, with the strides of the operands' views. ok is false if
// strides cannot express them.
func (m *matcher) walked(refs []ref, sizes []int64) ([]axis, bool) {
	n := len(sizes) * len(refs)
	if cap(m.steps) < n {
		m.steps = make([]int64, 4*n)
	}
	steps, axes := m.steps[:n], m.axes[:len(sizes)]
	clear(steps)
	for i, size := range sizes {
		axes[i] = axis{size: size, place: i, steps: steps[i*len(refs) : (i+1)*len(refs)]}
	}
	for j, r := range refs {
		if r.class == 0 {
			continue
		}
		v := &m.views.list[r.view]
		if v.rank < 0 || int(v.rank) > len(sizes) {
			return nil, false
		}
		lead := len(sizes) - int(v.rank)
		for i := range int(v.rank) {
			axes[lead+i].steps[j] = v.strides[i]
		}
	}
	return axes, true
}

// pointwise makes the key of an elementwise node from its axes in an order of their own, so that
// the layout of a region of such nodes does not matter.
func (m *matcher) pointwise(x *numbering, s ir.Section, n *ir.Node) bool {
	d := n.Def()
	if d.Elem == nil || d.Is(ir.Random) || d.Is(ir.Writer) || len(n.Captured) > 0 || len(n.Out) == 0 {
		return false
	}
	shape := n.Out[0].Type.Shape
	if !walkable(shape) || slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return v.Type.Shape != shape }) {
		return false
	}
	refs := m.operands(x, s, n)
	axes, ok := m.walked(refs, ir.Sizes(shape))
	if !ok {
		return false
	}
	m.head(n, n.Attrs, nil)
	view := m.along(refs, axes, shape.Rank())
	m.give(x, n, func(*ir.Value) int32 { return view })
	return true
}

func (m *matcher) operands(x *numbering, s ir.Section, n *ir.Node) []ref {
	m.refs = m.refs[:0]
	for _, v := range n.In {
		m.refs = append(m.refs, m.read(x, s, v))
	}
	return m.refs
}

// reduction does the same for a row that reduces a list of axes.
func (m *matcher) reduction(x *numbering, s ir.Section, n *ir.Node) bool {
	if len(n.In) != 1 || len(n.Out) != 1 || !reduces(n) || !walkable(n.In[0].Type.Shape) || !walkable(n.Out[0].Type.Shape) {
		return false
	}
	refs := m.operands(x, s, n)
	axes, ok := m.walked(refs, ir.Sizes(n.In[0].Type.Shape))
	if !ok {
		return false
	}
	for _, a := range n.Axes() {
		axes[a].role = reduced
	}
	m.head(n, n.Attrs, func(name string) bool { return name == "axes" || name == "keep" })
	view := m.along(refs, axes, len(axes))
	if !n.Flag("keep") {
		view = m.without(view, n.Axes())
	}
	m.give(x, n, func(*ir.Value) int32 { return view })
	return true
}

// reduces reports whether n's row reduces a list of axes.
func reduces(n *ir.Node) bool {
	found := 0
	for i := range n.Def().Attrs {
		if name := n.Def().Attrs[i].Name; name == "axes" || name == "keep" {
			found++
		}
	}
	return found == 2
}

// concat does the same for a row that concatenates its operands along one axis.
func (m *matcher) concat(x *numbering, s ir.Section, n *ir.Node) bool {
	if !n.Joins() || !walkable(n.Out[0].Type.Shape) {
		return false
	}
	refs := m.operands(x, s, n)
	axes, ok := m.walked(refs, ir.Sizes(n.Out[0].Type.Shape))
	if !ok {
		return false
	}
	along := n.Axis()
	axes[along].role = joined
	m.head(n, n.Attrs, func(name string) bool { return name == "axis" })
	for _, v := range n.In {
		m.buf = append(m.buf, int64(v.Type.Shape.Dim(along)))
	}
	view := m.along(refs, axes, len(axes))
	m.give(x, n, func(*ir.Value) int32 { return view })
	return true
}

// without drops axes of size 1 from a view.
func (m *matcher) without(id int32, gone []int) int32 {
	v := m.views.list[id]
	w := view{offset: v.offset}
	for i := range int(v.rank) {
		if !slices.Contains(gone, i) {
			w.sizes[w.rank], w.strides[w.rank] = v.sizes[i], v.strides[i]
			w.rank++
		}
	}
	return m.views.number(w)
}

// along completes a key with the operands and the axes. Neighbouring axes that can be walked as one
// are joined. It returns the view of a result, with size 1 along a reduced axis.
func (m *matcher) along(refs []ref, axes []axis, rank int) int32 {
	for _, r := range refs {
		m.buf = append(m.buf, int64(r.class), m.views.list[r.view].offset)
	}
	slices.SortFunc(axes, func(a, b axis) int { return a.before(&b) })
	out := view{rank: int8(rank)}
	step := int64(1)
	for i := len(axes) - 1; i >= 0; i-- {
		a := &axes[i]
		switch out.sizes[a.place] = a.size; {
		case a.role == reduced:
			out.sizes[a.place] = 1
		case a.role == joined || a.size > 1 && !a.flat():
			out.strides[a.place] = step
			step *= a.size
		}
	}
	var open *axis
	for i := range axes {
		a := &axes[i]
		switch {
		case a.role != joined && (a.size == 1 || a.role == mapped && a.flat()):
		case open != nil && open.joins(a):
			open.size *= a.size
			copy(open.steps, a.steps)
		default:
			m.axis(open)
			open = a
		}
	}
	m.axis(open)
	return m.views.number(out)
}

// joins reports whether axis b inside axis a can be walked as one axis.
func (a *axis) joins(b *axis) bool {
	if a.role != b.role || a.role == joined {
		return false
	}
	for i, x := range a.steps {
		if x != b.steps[i]*b.size {
			return false
		}
	}
	return true
}

func (m *matcher) axis(a *axis) {
	if a == nil {
		return
	}
	m.buf = append(append(m.buf, a.size, int64(a.role)), a.steps...)
}
