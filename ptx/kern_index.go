package ptx

import "fmt"

// Gather reads elements by index along the middle dimension of Outer×N×Inner. Without Elementwise:
// y[o,m,i] = x[o, ids[m], i] with M ids. Elementwise: y[o,m,i] = x[o, ids[o,m,i], i]. A negative id
// counts from the end; one outside gives NaN, or 0 for integers. Arguments: x, ids, y.
type Gather struct {
	Name               string
	Outer, N, M, Inner int
	Elementwise        bool
	IDs                DType // i32 or i64
	In, Out            DType // types of x and y, which agree
}

func (s Gather) check() error {
	if s.Outer < 1 || s.N < 1 || s.M < 1 || s.Inner < 1 || s.Outer*max(s.N, s.M)*s.Inner >= maxCount {
		return fmt.Errorf("ptx: %s: cannot gather %d of %d×%d×%d: it counts to 2^31-1", s.Name, s.M, s.Outer, s.N, s.Inner)
	}
	return nil
}

// ids is the number of ids.
func (s Gather) ids() int {
	if s.Elementwise {
		return s.Outer * s.M * s.Inner
	}
	return s.M
}

// id reads an id as u32 in 0…N-1, or a number with all bits set if it is outside.
func (s Gather) id(b *builder, ids, at Reg) Reg {
	v := b.load(b.at(ids, at, s.IDs.Size()), 0, s.IDs, 1)[0]
	t, bt := "s32", "b32"
	if v.Class == B64 {
		t, bt = "s64", "b64"
	}
	neg := b.Do("setp.lt."+t, v, I(0))
	v = b.Do("selp."+bt, b.Do("add."+t, v, I(s.N)), v, neg)
	ok := b.Do("and.pred", b.Do("setp.ge."+t, v, I(0)), b.Do("setp.lt."+t, v, I(s.N)))
	if v.Class == B64 {
		v = b.Do("cvt.u32.u64", v)
	}
	return b.Do("selp.b32", v, I(0xffffffff), ok)
}

// perElement runs body for each element of Outer×rows×Inner with its coordinates.
func (s Gather) perElement(b *builder, rows int, body func(e, o, row, in Reg)) [3]int {
	n := s.Outer * rows * s.Inner
	e := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(elementThreads), b.special("%tid.x"))
	b.guarded(e, int64(n), func() {
		t := b.Do("div.u32", e, I(s.Inner))
		in := b.Do("mad.lo.u32", t, I(-s.Inner), e)
		o := b.Do("div.u32", t, I(rows))
		body(e, o, b.Do("mad.lo.u32", o, I(-rows), t), in)
	})
	return [3]int{ceilDiv(n, elementThreads), 1, 1}
}

// Forward generates the gather.
func (s Gather) Forward(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := newBuilder(fl, s.Name, elementThreads)
	p := params{b: b}
	x, ids := p.in("x", s.In, s.Outer*s.N*s.Inner), p.in("ids", s.IDs, s.ids())
	y := p.out("y", s.In, s.Outer*s.M*s.Inner)
	grid := s.perElement(b, s.M, func(e, o, m, in Reg) {
		at := m
		if s.Elementwise {
			at = e
		}
		id := s.id(b, ids, at)
		v := b.reg(raw(s.In))
		b.fillNaN(v, s.In)
		b.when(b.Do("setp.lt.u32", id, I(s.N)), func() {
			from := b.Do("mad.lo.u32", b.Do("mad.lo.u32", o, I(s.N), id), I(s.Inner), in)
			b.To(v, "mov."+v.Class.String(), b.load(b.at(x, from, s.In.Size()), 0, s.In, 1)[0])
		})
		b.store(b.at(y, e, s.In.Size()), 0, s.In, []Reg{v})
	})
	return finish(b, grid, p.list)
}
