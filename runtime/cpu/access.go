package cpu

import (
	"unsafe"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// kernTypes are the float formats that kern stores.
var kernTypes = map[ir.DType]kern.Type{ir.F32: kern.F32, ir.F16: kern.F16, ir.BF16: kern.BF16}

// loadTypes are the formats that formulas read and write. Bools are for composed kernels.
var loadTypes = map[ir.DType]kern.Type{ir.F32: kern.F32, ir.F16: kern.F16, ir.BF16: kern.BF16, ir.Bool: kern.Bools}

// access is a strided view of a buffer in the order of an iteration space.
type access struct {
	shape, strides []int64
	offset         int64
	dense          bool // element i is at offset+i
}

func newAccess(shape, strides []int64, offset int64) access {
	w := access{shape, strides, offset, true}
	step := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		w.dense = w.dense && (strides[d] == step || shape[d] == 1)
		step *= shape[d]
	}
	return w
}

// runs calls f for every range of elements [start, start+n) within a row of the last dimension. f
// gets k, the number of elements; to, the index in the block; at, the element of the buffer; and
// step, the stride.
func (w *access) runs(start, n int, f func(to, k int, at, step int64)) {
	last := len(w.shape) - 1
	row, step := int(w.shape[last]), w.strides[last]
	for to := 0; to < n; {
		i := start + to
		col := i % row
		at := w.offset + int64(col)*step
		rest := int64(i / row)
		for d := last - 1; d >= 0; d-- {
			at += rest % w.shape[d] * w.strides[d]
			rest /= w.shape[d]
		}
		k := min(row-col, n-to)
		f(to, k, at, step)
		to += k
	}
}

// constantInRow reports whether all elements of a row, along the last dimension, are the same
// element of the buffer.
func (w *access) constantInRow() bool { return w.strides[len(w.strides)-1] == 0 }

// rowOffset is the element of the buffer for a row; constantInRow must be true.
func (w *access) rowOffset(row int) int {
	at, rest := w.offset, int64(row)
	for d := len(w.shape) - 2; d >= 0; d-- {
		at += rest % w.shape[d] * w.strides[d]
		rest /= w.shape[d]
	}
	return int(at)
}

// load compiles a PIn instruction.
func (c *clusterCompiler) load(r int) vop {
	i := &c.g.Code[r]
	a := &c.g.Loads[i.Int]
	dst := c.reg(ir.Reg(r))
	if c.g.IsProduct(ir.Reg(r)) {
		slot := dst.slot
		return func(l *registerFile, start, n int) { l.f[slot] = l.product[start-l.at:][:n:n] }
	}
	mem := c.e.mem[a.Buffer]
	w := newAccess(c.shape, c.strides[i.Int], a.Offset)
	if t, ok := kernTypes[a.DType]; ok {
		return c.loadFloat(r, dst, w, kern.Buf{Type: t, Data: mem})
	}
	switch a.DType {
	case ir.Bool:
		return gather(w, slice[uint8](mem), dst.f, func(x uint8) float32 { return boolFloat(x != 0) })
	case ir.F64:
		return gather(w, slice[float64](mem), dst.d, func(x float64) float64 { return x })
	case ir.U8:
		return gatherInts[uint8](w, mem, dst)
	case ir.I8:
		return gatherInts[int8](w, mem, dst)
	case ir.U16:
		return gatherInts[uint16](w, mem, dst)
	case ir.I16:
		return gatherInts[int16](w, mem, dst)
	case ir.U32:
		return gatherInts[uint32](w, mem, dst)
	case ir.I32:
		return gatherInts[int32](w, mem, dst)
	}
	return gatherInts[int64](w, mem, dst)
}

// integerElement lists the types in which integers are stored; u64 is stored as int64 with the same
// bits.
type integerElement interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | int64
}

func gatherInts[M integerElement](w access, mem []byte, dst reg) vop {
	return gather(w, slice[M](mem), dst.i, func(x M) int64 { return int64(x) })
}

// gather loads elements one by one and converts each.
func gather[M, R any](w access, mem []M, dst func(*registerFile, int) []R, conv func(M) R) vop {
	return func(l *registerFile, start, n int) {
		out := dst(l, n)
		w.runs(start, n, func(to, k int, at, step int64) {
			for e := range k {
				out[to+e] = conv(mem[at+int64(e)*step])
			}
		})
	}
}

// loadFloat widens ranges of floats. A dense f32 operand is read in place.
func (c *clusterCompiler) loadFloat(r int, dst reg, w access, b kern.Buf) vop {
	p := c.path
	if c.inPlace[r] {
		mem, off, slot := slice[float32](b.Data), int(w.offset), dst.slot
		return func(l *registerFile, start, n int) { l.f[slot] = mem[off+start : off+start+n : off+start+n] }
	}
	if w.dense && !c.uniform[r] {
		return func(l *registerFile, start, n int) { p.Load(dst.f(l, n), b.From(int(w.offset)+start)) }
	}
	return func(l *registerFile, start, n int) {
		out := dst.f(l, n)
		w.runs(start, n, func(to, k int, at, step int64) {
			switch step {
			case 1:
				p.Load(out[to:to+k], b.From(int(at)))
			case 0:
				fill(out[to:to+k], loadOne(b, int(at)))
			default:
				for e := range k {
					out[to+e] = loadOne(b, int(at+int64(e)*step))
				}
			}
		})
	}
}

// readInPlace reports whether register r is a dense f32 operand, which needs no copy.
func (c *clusterCompiler) readInPlace(r int) bool {
	i := &c.g.Code[r]
	if c.g.IsProduct(ir.Reg(r)) {
		return true
	}
	if i.Op != ir.PIn || c.uniform[r] || c.storesUnchanged(r) {
		return false
	}
	a := &c.g.Loads[i.Int]
	return a.DType == ir.F32 && newAccess(c.shape, c.strides[i.Int], 0).dense
}

// storesUnchanged reports whether a store takes its elements from load r unchanged.
func (c *clusterCompiler) storesUnchanged(r int) bool {
	for i := range c.g.Stores {
		if int(c.g.Stores[i].Reg) == r {
			return true
		}
	}
	return false
}

// loadOne returns element i of b.
func loadOne(b kern.Buf, i int) float32 {
	p := unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.Data)), i*b.Type.Size())
	switch b.Type {
	case kern.F16:
		return widen(ir.F16, *(*uint16)(p))
	case kern.BF16:
		return widen(ir.BF16, *(*uint16)(p))
	}
	return *(*float32)(p)
}

// store compiles the store of one result. Results are dense, except that rows of floats may be
// apart.
func (c *clusterCompiler) store(i int) vop {
	a := &c.g.Stores[i]
	mem, src := c.e.at(a.Buffer), c.reg(a.Reg)
	if a.Buffer == lower.None {
		return func(l *registerFile, start, n int) { copy(l.product[start-l.at:][:n], src.f(l, n)) }
	}
	from := classOf(c.g.Code[a.Reg].Type)
	if t, ok := kernTypes[a.DType]; ok {
		b, p := kern.Buf{Type: t, Data: mem}, c.path
		switch from {
		case floats:
			if w := c.storeAccess(i); !w.dense || w.offset != 0 {
				return func(l *registerFile, start, n int) {
					x := src.f(l, n)
					w.runs(start, n, func(from, k int, at, _ int64) { p.Store(b.From(int(at)), x[from:from+k]) })
				}
			}
			return func(l *registerFile, start, n int) { p.Store(b.From(start), src.f(l, n)) }
		case ints:
			d := c.g.Code[a.Reg].Type
			return func(l *registerFile, start, n int) {
				var one [1]float32
				for e, x := range src.i(l, n) {
					one[0] = float32(d.Number(x))
					p.Store(b.From(start+e), one[:])
				}
			}
		}
		return storeDoubles(a, mem, src)
	}
	switch d := a.DType; d {
	case ir.F64:
		return scatter(from, src, slice[float64](mem), func(x float64) float64 { return x }, c.g.Code[a.Reg].Type.Number)
	case ir.Bool, ir.U8:
		return scatterInts[uint8](from, src, mem, d)
	case ir.I8:
		return scatterInts[int8](from, src, mem, d)
	case ir.U16:
		return scatterInts[uint16](from, src, mem, d)
	case ir.I16:
		return scatterInts[int16](from, src, mem, d)
	case ir.U32:
		return scatterInts[uint32](from, src, mem, d)
	case ir.I32:
		return scatterInts[int32](from, src, mem, d)
	}
	return scatterInts[int64](from, src, mem, a.DType)
}

func scatterInts[M integerElement](from class, src reg, mem []byte, d ir.DType) vop {
	return scatter(from, src, slice[M](mem), func(x float64) M { return M(d.FromFloat(x)) }, func(x int64) M { return M(d.Wrap(x)) })
}

// at is the memory of a buffer; nil of None, which is the block that a product has computed or that a
// kernel is about to read.
func (e *exec) at(id lower.BufferID) []byte {
	if id == lower.None {
		return nil
	}
	return e.mem[id]
}

// storeAccess returns the view of store i.
func (c *clusterCompiler) storeAccess(i int) access {
	return newAccess(c.shape, c.strides[len(c.g.Loads)+i], c.g.Stores[i].Offset)
}

// storeDoubles rounds doubles once to a narrower float.
func storeDoubles(a *lower.Access, mem []byte, src reg) vop {
	return func(l *registerFile, start, n int) {
		for e, x := range src.d(l, n) {
			if a.DType == ir.F32 {
				slice[float32](mem)[start+e] = float32(x)
			} else {
				slice[uint16](mem)[start+e] = narrow(a.DType, roundToOdd32(x))
			}
		}
	}
}

// scatter stores elements one by one and converts each.
func scatter[M any](from class, src reg, mem []M, float func(float64) M, integer func(int64) M) vop {
	return func(l *registerFile, start, n int) {
		out := mem[start : start+n]
		switch from {
		case floats:
			for e, x := range src.f(l, n) {
				out[e] = float(float64(x))
			}
		case ints:
			for e, x := range src.i(l, n) {
				out[e] = integer(x)
			}
		default:
			for e, x := range src.d(l, n) {
				out[e] = float(x)
			}
		}
	}
}

// coalesce drops dimensions of size one and merges adjacent dimensions that every access traverses
// with one stride. A scalar has one dimension of size one.
func coalesce(g *lower.Cluster) (shape []int64, strides [][]int64) {
	all := make([]lower.Access, 0, len(g.Loads)+len(g.Stores))
	all = append(append(all, g.Loads...), g.Stores...)
	return coalesceAccesses(g.Shape, all)
}

func coalesceAccesses(full []int64, all []lower.Access) (shape []int64, strides [][]int64) {
	strides = make([][]int64, len(all))
	for d, n := range full {
		if n == 1 {
			continue
		}
		last := len(shape) - 1
		merge := last >= 0
		for i := range all {
			merge = merge && strides[i][last] == all[i].Strides[d]*n
		}
		if merge {
			shape[last] *= n
		} else {
			shape = append(shape, n)
			last++
		}
		for i := range all {
			if merge {
				strides[i][last] = all[i].Strides[d]
			} else {
				strides[i] = append(strides[i], all[i].Strides[d])
			}
		}
	}
	if len(shape) == 0 {
		shape = []int64{1}
		for i := range strides {
			strides[i] = []int64{0}
		}
	}
	return shape, strides
}
