package kern

import (
	"slices"

	"ampc/internal/x86"
)

// body is what a primitive does to a vector, in AVX-512 instructions. internal/gen records it when it writes the static
// kernels, so that both compute the same bits.
type body struct {
	consts []uint32
	ops    []bodyOp
}

// bodyOp is an instruction: the value that the result's register held before, operands and mask. Operands are numbers of
// the body's inputs, then of earlier results; constants are -2, -3 and so on; -1 is none.
type bodyOp struct {
	op              x86.Op
	old, a, b, mask int16
	imm             uint8
}

const none = -1

// lane is an instruction of a kernel under construction. Operands are places in composer.ops, or, from -2 down, in
// composer.pool.
type lane struct {
	op              x86.Op
	old, a, b, mask int
	imm             uint8
	at              int // 1 + the operand or result in memory that it reads or writes
}

// pooled is a number that is the same for all elements: a constant, or a scalar of the caller.
type pooled struct {
	scalar bool
	n      uint32 // the constant's bits, or the number of the scalar
}

// composer turns a formula into instructions on one vector.
type composer struct {
	f     *Formula
	ops   []lane
	pool  []pooled
	known map[lane]int
	loads []int // values of operands, none: not loaded yet
}

// The most operands and results, instructions and spilled vectors of a composed kernel.
const (
	composedOps    = 4000
	composedSpills = 128
)

// lanes returns the instructions of f in order, without those that nothing reads, or false if a primitive has no body.
func (c *composer) lanes() ([]lane, bool) {
	c.known, c.loads = map[lane]int{}, make([]int, len(c.f.Loads))
	for i := range c.loads {
		c.loads[i] = none
	}
	values := make([]int, len(c.f.Code))
	operand := func(o Operand) int {
		switch o.Kind {
		case Loaded:
			return c.load(o.N)
		case Scalar:
			return c.inPool(pooled{true, uint32(o.N)})
		}
		return values[o.N]
	}
	for i, op := range c.f.Code {
		b, ok := bodies[op.Name]
		if !ok || len(c.ops) > composedOps {
			return nil, false
		}
		args := make([]int, len(op.Args))
		for k, a := range op.Args {
			args[k] = operand(a)
		}
		values[i] = c.expand(&b, args)
	}
	var stores []lane
	for i, r := range c.f.Results {
		s := lane{op: x86.VMOVUPS.Store(), old: none, a: operand(r.Value), b: none, mask: none, at: 1 + len(c.f.Loads) + i}
		switch bfloat := bodies["bfloat"]; r.Type {
		case F16:
			s.op = x86.VCVTPS2PH
		case BF16:
			s.op, s.a = x86.VPMOVDW, c.expand(&bfloat, []int{s.a})
		}
		stores = append(stores, s)
	}
	return c.ordered(stores), true
}

// add appends an instruction, unless one like it is there.
func (c *composer) add(o lane) int {
	if v, ok := c.known[o]; ok {
		return v
	}
	if o.op == x86.VCMPPS && o.imm == cmpNotEqual && o.a >= 0 && o.b < none && c.pool[-2-o.b] == (pooled{n: 0}) {
		if t := &c.ops[o.a]; t.op == x86.VMOVAPS && t.mask >= 0 && t.b < none && c.pool[-2-t.b] == (pooled{n: oneBits}) {
			return t.mask // the condition of a truth value
		}
	}
	c.known[o] = len(c.ops)
	c.ops = append(c.ops, o)
	return len(c.ops) - 1
}

const (
	cmpNotEqual = 4
	oneBits     = 0x3f800000
)

func (c *composer) inPool(p pooled) int {
	i := slices.Index(c.pool, p)
	if i < 0 {
		i = len(c.pool)
		c.pool = append(c.pool, p)
	}
	return -2 - i
}

func (c *composer) load(i int) int {
	if c.loads[i] == none {
		o := lane{op: x86.VMOVUPS, old: none, a: none, b: none, mask: none, at: 1 + i}
		switch c.f.Loads[i] {
		case F16:
			o.op = x86.VCVTPH2PS
		case BF16:
			o.op = x86.VPMOVZXWD
			o = lane{op: x86.VPSLLD, old: none, a: none, b: c.add(o), mask: none, imm: 16}
		}
		c.loads[i] = c.add(o)
	}
	return c.loads[i]
}

// expand appends the body of a primitive and returns its result.
func (c *composer) expand(b *body, args []int) int {
	values := slices.Clone(args)
	operand := func(x int16) int {
		if x < none {
			return c.inPool(pooled{n: b.consts[-2-x]})
		} else if x == none {
			return none
		}
		return values[x]
	}
	for i := range b.ops {
		o := &b.ops[i]
		values = append(values, c.add(lane{o.op, operand(o.old), operand(o.a), operand(o.b), operand(o.mask), o.imm, 0}))
	}
	return values[len(values)-1]
}

// ordered is the sequence of instructions that the stores need. A store follows the last load, because a result may lie
// over an operand.
func (c *composer) ordered(stores []lane) []lane {
	needed, last := make([]bool, len(c.ops)), 0
	for _, s := range stores {
		if s.a >= 0 {
			needed[s.a] = true
		}
	}
	for i := len(c.ops) - 1; i >= 0; i-- {
		if o := &c.ops[i]; needed[i] {
			for _, x := range []int{o.old, o.a, o.b, o.mask} {
				if x >= 0 {
					needed[x] = true
				}
			}
			if o.at > 0 {
				last = max(last, i)
			}
		}
	}
	place := make([]int, len(c.ops)) // in the sequence
	var seq []lane
	moved := func(x int) int {
		if x >= 0 {
			return place[x]
		}
		return x
	}
	for i := range c.ops {
		if needed[i] {
			o := c.ops[i]
			o.old, o.a, o.b, o.mask = moved(o.old), moved(o.a), moved(o.b), moved(o.mask)
			place[i] = len(seq)
			seq = append(seq, o)
		}
		if i < last {
			continue
		}
		for k, s := range stores {
			if s.op != 0 && s.a <= i {
				s.a = moved(s.a)
				seq, stores[k].op = append(seq, s), 0
			}
		}
	}
	return seq
}

// Compose assembles a kernel of f in memory, for a path with 512-bit vectors. It returns nil if a primitive of f has no
// body, if f has too many operands, or if the system refuses executable memory. The caller must Close the kernel.
func (p *Path) Compose(f *Formula) *Fused {
	if !p.composes || len(f.Loads)+len(f.Results) > maxOperands || len(f.Loads) == 0 {
		return nil
	}
	c := composer{f: f}
	seq, ok := c.lanes()
	if !ok {
		return nil
	}
	code, spills, ok := c.assemble(seq)
	if !ok {
		return nil
	}
	head := make([]byte, roundUp(4*len(c.pool), 64))
	for i, p := range c.pool {
		if !p.scalar {
			putWord(head[4*i:], p.n)
		}
	}
	mapped, err := newCode(append(head, code...))
	if err != nil {
		return nil
	}
	k := &Fused{name: "composed", loads: len(f.Loads), types: slices.Clone(f.Loads), lanes: p.lanes}
	for _, r := range f.Results {
		k.types = append(k.types, r.Type)
	}
	k.composed = &composed{code: mapped, entry: len(head), spills: spills, most: perCall(len(seq))}
	return k
}

// perCall is how many elements a call computes whose vectors take so many instructions: few enough for a call to end
// within 100 µs, as the scheduler cannot interrupt it.
func perCall(instructions int) int {
	const most, vectors = 1 << 12, 1 << 17
	return max(16, min(most, vectors/max(1, instructions)&^3*16))
}
