package ptx

// Softmax is y = softmax(scale·x) over the last dimension of Rows×Cols, or its logarithm.
// With Causal the rows are queries of attention: row r sees columns 0 … r mod Queries + Cols -
// Queries, others count as -Inf. Rows longer than MaxRow are refused.
//
// Forward arguments: x, y. Backward arguments: dy, y, dx, with dx = scale·y·(dy - Σ dy·y), and for
// the logarithm dx = scale·(dy - e^y·Σ dy). Both may run in place over their first argument.
type Softmax struct {
	Name       string
	Rows, Cols int
	In, Out    DType
	Log        bool
	Scale      float32 // 0 means 1
	Causal     bool
	Queries    int
}

func (s Softmax) scale(b *Builder, x Reg) Reg {
	if s.Scale == 0 || s.Scale == 1 {
		return x
	}
	return b.mul(x, Fl(s.Scale))
}

// Forward generates y from x.
func (s Softmax) Forward(fl Flavour) (*Launch, error) {
	r, err := newRows(fl, s.Name, s.Cols, s.In, s.Out)
	if err != nil {
		return nil, err
	}
	b := r.b
	p := params{b: b}
	x, y := p.in("x", s.In, s.Rows*s.Cols), p.out("y", s.Out, s.Rows*s.Cols)
	r.begin()
	r.alone(s.Rows, func(row Reg) {
		v := r.load(r.rowAddr(x, row, s.In), s.In)
		r.each(func(c int) { s.prepare(r, row, c, v[c]) })
		m := r.max(func(c, i int) Reg { return v[c][i] })
		shifted := r.mapTile(func(c, i int) Reg { return b.sub(v[c][i], m) })
		if s.Log {
			l := b.log(r.sum(func(c, i int) Reg { return b.expDown(shifted[c][i]) }))
			r.store(r.rowAddr(y, row, s.Out), s.Out, r.mapTile(func(c, i int) Reg { return b.sub(shifted[c][i], l) }))
			return
		}
		e := r.mapTile(func(c, i int) Reg { return b.expDown(shifted[c][i]) })
		inv := b.Do("rcp.rn.f32", r.sum(func(c, i int) Reg { return e[c][i] }))
		r.store(r.rowAddr(y, row, s.Out), s.Out, r.mapTile(func(c, i int) Reg { return b.mul(e[c][i], inv) }))
	})
	return inPlace(finish(b, r.grid(s.Rows), p.list))
}

// prepare scales a chunk and masks the columns a causal row does not see.
func (s Softmax) prepare(r *rows, row Reg, c int, v []Reg) {
	b := r.b
	for i := range v {
		v[i] = s.scale(b, v[i])
	}
	if !s.Causal {
		return
	}
	last := b.iadd(b.Do("rem.u32", row, I(s.Queries)), I(s.Cols-s.Queries))
	first := b.imul(b.iadd(r.lane, I(c*r.team)), I(r.vec))
	for i := range v {
		hidden := b.Do("setp.gt.s32", b.iadd(first, I(i)), last)
		v[i] = b.Do("selp.f32", Fl(float32(-posInf)), v[i], hidden)
	}
}

// Backward generates dx from dy and y; In is the type of dx and dy, Out the type of y.
func (s Softmax) Backward(fl Flavour) (*Launch, error) {
	r, err := newRows(fl, s.Name, s.Cols, s.In, s.Out)
	if err != nil {
		return nil, err
	}
	b := r.b
	p := params{b: b}
	n := s.Rows * s.Cols
	dy, y, dx := p.in("dy", s.In, n), p.in("y", s.Out, n), p.out("dx", s.In, n)
	r.begin()
	r.alone(s.Rows, func(row Reg) {
		g := r.load(r.rowAddr(dy, row, s.In), s.In)
		v := r.load(r.rowAddr(y, row, s.Out), s.Out)
		var out [][]Reg
		if s.Log {
			total := r.sum(func(c, i int) Reg { return g[c][i] })
			out = r.mapTile(func(c, i int) Reg { return s.scale(b, b.sub(g[c][i], b.mul(b.exp(v[c][i]), total))) })
		} else {
			dot := r.sum(func(c, i int) Reg { return b.mul(g[c][i], v[c][i]) })
			out = r.mapTile(func(c, i int) Reg { return s.scale(b, b.mul(v[c][i], b.sub(g[c][i], dot))) })
		}
		r.store(r.rowAddr(dx, row, s.In), s.In, out)
	})
	return inPlace(finish(b, r.grid(s.Rows), p.list))
}
