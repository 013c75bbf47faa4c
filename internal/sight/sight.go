// Package sight computes how colours look to people with and without colour blindness, for tests
// of pictures.
package sight

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// RGB is a colour in linear light, each part from 0 to 1.
type RGB [3]float64

// Parse reads a colour of sRGB, such as #d55e00.
func Parse(text string) (RGB, error) {
	digits, marked := strings.CutPrefix(text, "#")
	n, err := strconv.ParseUint(digits, 16, 24)
	if !marked || len(digits) != 6 || err != nil {
		return RGB{}, fmt.Errorf("%q is no colour: want # and six hexadecimal digits", text)
	}
	var c RGB
	for i, shift := range []int{16, 8, 0} {
		x := float64(n>>shift&255) / 255
		if c[i] = x / 12.92; x > 0.04045 {
			c[i] = math.Pow((x+0.055)/1.055, 2.4)
		}
	}
	return c, nil
}

// Eyes are how colours look to people with and without each kind of colour blindness, in linear
// light (Machado, Oliveira and Fernandes 2009, severity 1).
var Eyes = map[string][3]RGB{
	"all colours":  {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

// Seen is how a colour looks to an eye of Eyes.
func Seen(m [3]RGB, c RGB) RGB {
	var out RGB
	for i, row := range m {
		out[i] = min(max(row[0]*c[0]+row[1]*c[1]+row[2]*c[2], 0), 1)
	}
	return out
}

// luminance is the Y of CIE XYZ.
func (c RGB) luminance() float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }

// Contrast is WCAG's ratio of two colours, from 1 to 21.
func Contrast(a, b RGB) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// lab is a colour in CIE L*a*b* under D65.
func (c RGB) lab() [3]float64 {
	f := func(x float64) float64 {
		if x > 216.0/24389 {
			return math.Cbrt(x)
		}
		return (24389.0/27*x + 16) / 116
	}
	x := f((0.4124*c[0] + 0.3576*c[1] + 0.1805*c[2]) / 0.9505)
	y := f(c.luminance())
	z := f((0.0193*c[0] + 0.1192*c[1] + 0.9505*c[2]) / 1.089)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

// Distance is that of CIE76: 2.3 is just noticeable.
func Distance(a, b RGB) float64 {
	x, y := a.lab(), b.lab()
	return math.Sqrt((x[0]-y[0])*(x[0]-y[0]) + (x[1]-y[1])*(x[1]-y[1]) + (x[2]-y[2])*(x[2]-y[2]))
}

// Nearest returns the two colours that are hardest to tell apart, by name, and their distance to the
// worst of all eyes.
func Nearest(colours map[string]RGB) (pair string, least float64) {
	least = math.Inf(1)
	for _, eye := range Eyes {
		for a, x := range colours {
			for b, y := range colours {
				if d := Distance(Seen(eye, x), Seen(eye, y)); a < b && d < least {
					pair, least = a+" and "+b, d
				}
			}
		}
	}
	return pair, least
}
