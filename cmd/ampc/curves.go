package main

import (
	"fmt"
	"math"
	"time"
)

// curves is what a training run records, one point per step.
type curves struct {
	title  string
	unit   string // of the pace
	ranges bool   // some points have them
	points []point
	logs   *runLogs // nil: nothing is saved
}

// point is the record of one step.
type point struct {
	step, epoch int
	time        time.Time // zero of steps before a resume
	loss        float64   // NaN or infinite where it was not finite
	rate        float64   // learning rate
	scale       float64   // 0: nothing scales the loss
	skipped     bool
	norm        float64 // of the gradients, NaN where it was not computed
	heldOut     float64 // held-out loss after the step, NaN where it was not evaluated
	pace        float64 // units a second since the run began; 0: not known
	memory      int64   // bytes of the arenas; 0: as in the points before
	worst       worstRanges
}

func (c *curves) add(p point) { c.points = append(c.points, p) }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// colors that people with common kinds of color blindness can distinguish (Okabe and Ito)
const (
	blue       = "#0072b2"
	vermillion = "#d55e00"
	green      = "#009e73"
)

// svg draws the loss above the loss scale, whose axis is logarithmic.
func (c *curves) svg() []byte {
	lo, hi := 0.0, 1.0
	if n := len(c.points); n > 0 {
		lo, hi = float64(c.points[0].step), float64(c.points[n-1].step)
	}
	charts := []chart{{title: c.title, label: "loss", series: c.losses()}}
	if s := c.scales(); len(s) > 0 {
		charts = append(charts, chart{label: "loss scale", log: true, series: s})
	}
	return drawCharts(charts, lo, hi)
}

// columns is the largest number of points of a line.
const columns = 400

// each splits the points into at most columns runs of adjacent points, and calls f with each run.
func (c *curves) each(f func(part []point, step float64)) (width int) {
	width = max((len(c.points)+columns-1)/columns, 1)
	for from := 0; from < len(c.points); from += width {
		part := c.points[from:min(from+width, len(c.points))]
		f(part, float64(part[0].step+part[len(part)-1].step)/2)
	}
	return width
}

// losses draws the training loss, smoothed and thinned with a band from its smallest to its largest
// value, and the held-out loss. It omits values that are not finite; the skipped steps on the scale
// show where they are.
func (c *curves) losses() []series {
	training, held := series{name: "training", color: blue}, series{name: "held out", color: vermillion}
	width := c.each(func(part []point, step float64) {
		sum, n, lo, hi := 0.0, 0.0, math.Inf(1), math.Inf(-1)
		for _, p := range part {
			if finite(p.heldOut) {
				held.line = append(held.line, [2]float64{float64(p.step), p.heldOut})
			}
			if finite(p.loss) {
				n++
				sum += (p.loss - sum) / n // running mean
				lo, hi = min(lo, p.loss), max(hi, p.loss)
			}
		}
		if n > 0 {
			training.line = append(training.line, [2]float64{step, sum})
			training.band = append(training.band, [3]float64{step, lo, hi})
		}
	})
	if width > 1 {
		training.name = fmt.Sprintf("training: mean and range of every %d steps", width)
	} else {
		training.band = nil
	}
	var out []series
	for _, s := range []series{training, held} {
		if len(s.line) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// scales draws the loss scale, with marks at skipped steps.
func (c *curves) scales() []series {
	line, skips := series{name: "scale", color: green}, series{name: "skipped", color: vermillion, dotted: true}
	c.each(func(part []point, step float64) {
		lo, hi, skipped := math.Inf(1), 0.0, false
		for _, p := range part {
			if p.scale > 0 && finite(p.scale) {
				lo, hi, skipped = min(lo, p.scale), max(hi, p.scale), skipped || p.skipped
			}
		}
		if hi == 0 {
			return
		}
		line.line = append(line.line, [2]float64{step, lo})
		if hi > lo {
			line.line = append(line.line, [2]float64{step, hi})
		}
		if skipped {
			skips.line = append(skips.line, [2]float64{step, lo})
		}
	})
	var out []series
	for _, s := range []series{line, skips} {
		if len(s.line) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// scaleText formats a loss scale; a power of two is written with its exponent.
func scaleText(x float64) string {
	if frac, exp := math.Frexp(x); frac == 0.5 && (exp > 1 || exp < 0) {
		return fmt.Sprintf("2^%d", exp-1)
	}
	return fmt.Sprintf("%g", x)
}
