package images

import (
	"image"
	"image/color"
	"math"
	"math/rand/v2"

	"golang.org/x/image/draw"
)

// Convert scales, cuts, mirrors and normalizes an image as the options say, which must
// be ones that Check accepts. Transparency is left out, as Pillow's convert("RGB") does:
// a pixel has the colour that it would have if it were opaque. Images of 16 bits keep
// them.
func (o Options) Convert(m image.Image, r *rand.Rand) []float32 {
	src, b := opaque(m), m.Bounds()
	height, width := o.Height, o.Width
	part := b // of the source, to be scaled to height×width
	switch {
	case o.RandomArea > 0 && r != nil:
		part = o.randomPart(b, r)
	case o.Shorter > 0:
		height, width = o.Shorter, o.Shorter
		if b.Dx() < b.Dy() {
			height = int(float64(o.Shorter) * float64(b.Dy()) / float64(b.Dx()))
		} else {
			width = int(float64(o.Shorter) * float64(b.Dx()) / float64(b.Dy()))
		}
	}
	scaled := o.scale(src, part, height, width)
	top, left := middle(height-o.Height), middle(width-o.Width)
	if o.RandomCrop && r != nil {
		top, left = r.IntN(height-o.Height+1), r.IntN(width-o.Width+1)
	}
	mirror := o.Flip && r != nil && r.IntN(2) == 1
	return o.planes(scaled, top, left, mirror)
}

// middle is half of what is left over, rounded as Python rounds.
func middle(left int) int { return int(math.RoundToEven(float64(left) / 2)) }

// randomPart draws a part of an image, as torchvision's RandomResizedCrop does.
func (o Options) randomPart(b image.Rectangle, r *rand.Rand) image.Rectangle {
	const tries = 10
	low, high := math.Log(3.0/4), math.Log(4.0/3)
	for range tries {
		area := float64(b.Dx()*b.Dy()) * (o.RandomArea + float64((1-o.RandomArea)*r.Float64()))
		ratio := math.Exp(low + float64((high-low)*r.Float64()))
		w, h := int(math.Round(math.Sqrt(area*ratio))), int(math.Round(math.Sqrt(area/ratio)))
		if w > 0 && h > 0 && w <= b.Dx() && h <= b.Dy() {
			at := image.Pt(b.Min.X+r.IntN(b.Dx()-w+1), b.Min.Y+r.IntN(b.Dy()-h+1))
			return image.Rectangle{at, at.Add(image.Pt(w, h))}
		}
	}
	w, h := b.Dx(), b.Dy()
	if ratio := float64(w) / float64(h); ratio < 3.0/4 {
		h = min(int(math.Round(float64(w)/(3.0/4))), h)
	} else if ratio > 4.0/3 {
		w = min(int(math.Round(float64(h)*(4.0/3))), w)
	}
	at := image.Pt(b.Min.X+(b.Dx()-w)/2, b.Min.Y+(b.Dy()-h)/2)
	return image.Rectangle{at, at.Add(image.Pt(w, h))}
}

// scale resizes a part of an image, to 16 bits a channel: x/image cuts results of 8 bits
// off, where PyTorch rounds or does not.
func (o Options) scale(src image.Image, part image.Rectangle, height, width int) *image.RGBA64 {
	to := image.NewRGBA64(image.Rect(0, 0, width, height))
	how := draw.Interpolator(draw.BiLinear)
	if o.Bicubic {
		how = draw.CatmullRom // a = -1/2, the cubic of Pillow and of PyTorch's antialiased scaling
	}
	if part.Dx() == width && part.Dy() == height {
		draw.Draw(to, to.Bounds(), src, part.Min, draw.Src)
	} else {
		how.Scale(to, to.Bounds(), src, part, draw.Src, nil)
	}
	return to
}

// planes are the pixels of the result, channel by channel.
func (o Options) planes(m *image.RGBA64, top, left int, mirror bool) []float32 {
	n := o.Height * o.Width
	out := make([]float32, o.Channels()*n)
	mean, scale := [3]float64{}, [3]float64{1, 1, 1}
	for c := range o.Channels() {
		if o.Mean != nil {
			mean[c] = o.Mean[c]
		}
		if o.Std != nil {
			scale[c] = o.Std[c]
		}
	}
	for y := range o.Height {
		for x := range o.Width {
			from := left + x
			if mirror {
				from = left + o.Width - 1 - x
			}
			p := m.Pix[m.PixOffset(from, top+y):]
			rgb := [3]float64{deep(p), deep(p[2:]), deep(p[4:])}
			if o.Gray { // ITU-R 601-2, as Pillow's convert("L") and Go's color.GrayModel
				rgb[0] = float64(0.299*rgb[0]) + float64(0.587*rgb[1]) + float64(0.114*rgb[2])
			}
			for c := range o.Channels() {
				out[c*n+y*o.Width+x] = float32((rgb[c] - mean[c]) / scale[c])
			}
		}
	}
	return out
}

// deep is a number of 16 bits, big-endian, from 0 to 1.
func deep(p []uint8) float64 { return float64(uint16(p[0])<<8|uint16(p[1])) / 65535 }

// opaque is an image without its transparency.
func opaque(m image.Image) image.Image {
	switch m := m.(type) {
	case *image.NRGBA:
		if m.Opaque() {
			return m
		}
		out := image.NewNRGBA(m.Rect)
		copyRows(out.Pix, m.Pix, out.Stride, m.Stride, m.Rect)
		for i := 3; i < len(out.Pix); i += 4 {
			out.Pix[i] = 0xff
		}
		return out
	case *image.NRGBA64:
		if m.Opaque() {
			return m
		}
		out := image.NewNRGBA64(m.Rect)
		copyRows(out.Pix, m.Pix, out.Stride, m.Stride, m.Rect)
		for i := 6; i+1 < len(out.Pix); i += 8 {
			out.Pix[i], out.Pix[i+1] = 0xff, 0xff
		}
		return out
	case *image.Paletted:
		if m.Opaque() {
			return m
		}
		out := *m
		out.Palette = nil
		for _, c := range m.Palette {
			n := color.NRGBAModel.Convert(c).(color.NRGBA)
			n.A = 0xff
			out.Palette = append(out.Palette, n)
		}
		return &out
	}
	return m
}

// copyRows copies the rows of pixels; the copy has no gap between them.
func copyRows(to, from []uint8, toStride, fromStride int, r image.Rectangle) {
	for y := range r.Dy() {
		copy(to[y*toStride:(y+1)*toStride], from[y*fromStride:])
	}
}
