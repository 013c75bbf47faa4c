package ptx

import "fmt"

// Scatter stores, or with Add adds, the elements of u, Outer×M×Inner, at rows of y, Outer×N×Inner:
// y[o, ids[o,m,i], i] = u[o,m,i], in the order of m. Of two elements with equal ids the later one
// remains. Ids outside 0 … N-1 are ignored. Arguments: y, u, ids; the elements of y that no id
// names do not change. The result is deterministic, without atomics: one thread writes a column or,
// if Inner is small, one warp.
type Scatter struct {
	Name               string
	Outer, N, M, Inner int
	Add                bool  // u and the sums are f32: y is f32
	IDs                DType // i32 or i64
	In, Out            DType // type of u and y; with Add only of u
}

// Build generates the kernel.
func (s Scatter) Build(fl Flavour) (*Launch, error) {
	if s.Outer < 1 || s.N < 1 || s.M < 1 || s.Inner < 1 || s.Outer*max(s.N, s.M)*s.Inner >= maxCount {
		return nil, fmt.Errorf("ptx: %s: cannot scatter %d of %d×%d×%d: it counts to 2^31-1", s.Name, s.M, s.Outer, s.N, s.Inner)
	}
	if s.Add && s.Out != Float32 || !s.Add && s.In != s.Out {
		return nil, fmt.Errorf("ptx: %s: cannot put %s into %s", s.Name, s.In, s.Out)
	}
	if s.Inner < 32 && s.M > 1 {
		return s.byWarp(fl)
	}
	b := newBuilder(fl, s.Name, elementThreads)
	k := s.open(b)
	n := s.Outer * s.Inner
	column := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(elementThreads), b.special("%tid.x"))
	b.guarded(column, int64(n), func() {
		k.outer, k.inner = b.divmod(column, s.Inner)
		b.loop(I(0), I(s.M), I(1), B32, func(m Reg) {
			from := k.element(m, s.M)
			id := b.readID(k.ids, from, s.IDs, s.N)
			b.when(b.Do("setp.lt.u32", id, I(s.N)), func() { k.put(id, k.take(from)) })
		})
	})
	return inPlace(finish(b, [3]int{ceilDiv(n, elementThreads), 1, 1}, k.p.list))
}

// scattering is the state while one kernel is generated.
type scattering struct {
	Scatter
	b            *builder
	p            params
	u, ids, y    Reg
	outer, inner Reg // the column
}

func (s Scatter) open(b *builder) *scattering {
	k := &scattering{Scatter: s, b: b, p: params{b: b}}
	n := s.Outer * s.M * s.Inner
	k.y = k.p.out("y", s.Out, s.Outer*s.N*s.Inner)
	k.p.list[0].Read = true
	k.u, k.ids = k.p.in("u", s.In, n), k.p.in("ids", s.IDs, n)
	return k
}

// element is the index of row m of the column in a tensor with n rows.
func (k *scattering) element(m Reg, n int) Reg {
	b := k.b
	return b.Do("mad.lo.u32", b.Do("mad.lo.u32", k.outer, I(n), m), I(k.Inner), k.inner)
}

// take loads an element of u: its bits, or with Add its value.
func (k *scattering) take(from Reg) Reg {
	at := k.b.at(k.u, from, k.In.Size())
	if k.Add {
		return k.b.loadF(at, 0, k.In, 1)[0]
	}
	return k.b.load(at, 0, k.In, 1)[0]
}

// put stores v at row id of the column, or adds it there.
func (k *scattering) put(id, v Reg) {
	b := k.b
	at := b.at(k.y, k.element(id, k.N), k.Out.Size())
	if k.Add {
		v = b.add(b.load(at, 0, k.Out, 1)[0], v)
	}
	b.store(at, 0, k.Out, []Reg{v})
}

// byWarp processes 32 elements of a column at a time. Of lanes with equal ids, only the highest
// stores. With Add, they add one after the other, the lowest first.
func (s Scatter) byWarp(fl Flavour) (*Launch, error) {
	r := startRows(fl, s.Name, 1, 32, 1, 0)
	b := r.b
	k := s.open(b)
	r.begin()
	r.alone(s.Outer*s.Inner, func(column Reg) {
		k.outer, k.inner = b.divmod(column, s.Inner)
		b.loop(I(0), I(ceilDiv(s.M, 32)*32), I(32), B32, func(first Reg) {
			m := b.iadd(first, r.lane)
			from := k.element(m, s.M)
			id := b.Do("mov.u32", I(0xffffffff))
			b.when(b.Do("setp.lt.u32", m, I(s.M)), func() { b.To(id, "mov.u32", b.readID(k.ids, from, s.IDs, s.N)) })
			ok := b.Do("setp.lt.u32", id, I(s.N))
			same := b.Do("match.any.sync.b32", id, I(0xffffffff))
			if s.Add {
				k.turns(r.lane, id, from, ok, same)
			} else {
				last := b.Do("setp.eq.u32", b.Do("shr.u32", same, r.lane), I(1))
				b.when(b.Do("and.pred", ok, last), func() { k.put(id, k.take(from)) })
				if s.M > 32 {
					b.Do("bar.warp.sync", I(0xffffffff))
				}
			}
		})
	})
	return inPlace(finish(b, r.grid(s.Outer*s.Inner), k.p.list))
}

// turns makes the lanes with equal ids add one after the other.
func (k *scattering) turns(lane, id, from, ok, same Reg) {
	b := k.b
	lower := b.Do("sub.u32", b.Do("shl.b32", b.Do("mov.u32", I(1)), lane), I(1))
	rank := b.Do("popc.b32", b.Do("and.b32", same, lower))
	rank = b.Do("selp.b32", rank, I(-1), ok)
	turn := b.Do("mov.u32", I(0))
	head, end := b.newLabel(), b.newLabel()
	b.place(head)
	waiting := b.Do("vote.sync.any.pred", b.Do("setp.ge.s32", rank, turn), I(0xffffffff))
	b.When(waiting, false, func() { b.Do("bra", end) })
	b.when(b.Do("setp.eq.u32", rank, turn), func() { k.put(id, k.take(from)) })
	b.Do("bar.warp.sync", I(0xffffffff))
	b.To(turn, "add.u32", turn, I(1))
	b.Do("bra", head)
	b.place(end)
}
