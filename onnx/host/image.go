package host

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg"
	_ "image/png"

	"ampc/ir"
)

// imageDecoder decodes a file of an image into u8[height, width, channels], as ONNX 20 defines it:
// files that are damaged or of an unknown format give an image without pixels. JPEG 2000 is refused,
// and so are formats whose decoder the program does not link (image.RegisterFormat).
func imageDecoder(c *call) ([]*Value, error) {
	if !c.has(0) || c.in[0].Kind != Tensor || c.in[0].Type.DType != ir.U8 || c.in[0].Type.Shape.Rank() != 1 {
		return nil, fmt.Errorf("operand 0 is not u8 of rank 1")
	}
	x := c.in[0]
	channels := int64(3)
	format := c.str("pixel_format", "RGB")
	switch format {
	case "Grayscale":
		channels = 1
	case "RGB", "BGR":
	default:
		return nil, fmt.Errorf("pixel_format %q, want RGB, BGR or Grayscale", format)
	}
	file := x.Bytes()
	empty := NewTensor(ir.Type{DType: ir.U8, Shape: shapeOf(0, 0, channels)}, nil)
	p := &pixels{}
	if isPNM(file) {
		read, err := readPNM(file, c.run.s.o.Bytes)
		if err != nil {
			return nil, err
		}
		p = read
	} else {
		head, kind, err := image.DecodeConfig(bytes.NewReader(file))
		if errors.Is(err, image.ErrFormat) {
			if err := notLinked(file); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return []*Value{empty}, nil
		}
		if err := fitsImage(head.Width, head.Height, c.run.s.o.Bytes); err != nil {
			return nil, err
		}
		im, _, err := image.Decode(bytes.NewReader(file))
		if err != nil {
			return []*Value{empty}, nil
		}
		p = pixelsOf(im, kind)
	}
	if p == nil || len(p.rgb) == 0 {
		return []*Value{empty}, nil
	}
	return []*Value{NewTensor(ir.Type{DType: ir.U8, Shape: shapeOf(int64(p.height), int64(p.width), channels)}, p.as(format))}, nil
}

// fitsImage bounds the memory of an image: its decoder holds up to eight bytes per pixel.
func fitsImage(width, height int, limit int64) error {
	if width < 0 || height < 0 || int64(width) > limit/8/int64(max(height, 1)) {
		return fmt.Errorf("an image of %d by %d pixels takes more than the limit of %d bytes", width, height, limit)
	}
	return nil
}

// magic begins the files of formats that are not in the standard library; ? is any byte.
var magic = []struct{ head, title, from string }{
	{"BM", "BMP", "golang.org/x/image/bmp"},
	{"II*\x00", "TIFF", "golang.org/x/image/tiff"},
	{"MM\x00*", "TIFF", "golang.org/x/image/tiff"},
	{"RIFF????WEBP", "WebP", "golang.org/x/image/webp"},
	{"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG 2000", ""},
	{"\xff\x4f\xff\x51", "JPEG 2000", ""},
}

// notLinked is the error of a file in a format that has no decoder here; nil where the format is not
// known.
func notLinked(file []byte) error {
	for _, m := range magic {
		same := len(file) >= len(m.head)
		for i := 0; same && i < len(m.head); i++ {
			same = m.head[i] == '?' || m.head[i] == file[i]
		}
		switch {
		case same && m.from == "":
			return fmt.Errorf("%s is not decoded: convert the file to PNG, or register a decoder with image.RegisterFormat", m.title)
		case same:
			return fmt.Errorf("a %s file: import %s in the program, which then decodes it", m.title, m.from)
		}
	}
	return nil
}

// pixels are 8-bit red, green and blue of each pixel.
type pixels struct {
	width, height int
	rgb           []byte
}

func newPixels(width, height int) *pixels {
	return &pixels{width, height, make([]byte, 3*width*height)}
}

// as returns the pixels in the order of a format; grey is 0.299, 0.587 and 0.114 of the colours, as in
// ITU-R BT.601.
func (p *pixels) as(format string) []byte {
	switch format {
	case "BGR":
		for i := 0; i < len(p.rgb); i += 3 {
			p.rgb[i], p.rgb[i+2] = p.rgb[i+2], p.rgb[i]
		}
	case "Grayscale":
		grey := make([]byte, len(p.rgb)/3)
		for i := range grey {
			r, g, b := int(p.rgb[3*i]), int(p.rgb[3*i+1]), int(p.rgb[3*i+2])
			grey[i] = byte((19595*r + 38470*g + 7471*b + 1<<15) >> 16)
		}
		return grey
	}
	return p.rgb
}

// pixelsOf are those of an image that was decoded from a file of a kind. Alpha is dropped.
func pixelsOf(im image.Image, kind string) *pixels {
	if x, ok := im.(*image.YCbCr); ok {
		if kind == "webp" {
			return webpPixels(x)
		}
		return jpegPixels(x)
	}
	b := im.Bounds()
	p := newPixels(b.Dx(), b.Dy())
	i := 0
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c := color.NRGBAModel.Convert(im.At(x, y)).(color.NRGBA)
			p.rgb[i], p.rgb[i+1], p.rgb[i+2] = c.R, c.G, c.B
			i += 3
		}
	}
	return p
}

// isPNM recognizes the portable formats: bitmaps, greymaps and pixmaps, as text and as bytes.
func isPNM(b []byte) bool { return len(b) > 2 && b[0] == 'P' && b[1] >= '1' && b[1] <= '6' }

// pnm reads the numbers of a portable image.
type pnm struct{ b []byte }

// number reads the next number; a comment goes from # to the end of its line. It is -1 where there is
// none. A bit of a text bitmap is one digit.
func (r *pnm) number(digits int) int {
	for len(r.b) > 0 && (r.b[0] <= ' ' || r.b[0] == '#') {
		if r.b[0] != '#' {
			r.b = r.b[1:]
			continue
		}
		_, r.b, _ = bytes.Cut(r.b, []byte{'\n'})
	}
	n, i := 0, 0
	for i < min(len(r.b), digits) && r.b[i] >= '0' && r.b[i] <= '9' {
		n = 10*n + int(r.b[i]-'0')
		i++
	}
	r.b = r.b[i:]
	if i == 0 {
		return -1
	}
	return n
}

// readPNM reads a portable image; nil where it is damaged.
func readPNM(file []byte, limit int64) (*pixels, error) {
	kind := file[1]
	r := &pnm{file[2:]}
	width, height, top := r.number(9), r.number(9), 1
	if kind != '1' && kind != '4' {
		top = r.number(9)
	}
	if width < 1 || height < 1 || top < 1 || top > 0xffff {
		return nil, nil
	}
	if err := fitsImage(width, height, limit); err != nil {
		return nil, err
	}
	if kind >= '4' {
		if len(r.b) == 0 {
			return nil, nil
		}
		r.b = r.b[1:] // one space, then bytes
	}
	samples := 1
	if kind == '3' || kind == '6' {
		samples = 3
	}
	p := newPixels(width, height)
	for i := range width * height {
		for k := range 3 {
			if k >= samples {
				p.rgb[3*i+k] = p.rgb[3*i]
				continue
			}
			n := r.sample(kind, i, width, top)
			if n < 0 || n > top {
				return nil, nil
			}
			p.rgb[3*i+k] = byte((n*255 + top/2) / top)
		}
	}
	return p, nil
}

// sample reads the next sample, of pixel i; -1 where there is none. Bits are 1 for black.
func (r *pnm) sample(kind byte, i, width, top int) int {
	switch {
	case kind == '1':
		if n := r.number(1); n >= 0 {
			return 1 - n
		}
		return -1
	case kind < '4':
		return r.number(9)
	case kind == '4':
		row, col := i/width, i%width
		at := row*((width+7)/8) + col/8
		if at >= len(r.b) {
			return -1
		}
		return 1 - int(r.b[at]>>(7-col%8)&1)
	}
	size := 1
	if top > 255 {
		size = 2
	}
	if len(r.b) < size {
		return -1
	}
	n := int(r.b[0])
	if size == 2 {
		n = n<<8 | int(r.b[1])
	}
	r.b = r.b[size:]
	return n
}
