package ptx

import "fmt"

// Transpose swaps the last two dimensions of Batch×Rows×Cols. Arguments: x, y. Elements of any
// type are moved as bits through a padded tile of shared memory.
type Transpose struct {
	Name              string
	Batch, Rows, Cols int
	DType             DType
}

const tileSide = 32

// Build generates the kernel, one 32×32 tile for each block of 256 threads.
func (s Transpose) Build(fl Flavour) (*Launch, error) {
	if s.Batch < 1 || s.Rows < 1 || s.Cols < 1 || s.Batch > 65535 || ceilDiv(s.Rows, tileSide) > 65535 {
		return nil, fmt.Errorf("ptx: %s: cannot transpose %d×%d×%d", s.Name, s.Batch, s.Rows, s.Cols)
	}
	b := NewBuilder(fl, s.Name, tileSide*8)
	b.counts("columns", s.Rows, s.Cols)
	p := params{b: b}
	n := s.Batch * s.Rows * s.Cols
	x, y := p.in("x", s.DType, n), p.out("y", s.DType, n)
	size := s.DType.Size()
	sh := b.Shared("tile", 8, tileSide*(tileSide+1)*size)
	tid := b.special("%tid.x")
	lane, warp := b.Do("and.b32", tid, I(31)), b.Do("shr.u32", tid, I(5))
	col0, row0 := b.imul(b.special("%ctaid.x"), I(tileSide)), b.imul(b.special("%ctaid.y"), I(tileSide))
	skip := b.Do("mul.lo.u64", b.Do("cvt.u64.u32", b.special("%ctaid.z")), I(s.Rows*s.Cols*size))
	x, y = b.Do("add.u64", x, skip), b.Do("add.u64", y, skip)
	slot := func(row, col Reg) Reg {
		return b.Do("mad.lo.u32", b.Do("mad.lo.u32", row, I(tileSide+1), col), I(size), sh)
	}
	s.sweep(b, lane, warp, row0, col0, s.Rows, s.Cols, x, func(addr, r Reg) {
		b.storeTo("shared", slot(r, lane), 0, s.DType, b.load(addr, 0, s.DType, 1))
	})
	b.Do("bar.sync", I(0))
	s.sweep(b, lane, warp, col0, row0, s.Cols, s.Rows, y, func(addr, r Reg) {
		b.store(addr, 0, s.DType, b.loadFrom("shared", slot(lane, r), 0, s.DType, 1))
	})
	grid := [3]int{ceilDiv(s.Cols, tileSide), ceilDiv(s.Rows, tileSide), s.Batch}
	return finish(b, grid, p.list)
}

// sweep visits the thread's four elements of the tile at (row0, col0) of a rows×cols matrix. body
// gets the element's address and its row in the tile; its column is the lane.
func (s Transpose) sweep(b *Builder, lane, warp, row0, col0 Reg, rows, cols int, base Reg, body func(addr, r Reg)) {
	col := b.iadd(col0, lane)
	inCols := b.below(col, cols, cols%tileSide == 0)
	for k := 0; k < min(rows, tileSide); k += 8 {
		r := b.iadd(warp, I(k))
		row := b.iadd(row0, r)
		inRows := b.below(row, rows, rows%tileSide == 0 || k+8 <= rows%tileSide)
		b.where(b.both(inCols, inRows), func() {
			at := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", row), I(cols*s.DType.Size()), base)
			body(b.at(at, col, s.DType.Size()), r)
		})
	}
}

// GradStats reads a flat arena of N scaled gradients once: the square sum of g·inv and whether any
// g is Inf or NaN, in Blocks partial results.
// Arguments: g, inv f32[], sumsq f32[Blocks], bad u8[Blocks].
//
// Finish joins the partial results of one or more arenas (Parts in all, laid out one after the
// other): norm = sqrt(sum), found = any bad or norm not finite.
// Arguments: sumsq f32[Parts], bad u8[Parts], norm f32[], found bool[].
type GradStats struct {
	Name   string
	N      int
	In     DType
	Blocks int // 0 picks 8·132 or fewer
	Parts  int
}

const statThreads = 256

// partials is how many partial results Build writes.
func (s GradStats) partials() int {
	if s.Blocks > 0 {
		return s.Blocks
	}
	return min(ceilDiv(s.N, statThreads*8), 8*132)
}

// Build generates the pass over the arena.
func (s GradStats) Build(fl Flavour) (*Launch, error) {
	if s.N < 1 {
		return nil, fmt.Errorf("ptx: %s: no gradients", s.Name)
	}
	blocks := s.partials()
	vec := min(8, 16/s.In.Size())
	b := NewBuilder(fl, s.Name, statThreads)
	p := params{b: b}
	g, inv := p.in("g", s.In, s.N), p.in("inv", Float32, 1)
	sumsq, bad := p.out("sumsq", Float32, blocks), p.out("bad", Uint8, blocks)
	tid := b.special("%tid.x")
	mine := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(statThreads), tid)
	scale := b.Do("ld.global.f32", Addr{Base: inv})
	acc, top := b.floatConst(0), b.Do("mov.u32", I(0))
	take := func(addr Reg, n int) {
		v, m := acc, top
		for _, x := range b.loadF(addr, 0, s.In, n) {
			m = b.Do("max.u32", m, b.Do("and.b32", b.bits(x), I(0x7fffffff)))
			u := b.mul(x, scale)
			v = b.fma(u, u, v)
		}
		b.To(acc, "mov.f32", v)
		b.To(top, "mov.u32", m)
	}
	b.strided(b.Do("cvt.u64.u32", mine), blocks*statThreads, s.N/vec, func(i Reg) {
		take(b.Do("mad.lo.u64", i, I(vec*s.In.Size()), g), vec)
	})
	if tail := s.N % vec; tail > 0 {
		b.when(b.Do("setp.lt.u32", mine, I(tail)), func() {
			e := b.Do("add.u64", b.Do("cvt.u64.u32", mine), I(s.N-tail))
			take(b.Do("mad.lo.u64", e, I(s.In.Size()), g), 1)
		})
	}
	total := b.blockFold(acc, tid, statThreads, "sums", func(x, y Reg) Reg { return b.add(x, y) })
	worst := b.blockFold(top, tid, statThreads, "tops", func(x, y Reg) Reg { return b.Do("max.u32", x, y) })
	b.when(b.Do("setp.eq.u32", tid, I(0)), func() {
		block := b.special("%ctaid.x")
		b.Do("st.global.f32", Addr{Base: b.at(sumsq, block, 4)}, total)
		flag := b.Do("selp.b16", I(1), I(0), b.Do("setp.ge.u32", worst, I(0x7f800000)))
		b.Do("st.global.u8", Addr{Base: b.at(bad, block, 1)}, flag)
	})
	return finish(b, [3]int{blocks, 1, 1}, p.list)
}

// Finish generates the one-block kernel that joins partial results.
func (s GradStats) Finish(fl Flavour) (*Launch, error) {
	if s.Parts < 1 {
		return nil, fmt.Errorf("ptx: %s: no partial results", s.Name)
	}
	b := NewBuilder(fl, s.Name, statThreads)
	p := params{b: b}
	sumsq, bad := p.in("sumsq", Float32, s.Parts), p.in("bad", Uint8, s.Parts)
	norm, found := p.out("norm", Float32, 1), p.out("found", Bool, 1)
	tid := b.special("%tid.x")
	acc, any := b.floatConst(0), b.Do("mov.u32", I(0))
	b.strided(tid, statThreads, s.Parts, func(i Reg) {
		b.To(acc, "add.rn.f32", acc, b.Do("ld.global.f32", Addr{Base: b.at(sumsq, i, 4)}))
		flag := b.Do("ld.global.u8", Addr{Base: b.at(bad, i, 1)})
		b.To(any, "or.b32", any, b.Do("cvt.u32.u16", flag))
	})
	total := b.blockFold(acc, tid, statThreads, "sums", func(x, y Reg) Reg { return b.add(x, y) })
	some := b.blockFold(any, tid, statThreads, "flags", func(x, y Reg) Reg { return b.Do("or.b32", x, y) })
	b.when(b.Do("setp.eq.u32", tid, I(0)), func() {
		n := b.Do("sqrt.rn.f32", total)
		b.Do("st.global.f32", Addr{Base: norm}, n)
		isBad := b.Do("or.pred", b.Do("setp.ne.u32", some, I(0)), b.Do("not.pred", b.Do("testp.finite.f32", n)))
		b.Do("st.global.u8", Addr{Base: found}, b.Do("selp.b16", I(1), I(0), isBad))
	})
	return finish(b, [3]int{1, 1, 1}, p.list)
}
