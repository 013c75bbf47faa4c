package host

import "image"

// jpegPixels converts a JPEG's planes as libjpeg does by default, which ONNX asks for: chroma planes of half the
// width are interpolated linearly between the centres of their pixels ("fancy upsampling",
// jdsample.c), and colours are those of JFIF in 16 fractional bits (jdcolor.c).
func jpegPixels(x *image.YCbCr) *pixels {
	b := x.Bounds()
	p := newPixels(b.Dx(), b.Dy())
	cb, cr := newChroma(x, x.Cb), newChroma(x, x.Cr)
	for row := range p.height {
		u, v := cb.row(row), cr.row(row)
		for col := range p.width {
			luma := int(x.Y[(row+b.Min.Y-x.Rect.Min.Y)*x.YStride+col])
			d, e := int(u[col])-128, int(v[col])-128
			out := p.rgb[3*(row*p.width+col):]
			out[0] = clip(luma + (91881*e+1<<15)>>16)
			out[1] = clip(luma + (-22554*d-46802*e+1<<15)>>16)
			out[2] = clip(luma + (116130*d+1<<15)>>16)
		}
	}
	return p
}

func clip(n int) byte { return byte(min(max(n, 0), 255)) }

// chroma is a chroma plane, with as many samples as the image needs.
type chroma struct {
	at            func(row, col int) int
	width, height int // of the plane
	full          int // of the image
	across, down  int // pixels of the image for a sample
	out           []byte
}

func newChroma(x *image.YCbCr, plane []byte) *chroma {
	c := &chroma{full: x.Rect.Dx(), across: 1, down: 1, out: make([]byte, x.Rect.Dx()+4)}
	switch x.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		c.across = 2
	case image.YCbCrSubsampleRatio420:
		c.across, c.down = 2, 2
	case image.YCbCrSubsampleRatio440:
		c.down = 2
	case image.YCbCrSubsampleRatio411:
		c.across = 4
	case image.YCbCrSubsampleRatio410:
		c.across, c.down = 4, 2
	}
	c.width, c.height = (c.full+c.across-1)/c.across, (x.Rect.Dy()+c.down-1)/c.down
	c.at = func(row, col int) int {
		return int(plane[min(max(row, 0), c.height-1)*x.CStride+min(max(col, 0), c.width-1)])
	}
	return c
}

// row is the plane at a row of the image.
func (c *chroma) row(row int) []byte {
	near, other := row/c.down, row/c.down-1+row%c.down*2
	switch {
	case c.across == 1 && c.down == 1, c.across == 4, c.across == 2 && c.width <= 2:
		for col := range c.full {
			c.out[col] = byte(c.at(near, col/c.across))
		}
	case c.across == 1:
		for col := range c.full {
			c.out[col] = byte((3*c.at(near, col) + c.at(other, col) + 1 + row%2) >> 2)
		}
	case c.down == 1:
		for col := range c.width {
			this := c.at(near, col)
			c.out[2*col] = byte((3*this + c.at(near, col-1) + 1) >> 2)
			c.out[2*col+1] = byte((3*this + c.at(near, col+1) + 2) >> 2)
		}
	default:
		sum := func(col int) int { return 3*c.at(near, col) + c.at(other, col) }
		for col := range c.width {
			c.out[2*col] = byte((3*sum(col) + sum(col-1) + 8) >> 4)
			c.out[2*col+1] = byte((3*sum(col) + sum(col+1) + 7) >> 4)
		}
	}
	return c.out
}

// webpPixels converts the planes of a lossy WebP file as libwebp does by default: chroma is
// interpolated between four samples (upsampling.c), and luma goes from 16 to 235 (yuv.h).
func webpPixels(x *image.YCbCr) *pixels {
	p := newPixels(x.Rect.Dx(), x.Rect.Dy())
	cb, cr := newChroma(x, x.Cb), newChroma(x, x.Cr)
	for row := range p.height {
		for col := range p.width {
			y, u, v := int(x.Y[row*x.YStride+col])*19077>>8, cb.between(row, col), cr.between(row, col)
			out := p.rgb[3*(row*p.width+col):]
			out[0] = clip((y + v*26149>>8 - 14234) >> 6)
			out[1] = clip((y - u*6419>>8 - v*13320>>8 + 8708) >> 6)
			out[2] = clip((y + u*33050>>8 - 17685) >> 6)
		}
	}
	return p
}

// between interpolates the plane of half size at a pixel: 9, 3, 3 and 1 sixteenths of the samples
// around it, rounded in two steps.
func (c *chroma) between(row, col int) int {
	near, across := c.at(row/2, col/2), c.at(row/2, col/2-1+col%2*2)
	down, other := c.at(row/2-1+row%2*2, col/2), c.at(row/2-1+row%2*2, col/2-1+col%2*2)
	if col == 0 || col/2 == c.width-1 && col%2 == 1 {
		return (3*near + down + 2) >> 2
	}
	return ((near+across+down+other+8+2*(across+down))>>3 + near) >> 1
}
