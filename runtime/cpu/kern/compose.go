//go:build amd64 || arm64

package kern

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// body is what a primitive does to a vector. internal/gen records it when it writes the kernels of primitives, so that both compute
// the same bits.
type body struct {
	consts []uint32
	whole  []uint32 // vectors
	ops    []bodyOp
}

// bodyOp is an instruction: the value that the result's register held before, operands and mask. Operands are numbers of
// the body's inputs, then of earlier results; constants, then vectors, are -2, -3 and so on; -1 is none.
type bodyOp struct {
	op              opcode
	old, a, b, mask int16
	imm             uint8
}

const none = -1

// instructionSet is what composing knows of the vectors of a path. Everything else of composer and vectors is the same
// for all.
type instructionSet struct {
	lanes, registers int
	hidden           int // the most instructions of a vector that the processor begins before those of the vector before have ended
	machineSet
	bodies map[string]body

	load   [Bools + 1]opcode // by type
	loaded [Bools + 1]body   // what becomes of a vector as it is loaded, of two for Words; without instructions the vector itself
	one    [Bools + 1]body   // what is stored of one vector, by type; without instructions the vector itself
	joined [Bools + 1]body   // what is stored of two vectors as one; without instructions each is stored
	store  [Bools + 1]opcode
	cube   body // as Go computes it, in float64
	words  wordSet
}

// lane is an instruction of a kernel under construction. Operands are places in composer.ops, or, from -2 down, in
// composer.pool.
type lane struct {
	op              opcode
	old, a, b, mask int
	imm             uint8
	at              int // 1 + the operand or result in memory that it reads or writes
	off             int // elements before the vector that it computes
	sum             int // 1 + the sum to which it adds a, or the product of a and b, see Formula.Sums

	generator int    // 1 + the generator whose counters it reads, or writes if it has an operand
	twice     bool   // the value is for two vectors
	odd       wordOp // what it does for the second of two vectors, if not the same
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
	drawn // a word of a generator's state
)

// composer turns a formula into instructions on one vector.
type composer struct {
	f     *Formula
	set   *instructionSet
	ops   []lane
	pool  []pooled
	known map[lane]int
	loads []int // values of operands, none: not loaded yet

	generators int    // of random words
	counters   []lane // the stores of their counters

	outside int // a value with the sign set in lanes that the code does not cover, none: it covers all
}

// The most instructions and spilled vectors of a composed kernel, and elements of a call, with data in caches and in memory.
const (
	mostElements = 1 << 12
	mostStreamed = 1 << 14

	composedOps    = 4000
	composedSpills = 128
)

// lanes returns the instructions of f in order, without those that nothing reads, or false if a primitive has no body.
func (c *composer) lanes() ([]lane, bool) {
	c.known, c.loads, c.outside = map[lane]int{}, make([]int, len(c.f.Loads)), none
	for i := range c.loads {
		c.loads[i] = none
	}
	values, known := make([]int, len(c.f.Code)), make([]interval, len(c.f.Code))
	operand := func(o Operand) int {
		switch o.Kind {
		case Loaded:
			return c.load(o.N)
		case Scalar:
			return c.inPool(pooled{scalar, uint32(o.N)})
		case Constant:
			return c.inPool(pooled{n: uint32(o.N)})
		case checked:
			return c.outside
		}
		return values[o.N]
	}
	for i, op := range c.f.Code {
		args, of := make([]int, len(op.Args)), make([]interval, len(op.Args))
		for k, a := range op.Args {
			args[k], of[k] = operand(a), everything
			if a.Kind == Computed {
				of[k] = known[a.N]
			}
		}
		known[i] = intervalOf(op.Name, of[0])
		name, args := c.special(op.Name, args, of[0])
		b, ok := c.set.body(name)
		if !ok || len(c.ops) > composedOps {
			return nil, false
		}
		c.check(name, args)
		values[i] = c.expand(&b, args, c.add)
	}
	if c.outside != none {
		c.f.Results = append(slices.Clip(c.f.Results), FormulaResult{Value: Operand{Kind: checked}})
	}
	var stores []lane
	for i, r := range c.f.Results {
		s := lane{op: c.set.store[r.Type], old: none, a: operand(r.Value), b: none, mask: none, at: 1 + len(c.f.Loads) + i}
		if bfloat := c.set.bodies["bfloat"]; r.Type == BF16 {
			s.a = c.expand(&bfloat, []int{s.a}, c.add)
		}
		stores = append(stores, s)
	}
	stores = append(stores, c.counters...)
	for i, a := range c.f.Sums {
		s := lane{op: addSum, old: none, a: operand(a.Value), b: none, mask: none, sum: 1 + i}
		if a.Square {
			s.op, s.b = fmaSum, s.a
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
	if v := c.simpler(&o); v != none {
		return v
	}
	c.known[o] = len(c.ops)
	c.ops = append(c.ops, o)
	return len(c.ops) - 1
}

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
		t := c.f.Loads[i]
		if t == Random {
			c.loads[i] = c.random(c.generators)
			c.generators++
			return c.loads[i]
		}
		o := lane{op: c.set.load[t], old: none, a: none, b: none, mask: none, at: 1 + i}
		read := []int{c.add(o)}
		if t == Words {
			o.off = c.set.lanes / 2
			read = append(read, c.add(o))
		}
		c.loads[i] = c.expand(&c.set.loaded[t], read, c.add)
	}
	return c.loads[i]
}

// expand has add append the instructions of a body and returns its result, the last input if there are none.
func (c *composer) expand(b *body, args []int, add func(lane) int) int {
	values := slices.Clone(args)
	operand := func(x int16) int {
		switch n := -2 - int(x); {
		case n >= len(b.consts):
			return c.inPool(pooled{whole, b.whole[n-len(b.consts)]})
		case n >= 0:
			return c.inPool(pooled{n: b.consts[n]})
		case x == none:
			return none
		}
		return values[x]
	}
	for i := range b.ops {
		o := &b.ops[i]
		values = append(values, add(lane{op: o.op, old: operand(o.old), a: operand(o.a), b: operand(o.b), mask: operand(o.mask), imm: o.imm}))
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
		if s.b != none {
			s.b = s.a
		}
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
// wait for each other. Vectors of long bodies are some instructions behind each other, so that not all wait for the same unit
// at the same time. Results of two vectors are stored as one where the set has a body for it.
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
	lag := 0
	if len(seq) >= longBody {
		lag = 2
	}
	for at := range len(seq) + lag*(vectors-1) {
		for v := range vectors {
			i := at - lag*v
			if i < 0 || i >= len(seq) {
				continue
			}
			o := seq[i]
			if o.twice {
				place[v][i] = c.shared(&o, place, v, i, add)
				continue
			}
			if o.odd.op != 0 && v%2 == 1 {
				o.op, o.imm = o.odd.op, o.odd.imm
			}
			o.off += c.set.lanes * v
			for _, x := range []*int{&o.old, &o.a, &o.b, &o.mask} {
				if *x >= 0 {
					*x = place[v][*x]
				}
			}
			if o.at <= len(c.f.Loads) {
				place[v][i] = add(o)
				continue
			}
			place[v][i] = o.a
			t := c.f.Results[o.at-1-len(c.f.Loads)].Type
			switch joined := &c.set.joined[t]; {
			case vectors == 1 || len(joined.ops) == 0:
				o.a = c.expand(&c.set.one[t], []int{o.a}, add)
				add(o)
			case v%2 == 1:
				o.op, o.a, o.off = c.set.store[F32], c.expand(joined, []int{place[v-1][i], o.a}, add), c.set.lanes*(v-1)
				add(o)
			}
		}
	}
	return out
}

// HasBody reports whether formulas may apply the primitive of a name.
func (p *Path) HasBody(name string) bool { _, ok := p.set().bodies[name]; return ok && p.composes }

// Compose assembles a kernel of f in memory. It returns nil if a primitive of f has no body, if f has too many operands, or if
// the system refuses executable memory. The caller must Close the kernel.
func (p *Path) Compose(f *Formula) *Fused {
	streams := len(f.Loads) + len(f.Results)
	if f.checked() {
		streams++
	}
	if n := f.draws(); n > MostRandom || n > 0 && (f.checked() || f.Rows) { // passes make no words
		return nil
	}
	if !p.composes || streams > maxOperands || len(f.Loads) == 0 || f.Rows && (streams > rowOperands || f.Scalars > RowScalars) {
		return nil
	}
	if len(f.Sums) > 0 && (!f.Rows || len(f.Results) > 0 || streams > sumOperands) {
		return nil
	}
	own := *f
	c := composer{f: &own, set: p.set()}
	seq, ok := c.lanes()
	if !ok || f.Rows && c.outside != none {
		return nil
	}
	l, ok := c.plan(seq, c.sizes()...)
	if !ok {
		return nil
	}
	var out machineCode
	spills, ok := c.assemble(seq, &l, &out)
	if !ok {
		return nil
	}
	k := &composed{set: c.set, spills: spills, generates: c.generators > 0, most: perCall(seq, p.lanes, l.unroll, mostElements)}
	single := len(out.Bytes())
	if len(f.Sums) > 0 && !c.singles(seq, &l, &out) {
		return nil
	}
	streamed := len(out.Bytes())
	k.rounds = c.stream(seq, &out)
	head := c.constants()
	k.entry, k.single, k.streamed = len(head), len(head)+single, len(head)+streamed
	mapped, err := newCode(append(head, out.Bytes()...))
	if err != nil {
		return nil
	}
	k.code = mapped
	if c.outside != none {
		k.passes = newPasses(p, f)
		k.most = min(k.most, passesBlock)
	}
	run := &Fused{loads: len(f.Loads), types: slices.Clone(f.Loads), lanes: p.lanes, generators: c.generators, composed: k, sums: len(f.Sums)}
	for _, r := range f.Results {
		run.types = append(run.types, r.Type)
	}
	if run.generators > 0 {
		run.lanes *= 2
		k.most = max(k.most, run.lanes)
	}
	return run
}

// constants is the memory of whole vectors, then of the pool.
func (c *composer) constants() []byte {
	each := c.set.numberBytes()
	head := make([]byte, len(wholeVectors)+roundUp(each*len(c.pool), 64))
	copy(head, wholeVectors[:])
	for i, p := range c.pool {
		for at := range each / 4 {
			if p.kind == constant {
				binary.LittleEndian.PutUint32(head[len(wholeVectors)+each*i+4*at:], p.n)
			}
		}
	}
	return head
}

// perCall is how many elements a call computes whose vectors take these instructions: few enough for a call to end within
// 100 µs, as the scheduler cannot interrupt it, not more than most, and a number of whole iterations. Quotients and roots
// occupy the divider.
func perCall(seq []lane, lanes, unroll, most int) int {
	const divider = 24
	each := 1
	for i := range seq {
		each++
		if divides(seq[i].op) {
			each += divider
		}
	}
	n := min(most/lanes, callCycles/each)
	return lanes * max(1, n-n%unroll)
}

// A formula of up to streamedOps primitives, other than unstreamed alone, gets code with streaming (non-temporal) stores: it
// computes too little to hide the latency of memory.
const (
	streamedOps = 2
	unstreamed  = "tanh"
)

// streams reports whether f gets code with streaming stores. Bools have none.
func (f *Formula) streams() bool {
	return !f.Rows && len(f.Code) <= streamedOps && !(len(f.Code) == 1 && f.Code[0].Name == unstreamed) &&
		!f.checked() && f.draws() == 0 &&
		!slices.ContainsFunc(f.Results, func(r FormulaResult) bool { return r.Type == Bools })
}

// draws is the number of operands that are random words.
func (f *Formula) draws() (n int) {
	for _, t := range f.Loads {
		if t == Random {
			n++
		}
	}
	return n
}

// checked reports whether f has a primitive whose body does not cover all operands.
func (f *Formula) checked() bool {
	return slices.ContainsFunc(f.Code, func(o FormulaOp) bool { return checks[o.Name] != "" })
}
