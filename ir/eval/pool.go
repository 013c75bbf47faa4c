package eval

import (
	"fmt"
	"math"

	"ampc/ir"
)

var poolFns = map[ir.Op]fn{
	ir.OpMaxPool:             maxPool,
	ir.OpMaxPoolGrad:         maxPoolGrad,
	ir.OpAvgPool:             avgPool,
	ir.OpAvgPoolGrad:         avgPoolGrad,
	ir.OpAdaptiveAvgPool:     adaptiveAvgPool,
	ir.OpAdaptiveAvgPoolGrad: adaptiveAvgPoolGrad,
}

// eachWindow calls f for every window of every channel: the offset of its
// result, the batch and channel, and the positions of x it covers.
func (w *window) eachWindow(f func(y, n, c int, p [3]int, cells [][3]int)) {
	if w.n*w.x.c == 0 {
		return
	}
	taps := w.kernel[0] * w.kernel[1] * w.kernel[2]
	for i := range w.y.points() {
		p := point(i, w.y.in)
		var cells [][3]int
		for t := range taps {
			if at, ok := w.source(p, point(t, w.kernel)); ok {
				cells = append(cells, at)
			}
		}
		for n := range w.n {
			for c := range w.x.c {
				f(w.y.at(n, c, p), n, c, p, cells)
			}
		}
	}
}

func maxPool(c *call) error {
	w := windowOf(c.Node)
	x, y, index := c.in[0].F, c.out[0].F, c.out[1].I
	w.eachWindow(func(o, n, ch int, _ [3]int, cells [][3]int) {
		best, at := math.Inf(-1), -1
		for _, p := range cells {
			v := x[w.x.at(n, ch, p)]
			if at < 0 || v > best || v != v && best == best {
				best, at = v, w.x.flat(p)
			}
		}
		y[o], index[o] = best, int64(at)
	})
	return nil
}

func maxPoolGrad(c *call) error {
	w := windowOf(c.Node)
	dy, index, dx := c.in[0].F, c.in[1].I, c.out[0].F
	for n := range w.n {
		for ch := range w.x.c {
			for i := range w.y.points() {
				o := w.y.at(n, ch, point(i, w.y.in))
				if index[o] < 0 || int(index[o]) >= w.x.points() {
					return fmt.Errorf("index %d is outside 0..%d", index[o], w.x.points()-1)
				}
				dx[w.x.at(n, ch, point(int(index[o]), w.x.in))] += dy[o]
			}
		}
	}
	return nil
}

// divisor is what the sum over a window is divided by: the positions it
// covers, with those in the padding (not beyond it) where they count.
func (c *call) divisor(w *window, p [3]int, covered int) float64 {
	if !c.Flag("count_include_pad") {
		return float64(covered)
	}
	pads := c.Ints("pads")
	n := 1
	for i := range p {
		end := 0
		if k := i - 3 + len(pads)/2; k >= 0 {
			end = int(pads[len(pads)/2+k])
		}
		taps := 0
		for t := range w.kernel[i] {
			if p[i]*w.stride[i]+t*w.dil[i]-w.begin[i] < w.x.in[i]+end {
				taps++
			}
		}
		n *= taps
	}
	return float64(n)
}

func avgPool(c *call) error {
	w := windowOf(c.Node)
	x, y := c.in[0].F, c.out[0].F
	w.eachWindow(func(o, n, ch int, p [3]int, cells [][3]int) {
		for _, at := range cells {
			y[o] += x[w.x.at(n, ch, at)]
		}
		y[o] /= c.divisor(&w, p, len(cells))
	})
	return nil
}

func avgPoolGrad(c *call) error {
	w := windowOf(c.Node)
	dy, dx := c.in[0].F, c.out[0].F
	w.eachWindow(func(o, n, ch int, p [3]int, cells [][3]int) {
		d := dy[o] / c.divisor(&w, p, len(cells))
		for _, at := range cells {
			dx[w.x.at(n, ch, at)] += d
		}
	})
	return nil
}

// eachPart calls f for every part of an adaptive pool, as eachWindow does.
func (w *window) eachPart(f func(y, n, c int, cells [][3]int)) {
	if w.n*w.x.c == 0 {
		return
	}
	for i := range w.y.points() {
		p := point(i, w.y.in)
		var lo, size [3]int
		for k := range p {
			lo[k] = p[k] * w.x.in[k] / w.y.in[k]
			size[k] = ((p[k]+1)*w.x.in[k]+w.y.in[k]-1)/w.y.in[k] - lo[k]
		}
		cells := make([][3]int, size[0]*size[1]*size[2])
		for t := range cells {
			cells[t] = point(t, size)
			for k := range lo {
				cells[t][k] += lo[k]
			}
		}
		for n := range w.n {
			for c := range w.x.c {
				f(w.y.at(n, c, p), n, c, cells)
			}
		}
	}
}

func adaptiveAvgPool(c *call) error {
	w := windowOf(c.Node)
	x, y := c.in[0].F, c.out[0].F
	w.eachPart(func(o, n, ch int, cells [][3]int) {
		for _, at := range cells {
			y[o] += x[w.x.at(n, ch, at)] / float64(len(cells))
		}
	})
	return nil
}

func adaptiveAvgPoolGrad(c *call) error {
	w := windowOf(c.Node)
	dy, dx := c.in[0].F, c.out[0].F
	w.eachPart(func(o, n, ch int, cells [][3]int) {
		for _, at := range cells {
			dx[w.x.at(n, ch, at)] += dy[o] / float64(len(cells))
		}
	})
	return nil
}
