package x86

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ampc/internal/goasm"
)

var general = map[Reg]string{AX: "AX", CX: "CX", DX: "DX", BX: "BX", SI: "SI", DI: "DI", R8: "R8", R9: "R9", R10: "R10", R11: "R11", R12: "R12", R13: "R13", R15: "R15"}

// text is the instruction in the assembler's words.
func (i Inst) text() string {
	e := &encodings[i.Op]
	name := e.name
	if i.Mem != nil && i.Mem.Spread {
		name += ".BCST"
	}
	if i.Zero {
		name += ".Z"
	}
	bank, bytes := "Z", e.bytes
	if i.VEX {
		bank, bytes = "Y", e.bytes/2
	}
	if e.small {
		bank = "X"
	}
	var args []string
	if e.imm {
		args = append(args, fmt.Sprintf("$%d", i.Imm))
	}
	vector, half := func(r Reg) string { return fmt.Sprint(bank, r) }, func(r Reg) string { return fmt.Sprint(bank, r) }
	if bytes == 32 && !i.VEX {
		half = func(r Reg) string { return fmt.Sprint("Y", r) }
	} else if i.Op == VBROADCASTSS || bytes == 16 || bytes == 8 {
		half = func(r Reg) string { return fmt.Sprint("X", r) }
	}
	last := half(i.B)
	if i.Mem != nil {
		last = i.Mem.text()
	}
	dst := vector(i.Dst)
	if e.mask && !i.VEX {
		dst = fmt.Sprint("K", i.Dst)
	}
	if i.Op == VCVTPD2PS {
		if dst = fmt.Sprint("Y", i.Dst); i.VEX {
			name, dst = name+"Y", fmt.Sprint("X", i.Dst)
		}
	}
	switch e.form {
	case three:
		args = append(args, last, vector(i.A))
	case two, shift:
		args = append(args, last)
	case store:
		args, dst = append(args, vector(i.A)), last
	}
	if i.Op == VBLENDVPS {
		args = slices.Insert(args, 0, vector(i.Mask))
	} else if i.Mask > 0 {
		args = append(args, fmt.Sprint("K", i.Mask))
	}
	return name + " " + strings.Join(append(args, dst), ", ")
}

func (m *Mem) text() string {
	s := fmt.Sprintf("%d(%s)", m.Disp, general[m.Base])
	if m.Scale > 0 {
		s += fmt.Sprintf("(%s*%d)", general[m.Index], m.Scale)
	}
	return s
}

// variants are forms of every instruction in one encoding: registers of each bank, addresses, displacements, masks.
func variants(short bool) (list []Inst) {
	banks, not := [][3]Reg{{0, 1, 2}, {9, 10, 11}, {31, 24, 17}, {7, 16, 13}, {16, 8, 31}}, vex
	if short {
		banks, not = [][3]Reg{{0, 1, 2}, {9, 10, 11}, {15, 8, 1}, {7, 12, 13}, {2, 8, 15}}, evex
	}
	mems := []Mem{{Base: BX}, {Base: SI, Disp: 4}, {Base: R13}, {Base: R12, Disp: 64}, {Base: R8, Index: AX, Scale: 4}, {Base: R15, Index: AX, Scale: 2, Disp: 32},
		{Base: R13, Index: R9, Scale: 1, Disp: -64}, {Base: DI, Disp: 4096}, {Base: DX, Disp: 8192 * 3}, {Base: R12, Index: R15, Scale: 8, Disp: 13}}
	for op := range numOps {
		e := &encodings[op]
		if e.only == not {
			continue
		}
		for k, r := range banks {
			i := Inst{Op: op, Dst: r[0], A: r[1], B: r[2], VEX: short}
			if e.mask && !short {
				i.Dst = Reg(k + 1)
			}
			if e.imm {
				i.Imm = uint8(7 * k)
			}
			if op == VBLENDVPS {
				i.Mask = Reg(3 * k)
			}
			if op != VMOVUPS && op != storeVMOVUPS && op != VMOVNTPS && op != VMOVDQU && op != VMOVQ { // only memory
				list = append(list, i)
			}
			if !short && (op == VBLENDMPS || op == VMOVAPS || op == VPADDD || op == VPORD) {
				i.Mask = Reg(k + 1)
				list = append(list, i)
				i.Zero = true
				list = append(list, i)
				i.Mask, i.Zero = 0, false
			}
			if op == VPMOVD2M || short && e.form == shift { // only registers
				continue
			}
			list = append(list, inMemory(i, mems, e.spread && !short)...)
		}
	}
	return list
}

// inMemory are forms of i with operands in memory.
func inMemory(i Inst, mems []Mem, spread bool) (list []Inst) {
	for _, m := range mems {
		whole := m
		i.Mem = &whole
		list = append(list, i)
		if m.Spread = true; spread {
			i.Mem = &m
			list = append(list, i)
		}
	}
	return list
}

// TestBytes compares every instruction with what Go's assembler writes.
func TestBytes(t *testing.T) {
	list := slices.Concat(variants(false), variants(true))
	var lines []string
	var got []byte
	for _, i := range list {
		lines, got = append(lines, i.text()), i.Append(got)
	}
	var c Code
	c.b = got
	for _, r := range []Reg{AX, CX, SI, R8, R15} {
		c.Add(r, 16)
		c.Sub(r, 48)
		c.Add(r, 1<<15)
		c.Add(r, -1<<17)
		c.Sub(r, 192)
		lines = append(lines, "ADDQ $16, "+general[r], "SUBQ $48, "+general[r], "ADDQ $32768, "+general[r], "ADDQ $-131072, "+general[r], "SUBQ $192, "+general[r])
		for _, m := range []Mem{{Base: DX}, {Base: DX, Disp: 8}, {Base: R12, Disp: 80}, {Base: R13}, {Base: DX, Disp: 1 << 10}} {
			c.Pointer(r, m)
			lines = append(lines, "MOVQ "+m.text()+", "+general[r])
		}
	}
	for _, r := range [][2]Reg{{CX, DX}, {R8, CX}, {AX, R13}, {R15, R9}} {
		c.Move(r[0], r[1])
		c.AddReg(r[0], r[1])
		for _, op := range []string{"MOVQ", "ADDQ"} {
			lines = append(lines, op+" "+general[r[1]]+", "+general[r[0]])
		}
	}
	c.Clear(AX)
	c.Clear(DI)
	c.Set(DX, 1<<20)
	c.Set(DI, 3)
	lines = append(lines, "XORL AX, AX", "XORL DI, DI", "MOVL $1048576, DX", "MOVL $3, DI")
	back, skip := c.Here(), c.Skip()
	lines = append(lines, "back:", "JLT end")
	for range 40 {
		i := Inst{Op: VADDPS, Dst: 1, A: 2, B: 3}
		c.Do(i)
		lines = append(lines, i.text())
	}
	c.Back(back)
	c.Land(skip)
	c.Return()
	lines = append(lines, "JGE back", "end:", "VZEROUPPER", "RET")
	want := goasm.Bytes(t, "amd64", lines)
	if !bytes.Equal(c.Bytes(), want) {
		t.Error(difference(t, list, c.Bytes(), want))
	}
}

// difference names the first instruction whose bytes differ.
func difference(t *testing.T, list []Inst, got, want []byte) string {
	t.Helper()
	at := 0
	for _, i := range list {
		b := i.Append(nil)
		if !bytes.HasPrefix(want[at:], b) {
			return fmt.Sprintf("%s: % x, the assembler writes % x", i.text(), b, want[at:min(at+12, len(want))])
		}
		at += len(b)
	}
	return fmt.Sprintf("after the vectors: % x, the assembler writes % x", got[at:], want[at:])
}
