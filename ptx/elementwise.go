package ptx

import (
	"fmt"
	"math/bits"
)

// Elementwise is straight-line scalar code applied to every element of an iteration space: a fused
// cluster of elementwise ops, a cast, an optimizer update, a broadcast or a strided copy.
//
// Instructions are in order; instruction i defines value i, and operands name earlier values.
// A load widens 16-bit floats to f32, a store rounds once. Value types are f32, f64, i32, i64 and
// bool; a u8 element is an i32 value.
type Elementwise struct {
	Name   string
	Shape  []int64  // iteration space, row-major; empty is one element
	Loads  []Access // parameters 0 … len(Loads)-1
	Stores []Output // the parameters after them
	Code   []Instr
}

// Access maps the iteration space to the elements of one buffer.
type Access struct {
	Name   string
	DType  DType
	Stride []int64 // strides in elements for each dimension of Shape; 0 broadcasts; nil is contiguous
	Offset int64   // element of the buffer at index 0…0
	Bits   bool    // elements are bool, eight in a byte of a u8 buffer, the first in its lowest bit
	Spread *Spread // of a load: elements are sums of those of a smaller tensor
}

// Output writes a value. It may go to a buffer that a load reads when both map every index to the
// same element.
type Output struct {
	Access
	Value int
}

// Instr is one primitive. The names are those of the .ir element code: in const index add sub mul
// div fma sqrt min max neg abs floor ceil rint select lt le eq ne and or xor not isnan isinf conv
// round tf32 philox exp expm1 log log1p sin cos tan atan erf tanh pow.
type Instr struct {
	Op      string
	Type    DType // of the result
	To      DType // round only
	A, B, C int
	Imm     float64 // in: index of the load; const of other types: bits; philox: site
	Int     int64   // in: which load; const of other types; philox: site
}

// Argument describes one kernel argument, a device pointer to Elems elements.
type Argument struct {
	Name  string
	DType DType
	Elems int64
	Write bool // written by the kernel
	Read  bool // read by the kernel
	// Touched is the most elements that the kernel reads, and the most that it writes, if a kernel
	// that is told which rows to use does not use all; 0: Elems.
	Touched int64
}

// Launch is a generated kernel with its launch configuration. There is one argument for each entry
// of Args, in order; each is a device pointer aligned to 256 bytes.
type Launch struct {
	Kernel *Kernel
	Grid   [3]int
	Block  int
	Args   []Argument
	// InPlace: the first written argument may be the buffer of the first read one, if their types
	// have the same size.
	InPlace bool
}

const elementThreads = 256

// Build generates the kernel for a flavour.
func (g Elementwise) Build(fl Flavour) (*Launch, error) {
	c, err := newElementwiseGen(g, fl)
	if err != nil {
		return nil, fmt.Errorf("ptx: elementwise kernel %s: %w", g.Name, err)
	}
	c.emit()
	if c.b.k.Regs[F64] > 0 {
		c.b.k.Blocks = residentF64
	}
	return finish(c.b, [3]int{int((c.vectors + c.tail + elementThreads - 1) / elementThreads), 1, 1}, c.args)
}

// residentF64 is the number of blocks of a multiprocessor that ptxas leaves registers for if the code
// computes in f64. Without the number it keeps a register in memory to fit one block more.
const residentF64 = 2

// maxCount is one more than the largest number of rows, columns, threads or results that a kernel
// counts in 32 bits. The products of such numbers, and addresses, have 64.
const maxCount = 1 << 31

// counts checks numbers that the kernel counts in 32 bits.
func (b *builder) counts(what string, numbers ...int) {
	for _, n := range numbers {
		if n >= maxCount && b.err == nil {
			b.err = fmt.Errorf("ptx: kernel %s: %d %s, the limit is 2^31-1; split the tensor", b.k.Name, n, what)
		}
	}
}

// finish turns a builder into a launch.
func finish(b *builder, grid [3]int, args []Argument) (*Launch, error) {
	b.counts("blocks", grid[0])
	if most := max(grid[1], grid[2]); most > 65535 && b.err == nil {
		b.err = fmt.Errorf("ptx: kernel %s: %d blocks along one dimension, the limit is 65535; split the tensor", b.k.Name, most)
	}
	threads := b.k.Threads
	k, err := b.kernel()
	if err != nil {
		return nil, err
	}
	return &Launch{Kernel: k, Grid: grid, Block: threads, Args: args}, nil
}

// inPlace marks a launch in which each thread reads its part of the first argument before writing
// it.
func inPlace(l *Launch, err error) (*Launch, error) {
	if err == nil {
		l.InPlace = true
	}
	return l, err
}

// elementwiseGen is the state of one code generation.
type elementwiseGen struct {
	Elementwise
	b             *builder
	n             int64 // number of elements
	vec           int   // number of elements per thread
	vectors, tail int64
	args          []Argument
	bases         []Reg  // addresses of the loads, then of the stores
	uniform       []bool // value i is the same for all elements
	lanes         int    // lanes of the body being emitted: vec or 1
	index         Reg    // linear index of lane 0, u64
	vals          [][]Reg
	fixed         [][]Reg           // uniform values computed before the body; nil: none
	words         map[string][4]Reg // Philox blocks already generated in this body
	coords        []Reg             // coordinates of lane 0
	here          []located         // location of lane 0 in each access; nil: computed from coords
	known         [][]Reg           // by load: its value in every lane if it is already in registers; nil: all are read
}

// located is a byte address and a constant offset from it.
type located struct {
	base Reg
	off  int
}

func newElementwiseGen(g Elementwise, fl Flavour) (*elementwiseGen, error) {
	c, err := planElementwise(g)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return nil, err
	}
	c.b = newBuilder(fl, g.Name, elementThreads)
	c.vec = c.width()
	c.vectors = c.n / int64(c.vec)
	c.tail = c.n % int64(c.vec)
	return c, c.checkAccesses()
}

// planElementwise brings e into the form from which code is generated.
func planElementwise(g Elementwise) (*elementwiseGen, error) {
	g, err := normalize(g)
	if err != nil {
		return nil, err
	}
	c := &elementwiseGen{Elementwise: g, n: product(g.Shape)}
	if c.n == 0 {
		return nil, fmt.Errorf("no elements")
	}
	if c.n > 1<<40 {
		return nil, fmt.Errorf("%d elements, the limit is 2^40", c.n)
	}
	return c, nil
}

func product(s []int64) int64 {
	n := int64(1)
	for _, d := range s {
		n *= d
	}
	return n
}

// contiguous gives the row-major strides of a shape.
func contiguous(shape []int64) []int64 {
	st := make([]int64, len(shape))
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		st[i] = n
		n *= shape[i]
	}
	return st
}

// normalize fills in strides, drops dimensions of size 1, and merges dimensions that every access
// traverses with one stride. Linear indices do not change.
func normalize(g Elementwise) (Elementwise, error) {
	acc := make([]*Access, 0, len(g.Loads)+len(g.Stores))
	g.Loads, g.Stores = append([]Access(nil), g.Loads...), append([]Output(nil), g.Stores...)
	for i := range g.Loads {
		acc = append(acc, &g.Loads[i])
	}
	for i := range g.Stores {
		acc = append(acc, &g.Stores[i].Access)
	}
	for _, a := range acc {
		if a.Stride == nil {
			a.Stride = contiguous(g.Shape)
		}
		if len(a.Stride) != len(g.Shape) {
			return g, fmt.Errorf("%s has %d strides for %d dimensions", a.Name, len(a.Stride), len(g.Shape))
		}
	}
	var shape []int64
	keep := make([][]int64, len(acc))
	for d, n := range g.Shape {
		if n == 1 {
			continue
		}
		last := len(shape) - 1
		if last >= 0 && mergeable(acc, keep, d, n) {
			shape[last] *= n
			for i, a := range acc {
				keep[i][last] = a.Stride[d]
			}
			continue
		}
		shape = append(shape, n)
		for i, a := range acc {
			keep[i] = append(keep[i], a.Stride[d])
		}
	}
	for i, a := range acc {
		a.Stride = keep[i]
	}
	g.Shape = shape
	return g, nil
}

// mergeable reports whether dimension d continues the last kept dimension in every access.
func mergeable(acc []*Access, keep [][]int64, d int, n int64) bool {
	for i, a := range acc {
		if keep[i][len(keep[i])-1] != a.Stride[d]*n {
			return false
		}
	}
	return true
}

// check validates operands and finds uniform values.
func (c *elementwiseGen) check() error {
	c.uniform = make([]bool, len(c.Code))
	for i, in := range c.Code {
		p, ok := prims[in.Op]
		if !ok {
			return fmt.Errorf("value %d: unknown primitive %q", i, in.Op)
		}
		args := [3]int{in.A, in.B, in.C}
		uniform := p.args > 0
		for _, a := range args[:p.args] {
			if a < 0 || a >= i {
				return fmt.Errorf("value %d: operand %d is not an earlier value", i, a)
			}
			uniform = uniform && c.uniform[a]
		}
		switch in.Op {
		case "in":
			if in.Int < 0 || in.Int >= int64(len(c.Loads)) {
				return fmt.Errorf("value %d: load %d of %d", i, in.Int, len(c.Loads))
			}
			uniform = c.repeats(c.Loads[in.Int])
		case "const":
			uniform = true
		case "philox":
			uniform = false
		}
		c.uniform[i] = uniform
	}
	for _, s := range c.Stores {
		if s.Value < 0 || s.Value >= len(c.Code) {
			return fmt.Errorf("store %s: value %d of %d", s.Name, s.Value, len(c.Code))
		}
	}
	return nil
}

// repeats reports whether the access reads the same element along the innermost dimension.
func (c *elementwiseGen) repeats(a Access) bool {
	return len(a.Stride) == 0 || a.Stride[len(a.Stride)-1] == 0
}

// width returns the number of elements per thread: as many as a 16-byte access of the narrowest
// element holds, at most 8, if everything is contiguous and aligned.
func (c *elementwiseGen) width() int {
	if len(c.Shape) == 0 {
		return 1
	}
	for v := min(8, 16/c.smallest()); v > 1; v /= 2 {
		if c.fits(int64(v)) {
			return v
		}
	}
	return 1
}

// smallest is the size in bytes of the narrowest element accessed, at most 4.
func (c *elementwiseGen) smallest() int {
	size := 4
	for _, a := range c.accesses() {
		if !c.repeats(a) {
			size = min(size, a.DType.Size())
		}
	}
	return size
}

func (c *elementwiseGen) accesses() []Access {
	all := append([]Access(nil), c.Loads...)
	for _, s := range c.Stores {
		all = append(all, s.Access)
	}
	return all
}

// fits reports whether v consecutive elements can be processed together.
func (c *elementwiseGen) fits(v int64) bool {
	last := len(c.Shape) - 1
	if last > 0 && c.Shape[last]%v != 0 || c.Shape[last] < v {
		return false
	}
	for _, a := range c.accesses() {
		if c.repeats(a) {
			continue
		}
		if a.Stride[last] != 1 || a.Offset%v != 0 {
			return false
		}
		for _, s := range a.Stride[:last] {
			if s%v != 0 {
				return false
			}
		}
	}
	return true
}

// emit writes the kernel: vector threads first, then one thread for each element of the tail.
func (c *elementwiseGen) emit() {
	b := c.b
	for k, a := range c.accesses() {
		c.bases = append(c.bases, c.param(a, k >= len(c.Loads)))
	}
	tid := c.thread()
	if c.vec == 1 {
		b.guarded(tid, c.n, func() { c.body(b.wide(tid), 1) })
		return
	}
	first := func() Reg {
		if tid.Class == B64 {
			return b.Do("mul.lo.u64", tid, I(c.vec))
		}
		return b.Do("mul.wide.u32", tid, I(c.vec))
	}
	if c.tail == 0 {
		b.guarded(tid, c.vectors, func() { c.body(first(), c.vec) })
		return
	}
	end := b.newLabel()
	b.unless(b.isBelow(tid, c.vectors), func() {
		e := b.Do("add.u64", b.wide(tid), I(c.n-c.tail-c.vectors))
		b.guarded(tid, c.vectors+c.tail, func() { c.body(e, 1) })
		b.Do("bra", end)
	})
	c.body(first(), c.vec)
	b.place(end)
}

// thread is the thread's number in the grid, a u64 where a u32 does not suffice.
func (c *elementwiseGen) thread() Reg {
	b := c.b
	block, tid := b.special("%ctaid.x"), b.special("%tid.x")
	if c.vectors+c.tail >= maxCount {
		return b.Do("mad.wide.u32", block, I(elementThreads), b.wide(tid))
	}
	return b.Do("mad.lo.u32", block, I(elementThreads), tid)
}

// wide is an index as u64.
func (b *builder) wide(i Reg) Reg {
	if i.Class == B64 {
		return i
	}
	return b.Do("cvt.u64.u32", i)
}

// isBelow is the predicate i < limit of an index.
func (b *builder) isBelow(i Reg, limit int64) Reg {
	return b.Do("setp.lt."+unsignedType(i.Class), i, I(limit))
}

// guarded runs body in the threads below limit; a full grid needs no test.
func (b *builder) guarded(i Reg, limit int64, body func()) {
	if limit%elementThreads == 0 {
		body()
		return
	}
	b.when(b.isBelow(i, limit), body)
}

func (c *elementwiseGen) param(a Access, write bool) Reg {
	c.args = append(c.args, Argument{Name: a.Name, DType: a.DType, Elems: c.extent(a), Write: write, Read: !write})
	return c.b.param(fmt.Sprintf("p%d", len(c.args)-1))
}

// values emits the code for n consecutive elements from the linear index e (u64).
func (c *elementwiseGen) values(e Reg, n int) {
	c.coords = c.coordinates(e)
	c.compute(e, n)
}

// compute emits the code for n elements. The first has index e; its location is given by coords or
// here.
func (c *elementwiseGen) compute(e Reg, n int) {
	c.lanes, c.index = n, e
	c.vals = make([][]Reg, len(c.Code))
	c.words = map[string][4]Reg{}
	for i, in := range c.Code {
		if c.fixed != nil && c.fixed[i] != nil {
			c.vals[i] = c.fixed[i]
			continue
		}
		c.vals[i] = c.value(i, in)
	}
}

// body emits values and stores.
func (c *elementwiseGen) body(e Reg, n int) {
	c.values(e, n)
	c.putAll()
}

// putAll emits the stores whose values were computed last.
func (c *elementwiseGen) putAll() {
	for i := range c.Stores {
		c.put(i, c.stored(i))
	}
}

// stored returns the value that store i writes, in its memory format.
func (c *elementwiseGen) stored(i int) []Reg {
	s, out := c.Stores[i], make([]Reg, c.lanes)
	if s.Bits {
		return c.joinBits(s.Value)
	}
	for l := range out {
		out[l] = c.toMemory(c.lane(s.Value, l), c.Code[s.Value].Type, s.DType)
	}
	return out
}

// put emits store i.
func (c *elementwiseGen) put(i int, out []Reg) {
	at := c.locate(len(c.Loads) + i)
	c.b.store(at.base, at.off, c.Stores[i].DType, out)
}

// locate returns the location of lane 0 in access k.
func (c *elementwiseGen) locate(k int) located {
	if c.here != nil {
		return c.here[k]
	}
	a := c.accesses()[k]
	return located{base: c.address(c.bases[k], a, c.coords)}
}

// lane returns value v of lane l.
func (c *elementwiseGen) lane(v, l int) Reg {
	if len(c.vals[v]) == 1 {
		return c.vals[v][0]
	}
	return c.vals[v][l]
}

// value emits instruction i for all lanes, or once if it is uniform.
func (c *elementwiseGen) value(i int, in Instr) []Reg {
	n := c.lanes
	if c.uniform[i] {
		n = 1
	}
	if in.Op == "in" {
		a := c.Loads[in.Int]
		if c.known != nil && c.known[in.Int] != nil {
			return c.known[in.Int]
		}
		if a.Spread != nil {
			return c.spread(int(in.Int))
		}
		at := c.locate(int(in.Int))
		if a.Bits {
			return c.splitBits(at)
		}
		raw := c.b.load(at.base, at.off, a.DType, n)
		for l := range raw {
			raw[l] = c.fromMemory(raw[l], a.DType, in.Type)
		}
		return raw
	}
	out := make([]Reg, n)
	p := prims[in.Op]
	args := [3]int{in.A, in.B, in.C}
	for l := range out {
		var r [3]Reg
		for k, a := range args[:p.args] {
			r[k] = c.lane(a, l)
		}
		out[l] = p.emit(c, in, r, l)
	}
	return out
}

// asStored returns the value that a load returns after x was stored as d.
func (c *elementwiseGen) asStored(x []Reg, d DType) []Reg {
	if !d.Low() {
		return x
	}
	out := make([]Reg, len(x))
	for l := range x {
		out[l] = c.fromMemory(c.toMemory(x[l], Float32, d), d, Float32)
	}
	return out
}

// coordinates splits the linear index into one u64 register per dimension, outermost first.
func (c *elementwiseGen) coordinates(e Reg) []Reg {
	if len(c.Shape) <= 1 {
		return []Reg{e}
	}
	b := c.b
	t, wide := "u32", c.n >= 1<<32
	if wide {
		t = "u64"
	} else {
		e = b.Do("cvt.u32.u64", e)
	}
	coords := make([]Reg, len(c.Shape))
	for d := len(c.Shape) - 1; d > 0; d-- {
		n := c.Shape[d]
		coords[d], e = c.divide(t, e, n)
	}
	coords[0] = e
	if !wide {
		for i := range coords {
			coords[i] = b.Do("cvt.u64.u32", coords[i])
		}
	}
	return coords
}

// divide returns e mod n and e div n.
func (c *elementwiseGen) divide(t string, e Reg, n int64) (rem, quo Reg) {
	b := c.b
	if n&(n-1) == 0 {
		bt := "b" + t[1:]
		return b.Do("and."+bt, e, I(n-1)), b.Do("shr."+t, e, I(bits.TrailingZeros64(uint64(n))))
	}
	quo = b.Do("div."+t, e, I(n))
	return b.Do("sub."+t, e, b.Do("mul.lo."+t, quo, I(n))), quo
}

// address is the byte address of lane 0 in one buffer.
func (c *elementwiseGen) address(base Reg, a Access, coords []Reg) Reg {
	if a.Bits {
		return c.addressOfBits(base, a, coords)
	}
	b, size := c.b, int64(a.DType.Size())
	addr := base
	if a.Offset != 0 {
		addr = b.Do("add.u64", addr, I(a.Offset*size))
	}
	for d, s := range a.Stride {
		if s != 0 {
			addr = b.Do("mad.lo.u64", coords[d], I(s*size), addr)
		}
	}
	return addr
}
