package view

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"
)

// rgb is a colour in linear light, each part from 0 to 1.
type rgb [3]float64

// palette are the colours of a theme by name.
func palette(t *testing.T, selector string) map[string]rgb {
	t.Helper()
	style, err := source("style.css")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(regexp.QuoteMeta(selector) + ` \{([^}]*)\}`).FindStringSubmatch(style)
	if block == nil {
		t.Fatalf("no %s in the style", selector)
	}
	out := map[string]rgb{}
	for _, m := range regexp.MustCompile(`--([a-z0-9-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(block[1], -1) {
		n, err := strconv.ParseUint(m[2], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		for i, shift := range []int{16, 8, 0} {
			c := out[m[1]]
			x := float64(n>>shift&255) / 255
			if c[i] = x / 12.92; x > 0.04045 {
				c[i] = math.Pow((x+0.055)/1.055, 2.4)
			}
			out[m[1]] = c
		}
	}
	return out
}

// eyes are how colours look to people with and without each kind of colour blindness, in linear
// light (Machado, Oliveira and Fernandes 2009, severity 1).
var eyes = map[string][3]rgb{
	"all colours":  {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

func seen(m [3]rgb, c rgb) rgb {
	var out rgb
	for i, row := range m {
		out[i] = min(max(row[0]*c[0]+row[1]*c[1]+row[2]*c[2], 0), 1)
	}
	return out
}

// luminance is the Y of CIE XYZ.
func (c rgb) luminance() float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }

// contrast is WCAG's ratio of two colours, from 1 to 21.
func contrast(a, b rgb) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// lab is a colour in CIE L*a*b* under D65.
func (c rgb) lab() [3]float64 {
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

// distance is CIE76's: 2.3 is just noticeable.
func distance(a, b rgb) float64 {
	x, y := a.lab(), b.lab()
	return math.Sqrt((x[0]-y[0])*(x[0]-y[0]) + (x[1]-y[1])*(x[1]-y[1]) + (x[2]-y[2])*(x[2]-y[2]))
}

// Colours that mean something differ for colour-blind readers too, in both themes, and text stands
// out from what is behind it.
func TestPalette(t *testing.T) {
	const (
		apart = 20  // of two meanings, in CIE76: nine times what is just noticeable
		text  = 4.5 // contrast of WCAG's level AA
		mark  = 3   // the same, of graphics
	)
	for _, theme := range []string{":root", `:root[data-theme="dark"]`} {
		colours := palette(t, theme)
		for eye, m := range eyes {
			for _, group := range [][]string{{"f32", "f16", "bf16", "f64", "integer"}, {"added", "removed", "changed"}} {
				least, pair := math.Inf(1), ""
				for i, a := range group {
					for _, b := range group[:i] {
						if d := distance(seen(m, colours[a]), seen(m, colours[b])); d < least {
							least, pair = d, fmt.Sprint(a, " and ", b)
						}
					}
				}
				t.Logf("%s, %s: %s are %.0f apart", theme, eye, pair, least)
				if least < apart {
					t.Errorf("%s, %s: %s are %.1f apart, want %d", theme, eye, pair, least, apart)
				}
			}
		}
		for _, c := range []struct {
			front, back []string
			least       float64
		}{
			{[]string{"ink", "quiet"}, []string{"paper", "node", "variable", "scope", "frame-even", "frame-odd"}, text},
			{[]string{"error"}, []string{"paper"}, text},
			{[]string{"f32", "f16", "bf16", "f64", "integer", "added", "removed", "changed", "found", "fused"}, []string{"paper", "node"}, mark},
		} {
			for _, front := range c.front {
				for _, back := range c.back {
					if front == "error" {
						front = "removed"
					}
					if x := contrast(colours[front], colours[back]); x < c.least {
						t.Errorf("%s: %s on %s has contrast %.2f, want %g", theme, front, back, x, c.least)
					}
				}
			}
		}
	}
}
