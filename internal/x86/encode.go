package x86

import "encoding/binary"

// Reg is the number of a register: of a vector 0 to 31, of a mask 0 to 7, of a general one as below.
type Reg uint8

// General registers. SP, BP and R14 belong to Go and have no name here.
const (
	AX  Reg = 0
	CX  Reg = 1
	DX  Reg = 2
	BX  Reg = 3
	SI  Reg = 6
	DI  Reg = 7
	R8  Reg = 8
	R9  Reg = 9
	R10 Reg = 10
	R11 Reg = 11
	R12 Reg = 12
	R13 Reg = 13
	R15 Reg = 15
)

// Mem is an operand in memory: Base + Scale*Index + Disp. Scale 0 means no index.
type Mem struct {
	Base, Index Reg
	Scale       uint8
	Disp        int32
	Spread      bool // one element for all lanes
}

// Inst is an instruction on vectors. Lanes that Mask, unless it is 0, leaves out keep what Dst holds, or
// are zero; the Mask of VBLENDVPS is a vector.
type Inst struct {
	Op        Op
	Dst, A, B Reg
	Mem       *Mem // instead of B
	Mask      Reg
	Zero      bool
	Imm       uint8
	VEX       bool // 256-bit vectors 0 to 15
}

// Append appends the bytes of i.
func (i Inst) Append(b []byte) []byte {
	e := &encodings[i.Op]
	reg, vvvv, rm, code := i.Dst, i.A, i.B, e.code
	switch e.form {
	case two:
		vvvv = 0
	case shift:
		reg, vvvv = Reg(e.digit), i.Dst
	case store:
		reg, vvvv = i.A, 0
	}
	if i.Op == VMOVAPS && i.Mem == nil { // the assembler takes the form that could store
		code, reg, rm = 0x29, i.B, i.Dst
	}
	if i.VEX {
		b = i.vex(b, reg, vvvv, rm)
	} else {
		b = i.evex(b, reg, vvvv, rm)
	}
	b = append(b, code)
	switch m := i.Mem; {
	case m == nil:
		b = append(b, 0xc0|byte(reg)&7<<3|byte(rm)&7)
	case i.VEX:
		b = m.append(b, reg, 1)
	case m.Spread:
		b = m.append(b, reg, 4)
	default:
		b = m.append(b, reg, e.bytes)
	}
	switch {
	case e.imm:
		b = append(b, i.Imm)
	case i.Op == VBLENDVPS:
		b = append(b, byte(i.Mask)<<4)
	}
	return b
}

// evex appends the prefix of an instruction on 512-bit vectors.
func (i *Inst) evex(b []byte, reg, vvvv, rm Reg) []byte {
	e := &encodings[i.Op]
	p0, p1, p2 := e.table, 0x04|e.prefix|(^byte(vvvv)&15)<<3, byte(2<<5)|byte(i.Mask)
	if e.long || e.double {
		p1 |= 1 << 7
	}
	p0 |= ^byte(reg)>>3&1<<7 | ^byte(reg)>>4&1<<4
	p2 |= ^byte(vvvv) >> 4 & 1 << 3
	if m := i.Mem; m != nil {
		index := Reg(0)
		if m.Scale > 0 {
			index = m.Index
		}
		p0 |= ^byte(index)>>3&1<<6 | ^byte(m.Base)>>3&1<<5
		if m.Spread {
			p2 |= 1 << 4
		}
	} else {
		p0 |= ^byte(rm)>>4&1<<6 | ^byte(rm)>>3&1<<5
	}
	if i.Zero {
		p2 |= 1 << 7
	}
	return append(b, 0x62, p0, p1, p2)
}

// vex appends the prefix of an instruction on 256-bit vectors: two bytes where they suffice.
func (i *Inst) vex(b []byte, reg, vvvv, rm Reg) []byte {
	e := &encodings[i.Op]
	last := (^byte(vvvv)&15)<<3 | 1<<2 | e.prefix
	if e.small {
		last &^= 1 << 2
	}
	base, index := rm, Reg(0)
	if m := i.Mem; m != nil {
		if base = m.Base; m.Scale > 0 {
			index = m.Index
		}
	}
	high := ^byte(reg) >> 3 & 1 << 7
	if e.table == 1 && !e.long && base < 8 && index < 8 {
		return append(b, 0xc5, high|last)
	}
	if e.long {
		last |= 1 << 7
	}
	return append(b, 0xc4, high|^byte(index)>>3&1<<6|^byte(base)>>3&1<<5|e.table, last)
}

// append appends ModRM, SIB and displacement. A displacement of one byte counts units of size.
func (m *Mem) append(b []byte, reg Reg, size int32) []byte {
	mode, small := byte(2), m.Disp%size == 0 && m.Disp/size == int32(int8(m.Disp/size))
	switch {
	case m.Disp == 0 && m.Base&7 != 5:
		mode = 0
	case small:
		mode = 1
	}
	head := mode<<6 | byte(reg)&7<<3
	if m.Scale == 0 && m.Base&7 != 4 {
		b = append(b, head|byte(m.Base)&7)
	} else {
		sib := byte(4)<<3 | byte(m.Base)&7
		for s := uint8(0); s < 4 && m.Scale > 0; s++ {
			if m.Scale == 1<<s {
				sib = s<<6 | byte(m.Index)&7<<3 | byte(m.Base)&7
			}
		}
		b = append(b, head|4, sib)
	}
	switch mode {
	case 1:
		b = append(b, byte(m.Disp/size))
	case 2:
		b = binary.LittleEndian.AppendUint32(b, uint32(m.Disp))
	}
	return b
}

// Code is the code of a function under construction.
type Code struct{ b []byte }

// Bytes are the code.
func (c *Code) Bytes() []byte { return c.b }

// Do appends an instruction on vectors.
func (c *Code) Do(i Inst) { c.b = i.Append(c.b) }

// Pointer sets r to the eight bytes at m, which has no index.
func (c *Code) Pointer(r Reg, m Mem) {
	c.b = append(c.b, 0x48|byte(r)>>3<<2|byte(m.Base)>>3, 0x8b)
	c.b = m.append(c.b, r, 1)
}

// Move sets r to the value of from.
func (c *Code) Move(r, from Reg) { c.registers(0x89, r, from) }

// AddReg adds by to r.
func (c *Code) AddReg(r, by Reg) { c.registers(0x01, r, by) }

// registers appends an instruction on two registers, the first of which it changes.
func (c *Code) registers(code byte, r, by Reg) {
	c.b = append(c.b, 0x48|byte(by)>>3<<2|byte(r)>>3, code, 0xc0|byte(by)&7<<3|byte(r)&7)
}

// Clear sets r, one of the first eight registers, to zero.
func (c *Code) Clear(r Reg) { c.b = append(c.b, 0x31, 0xc0|byte(r)<<3|byte(r)) }

// Add adds n to r and sets the flags of the sum.
func (c *Code) Add(r Reg, n int32) { c.immediate(0, r, n) }

// Sub subtracts n and sets the flags of the difference.
func (c *Code) Sub(r Reg, n int32) { c.immediate(5, r, n) }

// immediate appends the shortest form of an instruction that changes r by n.
func (c *Code) immediate(digit byte, r Reg, n int32) {
	rex, operands := 0x48|byte(r)>>3, 0xc0|digit<<3|byte(r)&7
	switch {
	case n == int32(int8(n)):
		c.b = append(c.b, rex, 0x83, operands, byte(n))
		return
	case r == AX:
		c.b = append(c.b, rex, digit<<3|5)
	default:
		c.b = append(c.b, rex, 0x81, operands)
	}
	c.b = binary.LittleEndian.AppendUint32(c.b, uint32(n))
}

// Set sets r, one of the first eight registers, to n.
func (c *Code) Set(r Reg, n int32) {
	c.b = binary.LittleEndian.AppendUint32(append(c.b, 0xb8|byte(r)), uint32(n))
}

// Label is a place to jump to.
type Label int

// Here is the place of the next instruction.
func (c *Code) Here() Label { return Label(len(c.b)) }

// Back jumps to an earlier place if the flags say that the sum or difference is not negative.
func (c *Code) Back(to Label) { c.patch(c.jump(0x8d), to) }

// Skip jumps, if they say that it is negative, to a place that Land fixes.
func (c *Code) Skip() Label { return c.jump(0x8c) }

// Land makes the next instruction the target of a Skip.
func (c *Code) Land(from Label) { c.patch(from, c.Here()) }

// jump appends a conditional jump and returns the place after it.
func (c *Code) jump(code byte) Label {
	c.b = append(c.b, 0x0f, code, 0, 0, 0, 0)
	return c.Here()
}

func (c *Code) patch(after, to Label) {
	binary.LittleEndian.PutUint32(c.b[after-4:], uint32(int32(to-after)))
}

// Return ends the function: upper halves of registers are cleared, as Go's SSE code wants them.
func (c *Code) Return() { c.b = append(c.b, 0xc5, 0xf8, 0x77, 0xc3) }
