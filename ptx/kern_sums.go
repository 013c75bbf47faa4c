package ptx

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// ColSums adds up the rows of many f32 matrices in one launch, each to one row. Examples: the parts
// that kernels have left of the gradients of scales and biases. The parameter is a table. A row's
// terms are added in an order fixed by the number of rows.
type ColSums struct {
	Name     string
	Matrices []Matrix
}

// Matrix is the size of a dense matrix.
type Matrix struct{ Rows, Cols int64 }

// The accesses of a matrix in the table of ColSums.
const (
	colSumsFrom = iota
	colSumsTo
)

// ColSumsChunk is the number of columns that a block of ColSums handles, where matrices have these
// numbers of columns.
func ColSumsChunk(cols []int64) int64 { return int64(32 * colSumsVec(cols)) }

func colSumsVec(cols []int64) int {
	for _, n := range cols {
		if n%4 != 0 {
			return 1
		}
	}
	return 4
}

func (s ColSums) cols() (list []int64) {
	for _, m := range s.Matrices {
		list = append(list, m.Cols)
	}
	return list
}

// blocks is the number of blocks of the launch: one for every chunk of columns of every matrix.
func (s ColSums) blocks() (n int) {
	chunk := ColSumsChunk(s.cols())
	for _, m := range s.Matrices {
		n += int((m.Cols + chunk - 1) / chunk)
	}
	return n
}

// Table is the content of the memory that the parameter points to: for every block its matrix and
// chunk, then for every matrix its columns, its rows, and the addresses of the matrix and the sum.
func (s ColSums) Table() (words []Word) {
	chunk := ColSumsChunk(s.cols())
	for i, m := range s.Matrices {
		for k := int64(0); k*chunk < m.Cols; k++ {
			words = append(words, Word{Value: int64(i)<<32 | k, Access: -1})
		}
	}
	for i, m := range s.Matrices {
		words = append(words, Word{Value: m.Cols, Access: -1}, Word{Value: m.Rows, Access: -1},
			Word{Tensor: i, Access: colSumsFrom}, Word{Tensor: i, Access: colSumsTo})
	}
	return words
}

// Build generates the kernel. The eight warps of a block read rows in turn; the sums of the warps
// are added in their order.
func (s ColSums) Build(fl Flavour) (*Launch, error) {
	for _, m := range s.Matrices {
		if m.Rows < 1 || m.Cols < 1 || m.Rows >= maxCount || m.Cols >= maxCount {
			return nil, fmt.Errorf("ptx: %s: cannot add the rows of %d×%d: it counts to 2^31-1", s.Name, m.Rows, m.Cols)
		}
	}
	const row = 4 // words
	vec, blocks := colSumsVec(s.cols()), s.blocks()
	b := newBuilder(fl, s.Name, colThreads)
	p := params{b: b}
	table := p.in("table", Int64, blocks+row*len(s.Matrices))
	tid := b.special("%tid.x")
	mine := b.load(b.at(table, b.special("%ctaid.x"), 8), 0, Int32, 2)
	at := b.Do("mad.wide.u32", mine[1], I(8*row), b.Do("add.u64", table, I(8*blocks)))
	cols, rows := b.load(at, 0, Int32, 1)[0], b.load(at, 8, Int32, 1)[0]
	x, y := b.load(at, 16, Int64, 1)[0], b.load(at, 24, Int64, 1)[0]
	lane, warp := b.Do("and.b32", tid, I(31)), b.Do("shr.u32", tid, I(5))
	acc := make([]Reg, vec)
	for k := range acc {
		acc[k] = b.floatConst(0)
	}
	first := b.imul(mine[0], I(32*vec))
	column := b.Do("mad.lo.u32", lane, I(vec), first)
	b.where(s.inside(b, column, cols), func() {
		pitch := b.Do("mul.wide.u32", cols, I(4))
		full, rest := s.spans()
		b.addRows(acc, b.at(x, column, 4), pitch, warp, rows, full, rest)
	})
	total := ColReduce{}.joinWarps(b, folds["sum"], acc, tid, lane, 32)
	column = b.iadd(first, tid)
	b.when(b.both(b.below(tid, 32*vec, false), s.inside(b, column, cols)), func() {
		b.storeF(b.at(y, column, 4), 0, Float32, []Reg{total()})
	})
	return finish(b, [3]int{blocks, 1, 1}, p.list)
}

// inside is the predicate column < cols; the zero Reg if it holds for all threads.
func (s ColSums) inside(b *builder, column, cols Reg) Reg {
	chunk := ColSumsChunk(s.cols())
	if !slices.ContainsFunc(s.Matrices, func(m Matrix) bool { return m.Cols%chunk != 0 }) {
		return Reg{}
	}
	return b.Do("setp.lt.u32", column, cols)
}

// rowsAhead is the number of rows that a warp loads at a time.
const rowsAhead = 4

// spans are the numbers of rows in whole rounds of a block, and of those that remain.
func (s ColSums) spans() (full, rest span) {
	const round = rowsAhead * colWarps
	full.least, rest.least = math.MaxInt, math.MaxInt
	for _, m := range s.Matrices {
		full.add(int(m.Rows) / round * round)
		rest.add(int(m.Rows) % round)
	}
	return full, rest
}

// addRows adds the vectors at base + i·pitch to acc, for i = warp, warp + 8, … below rows;
// rowsAhead are loaded before the first is added. full are the rows of whole such rounds, rest those
// that remain.
func (b *builder) addRows(acc []Reg, base, pitch, warp, rows Reg, full, rest span) {
	at := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", warp), pitch, base)
	step := b.Do("shl.b64", pitch, I(bits.Len(colWarps)-1))
	some := func(n int, last bool) {
		var v [rowsAhead][]Reg
		for k := range n {
			v[k] = b.load(at, 0, Float32, len(acc))
			if k < n-1 || !last {
				b.To(at, "add.u64", at, step)
			}
		}
		for k := range n {
			for l := range acc {
				b.To(acc[l], "add.rn.f32", acc[l], v[k][l])
			}
		}
	}
	whole := b.Do("and.b32", rows, I(-rowsAhead*colWarps))
	b.rounds(warp, whole, rowsAhead*colWarps, full, func(Reg) { some(rowsAhead, full.most == rowsAhead*colWarps && rest.most == 0) })
	b.rounds(b.iadd(whole, warp), rows, colWarps, rest, func(Reg) { some(1, rest.most <= colWarps) })
}

// rounds is a Loop of which it is known how many steps from and limit are apart, at least and at
// most, where from is less than one step above a multiple of step.
func (b *builder) rounds(from, limit Reg, step int, n span, body func(i Reg)) {
	switch most := ceilDiv(n.most, step); {
	case most == 0:
	case most == 1 && n.least == step:
		body(from)
	case most == 1:
		b.when(b.Do("setp.lt.u32", from, limit), func() { body(from) })
	default:
		b.loop(from, limit, I(step), B32, body)
	}
}

// span is the least and the most of some numbers.
type span struct{ least, most int }

func (s *span) add(n int) { s.least, s.most = min(s.least, n), max(s.most, n) }
