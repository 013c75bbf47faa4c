package ir

import (
	"fmt"
	"math"
)

var resizeAttrs = []AttrDef{
	{Name: "sizes", Kind: AttrInts, Required: true, Doc: "spatial sizes of the result"},
	{Name: "mode", Kind: AttrString, Default: "nearest", Doc: "nearest or linear"},
	{Name: "coords", Kind: AttrString, Default: "half_pixel", Doc: "where result element i of n is read among m: half_pixel (i+½)·m/n-½, asymmetric i·m/n (nearest rounds down), align_corners i·(m-1)/(n-1)"},
	{Name: "ties", Kind: AttrString, Default: "down", Doc: "nearest half way between two elements takes the one before (down) or behind (up, torch's nearest-exact); asymmetric has none"},
	{Name: "layout", Kind: AttrString, Default: "NCHW", Doc: "NCHW: channels stand second; NHWC: last"},
}

// SpatialAxes lists the axes of operand 0 that are neither batch nor channels
// under the node's layout. Valid after inference.
func (n *Node) SpatialAxes() []int {
	r := n.In[0].Type.Shape.Rank()
	first := 2
	if n.Str("layout") == "NHWC" {
		first = 1
	}
	axes := make([]int, 0, MaxRank)
	for i := range max(r-2, 0) {
		axes = append(axes, first+i)
	}
	return axes
}

func inferResize(n *Node) ([]Type, error) {
	x, to := n.In[0], n.Ints("sizes")
	if m := n.Str("mode"); m != "nearest" && m != "linear" {
		return nil, fmt.Errorf("mode is %q, want nearest or linear", m)
	}
	if c := n.Str("coords"); c != "half_pixel" && c != "asymmetric" && c != "align_corners" {
		return nil, fmt.Errorf("coords is %q, want half_pixel, asymmetric or align_corners", c)
	}
	if r := n.Str("ties"); r != "down" && r != "up" {
		return nil, fmt.Errorf("ties is %q, want down or up", r)
	}
	if l := n.Str("layout"); l != "NCHW" && l != "NHWC" {
		return nil, fmt.Errorf("layout is %q, want NCHW or NHWC", l)
	}
	t := Type{DType: n.keptDType()}
	if !x.Type.Shape.Known() {
		return []Type{t}, n.checkOut()
	}
	d := x.Type.Shape.Dims()
	if len(to) != len(d)-2 {
		return nil, fmt.Errorf("sizes %s do not fit the spatial axes of %s %s", literal(to), x, x.Type)
	}
	for i, a := range n.SpatialAxes() {
		if to[i] < 1 || d[a] == 0 {
			return nil, fmt.Errorf("cannot resize axis %d of %s %s to %d", a, x, x.Type, to[i])
		}
		d[a] = Dim(to[i])
	}
	t.Shape = MakeShape(d...)
	return []Type{t}, n.checkOut()
}

// Tap is the two elements from which a resized element is computed: lo with weight 1-W and hi with
// weight W.
type Tap struct {
	Lo, Hi int
	W      float64
}

// ResizeTaps returns the taps of an axis that a resize or its gradient samples
// from in to out elements.
func (n *Node) ResizeTaps(in, out int) []Tap {
	coords := n.Str("coords")
	taps := make([]Tap, out)
	for i := range taps {
		x := float64(i) * float64(in) / float64(out)
		switch coords {
		case "half_pixel":
			x = (float64(i)+0.5)*float64(in)/float64(out) - 0.5
		case "align_corners":
			x = float64(i) * float64(in-1) / float64(max(out-1, 1))
		}
		x = min(max(x, 0), float64(in-1))
		if n.Str("mode") == "nearest" {
			k := int(math.Ceil(x - 0.5))
			switch {
			case coords == "asymmetric":
				k = int(x)
			case n.Str("ties") == "up":
				k = int(x + 0.5)
			}
			taps[i] = Tap{Lo: k, Hi: k}
			continue
		}
		lo := int(x)
		taps[i] = Tap{lo, min(lo+1, in-1), x - float64(lo)}
	}
	return taps
}

// boundResize: a product of weights per spatial axis, and for the transpose as
// many summands as results share an operand.
func boundResize(n *Node) Bound {
	k := int64(1)
	for i, a := range n.SpatialAxes() {
		k *= 2 * (2 + size(n.In[0].Type.Shape.Dim(a))/max(n.Ints("sizes")[i], 1))
	}
	return Bound{ULP: 4, K: k}
}

// resampled applies resize or its transpose, to the spatial sizes of like.
func (b *Builder) resampled(op Op, n *Node, d, like *Value) *Value {
	if !like.Type.Shape.Known() {
		b.Fail("%s: the gradient needs the rank of %s", n.Def().Name, like)
		return nil
	}
	var to []int64
	for _, a := range n.SpatialAxes() {
		k := like.Type.Shape.Dim(a)
		if k < 0 {
			b.needsSizes(like.Type, "%s: the gradient needs the spatial sizes of %s, which has type %s", n.Def().Name, like, b.g.TypeString(like.Type))
			return nil
		}
		to = append(to, int64(k))
	}
	return b.one(op, []*Value{d}, n.Attrs.Without("out").With("sizes", to))
}

// Resize samples the spatial axes at other sizes; mode is "nearest" or
// "linear", coords "half_pixel", "asymmetric" or "align_corners".
func (b *Builder) Resize(x *Value, mode, coords string, sizes ...int64) *Value {
	return b.one(OpResize, []*Value{x}, A("mode", mode, "coords", coords, "sizes", sizes))
}

// ResizeNearest samples the nearest elements; coords as in Resize, ties "down"
// or "up" says which of two equally near ones. torch's nearest is asymmetric,
// its nearest-exact half_pixel with ties up.
func (b *Builder) ResizeNearest(x *Value, coords, ties string, sizes ...int64) *Value {
	return b.one(OpResize, []*Value{x}, A("mode", "nearest", "coords", coords, "ties", ties, "sizes", sizes))
}
