package cpu

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"ampc/internal/philox"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// blockLen is the number of elements of a cluster that are computed at a time. The registers of one
// block fit in the L1 cache.
const blockLen = 512

// Tasks of clusters are whole units of so many elements, a whole number of vectors and of cache lines, and have at most
// taskElems.
const (
	clusterUnit = 64
	taskElems   = 1 << 14
)

// passWork is the work of an instruction for an element, see kern.Machine.Run.
const passWork = 8

// class is the storage class of a register.
type class uint8

const (
	floats  class = iota // []float32: F32, and Bool as 0 and 1
	ints                 // []int64: I32, I64, and U64 by its bits
	doubles              // []float64
	numClasses
)

func classOf(d ir.DType) class {
	switch d {
	case ir.F64:
		return doubles
	case ir.F32, ir.Bool:
		return floats
	}
	return ints
}

// vop is one instruction bound to slots. It computes n elements from start on.
type vop func(l *registerFile, start, n int)

// clusterStep runs a fused cluster over its whole iteration space.
type clusterStep struct {
	m       *kern.Machine
	n       int   // number of elements
	block   int   // elements in a block
	wide    int   // elements in a uniform register: those of a block, or fewer where readers take only one
	once    []vop // uniform instructions, whose value is the same for all elements
	ops     []vop
	formula *formula       // replaces ops where package kern has a kernel for the whole formula
	shared  registerFile   // uniform registers, read by all workers
	work    []registerFile // other registers, per worker
	cost    int            // of all elements, see kern.Machine.Run
	unit    int            // elements of which tasks have a whole number
	tasks   kern.Parts
}

// Run runs one task, which is a sequence of units.
func (g *clusterStep) Run(worker, task int) {
	lo, hi := g.tasks.Of(task)
	g.over(worker, lo*g.unit, min(hi*g.unit, g.n))
}

// over computes elements [start,end).
func (g *clusterStep) over(worker, start, end int) {
	if f := g.formula; f != nil {
		f.task(g.m, worker, start, end-start)
		return
	}
	g.span(&g.work[worker], start, end-start)
}

// span runs the instructions for n elements from start on.
func (g *clusterStep) span(l *registerFile, start, n int) {
	for end := start + n; start < end; start += g.block {
		n := min(g.block, end-start)
		for _, op := range g.ops {
			op(l, start, n)
		}
	}
}

func (g *clusterStep) run() {
	if g.n == 0 {
		return
	}
	g.begin()
	g.tasks = g.m.Divide(g.cost, (g.n+g.unit-1)/g.unit, g.most()/g.unit)
	g.m.RunParts(&g.tasks, g)
}

// most is how many elements a task has at most.
func (g *clusterStep) most() int {
	if g.formula != nil && g.formula.streaming {
		return kern.StreamBlock
	}
	return max(taskElems, g.unit)
}

// begin computes the uniform registers.
func (g *clusterStep) begin() {
	for _, op := range g.once {
		op(&g.shared, 0, g.wide)
	}
	if g.formula != nil {
		g.formula.begin(&g.shared)
	}
}

// cluster compiles a fused cluster into one kernel if package kern has a kernel for its formula.
// Otherwise registers are assigned to slots, and a slot is reused after the last reader has run.
// Uniform instructions run once. A block has at most the given number of elements.
func (e *exec) cluster(g *lower.Cluster, most int) *clusterStep {
	c := e.compiler(g, most)
	if !c.fuse() {
		c.compose()
		c.findDirectStores()
		c.bind()
		c.size()
	}
	c.divide()
	return c.step
}

func elements(g *lower.Cluster) int {
	n := 1
	for _, d := range g.Shape {
		n *= int(d)
	}
	return n
}

// compiler analyses the cluster.
func (e *exec) compiler(g *lower.Cluster, most int) *clusterCompiler {
	c := &clusterCompiler{e: e, g: g, path: e.machine().Path, most: most, step: &clusterStep{m: e.machine(), n: elements(g)}, blank: map[slotID]bool{}}
	c.step.block, c.step.unit = min(blockLen, max(most, 1)), clusterUnit
	c.step.wide = c.step.block
	c.shape, c.strides = coalesce(g)
	c.analyse()
	return c
}

type clusterCompiler struct {
	e           *exec
	g           *lower.Cluster
	path        *kern.Path
	step        *clusterStep
	most        int       // elements of the largest cluster with the same code
	shape       []int64   // coalesced
	strides     [][]int64 // strides of loads, then of stores
	partial     *partial  // computes part of the code on each block; nil: there is none
	uniform     []bool
	last        []int  // by register: index of the last instruction that reads it
	inPlace     []bool // the slot is the memory of an operand or result and needs none of its own
	directStore []int  // index of the store whose memory register r is computed into, -1: none
	fused       []bool // a product whose only reader is a sum, which computes it as part of a multiply-add
	slot        []int
	free        [numClasses][]int
	slots       [numClasses]int
	uslots      [numClasses]int
	fill        []func()        // sets the slots that hold constants
	blank       map[slotID]bool // shared slots of constants; they need no memory
}

// analyse finds uniform registers, products that fuse into a multiply-add, and last readers.
func (c *clusterCompiler) analyse() {
	code := c.g.Code
	c.uniform, c.last, c.fused, c.slot = make([]bool, len(code)), make([]int, len(code)), make([]bool, len(code)), make([]int, len(code))
	c.inPlace, c.directStore = make([]bool, len(code)), make([]int, len(code))
	readers := make([]int, len(code))
	for r := range code {
		i := &code[r]
		args := instrArgs(i)
		switch i.Op {
		case ir.PConst:
			c.uniform[r] = true
		case ir.PIn:
			c.uniform[r] = !c.g.IsProduct(ir.Reg(r)) && !slices.ContainsFunc(c.strides[i.Int], func(s int64) bool { return s != 0 })
		case ir.PIndex, ir.PPhilox:
		default:
			c.uniform[r] = true
			for _, a := range args {
				c.uniform[r] = c.uniform[r] && c.uniform[a]
			}
		}
		c.last[r] = r
		for _, a := range args {
			readers[a]++
			c.last[a] = r
		}
	}
	for i := range c.g.Stores {
		r := c.g.Stores[i].Reg
		readers[r]++
		c.last[r] = len(code)
	}
	for r := range code {
		if i := &code[r]; i.Op == ir.PAdd && i.Type == ir.F32 && !c.uniform[r] {
			for _, a := range [2]ir.Reg{i.A, i.B} {
				if code[a].Op == ir.PMul && !c.uniform[a] && readers[a] == 1 && !c.fused[i.A] && !c.fused[i.B] {
					c.fused[a] = true
					for _, x := range instrArgs(&code[a]) {
						c.last[x] = max(c.last[x], r)
					}
				}
			}
		}
	}
}

// bindUniform compiles an instruction that runs once, before the loop over elements.
func (c *clusterCompiler) bindUniform(r int) {
	c.slot[r] = c.take(r)
	switch c.g.Code[r].Op {
	case ir.PConst:
		c.constant(r)
	case ir.PIn:
		c.step.once = append(c.step.once, c.load(r))
	default:
		c.step.once = append(c.step.once, c.instr(r))
	}
}

func instrArgs(i *ir.Instr) []ir.Reg {
	return []ir.Reg{i.A, i.B, i.C}[:ir.Prims[i.Op].Args]
}

// bind turns instructions into vops over slots.
func (c *clusterCompiler) bind() {
	code := c.g.Code
	for r := range code {
		if c.fused[r] {
			continue
		}
		if c.uniform[r] {
			c.bindUniform(r)
			continue
		}
		if c.partial != nil && (c.partial.inside[r] && !c.partial.both[r] || !c.used(r)) {
			continue
		}
		i := &code[r]
		c.slot[r] = c.take(r)
		var op vop
		switch {
		case i.Op == ir.PIn:
			op = c.load(r)
		case i.Op == ir.PAdd && (c.fused[i.A] || c.fused[i.B]):
			op = c.mulAdd(r)
		default:
			op = c.instr(r)
		}
		if k := c.directStore[r]; k >= 0 {
			c.step.ops = append(c.step.ops, c.bindDirectStore(r, k))
		}
		c.step.ops = append(c.step.ops, op)
		c.release(r)
	}
	if c.partial != nil {
		c.step.ops = append(c.step.ops, c.bindPartial())
	}
	for i := range c.g.Stores {
		if c.directStore[c.g.Stores[i].Reg] != i && (c.partial == nil || !c.partial.stored[i]) {
			c.step.ops = append(c.step.ops, c.store(i))
		}
	}
}

// findDirectStores finds the registers that can be computed in the memory of a result: dense f32
// results whose memory no load reads afterwards.
func (c *clusterCompiler) findDirectStores() {
	for r := range c.directStore {
		c.directStore[r] = -1
	}
	if c.partial != nil { // it reads operands after other instructions have run
		return
	}
	for k := range c.g.Stores {
		a := &c.g.Stores[k]
		i := &c.g.Code[a.Reg]
		if w := c.storeAccess(k); a.DType != ir.F32 || !w.dense || w.offset != 0 || i.Type != ir.F32 || c.uniform[a.Reg] || i.Op == ir.PIn || c.directStore[a.Reg] >= 0 {
			continue
		}
		safe := true
		for r := range c.g.Code {
			if l := &c.g.Code[r]; l.Op == ir.PIn && !c.g.IsProduct(ir.Reg(r)) && shareBytes(c.e.mem[c.g.Loads[l.Int].Buffer], c.e.at(a.Buffer)) {
				safe = safe && r < int(a.Reg) && c.last[r] <= int(a.Reg)
			}
		}
		if safe {
			c.directStore[a.Reg] = k
		}
	}
}

// shareBytes reports whether two memory ranges overlap.
func shareBytes(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// bindDirectStore points the slot of register r at its elements in store k.
func (c *clusterCompiler) bindDirectStore(r, k int) vop {
	mem, slot := slice[float32](c.e.at(c.g.Stores[k].Buffer)), c.slot[r]
	if mem == nil {
		return func(l *registerFile, start, n int) { l.f[slot] = l.product[start-l.at:][:n:n] }
	}
	return func(l *registerFile, start, n int) { l.f[slot] = mem[start : start+n : start+n] }
}

// take assigns a slot to register r, a shared one if r is uniform.
func (c *clusterCompiler) take(r int) int {
	k := classOf(c.g.Code[r].Type)
	if c.uniform[r] {
		c.uslots[k]++
		return -c.uslots[k] // numbers of shared slots count down from -1
	}
	if c.inPlace[r] = c.directStore[r] >= 0 || c.readInPlace(r); c.inPlace[r] {
		c.slots[k]++
		return c.slots[k] - 1
	}
	if n := len(c.free[k]); n > 0 {
		s := c.free[k][n-1]
		c.free[k] = c.free[k][:n-1]
		return s
	}
	c.slots[k]++
	return c.slots[k] - 1
}

// release frees the slots of registers that instruction r reads last.
func (c *clusterCompiler) release(r int) {
	seen := []ir.Reg{}
	args := instrArgs(&c.g.Code[r])
	for _, a := range args {
		if c.fused[a] {
			args = append(args, instrArgs(&c.g.Code[a])...)
		}
	}
	if c.last[r] == r { // never read
		args = append(args, ir.Reg(r))
	}
	for _, a := range args {
		if c.last[a] == r && !c.uniform[a] && !c.fused[a] && !c.inPlace[a] && !slices.Contains(seen, a) {
			seen = append(seen, a)
			k := classOf(c.g.Code[a].Type)
			c.free[k] = append(c.free[k], c.slot[a])
		}
	}
}

// divide requests memory for the registers and says what the work costs.
func (c *clusterCompiler) divide() {
	s, blank := c.step, c.blank
	s.shared.grow(c.uslots)
	c.e.scratch.take(s.shared.size(blank, s.wide), func(w int, mem []float32) {
		if w == 0 {
			s.shared.place(blank, mem, s.wide)
		}
	})
	for _, f := range c.fill {
		f()
	}
	s.cost = passWork * s.n * (len(c.g.Code) + 2)
	if s.formula != nil {
		return
	}
	bufs, scalars := 0, 0
	if p := c.partial; p != nil {
		bufs, scalars = len(p.from), len(p.uniform)
	}
	s.work = make([]registerFile, c.e.scratch.workers)
	slots := c.slots
	c.e.scratch.take(sizeOf(slots)*s.block, func(w int, mem []float32) {
		l := &s.work[w]
		l.grow(slots)
		l.place(nil, mem, s.block)
		l.call, l.bufs, l.scalars = s.m.Call(w), make([]kern.Buf, bufs), make([]float32, scalars)
	})
}

// constant points the register's shared slot at the constant's block.
func (c *clusterCompiler) constant(r int) {
	i, slot := &c.g.Code[r], -c.slot[r]-1
	kind := classOf(i.Type)
	c.blank[slotID{kind, slot}] = true
	c.fill = append(c.fill, func() {
		switch l, s := &c.step.shared, &c.e.scratch; kind {
		case floats:
			l.f[slot] = block(s, kind, number(i))
		case ints:
			l.i[slot] = block(s, kind, i.Int)
		default:
			l.d[slot] = block(s, kind, i.Imm)
		}
	})
}

func fill[T any](s []T, x T) {
	for i := range s {
		s[i] = x
	}
}

// mulAdd binds a sum with one operand that is a product without other readers.
func (c *clusterCompiler) mulAdd(r int) vop {
	i := &c.g.Code[r]
	product, other := i.A, i.B
	if !c.fused[product] {
		product, other = other, product
	}
	m := &c.g.Code[product]
	dst, x, y, z, p := c.reg(ir.Reg(r)), c.reg(m.A), c.reg(m.B), c.reg(other), c.path
	return func(l *registerFile, _, n int) {
		p.Ternary(kern.MulAdd, dst.f(l, n), x.f(l, n), y.f(l, n), z.f(l, n))
	}
}

var unaryOps = map[ir.Prim]kern.Unary{
	ir.PNeg: kern.Neg, ir.PAbs: kern.Abs, ir.PSqrt: kern.Sqrt, ir.PFloor: kern.Floor, ir.PCeil: kern.Ceil, ir.PRint: kern.Rint,
	ir.PNot: kern.Not, ir.PIsNaN: kern.IsNaN, ir.PIsInf: kern.IsInf,
	ir.PExp: kern.Exp, ir.PExpm1: kern.Expm1, ir.PLog: kern.Log, ir.PLog1p: kern.Log1p, ir.PSin: kern.Sin, ir.PCos: kern.Cos,
	ir.PTan: kern.Tan, ir.PAtan: kern.Atan, ir.PErf: kern.Erf, ir.PTanh: kern.Tanh,
}

var roundOps = map[ir.DType]kern.Unary{ir.F16: kern.RoundF16, ir.BF16: kern.RoundBF16}

var binaryOps = map[ir.Prim]kern.Binary{
	ir.PAdd: kern.Add, ir.PSub: kern.Sub, ir.PMul: kern.Mul, ir.PDiv: kern.Div, ir.PMin: kern.Min, ir.PMax: kern.Max, ir.PPow: kern.Pow,
	ir.PLt: kern.Lt, ir.PLe: kern.Le, ir.PEq: kern.Eq, ir.PNe: kern.Ne, ir.PAnd: kern.And, ir.POr: kern.Or, ir.PXor: kern.Ne,
}

var ternaryOps = map[ir.Prim]kern.Ternary{ir.PFma: kern.FMA, ir.PSelect: kern.Select}

// instr compiles an instruction that is neither a load nor a constant.
func (c *clusterCompiler) instr(r int) vop {
	i, p := &c.g.Code[r], c.path
	dst := c.reg(ir.Reg(r))
	switch i.Op {
	case ir.PIndex:
		return func(l *registerFile, start, n int) {
			for e, x := 0, dst.i(l, n); e < n; e++ {
				x[e] = int64(start + e)
			}
		}
	case ir.PPhilox:
		return c.philox(r)
	case ir.PConv:
		return c.convert(r)
	case ir.PSelect:
		if classOf(i.Type) != floats {
			return c.selectWide(r)
		}
	case ir.PRound:
		if i.To.Low() && i.Type == ir.F32 {
			a, op := c.reg(i.A), roundOps[i.To]
			return func(l *registerFile, _, n int) { p.Unary(op, dst.f(l, n), a.f(l, n)) }
		}
		return c.roundWide(r)
	}
	if classOf(c.g.Code[i.A].Type) != floats {
		return c.wide(r)
	}
	a, b, d := c.reg(i.A), c.reg(i.B), c.reg(i.C)
	if op, ok := unaryOps[i.Op]; ok {
		return func(l *registerFile, _, n int) { p.Unary(op, dst.f(l, n), a.f(l, n)) }
	}
	if op, ok := binaryOps[i.Op]; ok {
		return func(l *registerFile, _, n int) { p.Binary(op, dst.f(l, n), a.f(l, n), b.f(l, n)) }
	}
	op, ok := ternaryOps[i.Op]
	if !ok {
		panic(fmt.Sprintf("cpu: no vector form of primitive %s", i.Op)) // a table of ops is incomplete; TestEveryPrimitive detects it
	}
	return func(l *registerFile, _, n int) { p.Ternary(op, dst.f(l, n), a.f(l, n), b.f(l, n), d.f(l, n)) }
}

// philox generates the random words of the block's elements.
func (c *clusterCompiler) philox(r int) vop {
	p, dst, d := c.path, c.reg(ir.Reg(r)), c.drawOf(ir.Reg(r))
	d.bind(c)
	return func(l *registerFile, start, n int) { p.Philox(d.of(l), dst.i(l, n), uint64(start)) }
}

// drawOf is the stream of an instruction that draws random words.
type drawOf struct {
	i                    *ir.Instr
	seed, attempt, micro reg
}

func (c *clusterCompiler) drawOf(r ir.Reg) drawOf { return drawOf{i: &c.g.Code[r]} }

// bind finds the slots of the operands.
func (d *drawOf) bind(c *clusterCompiler) {
	d.seed, d.attempt, d.micro = c.reg(d.i.A), c.reg(d.i.B), c.reg(d.i.C)
}

func (d *drawOf) of(l *registerFile) philox.Draw {
	which := d.micro.i(l, 1)[0]
	return philox.Draw{Seed: d.seed.i(l, 1)[0], Attempt: uint32(d.attempt.i(l, 1)[0]), Micro: uint32(which), First: uint32(which >> 32), Site: uint32(d.i.Int)}
}

// selectWide binds a select of integers or doubles.
func (c *clusterCompiler) selectWide(r int) vop {
	i := &c.g.Code[r]
	dst, cond, a, b := c.reg(ir.Reg(r)), c.reg(i.A), c.reg(i.B), c.reg(i.C)
	if classOf(i.Type) == ints {
		return func(l *registerFile, _, n int) { choose(dst.i(l, n), cond.f(l, n), a.i(l, n), b.i(l, n)) }
	}
	return func(l *registerFile, _, n int) { choose(dst.d(l, n), cond.f(l, n), a.d(l, n), b.d(l, n)) }
}

func choose[T any](dst []T, cond []float32, a, b []T) {
	for e, c := range cond {
		if c != 0 {
			dst[e] = a[e]
		} else {
			dst[e] = b[e]
		}
	}
}

// roundWide rounds a double, wraps an integer, or rounds f32 to a format for which package kern has
// no rounding.
func (c *clusterCompiler) roundWide(r int) vop {
	i := &c.g.Code[r]
	dst, a, to := c.reg(ir.Reg(r)), c.reg(i.A), i.To
	if classOf(i.Type) == ints {
		return func(l *registerFile, _, n int) { each(dst.i(l, n), a.i(l, n), to.Wrap) }
	}
	if i.Type == ir.F64 {
		return func(l *registerFile, _, n int) {
			x, y := a.d(l, n), dst.d(l, n)
			for e := range x {
				y[e] = roundTo(x[e], to)
			}
		}
	}
	return func(l *registerFile, _, n int) { copy(dst.f(l, n), a.f(l, n)) } // to f32 or wider: a plain copy
}

// roundTo rounds x once to a float dtype. It rounds to odd in f32 first, so the second rounding
// cannot see a tie that the first one made.
func roundTo(x float64, d ir.DType) float64 {
	switch d {
	case ir.F32:
		return float64(float32(x))
	case ir.F16, ir.BF16:
		return float64(widen(d, narrow(d, roundToOdd32(x))))
	}
	return x
}

// roundToOdd32 truncates x to f32 and sets the last bit if that was inexact.
func roundToOdd32(x float64) float32 {
	f := float32(x)
	if float64(f) == x || x != x || math.IsInf(float64(f), 0) {
		return f
	}
	if math.Abs(float64(f)) > math.Abs(x) {
		f = math.Nextafter32(f, 0)
	}
	return math.Float32frombits(math.Float32bits(f) | 1)
}
