package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// reductions emits the sums and extremes of a row: 64 partial results, folded in halves.
func (v *vm) reductions() {
	v.reduce("sum", "x *float32", func(at Mem, mask reg.Register, s vec) {
		x := v.fetch(at, mask)
		VADDPS(x, s, s)
	}, nil)
	v.reduce("dot", "a, b *float32", func(at Mem, mask reg.Register, s vec) {
		a := v.fetch(at, mask)
		b := v.fetch(Mem{Base: v.second, Disp: at.Disp}, mask)
		VFMADD231PS(a, b, s)
	}, nil)
	mean := func() {
		v.scalar = v.new()
		v.splat(paramMem("mean"), v.scalar)
	}
	v.reduce("sumSq", "x *float32, mean float32", func(at Mem, mask reg.Register, s vec) {
		x := v.fetch(at, mask)
		d := v.sub(x, v.scalar)
		if mask != nil { // lanes past the end hold 0-mean
			if v.wide() {
				VMOVAPS_Z(d, mask, d)
			} else {
				VANDPS(d, mask, d)
			}
		}
		VFMADD231PS(d, d, s)
	}, mean)
	v.foldChains()
	v.columns()
	v.normBack()
	v.extreme("maxOf", maxI, VANDPS, 0xff800000)
	v.extreme("minOf", minI, VORPS, 0x7f800000)
}

func (v *vm) fetch(at Mem, mask reg.Register) vec {
	x := v.new()
	if mask == nil {
		VMOVUPS(at, x)
	} else {
		v.loadPart(at, mask, x)
	}
	return x
}

// reduce emits a reduction whose step adds the vector at at to a vector of partial sums.
func (v *vm) reduce(name, params string, step func(at Mem, mask reg.Register, s vec), setup func()) {
	v.text(name, "n int, "+params+") (r float32", "reduces n elements.")
	n := ptrParam("n")
	ptrs := []reg.GPVirtual{}
	for _, p := range []string{"x", "a", "b"} {
		if _, err := Param(p).Resolve(); err == nil {
			ptrs = append(ptrs, ptrParam(p))
		}
	}
	v.second = ptrs[len(ptrs)-1]
	if setup != nil {
		setup()
	}
	sum := v.partials(0)
	v.over(n, ptrs, sum, step)
	Store(v.fold(addI, sum), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// partials are the vectors of 64 partial results, all set to init.
func (v *vm) partials(init bits) []vec {
	s := make([]vec, 64/v.w)
	for i := range s {
		s[i] = v.new()
		if init == 0 {
			v.zero(s[i])
		} else {
			v.splat(v.consts.mem(init), s[i])
		}
	}
	return s
}

// over runs step over n elements, element i into partial result i%64.
func (v *vm) over(n reg.GPVirtual, ptrs []reg.GPVirtual, sum []vec, step func(at Mem, mask reg.Register, s vec)) {
	SUBQ(imm(64), n)
	JL(LabelRef("rest"))
	Label("loop")
	for i, s := range sum {
		step(Mem{Base: ptrs[0], Disp: i * v.size()}, nil, s)
	}
	for _, p := range ptrs {
		ADDQ(imm(256), p)
	}
	SUBQ(imm(64), n)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(imm(64), n)
	JZ(LabelRef("fold"))
	for i, s := range sum {
		left, full := GP64(), GP64()
		MOVQ(n, left)
		MOVQ(U32(uint32(v.w)), full)
		CMPQ(left, full)
		CMOVQGT(full, left)
		step(Mem{Base: ptrs[0], Disp: i * v.size()}, v.lanes(left), s)
		SUBQ(imm(v.w), n)
		JLE(LabelRef("fold"))
	}
	Label("fold")
}

// fold reduces vectors of partial results to one number, in halves. The order is that of the Go form for any width.
func (v *vm) fold(i inst, s []vec) reg.VecVirtual {
	for h := len(s) / 2; h > 0; h /= 2 {
		for j := range h {
			i.plain(s[j+h], s[j], s[j])
		}
	}
	var y reg.Vec = s[0]
	if v.wide() {
		h := YMM()
		VEXTRACTF64X4(Imm(1), s[0], h)
		i.plain(h, s[0].AsY(), h)
		y = h
	}
	x, t := XMM(), XMM()
	VEXTRACTF128(Imm(1), y.AsY(), x)
	i.plain(x, y.AsX(), x)
	VPERMILPS(Imm(0x4e), x, t)
	i.plain(t, x, x)
	u := XMM()
	VPERMILPS(Imm(0xb1), x, u)
	i.plain(u, x, x)
	return x
}

// foldChains emits a foldChainsFunc.
func (v *vm) foldChains() {
	v.text("foldChains", "n int, sum, chains *float32", "is a foldChainsFunc.")
	n, sum, chains := ptrParam("n"), ptrParam("sum"), ptrParam("chains")
	loop("sums", n, func() {
		s := make([]vec, 64/v.w)
		for i := range s {
			s[i] = v.new()
			VMOVUPS(Mem{Base: chains, Disp: i * v.size()}, s[i])
		}
		VMOVSS(v.fold(addI, s), Mem{Base: sum})
		ADDQ(imm(64*4), chains)
		ADDQ(Imm(4), sum)
	})
	VZEROUPPER()
	RET()
}

// extreme emits max or min: NaN if there is one. Both orders of the operands are computed and
// joined bit by bit, which orders the zeros.
func (v *vm) extreme(name string, i inst, join func(...Op), empty bits) {
	v.text(name, "n int, x *float32) (r float32", "is the extreme of n elements, NaN if there is one.")
	n, x := ptrParam("n"), ptrParam("x")
	best, bad, none := v.partials(empty), v.new(), v.new()
	v.zero(bad)
	v.splat(v.consts.mem(empty), none)
	both := inst{plain: func(o ...Op) {
		t := v.like(o[2].(reg.Register))
		i.plain(o[0], o[1], t)
		i.plain(o[1], o[0], o[2])
		join(t, o[2], o[2])
	}}
	v.over(n, []reg.GPVirtual{x}, best, func(at Mem, mask reg.Register, s vec) {
		e := v.fetch(at, mask)
		c := v.cmp(unordered, e, e)
		if v.wide() {
			VMOVAPS(e, c, bad)
		} else {
			VBLENDVPS(c, e, bad, bad)
		}
		if mask != nil && v.wide() {
			VBLENDMPS(e, none, mask, e)
		} else if mask != nil {
			VBLENDVPS(mask, e, none, e)
		}
		both.plain(e, s, s)
	})
	r := v.fold(both, best)
	nan := v.anyNaN(bad)
	TESTQ(nan, nan)
	JZ(LabelRef("end"))
	VMOVSS(v.consts.mem(0x7fc00000), r)
	Label("end")
	Store(r, ReturnIndex(0))
	VZEROUPPER()
	RET()
}
