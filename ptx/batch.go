package ptx

import "fmt"

// Batch runs the same elementwise code over many tensors in one launch. Examples: the update of all
// parameters of one optimizer, with their gradients and states; the casts of all weights to one
// type.
//
// Tensor i has Sizes[i] elements; Shape is not used. An access with Stride nil goes through the
// tensor's elements and finds the address of its buffer in a table. An access with Stride [0] is a
// parameter: a load of one element that all tensors share. The code must not read the index.
// Parameters: the table, then the shared loads, in order.
type Batch struct {
	Elementwise
	Sizes []int64
}

// Word is one 64-bit entry of a Batch's table. If Access is negative, the entry is Value. Otherwise
// it is the address of a tensor's buffer for that access, where loads are counted first, then
// stores.
type Word struct {
	Value          int64
	Tensor, Access int
}

// BatchChunk is the number of elements of one tensor that a block handles.
const BatchChunk = elementThreads * 128

// Blocks is the number of blocks of the launch: one for every chunk of every tensor.
func (t Batch) Blocks() int {
	n := 0
	for _, size := range t.Sizes {
		n += int((size + BatchChunk - 1) / BatchChunk)
	}
	return n
}

// Table is the content of the memory that the first parameter points to: for every block its tensor
// and chunk, then for every tensor its size and its addresses.
func (t Batch) Table() []Word {
	var words []Word
	for i, size := range t.Sizes {
		for chunk := int64(0); chunk*BatchChunk < size; chunk++ {
			words = append(words, Word{Value: int64(i)<<32 | chunk, Access: -1})
		}
	}
	for i, size := range t.Sizes {
		words = append(words, Word{Value: size, Access: -1})
		for k, a := range t.accesses() {
			if a.Stride == nil {
				words = append(words, Word{Tensor: i, Access: k})
			}
		}
	}
	return words
}

// accesses are the loads and then the stores.
func (t Batch) accesses() []Access { return (&elementwiseGen{Elementwise: t.Elementwise}).accesses() }

// Build generates the kernel.
func (t Batch) Build(fl Flavour) (*Launch, error) {
	c, err := t.generate(fl)
	if err != nil {
		return nil, err
	}
	c.run(func(e Reg, n int) { c.body(e, n) })
	return finish(c.b, [3]int{t.Blocks(), 1, 1}, c.args)
}

// Sum generates a kernel that adds up values of the code over all tensors, in f32 and in an order
// fixed by the sizes. Examples: the norm of all gradients, the number of their elements that are not
// finite. The code must have no stores. The last parameter receives Blocks partial sums for each
// value, one value after the other; a RowReduce over len(values) rows adds them up.
func (t Batch) Sum(fl Flavour, values ...int) (*Launch, error) {
	if len(t.Stores) > 0 {
		return nil, fmt.Errorf("ptx: batch %s: a sum with stores", t.Name)
	}
	c, err := t.generate(fl)
	if err != nil {
		return nil, err
	}
	b, blocks := c.b, t.Blocks()
	c.args = append(c.args, Argument{Name: "sums", DType: Float32, Elems: int64(len(values) * blocks), Write: true})
	out := b.param(fmt.Sprintf("p%d", len(c.args)-1))
	var sums []Reg
	for _, v := range values {
		if v < 0 || v >= len(c.Code) {
			return nil, fmt.Errorf("ptx: batch %s: sum of value %d of %d", t.Name, v, len(c.Code))
		}
		sums = append(sums, b.floatConst(0))
	}
	c.run(func(e Reg, n int) { c.accumulate(e, n, values, sums) })
	for i, s := range sums {
		total := b.blockFold(s, c.tid, elementThreads, fmt.Sprintf("sums%d", i), func(x, y Reg) Reg { return b.add(x, y) })
		b.when(b.Do("setp.eq.u32", c.tid, I(0)), func() {
			b.Do("st.global.f32", Addr{Base: b.at(out, b.special("%ctaid.x"), 4), Off: int64(4 * i * blocks)}, total)
		})
	}
	return finish(b, [3]int{blocks, 1, 1}, c.args)
}

// accumulate adds the values of n elements to the sums.
func (c *elementwiseGen) accumulate(e Reg, n int, values []int, sums []Reg) {
	c.values(e, n)
	for i, v := range values {
		for l := range n {
			c.b.To(sums[i], "add.rn.f32", sums[i], c.convert(c.lane(v, l), Float32))
		}
	}
}

// batchGen is the state of one code generation.
type batchGen struct {
	*elementwiseGen
	sizes      []int64
	tid        Reg
	start, end Reg // the block's elements, u64
}

// generate checks the batch and emits the code that finds which part of which tensor a block
// processes.
func (t Batch) generate(fl Flavour) (*batchGen, error) {
	most, row := int64(0), 1
	for i, size := range t.Sizes {
		if size < 1 || size > 1<<40 {
			return nil, fmt.Errorf("ptx: batch %s: tensor %d has %d elements", t.Name, i, size)
		}
		most = max(most, size)
	}
	for _, a := range t.accesses() {
		if a.Stride == nil {
			row++
		} else if len(a.Stride) != 1 || a.Stride[0] != 0 {
			return nil, fmt.Errorf("ptx: batch %s: %s neither walks nor repeats", t.Name, a.Name)
		}
		if a.Offset != 0 {
			return nil, fmt.Errorf("ptx: batch %s: %s begins at element %d", t.Name, a.Name, a.Offset)
		}
	}
	for _, in := range t.Code {
		if in.Op == "index" || in.Op == "philox" {
			return nil, fmt.Errorf("ptx: batch %s: %s depends on the place in the tensor", t.Name, in.Op)
		}
	}
	t.Shape = []int64{max(most, 2)} // one dimension, so that broadcast and strided accesses stay apart
	g, err := newElementwiseGen(t.Elementwise, fl)
	if err != nil {
		return nil, err
	}
	c := &batchGen{elementwiseGen: g, sizes: t.Sizes}
	c.find(t, row)
	return c, nil
}

// find reads the table row of the block.
func (c *batchGen) find(t Batch, row int) {
	b, blocks := c.b, t.Blocks()
	c.args = append(c.args, Argument{Name: "table", DType: Int64, Elems: int64(blocks + row*len(t.Sizes)), Read: true})
	table := b.param("p0")
	mine := b.load(b.at(table, b.special("%ctaid.x"), 8), 0, Int32, 2)
	at := b.Do("mad.wide.u32", mine[1], I(8*row), b.Do("add.u64", table, I(8*blocks)))
	word := 1
	for i, a := range t.accesses() {
		var r Reg
		switch {
		case a.Stride == nil:
			r = b.load(at, 8*word, Int64, 1)[0]
			word++
		case i >= len(t.Loads):
			b.fail("store %s repeats", a.Name)
		default:
			r = c.param(a, false)
		}
		c.bases = append(c.bases, r)
	}
	c.tid = b.special("%tid.x")
	c.start = b.Do("mul.wide.u32", mine[0], I(BatchChunk))
	c.end = b.Do("min.u64", b.Do("add.u64", c.start, I(BatchChunk)), b.load(at, 0, Int64, 1)[0])
}

// run emits body for the block's elements: full vectors first, then the rest of the tensor. Values
// that are equal for all elements are computed once.
func (c *batchGen) run(body func(e Reg, n int)) {
	b := c.b
	c.fix()
	step, most, rests := int64(elementThreads*c.vec), int64(0), false
	for _, size := range c.sizes {
		most = max(most, min(size, BatchChunk))
		rests = rests || size%int64(c.vec) != 0
	}
	whole := c.end
	if rests {
		whole = b.Do("and.b64", c.end, I(-int64(c.vec)))
	}
	first := b.Do("mad.wide.u32", c.tid, I(c.vec), c.start)
	if most <= step {
		b.when(b.Do("setp.lt.u64", first, whole), func() { body(first, c.vec) })
	} else {
		b.loop(first, whole, I(step), B64, func(i Reg) { body(i, c.vec) })
	}
	if !rests {
		return
	}
	rest := b.Do("add.u64", whole, b.Do("cvt.u64.u32", c.tid))
	b.when(b.Do("setp.lt.u64", rest, c.end), func() { body(rest, 1) })
}

// fix computes the uniform values before the loop over elements.
func (c *elementwiseGen) fix() {
	c.fixed = make([][]Reg, len(c.Code))
	c.lanes, c.vals, c.coords = 1, make([][]Reg, len(c.Code)), make([]Reg, len(c.Shape))
	for i, in := range c.Code {
		if c.uniform[i] {
			c.vals[i] = c.value(i, in)
			c.fixed[i] = c.vals[i]
		}
	}
}
