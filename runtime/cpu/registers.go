package cpu

import (
	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// registerFile has one worker's registers, a block each, by class and slot.
type registerFile struct {
	f [][]float32
	i [][]int64
	d [][]float64

	product []float32 // elements that a product has computed, or that a kernel is about to read, from element at on
	at      int

	call    *kern.Call // what a composed kernel runs with: memory of its own,
	bufs    []kern.Buf // operands and results,
	scalars []float32  // and what is the same for all elements
}

// grow makes room for n slots of each class, without memory.
func (l *registerFile) grow(n [numClasses]int) {
	l.f, l.i, l.d = make([][]float32, n[floats]), make([][]int64, n[ints]), make([][]float64, n[doubles])
}

// sizeOf is the number of floats of memory that n slots of each class need for each element.
func sizeOf(n [numClasses]int) int { return n[floats] + 2*n[ints] + 2*n[doubles] }

// size is the number of floats of memory that the slots need, without those in has.
func (l *registerFile) size(has map[slotID]bool, block int) int {
	return (sizeOf([numClasses]int{floats: len(l.f), ints: len(l.i), doubles: len(l.d)}) - l.given(has)) * block
}

// given is the number of floats that the slots in has would need.
func (l *registerFile) given(has map[slotID]bool) int {
	n := 0
	for id := range has {
		n += 2
		if id.kind == floats {
			n--
		}
	}
	return n
}

// slotID identifies a slot.
type slotID struct {
	kind class
	slot int
}

// place assigns parts of mem to the slots, without those in has.
func (l *registerFile) place(has map[slotID]bool, mem []float32, block int) {
	next := func(k class, slot, n int) []float32 {
		if has[slotID{k, slot}] {
			return nil
		}
		part := mem[:n*block]
		mem = mem[n*block:]
		return part
	}
	for k := range l.i { // wider elements first, so that they stay aligned
		if m := next(ints, k, 2); m != nil {
			l.i[k] = cast[int64](m)
		}
	}
	for k := range l.d {
		if m := next(doubles, k, 2); m != nil {
			l.d[k] = cast[float64](m)
		}
	}
	for k := range l.f {
		if m := next(floats, k, 1); m != nil {
			l.f[k] = m
		}
	}
}

// reg reads a register's block. A uniform register is read from the shared register file.
type reg struct {
	slot   int
	shared *registerFile // nil: the worker's own register file
}

func (c *clusterCompiler) reg(r ir.Reg) reg {
	if s := c.slot[r]; s < 0 {
		return reg{-s - 1, &c.step.shared}
	}
	return reg{c.slot[r], nil}
}

func (r reg) from(l *registerFile) *registerFile {
	if r.shared != nil {
		return r.shared
	}
	return l
}

func (r reg) f(l *registerFile, n int) []float32 { return r.from(l).f[r.slot][:n] }
func (r reg) i(l *registerFile, n int) []int64   { return r.from(l).i[r.slot][:n] }
func (r reg) d(l *registerFile, n int) []float64 { return r.from(l).d[r.slot][:n] }

// A block of a composed kernel has up to longBlock elements if its registers take no more than longBlockBytes.
const (
	longBlock      = 2048
	longBlockBytes = 8 << 10
)

// uniformLen is the number of elements of a uniform register of which readers take only one.
const uniformLen = 16

// size chooses the number of elements of a block, and those of a uniform register. A composed kernel reads one element of
// these, as do random words and uniform instructions. If no others read them, and the kernel's operands take little memory, blocks
// are longer.
func (c *clusterCompiler) size() {
	numbers, constants := false, false // read element by element
	read := func(r ir.Reg) {
		isConstant := c.g.Code[r].Op == ir.PConst
		numbers, constants = numbers || c.uniform[r] && !isConstant, constants || isConstant
	}
	for r := range c.g.Code {
		i := &c.g.Code[r]
		composed := c.partial != nil && (c.partial.inside[r] || !c.used(r))
		if !c.uniform[r] && !composed && i.Op != ir.PPhilox {
			for _, a := range instrArgs(i) {
				read(a)
			}
		}
	}
	for i := range c.g.Stores {
		read(c.g.Stores[i].Reg)
	}
	s := c.step
	if numbers {
		return
	}
	s.wide = min(s.block, uniformLen)
	if c.partial != nil && !constants {
		for s.block = longBlock; s.block > blockLen && 4*s.block*sizeOf(c.slots) > longBlockBytes; {
			s.block /= 2
		}
		s.block = min(s.block, max(c.most, 1))
	}
}
