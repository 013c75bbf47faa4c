package ptx

import (
	"fmt"
	"math"
)

// fold describes how a reduction starts, takes an element and joins two results.
type fold struct {
	start float32
	take  func(b *Builder, acc, x Reg) Reg
	join  func(b *Builder, x, y Reg) Reg
}

func plain(op string) func(b *Builder, x, y Reg) Reg {
	return func(b *Builder, x, y Reg) Reg { return b.Do(op+".rn.f32", x, y) }
}

// folds are the reductions by name; max and min give NaN if any element is NaN.
var folds = map[string]fold{
	"sum":   {0, plain("add"), plain("add")},
	"prod":  {1, plain("mul"), plain("mul")},
	"max":   {float32(math.Inf(-1)), (*Builder).maxNaN, (*Builder).maxNaN},
	"min":   {float32(math.Inf(1)), (*Builder).minNaN, (*Builder).minNaN},
	"l1":    {0, func(b *Builder, acc, x Reg) Reg { return b.add(acc, b.Do("abs.f32", x)) }, plain("add")},
	"sumsq": {0, func(b *Builder, acc, x Reg) Reg { return b.fma(x, x, acc) }, plain("add")},
}

// RowReduce reduces each row of Rows×Cols to Split values in f32 arithmetic, each over a contiguous
// range of columns, and multiplies by Scale (0 means 1); Root takes the square root first.
// Arguments: x, y of Rows×Split. A long row is reduced in two launches: Split > 1, then a second
// RowReduce over the Split columns with the joining operation (sum for l1 and sumsq).
type RowReduce struct {
	Name       string
	Op         string // sum prod max min l1 sumsq
	Rows, Cols int
	Split      int
	In, Out    DType
	Scale      float32
	Root       bool
}

// Build generates the kernel.
func (s RowReduce) Build(fl Flavour) (*Launch, error) {
	f, ok := folds[s.Op]
	if !ok {
		return nil, fmt.Errorf("ptx: %s: unknown reduction %q", s.Name, s.Op)
	}
	split := max(s.Split, 1)
	if s.Rows < 1 || s.Cols < 1 || split > 65535 || split > s.Cols {
		return nil, fmt.Errorf("ptx: %s: cannot reduce %d×%d in %d parts", s.Name, s.Rows, s.Cols, split)
	}
	vec := vecFor(s.Cols, s.In)
	part := ceilDiv(s.Cols/vec, split) // vectors in one part
	team := 32
	for team < 512 && team*2 <= part {
		team *= 2
	}
	r := startRows(fl, s.Name, s.Cols, team, vec, 0)
	b := r.b
	p := params{b: b}
	x, y := p.in("x", s.In, s.Rows*s.Cols), p.out("y", s.Out, s.Rows*split)
	r.begin()
	slice := b.special("%ctaid.y")
	r.alone(s.Rows, func(row Reg) {
		acc := b.konst(f.start)
		base := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", row), I(s.Cols*s.In.Size()), x)
		b.slice(r.lane, slice, team, s.Cols/vec, split, func(i Reg) {
			v := acc
			for _, e := range b.loadF(b.at(base, i, vec*s.In.Size()), 0, s.In, vec) {
				v = f.take(b, v, e)
			}
			b.To(acc, "mov.f32", v)
		})
		total := s.finish(b, r.across(acc, func(x, y Reg) Reg { return f.join(b, x, y) }))
		b.If(b.Do("setp.eq.u32", r.lane, I(0)), func() {
			at := row
			if split > 1 {
				at = b.Do("mad.lo.u32", row, I(split), slice)
			}
			b.storeF(b.at(y, at, s.Out.Size()), 0, s.Out, []Reg{total})
		})
	})
	g := r.grid(s.Rows)
	g[1] = split
	return finish(b, g, p.list)
}

// slice runs body for i = lane, lane+team, … of one of the parts that n elements are split into.
func (b *Builder) slice(lane, which Reg, team, n, split int, body func(i Reg)) {
	if split == 1 {
		b.strided(lane, team, n, body)
		return
	}
	part := ceilDiv(n, split)
	first := b.imul(which, I(part))
	last := b.Do("min.u32", b.iadd(first, I(part)), I(n))
	switch first = b.iadd(first, lane); {
	case part == team && part*split == n:
		body(first)
	case part <= team:
		b.If(b.Do("setp.lt.u32", first, last), func() { body(first) })
	default:
		b.Loop(first, last, I(team), B32, body)
	}
}

func (s RowReduce) finish(b *Builder, x Reg) Reg {
	if s.Root {
		x = b.Do("sqrt.rn.f32", x)
	}
	if s.Scale != 0 && s.Scale != 1 {
		x = b.mul(x, Fl(s.Scale))
	}
	return x
}

// ColReduce reduces Outer×N×Inner over N in f32 arithmetic. With Split > 1 the result has
// Outer×Split×Inner elements, each over a contiguous range of N. Arguments: x, y.
type ColReduce struct {
	Name            string
	Op              string
	Outer, N, Inner int
	Split           int
	In, Out         DType
	Scale           float32
}

const (
	colLanes = 32 // columns of a block
	colRows  = 8  // rows of a block handled side by side
)

// Build generates the kernel: a block takes 32 columns, its eight warps every eighth row, and their
// sums meet in shared memory in a fixed order.
func (s ColReduce) Build(fl Flavour) (*Launch, error) {
	f, ok := folds[s.Op]
	if !ok {
		return nil, fmt.Errorf("ptx: %s: unknown reduction %q", s.Name, s.Op)
	}
	split := max(s.Split, 1)
	if s.Outer < 1 || s.N < 1 || s.Inner < 1 || s.Outer > 65535 || split > 65535 {
		return nil, fmt.Errorf("ptx: %s: cannot reduce %d×%d×%d in %d parts", s.Name, s.Outer, s.N, s.Inner, split)
	}
	b := NewBuilder(fl, s.Name, colLanes*colRows)
	p := params{b: b}
	x, y := p.in("x", s.In, s.Outer*s.N*s.Inner), p.out("y", s.Out, s.Outer*split*s.Inner)
	tid := b.special("%tid.x")
	lane, warp := b.Do("and.b32", tid, I(31)), b.Do("shr.u32", tid, I(5))
	col := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(colLanes), lane)
	slice, outer := b.special("%ctaid.y"), b.special("%ctaid.z")
	acc := b.konst(f.start)
	inside := b.below(col, s.Inner, s.Inner%colLanes == 0)
	start := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", outer), I(s.N*s.Inner*s.In.Size()), b.at(x, col, s.In.Size()))
	b.where(inside, func() {
		b.slice(warp, slice, colRows, s.N, split, func(i Reg) {
			at := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", i), I(s.Inner*s.In.Size()), start)
			b.To(acc, "mov.f32", f.take(b, acc, b.loadF(at, 0, s.In, 1)[0]))
		})
	})
	sh := b.Shared("parts", 4, 4*colLanes*colRows)
	b.Do("st.shared.f32", Addr{Base: b.iadd(sh, b.Do("shl.b32", tid, I(2)))}, acc)
	b.Do("bar.sync", I(0))
	b.If(b.both(inside, b.Do("setp.eq.u32", warp, I(0))), func() {
		mine := b.iadd(sh, b.Do("shl.b32", lane, I(2)))
		total := b.Do("ld.shared.f32", Addr{Base: mine})
		for w := 1; w < colRows; w++ {
			total = f.join(b, total, b.Do("ld.shared.f32", Addr{Base: mine, Off: int64(4 * colLanes * w)}))
		}
		if s.Scale != 0 && s.Scale != 1 {
			total = b.mul(total, Fl(s.Scale))
		}
		at := outer
		if split > 1 {
			at = b.Do("mad.lo.u32", outer, I(split), slice)
		}
		at = b.Do("mad.lo.u32", at, I(s.Inner), col)
		b.storeF(b.at(y, at, s.Out.Size()), 0, s.Out, []Reg{total})
	})
	return finish(b, [3]int{ceilDiv(s.Inner, colLanes), split, s.Outer}, p.list)
}
