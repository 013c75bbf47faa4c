package ptx

import (
	"cmp"
	"fmt"
)

// Softmax is y = softmax(scale·x) over the last dimension of Rows×Cols, or its logarithm.
// With Causal the rows are queries of attention: row r sees columns 0 … r mod Queries + Cols -
// Queries, others count as -Inf. Forward refuses rows longer than MaxRow.
//
// Forward arguments: x, y. Backward arguments: dy, y, dx, with dx = scale·y·(dy - Σ dy·y), and for
// the logarithm dx = scale·(dy - e^y·Σ dy). Both may run in place over their first argument.
type Softmax struct {
	Name       string
	Rows, Cols int
	In, Out    DType
	DX         DType // backward: of dx; "": as dy
	Log        bool
	Scale      float32 // 0 means 1
	Causal     bool
	Queries    int
}

func (s Softmax) scale(b *builder, x Reg) Reg {
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

// prepare scales a chunk, and masks the columns that a causal row does not see.
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

// Backward generates dx from dy and y; In is the type of dy, Out the type of y. Rows that do not
// fit into registers are read twice.
func (s Softmax) Backward(fl Flavour) (*Launch, error) {
	var codes [3]*rowElementwise
	for i, d := range []DType{s.In, s.Out, cmp.Or(s.DX, s.In)} {
		g := &Elementwise{Shape: []int64{int64(s.Rows), int64(s.Cols)}, Loads: []Access{{Name: []string{"dy", "y", ""}[i], DType: d}}, Code: []Instr{{Op: "in", Type: Float32}}}
		if i == 2 {
			g.Stores = []Output{{Access: Access{Name: "dx", DType: d}}}
		}
		var err error
		if codes[i], err = planRows(g, s.Rows, s.Cols); err != nil {
			return nil, fmt.Errorf("ptx: %s: %w", s.Name, err)
		}
	}
	r := rowsOver(fl, s.Name, s.Cols, rowVec(s.Cols, codes[:]), goodLane/2) // of two tensors
	b := r.b
	p := params{b: b}
	codes[0].loadParams(&p, 0)
	codes[1].loadParams(&p, 0)
	codes[2].loadParams(&p, 1)
	codes[2].storeParams(&p)
	r.begin()
	r.alone(s.Rows, func(row Reg) {
		dy, y := r.source(codes[0], 0, row), r.source(codes[1], 0, row)
		total := b.floatConst(0)
		r.spots(func(at spot) {
			g, v := dy.at(at), y.at(at)
			for i := range g {
				if s.Log {
					b.To(total, "add.rn.f32", total, g[i])
				} else {
					b.To(total, "fma.rn.f32", g[i], v[i], total)
				}
			}
		})
		total = r.across(total, r.join("add.rn.f32"))
		codes[2].enter(r, row)
		codes[2].through(func(at spot) []Reg {
			out, g, v := make([]Reg, r.vec), dy.at(at), y.at(at)
			for i := range out {
				if s.Log {
					out[i] = s.scale(b, b.sub(g[i], b.mul(b.exp(v[i]), total)))
				} else {
					out[i] = s.scale(b, b.mul(v[i], b.sub(g[i], total)))
				}
			}
			return out
		}, nil)
	})
	return inPlace(finish(b, r.grid(s.Rows), p.list))
}
