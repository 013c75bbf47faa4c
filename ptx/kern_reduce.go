package ptx

import (
	"fmt"
	"math"
	"math/bits"
)

// fold describes a reduction: its initial value, how it adds an element, and how it combines two
// results.
type fold struct {
	start float32
	take  func(b *builder, acc, x Reg) Reg
	join  func(b *builder, x, y Reg) Reg
}

func plain(op string) func(b *builder, x, y Reg) Reg {
	return func(b *builder, x, y Reg) Reg { return b.Do(op+".rn.f32", x, y) }
}

// folds are the reductions by name; max and min give NaN if any element is NaN.
var folds = map[string]fold{
	"sum":   {0, plain("add"), plain("add")},
	"prod":  {1, plain("mul"), plain("mul")},
	"max":   {float32(math.Inf(-1)), (*builder).maxNaN, (*builder).maxNaN},
	"min":   {float32(math.Inf(1)), (*builder).minNaN, (*builder).minNaN},
	"l1":    {0, func(b *builder, acc, x Reg) Reg { return b.add(acc, b.Do("abs.f32", x)) }, plain("add")},
	"sumsq": {0, func(b *builder, acc, x Reg) Reg { return b.fma(x, x, acc) }, plain("add")},
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
	b.counts("results", s.Rows*split)
	p := params{b: b}
	x, y := p.in("x", s.In, s.Rows*s.Cols), p.out("y", s.Out, s.Rows*split)
	r.begin()
	slice := b.special("%ctaid.y")
	r.alone(s.Rows, func(row Reg) {
		acc := b.floatConst(f.start)
		base := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", row), I(s.Cols*s.In.Size()), x)
		b.slice(r.lane, slice, team, s.Cols/vec, split, func(i Reg) {
			v := acc
			for _, e := range b.loadF(b.at(base, i, vec*s.In.Size()), 0, s.In, vec) {
				v = f.take(b, v, e)
			}
			b.To(acc, "mov.f32", v)
		})
		total := s.finish(b, r.across(acc, func(x, y Reg) Reg { return f.join(b, x, y) }))
		b.when(b.Do("setp.eq.u32", r.lane, I(0)), func() {
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

// slice runs body for i = lane, lane+team, … within one of the parts into which n elements are
// split.
func (b *builder) slice(lane, which Reg, team, n, split int, body func(i Reg)) {
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
		b.when(b.Do("setp.lt.u32", first, last), func() { body(first) })
	default:
		b.loop(first, last, I(team), B32, body)
	}
}

func (s RowReduce) finish(b *builder, x Reg) Reg {
	if s.Root {
		x = b.Do("sqrt.rn.f32", x)
	}
	if s.Scale != 0 && s.Scale != 1 {
		x = b.mul(x, Fl(s.Scale))
	}
	return x
}

// filling is the number of blocks of a reduction that occupy a large GPU.
const filling = 2 * 132

// Parts is the Split that distributes a few long rows over a GPU; 1 if there are many rows, or
// short ones.
func (s RowReduce) Parts() int { return max(1, min(filling/s.Rows, s.Cols>>15)) }

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
	colThreads = 256 // threads of a block that reduces columns
	colWarps   = colThreads / 32
)

// shape returns the number of adjacent columns per thread, and the number of adjacent threads per
// row.
func (s ColReduce) shape() (vec, lanes int) {
	vec, lanes = vecFor(s.Inner, s.In), 1
	for lanes < 32 && lanes*vec < s.Inner {
		lanes *= 2
	}
	return vec, lanes
}

// Parts is the Split that distributes columns over a GPU; each thread keeps at least 16 rows.
func (s ColReduce) Parts() int {
	vec, lanes := s.shape()
	blocks := ceilDiv(s.Inner, lanes*vec) * s.Outer
	return max(1, min(filling/blocks, s.N*lanes/(16*colThreads)))
}

// Build generates the kernel. The eight warps of a block read rows in turn, several rows at a time
// if they are short. The sums of the lanes, then of the warps, are added in a fixed order.
func (s ColReduce) Build(fl Flavour) (*Launch, error) {
	f, ok := folds[s.Op]
	if !ok {
		return nil, fmt.Errorf("ptx: %s: unknown reduction %q", s.Name, s.Op)
	}
	split := max(s.Split, 1)
	if s.Outer < 1 || s.N < 1 || s.Inner < 1 || s.Outer > 65535 || split > 65535 {
		return nil, fmt.Errorf("ptx: %s: cannot reduce %d×%d×%d in %d parts", s.Name, s.Outer, s.N, s.Inner, split)
	}
	vec, lanes := s.shape()
	cols, size := lanes*vec, s.In.Size() // columns of a block
	b := newBuilder(fl, s.Name, colThreads)
	b.counts("rows", s.N)
	b.counts("results", s.Outer*split*s.Inner)
	p := params{b: b}
	x, y := p.in("x", s.In, s.Outer*s.N*s.Inner), p.out("y", s.Out, s.Outer*split*s.Inner)
	tid, slice, outer := b.special("%tid.x"), b.special("%ctaid.y"), b.special("%ctaid.z")
	lane, row := b.Do("and.b32", tid, I(lanes-1)), b.Do("shr.u32", tid, I(bits.Len(uint(lanes))-1))
	at := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(lanes), lane)
	acc := make([]Reg, vec)
	for k := range acc {
		acc[k] = b.floatConst(f.start)
	}
	start := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", outer), I(s.N*s.Inner*size), b.at(x, at, vec*size))
	b.where(b.below(at, s.Inner/vec, s.Inner%cols == 0), func() {
		b.slice(row, slice, colThreads/lanes, s.N, split, func(i Reg) {
			from := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", i), I(s.Inner*size), start)
			for k, v := range b.loadF(from, 0, s.In, vec) {
				b.To(acc[k], "mov.f32", f.take(b, acc[k], v))
			}
		})
	})
	for k := range acc {
		for d := lanes; d < 32; d *= 2 {
			acc[k] = f.join(b, acc[k], b.neighbour(acc[k], d))
		}
	}
	total := s.joinWarps(b, f, acc, tid, lane, lanes)
	column := b.Do("mad.lo.u32", b.special("%ctaid.x"), I(cols), tid)
	b.where(b.both(b.below(tid, cols, cols == colThreads), b.below(column, s.Inner, s.Inner%cols == 0)), func() {
		part := outer
		if split > 1 {
			part = b.Do("mad.lo.u32", outer, I(split), slice)
		}
		to := b.at(y, b.Do("mad.lo.u32", part, I(s.Inner), column), s.Out.Size())
		b.storeF(to, 0, s.Out, []Reg{total()})
	})
	return finish(b, [3]int{ceilDiv(s.Inner, cols), split, s.Outer}, p.list)
}

// joinWarps stores every warp's result for each column in shared memory; thread c of the block can
// then read the total of column c.
func (s ColReduce) joinWarps(b *builder, f fold, acc []Reg, tid, lane Reg, lanes int) (total func() Reg) {
	cols := lanes * len(acc)
	sh := b.shared("parts", 16, 4*cols*colWarps)
	var first Reg
	if lanes < 32 {
		first = b.Do("setp.lt.u32", b.Do("and.b32", tid, I(31)), I(lanes))
	}
	b.where(first, func() {
		mine := b.Do("mad.lo.u32", b.Do("shr.u32", tid, I(5)), I(4*cols), sh)
		b.storeTo("shared", b.Do("mad.lo.u32", lane, I(4*len(acc)), mine), 0, Float32, acc)
	})
	b.Do("bar.sync", I(0))
	return func() Reg {
		at := b.iadd(sh, b.Do("shl.b32", tid, I(2)))
		sum := b.Do("ld.shared.f32", Addr{Base: at})
		for w := 1; w < colWarps; w++ {
			sum = f.join(b, sum, b.Do("ld.shared.f32", Addr{Base: at, Off: int64(4 * cols * w)}))
		}
		if s.Scale != 0 && s.Scale != 1 {
			sum = b.mul(sum, Fl(s.Scale))
		}
		return sum
	}
}

// colLanes is the largest number of threads of a block that read adjacent channels.
const colLanes = 32
