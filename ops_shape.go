package ampc

import "ampc/ir"

// PadMode says what padding is filled with.
type PadMode uint8

const (
	PadConstant PadMode = iota // PadOptions.Value
	PadEdge                    // the element at the edge; PyTorch's replicate
	PadReflect                 // the image in a mirror at the edge's element
)

// PadOptions are the options of Pad.
type PadOptions struct {
	Value float64 // of PadConstant
	Mode  PadMode
}

// Pad adds elements before (lo) and behind (hi) each dimension; negative numbers
// take elements away, in the mode PadConstant.
//
//   - Shapes: x[...] to x's, each dimension larger by its lo and hi; both lists have one number for each.
//   - DTypes: any; the result has x's.
//   - Errors: lists of another length, or a mirror larger than the dimension.
//   - PyTorch: F.pad, whose list starts at the last dimension and has lo and hi side by side.
func (o ops) Pad(x Tensor, lo, hi []int, opts ...PadOptions) Tensor {
	c := option(o, "pad", opts)
	switch c.Mode {
	case PadEdge:
		return o.tensor(o.b.PadMode(x.v, wide(lo), wide(hi), "edge"))
	case PadReflect:
		return o.tensor(o.b.PadMode(x.v, wide(lo), wide(hi), "reflect"))
	}
	return o.tensor(o.b.Pad(x.v, wide(lo), wide(hi), c.Value))
}

// Coords say which element of the operand an element of a resized image is read
// at: i of n among m.
type Coords uint8

const (
	HalfPixel    Coords = iota // (i+½)·m/n − ½
	Asymmetric                 // i·m/n; the nearest element lies below
	AlignCorners               // i·(m−1)/(n−1)
)

// String returns the name that dumps use.
func (c Coords) String() string {
	return [...]string{"half_pixel", "asymmetric", "align_corners"}[min(c, AlignCorners)]
}

// ResizeOptions are the options of Resize.
type ResizeOptions struct {
	Linear bool // between the elements around; false: the nearest element
	Coords Coords
	TiesUp bool // of two elements equally near the one behind, as PyTorch's nearest-exact; false: the one before
	Layout Layout
}

// Resize samples the spatial dimensions at other sizes.
//
//   - Shapes: x[N,C,...] to [N,C,sizes...].
//   - DTypes: float; the result has x's.
//   - Errors: as many sizes as there are spatial dimensions are wanted, each 1 or more; TiesUp is of the nearest element alone.
//   - PyTorch: F.interpolate, nn.Upsample; its nearest has Coords Asymmetric, its nearest-exact TiesUp, its bilinear is Linear, its align_corners is AlignCorners. No bicubic, no area.
func (o ops) Resize(x Tensor, sizes []int, opts ...ResizeOptions) Tensor {
	c := option(o, "resize", opts)
	a := ir.A("mode", "nearest", "coords", c.Coords.String(), "sizes", sizes, "layout", c.Layout.String())
	if c.Linear {
		a = a.With("mode", "linear")
	}
	if c.TiesUp {
		a = a.With("ties", "up")
	}
	return o.tensor(o.b.Emit(ir.OpResize, []*ir.Value{x.v}, a)[0])
}

// SliceOptions are the options of Slice.
type SliceOptions struct {
	Steps []int // above 0, one for each axis; nil: ones
}

// Slice takes the elements from starts to before ends along axes. Negative
// numbers count from the end; an end beyond the dimension is the dimension.
//
//   - Shapes: x[...] to x's, shorter along axes; the lists have one number for each axis.
//   - DTypes: any; the result has x's.
//   - Errors: lists of different lengths, an axis that x does not have, or a step below 1.
//   - PyTorch: x[a:b:c], torch.narrow.
func (o ops) Slice(x Tensor, axes, starts, ends []int, opts ...SliceOptions) Tensor {
	if steps := option(o, "slice", opts).Steps; steps != nil {
		return o.tensor(o.b.SliceStep(x.v, wide(axes), wide(starts), wide(ends), wide(steps)))
	}
	return o.tensor(o.b.Slice(x.v, wide(axes), wide(starts), wide(ends)))
}

// Flatten joins all dimensions after the first.
//
//   - Shapes: x[N,...] to [N,n].
//   - DTypes: any; the result has x's.
//   - Errors: one of the joined dimensions has a name.
//   - PyTorch: nn.Flatten, torch.flatten(start_dim=1).
func (o ops) Flatten(x Tensor) Tensor {
	if !o.given("flatten", "", x) {
		return Tensor{}
	}
	n := 1
	for i := 1; i < x.Rank(); i++ {
		d := o.size("flatten", x.Name(), x, i)
		if d < 0 {
			return Tensor{}
		}
		n *= d
	}
	return o.called("flat").Reshape(x, 0, n)
}
