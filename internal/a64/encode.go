package a64

import "encoding/binary"

// Reg is the number of a register, of a vector or a general one. R18, R28, R29, R30 and SP belong to
// the system and to Go.
type Reg uint8

// Mem is an operand in memory: Base + Disp, a multiple of the operand's size that is less than 4096 of
// them.
type Mem struct {
	Base Reg
	Disp int32
}

// Inst is an instruction on vectors.
type Inst struct {
	Op        Op
	Dst, A, B Reg
	Mem       *Mem
	Imm       uint8
}

// Word is the encoding of i.
func (i Inst) Word() uint32 {
	e := &encodings[i.Op]
	w, dst, a := e.word, uint32(i.Dst), uint32(i.A)<<5
	switch e.form {
	case three:
		w |= uint32(i.B) << 16
	case two:
		if i.Op == MOV { // ORR of a register with itself
			w |= uint32(i.A) << 16
		}
	case left:
		w |= uint32(i.Imm) << 16
	case right:
		w |= (64 - uint32(i.Imm)) << 16
	case load:
		a = i.Mem.word(e.size)
	case store:
		a, dst = i.Mem.word(e.size), uint32(i.A)
	}
	return w | a | dst
}

// word is the part of a load or store of so many bytes that says where.
func (m *Mem) word(size int32) uint32 {
	if m.Disp%size != 0 || m.Disp < 0 || m.Disp >= 4096*size {
		panic("a64: displacement out of range")
	}
	return uint32(m.Disp/size)<<10 | uint32(m.Base)<<5
}

// Code is the code of a function under construction.
type Code struct{ b []byte }

// Bytes are the code.
func (c *Code) Bytes() []byte { return c.b }

func (c *Code) word(w uint32) { c.b = binary.LittleEndian.AppendUint32(c.b, w) }

// Do appends an instruction on vectors.
func (c *Code) Do(i Inst) { c.word(i.Word()) }

// Pointer sets r to the eight bytes at m.
func (c *Code) Pointer(r Reg, m Mem) { c.word(0xf9400000 | m.word(8) | uint32(r)) }

// Move sets r to the value of from.
func (c *Code) Move(r, from Reg) { c.word(0xaa0003e0 | uint32(from)<<16 | uint32(r)) }

// Advance adds n, from 0 to 4095, to r.
func (c *Code) Advance(r Reg, n int) { c.immediate(0x91000000, r, n) }

// AddTimes adds by, times two to a power, to r.
func (c *Code) AddTimes(r, by Reg, power int) {
	c.word(0x8b000000 | uint32(by)<<16 | uint32(power)<<10 | uint32(r)<<5 | uint32(r))
}

// Add adds n, from 0 to 4095, to r and sets the flags of the sum.
func (c *Code) Add(r Reg, n int32) { c.immediate(0xb1000000, r, int(n)) }

// Sub subtracts n, from 0 to 4095, and sets the flags of the difference.
func (c *Code) Sub(r Reg, n int32) { c.immediate(0xf1000000, r, int(n)) }

func (c *Code) immediate(word uint32, r Reg, n int) {
	if n < 0 || n >= 4096 {
		panic("a64: immediate operand out of range")
	}
	c.word(word | uint32(n)<<10 | uint32(r)<<5 | uint32(r))
}

// Label is a place to jump to.
type Label int

// Here is the place of the next instruction.
func (c *Code) Here() Label { return Label(len(c.b)) }

// Back jumps to an earlier place, less than a MiB away, if the flags say that the sum or difference is
// not negative.
func (c *Code) Back(to Label) { c.jump(greaterEq, to-c.Here()) }

// Skip jumps, if they say that it is negative, to a place that Land fixes, less than a MiB away.
func (c *Code) Skip() Label {
	c.jump(less, 0)
	return c.Here() - 4
}

// Land makes the next instruction the target of a Skip.
func (c *Code) Land(from Label) {
	binary.LittleEndian.PutUint32(c.b[from:], branch(less, c.Here()-from))
}

const (
	greaterEq = 10
	less      = 11
)

func (c *Code) jump(condition uint32, by Label) { c.word(branch(condition, by)) }

// branch is a jump by so many bytes.
func branch(condition uint32, by Label) uint32 {
	return 0x54000000 | uint32(by/4)&(1<<19-1)<<5 | condition
}

// Return ends the function.
func (c *Code) Return() { c.word(0xd65f03c0) }
