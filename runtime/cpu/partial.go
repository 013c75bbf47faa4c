package cpu

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// partial is a composed kernel for the part of a cluster that has bodies. It runs on each block, after
// the instructions that have none: loads that are not dense, integers, random words of which not only low bits are read.
type partial struct {
	code    kern.Formula
	run     *kern.Fused
	from    []partialBuf // operands, then results
	scalars []reg

	inside  []bool                  // by register: the kernel computes it
	both    []bool                  // a dense operand that instructions outside read, too
	values  map[ir.Reg]kern.Operand // by register
	uniform []ir.Reg                // scalars
	stored  []bool                  // by store: the kernel stores it
	kept    []ir.Reg                // what the kernel computes into slots
	masked  []ir.Reg                // integers of which only low bits are taken, and random words that the kernel makes; nothing computes them
	draws   []drawOf                // of the random words that it makes
}

// partialBuf is an operand or result: memory, or a register's slot.
type partialBuf struct {
	mem     kern.Buf // from the first element on
	product bool     // what a product has computed, or what a kernel is about to read
	random  bool     // words that the kernel makes
	r       ir.Reg   // if mem is absent and the others are not set
	slot    reg
}

// inSlot reports whether b is a register's slot.
func (b *partialBuf) inSlot() bool { return b.mem.Data == nil && !b.product && !b.random }

// compose gives the kernel of what has bodies, if that is most of the cluster's work.
func (c *clusterCompiler) compose() {
	if c.most < leastComposed || !c.path.HasBody(kern.Add.String()) {
		return
	}
	p := &partial{inside: make([]bool, len(c.g.Code)), both: make([]bool, len(c.g.Code)), values: map[ir.Reg]kern.Operand{}, stored: make([]bool, len(c.g.Stores))}
	if c.choose(p) < 2 {
		return
	}
	for r := range c.g.Code {
		if p.inside[r] {
			c.inside(p, ir.Reg(r))
		}
	}
	c.partialResults(p)
	p.code.Scalars = len(p.uniform)
	if p.run = c.e.of.compose(c.path, &p.code, true); p.run == nil {
		return
	}
	for _, b := range p.from {
		if b.inSlot() {
			c.last[b.r] = len(c.g.Code) // its slot is in use until the kernel has run
		}
	}
	for _, r := range p.masked {
		c.last[r] = int(r)
	}
	c.partial = p
}

// choose marks what a kernel may compute: registers that have bodies, and that nothing without a body reads. It returns the
// number of instructions that are not loads.
func (c *clusterCompiler) choose(p *partial) (count int) {
	code := c.g.Code
	readers := make([]int, len(code))
	for r := range code {
		if c.used(r) {
			for _, a := range instrArgs(&code[r]) {
				readers[a]++
			}
			p.inside[r] = c.hasBody(r)
		}
	}
	for r := len(code) - 1; r >= 0; r-- {
		if p.inside[r] || !c.used(r) {
			continue
		}
		for _, a := range instrArgs(&code[r]) {
			p.both[a] = p.inside[a] && code[a].Op == ir.PIn
			p.inside[a] = p.both[a]
		}
	}
	for r := range code {
		if p.inside[r] && code[r].Op != ir.PIn {
			count++
			if w, ok := c.lowBits(r); ok {
				if readers[w]--; readers[w] == 0 {
					p.masked = append(p.masked, w)
					readers[code[w].A]--
				}
			}
		}
	}
	random := 0
	for _, w := range p.masked {
		r := code[w].A
		if code[r].Op == ir.PPhilox && readers[r] == 0 && !c.checked(p) && random < kern.MostRandom && !slices.Contains(p.masked, r) {
			p.masked = append(p.masked, r)
			random++
		}
	}
	return count
}

// checked reports whether the kernel has an instruction whose body does not cover all operands.
func (c *clusterCompiler) checked(p *partial) bool {
	for r := range c.g.Code {
		if name, ok := vectorName(&c.g.Code[r]); ok && p.inside[r] && kern.Checks(name) {
			return true
		}
	}
	return false
}

// used reports whether r is computed for each element, and read or stored.
func (c *clusterCompiler) used(r int) bool { return !c.uniform[r] && c.last[r] > r }

// hasBody reports whether a kernel may compute r from its operands.
func (c *clusterCompiler) hasBody(r int) bool {
	i := &c.g.Code[r]
	if i.Op == ir.PIn {
		a := &c.g.Loads[i.Int]
		_, ok := loadTypes[a.DType]
		acc := newAccess(c.shape, c.strides[i.Int], a.Offset)
		return ok && acc.dense
	}
	if _, ok := c.lowBits(r); ok {
		return true
	}
	name, ok := vectorName(i)
	return ok && c.path.HasBody(name) && classOf(i.Type) == floats && !slices.ContainsFunc(instrArgs(i), func(a ir.Reg) bool { return classOf(c.g.Code[a].Type) != floats })
}

// lowBits reports whether r is the low bits of an integer as a float, and returns the register that masks them.
func (c *clusterCompiler) lowBits(r int) (masked ir.Reg, ok bool) {
	i := &c.g.Code[r]
	if i.Op != ir.PConv || i.Type != ir.F32 {
		return 0, false
	}
	and := &c.g.Code[i.A]
	if and.Op != ir.PAnd || and.Type != ir.I64 || c.uniform[i.A] || c.uniform[and.A] {
		return 0, false
	}
	mask := &c.g.Code[and.B]
	return i.A, mask.Op == ir.PConst && lowNames[mask.Int] != ""
}

// lowNames are the primitives that take the bits of a mask.
var lowNames = map[int64]string{1<<23 - 1: "low23", 1<<24 - 1: "low24"}

// inside adds register r to the kernel's formula.
func (c *clusterCompiler) inside(p *partial, r ir.Reg) {
	i := &c.g.Code[r]
	if i.Op == ir.PIn {
		a := &c.g.Loads[i.Int]
		b := partialBuf{product: c.g.IsProduct(r)}
		if !b.product {
			b.mem = kern.Buf{Type: loadTypes[a.DType], Data: c.e.mem[a.Buffer]}.From(int(a.Offset))
		}
		p.load(r, loadTypes[a.DType], b)
		return
	}
	op, args := kern.FormulaOp{}, instrArgs(i)
	if masked, ok := c.lowBits(int(r)); ok {
		and := &c.g.Code[masked]
		op.Name, args = lowNames[c.g.Code[and.B].Int], []ir.Reg{and.A}
	} else {
		op.Name, _ = vectorName(i)
	}
	for _, a := range args {
		v, ok := p.values[a]
		switch {
		case ok:
		case c.g.Code[a].Op == ir.PConst:
			v = kern.ConstantOf(number(&c.g.Code[a]))
		case c.uniform[a]:
			v = kern.Operand{Kind: kern.Scalar, N: len(p.uniform)}
			p.uniform, p.values[a] = append(p.uniform, a), v
		default:
			t, b := kern.F32, partialBuf{r: a}
			if slices.Contains(p.masked, a) {
				t, b.random = kern.Random, true
				p.draws = append(p.draws, c.drawOf(a))
			} else if classOf(c.g.Code[a].Type) == ints {
				t = kern.Words
			}
			v = p.load(a, t, b)
		}
		op.Args = append(op.Args, v)
	}
	p.values[r] = kern.Operand{Kind: kern.Computed, N: len(p.code.Code)}
	p.code.Code = append(p.code.Code, op)
}

// load adds an operand.
func (p *partial) load(r ir.Reg, t kern.Type, b partialBuf) kern.Operand {
	v := kern.Operand{Kind: kern.Loaded, N: len(p.code.Loads)}
	p.code.Loads, p.from, p.values[r] = append(p.code.Loads, t), append(p.from, b), v
	return v
}

// partialResults adds the results: those that the kernel stores, and slots for those that others store.
func (c *clusterCompiler) partialResults(p *partial) {
	for i := range c.g.Stores {
		a := &c.g.Stores[i]
		if !p.inside[a.Reg] {
			continue
		}
		b, t := partialBuf{r: a.Reg}, kern.F32
		if to, ok := loadTypes[a.DType]; ok && (to != kern.Bools || c.g.Code[a.Reg].Type == ir.Bool) {
			if w := c.storeAccess(i); w.dense && w.offset == 0 {
				b, t, p.stored[i] = partialBuf{mem: kern.Buf{Type: to, Data: c.e.at(a.Buffer)}, product: a.Buffer == lower.None}, to, true
			}
		}
		if !p.stored[i] {
			if slices.Contains(p.kept, a.Reg) || p.both[a.Reg] {
				continue
			}
			p.kept = append(p.kept, a.Reg)
		}
		p.code.Results = append(p.code.Results, kern.FormulaResult{Type: t, Value: p.values[a.Reg]})
		p.from = append(p.from, b)
	}
}

// bindPartial compiles the kernel's run over a block.
func (c *clusterCompiler) bindPartial() vop {
	p := c.partial
	for _, r := range p.kept {
		c.slot[r] = c.take(int(r))
	}
	for i := range p.from {
		if b := &p.from[i]; b.inSlot() {
			b.slot = c.reg(b.r)
		}
	}
	for _, r := range p.uniform {
		p.scalars = append(p.scalars, c.reg(r))
	}
	types := slices.Clone(p.code.Loads)
	for _, r := range p.code.Results {
		types = append(types, r.Type)
	}
	run, from, scalars, draws := p.run, p.from, p.scalars, p.draws
	for i := range draws {
		draws[i].bind(c)
	}
	return func(l *registerFile, start, n int) {
		bufs, values := l.bufs[:len(from)], l.scalars[:len(scalars)]
		for i := range from {
			switch b := &from[i]; {
			case b.random:
				bufs[i] = kern.Buf{Type: kern.Random}
			case b.product:
				bufs[i] = kern.Floats(l.product[start-l.at:][:n])
			case b.mem.Data != nil:
				bufs[i] = b.mem.From(start)
			case types[i] == kern.Words:
				bufs[i] = kern.Integers(b.slot.i(l, n))
			default:
				bufs[i] = kern.Floats(b.slot.f(l, n))
			}
		}
		for i := range scalars {
			values[i] = scalars[i].f(l, 1)[0]
		}
		for i := range draws {
			l.call.Draw(i, draws[i].of(l), uint64(start))
		}
		run.Run(l.call, bufs, values, 0, n, false)
	}
}
