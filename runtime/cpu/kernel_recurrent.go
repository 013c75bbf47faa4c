package cpu

import (
	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// recurrentKernels unroll over time. Each step runs one product for the whole batch, then the
// gates, one row of the batch per task.
var recurrentKernels = map[ir.Op]binder{
	ir.OpLSTM:     bindLSTM,
	ir.OpLSTMGrad: bindLSTMGrad,
	ir.OpGRU:      bindGRU,
	ir.OpGRUGrad:  bindGRUGrad,
	ir.OpRNN:      bindRNN,
	ir.OpRNNGrad:  bindRNNGrad,
}

// recurrence is what these ops share: sizes, the product with r, and the current step.
type recurrence struct {
	c                *call
	steps, batch     int
	directions, h    int
	k                int // number of gates, which the product with r yields
	r                view
	state            []float32 // [B,H]: h forward, its gradient backward
	cell             []float32 // [B,H]: c forward, its gradient backward
	factor           view      // what is multiplied with r, in r's dtype
	product          []float32
	forward, reverse *kern.Gemm // state·r and gates·rᵀ
	row              [][]float32
	// the current step
	t, d, before int // before: the step computed before t, -1 for the first
}

func (c *call) recurrence(seq view) *recurrence {
	q, r := seq.dims(), c.named("r")
	d := r.dims()
	u := &recurrence{c: c, steps: q[0], batch: q[1], directions: d[0], h: d[1], k: d[2] / max(d[1], 1), r: r}
	n := u.batch * u.h
	u.state, u.cell = make([]float32, n), make([]float32, n)
	u.product = c.mem.whole(n * u.k)
	t := r.t.DType
	u.factor = view{ir.T(t, ir.Dim(n*u.k)), c.mem.bytes(int64(n*u.k) * t.Size())}
	u.row = c.scratch(8 * u.h * max(u.k, 4))
	u.forward = &kern.Gemm{M: u.batch, N: u.k * u.h, K: u.h,
		A: kern.Mat{Buf: u.factor.buf(), LD: u.h}, B: kern.Mat{LD: u.k * u.h}, C: kern.Mat{Buf: kern.Floats(u.product), LD: u.k * u.h}}
	u.reverse = &kern.Gemm{M: u.batch, N: u.h, K: u.k * u.h,
		A: kern.Mat{Buf: u.factor.buf(), LD: u.k * u.h}, B: kern.Mat{LD: u.k * u.h, T: true}, C: kern.Mat{Buf: kern.Floats(u.product), LD: u.h}}
	return u
}

// run calls step for every direction's steps in the direction's order, or in reverse order. begin
// prepares a direction, end finishes it.
func (u *recurrence) run(backwards bool, begin, step, end func()) func() {
	return func() {
		for d := range u.directions {
			u.d = d
			begin()
			for i := range u.steps {
				k := i
				if backwards {
					k = u.steps - 1 - i
				}
				u.t, u.before = u.order(k), -1
				if k > 0 {
					u.before = u.order(k - 1)
				}
				step()
			}
			end()
		}
	}
}

// order returns the index of the k-th step in the direction's order.
func (u *recurrence) order(k int) int {
	if u.d == 1 || u.c.Flag("reverse") {
		return u.steps - 1 - k
	}
	return k
}

// at returns where row b of step t starts in a tensor [S,B,D,k·H].
func (u *recurrence) at(t, b, k int) int { return ((t*u.batch+b)*u.directions + u.d) * k * u.h }

// start returns where row b of the direction starts in a tensor [D,B,H].
func (u *recurrence) start(b int) int { return (u.d*u.batch + b) * u.h }

// load widens n elements of v from element at on; an absent v is zeros.
func (u *recurrence) load(dst []float32, v view, at int) {
	if v.absent() {
		clear(dst)
		return
	}
	u.c.m.Load(dst, v.buf().From(at))
}

func (u *recurrence) store(v view, at int, src []float32) { u.c.m.Store(v.buf().From(at), src) }

// initial loads the direction's initial state into dst [B,H].
func (u *recurrence) initial(dst []float32, v view) { u.load(dst, v, u.d*u.batch*u.h) }

// multiply rounds src to r's dtype and multiplies it by r or its transpose.
func (u *recurrence) multiply(g *kern.Gemm, src []float32) {
	u.c.m.Store(u.factor.buf(), src)
	g.B.Buf = u.r.buf().From(u.d * u.h * u.k * u.h)
	u.c.m.Gemm(g)
}

// rows returns a loop over the batch.
func (u *recurrence) rows(f func(row []float32, b int)) func() {
	return u.c.parallel(u.batch, 16*u.h, func(w, b int) { f(u.row[w], b) })
}

// parts splits row into n pieces of H elements.
func (u *recurrence) part(row []float32, i int) []float32 { return row[i*u.h : (i+1)*u.h] }

func nothing() {}

func bindLSTM(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	u, n, p := c.recurrence(c.in[0]), 0, c.m
	n = u.h
	xp, h0, c0 := c.in[0], c.named("h0"), c.named("c0")
	y, cells, gates := c.out[0], c.out[1], c.out[2]
	gate := u.rows(func(row []float32, b int) {
		a, cell, h := row[:4*n], u.cell[b*n:(b+1)*n], u.state[b*n:(b+1)*n]
		u.load(a, xp, u.at(u.t, b, 4))
		p.Binary(kern.Add, a, a, u.product[b*4*n:(b+1)*4*n])
		i, f, g, o, tmp := u.part(a, 0), u.part(a, 1), u.part(a, 2), u.part(a, 3), row[4*n:5*n]
		for _, s := range [3][]float32{i, f, o} {
			p.Unary(kern.Sigmoid, s, s)
		}
		p.Unary(kern.Tanh, g, g)
		p.Binary(kern.Mul, tmp, i, g)
		p.Ternary(kern.MulAdd, cell, f, cell, tmp)
		p.Unary(kern.Tanh, tmp, cell)
		p.Binary(kern.Mul, h, o, tmp)
		u.store(y, u.at(u.t, b, 1), h)
		u.store(cells, u.at(u.t, b, 1), cell)
		u.store(gates, u.at(u.t, b, 4), a)
	})
	begin := func() { u.initial(u.state, h0); u.initial(u.cell, c0) }
	step := func() { u.multiply(u.forward, u.state); gate() }
	return u.run(false, begin, step, nothing), nil
}

func bindLSTMGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	gates, cells, c0 := c.in[1], c.in[2], c.named("c0")
	dy, dc, dgates := c.named("dy"), c.named("dc"), c.named("dgates")
	u := c.recurrence(gates)
	n := u.h
	dxp, dh0, dc0 := c.out[0], c.res(1), c.res(2)
	all := make([]float32, u.batch*4*n)
	gate := u.rows(func(row []float32, b int) {
		g, ext, da := row[:4*n], row[4*n:8*n], all[b*4*n:(b+1)*4*n]
		rest := row[8*n:]
		tc, before, ey, ec := u.part(rest, 0), u.part(rest, 1), u.part(rest, 2), u.part(rest, 3)
		u.load(g, gates, u.at(u.t, b, 4))
		u.load(ext, dgates, u.at(u.t, b, 4))
		u.load(tc, cells, u.at(u.t, b, 1))
		c.m.Unary(kern.Tanh, tc, tc)
		if u.before >= 0 {
			u.load(before, cells, u.at(u.before, b, 1))
		} else {
			u.load(before, c0, u.start(b))
		}
		u.load(ey, dy, u.at(u.t, b, 1))
		u.load(ec, dc, u.at(u.t, b, 1))
		dh, dcell := u.state[b*n:(b+1)*n], u.cell[b*n:(b+1)*n]
		for j := range n {
			i, f, gg, o := g[j], g[n+j], g[2*n+j], g[3*n+j]
			h := dh[j] + ey[j]
			d := dcell[j] + ec[j] + float32(h*o)*(1-float32(tc[j]*tc[j]))
			da[j] = (float32(d*gg) + ext[j]) * slope(i)
			da[n+j] = (float32(d*before[j]) + ext[n+j]) * slope(f)
			da[2*n+j] = (float32(d*i) + ext[2*n+j]) * (1 - float32(gg*gg))
			da[3*n+j] = (float32(h*tc[j]) + ext[3*n+j]) * slope(o)
			dcell[j] = d * f
		}
		u.store(dxp, u.at(u.t, b, 4), da)
	})
	begin := func() { clear(u.state); clear(u.cell) }
	step := func() { gate(); u.multiply(u.reverse, all); copy(u.state, u.product) }
	end := func() { u.finish(dh0, u.state); u.finish(dc0, u.cell) }
	return u.run(true, begin, step, end), nil
}

// finish stores the gradient of the direction's initial state.
func (u *recurrence) finish(v view, src []float32) {
	if !v.absent() {
		u.store(v, u.d*u.batch*u.h, src)
	}
}

// slope is the derivative of a sigmoid, computed from its value.
func slope(y float32) float32 { return y * (1 - y) }

func bindGRU(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	xp, bias, h0 := c.in[0], c.named("bn"), c.named("h0")
	y, gates := c.out[0], c.out[1]
	u, p := c.recurrence(xp), c.m
	n := u.h
	bn := make([]float32, n)
	gate := u.rows(func(row []float32, b int) {
		x, prod, h := row[:3*n], u.product[b*3*n:(b+1)*3*n], u.state[b*n:(b+1)*n]
		saved := row[4*n : 8*n]
		r, z, fresh, q, tmp := u.part(saved, 0), u.part(saved, 1), u.part(saved, 2), u.part(saved, 3), u.part(row, 3)
		u.load(x, xp, u.at(u.t, b, 3))
		p.Binary(kern.Add, saved[:2*n], x[:2*n], prod[:2*n])
		p.Unary(kern.Sigmoid, saved[:2*n], saved[:2*n])
		p.Binary(kern.Add, q, prod[2*n:], bn)
		p.Ternary(kern.MulAdd, fresh, r, q, x[2*n:])
		p.Unary(kern.Tanh, fresh, fresh)
		p.Binary(kern.Sub, tmp, h, fresh) // h = fresh + z·(h − fresh)
		p.Ternary(kern.MulAdd, h, z, tmp, fresh)
		u.store(y, u.at(u.t, b, 1), h)
		u.store(gates, u.at(u.t, b, 4), saved)
	})
	begin := func() {
		u.initial(u.state, h0)
		u.load(bn, bias, u.d*n)
	}
	step := func() { u.multiply(u.forward, u.state); gate() }
	return u.run(false, begin, step, nothing), nil
}

func bindGRUGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	gates, y, h0, dy, dgates := c.in[1], c.in[2], c.named("h0"), c.named("dy"), c.named("dgates")
	dxp, dqs, dh0 := c.out[0], c.out[1], c.res(2)
	u := c.recurrence(gates)
	n := u.h
	all := make([]float32, u.batch*3*n)
	gate := u.rows(func(row []float32, b int) {
		g, ext, rest := row[:4*n], row[4*n:8*n], row[8*n:]
		da, before, ey := rest[:3*n], u.part(rest, 3), u.part(rest, 4)
		u.load(g, gates, u.at(u.t, b, 4))
		u.load(ext, dgates, u.at(u.t, b, 4))
		u.load(ey, dy, u.at(u.t, b, 1))
		if u.before >= 0 {
			u.load(before, y, u.at(u.before, b, 1))
		} else {
			u.load(before, h0, u.start(b))
		}
		dh, products := u.state[b*n:(b+1)*n], all[b*3*n:(b+1)*3*n]
		for j := range n {
			r, z, fresh, q := g[j], g[n+j], g[2*n+j], g[3*n+j]
			h := dh[j] + ey[j]
			da[2*n+j] = (float32(h*(1-z)) + ext[2*n+j]) * (1 - float32(fresh*fresh))
			da[n+j] = (float32(h*(before[j]-fresh)) + ext[n+j]) * slope(z)
			da[j] = (float32(da[2*n+j]*q) + ext[j]) * slope(r)
			products[2*n+j] = float32(da[2*n+j]*r) + ext[3*n+j]
			dh[j] = h * z
		}
		copy(products, da[:2*n])
		u.store(dxp, u.at(u.t, b, 3), da)
		u.store(dqs, u.at(u.t, b, 1), products[2*n:])
	})
	step := func() {
		gate()
		u.multiply(u.reverse, all)
		c.m.Binary(kern.Add, u.state, u.state, u.product[:len(u.state)])
	}
	return u.run(true, func() { clear(u.state) }, step, func() { u.finish(dh0, u.state) }), nil
}

func bindRNN(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	xp, h0, y := c.in[0], c.named("h0"), c.out[0]
	u, p, act := c.recurrence(xp), c.m, kern.Tanh
	n := u.h
	if c.Str("activation") == "relu" {
		act = kern.Relu
	}
	add := u.rows(func(row []float32, b int) {
		x, h := row[:n], u.state[b*n:(b+1)*n]
		u.load(x, xp, u.at(u.t, b, 1))
		p.Binary(kern.Add, x, x, u.product[b*n:(b+1)*n])
		p.Unary(act, h, x)
		u.store(y, u.at(u.t, b, 1), h)
	})
	begin := func() { u.initial(u.state, h0) }
	step := func() { u.multiply(u.forward, u.state); add() }
	return u.run(false, begin, step, nothing), nil
}

func bindRNNGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	y, dy, dxp, dh0 := c.in[1], c.in[2], c.out[0], c.res(1)
	u, relu := c.recurrence(y), c.Str("activation") == "relu"
	n := u.h
	all := make([]float32, u.batch*n)
	slopes := u.rows(func(row []float32, b int) {
		h, d, da := u.part(row, 0), u.part(row, 1), all[b*n:(b+1)*n]
		u.load(h, y, u.at(u.t, b, 1))
		u.load(d, dy, u.at(u.t, b, 1))
		c.m.Binary(kern.Add, d, d, u.state[b*n:(b+1)*n])
		for j, v := range h {
			switch {
			case !relu:
				da[j] = d[j] * (1 - float32(v*v))
			case v > 0:
				da[j] = d[j]
			default:
				da[j] = 0
			}
		}
		u.store(dxp, u.at(u.t, b, 1), da)
	})
	step := func() { slopes(); u.multiply(u.reverse, all); copy(u.state, u.product) }
	return u.run(true, func() { clear(u.state) }, step, func() { u.finish(dh0, u.state) }), nil
}
