package cpu

import "math"

// bindRope rotates pairs by the angles of their position. Angles are in float64. Without an operand
// for positions they are computed once.
func bindRope(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	x, y, pos := c.in[0], c.out[0], c.arg(1)
	d := x.dims()
	width, seq := d[len(d)-1], d[len(d)-2]
	dims := int(c.Int("dims"))
	if dims == 0 {
		dims = width
	}
	frequency := make([]float64, dims/2)
	for i := range frequency {
		frequency[i] = math.Pow(c.Float("base"), -2*float64(i)/float64(dims))
		if c.Flag("inverse") {
			frequency[i] = -frequency[i]
		}
	}
	image := 1
	for _, n := range d[1 : len(d)-1] {
		image *= n
	}
	tables := 1 // positions: one sequence for all images, or one each
	if !pos.absent() && pos.t.Shape.Rank() > 1 {
		tables = d[0]
	}
	table := make([]float32, 2*tables*seq*len(frequency))
	fillTable := c.parallel(tables*seq, 64*len(frequency), func(_, i int) {
		p := float64(i % seq)
		if !pos.absent() {
			p = float64(pos.int(i))
		}
		row := table[2*i*len(frequency):]
		for k, f := range frequency {
			sin, cos := math.Sincos(p * f)
			row[2*k], row[2*k+1] = float32(sin), float32(cos)
		}
	})
	interleaved := c.Flag("interleaved")
	rows := c.scratch(width)
	total := 0
	if width > 0 {
		total = x.len() / width
	}
	turn := c.parallel(total, 4*width, func(w, i int) {
		at := i % seq
		if tables > 1 {
			at += i / image * seq
		}
		row, t := rows[w], table[2*at*len(frequency):]
		c.m.Load(row, x.buf().From(i*width))
		for k := range frequency {
			lo, hi := k, k+dims/2
			if interleaved {
				lo, hi = 2*k, 2*k+1
			}
			sin, cos, a, b := t[2*k], t[2*k+1], row[lo], row[hi]
			row[lo] = float32(a*cos) - float32(b*sin)
			row[hi] = float32(a*sin) + float32(b*cos)
		}
		c.m.Store(y.buf().From(i*width), row)
	})
	if pos.absent() {
		fillTable()
		return turn, nil
	}
	return func() {
		fillTable()
		turn()
	}, nil
}
