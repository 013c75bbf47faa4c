package ptx

// Norm is layer normalisation over the last dimension of Rows×Cols, or RMS normalisation:
// y = (x-mean)·rstd·scale + bias, with rstd = 1/sqrt(var+eps); RMS drops mean and bias.
// Statistics are taken in f32, the variance from deviations.
//
// Forward arguments: x, [residual], scale f32, [bias f32], y, [sum], [mean f32], rstd f32. With
// Residual the normalised row is x+residual, and sum receives it rounded to In.
//
// Backward arguments: dy, x, scale, [mean], rstd, [dresidual], dx, dscale, [dbias]. The last two are
// f32 partial sums of Workers rows of Cols, to be added by a ColSum; dresidual is added to dx.
type Norm struct {
	Name       string
	Rows, Cols int
	In, Out    DType // x (and dx), y (and dy)
	RMS, Bias  bool
	Residual   bool
	Eps        float32
	Workers    int // teams that share the rows, backward each with sums of its own; 0 picks 16·132 or fewer, backward 4·132
}

// Forward generates y and the statistics.
func (s Norm) Forward(fl Flavour) (*Launch, error) {
	r, err := newRows(fl, s.Name, s.Cols, s.In, s.Out)
	if err != nil {
		return nil, err
	}
	b, n := r.b, s.Rows*s.Cols
	p := params{b: b}
	x := p.in("x", s.In, n)
	var res, bias, sum, mean Reg
	if s.Residual {
		res = p.in("residual", s.In, n)
	}
	scale := p.in("scale", Float32, s.Cols)
	if s.Bias {
		bias = p.in("bias", Float32, s.Cols)
	}
	y := p.out("y", s.Out, n)
	if s.Residual {
		sum = p.out("sum", s.In, n)
	}
	if !s.RMS {
		mean = p.out("mean", Float32, s.Rows)
	}
	rstd := p.out("rstd", Float32, s.Rows)
	r.begin()
	workers := s.workers(r.perBlock, 16*132)
	if r.team > 128 { // scale and bias of many columns beside the row would not fit into registers
		workers = s.Rows
	}
	affine := func() (g, sh [][]Reg) { return s.affine(r, scale, bias) }
	if s.Rows > workers { // loaded once for all rows
		g, sh := affine()
		affine = func() ([][]Reg, [][]Reg) { return g, sh }
	}
	r.share(s.Rows, workers, func(row Reg) {
		v := s.input(r, x, res, sum, row)
		m, dev := s.centre(r, v)
		sq := r.sum(func(c, i int) Reg { return b.mul(dev[c][i], dev[c][i]) })
		variance := b.div(sq, Fl(float32(s.Cols)))
		inv := b.Do("rcp.rn.f32", b.Do("sqrt.rn.f32", b.add(variance, Fl(s.Eps))))
		b.If(b.Do("setp.eq.u32", r.lane, I(0)), func() {
			if !s.RMS {
				b.Do("st.global.f32", Addr{Base: b.at(mean, row, 4)}, m)
			}
			b.Do("st.global.f32", Addr{Base: b.at(rstd, row, 4)}, inv)
		})
		g, sh := affine()
		s.scaled(r, row, dev, inv, g, sh, y)
		if s.RMS && r.team > 32 && s.Rows > workers {
			b.Do("bar.sync", I(0)) // the scratch of the sum is free again
		}
	})
	return finish(b, r.grid(workers), p.list)
}

// affine loads the scale and the bias of a thread's columns.
func (s Norm) affine(r *rows, scale, bias Reg) (g, sh [][]Reg) {
	g = r.load(r.colAddr(scale, Float32), Float32)
	if s.Bias {
		sh = r.load(r.colAddr(bias, Float32), Float32)
	}
	return g, sh
}

// input loads the row, adds the residual and stores the sum; what is normalised is the stored sum.
func (s Norm) input(r *rows, x, res, sum, row Reg) [][]Reg {
	b := r.b
	v := r.load(r.rowAddr(x, row, s.In), s.In)
	if !s.Residual {
		return v
	}
	w := r.load(r.rowAddr(res, row, s.In), s.In)
	v = r.mapTile(func(c, i int) Reg { return b.widen(b.narrow(b.add(v[c][i], w[c][i]), s.In), s.In) })
	r.store(r.rowAddr(sum, row, s.In), s.In, v)
	return v
}

// centre is the mean and the deviations from it; RMS keeps the row as it is.
func (s Norm) centre(r *rows, v [][]Reg) (mean Reg, dev [][]Reg) {
	if s.RMS {
		return Reg{}, v
	}
	b := r.b
	mean = b.div(r.sum(func(c, i int) Reg { return v[c][i] }), Fl(float32(s.Cols)))
	return mean, r.mapTile(func(c, i int) Reg { return b.sub(v[c][i], mean) })
}

func (s Norm) scaled(r *rows, row Reg, dev [][]Reg, inv Reg, g, sh [][]Reg, y Reg) {
	b := r.b
	r.store(r.rowAddr(y, row, s.Out), s.Out, r.mapTile(func(c, i int) Reg {
		t := b.mul(b.mul(dev[c][i], inv), g[c][i])
		if s.Bias {
			t = b.add(t, sh[c][i])
		}
		return t
	}))
}

// Backward generates dx and the partial sums of dscale and dbias.
func (s Norm) Backward(fl Flavour) (*Launch, error) {
	r, err := newRows(fl, s.Name, s.Cols, s.In, s.Out)
	if err != nil {
		return nil, err
	}
	b, n := r.b, s.Rows*s.Cols
	workers := s.workers(r.perBlock, backwardWorkers)
	p := params{b: b}
	k := normBack{Norm: s, r: r}
	k.dy, k.x, k.scale = p.in("dy", s.Out, n), p.in("x", s.In, n), p.in("scale", Float32, s.Cols)
	if !s.RMS {
		k.mean = p.in("mean", Float32, s.Rows)
	}
	k.rstd = p.in("rstd", Float32, s.Rows)
	if s.Residual {
		k.dres = p.in("dresidual", s.In, n)
	}
	k.dx = p.out("dx", s.In, n)
	dscale := p.out("dscale", Float32, workers*s.Cols)
	var dbias Reg
	if s.Bias {
		dbias = p.out("dbias", Float32, workers*s.Cols)
	}
	r.begin()
	k.dg, k.db = r.tile(0), r.tile(0)
	k.g = r.load(r.colAddr(k.scale, Float32), Float32)
	r.share(s.Rows, workers, k.row)
	r.store(r.rowAddr(dscale, r.worker, Float32), Float32, k.dg)
	if s.Bias {
		r.store(r.rowAddr(dbias, r.worker, Float32), Float32, k.db)
	}
	return finish(b, r.grid(workers), p.list)
}

// backwardWorkers bounds the partial sums kept if nobody says how many.
const backwardWorkers = 4 * 132

// workers rounds the wanted number of teams to whole blocks.
func (s Norm) workers(perBlock, most int) int {
	w := s.Workers
	if w == 0 {
		w = min(s.Rows, most)
	}
	return ceilDiv(w, perBlock) * perBlock
}

// Partials is how many rows the partial sums of Backward have.
func (s Norm) Partials() (int, error) {
	team, _, _, err := rowShape(s.Cols, s.In, s.Out)
	if err != nil {
		return 0, err
	}
	if team == 32 {
		return s.workers(warpTeams, backwardWorkers), nil
	}
	return s.workers(1, backwardWorkers), nil
}

type normBack struct {
	Norm
	r                                  *rows
	dy, x, scale, mean, rstd, dres, dx Reg
	g, dg, db                          [][]Reg
}

// row adds one row to the partial sums and writes its dx:
// dx = rstd·(dy·g - mean(dy·g) - x̂·mean(dy·g·x̂)).
func (k *normBack) row(row Reg) {
	r, b := k.r, k.r.b
	dy := r.load(r.rowAddr(k.dy, row, k.Out), k.Out)
	x := r.load(r.rowAddr(k.x, row, k.In), k.In)
	inv := b.Do("ld.global.f32", Addr{Base: b.at(k.rstd, row, 4)})
	var mean Reg
	if !k.RMS {
		mean = b.Do("ld.global.f32", Addr{Base: b.at(k.mean, row, 4)})
	}
	hat := r.mapTile(func(c, i int) Reg {
		d := x[c][i]
		if !k.RMS {
			d = b.sub(d, mean)
		}
		return b.mul(d, inv)
	})
	w := r.mapTile(func(c, i int) Reg { return b.mul(dy[c][i], k.g[c][i]) })
	r.each(func(c int) {
		for i := 0; i < r.vec; i++ {
			b.To(k.dg[c][i], "fma.rn.f32", dy[c][i], hat[c][i], k.dg[c][i])
			if k.Bias {
				b.To(k.db[c][i], "add.rn.f32", k.db[c][i], dy[c][i])
			}
		}
	})
	cols := Fl(float32(k.Cols))
	c2 := b.div(r.sum(func(c, i int) Reg { return b.mul(w[c][i], hat[c][i]) }), cols)
	var c1 Reg
	if !k.RMS {
		c1 = b.div(r.sum(func(c, i int) Reg { return w[c][i] }), cols)
	} else if r.team > 32 {
		b.Do("bar.sync", I(0)) // the scratch of the sum is free again
	}
	var add [][]Reg
	if k.Residual {
		add = r.load(r.rowAddr(k.dres, row, k.In), k.In)
	}
	r.store(r.rowAddr(k.dx, row, k.In), k.In, r.mapTile(func(c, i int) Reg {
		d := w[c][i]
		if !k.RMS {
			d = b.sub(d, c1)
		}
		d = b.mul(inv, b.fma(b.Do("neg.f32", hat[c][i]), c2, d))
		if k.Residual {
			d = b.add(d, add[c][i])
		}
		return d
	}))
}
