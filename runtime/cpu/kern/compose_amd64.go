package kern

import (
	"cmp"
	"encoding/binary"
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
	off             int // elements before the vector that it computes
}

// pooled is a number that is the same for all elements: a constant, or a scalar of the caller; or a whole vector.
type pooled struct {
	kind poolKind
	n    uint32 // the constant's bits, the number of the scalar, or that of the vector
}

type poolKind uint8

const (
	constant poolKind = iota
	scalar
	whole // of a vector
)

// The vectors that kernels read: the places of the odd halves, and of the even words, of two vectors.
const (
	oddHalves = iota
	evenWords
	numWhole
)

// wholeVectors is the memory of these vectors.
var wholeVectors = func() (b [64 * numWhole]byte) {
	for i := range 32 {
		b[64*oddHalves+2*i] = byte(2*i + 1)
	}
	for i := range 16 {
		b[64*evenWords+4*i] = byte(2 * i)
	}
	return b
}()

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
			return c.inPool(pooled{scalar, uint32(o.N)})
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
		case BF16: // merged moves the upper halves down
			s.op, s.a = x86.VPMOVDW, c.expand(&bfloat, []int{s.a})
		case Bools:
			s.op, s.a = x86.VPMOVDB, c.add(lane{op: x86.VCVTPS2DQ, old: none, a: none, b: s.a, mask: none})
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
		case Words:
			high := o
			high.off = 8
			o = lane{op: x86.VPERMT2D, old: c.add(o), a: c.inPool(pooled{whole, evenWords}), b: c.add(high), mask: none}
		case Bools:
			o.op = x86.VPMOVZXBD
			b := c.add(o)
			set := c.add(lane{op: x86.VPTESTMD, old: none, a: b, b: b, mask: none})
			o = lane{op: x86.VMOVAPS, old: none, a: none, b: c.inPool(pooled{n: oneBits}), mask: set}
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
		values = append(values, c.add(lane{o.op, operand(o.old), operand(o.a), operand(o.b), operand(o.mask), o.imm, 0, 0}))
	}
	return values[len(values)-1]
}

// ordered is the sequence of instructions that the stores need. The operand that needs more registers comes first, and others
// just before their reader. A store follows the last load, because a result may lie over an operand.
func (c *composer) ordered(stores []lane) (seq []lane) {
	slices.SortStableFunc(stores, func(a, b lane) int { return cmp.Compare(a.a, b.a) })
	place, depth := make([]int, len(c.ops)), c.depths()
	for i := range place {
		place[i] = none
	}
	var visit func(x int) int
	visit = func(x int) int {
		if x < 0 {
			return x
		}
		if place[x] == none {
			o := c.ops[x]
			reads := []*int{&o.old, &o.a, &o.b, &o.mask}
			slices.SortStableFunc(reads, func(a, b *int) int { return cmp.Compare(depth(*b), depth(*a)) })
			for _, r := range reads {
				*r = visit(*r)
			}
			place[x] = len(seq)
			seq = append(seq, o)
		}
		return place[x]
	}
	var waiting []lane
	for i, s := range stores {
		s.a = visit(s.a)
		waiting = append(waiting, s)
		if i == len(stores)-1 || c.loaded(stores[i+1:], place) {
			seq, waiting = append(seq, waiting...), nil
		}
	}
	return seq
}

// loaded reports whether everything that stores read of memory has a place.
func (c *composer) loaded(stores []lane, place []int) bool {
	var done func(x int) bool
	seen := make([]bool, len(c.ops))
	done = func(x int) bool {
		if x < 0 || place[x] != none || seen[x] {
			return true
		}
		seen[x] = true
		o := &c.ops[x]
		return o.at == 0 && done(o.old) && done(o.a) && done(o.b) && done(o.mask)
	}
	return !slices.ContainsFunc(stores, func(s lane) bool { return !done(s.a) })
}

// depths returns how many registers a value needs (Sethi and Ullman 1970), as far as values have one reader each.
func (c *composer) depths() func(x int) int {
	need := make([]int, len(c.ops))
	of := func(x int) int {
		if x < 0 {
			return 0
		}
		return need[x]
	}
	for i := range c.ops {
		o := &c.ops[i]
		reads := []int{of(o.old), of(o.a), of(o.b), of(o.mask)}
		slices.SortFunc(reads, func(a, b int) int { return cmp.Compare(b, a) })
		need[i] = 1
		for k, n := range reads {
			if n > 0 {
				need[i] = max(need[i], n+k)
			}
		}
	}
	return of
}

// merged is the sequence of several vectors in turn, so that the processor finds work while the instructions of one vector
// wait for each other. Halves of two vectors are stored as one vector.
func (c *composer) merged(seq []lane, vectors int) []lane {
	place := make([][]int, vectors)
	for v := range place {
		place[v] = make([]int, len(seq))
	}
	var out []lane
	add := func(o lane) int {
		out = append(out, o)
		return len(out) - 1
	}
	for i := range seq {
		for v := range vectors {
			o := seq[i]
			o.off += 16 * v
			for _, x := range []*int{&o.old, &o.a, &o.b, &o.mask} {
				if *x >= 0 {
					*x = place[v][*x]
				}
			}
			place[v][i] = o.a // of a store
			half := o.at > len(c.f.Loads) && c.f.Results[o.at-1-len(c.f.Loads)].Type.Size() == 2
			switch {
			case half && vectors > 1 && v%2 == 1:
				add(lane{op: x86.VMOVUPS.Store(), old: none, a: c.twoHalves(o.op, place[v-1][i], o.a, add), b: none, mask: none, at: o.at, off: 16 * (v - 1)})
			case half && vectors > 1:
			case o.op == x86.VPMOVDW:
				o.a = add(lane{op: x86.VPSRLD, old: none, a: none, b: o.a, mask: none, imm: 16})
				add(o)
			default:
				place[v][i] = add(o)
			}
		}
	}
	return out
}

// twoHalves is a vector of the halves of two, which op would store.
func (c *composer) twoHalves(op x86.Op, first, second int, add func(lane) int) int {
	if op == x86.VPMOVDW {
		return add(lane{op: x86.VPERMT2W, old: first, a: c.inPool(pooled{whole, oddHalves}), b: second, mask: none})
	}
	half := func(x int) int { return add(lane{op: op, old: none, a: none, b: x, mask: none}) }
	low, high := half(first), half(second)
	return add(lane{op: x86.VINSERTI64X4, old: none, a: low, b: high, mask: none, imm: 1})
}

// HasBody reports whether formulas may apply the primitive of a name.
func (p *Path) HasBody(name string) bool { _, ok := bodies[name]; return ok && p.composes }

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
	head := make([]byte, len(wholeVectors)+roundUp(4*len(c.pool), 64))
	copy(head, wholeVectors[:])
	for i, p := range c.pool {
		if p.kind == constant {
			binary.LittleEndian.PutUint32(head[len(wholeVectors)+4*i:], p.n)
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
	k.composed = &composed{code: mapped, entry: len(head), spills: spills, most: perCall(seq)}
	return k
}

// perCall is how many elements a call computes whose vectors take these instructions: few enough for a call to end within
// 100 µs, as the scheduler cannot interrupt it. Quotients and roots occupy the divider.
func perCall(seq []lane) int {
	const most, cycles, divider = 1 << 12, 1 << 17, 24
	each := 1
	for i := range seq {
		each++
		if op := seq[i].op; op == x86.VDIVPS || op == x86.VSQRTPS {
			each += divider
		}
	}
	return 16 * max(1, min(most/16, cycles/each&^3))
}
