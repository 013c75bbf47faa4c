package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// curves is what a training run records for its picture, one point per step.
type curves struct {
	title string
	loss  plotter.XYs
	held  plotter.XYs
	scale plotter.XYs // empty where nothing scales the loss
	skips plotter.XYs // steps that were skipped, at their scale
}

func (c *curves) add(step int, loss, scale float64, skipped bool) {
	x := float64(step)
	c.loss = append(c.loss, plotter.XY{X: x, Y: loss})
	if scale > 0 {
		c.scale = append(c.scale, plotter.XY{X: x, Y: scale})
		if skipped {
			c.skips = append(c.skips, plotter.XY{X: x, Y: scale})
		}
	}
}

// svg draws the loss above the scale, whose axis is logarithmic.
func (c *curves) svg() ([]byte, error) {
	loss, err := c.lossPlot()
	if err != nil {
		return nil, err
	}
	plots := [][]*plot.Plot{{loss}}
	if len(c.scale) > 0 {
		scale, err := c.scalePlot()
		if err != nil {
			return nil, err
		}
		plots = append(plots, []*plot.Plot{scale})
	}
	canvas := vgsvg.New(16*vg.Centimeter, vg.Length(len(plots))*8*vg.Centimeter)
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadY: 4 * vg.Millimeter, PadRight: 6 * vg.Millimeter, PadTop: 3 * vg.Millimeter}
	for row, cells := range plot.Align(plots, tiles, draw.New(canvas)) {
		plots[row][0].Draw(cells[0])
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("curves: %w", err)
	}
	return b.Bytes(), nil
}

func (c *curves) lossPlot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = c.title
	p.Y.Label.Text = "loss"
	if len(c.scale) == 0 {
		p.X.Label.Text = "step"
	}
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	if err := addLine(p, 0, "training", c.loss); err != nil {
		return nil, err
	}
	return p, addLine(p, 1, "held out", c.held)
}

func (c *curves) scalePlot() (*plot.Plot, error) {
	p := plot.New()
	p.Y.Label.Text = "loss scale"
	p.X.Label.Text = "step"
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = plot.TickerFunc(powersOfTwo)
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	if err := addLine(p, 2, "scale", c.scale); err != nil {
		return nil, err
	}
	// A flat line leaves a logarithmic axis no room.
	p.Y.Min, p.Y.Max = p.Y.Min/2, p.Y.Max*2
	if len(c.skips) == 0 {
		return p, nil
	}
	dots, err := plotter.NewScatter(c.skips)
	if err != nil {
		return nil, err
	}
	dots.GlyphStyle.Color = plotutil.Color(1)
	p.Add(dots)
	p.Legend.Add("skipped", dots)
	return p, nil
}

// powersOfTwo marks a logarithmic axis at the values a loss scale takes, at
// most about eight of them.
func powersOfTwo(lo, hi float64) []plot.Tick {
	from, to := int(math.Ceil(math.Log2(lo))), int(math.Floor(math.Log2(hi)))
	every := max((to-from+7)/8, 1)
	var ticks []plot.Tick
	for e := from; e <= to; e++ {
		t := plot.Tick{Value: math.Exp2(float64(e))}
		if e%every == 0 {
			t.Label = scaleText(t.Value)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// scaleText prints a loss scale: powers of two by their exponent.
func scaleText(x float64) string {
	if frac, exp := math.Frexp(x); frac == 0.5 && exp > 1 {
		return fmt.Sprintf("2^%d", exp-1)
	}
	return fmt.Sprintf("%g", x)
}

// addLine draws the points that are finite; skips shows where the others were.
func addLine(p *plot.Plot, i int, name string, points plotter.XYs) error {
	points = slices.DeleteFunc(slices.Clone(points), func(p plotter.XY) bool { return math.IsNaN(p.Y) || math.IsInf(p.Y, 0) })
	if len(points) == 0 {
		return nil
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("curves: %s: %w", name, err)
	}
	line.Color = plotutil.Color(i)
	p.Add(line)
	p.Legend.Add(name, line)
	return nil
}
