package host

import (
	"fmt"
	"math"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

// integersOf is operand i, a vector of integers.
func (c *call) integersOf(i int) ([]int64, error) {
	t, err := c.tensor(i)
	if err != nil {
		return nil, err
	}
	if t.I == nil || t.Type.Shape.Rank() > 1 {
		return nil, fmt.Errorf("operand %d is %s, want a vector of integers", i, t.Type)
	}
	return t.I, nil
}

// col2Im adds up blocks of columns where they lie in an image.
func col2Im(c *call) ([]*Value, error) {
	x, d, err := c.floats(0, 3)
	if err != nil {
		return nil, err
	}
	image, err := c.integersOf(1)
	if err != nil {
		return nil, err
	}
	block, err := c.integersOf(2)
	if err != nil {
		return nil, err
	}
	r := len(image)
	dilations, err1 := c.repeated("dilations", r, 1)
	strides, err2 := c.repeated("strides", r, 1)
	pads, err3 := c.repeated("pads", 2*r, 0)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return nil, err
		}
	}
	taps := volume(block)
	if len(block) != r || taps < 1 || d[1]%taps != 0 {
		return nil, fmt.Errorf("columns %s do not fit blocks %v of images %v", x.Type, block, image)
	}
	steps := make([]int64, r)
	for a := range r {
		if strides[a] < 1 {
			return nil, fmt.Errorf("strides are %v, want 1 or more", strides)
		}
		steps[a] = (image[a]+pads[a]+pads[r+a]-dilations[a]*(block[a]-1)-1)/strides[a] + 1
	}
	if volume(steps) != d[2] {
		return nil, fmt.Errorf("operand 0 has %d columns, want as many as positions %v", d[2], steps)
	}
	y, err := newResult(x.Type.DType, append([]int64{d[0], d[1] / taps}, image...)...)
	if err != nil {
		return nil, err
	}
	pixels := volume(image)
	for plane := range d[0] * d[1] / taps {
		for tap := range taps {
			for col := range d[2] {
				at, inside := int64(0), true
				t, s := unravel(tap, block), unravel(col, steps)
				for a := range r {
					i := s[a]*strides[a] - pads[a] + t[a]*dilations[a]
					inside = inside && i >= 0 && i < image[a]
					at = at*image[a] + i
				}
				if inside {
					y.F[plane*pixels+at] += x.F[(plane*taps+tap)*d[2]+col]
				}
			}
		}
	}
	return rounded(y), nil
}

// unravel is a place in row-major order as coordinates.
func unravel(i int64, d []int64) []int64 {
	out := make([]int64, len(d))
	for a := len(d) - 1; a >= 0; a-- {
		out[a], i = i%d[a], i/d[a]
	}
	return out
}

// deformConv is a convolution in two dimensions whose taps lie between pixels.
func deformConv(c *call) ([]*Value, error) {
	x, xd, err := c.floats(0, 4)
	if err != nil {
		return nil, err
	}
	w, wd, err := c.floats(1, 4)
	if err != nil {
		return nil, err
	}
	offset, od, err := c.floats(2, 4)
	if err != nil {
		return nil, err
	}
	var bias, mask *eval.Tensor
	if c.has(3) {
		if bias, _, err = c.floats(3, 1); err != nil {
			return nil, err
		}
	}
	if c.has(4) {
		if mask, _, err = c.floats(4, 4); err != nil {
			return nil, err
		}
	}
	dilations, err1 := c.repeated("dilations", 2, 1)
	strides, err2 := c.repeated("strides", 2, 1)
	pads, err3 := c.repeated("pads", 4, 0)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return nil, err
		}
	}
	groups, parts := c.int("group", 1), c.int("offset_group", 1)
	taps := wd[2] * wd[3]
	out := []int64{xd[0], wd[0], od[2], od[3]}
	points := od[2] * od[3]
	switch {
	case groups < 1 || parts < 1 || xd[1] != wd[1]*groups || wd[0]%max(groups, 1) != 0 || xd[1]%parts != 0:
		return nil, fmt.Errorf("group %d and offset_group %d do not fit images %s and filters %s", groups, parts, x.Type, w.Type)
	case od[0] != xd[0] || od[1] != parts*taps*2 || mask != nil && int64(mask.Len()) != xd[0]*parts*taps*points || bias != nil && int64(bias.Len()) != wd[0]:
		return nil, fmt.Errorf("the offsets %s, their mask or the bias do not fit images %s and filters %s", offset.Type, x.Type, w.Type)
	}
	y, err := newResult(x.Type.DType, out...)
	if err != nil {
		return nil, err
	}
	s := sampler{size: xd[2:], mode: "linear", padding: "zeros"}
	pixels := xd[2] * xd[3]
	for n := range xd[0] {
		for o := range wd[0] {
			for p := range points {
				sum := 0.0
				if bias != nil {
					sum = bias.F[o]
				}
				for ci := range wd[1] {
					ch := o/(wd[0]/groups)*wd[1] + ci
					part := ch / (xd[1] / parts)
					for t := range taps {
						first := ((n*parts+part)*taps + t) * 2 * points
						at := []float64{
							float64(p/od[3]*strides[0]-pads[0]+t/wd[3]*dilations[0]) + offset.F[first+p],
							float64(p%od[3]*strides[1]-pads[1]+t%wd[3]*dilations[1]) + offset.F[first+points+p],
						}
						v := s.at(x.F[(n*xd[1]+ch)*pixels:(n*xd[1]+ch+1)*pixels], at, 0, 0) * w.F[(o*wd[1]+ci)*taps+t]
						if mask != nil {
							v *= mask.F[((n*parts+part)*taps+t)*points+p]
						}
						sum += v
					}
				}
				y.F[(n*wd[0]+o)*points+p] = sum
			}
		}
	}
	return rounded(y), nil
}

// roiAlign pools regions of images, sampled between pixels.
func roiAlign(c *call) ([]*Value, error) {
	x, xd, err := c.floats(0, 4)
	if err != nil {
		return nil, err
	}
	rois, rd, err := c.floats(1, 2)
	if err != nil {
		return nil, err
	}
	batch, err := c.integersOf(2)
	if err != nil {
		return nil, err
	}
	if rd[1] != 4 || int64(len(batch)) != rd[0] {
		return nil, fmt.Errorf("the regions are %s with %d image numbers, want [R,4] with one number for each", rois.Type, len(batch))
	}
	half := c.opset >= 16 && c.str("coordinate_transformation_mode", "half_pixel") == "half_pixel"
	p := roiPool{high: xd[2], wide: xd[3], rows: c.int("output_height", 1), cols: c.int("output_width", 1), ratio: c.int("sampling_ratio", 0), most: c.str("mode", "avg") == "max"}
	scale := c.float("spatial_scale", 1)
	y, err := newResult(x.Type.DType, rd[0], xd[1], p.rows, p.cols)
	if err != nil {
		return nil, err
	}
	for k := range rd[0] {
		if batch[k] < 0 || batch[k] >= xd[0] {
			return nil, fmt.Errorf("region %d is in image %d, but there are %d images", k, batch[k], xd[0])
		}
		var box [4]float64
		for i := range box {
			box[i] = rois.F[4*k+int64(i)] * scale
			if half {
				box[i] -= 0.5
			}
		}
		p.left, p.top, p.width, p.height = box[0], box[1], box[2]-box[0], box[3]-box[1]
		if !half {
			p.width, p.height = max(p.width, 1), max(p.height, 1)
		}
		for ch := range xd[1] {
			image := x.F[(batch[k]*xd[1]+ch)*xd[2]*xd[3] : (batch[k]*xd[1]+ch+1)*xd[2]*xd[3]]
			if err := p.pool(image, y.F[(k*xd[1]+ch)*p.rows*p.cols:(k*xd[1]+ch+1)*p.rows*p.cols]); err != nil {
				return nil, err
			}
		}
	}
	return rounded(y), nil
}

// roiPool is one region of an image.
type roiPool struct {
	high, wide, rows, cols, ratio int64
	most                          bool // the largest of the weighted pixels
	left, top, width, height      float64
}

func (p *roiPool) pool(image, out []float64) error {
	down, across := p.ratio, p.ratio
	if p.ratio <= 0 {
		down, across = int64(math.Ceil(p.height/float64(p.rows))), int64(math.Ceil(p.width/float64(p.cols)))
	}
	if !(p.width < 1<<20 && p.height < 1<<20) || down > 1<<12 || across > 1<<12 {
		return fmt.Errorf("a region of %g by %g is too large", p.height, p.width)
	}
	for i := range out {
		row, col := float64(int64(i)/p.cols), float64(int64(i)%p.cols)
		sum, most := 0.0, math.Inf(-1)
		for a := range down {
			for b := range across {
				y := p.top + (row+(float64(a)+0.5)/float64(down))*p.height/float64(p.rows)
				x := p.left + (col+(float64(b)+0.5)/float64(across))*p.width/float64(p.cols)
				for _, v := range p.corners(image, y, x) {
					sum, most = sum+v, max(most, v)
				}
			}
		}
		switch {
		case !p.most:
			out[i] = sum / float64(max(down*across, 1))
		case !math.IsInf(most, -1):
			out[i] = most
		}
	}
	return nil
}

// corners are the weighted pixels around a point.
func (p *roiPool) corners(image []float64, y, x float64) [4]float64 {
	if y < -1 || y > float64(p.high) || x < -1 || x > float64(p.wide) {
		return [4]float64{}
	}
	edge := func(v float64, size int64) (low, high int64, t float64) {
		v = max(v, 0)
		if low = int64(v); low >= size-1 {
			return size - 1, size - 1, 0
		}
		return low, low + 1, v - float64(low)
	}
	y0, y1, ty := edge(y, p.high)
	x0, x1, tx := edge(x, p.wide)
	at := func(y, x int64) float64 { return image[y*p.wide+x] }
	return [4]float64{(1 - ty) * (1 - tx) * at(y0, x0), (1 - ty) * tx * at(y0, x1), ty * (1 - tx) * at(y1, x0), ty * tx * at(y1, x1)}
}

// maxUnpool puts maxima where they came from.
func maxUnpool(c *call) ([]*Value, error) {
	x, xd, err := c.floats(0, -1)
	if err != nil {
		return nil, err
	}
	from, err := c.tensor(1)
	if err != nil {
		return nil, err
	}
	r := len(xd) - 2
	kernel := c.ints("kernel_shape")
	if r < 1 || len(kernel) != r || from.I == nil || from.Len() != x.Len() {
		return nil, fmt.Errorf("kernel %v and positions %s do not fit operand 0, %s", kernel, from.Type, x.Type)
	}
	strides, err := c.repeated("strides", r, 1)
	if err != nil {
		return nil, err
	}
	pads, err := c.repeated("pads", 2*r, 0)
	if err != nil {
		return nil, err
	}
	pooled := slices.Clone(xd)
	for a := range r {
		pooled[a+2] = (xd[a+2]-1)*strides[a] + kernel[a] - pads[a] - pads[r+a]
	}
	out := pooled
	if c.has(2) {
		if out, err = c.integersOf(2); err != nil {
			return nil, err
		}
	}
	if len(out) != len(pooled) {
		return nil, fmt.Errorf("the result shape %v does not have the rank of operand 0, %s", out, x.Type)
	}
	y, err := newResult(x.Type.DType, out...)
	if err != nil {
		return nil, err
	}
	for i, at := range from.I {
		if at < 0 || at >= volume(pooled) {
			return nil, fmt.Errorf("position %d is out of range for a pooled image %v", at, pooled)
		}
		to := int64(0)
		for a, k := range unravel(at, pooled) {
			if k >= out[a] {
				return nil, fmt.Errorf("position %d is outside of the result %v", at, out)
			}
			to = to*out[a] + k
		}
		y.F[to] = x.F[i]
	}
	return rounded(y), nil
}

// det is the determinant of matrices, by elimination.
func det(c *call) ([]*Value, error) {
	x, d, err := c.floats(0, -1)
	if err != nil {
		return nil, err
	}
	r := len(d)
	if r < 2 || d[r-1] != d[r-2] {
		return nil, fmt.Errorf("operand 0 is %s, want square matrices", x.Type)
	}
	y, err := newResult(x.Type.DType, d[:r-2]...)
	if err != nil {
		return nil, err
	}
	n := d[r-1]
	for k := range y.F {
		y.F[k] = determinant(slices.Clone(x.F[int64(k)*n*n:int64(k+1)*n*n]), int(n))
	}
	return rounded(y), nil
}

func determinant(m []float64, n int) float64 {
	d := 1.0
	for i := range n {
		p := i
		for r := i + 1; r < n; r++ {
			if math.Abs(m[r*n+i]) > math.Abs(m[p*n+i]) {
				p = r
			}
		}
		if m[p*n+i] == 0 {
			return 0
		}
		if p != i {
			d = -d
			for k := range n {
				m[p*n+k], m[i*n+k] = m[i*n+k], m[p*n+k]
			}
		}
		d *= m[i*n+i]
		for r := i + 1; r < n; r++ {
			f := m[r*n+i] / m[i*n+i]
			for k := i; k < n; k++ {
				m[r*n+k] -= f * m[i*n+k]
			}
		}
	}
	return d
}

// tensorScatter writes an update into a cache, at a position for each of the batch.
func tensorScatter(c *call) ([]*Value, error) {
	cache, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	update, err := c.tensor(1)
	if err != nil {
		return nil, err
	}
	d, u := ir.Sizes(cache.Type.Shape), ir.Sizes(update.Type.Shape)
	axis, err := axis(c.int("axis", -2), len(d))
	if err != nil {
		return nil, err
	}
	if axis == 0 || len(u) != len(d) || cache.Type.DType != update.Type.DType {
		return nil, fmt.Errorf("an update %s does not fit a cache %s along axis %d", update.Type, cache.Type, axis)
	}
	at := make([]int64, d[0])
	if c.has(2) {
		if at, err = c.integersOf(2); err != nil {
			return nil, err
		}
	}
	circular := c.str("mode", "linear") == "circular"
	out := slices.Clone(c.in[0].Bytes())
	from := c.in[1].Bytes()
	outer, n, inner := blocks(cache.Type, axis)
	_, rows, _ := blocks(update.Type, axis)
	if int64(len(at)) != d[0] || int64(len(from)) != outer*rows*inner {
		return nil, fmt.Errorf("an update %s at %d positions does not fit a cache %s", update.Type, len(at), cache.Type)
	}
	for o := range outer {
		for k := range rows {
			to := at[o/(outer/d[0])] + k
			if circular && n > 0 {
				to %= n
			}
			if to < 0 || to >= n {
				return nil, fmt.Errorf("the update writes row %d, but the cache has %d rows", to, n)
			}
			copy(out[(o*n+to)*inner:(o*n+to+1)*inner], from[(o*rows+k)*inner:])
		}
	}
	return []*Value{NewTensor(cache.Type, out)}, nil
}
