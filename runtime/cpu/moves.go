package cpu

import (
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// copyOrFill binds a copy or fill step.
func (e *exec) copyOrFill(s *lower.Step) func() {
	var list []func()
	if s.Moves.Filled {
		list = append(list, e.fillBuffer(s.Out[0], s.Moves.Value))
	}
	for i := range s.Moves.List {
		m := &s.Moves.List[i]
		list = append(list, newStridedCopy(e.machine(), m, e.mem[s.In[m.From]], e.mem[s.Out[m.To]]))
	}
	if len(list) == 1 {
		return list[0]
	}
	return func() {
		for _, f := range list {
			f()
		}
	}
}

// fillBuffer sets every element to x, rounded to the buffer's dtype.
func (e *exec) fillBuffer(id lower.BufferID, x float64) func() {
	mem := e.mem[id]
	d := e.p.Buffers[id].Type.DType
	switch d {
	case ir.F64:
		return filling(e, slice[float64](mem), x)
	case ir.F32:
		return filling(e, slice[float32](mem), float32(x))
	case ir.F16, ir.BF16:
		return filling(e, slice[uint16](mem), narrow(d, roundToOdd32(x)))
	}
	whole := d.FromFloat(x)
	switch d.Size() {
	case 8:
		return filling(e, slice[int64](mem), whole)
	case 4:
		return filling(e, slice[int32](mem), int32(whole))
	case 2:
		return filling(e, slice[int16](mem), int16(whole))
	}
	return filling(e, mem, uint8(whole))
}

// filling returns a loop that sets all of to.
func filling[T any](e *exec, to []T, x T) func() {
	return e.chunks(len(to), pieceElems, 1, func(_, lo, hi int) { fill(to[lo:hi], x) })
}

// stridedCopy copies between two strided views. A task is some columns of some rows of one index of the outer dimensions, or of
// several. The two innermost dimensions are copied in tiles.
type stridedCopy struct {
	m              *kern.Machine
	outer          []int64 // sizes and strides of the outer dimensions
	outSrc, outDst []int64
	srcOff, dstOff int64
	rows, cols     int64
	sr, sc, dr, dc int64 // strides of rows and columns
	unit           int64 // columns of a unit
	units          int64 // of the columns
	all, most      int   // units, and those of a task
	parts          kern.Parts
	copyTile       func(src, dst int64, rows, cols int64)
	work           int
	serial         bool
}

// moveWork is the work of reading and writing a byte, see kern.Machine.Run.
const moveWork = 4

// tileSide is the largest number of rows or columns in a tile; the tiles of a transposition fit in
// the cache.
const tileSide = 64

// pieceElems is about how many elements a task copies, and unitElems how many are copied as one, at least.
const (
	pieceElems = 1 << 14
	unitElems  = 1 << 10
)

func newStridedCopy(m *kern.Machine, mv *lower.Move, src, dst []byte) func() {
	shape, st := coalesceAccesses(mv.Shape, []lower.Access{mv.Src, mv.Dst})
	for len(shape) < 2 {
		shape = append([]int64{1}, shape...)
		st[0], st[1] = append([]int64{0}, st[0]...), append([]int64{0}, st[1]...)
	}
	k := len(shape) - 2
	t := &stridedCopy{m: m, outer: shape[:k], outSrc: st[0][:k], outDst: st[1][:k], srcOff: mv.Src.Offset, dstOff: mv.Dst.Offset,
		rows: shape[k], cols: shape[k+1], sr: st[0][k], sc: st[0][k+1], dr: st[1][k], dc: st[1][k+1]}
	blocks := (t.rows + tileSide - 1) / tileSide
	n := blocks
	for _, d := range t.outer {
		n *= d
	}
	t.unit = max(1, unitElems/max(1, min(t.rows, tileSide)))
	t.units = (t.cols + t.unit - 1) / t.unit
	t.most = int(pieceElems / max(1, min(t.unit, t.cols)*min(t.rows, tileSide)))
	elems := t.rows * t.cols
	for _, d := range t.outer {
		elems *= d
	}
	t.work = moveWork * int(elems*mv.Src.DType.Size())
	t.serial = n*min(t.rows, tileSide)*t.cols*mv.Src.DType.Size() < 1<<17
	t.all = int(n * t.units)
	switch mv.Src.DType.Size() {
	case 1:
		t.copyTile = tile(t, src, dst)
	case 2:
		t.copyTile = tile(t, slice[uint16](src), slice[uint16](dst))
	case 4:
		t.copyTile = tile(t, slice[uint32](src), slice[uint32](dst))
	default:
		t.copyTile = tile(t, slice[uint64](src), slice[uint64](dst))
	}
	if t.all == 0 {
		return func() {}
	}
	return t.run
}

func (t *stridedCopy) run() {
	if t.serial {
		t.parts = t.m.Divide(0, t.all, 0)
		t.m.Serial(t.work, t.parts.Tasks(), t)
		return
	}
	t.parts = t.m.Divide(t.work, t.all, t.most)
	t.m.RunParts(&t.parts, t)
}

// Run copies units of columns, block after block of rows.
func (t *stridedCopy) Run(_, i int) {
	lo, hi := t.parts.Of(i)
	for at, end := int64(lo), int64(hi); at < end; {
		block, first := at/t.units, at%t.units
		last := min(t.units, first+end-at)
		t.copyColumns(block, first*t.unit, min(last*t.unit, t.cols))
		at += last - first
	}
}

// copyColumns copies columns [from,end) of a block of rows of one index of the outer dimensions.
func (t *stridedCopy) copyColumns(block, from, end int64) {
	blocks := (t.rows + tileSide - 1) / tileSide
	row, rest := block%blocks*tileSide, block/blocks
	src, dst := t.srcOff+row*t.sr, t.dstOff+row*t.dr
	for d := len(t.outer) - 1; d >= 0; d-- {
		x := rest % t.outer[d]
		rest /= t.outer[d]
		src += x * t.outSrc[d]
		dst += x * t.outDst[d]
	}
	rows := min(tileSide, t.rows-row)
	if t.dc == 1 && t.sc == 1 {
		t.copyTile(src+from, dst+from, rows, end-from)
		return
	}
	for col := from; col < end; col += tileSide {
		t.copyTile(src+col*t.sc, dst+col*t.dc, rows, min(tileSide, end-col))
	}
}

// tile returns a function that copies rows x cols elements between two offsets.
func tile[T any](t *stridedCopy, src, dst []T) func(s, d int64, rows, cols int64) {
	if t.dc == 1 && t.sc == 1 {
		return func(s, d int64, rows, cols int64) {
			for r := range rows {
				copy(dst[d+r*t.dr:d+r*t.dr+cols], src[s+r*t.sr:])
			}
		}
	}
	return func(s, d int64, rows, cols int64) {
		for r := range rows {
			at, to := s+r*t.sr, d+r*t.dr
			for range cols {
				dst[to] = src[at]
				at, to = at+t.sc, to+t.dc
			}
		}
	}
}
