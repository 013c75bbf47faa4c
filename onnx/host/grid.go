package host

import (
	"fmt"
	"math"

	"ampc/ir"
	"ampc/ir/eval"
)

// Operators without a kernel, by their definitions in Operators.md of
// github.com/onnx/onnx: sums are in f64, results are rounded once.

// maxResult is how many elements a result of the host's own may have.
const maxResult = 1 << 28

// result is a tensor to fill.
func newResult(d ir.DType, dims ...int64) (*eval.Tensor, error) {
	n := int64(1)
	for _, x := range dims {
		if x < 0 || x > 0 && n > maxResult/x {
			return nil, fmt.Errorf("the result would have shape %v: a size is negative, or there are more than %d elements", dims, maxResult)
		}
		n *= x
	}
	return eval.New(ir.Type{DType: d, Shape: shapeOf(dims...)}), nil
}

// rounded is a filled tensor in its dtype.
func rounded(t *eval.Tensor) []*Value {
	for i, x := range t.F {
		t.F[i] = eval.Round(x, t.Type.DType)
	}
	return []*Value{decoded(t)}
}

// floats is operand i, which must have elements of floating point and a rank.
func (c *call) floats(i, rank int) (*eval.Tensor, []int64, error) {
	t, err := c.tensor(i)
	if err != nil {
		return nil, nil, err
	}
	d := ir.Sizes(t.Type.Shape)
	if t.F == nil || rank >= 0 && len(d) != rank {
		return nil, nil, fmt.Errorf("operand %d is %s, want floats of rank %d", i, t.Type, rank)
	}
	return t, d, nil
}

func (c *call) str(name, absent string) string {
	if a := c.n.Attr(name); a != nil {
		return a.S
	}
	return absent
}

func (c *call) float(name string, absent float64) float64 {
	if a := c.n.Attr(name); a != nil {
		return float64(a.F)
	}
	return absent
}

// repeated is an attribute of n integers, all absent where it is not set.
func (c *call) repeated(name string, n int, absent int64) ([]int64, error) {
	list := c.ints(name)
	if list == nil {
		list = make([]int64, n)
		for i := range list {
			list[i] = absent
		}
	}
	if len(list) != n {
		return nil, fmt.Errorf("attribute %s has %d numbers, want %d", name, len(list), n)
	}
	return list, nil
}

// sampler reads an image of any rank between its pixels.
type sampler struct {
	size    []int64
	mode    string
	padding string
	align   bool
}

// gridSample samples images at the points of a grid.
func gridSample(c *call) ([]*Value, error) {
	x, xd, err := c.floats(0, -1)
	if err != nil {
		return nil, err
	}
	grid, gd, err := c.floats(1, len(xd))
	if err != nil {
		return nil, err
	}
	r := len(xd) - 2
	if r < 1 || gd[0] != xd[0] || gd[len(gd)-1] != int64(r) {
		return nil, fmt.Errorf("the grid %s does not fit the images %s", grid.Type, x.Type)
	}
	s := sampler{size: xd[2:], mode: c.str("mode", "linear"), padding: c.str("padding_mode", "zeros"), align: c.int("align_corners", 0) != 0}
	out := append([]int64{xd[0], xd[1]}, gd[1:len(gd)-1]...)
	y, err := newResult(x.Type.DType, out...)
	if err != nil {
		return nil, err
	}
	points, pixels := volume(gd[1:len(gd)-1]), volume(s.size)
	at := make([]float64, r)
	for n := range xd[0] {
		for p := range points {
			for a := range r { // the last axis comes first in the grid
				at[a] = s.place(grid.F[(n*points+p)*int64(r)+int64(r-1-a)], s.size[a])
			}
			for ch := range xd[1] {
				image := x.F[(n*xd[1]+ch)*pixels : (n*xd[1]+ch+1)*pixels]
				y.F[(n*xd[1]+ch)*points+p] = s.at(image, at, 0, 0)
			}
		}
	}
	return rounded(y), nil
}

func volume(d []int64) int64 {
	n := int64(1)
	for _, x := range d {
		n *= x
	}
	return n
}

// place is where a coordinate from −1 to 1 lies on an axis.
func (s *sampler) place(x float64, size int64) float64 {
	if s.align {
		x = (x + 1) / 2 * float64(size-1)
	} else {
		x = ((x+1)*float64(size) - 1) / 2
	}
	if s.mode == "nearest" {
		x = math.RoundToEven(x)
	}
	least, most := s.ends(size)
	switch {
	case x >= least && x <= most:
	case s.padding == "border":
		x = min(max(x, 0), float64(size-1))
	case s.padding == "reflection":
		x = reflected(x, least, most)
	}
	return x
}

// ends are where an axis is reflected.
func (s *sampler) ends(size int64) (least, most float64) {
	if s.align {
		return 0, float64(size - 1)
	}
	return -0.5, float64(size) - 0.5
}

func reflected(x, least, most float64) float64 {
	span := most - least
	if span <= 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return least
	}
	low := x < least
	d := x - most
	if low {
		d = least - x
	}
	turns := math.Floor(d / span)
	rest := d - turns*span
	if (math.Mod(turns, 2) == 0) == low {
		return least + rest
	}
	return most - rest
}

// at reads the image at a point, axis after axis; base is the pixel of the axes before.
func (s *sampler) at(image []float64, at []float64, axis int, base int64) float64 {
	if axis == len(s.size) {
		return image[base]
	}
	x, size := at[axis], s.size[axis]
	if math.IsNaN(x) || math.Abs(x) > 1<<40 {
		return 0
	}
	var weights []float64
	low := math.Floor(x)
	switch t := x - low; s.mode {
	case "nearest":
		weights, low = []float64{1}, math.RoundToEven(x)
	case "cubic", "bicubic":
		weights, low = cubic(t), low-1
	default:
		weights = []float64{1 - t, t}
	}
	sum := 0.0
	for k, w := range weights {
		i, ok := s.pixel(int64(low)+int64(k), size)
		if ok {
			sum += w * s.at(image, at, axis+1, base*size+i)
		}
	}
	return sum
}

// pixel is the pixel that is read at i of an axis; ok is false outside, where zeros lie.
func (s *sampler) pixel(i, size int64) (int64, bool) {
	switch {
	case i >= 0 && i < size:
		return i, true
	case s.padding == "border":
		return min(max(i, 0), size-1), size > 0
	case s.padding == "reflection":
		least, most := s.ends(size)
		i = int64(reflected(float64(i), least, most))
		return min(max(i, 0), size-1), size > 0
	}
	return 0, false
}

// cubic are the weights of four pixels around a point that is t behind the second.
func cubic(t float64) []float64 {
	const a = -0.75
	far := func(x float64) float64 { return ((a*x-5*a)*x+8*a)*x - 4*a }
	near := func(x float64) float64 { return ((a+2)*x-(a+3))*x*x + 1 }
	return []float64{far(t + 1), near(t), near(1 - t), far(2 - t)}
}
