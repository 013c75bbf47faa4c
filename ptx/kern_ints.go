package ptx

import "fmt"

// IntReduce folds Outer×N×Inner integers over N: sum (wrapping), max or min. Arguments: x, y, of
// one type. One warp computes each result in 64-bit arithmetic; the store truncates it to the type.
type IntReduce struct {
	Name            string
	Op              string // sum max min
	Outer, N, Inner int
	DType           DType // i32, i64 or u8
}

// Build generates the kernel.
func (s IntReduce) Build(fl Flavour) (*Launch, error) {
	op := map[string]string{"sum": "add.s64", "max": "max.s64", "min": "min.s64"}[s.Op]
	n := s.Outer * s.Inner
	if op == "" || n < 1 || s.N < 1 || n*s.N >= maxCount {
		return nil, fmt.Errorf("ptx: %s: cannot fold %d×%d×%d integers by %q: it counts to 2^31-1", s.Name, s.Outer, s.N, s.Inner, s.Op)
	}
	r := startRows(fl, s.Name, s.N, 32, 1, 0)
	b := r.b
	p := params{b: b}
	x, y := p.in("x", s.DType, n*s.N), p.out("y", s.DType, n)
	r.begin()
	size := s.DType.Size()
	r.alone(n, func(row Reg) {
		o, in := b.divmod(row, s.Inner)
		first := b.Do("mad.lo.u32", o, I(s.N*s.Inner), in)
		at := func(i Reg) Reg { return b.integer(b.at(x, b.Do("mad.lo.u32", i, I(s.Inner), first), size), s.DType) }
		acc := b.reg(B64)
		switch {
		case s.N >= 32:
			b.To(acc, "mov.s64", at(r.lane))
			b.strided(r.lane, 32, s.N-32, func(i Reg) { b.To(acc, op, acc, at(b.iadd(i, I(32)))) })
		case s.Op == "sum":
			b.To(acc, "mov.s64", I(0))
			b.strided(r.lane, 32, s.N, func(i Reg) { b.To(acc, "mov.s64", at(i)) })
		default: // max and min may count an element twice
			b.To(acc, "mov.s64", at(b.Do("min.u32", r.lane, I(s.N-1))))
		}
		total := acc
		for d := 16; d > 0; d /= 2 {
			total = b.Do(op, total, b.neighbour(total, d))
		}
		b.when(b.Do("setp.eq.u32", r.lane, I(0)), func() {
			out := total
			switch s.DType {
			case Int32:
				out = b.Do("cvt.u32.u64", total)
			case Uint8:
				out = b.Do("cvt.u16.u64", total)
			}
			b.store(b.at(y, row, size), 0, s.DType, []Reg{out})
		})
	})
	return finish(b, r.grid(n), p.list)
}

// integer reads an element as a 64-bit number.
func (b *builder) integer(addr Reg, d DType) Reg {
	v := b.load(addr, 0, d, 1)[0]
	switch d {
	case Int32:
		return b.Do("cvt.s64.s32", v)
	case Uint8:
		return b.Do("cvt.u64.u16", v)
	}
	return v
}
