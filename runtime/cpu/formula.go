package cpu

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// formula is a cluster that runs as one kernel. The kernel reads each operand once and writes each
// result once. An operand with one element per row, such as a value per channel, is a scalar that
// changes from row to row.
type formula struct {
	code      kern.Formula
	run       *kern.Fused
	m         *kern.Machine // whose workers run it
	bufs      []kern.Buf    // operands, then results
	scalars   []ir.Reg      // uniform registers that elements read, and loads that are constant within a row
	from      []reg         // the registers from which scalars are taken
	values    []float32
	streaming bool // results are written by streaming stores

	block int          // index of the operand that a product has computed, or of the result that a kernel reads, -1: none
	own   [][]kern.Buf // if block >= 0: the operands and results of one range, per worker

	row    int         // elements in a row, 0: the kernel does not depend on rows
	rows   []rowScalar // scalars that change from row to row
	byTask [][]float32 // values of all scalars in the current row, or rows, per worker
}

// rowScalar is a scalar that takes one element of operand buf per row.
type rowScalar struct {
	scalar int // index among the scalars
	access access
	buf    kern.Buf
}

// Where rows have a whole number of rowUnits, which is one of vectors on every path, a kernel takes up to rowsAtOnce.
const (
	rowUnit    = 16
	rowsAtOnce = 16
)

// minRow is the smallest number of elements in a row for which one kernel call per row pays off.
const minRow = 16

const (
	// leastComposed is the number of elements from which composing a kernel pays off.
	leastComposed = 64
	// streamingBytes is the size from which a result does not stay in any cache until it is read.
	streamingBytes = 32 << 20
)

// fuse gives the step the kernel of its cluster's formula, which is composed now, or has been for
// another cluster.
func (c *clusterCompiler) fuse() bool {
	f := &formula{m: c.step.m, block: -1}
	if !c.formula(f) {
		return false
	}
	if len(f.rows) > 0 {
		f.row = int(c.shape[len(c.shape)-1])
	}
	f.code.Rows = f.row > 0 && f.row%rowUnit == 0 && f.block < 0
	if f.run = c.e.of.compose(c.path, &f.code, c.most >= leastComposed); f.run == nil && f.code.Rows {
		f.code.Rows = false
		f.run = c.e.of.compose(c.path, &f.code, c.most >= leastComposed)
	}
	if f.run == nil {
		return false
	}
	c.step.formula, c.step.wide = f, min(c.step.block, uniformLen)
	for r := range c.g.Code {
		if c.uniform[r] && c.last[r] > r {
			c.bindUniform(r)
		}
	}
	for _, r := range f.scalars {
		from := reg{} // a scalar that changes per row
		if c.uniform[r] {
			from = c.reg(r)
		}
		f.from = append(f.from, from)
	}
	f.values = make([]float32, len(f.scalars))
	if f.row > 0 {
		n := len(f.values)
		if f.code.Rows {
			n = rowsAtOnce * kern.RowScalars
		}
		f.byTask = perWorker(&c.e.scratch, func() []float32 { return make([]float32, n) })
	}
	if f.block >= 0 {
		f.own = perWorker(&c.e.scratch, func() []kern.Buf { return make([]kern.Buf, len(f.bufs)) })
	}
	f.streaming = f.block < 0 && f.row == 0 && c.canStream(f) && f.run.Streams()
	if f.streaming {
		c.step.unit = kern.StreamUnit
		last := &f.bufs[len(f.bufs)-1] // kernels take its length
		last.Data = last.Data[:c.step.n*last.Type.Size()]
	}
	return true
}

// formula describes what the cluster computes for each element. It returns false if the cluster
// uses anything other than dense floats and bools.
func (c *clusterCompiler) formula(f *formula) bool {
	w := formulaWriter{c: c, f: f, values: map[ir.Reg]kern.Operand{}}
	for r := range c.g.Code {
		if c.uniform[r] || c.last[r] == r {
			continue
		}
		if !w.element(ir.Reg(r)) {
			return false
		}
	}
	for i := range c.g.Stores {
		a := &c.g.Stores[i]
		t, ok := loadTypes[a.DType]
		if w := c.storeAccess(i); !ok || !w.dense || w.offset != 0 || c.uniform[a.Reg] || classOf(c.g.Code[a.Reg].Type) != floats || (t == kern.Bools) != (c.g.Code[a.Reg].Type == ir.Bool) {
			return false
		}
		value, dense := w.values[a.Reg]
		if !dense {
			return false
		}
		if a.Buffer == lower.None {
			f.block = len(f.bufs)
		}
		f.code.Results = append(f.code.Results, kern.FormulaResult{Type: t, Value: value})
		f.bufs = append(f.bufs, kern.Buf{Type: t, Data: c.e.at(a.Buffer)})
	}
	f.code.Scalars = len(f.scalars)
	return len(f.code.Loads) > 0
}

type formulaWriter struct {
	c      *clusterCompiler
	f      *formula
	values map[ir.Reg]kern.Operand
}

// element appends what computes register r.
func (w *formulaWriter) element(r ir.Reg) bool {
	i, code := &w.c.g.Code[r], &w.f.code
	if i.Op == ir.PIn {
		a := &w.c.g.Loads[i.Int]
		t, ok := loadTypes[a.DType]
		if !ok {
			return false
		}
		if acc := newAccess(w.c.shape, w.c.strides[i.Int], a.Offset); !acc.dense {
			return t != kern.Bools && acc.constantInRow() && int(w.c.shape[len(w.c.shape)-1]) >= minRow
		}
		w.values[r] = kern.Operand{Kind: kern.Loaded, N: len(code.Loads)}
		code.Loads = append(code.Loads, t)
		if w.c.g.IsProduct(r) {
			w.f.block = len(w.f.bufs)
			w.f.bufs = append(w.f.bufs, kern.Buf{})
			return true
		}
		w.f.bufs = append(w.f.bufs, kern.Buf{Type: t, Data: w.c.e.mem[a.Buffer]}.From(int(a.Offset)))
		return true
	}
	name, ok := vectorName(i)
	if !ok || classOf(i.Type) != floats {
		return false
	}
	op := kern.FormulaOp{Name: name}
	for _, a := range instrArgs(i) {
		if classOf(w.c.g.Code[a].Type) != floats {
			return false
		}
		op.Args = append(op.Args, w.operand(a))
	}
	w.values[r] = kern.Operand{Kind: kern.Computed, N: len(code.Code)}
	code.Code = append(code.Code, op)
	return true
}

// operand returns register r as the operand of an instruction. A uniform register that is no constant becomes
// a new scalar at each read.
func (w *formulaWriter) operand(r ir.Reg) kern.Operand {
	if v, ok := w.values[r]; ok {
		return v
	}
	i := &w.c.g.Code[r]
	if i.Op == ir.PConst {
		return kern.ConstantOf(number(i))
	}
	if i.Op == ir.PIn && !w.c.uniform[r] {
		a := &w.c.g.Loads[i.Int]
		w.f.rows = append(w.f.rows, rowScalar{len(w.f.scalars), newAccess(w.c.shape, w.c.strides[i.Int], a.Offset), kern.Buf{Type: kernTypes[a.DType], Data: w.c.e.mem[a.Buffer]}})
	}
	w.f.scalars = append(w.f.scalars, r)
	return kern.Operand{Kind: kern.Scalar, N: len(w.f.scalars) - 1}
}

// number is a constant of the class floats.
func number(i *ir.Instr) float32 {
	if i.Type == ir.Bool {
		return float32(i.Int)
	}
	return float32(i.Imm)
}

// vectorName is the name of an instruction's vector primitive.
func vectorName(i *ir.Instr) (string, bool) {
	if i.Op == ir.PRound && i.To.Low() && i.Type == ir.F32 {
		return roundOps[i.To].String(), true
	}
	if op, ok := unaryOps[i.Op]; ok {
		return op.String(), true
	}
	if op, ok := binaryOps[i.Op]; ok {
		return op.String(), true
	}
	op, ok := ternaryOps[i.Op]
	return op.String(), ok
}

// canStream reports whether the results are large and overlap no operand.
func (c *clusterCompiler) canStream(f *formula) bool {
	size := 0
	for k := range c.g.Stores {
		mem := c.e.mem[c.g.Stores[k].Buffer]
		size += len(mem)
		for i := range c.g.Loads {
			if from := c.g.Loads[i].Buffer; from != lower.None && shareBytes(mem, c.e.mem[from]) {
				return false
			}
		}
	}
	return size >= streamingBytes
}

// only returns the index of the operand that covers exactly mem, or -1 if no operand does or others
// overlap it.
func (f *formula) only(mem []byte) int {
	at := -1
	for i := range f.bufs {
		if !shareBytes(f.bufs[i].Data, mem) {
			continue
		}
		if at >= 0 || len(f.bufs[i].Data) != len(mem) {
			return -1
		}
		at = i
	}
	if slices.ContainsFunc(f.rows, func(s rowScalar) bool { return shareBytes(s.buf.Data, mem) }) {
		return -1
	}
	return at
}

// task computes n elements from start on.
func (f *formula) task(m *kern.Machine, worker, start, n int) {
	switch {
	case f.code.Rows:
		f.inRows(worker, start, n)
		return
	case f.row > 0:
		f.byRow(worker, f.bufs, 0, start, n)
		return
	}
	f.run.Run(f.m.Call(worker), f.bufs, f.values, start, n, f.streaming)
	if f.streaming {
		m.Fence()
	}
}

// over computes a range from start on. c are the elements of it that a product has computed, or that a
// kernel is about to read.
func (f *formula) over(worker, start int, c []float32) {
	own := f.own[worker]
	for i := range own {
		if i == f.block {
			own[i] = kern.Floats(c)
		} else {
			own[i] = f.bufs[i].From(start)
		}
	}
	if f.row > 0 {
		f.byRow(worker, own, start, start, len(c))
		return
	}
	f.run.Run(f.m.Call(worker), own, f.values, 0, len(c), false)
}

// byRow computes n elements from start on, one row or part of a row at a time. bufs begin at
// element base.
func (f *formula) byRow(worker int, bufs []kern.Buf, base, start, n int) {
	values := f.byTask[worker]
	copy(values, f.values)
	for end := start + n; start < end; {
		row := start / f.row
		for i := range f.rows {
			s := &f.rows[i]
			values[s.scalar] = loadOne(s.buf, s.access.rowOffset(row))
		}
		next := min((row+1)*f.row, end)
		f.run.Run(f.m.Call(worker), bufs, values, start-base, next-start, false)
		start = next
	}
}

// inRows computes n elements from start on, whole rows or part of one at a time.
func (f *formula) inRows(worker, start, n int) {
	values := f.byTask[worker]
	for end := start + n; start < end; {
		row, rows := start/f.row, 1
		each := min((row+1)*f.row, end) - start
		if each == f.row {
			rows = min((end-start)/f.row, rowsAtOnce)
		}
		for k := range rows {
			of := values[kern.RowScalars*k:]
			copy(of, f.values)
			for i := range f.rows {
				s := &f.rows[i]
				of[s.scalar] = loadOne(s.buf, s.access.rowOffset(row+k))
			}
		}
		f.run.Rows(f.m.Call(worker), f.bufs, values, start, rows, each)
		start += rows * each
	}
}

// begin computes the scalars that are the same for all elements.
func (f *formula) begin(shared *registerFile) {
	for i := range f.from {
		if f.from[i].shared != nil {
			f.values[i] = f.from[i].f(shared, 1)[0]
		}
	}
}
