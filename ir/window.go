package ir

import (
	"fmt"
	"slices"
)

// Window is the geometry of a convolution or a pool: the numbers that a kernel needs, from a node's
// types and attributes. Lists have one number for each spatial dimension. For pools O is C and
// Groups is C.
type Window struct {
	N, C, O, Groups                               int64
	In, Out, Kernel, Stride, Dilation, Begin, End []int64
	Last                                          bool // channels come last: NHWC
}

// Tiled reports whether channels in and out, in one group, are multiples of step.
func (w *Window) Tiled(step int64) bool {
	return step > 0 && w.Groups == 1 && w.C%step == 0 && w.O%step == 0
}

// Pointwise reports whether every position of an image stands alone, in one group with channels last: the
// convolution is a product of matrices over what it reads, as it lies.
func (w *Window) Pointwise() bool {
	for i, k := range w.Kernel {
		if k != 1 || w.Stride[i] != 1 || w.Begin[i] != 0 || w.End[i] != 0 {
			return false
		}
	}
	return w.Last && w.Groups == 1
}

// windowAttrs are the attributes of every row with a sliding window.
func windowAttrs(more ...AttrDef) []AttrDef {
	return append([]AttrDef{
		{Name: "strides", Kind: AttrInts, Doc: "one per spatial dimension; absent: ones"},
		{Name: "pads", Kind: AttrInts, Doc: "added at the begin of each spatial dimension, then at the end of each; absent: zeros"},
		{Name: "dilations", Kind: AttrInts, Doc: "one per spatial dimension; absent: ones"},
		layoutAttr,
	}, more...)
}

var layoutAttr = AttrDef{Name: "layout", Kind: AttrString, Default: "NCHW", Doc: "NCHW: channels stand second; NHWC: last (also for 1 and 3 spatial dimensions)"}

var groupsAttr = AttrDef{Name: "groups", Kind: AttrInt, Default: int64(1), Doc: "channels are split into this many independent groups"}

// spatial is the attributes of a window row, with defaults, for nd dimensions.
type spatial struct {
	stride, dilation, begin, end []int64
	last                         bool
}

func (n *Node) spatial(nd int) (spatial, error) {
	s := spatial{last: n.Str("layout") == "NHWC"}
	if l := n.Str("layout"); l != "NCHW" && l != "NHWC" {
		return s, fmt.Errorf("layout %q, want NCHW or NHWC", l)
	}
	pads, err := n.windowList("pads", 2*nd, 0)
	if err != nil {
		return s, err
	}
	s.begin, s.end = pads[:nd], pads[nd:]
	if s.stride, err = n.windowList("strides", nd, 1); err != nil {
		return s, err
	}
	s.dilation, err = n.windowList("dilations", nd, 1)
	return s, err
}

// maxWindow is the limit of every number of a window, so that no geometry overflows.
const maxWindow = 1 << 20

// windowList is a list of k numbers of at least least, which is also the default.
func (n *Node) windowList(name string, k int, least int64) ([]int64, error) {
	v := n.Ints(name)
	if v == nil {
		return slices.Repeat([]int64{least}, k), nil
	}
	if len(v) != k {
		return nil, fmt.Errorf("%s has %d numbers, want %d", name, len(v), k)
	}
	for _, x := range v {
		if x < least || x > maxWindow {
			return nil, fmt.Errorf("%s holds %d, want %d to %d", name, x, least, maxWindow)
		}
	}
	return v, nil
}

// sizeList is a list of k positive sizes.
func (n *Node) sizeList(name string, k int) ([]int64, error) {
	v := n.Ints(name)
	if len(v) != k {
		return nil, fmt.Errorf("%s has %d numbers, want %d", name, len(v), k)
	}
	for _, x := range v {
		if x < 1 || x > maxElements {
			return nil, fmt.Errorf("%s holds %d, want one or more", name, x)
		}
	}
	return v, nil
}

// output is the number of window positions along spatial dimension i.
func (s *spatial) output(i int, in Dim, kernel int64, ceil bool) (Dim, error) {
	if kernel < 1 || kernel > maxWindow {
		return 0, fmt.Errorf("the kernel has %d positions in spatial dimension %d, want 1 to %d", kernel, i, maxWindow)
	}
	reach := s.dilation[i]*(kernel-1) + 1
	if in < 0 {
		if s.stride[i] == 1 && s.begin[i]+s.end[i] == reach-1 {
			return in, nil
		}
		return UnknownDim, nil
	}
	room := int64(in) + s.begin[i] + s.end[i] - reach
	if room < 0 {
		return 0, fmt.Errorf("the window spans %d, spatial dimension %d has %d with its padding", reach, i, int64(in)+s.begin[i]+s.end[i])
	}
	out := room/s.stride[i] + 1
	if ceil && room%s.stride[i] != 0 && out*s.stride[i] < int64(in)+s.begin[i] { // a window may not start beyond the data
		out++
	}
	return Dim(out), nil
}

// parts splits [N,C,*] or [N,*,C] into batch, channels and spatial dimensions.
func parts(s Shape, last bool) (batch, channels Dim, space []Dim) {
	d := s.Dims()
	if last {
		return d[0], d[len(d)-1], d[1 : len(d)-1]
	}
	return d[0], d[1], d[2:]
}

// image is the shape [N,C,*] or [N,*,C].
func image(batch, channels Dim, space []Dim, last bool) Shape {
	if last {
		return MakeShape(append(append([]Dim{batch}, space...), channels)...)
	}
	return MakeShape(append([]Dim{batch, channels}, space...)...)
}

// channelAxis is the axis of the channels in a tensor of rank r.
func (n *Node) channelAxis(r int) int {
	if n.Str("layout") == "NHWC" {
		return r - 1
	}
	return 1
}

func sizes(d []Dim) []int64 {
	s := make([]int64, len(d))
	for i, x := range d {
		s[i] = int64(x)
	}
	return s
}

func toDims(v []int64) []Dim {
	d := make([]Dim, len(v))
	for i, x := range v {
		d[i] = Dim(x)
	}
	return d
}

// Window returns the geometry of a conv, conv_transpose, conv_grad or pool node with static types.
// For gradient rows and conv_transpose it is that of the convolution whose gradient they are: In is
// the larger side, Out the strided one.
func (n *Node) Window() Window {
	r := n.Def().Window
	data, out, w := n.arg(r.Image), n.arg(r.Places), n.arg(r.Filter)
	s, _ := n.spatial(data.Type.Shape.Rank() - 2)
	batch, channels, in := parts(data.Type.Shape, s.last)
	_, o, to := parts(out.Type.Shape, s.last)
	g := Window{N: int64(batch), C: int64(channels), O: int64(o), Groups: int64(channels), In: sizes(in), Out: sizes(to),
		Stride: s.stride, Dilation: s.dilation, Begin: s.begin, End: s.end, Last: s.last, Kernel: n.Ints("kernel")}
	if w != nil {
		_, _, k := parts(w.Type.Shape, s.last)
		g.Kernel, g.Groups = sizes(k), n.Int("groups")
	}
	return g
}
