package onnx

import (
	"math"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

var resizeRows = []row{
	{op: "Resize", since: 10, ours: "resize, gather, or a matmul for each axis", not: "sizes or scales that depend on data", imp: resize},
	{op: "Upsample", since: 7, ours: "resize, gather, or a matmul for each axis", not: "scales that depend on data", imp: resize},
}

// sampling is how one axis is resized.
type sampling struct {
	in, out    int64
	scale      float64
	start, end float64 // of the region of tf_crop_and_resize
	coords     string
	mode       string // nearest, linear or cubic
	nearest    string
	cubic      float64
	exclude    bool
	antialias  bool
}

// resize samples axis by axis. Nearest is a gather, anything else a product
// with a matrix of coefficients, where the row resize does not say it.
func resize(c *call) []*ir.Value {
	d := c.dims(0)
	axes, extrapolation := c.samplings(d)
	if c.err != nil {
		return nil
	}
	x := c.x(0)
	if c.plainResize(d, axes) {
		coords := axes[2].coords
		return one(c.b.Resize(x, "linear", coords, outs(axes)[2:]...))
	}
	at := slices.Clone(d)
	for a, s := range axes {
		if s.in == s.out && s.scale == 1 && s.coords != "tf_crop_and_resize" {
			continue
		}
		if s.mode == "nearest" {
			x = c.pick(x, s, at, int64(a), extrapolation)
		} else {
			x = c.weigh(x, s, at, a, extrapolation)
		}
		at[a] = s.out
	}
	return one(x)
}

func outs(axes []sampling) []int64 {
	out := make([]int64, len(axes))
	for i, s := range axes {
		out[i] = s.out
	}
	return out
}

// plainResize reports whether the row resize says it: linear over spatial axes
// by a scale that is exactly the quotient of the sizes.
func (c *call) plainResize(d []int64, axes []sampling) bool {
	if len(d) < 3 || len(d) > 5 || !c.typ(0).DType.Float() {
		return false
	}
	for i, s := range axes {
		if i < 2 && (s.in != s.out || s.scale != 1) {
			return false
		}
		if i >= 2 && (s.mode != "linear" || s.antialias || s.coords != "half_pixel" && s.coords != "align_corners" && s.coords != "asymmetric" || s.scale*float64(s.in) != float64(s.out) || s.in < 1 || s.out < 1) {
			return false
		}
	}
	return true
}

// samplings reads the node: one for each axis.
func (c *call) samplings(d []int64) (list []sampling, extrapolation float64) {
	proto := sampling{scale: 1, end: 1, coords: c.str("coordinate_transformation_mode", "half_pixel"), mode: c.str("mode", "nearest"),
		nearest: c.str("nearest_mode", "round_prefer_floor"), cubic: c.float("cubic_coeff_a", -0.75), exclude: c.flag("exclude_outside", false), antialias: c.flag("antialias", false)}
	var scales, wanted []float64
	switch {
	case c.n.Op == "Upsample" && c.opset < 9:
		for _, s := range c.lookupFloats("scales") {
			scales = append(scales, float64(s))
		}
	case c.opset < 11:
		scales = c.floats(1, "scales")
	case c.has(3):
		wanted = c.floats(3, "sizes")
	case c.has(2):
		scales = c.floats(2, "scales")
	}
	if c.opset < 11 {
		proto.coords = "asymmetric"
	}
	axes := c.axes(c.list("axes"), len(d))
	if !c.set("axes") {
		for i := range d {
			axes = append(axes, int64(i))
		}
	}
	var roi []float64
	if proto.coords == "tf_crop_and_resize" {
		roi = c.floats(1, "region")
	}
	if proto.mode == "bilinear" || proto.mode == "trilinear" {
		proto.mode = "linear"
	}
	if max(len(scales), len(wanted)) != len(axes) || roi != nil && len(roi) != 2*len(axes) {
		c.fail("there are %d scales, %d sizes and a region of %d numbers, which do not fit %d axes", len(scales), len(wanted), len(roi), len(axes))
		return nil, 0
	}
	list = slices.Repeat([]sampling{proto}, len(d))
	for i, n := range d {
		list[i].in, list[i].out = n, n
	}
	policy := c.aspect(d, axes, wanted)
	for i, a := range axes {
		s := &list[a]
		if wanted != nil {
			s.out, s.scale = int64(wanted[i]), wanted[i]/float64(s.in)
			if policy != 0 {
				s.scale, s.out = policy, int64(math.Floor(policy*float64(s.in)+0.5))
			}
		} else {
			s.scale = float64(float32(scales[i]))
			s.out = int64(math.Floor(s.scale * float64(s.in)))
		}
		if c.opset < 11 {
			s.nearest = NearestBefore11(s.scale)
		}
		if roi != nil {
			s.start, s.end = roi[i], roi[len(axes)+i]
		}
		if s.out < 0 || s.out > 1<<24 || !(s.scale > 0) {
			c.fail("axis %d cannot be resized from %d to %d by the factor %g", a, s.in, s.out, s.scale)
			return nil, 0
		}
	}
	return list, c.float("extrapolation_value", 0)
}

// NearestBefore11 is the nearest_mode by which Upsample, and Resize in opset 10, take an element: the
// one before a position where an axis grows by scale, the one after it where the axis shrinks. The
// specification does not say it; its case test_resize_downsample_nearest and onnxruntime do.
func NearestBefore11(scale float64) string {
	if scale < 1 {
		return "ceil"
	}
	return "floor"
}

func (c *call) lookupFloats(name string) []float32 {
	if a := c.lookup(name, AttrFloats); a != nil {
		return a.Floats
	}
	return nil
}

// aspect is the one scale of all axes that keeps their proportions, 0 for none.
func (c *call) aspect(d, axes []int64, wanted []float64) (scale float64) {
	policy := c.str("keep_aspect_ratio_policy", "stretch")
	if policy == "stretch" || wanted == nil {
		return 0
	}
	for i, a := range axes {
		s := wanted[i] / float64(d[a])
		if i == 0 || policy == "not_larger" && s < scale || policy == "not_smaller" && s > scale {
			scale = s
		}
	}
	return scale
}

// origin is where result element i is read. Formulas: Operators.md, Resize.
func (s *sampling) origin(i int64) float64 {
	x, in := float64(i), float64(s.in)
	out := s.scale * in
	switch s.coords {
	case "align_corners":
		if out == 1 {
			return 0
		}
		return x * (in - 1) / (out - 1)
	case "asymmetric":
		return x / s.scale
	case "tf_crop_and_resize":
		if out == 1 {
			return s.start*(in-1) + (s.end-s.start)*(in-1)/2
		}
		return s.start*(in-1) + x*(s.end-s.start)*(in-1)/(out-1)
	case "pytorch_half_pixel":
		if out == 1 {
			return -0.5
		}
	case "tf_half_pixel_for_nn":
		return (x + 0.5) / s.scale
	case "half_pixel_symmetric":
		return in/2*(1-float64(s.out)/out) + (x+0.5)/s.scale - 0.5
	}
	return (x+0.5)/s.scale - 0.5
}

// outside reports whether the region reaches beyond the data at x.
func (s *sampling) outside(x float64) bool {
	return s.coords == "tf_crop_and_resize" && (x < 0 || x > float64(s.in-1))
}

// left is the element before x, and how far x lies behind it: above 0, up to 1.
func left(x float64) (base, ratio float64) {
	base = math.Ceil(x) - 1
	return base, x - base
}

// index is the element that nearest takes at x.
func (s *sampling) index(x float64) int64 {
	base, ratio := left(x)
	up := ratio == 1
	switch s.nearest {
	case "round_prefer_floor":
		up = up || ratio > 0.5
	case "round_prefer_ceil":
		up = up || ratio >= 0.5
	case "ceil":
		up = true
	}
	if up {
		base++
	}
	return int64(min(max(base, 0), float64(s.in-1)))
}

// pick gathers the nearest elements.
func (c *call) pick(x *ir.Value, s sampling, d []int64, a int64, extrapolation float64) *ir.Value {
	ids, out := make([]int64, s.out), make([]int64, s.out)
	any := false
	for i := range ids {
		at := s.origin(int64(i))
		if s.outside(at) {
			out[i], any = 1, true
		}
		ids[i] = s.index(at)
	}
	y := c.b.Gather(x, c.intsConst(ids...), a)
	if !any {
		return y
	}
	shape := slices.Repeat([]int64{1}, len(d))
	shape[a] = s.out
	mask := c.reshape(c.cast(c.intsConst(out...), ir.Bool), shape...)
	return c.b.Where(mask, c.lit(y, extrapolation), y)
}

// taps are coefficients of the elements from first on, for a read at x.
func (s *sampling) taps(x float64) (first int64, coeffs []float64) {
	base, ratio := left(x)
	scale := 1.0
	if s.antialias {
		scale = min(s.scale, 1)
	}
	reach := 1.0
	if s.mode == "cubic" {
		reach = 2
	}
	from := math.Floor(-reach/scale) + 1
	for k := from; k < 2-from; k++ {
		coeffs = append(coeffs, s.kernel(math.Abs(k-ratio)*scale))
	}
	return int64(base + from), coeffs
}

// kernel is the coefficient at a distance: a triangle, or Keys' cubic (1981).
func (s *sampling) kernel(t float64) float64 {
	a := s.cubic
	switch {
	case s.mode == "linear":
		return max(1-t, 0)
	case t <= 1:
		return ((a+2)*t-(a+3))*t*t + 1
	case t < 2:
		return ((a*t-5*a)*t+8*a)*t - 4*a
	}
	return 0
}

// weigh multiplies an axis by the matrix of its coefficients.
func (c *call) weigh(x *ir.Value, s sampling, d []int64, a int, extrapolation float64) *ir.Value {
	if s.in < 1 || s.in*s.out > 1<<22 {
		c.refuse("axis %d from %d to %d elements is too large for mode %q", a, s.in, s.out, s.mode)
		return nil
	}
	m := eval.New(ir.Type{DType: ir.F32, Shape: ir.MakeShape(ir.Dim(s.out), ir.Dim(s.in))})
	beyond := eval.New(ir.Type{DType: ir.F32, Shape: ir.MakeShape(ir.Dim(s.out), 1)})
	any := false
	for i := range s.out {
		at := s.origin(i)
		if s.outside(at) {
			beyond.F[i], any = float64(float32(extrapolation)), true
			continue
		}
		s.fill(m.F[i*s.in:(i+1)*s.in], at)
	}
	dtype := c.typ(0).DType
	w := c.constant(m)
	shape := slices.Clone(d)
	shape[a] = s.out
	y := c.reshape(x, product(d[:a]), d[a], product(d[a+1:]))
	if dtype != ir.F32 {
		y = c.cast(y, ir.F32)
	}
	y = c.b.Matmul(w, y, false, false)
	if any {
		y = c.b.Add(y, c.constant(beyond))
	}
	return c.back(c.reshape(y, shape...))
}

// fill writes one row of the matrix: elements beyond the ends are those at the ends.
func (s *sampling) fill(row []float64, at float64) {
	first, coeffs := s.taps(at)
	sum := 0.0
	for k, v := range coeffs {
		if i := first + int64(k); !s.exclude || i >= 0 && i < s.in {
			sum += v
		}
	}
	for k, v := range coeffs {
		i := first + int64(k)
		if s.exclude && (i < 0 || i >= s.in) {
			continue
		}
		row[min(max(i, 0), s.in-1)] += v / sum
	}
	for i, v := range row {
		row[i] = float64(float32(v))
	}
}
