package ptx

import "fmt"

// Embedding gathers rows of a Vocab×Cols table by Tokens ids.
//
// Forward arguments: table, ids, y of Tokens×Cols; an id outside the table gives NaN.
// Backward arguments: dy, ids, dtable of Vocab×Cols (type Out, sums in f32). Each table row is owned
// by one warp that scans the ids and adds its rows in order: deterministic, no atomics.
type Embedding struct {
	Name                string
	Vocab, Cols, Tokens int
	IDs                 DType // i32 or i64
	In, Out             DType // forward: table and y, which must agree; backward: dy and dtable
}

// readID reads id i as u32; one outside 0 … n-1 becomes all ones.
func (b *Builder) readID(ids, i Reg, d DType, n int) Reg {
	raw := b.load(b.at(ids, i, d.Size()), 0, d, 1)[0]
	if raw.Class == B64 {
		ok := b.Do("setp.lt.u64", raw, I(n))
		return b.Do("selp.b32", b.Do("cvt.u32.u64", raw), I(0xffffffff), ok)
	}
	return b.Do("selp.b32", raw, I(0xffffffff), b.Do("setp.lt.u32", raw, I(n)))
}

func (s Embedding) check() error {
	if s.Vocab < 1 || s.Cols < 1 || s.Tokens < 1 || s.Vocab >= 1<<31 || s.Tokens >= 1<<31 {
		return fmt.Errorf("ptx: %s: cannot embed %d tokens in a table of %d×%d", s.Name, s.Tokens, s.Vocab, s.Cols)
	}
	return nil
}

// Forward generates the gather: one warp for each token, elements moved as bits.
func (s Embedding) Forward(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	r := startRows(fl, s.Name, s.Cols, 32, vecFor(s.Cols, s.In), 0)
	b := r.b
	p := params{b: b}
	table, ids := p.in("table", s.In, s.Vocab*s.Cols), p.in("ids", s.IDs, s.Tokens)
	y := p.out("y", s.In, s.Tokens*s.Cols)
	r.begin()
	size := s.In.Size()
	r.alone(s.Tokens, func(row Reg) {
		id := b.readID(ids, row, s.IDs, s.Vocab)
		ok := b.Do("setp.lt.u32", id, I(s.Vocab))
		from := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", id), I(s.Cols*size), table)
		to := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", row), I(s.Cols*size), y)
		b.strided(r.lane, 32, s.Cols/r.vec, func(i Reg) {
			v := make([]Reg, r.vec)
			for k := range v {
				v[k] = b.Reg(raw(s.In))
				b.fillNaN(v[k], s.In)
			}
			b.If(ok, func() {
				for k, x := range b.load(b.at(from, i, r.vec*size), 0, s.In, r.vec) {
					b.To(v[k], "mov."+x.Class.String(), x)
				}
			})
			b.store(b.at(to, i, r.vec*size), 0, s.In, v)
		})
	})
	return finish(b, r.grid(s.Tokens), p.list)
}

// fillNaN sets a register to the stored bits of NaN, 0 for integers.
func (b *Builder) fillNaN(r Reg, d DType) {
	switch d {
	case Float32:
		b.To(r, "mov.f32", Fl(float32(nan64)))
	case Float64:
		b.To(r, "mov.f64", Db(nan64))
	case Float16, BFloat16:
		b.To(r, "mov.b16", I(0x7fff))
	default:
		b.To(r, "mov."+r.Class.String(), I(0))
	}
}

// Backward generates the scatter-add.
func (s Embedding) Backward(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	vec := vecFor(s.Cols, s.In)
	chunks := min(2, ceilDiv(s.Cols, 32*vec))
	r := startRows(fl, s.Name, s.Cols, 32, vec, chunks)
	b := r.b
	p := params{b: b}
	dy, ids := p.in("dy", s.In, s.Tokens*s.Cols), p.in("ids", s.IDs, s.Tokens)
	dtable := p.out("dtable", s.Out, s.Vocab*s.Cols)
	lane := b.Do("and.b32", b.special("%tid.x"), I(31))
	r.begin()
	slices := ceilDiv(s.Cols, 32*vec*chunks)
	if slices > 1 { // this block's share of the columns
		r.lane = b.Do("mad.lo.u32", b.special("%ctaid.y"), I(32*chunks), lane)
		for c := range r.chunkValid {
			r.chunkValid[c] = Reg{}
			if ((slices-1)*chunks+c+1)*32 > s.Cols/vec {
				r.chunkValid[c] = b.Do("setp.lt.u32", b.iadd(r.lane, I(c*32)), I(s.Cols/vec))
			}
		}
	}
	r.alone(s.Vocab, func(row Reg) {
		acc := r.tile(0)
		b.Loop(I(0), I(ceilDiv(s.Tokens, 32)*32), I(32), B32, func(first Reg) {
			i := b.iadd(first, lane)
			id := b.Do("mov.u32", I(0xffffffff))
			b.If(b.Do("setp.lt.u32", i, I(s.Tokens)), func() { b.To(id, "mov.u32", b.readID(ids, i, s.IDs, s.Vocab)) })
			hits := b.Do("vote.sync.ballot.b32", b.Do("setp.eq.u32", id, row), I(0xffffffff))
			b.eachBit(hits, s.Tokens, func(bit Reg) {
				from := r.rowAddr(dy, b.iadd(first, bit), s.In)
				r.each(func(c int) {
					for k, x := range b.loadF(from, r.chunkOff(c, s.In), s.In, vec) {
						b.To(acc[c][k], "add.rn.f32", acc[c][k], x)
					}
				})
			})
		})
		r.store(r.rowAddr(dtable, row, s.Out), s.Out, acc)
	})
	g := r.grid(s.Vocab)
	g[1] = slices
	return finish(b, g, p.list)
}

// eachBit runs body for every set bit of the n lowest of m, lowest first; m is used up.
func (b *Builder) eachBit(m Reg, n int, body func(bit Reg)) {
	if n == 1 {
		b.If(b.Do("setp.ne.u32", m, I(0)), func() { body(b.Do("mov.u32", I(0))) })
		return
	}
	head, end := b.NewLabel(), b.NewLabel()
	b.Place(head)
	none := b.Do("setp.eq.u32", m, I(0))
	b.When(none, true, func() { b.Do("bra", end) })
	body(b.Do("clz.b32", b.Do("brev.b32", m)))
	b.To(m, "and.b32", m, b.Do("sub.u32", m, I(1)))
	b.Do("bra", head)
	b.Place(end)
}
