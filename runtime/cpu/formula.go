package cpu

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// formula is a cluster that runs as one kernel: operands read once, results written once. Operands that have one element
// for a whole row, such as what belongs to a channel, are scalars that change from row to row.
type formula struct {
	run       *kern.Fused
	calls     []kern.Call // the exec's, per worker
	bufs      []kern.Buf  // operands, then results
	scalars   []ir.Reg    // uniform registers that the elements read, and loads that are the same along a row
	from      []reg       // the same, where they are computed
	values    []float32
	streaming bool // results are written by streaming stores

	product int          // operand that is what a product has computed, -1: none
	own     [][]kern.Buf // then: the operands of one stretch, per worker

	row    int         // elements of a row, 0: none is looked at
	rows   []rowScalar // scalars that change from row to row
	byTask [][]float32 // values with those of a row, per worker
}

// rowScalar is a scalar of which operand buf has one element a row.
type rowScalar struct {
	scalar int // place among the scalars
	walk   walk
	buf    kern.Buf
}

// leastRow is how many elements a row must have for a kernel of its own to pay.
const leastRow = 16

const (
	// streamingBytes is the size from which no cache keeps a result until it is read.
	streamingBytes = 32 << 20
	// formulaChunk is how many elements a task computes.
	formulaChunk = 1 << 14
)

// fuse gives the step the kernel of its cluster's formula, where there is one.
func (c *clusterCompiler) fuse() bool {
	f := &formula{product: -1}
	text, ok := c.formula(f)
	if !ok {
		return false
	}
	if f.run = c.path.Fused(text); f.run == nil {
		return false
	}
	c.step.formula, c.step.wide = f, min(c.step.block, 16)
	for r := range c.g.Code {
		if c.uniform[r] && c.last[r] > r {
			c.bindUniform(r)
		}
	}
	for _, r := range f.scalars {
		from := reg{} // of a row's scalar
		if c.uniform[r] {
			from = c.reg(r)
		}
		f.from = append(f.from, from)
	}
	f.values = make([]float32, len(f.scalars))
	f.calls = c.e.calls
	if len(f.rows) > 0 {
		f.row = int(c.shape[len(c.shape)-1])
		for range c.step.m.Pool().Workers() {
			f.byTask = append(f.byTask, make([]float32, len(f.scalars)))
		}
	}
	if f.product >= 0 {
		for range c.step.m.Pool().Workers() {
			f.own = append(f.own, make([]kern.Buf, len(f.bufs)))
		}
	}
	f.streaming = f.product < 0 && f.row == 0 && c.apart(f) && f.run.Streams()
	c.step.block = formulaChunk
	if f.streaming {
		c.step.block = kern.StreamBlock
	}
	return true
}

// formula writes down what the cluster computes for each element, in the words of kern's formulas; false if that has
// other than dense floats.
func (c *clusterCompiler) formula(f *formula) (text string, ok bool) {
	w := formulaWriter{c: c, f: f, names: map[ir.Reg]string{}}
	for r := range c.g.Code {
		if c.uniform[r] || c.last[r] == r {
			continue
		}
		if !w.element(ir.Reg(r)) {
			return "", false
		}
	}
	for i := range c.g.Stores {
		a := &c.g.Stores[i]
		t, float := kernTypes[a.DType]
		if w := c.stored(i); !float || !w.dense || w.offset != 0 || c.uniform[a.Reg] || classOf(c.g.Code[a.Reg].Type) != floats {
			return "", false
		}
		w.words = append(w.words, fmt.Sprintf("s%d:%v=%s", i, t, w.names[a.Reg]))
		f.bufs = append(f.bufs, kern.Buf{Type: t, Data: c.e.mem[a.Buffer]})
	}
	return strings.Join(append(w.loads, w.words...), " "), len(w.loads) > 0
}

type formulaWriter struct {
	c            *clusterCompiler
	f            *formula
	names        map[ir.Reg]string
	loads, words []string
	count        int
}

// element adds what computes register r.
func (w *formulaWriter) element(r ir.Reg) bool {
	i := &w.c.g.Code[r]
	if i.Op == ir.PIn {
		a := &w.c.g.Loads[i.Int]
		t, float := kernTypes[a.DType]
		if !float {
			return false
		}
		if walk := newWalk(w.c.shape, w.c.strides[i.Int], a.Offset); !walk.dense {
			return walk.alongRow() && int(w.c.shape[len(w.c.shape)-1]) >= leastRow
		}
		w.names[r] = fmt.Sprint("l", len(w.loads))
		w.loads = append(w.loads, fmt.Sprintf("%s:%v", w.names[r], t))
		if w.c.g.IsProduct(r) {
			w.f.product = len(w.f.bufs)
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
	var args []string
	for _, a := range instrArgs(i) {
		if classOf(w.c.g.Code[a].Type) != floats {
			return false
		}
		args = append(args, w.operand(a))
	}
	w.names[r] = fmt.Sprint("r", w.count)
	w.count++
	w.words = append(w.words, fmt.Sprintf("%s=%s(%s)", w.names[r], name, strings.Join(args, ",")))
	return true
}

// operand is how an instruction names register r. A uniform one is a new scalar wherever it is read, so that formulas
// do not depend on which constants happen to be equal.
func (w *formulaWriter) operand(r ir.Reg) string {
	if name := w.names[r]; name != "" {
		return name
	}
	if i := &w.c.g.Code[r]; i.Op == ir.PIn && !w.c.uniform[r] {
		a := &w.c.g.Loads[i.Int]
		w.f.rows = append(w.f.rows, rowScalar{len(w.f.scalars), newWalk(w.c.shape, w.c.strides[i.Int], a.Offset), kern.Buf{Type: kernTypes[a.DType], Data: w.c.e.mem[a.Buffer]}})
	}
	w.f.scalars = append(w.f.scalars, r)
	return fmt.Sprint("u", len(w.f.scalars)-1)
}

// vectorName is the vector primitive that an instruction is.
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

// apart reports whether the results are large and none lies over an operand.
func (c *clusterCompiler) apart(f *formula) bool {
	size := 0
	for k := range c.g.Stores {
		mem := c.e.mem[c.g.Stores[k].Buffer]
		size += len(mem)
		for i := range c.g.Loads {
			if shareBytes(mem, c.e.mem[c.g.Loads[i].Buffer]) {
				return false
			}
		}
	}
	return size >= streamingBytes
}

// only is the operand that is all of mem, -1 if others lie in it, too, or none is.
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
	if f.row > 0 {
		f.byRow(worker, f.bufs, 0, start, n)
		return
	}
	f.run.Run(&f.calls[worker], f.bufs, f.values, start, n, f.streaming)
	if f.streaming {
		m.Fence()
	}
}

// over computes the elements of c, what a product has computed from start on.
func (f *formula) over(worker, start int, c []float32) {
	own := f.own[worker]
	for i := range own {
		if i == f.product {
			own[i] = kern.Floats(c)
		} else {
			own[i] = f.bufs[i].From(start)
		}
	}
	if f.row > 0 {
		f.byRow(worker, own, start, start, len(c))
		return
	}
	f.run.Run(&f.calls[worker], own, f.values, 0, len(c), false)
}

// byRow computes n elements from start on, a row or part of one at a time; bufs begin at element base.
func (f *formula) byRow(worker int, bufs []kern.Buf, base, start, n int) {
	values := f.byTask[worker]
	copy(values, f.values)
	for end := start + n; start < end; {
		row := start / f.row
		for i := range f.rows {
			s := &f.rows[i]
			values[s.scalar] = loadOne(s.buf, s.walk.atRow(row))
		}
		next := min((row+1)*f.row, end)
		f.run.Run(&f.calls[worker], bufs, values, start-base, next-start, false)
		start = next
	}
}

// begin computes the scalars that are the same for all elements.
func (f *formula) begin(shared *lanes) {
	for i := range f.from {
		if f.from[i].shared != nil {
			f.values[i] = f.from[i].f(shared, 1)[0]
		}
	}
}
