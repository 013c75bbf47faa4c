//go:build amd64 || arm64

package kern

import (
	"math"
	"slices"
	"unsafe"
)

// passes computes a formula one primitive after the other, on blocks.
type passes struct {
	p     *Path
	f     *Formula
	ops   []pass
	fixed []fixedBlock
	to    []int // by result: the block that is stored
	count int   // of blocks
}

// pass applies a primitive to blocks.
type pass struct {
	apply func(dst []float32, args [3][]float32)
	dst   int
	args  []int
}

// fixedBlock is a block with the same number in all elements.
type fixedBlock struct {
	of    Operand
	block int
}

// newPasses takes a formula that has been composed. Values take over the blocks of values that have been read last.
func newPasses(p *Path, f *Formula) *passes {
	k := &passes{p: p, f: f, count: len(f.Loads)}
	blocks, last := map[Operand]int{}, map[Operand]int{}
	for i, op := range f.Code {
		for _, a := range op.Args {
			last[a] = i
		}
	}
	for _, r := range f.Results {
		last[r.Value] = len(f.Code)
	}
	for i := range f.Loads {
		blocks[Operand{Loaded, i}] = i
	}
	var unused []int
	place := func(o Operand) int {
		b, ok := blocks[o]
		if !ok {
			if b = k.count; len(unused) > 0 && o.Kind == Computed {
				b, unused = unused[len(unused)-1], unused[:len(unused)-1]
			} else {
				k.count++
			}
			blocks[o] = b
			if o.Kind != Computed {
				k.fixed = append(k.fixed, fixedBlock{o, b})
			}
		}
		return b
	}
	for i, op := range f.Code {
		next := pass{apply: p.primitive(op.Name)}
		for _, a := range op.Args {
			next.args = append(next.args, place(a))
		}
		next.dst = place(Operand{Computed, i})
		k.ops = append(k.ops, next)
		for n, a := range op.Args {
			if last[a] == i && a.Kind == Computed && !slices.Contains(op.Args[:n], a) {
				unused = append(unused, blocks[a])
			}
		}
	}
	for _, r := range f.Results {
		k.to = append(k.to, place(r.Value))
	}
	return k
}

// primitive is the vector primitive of a name.
func (p *Path) primitive(name string) func(dst []float32, args [3][]float32) {
	for op := range numUnary {
		if op.String() == name {
			return func(dst []float32, args [3][]float32) { p.Unary(op, dst, args[0]) }
		}
	}
	for op := range numBinary {
		if op.String() == name {
			return func(dst []float32, args [3][]float32) { p.Binary(op, dst, args[0], args[1]) }
		}
	}
	for op := range numTernary {
		if op.String() == name {
			return func(dst []float32, args [3][]float32) { p.Ternary(op, dst, args[0], args[1], args[2]) }
		}
	}
	mask := uint32(1<<24 - 1)
	if name == "low23" {
		mask = 1<<23 - 1
	}
	return func(dst []float32, args [3][]float32) {
		for i, x := range args[0] {
			dst[i] = float32(math.Float32bits(x) & mask)
		}
	}
}

// rare is what passes need to complete a block.
type rare struct {
	memory floats
	saved  [maxOperands]floats // operands that the code overwrites

	outside []float32 // of memory: with the sign set in elements that the code does not cover,
	at      []uint16  // these elements,
	values  []float32 // and values of the passes, in blocks

	alone, next int // blocks that passes compute without trying the code; after the next one with many elements
}

const (
	// passesBlock is the number of elements after which passes compute those that a composed kernel does not cover.
	passesBlock = 512
	// manyOf a block are so many that passes over all of it are as fast.
	manyOf = passesBlock / 4
	// mostAlone is the most blocks that passes compute without trying the code.
	mostAlone = 15
)

// complete computes n elements, up to passesBlock, from the addresses of c on: by the code, then those that it does not cover in
// passes. If these are many, passes compute all, also of the next blocks.
func (k *passes) complete(code *composed, n int, c *Call, u *float32) {
	r, loads := c.room(k.count), len(k.f.Loads)
	operands, results := c.args, c.args[loads:loads+len(k.f.Results)]
	if r.alone > 0 {
		r.alone--
		k.run(r.values, nil, n, operands[:loads], results, u)
		return
	}
	for i, t := range k.f.Loads {
		if slices.Contains(results, c.args[i]) {
			operands[i] = bytes(&r.saved[i].get(8 * passesBlock / 4)[0])
			copy(unsafe.Slice(operands[i], n*t.Size()), unsafe.Slice(c.args[i], n*t.Size()))
		}
	}
	c.args[loads+len(results)] = bytes(&r.outside[0])
	code.call(code.entry, n, c, u, 1)
	switch at := r.find(n); {
	case len(at) > manyOf:
		r.alone, r.next = r.next, min(2*r.next+1, mostAlone)
		k.run(r.values, nil, n, operands[:loads], results, u)
	case len(at) > 0:
		r.next = 0
		k.run(r.values, at, n, operands[:loads], results, u)
	}
}

// room gives c the memory for passes with so many values.
func (c *Call) room(values int) *rare {
	r := &c.rare
	mem := r.memory.get(passesBlock + passesBlock/2 + values*passesBlock)
	r.outside, mem = mem[:passesBlock], mem[passesBlock:]
	r.at, r.values = unsafe.Slice((*uint16)(unsafe.Pointer(&mem[0])), passesBlock), mem[passesBlock/2:]
	return r
}

// find lists the elements of n that the code does not cover.
func (r *rare) find(n int) []uint16 {
	const step = 8
	count := 0
	for i := 0; i < n; i += step {
		x := (*[step / 2]uint64)(unsafe.Pointer(&r.outside[i]))
		if (x[0]|x[1]|x[2]|x[3])&signs == 0 {
			continue
		}
		for k := i; k < min(i+step, n); k++ {
			r.at[count] = uint16(k)
			count += int(math.Float32bits(r.outside[k]) >> 31)
		}
	}
	return r.at[:count]
}

// run computes n elements, or of them those at the given places.
func (k *passes) run(values []float32, at []uint16, n int, operands, results []*byte, u *float32) {
	count := n
	if at != nil {
		count = len(at)
	}
	block := func(i int) []float32 { return values[i*passesBlock:][:count:count] }
	for i, t := range k.f.Loads {
		k.p.gather(block(i), Buf{t, unsafe.Slice(operands[i], n*t.Size())}, at)
	}
	for _, x := range k.fixed {
		v := math.Float32frombits(uint32(x.of.N))
		if x.of.Kind == Scalar {
			v = *after(u, x.of.N)
		}
		k.p.Fill(block(x.block), v)
	}
	for i := range k.ops {
		op, args := &k.ops[i], [3][]float32{}
		for a, b := range op.args {
			args[a] = block(b)
		}
		op.apply(block(op.dst), args)
	}
	for i, r := range k.f.Results {
		k.p.scatter(Buf{r.Type, unsafe.Slice(results[i], n*r.Type.Size())}, at, block(k.to[i]))
	}
}

// gather reads the elements of src at the given places, without places the first ones.
func (p *Path) gather(dst []float32, src Buf, at []uint16) {
	switch {
	case at != nil:
		for i, e := range at {
			dst[i] = src.get(int(e))
		}
	case src.Type < numTypes:
		p.Load(dst, src)
	default:
		for i := range dst {
			dst[i] = src.get(i)
		}
	}
}

// scatter writes the elements of dst at the given places, without places the first ones.
func (p *Path) scatter(dst Buf, at []uint16, src []float32) {
	switch {
	case at != nil:
		for i, e := range at {
			dst.set(int(e), src[i])
		}
	case dst.Type < numTypes:
		p.Store(dst, src)
	default:
		for i, x := range src {
			dst.set(i, x)
		}
	}
}
