package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// chart is a panel of an SVG picture: lines over the steps of a run, with axes, a grid and a
// legend. Text uses the viewer's sans-serif font.
type chart struct {
	title  string // may be empty
	label  string // label of the vertical axis
	log    bool   // the vertical axis is logarithmic, with ticks at powers of two
	series []series
}

// series is one entry of the legend with its lines.
type series struct {
	name   string
	color  string
	line   [][2]float64 // pairs of step and value
	band   [][3]float64 // step, smallest and largest value, drawn in a pale color; may be empty
	dotted bool         // drawn as dots, not as a line
}

// Sizes in pixels.
const (
	chartWidth  = 640
	chartHeight = 280
	chartLeft   = 64
	chartRight  = 16
	chartTop    = 44 // room for the title and the legend
	chartBottom = 36
	glyphWidth  = 6.2 // approximate width of a glyph in 11 px text
)

// extreme bounds the values that are drawn, so that differences stay finite.
const extreme = 1e100

// drawCharts draws charts one above the other, over steps lo to hi.
func drawCharts(charts []chart, lo, hi float64) []byte {
	if hi <= lo {
		hi = lo + 1
	}
	var b strings.Builder
	height := chartHeight * len(charts)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="11">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", chartWidth, height)
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", i*chartHeight)
		c.draw(&b, i, lo, hi)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// scale maps values to pixels.
type scale struct{ lo, hi, from, to float64 }

func (s scale) at(x float64) float64 {
	return s.from + (min(max(x, -extreme), extreme)-s.lo)/(s.hi-s.lo)*(s.to-s.from)
}

func (c chart) draw(b *strings.Builder, id int, lo, hi float64) {
	x := scale{lo, hi, chartLeft, chartWidth - chartRight}
	y := c.vertical()
	c.frame(b, x, y)
	fmt.Fprintf(b, `<clipPath id="area%d"><rect x="%d" y="%d" width="%d" height="%d"/></clipPath>`+"\n",
		id, chartLeft, chartTop, chartWidth-chartLeft-chartRight, chartHeight-chartTop-chartBottom)
	fmt.Fprintf(b, `<g clip-path="url(#area%d)" fill="none" stroke-width="1.5" stroke-linejoin="round">`+"\n", id)
	for _, s := range c.series {
		s.draw(b, x, y, c.value)
	}
	b.WriteString("</g>\n")
	c.legend(b)
}

// value returns the coordinate of a number on the vertical axis.
func (c chart) value(v float64) float64 {
	if c.log {
		return math.Log2(v)
	}
	return v
}

// vertical fits the axis to the lines; bands may exceed it.
func (c chart) vertical() scale {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, s := range c.series {
		for _, p := range s.line {
			v := min(max(c.value(p[1]), -extreme), extreme)
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	switch {
	case lo > hi:
		lo, hi = 0, 1
	case c.log:
		lo, hi = math.Floor(lo)-1, math.Ceil(hi)+1
	default:
		pad := max((hi-lo)*0.05, math.Abs(hi)*1e-3, 1e-6)
		lo, hi = lo-pad, hi+pad
	}
	return scale{lo, hi, chartHeight - chartBottom, chartTop}
}

// frame draws title, axes, grid and tick labels.
func (c chart) frame(b *strings.Builder, x, y scale) {
	if c.title != "" {
		fmt.Fprintf(b, `<text x="%d" y="16" font-size="13">%s</text>`+"\n", chartLeft, html.EscapeString(c.title))
	}
	middle := (chartTop + chartHeight - chartBottom) / 2
	fmt.Fprintf(b, `<text x="14" y="%d" text-anchor="middle" transform="rotate(-90 14 %[1]d)">%s</text>`+"\n", middle, html.EscapeString(c.label))
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">step</text>`+"\n", (chartLeft+chartWidth-chartRight)/2, chartHeight-6)
	var grid strings.Builder
	for _, v := range ticks(x.lo, x.hi, 1) {
		fmt.Fprintf(&grid, "M%.1f %d V%d", x.at(v), chartTop, chartHeight-chartBottom)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%.6g</text>`+"\n", x.at(v), chartHeight-chartBottom+14, v)
	}
	least := 0.0
	if c.log {
		least = 1
	}
	for _, v := range ticks(y.lo, y.hi, least) {
		fmt.Fprintf(&grid, "M%d %.1f H%d", chartLeft, y.at(v), chartWidth-chartRight)
		text := fmt.Sprintf("%.4g", v)
		if c.log {
			text = scaleText(math.Exp2(v))
		}
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", chartLeft-6, y.at(v)+4, text)
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="#ddd"/>`+"\n", &grid)
	fmt.Fprintf(b, `<path d="M%d %d V%d H%d" fill="none" stroke="black"/>`+"\n", chartLeft, chartTop, chartHeight-chartBottom, chartWidth-chartRight)
}

// ticks returns round numbers from lo to hi, at most about eight, with at least the given distance.
func ticks(lo, hi, least float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/8)))
	for _, f := range []float64{1, 2, 5, 10} {
		if s := step * f; s >= least && (hi-lo)/s <= 8 || f == 10 {
			step = max(s, least)
			break
		}
	}
	var out []float64
	for k := math.Ceil(lo / step); k*step <= hi && len(out) < 20; k++ {
		out = append(out, k*step)
	}
	return out
}

func (s series) draw(b *strings.Builder, x, y scale, value func(float64) float64) {
	if len(s.band) > 1 {
		var edge strings.Builder
		for i, p := range s.band {
			fmt.Fprintf(&edge, "%c%.1f %.1f", "ML"[min(i, 1)], x.at(p[0]), y.at(value(p[2])))
		}
		for i := len(s.band) - 1; i >= 0; i-- {
			fmt.Fprintf(&edge, "L%.1f %.1f", x.at(s.band[i][0]), y.at(value(s.band[i][1])))
		}
		fmt.Fprintf(b, `<path d="%sZ" fill="%s" fill-opacity="0.2"/>`+"\n", &edge, s.color)
	}
	var path, dots strings.Builder
	for i, p := range s.line {
		at := fmt.Sprintf("%.1f %.1f", x.at(p[0]), y.at(value(p[1])))
		fmt.Fprintf(&path, "%c%s", "ML"[min(i, 1)], at)
		fmt.Fprintf(&dots, "M%sh0", at)
	}
	if !s.dotted {
		fmt.Fprintf(b, `<path d="%s" stroke="%s"/>`+"\n", &path, s.color)
	}
	if s.dotted || len(s.line) == 1 { // a line with one point would be invisible
		fmt.Fprintf(b, `<path d="%s" stroke="%s" stroke-width="5" stroke-linecap="round"/>`+"\n", &dots, s.color)
	}
}

// legend draws the names of the series in one row, each next to its key.
func (c chart) legend(b *strings.Builder) {
	at := float64(chartLeft)
	for _, s := range c.series {
		if s.dotted {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="30" r="2.5" fill="%s"/>`, at+10, s.color)
		} else {
			fmt.Fprintf(b, `<path d="M%.1f 30h20" stroke="%s" stroke-width="2"/>`, at, s.color)
		}
		fmt.Fprintf(b, `<text x="%.1f" y="34">%s</text>`+"\n", at+26, html.EscapeString(s.name))
		at += 26 + glyphWidth*float64(len(s.name)) + 16
	}
}
