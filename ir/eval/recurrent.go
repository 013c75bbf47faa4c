package eval

import (
	"math"

	"ampc/ir"
)

var recurrentFns = map[ir.Op]fn{
	ir.OpLSTM:     lstm,
	ir.OpLSTMGrad: lstmGrad,
	ir.OpGRU:      gru,
	ir.OpGRUGrad:  gruGrad,
	ir.OpRNN:      rnn,
	ir.OpRNNGrad:  rnnGrad,
}

// recurrence is a recurrent node one element of one direction's batch at a time.
type recurrence struct {
	c          *call
	s, b, d, h int
	r          []float64 // [D,H,k·H]
	k          int
}

func (c *call) recurrence(seq *Tensor) *recurrence {
	q, r := seq.dims(), c.named("r")
	d := r.dims()
	return &recurrence{c: c, s: q[0], b: q[1], d: d[0], h: d[1], k: d[2] / max(d[1], 1), r: r.F}
}

// each calls f for every direction and element of the batch, with the steps in
// the order the direction takes them.
func (u *recurrence) each(f func(d, b int, order []int)) {
	order := make([]int, u.s)
	for d := range u.d {
		for i := range order {
			order[i] = i
			if d == 1 || u.c.Flag("reverse") {
				order[i] = u.s - 1 - i
			}
		}
		for b := range u.b {
			f(d, b, order)
		}
	}
}

// at is element b of step t and direction d of x[S,B,D,k·H]; an absent x is zeros.
func (u *recurrence) at(x *Tensor, t, b, d, k int) []float64 {
	if x == nil {
		return make([]float64, k*u.h)
	}
	return x.F[((t*u.b+b)*u.d+d)*k*u.h:][:k*u.h]
}

// start is element b of direction d of x[D,B,H]; an absent x is zeros.
func (u *recurrence) start(x *Tensor, b, d int) []float64 {
	if x == nil {
		return make([]float64, u.h)
	}
	return x.F[(d*u.b+b)*u.h:][:u.h]
}

// asFactor rounds a state to the dtype of r, in which the product reads it.
func (u *recurrence) asFactor(x float64) float64 {
	if u.c.opt.Float64 {
		return x
	}
	return Round(x, u.c.named("r").Type.DType)
}

// product is h·r of direction d.
func (u *recurrence) product(h []float64, d int) []float64 {
	y, n := make([]float64, u.k*u.h), u.k*u.h
	for i, x := range h {
		addTo(y, u.r[(d*u.h+i)*n:][:n], u.asFactor(x))
	}
	return y
}

// back is g·rᵀ of direction d.
func (u *recurrence) back(g []float64, d int) []float64 {
	y, n := make([]float64, u.h), u.k*u.h
	for i, x := range g {
		g[i] = u.asFactor(x)
	}
	for i := range y {
		y[i] = dotProduct(g, u.r[(d*u.h+i)*n:][:n])
	}
	return y
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// slope is the derivative of a sigmoid from its value.
func slope(y float64) float64 { return y * (1 - y) }

func lstm(c *call) error {
	u := c.recurrence(c.in[0])
	n := u.h
	u.each(func(d, b int, order []int) {
		h, cell := u.start(c.operand(2), b, d), append([]float64(nil), u.start(c.operand(3), b, d)...)
		for _, t := range order {
			x, p := u.at(c.in[0], t, b, d, 4), u.product(h, d)
			y, cells, gates := u.at(c.out[0], t, b, d, 1), u.at(c.out[1], t, b, d, 1), u.at(c.out[2], t, b, d, 4)
			for j := range n {
				i, f, g, o := sigmoid(x[j]+p[j]), sigmoid(x[n+j]+p[n+j]), math.Tanh(x[2*n+j]+p[2*n+j]), sigmoid(x[3*n+j]+p[3*n+j])
				cell[j] = f*cell[j] + i*g
				y[j], cells[j] = o*math.Tanh(cell[j]), cell[j]
				gates[j], gates[n+j], gates[2*n+j], gates[3*n+j] = i, f, g, o
			}
			h = y
		}
	})
	return nil
}

func lstmGrad(c *call) error {
	gates, cells := c.in[1], c.in[2]
	u := c.recurrence(gates)
	n := u.h
	u.each(func(d, b int, order []int) {
		dh, dc := u.start(c.out[1], b, d), u.start(c.out[2], b, d) // accumulate from the last step to the first
		for k := u.s - 1; k >= 0; k-- {
			t := order[k]
			before := u.start(c.operand(3), b, d)
			if k > 0 {
				before = u.at(cells, order[k-1], b, d, 1)
			}
			p, ext, cell := u.at(gates, t, b, d, 4), u.at(c.operand(6), t, b, d, 4), u.at(cells, t, b, d, 1)
			dy, dcell := u.at(c.operand(4), t, b, d, 1), u.at(c.operand(5), t, b, d, 1)
			da := make([]float64, 4*n)
			for j := range n {
				i, f, g, o, tc := p[j], p[n+j], p[2*n+j], p[3*n+j], math.Tanh(cell[j])
				dhj := dh[j] + dy[j]
				dcj := dc[j] + dcell[j] + dhj*o*(1-tc*tc)
				da[j] = (dcj*g + ext[j]) * slope(i)
				da[n+j] = (dcj*before[j] + ext[n+j]) * slope(f)
				da[2*n+j] = (dcj*i + ext[2*n+j]) * (1 - g*g)
				da[3*n+j] = (dhj*tc + ext[3*n+j]) * slope(o)
				dc[j] = dcj * f
			}
			copy(u.at(c.out[0], t, b, d, 4), da)
			copy(dh, u.back(da, d))
		}
	})
	return nil
}

func gru(c *call) error {
	u := c.recurrence(c.in[0])
	n := u.h
	u.each(func(d, b int, order []int) {
		h, bn := u.start(c.operand(3), b, d), make([]float64, n)
		if t := c.operand(2); t != nil {
			copy(bn, t.F[d*n:])
		}
		for _, t := range order {
			x, p := u.at(c.in[0], t, b, d, 3), u.product(h, d)
			y, gates := u.at(c.out[0], t, b, d, 1), u.at(c.out[1], t, b, d, 4)
			for j := range n {
				r, z, q := sigmoid(x[j]+p[j]), sigmoid(x[n+j]+p[n+j]), p[2*n+j]+bn[j]
				fresh := math.Tanh(x[2*n+j] + r*q)
				y[j] = (1-z)*fresh + z*h[j]
				gates[j], gates[n+j], gates[2*n+j], gates[3*n+j] = r, z, fresh, q
			}
			h = y
		}
	})
	return nil
}

func gruGrad(c *call) error {
	gates, y := c.in[1], c.in[2]
	u := c.recurrence(gates)
	n := u.h
	u.each(func(d, b int, order []int) {
		dh := u.start(c.out[2], b, d)
		for k := u.s - 1; k >= 0; k-- {
			t := order[k]
			before := u.start(c.operand(3), b, d)
			if k > 0 {
				before = u.at(y, order[k-1], b, d, 1)
			}
			p, ext, dy := u.at(gates, t, b, d, 4), u.at(c.operand(5), t, b, d, 4), u.at(c.operand(4), t, b, d, 1)
			da, dq := u.at(c.out[0], t, b, d, 3), u.at(c.out[1], t, b, d, 1)
			products := make([]float64, 3*n)
			for j := range n {
				r, z, fresh, q := p[j], p[n+j], p[2*n+j], p[3*n+j]
				dhj := dh[j] + dy[j]
				da[2*n+j] = (dhj*(1-z) + ext[2*n+j]) * (1 - fresh*fresh)
				da[n+j] = (dhj*(before[j]-fresh) + ext[n+j]) * slope(z)
				da[j] = (da[2*n+j]*q + ext[j]) * slope(r)
				dq[j] = da[2*n+j]*r + ext[3*n+j]
				dh[j] = dhj * z
			}
			copy(products, da[:2*n])
			copy(products[2*n:], dq)
			addTo(dh, u.back(products, d), 1)
		}
	})
	return nil
}

func rnn(c *call) error {
	u := c.recurrence(c.in[0])
	act := math.Tanh
	if c.Str("activation") == "relu" {
		act = relu
	}
	u.each(func(d, b int, order []int) {
		h := u.start(c.operand(2), b, d)
		for _, t := range order {
			x, p, y := u.at(c.in[0], t, b, d, 1), u.product(h, d), u.at(c.out[0], t, b, d, 1)
			for j := range y {
				y[j] = act(x[j] + p[j])
			}
			h = y
		}
	})
	return nil
}

// relu of NaN is NaN.
func relu(x float64) float64 {
	if x <= 0 {
		return 0
	}
	return x
}

func rnnGrad(c *call) error {
	y := c.in[1]
	u := c.recurrence(y)
	u.each(func(d, b int, order []int) {
		dh := u.start(c.out[1], b, d)
		for k := u.s - 1; k >= 0; k-- {
			t := order[k]
			h, dy, da := u.at(y, t, b, d, 1), u.at(c.in[2], t, b, d, 1), u.at(c.out[0], t, b, d, 1)
			for j, v := range h {
				switch {
				case c.Str("activation") != "relu":
					da[j] = (dh[j] + dy[j]) * (1 - v*v)
				case v > 0:
					da[j] = dh[j] + dy[j]
				default:
					da[j] = 0
				}
			}
			copy(dh, u.back(append([]float64(nil), da...), d))
		}
	})
	return nil
}
