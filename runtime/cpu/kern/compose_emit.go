//go:build amd64 || arm64

package kern

import (
	"cmp"
	"math"
	"slices"
)

// loop is how many vectors a loop over elements computes in turn.
type loop struct {
	unroll int
	held   map[int]register
	spills bool
}

// plan chooses a loop from the instructions of a vector, the first of the sizes that suits; the last always does. Vectors
// with more instructions than the processor looks ahead wait for each other, so that several in turn are faster even if they
// spill. It fails if masks do not suffice.
func (c *composer) plan(seq []lane, sizes ...int) (l loop, ok bool) {
	single, joins := len(c.merged(seq, 1)), c.joins()
	spills := min(composedSpills, max(0, single-c.set.hidden)/2)
	for i, n := range sizes {
		last := i == len(sizes)-1
		if !last && (n%2 == 1 && joins || n > 4 && single < longBody || n > 2 && len(c.f.Loads)+len(c.f.Results) > fewStreams) {
			continue
		}
		try := newVectors(c, seq, n, nil)
		if try.run(nil) && (last || try.spilled <= spills) {
			return loop{n, c.hold(try.seq, c.registers()-try.most), try.spilled > 0}, true
		}
	}
	return l, false
}

// assemble appends the code of loops over elements from the instructions of a vector: the loop that was planned, and shorter
// ones for what it leaves. It returns the number of vectors that the code spills.
func (c *composer) assemble(seq []lane, l *loop, out *machineCode) (spills int, ok bool) {
	all := []*vectors{newVectors(c, seq, l.unroll, l.held)}
	for _, n := range []int{2, 1} {
		if n < l.unroll && (n == 2 || c.generators == 0) {
			all = append(all, newVectors(c, seq, n, l.held))
		}
	}
	all[0].start(out)
	if len(c.f.Sums) > 0 {
		ok = c.chains(all[0], out)
	} else if c.f.Rows {
		ok = c.rows(all[0], func() bool { return c.elements(all, out) }, out)
	} else {
		ok = c.elements(all, out)
	}
	out.Return()
	for _, e := range all {
		spills = max(spills, e.spilled)
	}
	return spills, ok && spills <= composedSpills
}

// sizes are how many vectors a loop may compute in turn, the preferred first. Rows are summed in chains. Random words come for two
// vectors at a time, and in rounds that wait for each other.
func (c *composer) sizes() []int {
	switch {
	case len(c.f.Sums) > 0:
		return []int{4, 2, 1}
	case c.generators > 0:
		return []int{8, 6, 4, 2}
	case c.f.Rows && c.joins():
		return []int{2, 1}
	}
	return []int{6, 4, 3, 2, 1}
}

// joins reports whether two vectors are stored as one.
func (c *composer) joins() bool {
	return slices.ContainsFunc(c.f.Results, func(r FormulaResult) bool { return len(c.set.joined[r.Type].ops) > 0 })
}

// elements appends loops over elements.
func (c *composer) elements(loops []*vectors, out *machineCode) bool {
	ahead := 0 // elements that have been subtracted from the number of those that are left
	for _, e := range loops {
		n := e.unroll * c.set.lanes
		if ahead == 0 {
			out.Sub(countReg, int32(n))
		} else {
			out.Add(countReg, int32(ahead-n))
		}
		ahead = n
		end := out.Skip()
		again := out.Here()
		if !e.run(out) {
			return false
		}
		e.advance(n)
		out.Sub(countReg, int32(n))
		out.Back(again)
		out.Land(end)
	}
	return true
}

const (
	// longBody is the fewest instructions of a vector of which an iteration computes more than four.
	longBody = 12
	// fewStreams is the most operands and results of which an iteration reads and writes four vectors.
	fewStreams = 4
)

// hold gives the numbers of the pool that are read most registers for the whole loop, as many as there are.
func (c *composer) hold(seq []lane, room int) map[int]register {
	reads := make([]int, len(c.pool))
	for i := range seq {
		o := &seq[i]
		for _, x := range []int{o.old, o.a} {
			if x < none {
				reads[-2-x] += 4 // an instruction of its own
			}
		}
		if o.b < none {
			reads[-2-o.b]++
			if !c.set.direct(o.op, c.pool[-2-o.b].kind) {
				reads[-2-o.b] += 3
			}
		}
	}
	order := make([]int, len(reads))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(reads[b], reads[a]) })
	held := map[int]register{}
	for k, i := range order[:min(room, len(order))] {
		if reads[i] > 0 {
			held[-2-i] = register(c.registers() - 1 - k)
		}
	}
	return held
}

// vectors gives the values of a sequence of instructions registers and emits it.
type vectors struct {
	c         *composer
	unroll    int // vectors in turn
	seq       []lane
	held      map[int]register
	off       int     // elements before the first vector
	resident  int     // vectors of the chains of a sum that are in registers; others are in memory
	streaming bool    // results are written by streaming stores
	last      []int   // by value: the last instruction that reads it
	next      [][]int // by value: the instructions that read it, in order

	out     *machineCode // nil: only count registers
	reg     []int        // by value: its register, none: spilled or not yet computed
	slot    []int        // by value: where it is spilled, none: nowhere
	owner   []int        // by register: the value, or free, or reserved
	masks   [8]int
	slots   []bool // slots in use
	most    int    // registers in use at once
	spilled int
}

const (
	free     = -1
	reserved = -2
)

// newVectors takes the instructions of a vector and how many vectors are computed in turn.
func newVectors(c *composer, one []lane, unroll int, held map[int]register) *vectors {
	seq := c.merged(one, unroll)
	e := &vectors{c: c, unroll: unroll, seq: seq, held: held, last: make([]int, len(seq)), next: make([][]int, len(seq)), reg: make([]int, len(seq)), slot: make([]int, len(seq)), owner: make([]int, c.registers())}
	for i := range seq {
		o := &seq[i]
		for _, x := range []int{o.old, o.a, o.b, o.mask} {
			if x >= 0 {
				e.last[x] = i
				e.next[x] = append(e.next[x], i)
			}
		}
	}
	return e
}

// start loads addresses and the held numbers.
func (e *vectors) start(out *machineCode) {
	e.out = out
	e.pointers()
	for i := range e.c.pool {
		if r, ok := e.held[-2-i]; ok {
			e.broadcast(-2-i, r)
		}
	}
}

// run emits the instructions. It fails if masks do not suffice.
func (e *vectors) run(out *machineCode) bool {
	e.out = out
	for i := range e.owner {
		e.owner[i] = free
	}
	for _, r := range e.held {
		e.owner[r] = reserved
	}
	for i := range e.masks {
		e.masks[i] = free
	}
	e.masks[0] = reserved // K0 means no mask
	for i := range e.reg {
		e.reg[i], e.slot[i] = none, none
	}
	e.slots = e.slots[:0]
	for i := range e.seq {
		if !e.one(i) {
			return false
		}
	}
	return true
}

// one emits instruction i.
func (e *vectors) one(i int) bool {
	o, set := &e.seq[i], e.c.set
	if o.sum > 0 {
		e.addToSum(i)
		return true
	}
	in := instruction{Op: o.op, Imm: o.imm}
	var locked []register
	operand := func(x int) register {
		r := e.operand(x, i, locked)
		locked = append(locked, r)
		return r
	}
	if o.a != none {
		in.A = operand(o.a)
	}
	switch {
	case o.at > 0:
		in.Mem = e.address(o.at-1, e.off+o.off)
	case o.generator > 0:
		in.Mem = e.state(set.generatorBytes() * (o.generator - 1))
	case o.b < none && !e.isHeld(o.b) && set.direct(o.op, e.c.pool[-2-o.b].kind):
		in.Mem = e.direct(o.b)
	case o.b != none:
		in.B = operand(o.b)
	}
	if o.mask != none {
		e.mask(&in, o, operand)
	}
	result := len(e.c.f.Loads) < o.at || o.generator > 0 && o.a != none // it is stored
	if o.old != none && !result {
		in.Dst = e.over(o.old, i, locked)
	}
	e.done(i, locked)
	switch {
	case result:
	case set.inMask(o.op):
		k := slices.Index(e.masks[:], free)
		if k < 0 {
			return false
		}
		e.masks[k], e.reg[i], in.Dst = i, k, register(k)
	case o.old == none:
		in.Dst = e.take(i, i, nil)
		e.reg[i] = int(in.Dst)
	default:
		e.owner[in.Dst], e.reg[i] = i, int(in.Dst)
	}
	e.finish(&in, result)
	e.emit(in)
	return true
}

func (e *vectors) isHeld(x int) bool { _, ok := e.held[x]; return ok }

// size is that of an element of operand or result k.
func (f *Formula) size(k int) int {
	if k < len(f.Loads) {
		return f.Loads[k].Size()
	}
	return f.Results[k-len(f.Loads)].Type.Size()
}

// operand is a register with x, which instruction i reads.
func (e *vectors) operand(x, i int, locked []register) register {
	if x < none {
		if r, ok := e.held[x]; ok {
			return r
		}
		r := e.take(temporary, i, locked)
		e.broadcast(x, r)
		return r
	}
	if e.reg[x] == none {
		r := e.take(x, i, locked)
		e.reload(x, r)
		e.reg[x] = int(r)
	}
	return register(e.reg[x])
}

// temporary owns a register for one instruction.
const temporary = math.MaxInt

// over is a register that holds x and that instruction i may write.
func (e *vectors) over(x, i int, locked []register) register {
	if x >= 0 && e.last[x] == i && e.reg[x] != none {
		r := register(e.reg[x])
		e.owner[r] = reserved // done does not free it
		return r
	}
	if x >= 0 && e.reg[x] != none {
		locked = append(locked, register(e.reg[x]))
	}
	r := e.take(reserved, i, locked)
	switch held, ok := e.held[x]; {
	case ok:
		e.move(r, held)
	case x < none:
		e.broadcast(x, r)
	case e.reg[x] == none:
		e.reload(x, r)
	default:
		e.move(r, register(e.reg[x]))
	}
	return r
}

// done frees the registers of what instruction i is the last to read.
func (e *vectors) done(i int, locked []register) {
	for _, r := range locked {
		if e.owner[r] == temporary {
			e.owner[r] = free
		}
	}
	o := &e.seq[i]
	for _, x := range []int{o.old, o.a, o.b, o.mask} {
		if x < 0 || e.last[x] != i {
			continue
		}
		if e.slot[x] != none {
			e.slots[e.slot[x]], e.slot[x] = false, none
		}
		if r := e.reg[x]; r != none && e.c.set.inMask(e.seq[x].op) {
			e.masks[r] = free
		} else if r != none && e.owner[r] == x {
			e.owner[r] = free
		}
	}
}

// take gives value x a register: a free one, or that of the value which is read again last.
func (e *vectors) take(x, i int, locked []register) register {
	r := slices.Index(e.owner, free)
	if r < 0 {
		r = e.furthest(i, locked)
		v := e.owner[r]
		if e.slot[v] == none {
			e.slot[v] = e.newSlot()
			e.spill(v, register(r))
		}
		e.reg[v] = none
	}
	e.owner[r] = x
	used := 0
	for _, v := range e.owner {
		if v != free {
			used++
		}
	}
	e.most = max(e.most, used)
	return register(r)
}

// furthest is the register of the value whose next reader comes last.
func (e *vectors) furthest(i int, locked []register) int {
	best, when := -1, -1
	for r, v := range e.owner {
		if v < 0 || v == temporary || slices.Contains(locked, register(r)) {
			continue
		}
		at, _ := slices.BinarySearch(e.next[v], i)
		reader := len(e.seq)
		if at < len(e.next[v]) {
			reader = e.next[v][at]
		}
		if reader > when {
			best, when = r, reader
		}
	}
	return best
}

func (e *vectors) newSlot() int {
	s := slices.Index(e.slots, false)
	if s < 0 {
		s = len(e.slots)
		e.slots = append(e.slots, false)
		e.spilled = max(e.spilled, len(e.slots))
	}
	e.slots[s] = true
	return s
}
