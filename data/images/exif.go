package images

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
)

// orientation finds the EXIF tag 0x0112 in a JPEG file: 1 to 8, 1 where there is none.
// The layout: markers of JPEG (ITU-T T.81, annex B), of which APP1 with "Exif\0\0" holds a
// TIFF header and its first directory (CIPA DC-008, 4.6).
func orientation(b []byte) int {
	for at := 2; at+4 <= len(b) && b[at] == 0xff; {
		marker, n := b[at+1], int(binary.BigEndian.Uint16(b[at+2:]))
		if marker == 0xff { // padding before a marker
			at++
			continue
		}
		if marker == 0xda || n < 2 || at+2+n > len(b) {
			break
		}
		body := b[at+4 : at+2+n]
		if tiff, ok := bytes.CutPrefix(body, []byte("Exif\x00\x00")); ok && marker == 0xe1 {
			return tiffOrientation(tiff)
		}
		at += 2 + n
	}
	return 1
}

func tiffOrientation(b []byte) int {
	var order binary.ByteOrder = binary.LittleEndian
	if bytes.HasPrefix(b, []byte("MM")) {
		order = binary.BigEndian
	}
	if len(b) < 8 {
		return 1
	}
	at := uint64(order.Uint32(b[4:]))
	if at+2 > uint64(len(b)) {
		return 1
	}
	n := uint64(order.Uint16(b[at:]))
	for i := range n {
		e := at + 2 + 12*i
		if e+12 > uint64(len(b)) {
			break
		}
		const tag, short = 0x0112, 3
		if order.Uint16(b[e:]) == tag && order.Uint16(b[e+2:]) == short {
			if v := int(order.Uint16(b[e+8:])); v >= 1 && v <= 8 {
				return v
			}
		}
	}
	return 1
}

// upright turns an image as its orientation says.
func upright(m image.Image, orientation int) image.Image {
	if orientation == 1 {
		return m
	}
	return &turned{m, orientation}
}

// turned is an image seen through its orientation.
type turned struct {
	image.Image
	orientation int
}

// Bounds begin at 0; from orientation 5 on, the sides are exchanged.
func (t *turned) Bounds() image.Rectangle {
	b := t.Image.Bounds()
	if t.orientation >= 5 {
		return image.Rect(0, 0, b.Dy(), b.Dx())
	}
	return image.Rect(0, 0, b.Dx(), b.Dy())
}

// At is a pixel of the turned image.
func (t *turned) At(x, y int) color.Color {
	b := t.Image.Bounds()
	w, h := b.Dx(), b.Dy()
	switch t.orientation {
	case 2:
		x = w - 1 - x
	case 3:
		x, y = w-1-x, h-1-y
	case 4:
		y = h - 1 - y
	case 5:
		x, y = y, x
	case 6:
		x, y = y, h-1-x
	case 7:
		x, y = w-1-y, h-1-x
	case 8:
		x, y = w-1-y, x
	}
	return t.Image.At(b.Min.X+x, b.Min.Y+y)
}
